"""Integers, bits and f64 into panels of words: int8 four to a word, 4-bit elements widened to bytes, the rest as is.

VPDPBUSD multiplies unsigned bytes of B by signed bytes of A.  With A' = A - x and B' = B + y (x, y = 128 where a sign
had to change): A B = A'B' - y sum(A') + x sum(B') - x y K; the sums are taken while packing.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from nbtc.compiler.bits import word_at
from nbtc.compiler.jit import jit

# what operands hold: words, or elements to be made into words of four bytes, or into words of two 16-bit integers
WORDS, BYTES, NIBBLES, BYTE_PAIRS, NIBBLE_PAIRS = range(5)


def per_unit(source: int) -> tuple[int, int]:
    """(words, units): so many words are made of so many units of an operand's storage along K."""
    return {WORDS: (1, 1), BYTES: (1, 4), NIBBLES: (2, 1), BYTE_PAIRS: (1, 2), NIBBLE_PAIRS: (4, 1)}[source]


@jit(inline=True)
def four_bytes(nibbles, signed, offset):
    """The low four 4-bit elements as bytes; signed: two's complement.  offset: add 8, which makes them unsigned."""
    w = nibbles & np.uint32(0xFFFF)
    w = (w | (w << np.uint32(8))) & np.uint32(0x00FF00FF)
    w = (w | (w << np.uint32(4))) & np.uint32(0x0F0F0F0F)
    if signed:
        w ^= np.uint32(0x08080808)
        if not offset:
            w = ((w | np.uint32(0x80808080)) - np.uint32(0x08080808)) ^ np.uint32(0x80808080)
    return w


@jit(inline=True)
def byte_pair(low, high, signed):
    """Two bytes as 16-bit integers of a word."""
    if signed:
        low, high = np.uint16(np.int16(np.int8(low))), np.uint16(np.int16(np.int8(high)))
    return np.uint32(low) | (np.uint32(high) << np.uint32(16))


@jit(inline=True)
def nibble_pair(nibbles, signed):
    """The low two 4-bit elements as 16-bit integers of a word."""
    w = (nibbles & np.uint32(15)) | ((nibbles & np.uint32(0xF0)) << np.uint32(12))
    if signed:  # bit 3 of each half into the bits above it
        w |= np.uint32((w & np.uint32(0x00080008)) * np.uint32(0x1FFE))
    return w


@jit(inline=True)
def byte_sum(x, at, count, flip):
    """The sum of signed bytes."""
    total, row = np.int32(0), x[at : at + count]
    for k in range(count):
        total += np.int32(np.int8(row[k] ^ flip))
    return total


@jit(inline=True)
def nibble_sum(x, at, words, signed):
    """The sum of the 4-bit elements of words."""
    flip = np.uint32(0x88888888) if signed else np.uint32(0)
    total, row = np.uint32(0), x[at : at + words]
    for k in range(words):
        w = row[k] ^ flip
        w = (w & np.uint32(0x0F0F0F0F)) + ((w >> np.uint32(4)) & np.uint32(0x0F0F0F0F))
        total += ((w * np.uint32(0x01010101)) >> np.uint32(24)) & np.uint32(0xFF)  # Numba multiplies in 64 bits
    return np.int32(total) - np.int32(64 * words if signed else 0)


class Part(NamedTuple):
    """A part of a matrix: flat memory, the part's first element, and elements from row to row."""

    x: Any
    at: int
    ld: int


class Reading(NamedTuple):
    """How the elements of an operand are read: signed or not, xor of every byte; what A and what B are raised by."""

    signed: bool
    flip: np.uint8
    xshift: int
    yshift: int


@cache
def row_words(source: int, lines: int) -> Any:
    """kernel(x, x0, ld, rows, units, out, sums, signed, flip, y): rows of A into [tile][k][lines], zeros beyond them.

    x: flat units, the first at x0, rows ld apart.  sums[row] = -y times the sum of its elements, unless y is 0.
    """

    made, of = per_unit(source)

    @jit(inline=True)
    def place(to, k):
        """Where word k goes; unsigned, or each store tests whether its index counts from the end."""
        return np.uint64(to) + np.uint64(k) * np.uint64(lines)

    @jit(inline=True)
    def one(x, at, out, to, units, signed, flip, spare):
        """A row of A into every lines-th word."""
        row = x[at : at + units]
        if source == BYTES:
            word = np.uint32(flip) * np.uint32(0x01010101)
            for k in range(units >> 2):
                out[place(to, k)] = word_at(row, 4 * k) ^ word
            rest = np.uint32(0)
            for q in range(units & 3):
                rest |= np.uint32(row[(units & -4) + q] ^ flip) << np.uint32(8 * q)
            if units & 3:
                out[place(to, units >> 2)] = rest
        elif source == NIBBLES:  # spread first, whole vectors at a time
            low, high = spare[:units], spare[units : 2 * units]
            for k in range(units):
                low[k] = four_bytes(row[k], signed, False)
                high[k] = four_bytes(row[k] >> np.uint32(16), signed, False)
            for k in range(units):
                out[place(to, 2 * k)] = low[k]
                out[place(to, 2 * k + 1)] = high[k]
        elif source == BYTE_PAIRS:
            for k in range(units >> 1):
                out[place(to, k)] = byte_pair(row[2 * k], row[2 * k + 1], signed)
            if units & 1:
                out[place(to, units >> 1)] = byte_pair(row[units - 1], np.uint8(0), signed)
        elif source == NIBBLE_PAIRS:
            for k in range(units):
                for q in range(4):
                    out[place(to, 4 * k + q)] = nibble_pair(row[k] >> np.uint32(8 * q), signed)
        else:
            for k in range(units):
                out[place(to, k)] = row[k]

    @jit
    def run(x, x0, ld, rows, units, out, sums, signed, flip, y):
        words = (units + of - 1) // of * made
        spare = np.empty(words if source == NIBBLES else 0, np.uint32)
        for i in range((rows + lines - 1) // lines * lines):
            to = i // lines * lines * words + i % lines
            if i < rows:
                one(x, x0 + i * ld, out, to, units, signed, flip, spare)
            else:
                for k in range(words):
                    out[to + k * lines] = 0
            at, total = x0 + i * ld, np.int32(0)
            if source == BYTES:
                if i < rows and y != 0:
                    total = byte_sum(x, at, units, flip)
                sums[i] = -y * total
            elif source == NIBBLES:
                if i < rows and y != 0:
                    total = nibble_sum(x, at, units, signed)
                sums[i] = -y * total

    return run


@cache
def column_words(source: int, width: int) -> Any:
    """kernel(b, units, columns, out, sums, reading): columns of B, a `Part`, into [panel][k][width].

    sums[column] = xshift times the sum of its (raised) elements, less xshift * yshift * K.
    """

    made, step = per_unit(source)

    @jit
    def bytes_of(x, at, ld, units, have, out, to, flip):
        """Words of up to four rows of bytes."""
        for j in range(have):
            out[to + j] = np.uint32(x[at + j] ^ flip)
        for q in range(1, units):
            row, shift = at + q * ld, np.uint32(8 * q)
            for j in range(have):
                out[to + j] |= np.uint32(x[row + j] ^ flip) << shift

    @jit
    def four_rows(x, at, ld, out, to, flip):
        one, two = x[at : at + width], x[at + ld : at + ld + width]
        three, four = x[at + 2 * ld : at + 2 * ld + width], x[at + 3 * ld : at + 3 * ld + width]
        destination, flips = out[to : to + width], np.uint32(flip) * np.uint32(0x01010101)
        for j in range(width):
            low = np.uint32(one[j]) | (np.uint32(two[j]) << np.uint32(8))
            high = np.uint32(three[j]) | (np.uint32(four[j]) << np.uint32(8))
            destination[j] = (low | (high << np.uint32(16))) ^ flips

    @jit
    def line(x, at, ld, units, have, out, to, signed, flip):
        """One row of words (two of 4-bit elements) of a panel."""
        if source == BYTES:
            if units >= 4 and have == width:
                four_rows(x, at, ld, out, to, flip)
            else:
                bytes_of(x, at, ld, min(4, units), have, out, to, flip)
        elif source == NIBBLES:
            row, low, high = x[at : at + have], out[to : to + have], out[to + width : to + width + have]
            for j in range(have):
                low[j] = four_bytes(row[j], signed, True)
                high[j] = four_bytes(row[j] >> np.uint32(16), signed, True)
        elif source == BYTE_PAIRS:
            row, second = x[at : at + have], x[at + ld : at + ld + have] if units > 1 else x[:0]
            destination = out[to : to + have]
            if units > 1:
                for j in range(have):
                    destination[j] = byte_pair(row[j], second[j], signed)
            else:
                for j in range(have):
                    destination[j] = byte_pair(row[j], np.uint8(0), signed)
        elif source == NIBBLE_PAIRS:
            row = x[at : at + have]
            for q in range(4):
                destination, shift = out[to + q * width : to + q * width + have], np.uint32(8 * q)
                for j in range(have):
                    destination[j] = nibble_pair(row[j] >> shift, signed)
        else:
            row, destination = x[at : at + have], out[to : to + have]
            for j in range(have):
                destination[j] = row[j]

    @jit
    def run(b, units, columns, out, sums, reading):
        x, x0, ld = b
        signed, flip, xshift, yshift = reading
        lines = (units + step - 1) // step
        for panel in range((columns + width - 1) // width):
            first = panel * width
            have = min(width, columns - first)
            for i in range(lines):
                to = (panel * lines + i) * made * width
                if have < width:
                    for j in range(made * width):
                        out[to + j] = 0
                line(x, x0 + i * step * ld + first, ld, units - i * step, have, out, to, signed, flip)
        sums[:columns] = -np.int32(yshift * units)
        if source == BYTES and xshift != 0:
            for k in range(units):
                row = x[x0 + k * ld : x0 + k * ld + columns]
                for j in range(columns):
                    sums[j] += np.int32(row[j] ^ flip)
        for j in range(columns):
            sums[j] *= np.int32(xshift)

    return run
