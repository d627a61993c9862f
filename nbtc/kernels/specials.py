"""Outputs that an Inf or a NaN among the operands decides, where no sum of finite numbers can overflow.

A product with an Inf is Inf or NaN, and one such product decides the whole chain: NaN if there is a NaN operand, an
Inf times zero, or Infs of both signs; else that Inf.  Finding the few such products takes far less than doing whole
rows and columns again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.jit import jit
from nbtc.kernels.float_fields import FIELD_SHIFT, MANTISSA, SIGN_SHIFT, SPECIAL

PLUS, MINUS, NAN = np.uint8(1), np.uint8(2), np.uint8(4)  # what the special products of an output are
_BITS = np.array([0, 0x7F800000, 0xFF800000] + [0x7FFFFFFF] * 5, np.uint32)  # of an f32 output, by their union


class MatrixBlock(NamedTuple):
    """A block of a matrix inside a flat array: element (i, j) is words[first + i * ld + j]."""

    words: NDArray[Any]
    first: Any
    ld: Any


@jit(inline=True)
def magnitude_of(x, p):
    """The bits that count, without the sign."""
    kept = (np.int64(1) << p[SIGN_SHIFT]) - (np.int64(1) << (p[FIELD_SHIFT] - p[MANTISSA]))
    return np.int64(x) & kept


@jit(inline=True)
def product_of(x, y, px, py, infinite_x, infinite_y):
    """What x * y is, when one of them at least is Inf or NaN; infinite: the magnitude of Inf (e4m3: none)."""
    mx, my = magnitude_of(x, px), magnitude_of(y, py)
    if mx > infinite_x or my > infinite_y or mx == 0 or my == 0:
        return NAN
    sign = (np.int64(x) >> px[SIGN_SHIFT]) ^ (np.int64(y) >> py[SIGN_SHIFT])
    return MINUS if sign & 1 else PLUS


@jit
def special_places(x, x0, ld, rows, columns, p):
    """Positions i * columns + j of the Infs and NaNs of a block."""
    count = 0
    for turn in range(2):
        if turn == 1:
            found = np.empty(count, np.int64)
            count = 0
        for i in range(rows):
            for j in range(columns):
                if magnitude_of(x[x0 + i * ld + j], p) >= p[SPECIAL]:
                    if turn == 1:
                        found[count] = i * columns + j
                    count += 1
    return found


@jit
def decide(a, b, d, sizes, of_b, pa, pb, infinite, marked):
    """Outputs of a block d that an Inf or NaN decides; of_b: places of those of B.  marked[row]: A has one there.

    a, b, d: `MatrixBlock`; sizes: rows, depth, columns.
    """
    rows, depth, columns = sizes
    kinds = np.zeros(columns, np.uint8)
    for i in range(rows):
        row = a.first + i * a.ld
        kinds[:] = np.uint8(0)
        for place in of_b:
            k, j = place // columns, place % columns
            kinds[j] |= product_of(a.words[row + k], b.words[b.first + k * b.ld + j], pa, pb, infinite[0], infinite[1])
        if marked[i]:
            for k in range(depth):
                x = a.words[row + k]
                size = magnitude_of(x, pa)
                if size > infinite[0]:
                    kinds[:] = NAN
                    break
                if size >= pa[SPECIAL]:
                    line = b.words[b.first + k * b.ld : b.first + k * b.ld + columns]
                    for j in range(columns):
                        kinds[j] |= product_of(x, line[j], pa, pb, infinite[0], infinite[1])
        goal = d.words[d.first + i * d.ld : d.first + i * d.ld + columns]
        for j in range(columns):
            if kinds[j]:
                goal[j] = _BITS[kinds[j]]
