"""Products of kind mxf8f6f4 in loops that compilers vectorise: one row and 64 columns at a time, every step exactly.

The terms of a step are aligned to their largest exponent and cut toward zero by a conversion to integers; scales move
exponents only.  What an Inf or NaN decides is left to the scalar chain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.jit import jit
from nbtc.numerics import models
from nbtc.numerics.fused import Strided
from nbtc.numerics.scaled import scaled_chain

STEP, COLUMNS = 32, 64  # elements of K of an instruction; columns of a panel
NOTHING = -(1 << 20)  # exponent of a zero: below every other
FRACTION, FLOOR = 25, -133
# The row of a model whose sums these loops have: their integers hold no others.
SERVED = {models.KIND: models.Kind.SCALED, models.BLOCK: STEP, models.FRACTION: FRACTION, models.FLOOR: FLOOR}
BIAS64, MANTISSA64 = 1023, 52


class ScaledPanels(NamedTuple):
    """Decoded operands: values (f64) and exponents (int32) of A [row][K], of B [panel][K][64], and their scales'.

    K is padded to whole steps with zeros; scales int32 [row][step], [panel][step][64].
    """

    a: NDArray[np.float64]
    ea: NDArray[np.int32]
    xa: NDArray[np.int32]
    b: NDArray[np.float64]
    eb: NDArray[np.int32]
    xb: NDArray[np.int32]


@jit
def decode(codes, first, stride, count, values, exponents, out, to, e, step):
    """count elements from codes[first] on into out[to], out[to + step] ... and their exponents."""
    for t in range(count):
        code = codes[first + t * stride]
        out[to + t * step] = values[code]
        e[to + t * step] = exponents[code]


class Columns(NamedTuple):
    """Of each column of a panel: sum so far, exponents of the step's alignment and of its unit, a power of two with its
    bits, the step's sum in units."""

    c: NDArray[np.float32]
    top: NDArray[np.int32]
    low: NDArray[np.int32]
    power: NDArray[np.float64]
    power_bits: NDArray[np.int64]
    total: NDArray[np.int64]


@jit
def _step(p, row, column, steps, s, columns):
    """One step of a row and a panel: f32 values of c in place; False where c is no finite number."""
    c, top, low, power, power_bits, total = columns
    at, goal = row * steps * STEP + s * STEP, (column * steps + s) * STEP * COLUMNS
    top[:] = NOTHING
    for t in range(STEP):
        e = p.ea[at + t]
        eb = p.eb[goal + t * COLUMNS : goal + (t + 1) * COLUMNS]
        for j in range(COLUMNS):
            top[j] = max(top[j], e + eb[j])
    xb = p.xb[(column * steps + s) * COLUMNS : (column * steps + s + 1) * COLUMNS]
    xa, bits = p.xa[row * steps + s], c.view(np.uint32)
    fine = True
    for j in range(COLUMNS):
        magnitude = bits[j] & np.uint32(0x7FFFFFFF)
        fine &= magnitude < np.uint32(0x7F800000)
        own = max(np.int32(magnitude >> np.uint32(23)), np.int32(1)) - np.int32(127)
        scale_exponent = xa + xb[j]
        most = max(np.int32(FLOOR), own if magnitude != 0 else np.int32(FLOOR))
        most = max(most, top[j] + scale_exponent)
        low[j] = most - np.int32(FRACTION)
        power_bits[j] = np.int64(BIAS64 - low[j]) << MANTISSA64
    for j in range(COLUMNS):
        total[j] = np.int64(np.float64(c[j]) * power[j])
    for j in range(COLUMNS):
        power_bits[j] = np.int64(BIAS64 + xa + xb[j] - low[j]) << MANTISSA64
    for t in range(STEP):
        x = p.a[at + t]
        b = p.b[goal + t * COLUMNS : goal + (t + 1) * COLUMNS]
        for j in range(COLUMNS):
            total[j] += np.int64(x * b[j] * power[j])
    for j in range(COLUMNS):
        power_bits[j] = np.int64(BIAS64 + low[j]) << MANTISSA64
    for j in range(COLUMNS):
        exact = np.float64(total[j]) * power[j]
        near = np.float32(exact)
        word = near.view(np.uint32)
        # toward zero: one down where the nearest f32 is larger; from 2**128 on, an infinity
        over = abs(np.float64(near)) > abs(exact) and abs(exact) < 2.0**128
        word = np.uint32(word - np.uint32(1)) if over else word
        bits[j] = np.uint32(0) if word & np.uint32(0x7FFFFFFF) == 0 else word
    return fine


@jit
def panel_rows(p, codes, d, sizes, special, scales, params, first, last, panels):
    """d (M, N) flat, f32 bits: rows first..last of panels (first, last), chains of all steps.

    sizes: M, N, K, steps.  special: rows and panels with an Inf or NaN.  codes: operands of the scalar chain, which
    does those.
    """
    n, k, steps = sizes[1], sizes[2], sizes[3]
    c, top, low = np.zeros(COLUMNS, np.float32), np.zeros(COLUMNS, np.int32), np.zeros(COLUMNS, np.int32)
    power_bits, total = np.zeros(COLUMNS, np.int64), np.zeros(COLUMNS, np.int64)
    columns = Columns(c, top, low, power_bits.view(np.float64), power_bits, total)
    buffer = np.zeros((2, 8), np.int64)
    bits = c.view(np.uint32)
    for panel in range(panels[0], panels[1]):
        have = min(COLUMNS, n - panel * COLUMNS)
        for i in range(first, last):
            at = i * n + panel * COLUMNS
            bits[:] = np.uint32(0)
            for j in range(have):
                bits[j] = d[at + j]
            fine = not special[0][i] and not special[1][panel]
            s = 0
            while fine and s < steps:
                fine = _step(p, i, panel, steps, s, columns)
                s += 1
            for j in range(have):
                if fine:
                    d[at + j] = bits[j]
                else:
                    column = panel * COLUMNS + j
                    a, b = Strided(codes.a, i * k, 1), Strided(codes.b, column, n)
                    xs, ys = Strided(codes.xs, i * steps, 1), Strided(codes.ys, column, n)
                    start = np.uint64(d[at + j])
                    d[at + j] = np.uint32(scaled_chain(a, b, k, start, xs, ys, scales, params, buffer))
