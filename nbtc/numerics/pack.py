"""Operands into panels: decoded values, exponents and signs in the order in which a micro-kernel reads them.

Packing costs O(MK + KN) against O(MNK) of arithmetic, so it is plain loops that LLVM vectorises; it is done a block at
a time, because a decoded f64 panel is four times the size of its f16 operand.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nbtc._bits import as_f64, as_i64
from nbtc._jit import jit
from nbtc.formats.table import Format

# entries of the parameter vector of a packer
MANTISSA, MASK, BIAS, SIGN_SHIFT, FIELD_SHIFT, SPECIAL, REFERENCE, BASE, BLOCK, ORDER = range(10)


def float_params(
    fmt: Format, *, reference: int = 0, base: int = 0, block: int = 1, interleaved: bool = False
) -> NDArray[np.int64]:
    """How to read a float format's bits, and how to write its panel.

    reference: exponent that is stored as `base`.  block: products a sum.  interleaved: the products of a block pair are
    those with k mod 4 in {0, 1}, then those with k mod 4 in {2, 3}.
    """
    width = fmt.bits
    shift = width - 1 - fmt.exponent
    special = ((1 << fmt.exponent) - 1) << shift
    if fmt.finite_only:
        special |= (1 << fmt.mantissa) - 1
    mask = (1 << fmt.exponent) - 1
    return np.array(
        [fmt.mantissa, mask, fmt.bias, width - 1, shift, special, reference, base, block, interleaved], np.int64
    )


@jit(inline=True)
def decode(bits, p):
    """(sign, exponent, significand, zero, special) of a float: value = significand * 2**(exponent - mantissa bits)."""
    x = np.int64(bits)
    m = p[MANTISSA]
    magnitude = x & ((np.int64(1) << p[SIGN_SHIFT]) - np.int64(1))
    special = magnitude >= p[SPECIAL]
    field = magnitude >> p[FIELD_SHIFT]
    normal = np.int64(field != 0)
    low = (magnitude >> (p[FIELD_SHIFT] - m)) & ((np.int64(1) << m) - np.int64(1))
    significand = low | (normal << m)
    sign = (x >> p[SIGN_SHIFT]) & np.int64(1)
    return sign, field + np.int64(1) - normal - p[BIAS], significand, (significand == 0) | special, special


@jit(inline=True)
def value(sign, exponent, significand, p):
    """The float as an f64, exactly."""
    scale = as_f64(((exponent - p[MANTISSA] + np.int64(1023)) << np.int64(52)) | (sign << np.int64(63)))
    return np.float64(significand) * scale


@jit(inline=True)
def source(t, p):
    """Which k of the operand goes to place t of the panel."""
    if p[ORDER] == 0:
        return t
    block = p[BLOCK]
    pair, rest = t // (2 * block), t % (2 * block)
    half, within = rest // block, rest % block
    return pair * 2 * block + 4 * (within // 2) + 2 * half + within % 2


@jit
def pack_rows(x, out, exponents, signs, special, p, tiny, replicate, scale):
    """Rows of A, (rows, k) C-order bits, into [block][row tile][k][4 rows]; special[i] marks rows with Inf or NaN.

    Returns the largest sum of significands of a block of products, in units of 2**-mantissa.

    The panel is as deep as `exponents` has room for; rows and products beyond the operand are zeros.
    """
    rows, depth = x.shape
    block, blocks = p[BLOCK], special.size // 4
    places = exponents.size // special.size
    values, shown, negative = np.empty(places), np.empty(places, np.uint32), np.empty(places, np.uint32)
    weights = np.zeros(places, np.int64)
    heaviest = np.int64(0)
    for i in range(special.size):
        marked = np.int64(0)
        count = min(depth, places) if i < rows else 0
        for k in range(count):
            sign, exponent, significand, zero, odd = decode(x[i, k], p)
            marked |= np.int64(odd)
            plain = value(sign, exponent, significand, p) * scale
            values[k] = as_f64(as_i64(tiny) | (sign << np.int64(63))) if zero else plain
            shown[k] = np.uint32(0) if zero else np.uint32((exponent - p[REFERENCE] + p[BASE]) * replicate)
            negative[k] = np.uint32(sign)
            weights[k] = significand
        for k in range(count, places):
            values[k], shown[k], negative[k], weights[k] = tiny, np.uint32(0), np.uint32(0), np.int64(0)
        special[i] |= np.uint8(marked)
        tile, r = i // 4, i % 4
        for g in range(places // block):
            at = ((g * blocks + tile) * block) * 4 + r
            word, weight = np.uint32(0), np.int64(0)
            if p[ORDER] == 0:
                first = g * block
                for t in range(block):
                    out[at + 4 * t] = values[first + t]
                    exponents[at + 4 * t] = shown[first + t]
                for t in range(block):
                    weight += weights[first + t]
                    word |= negative[first + t] << np.uint32(t)
            else:
                for t in range(block):
                    k = source(g * block + t, p)
                    weight += weights[k]
                    out[at + 4 * t] = values[k]
                    exponents[at + 4 * t] = shown[k]
                    word |= negative[k] << np.uint32(t)
            signs[(g * blocks + tile) * 4 + r] = word
            heaviest = max(heaviest, weight)
    return heaviest


@jit
def pack_columns(x, out, exponents, signs, special, p, tiny, nudge, order):
    """Columns of B, (k, columns) C-order bits, into panels [panel][k][64]; special[j] marks columns with Inf or NaN.

    Values are stored times `nudge`, columns of a panel in plain order or (order) as f64 vectors hold them; exponents
    and signs in plain order.  Returns the largest sum of significands of a block of products, in units of 2**-mantissa.
    """
    depth, columns = x.shape
    block, places = p[BLOCK], exponents.size // special.size
    values, shown, negative = np.empty(64), np.empty(64, exponents.dtype), np.empty(64, np.uint32)
    marked, weights, sums = np.zeros(64, np.int64), np.zeros(64, np.int64), np.zeros(64, np.int64)
    heaviest = np.int64(0)
    for panel in range(special.size // 64):
        first = panel * 64
        count = max(0, min(64, columns - first))
        marked[:] = 0
        for t in range(places):
            k = source(t, p)
            have = count if k < depth else 0
            for j in range(have):
                sign, exponent, significand, zero, odd = decode(x[k, first + j], p)
                marked[j] |= np.int64(odd)
                plain = value(sign, exponent, significand, p) * nudge
                values[j] = as_f64(as_i64(tiny) | (sign << np.int64(63))) if zero else plain
                shown[j] = 0 if zero else exponent - p[REFERENCE] + p[BASE]
                negative[j] = np.uint32(sign)
                weights[j] = significand
            for j in range(have, 64):
                values[j], shown[j], negative[j], weights[j] = tiny, 0, np.uint32(0), np.int64(0)
            if t % block == 0:
                sums[:] = 0
            for j in range(64):
                sums[j] += weights[j]
            if t % block == block - 1:
                for j in range(64):
                    heaviest = max(heaviest, sums[j])
            at = (panel * places + t) * 64
            word = (panel * (places // block) + t // block) * 64
            if order:
                for j in range(0, 64, 16):  # pairs of columns, as two f64 vectors hold them
                    for q in range(4):
                        for h in range(2):
                            to = at + j + 8 * h + 2 * q
                            out[to] = values[j + 4 * q + 2 * h]
                            out[to + 1] = values[j + 4 * q + 2 * h + 1]
            else:
                for j in range(64):
                    out[at + j] = values[j]
            for j in range(64):
                exponents[at + j] = shown[j]
            if t % block == 0:
                for j in range(64):
                    signs[word + j] = negative[j]
            else:
                for j in range(64):
                    signs[word + j] |= negative[j] << np.uint32(t % block)
        for j in range(64):
            special[first + j] |= np.uint8(marked[j])
    return heaviest


@jit
def exponent_range(x, p, seen):
    """Widen seen = [least, greatest] to the exponents of the finite non-zero elements of (rows, columns) bits."""
    low, high = seen[0], seen[1]
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            _, exponent, _, zero, _ = decode(x[i, j], p)
            low = low if zero else min(low, exponent)
            high = high if zero else max(high, exponent)
    seen[0], seen[1] = low, high


@jit
def pack_row_words(x, out, tile_rows):
    """(rows, k) words into [row tile][k][tile_rows]; rows beyond the operand are zeros."""
    rows, depth = x.shape
    for tile in range((rows + tile_rows - 1) // tile_rows):
        for r in range(tile_rows):
            i = tile * tile_rows + r
            at = tile * tile_rows * depth + r
            if i < rows:
                for k in range(depth):
                    out[at + k * tile_rows] = x[i, k]
            else:
                for k in range(depth):
                    out[at + k * tile_rows] = 0


@jit
def pack_column_words(x, out, width):
    """(k, columns) words into [panel][k][width]; columns beyond the operand are zeros."""
    depth, columns = x.shape
    for panel in range((columns + width - 1) // width):
        first = panel * width
        have = min(width, columns - first)
        for k in range(depth):
            at = (panel * depth + k) * width
            for j in range(have):
                out[at + j] = x[k, first + j]
            for j in range(have, width):
                out[at + j] = 0


@jit
def row_bytes(x, words, sums, flip):
    """(rows, k) bytes to (rows, k / 4) words of bytes ^ flip, and their sums as signed bytes."""
    rows, depth = x.shape
    for i in range(rows):
        total = np.int32(0)
        for w in range(words.shape[1]):
            word = np.uint32(0)
            for q in range(4):
                k = 4 * w + q
                byte = np.uint32(x[i, k]) ^ flip if k < depth else np.uint32(0)
                word |= byte << np.uint32(8 * q)
                total += np.int32(np.int8(byte))
            words[i, w] = word
        sums[i] += total


@jit
def column_bytes(x, words, sums, flip):
    """(k, columns) bytes to (k / 4, columns) words of bytes ^ flip, and their sums as unsigned bytes."""
    depth, columns = x.shape
    for w in range(words.shape[0]):
        for j in range(columns):
            words[w, j] = np.uint32(0)
        for q in range(4):
            k = 4 * w + q
            if k < depth:
                for j in range(columns):
                    byte = np.uint32(x[k, j]) ^ flip
                    words[w, j] |= byte << np.uint32(8 * q)
                    sums[j] += np.int32(byte)


@jit
def nibble_words(x, out, along_rows, signed, offset):
    """Words of eight 4-bit elements to words of four bytes each, two for one: along rows (a row's words) or columns.

    signed: two's complement elements.  offset: add 8, which makes them unsigned; else signed bytes.
    """
    low, eights, sign = np.uint32(0x0F0F0F0F), np.uint32(0x08080808), np.uint32(0x80808080)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            for half in range(2):
                w = (x[i, j] >> np.uint32(16 * half)) & np.uint32(0xFFFF)
                w = (w | (w << np.uint32(8))) & np.uint32(0x00FF00FF)
                w = (w | (w << np.uint32(4))) & low
                if signed:
                    w ^= eights
                    if not offset:
                        w = ((w | sign) - eights) ^ sign
                if along_rows:
                    out[i, 2 * j + half] = w
                else:
                    out[2 * i + half, j] = w


@jit
def byte_sums(words, sums):
    """The sum of each row's signed bytes."""
    for i in range(words.shape[0]):
        total = np.int32(0)
        for w in range(words.shape[1]):
            x = words[i, w]
            for q in range(4):
                total += np.int32(np.int8((x >> np.uint32(8 * q)) & np.uint32(255)))
        sums[i] = total
