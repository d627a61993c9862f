"""A tile of fused dot products: the same sums as `fused.chain`, row by row in loops a compiler can vectorise.

For each row of A and all columns of B at once: alignment exponents by integer maxima, a power of two that aligns every
product, truncation by conversion to int32, and one rounding.  f16 and fp8 products are exact in f32, bf16 and tf32 ones
in f64, so the element type of the decoded operands says which is meant.  Whatever this cannot do exactly (Inf and NaN,
sums near the end of int32, results near the ends of f32) is marked, for `chain` to do element by element.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nbtc.compiler.bits import as_f32
from nbtc.compiler.copies import copied
from nbtc.compiler.jit import jit
from nbtc.formats.table import FORMATS, NO_KERNEL, Format
from nbtc.kernels.rows.rows_emitter import F32_ZERO, F64_ZERO, RowBlock, sum_row
from nbtc.numerics.fused import chain
from nbtc.numerics.models import BLOCK, FLOOR, FRACTION, OUT

# what `decode` needs to know of a format: mantissa bits, ignored low bits, magnitude mask, first special, bias
_ROWS = np.zeros((1 + max(f.code for f in FORMATS.frozen()), 5), np.int32)
for _f in FORMATS.frozen():
    if _f.kind == "float" and _f.bits <= 32 and _f.code != NO_KERNEL:
        _ROWS[_f.code] = (
            _f.mantissa, _f.bits - 1 - _f.exponent - _f.mantissa, (1 << (_f.exponent + _f.mantissa)) - 1, _f.special,
            _f.bias,
        )  # fmt: skip


class OperandStorage(NamedTuple):
    """How decoded operands are stored: element type, exponent type, and the exponent that marks a zero."""

    value: type[np.floating[Any]]
    exponent: type[np.signedinteger[Any]]
    zero: int


def panels(a: Format, b: Format) -> OperandStorage:
    """The storage in which products of two formats, and their alignment, are exact."""
    in_f64 = max(a.exponent, b.exponent) > 5
    return OperandStorage(np.float64, np.int16, F64_ZERO) if in_f64 else OperandStorage(np.float32, np.int8, F32_ZERO)


class Decoded(NamedTuple):
    """Decoded operands of a tile: values and exponents of A, m x k, and of B, rows of n columns (`decode`), and 1 for
    the rows of A and columns of B with Inf or NaN.
    """

    a: Any
    a_exponents: Any
    b: Any
    b_exponents: Any
    a_special: Any
    b_special: Any


class Sizes(NamedTuple):
    """Rows, columns and products of a tile."""

    m: int
    n: int
    k: int


class Picks(NamedTuple):
    """The row of B that meets element t of row i is places[i * step + t] (step 0: one list for all rows)."""

    places: Any
    step: int


@jit
def decode(bits, code, zero, values, exponents):
    """Element bits to values and exponents (`zero` for zeros); True when some are Inf or NaN (they become zeros)."""
    mantissa, drop, mask, limit, bias = _ROWS[code]
    up = as_f32((np.int32(254) - bias) << np.int32(23))
    found = np.int32(0)
    for i in range(values.size):
        x = np.int32(bits[i]) >> drop
        magnitude = x & mask
        special = np.int32(magnitude >= limit)
        found |= special
        kept = np.int32(0) if special else magnitude
        value = as_f32(kept << (np.int32(23) - mantissa)) * up
        values[i] = value if x == magnitude else -value
        field = max(kept >> mantissa, np.int32(1)) - bias
        exponents[i] = zero if kept == np.int32(0) else field
    return found != np.int32(0)


@jit
def mark_specials(bits, code, rows, cols, by_row, special):
    """special[i] (by_row) or special[j] = 1 where element (i, j) is Inf or NaN."""
    drop, mask, limit = _ROWS[code, 1], _ROWS[code, 2], _ROWS[code, 3]
    for i in range(rows):
        for j in range(cols):
            if ((np.int32(bits[i * cols + j]) >> drop) & mask) >= limit:
                special[i if by_row else j] = np.uint8(1)


@jit
def fused_tile(x, c, redo, sizes, picks, params):
    """c = A * B + c for an m x n tile of accumulator bits; True when `redo` marks elements that `chain` must do.

    x: `Decoded` operands; n is a multiple of 64 and k of the block.  redo: m x n bytes, written whole.
    """
    fraction, floor, block, out = params[FRACTION], params[FLOOR], params[BLOCK], params[OUT]
    m, n, k = sizes
    later = np.empty(n, np.uint8)
    some = False
    for j in range(n):
        some |= x.b_special[j] != 0
    columns = some
    for i in range(m):
        at, p, to = i * k, i * picks.step, i * n
        marks = redo[to : to + n]
        for k0 in range(0, k, block):
            if k0 > 0:
                copied(later, marks)
            row = RowBlock(
                x.a, x.a_exponents, at, x.b, x.b_exponents, picks.places, p, k0, k0 + block, n, c, redo, to, fraction,
                floor,
            )  # fmt: skip
            some |= sum_row(row, out) != 0
            if k0 > 0:
                for j in range(n):
                    marks[j] |= later[j]
        if columns or x.a_special[i] != 0:
            some = True
            for j in range(n):
                marks[j] |= x.b_special[j] | x.a_special[i]
    return some


@jit
def redo_tile(a_bits, b_bits, before, c, redo, used, sizes, picks, params):
    """Compute the marked elements of c from the accumulators `before`, by `chain`; arguments as `fused_tile`.

    used: columns that matter, the first of n.

    Apart from it, so that what needs no repair need not compile it.
    """
    m, n, k = sizes
    column = np.empty(k, np.uint32)
    for i in range(m):
        for j in range(used):
            if redo[i * n + j] != 0:
                for t in range(k):
                    column[t] = b_bits[picks.places[i * picks.step + t] * n + j]
                start = np.uint64(before[i * n + j])
                c[i * n + j] = np.uint32(chain(a_bits, i * k, 1, column, 0, 1, k, start, params))
