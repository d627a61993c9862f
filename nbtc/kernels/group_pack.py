"""Packing of e2m1 operands and their block scales for `group_dot`: bytes, f64 factors and bounds of exponents."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.jit import jit
from nbtc.formats.table import ue4m3, ue8m0
from nbtc.kernels.group_dot import C_PLACES, HEAD, LANES, OFFSET, STEP, WORDS
from nbtc.numerics import models

_HALVES = (0, 1, 2, 3, 4, 6, 8, 12)  # twice the positive e2m1 numbers, by code
_TWICE = np.array([*_HALVES, *(-x for x in _HALVES)], np.int8)
FRACTION, FLOOR = 35, -139
# The row of a model whose sums `group_dot` has, in places that this fraction leaves: f64 holds no others exactly.
SERVED = {models.KIND: models.Kind.GROUPED, models.BLOCK: 16, models.FRACTION: FRACTION, models.FLOOR: FLOOR}
BIAS32 = 127  # of the fields that bounds are compared with
NAN_EXPONENT = 1 << 20  # marks a NaN among exponents


def _table(fmt: Any) -> tuple[Any, Any, int]:
    """(value, exponent) of every byte as a scale, and how far below the largest exponent nothing is cut off.

    A group's sum counts quarters, times the significands of two scales: E may be 35 less those places above.
    """
    values, exponents = np.zeros(256), np.zeros(256, np.int32)
    for code in range(256):
        magnitude = code & ((1 << fmt.bits) - 1)
        field, fraction = magnitude >> fmt.mantissa, magnitude & ((1 << fmt.mantissa) - 1)
        exponents[code] = max(field, int(fmt.zero)) - fmt.bias
        hidden = 1 << fmt.mantissa if field or not fmt.zero else 0
        values[code] = np.ldexp(float(hidden + fraction), int(exponents[code]) - fmt.mantissa)
        if magnitude == fmt.special:
            values[code], exponents[code] = 1.0, NAN_EXPONENT
    return values, exponents, FRACTION - 2 - 2 * fmt.mantissa


class Scratch(NamedTuple):
    """Memory for lines that are packed at a time: which blocks are in use, and bounds of their exponents."""

    used: NDArray[np.bool_]
    found: NDArray[np.int64]

    @classmethod
    def new(cls, lines: int, chunks: int) -> Self:
        """Of callers (see `group_dot.Scratch`)."""
        return cls(np.zeros(lines * chunks, np.bool_), np.zeros(lines * 2, np.int64))


@cache
def packers(scale: str, chunks: int) -> tuple[Any, Any]:
    """(rows, columns): pack lines of A, and panels of B, of `chunks` scales of a format a step."""
    values, exponents, limit = _table({f.name: f for f in (ue8m0, ue4m3)}[scale])
    twice, size = _TWICE, STEP // chunks
    quarter = 0.25  # both operands are doubled

    @jit
    def bounds(codes, at, stride, used, found, line):
        """Least and largest exponent of a line's blocks in use (all zero: those of `found`); whether one is a NaN."""
        low, high, bad = 1 << 20, -(1 << 20), False
        for g in range(chunks):
            e = exponents[codes[at + g * stride]]
            bad |= e == NAN_EXPONENT
            if used[line * chunks + g] and values[codes[at + g * stride]] != 0.0:
                low, high = min(low, e), max(high, e)
        if high < low:
            low, high = found[2 * line], found[2 * line + 1]
        found[2 * line], found[2 * line + 1] = low, high
        return bad

    @jit
    def rows(a, xs, k, m, steps, first, last, packed, special, scratch):
        used, found = scratch
        for i in range(first, last):
            found[0] = found[1] = 0
            for s in range(steps):
                line = i * steps + s
                record = line * (HEAD + chunks)
                for g in range(chunks):
                    total, some = np.int64(0), False
                    for t in range(g * size, (g + 1) * size):
                        at = s * STEP + t
                        x = np.int64(twice[a[i * k + at]]) if i < m and at < k else np.int64(0)
                        packed.elements[line * STEP + t] = np.int8(x)
                        total += x
                        some |= x != 0
                    used[g] = some
                    packed.records[record + HEAD + g] = np.int32(-OFFSET * total)
                    code = xs[(i * steps + s) * chunks + g] if i < m else np.uint8(0)
                    packed.factors[line * chunks + g] = values[code] * quarter if i < m else 0.0
                if i < m:
                    special[i] |= bounds(xs, line * chunks, np.int64(1), used, found, 0)
                packed.records[record] = np.int32(found[1] - C_PLACES + BIAS32)
                packed.records[record + 1] = np.int32(found[0] + limit + BIAS32 + 1)

    @jit
    def columns(b, ys, k, n, steps, first, last, packed, special, scratch):
        used, found = scratch
        for panel in range(first, last):
            for t in range(2 * LANES):
                found[t] = 0
            for s in range(steps):
                line = panel * steps + s
                for t in range(LANES * chunks):
                    used[t] = False
                for t in range(STEP):
                    at, goal = s * STEP + t, line * WORDS * LANES * 4 + (t >> 2) * LANES * 4 + (t & 3)
                    for lane in range(LANES):
                        j = panel * LANES + lane
                        x = np.int64(twice[b[at * n + j]]) if at < k and j < n else np.int64(0)
                        packed.words[goal + 4 * lane] = np.uint8(x + OFFSET)
                        used[lane * chunks + t // size] |= x != 0
                for lane in range(LANES):
                    j = panel * LANES + lane
                    for g in range(chunks):
                        code = ys[(s * chunks + g) * n + j] if j < n else np.uint8(0)
                        packed.factors[(line * chunks + g) * LANES + lane] = values[code] if j < n else 0.0
                    if j < n:
                        special[j] |= bounds(ys, s * chunks * n + j, n, used, found, lane)
                    packed.records[line * 2 * LANES + lane] = np.int32(found[2 * lane + 1])
                    packed.records[line * 2 * LANES + LANES + lane] = np.int32(found[2 * lane])

    return rows, columns
