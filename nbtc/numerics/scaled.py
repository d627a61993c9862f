"""Block-scaled dot products, bit for bit: scalar, every input class.  The general path of mxf8f6f4, mxf4 and mxf4nvf4.

mxf8f6f4 is the fused sum of `fused.py` whose products have the exponents of their row's and column's scale added.  The
other two sum groups of 16 fp4 products exactly, scale each sum, and align the sums by the exponents of the scales.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.jit import jit
from nbtc.formats.block_scales import MANTISSA, ScaleTable
from nbtc.numerics.fused import Extent, Rounding, Strided, block_sum, reading, sum_in_f32, value_of
from nbtc.numerics.ieee import NAN32
from nbtc.numerics.models import A_FORMAT, ACC_FORMAT, B_FORMAT, BLOCK, FLOOR, FRACTION, KIND, OUT, STEP, Kind

_SCALED = int(Kind.SCALED)
_SIGN, _MAGNITUDE, _INFINITY = np.int64(1 << 31), np.int64((1 << 31) - 1), np.int64(0x7F800000)
HALVES = 2.0  # an e2m1 number is a whole number of halves, so sums of products count quarters
BELOW = 2 + 2 * MANTISSA  # bits below one of a scaled group: quarters, times the significands of two scales
GROUPS = 8  # room for the groups of a step


class StepScales(NamedTuple):
    """Of one step: how many a row or column has, and what their codes mean."""

    chunks: int
    table: ScaleTable


@jit(inline=True)
def _scale(code, table):
    """(significand, exponent, NaN) of a scale code."""
    return table.significands[code], table.exponents[code], table.nan[code]


@jit(inline=True)
def _cut(significand, shift):
    """significand * 2**shift toward zero."""
    if significand == 0 or shift < -62:
        return np.int64(0)
    if shift >= 0:
        return significand << shift
    return significand >> -shift if significand >= 0 else -(-significand >> -shift)


@jit(inline=True)
def grouped_step(a, b, here, readings, c, xs, ys, scales, params, buffer):
    """One step of grouped products: f32 bits.  buffer: two rows for the groups' sums and exponents."""
    for j in range(scales.chunks):
        bad = _scale(xs.words[xs.first + j * xs.stride], scales.table)[2]
        if bad or _scale(ys.words[ys.first + j * ys.stride], scales.table)[2]:
            return np.int64(NAN32)
    magnitude = c & _MAGNITUDE
    if magnitude >= _INFINITY:
        return c if magnitude == _INFINITY else np.int64(NAN32)
    own = max(magnitude >> 23, 1) - 127
    top = params[FLOOR] if magnitude == 0 else max(own, params[FLOOR])
    size, count = params[BLOCK], params[STEP] // params[BLOCK]
    for g in range(count):
        total, some = np.int64(0), False
        for t in range(g * size, min((g + 1) * size, here)):
            x = np.int64(value_of(np.int64(a.words[a.first + t * a.stride]), readings[0]) * HALVES)
            y = np.int64(value_of(np.int64(b.words[b.first + t * b.stride]), readings[1]) * HALVES)
            total += x * y
            some |= x * y != 0
        j = g * scales.chunks // count
        mx, ex, _ = _scale(xs.words[xs.first + j * xs.stride], scales.table)
        my, ey, _ = _scale(ys.words[ys.first + j * ys.stride], scales.table)
        buffer[0, g], buffer[1, g] = total * mx * my, ex + ey
        if some and mx * my != 0:
            top = max(top, ex + ey)
    unit = top - params[FRACTION]
    whole = magnitude & ((np.int64(1) << 23) - 1)
    if magnitude >> 23 != 0:
        whole |= np.int64(1) << 23
    total = _cut(-whole if c & _SIGN != 0 else whole, own - 23 - unit)
    for g in range(count):
        total += _cut(buffer[0, g], buffer[1, g] - BELOW - unit)
    return sum_in_f32(total, unit, 24, -149)


@jit
def scaled_chain(a, b, k, c, xs, ys, scales, params, buffer):
    """Accumulator bits of c + the block-scaled dot product of k elements, in steps padded with zeros.

    a, b: `Strided` bytes of element codes; xs, ys: of scale codes, `scales.chunks` a step.  c: f32 bits in a uint64.
    params: from `nbtc.numerics.models.params`.  buffer: int64 (2, GROUPS), scratch.
    """
    readings = reading(params[A_FORMAT]), reading(params[B_FORMAT]), reading(params[ACC_FORMAT])
    step, rounding = params[STEP], Rounding(params[FRACTION], params[FLOOR], params[OUT])
    acc, chunk = np.int64(c), np.int64(0)
    for start in range(0, k, step):
        here = min(step, k - start)
        pa, pb = a.first + start * a.stride, b.first + start * b.stride
        px, py = xs.first + chunk * xs.stride, ys.first + chunk * ys.stride
        left, right = Strided(a.words, pa, a.stride), Strided(b.words, pb, b.stride)
        if params[KIND] != _SCALED:
            row, column = Strided(xs.words, px, xs.stride), Strided(ys.words, py, ys.stride)
            acc = grouped_step(left, right, here, readings, acc, row, column, scales, params, buffer)
        else:
            _, ex, bad_x = _scale(xs.words[px], scales.table)
            _, ey, bad_y = _scale(ys.words[py], scales.table)
            if bad_x or bad_y:
                acc = np.int64(NAN32)
            else:
                acc = block_sum(left, right, Extent(here, step, 0), readings, acc, rounding, ex + ey)
        chunk += scales.chunks
    return np.uint64(acc)


class ScaledOperands(NamedTuple):
    """Flat arrays of many products: a (X, M, K), b (Y, K, N), c (Z, M, N), xs (V, M, S) and ys (W, S, N).

    maps (5, batch): which matrix of each a batch item has; -1 in the row of c: zeros.
    """

    a: NDArray[np.uint8]
    b: NDArray[np.uint8]
    c: NDArray[np.uint32]
    xs: NDArray[np.uint8]
    ys: NDArray[np.uint8]
    maps: NDArray[np.int64]


@jit
def scaled_outputs(operands, d, chosen, sizes, scales, params, first, last):
    """d[t] = chain of output t, for the positions t = chosen[first..last]; all positions where `chosen` is empty.

    sizes: M, N, K, S.
    """
    m, n, k, s = sizes[0], sizes[1], sizes[2], sizes[3]
    maps, buffer = operands.maps, np.zeros((2, GROUPS), np.int64)
    for p in range(first, last):
        t = p if chosen.size == 0 else chosen[p]
        item, rest = t // (m * n), t % (m * n)
        i, j = rest // n, rest % n
        start = np.uint64(0) if maps[2, item] < 0 else np.uint64(operands.c[maps[2, item] * m * n + rest])
        a = Strided(operands.a, (maps[0, item] * m + i) * k, 1)
        b = Strided(operands.b, maps[1, item] * k * n + j, n)
        xs = Strided(operands.xs, (maps[3, item] * m + i) * s, 1)
        ys = Strided(operands.ys, maps[4, item] * s * n + j, n)
        d[t] = scaled_chain(a, b, k, start, xs, ys, scales, params, buffer)
