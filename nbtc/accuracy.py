"""How far a product is from the exact one rounded once: the yardstick of `nbtc gemm` and of error plots.

The reference is a float64 product with a proven error bound; the few outputs that the bound leaves undecided are summed
again in exact integers.  So the count is of the result's own roundings, never of the reference's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc.compiler.jit import in_default_float_mode
from nbtc.errors import FormatError, ShapeError
from nbtc.formats.arrays import as_array
from nbtc.testing import ulp_distance

_UNIT = 2.0**-53
_SAMPLE = 512  # outputs checked where each needs exact integers


@dataclass(frozen=True)
class Accuracy:
    """Distances of a product's outputs from the correctly rounded ones.

    outputs: how many were checked.  different: how many are not the correctly rounded value.  max_ulp: the largest
    distance, in steps of the result's format (2**64 - 1: a NaN against a number).  sampled: True when the outputs are
    a random sample.  relative: root mean square distance over the root mean square output, of those that are finite.
    """

    outputs: int
    different: int
    max_ulp: int
    sampled: bool = False
    relative: float = field(default=0.0, compare=False)


@in_default_float_mode
def accuracy(d: ArrayLike, a: ArrayLike, b: ArrayLike, c: ArrayLike | None = None, *, op: str = "xor") -> Accuracy:
    """Compare `d` with `a @ b + c` computed exactly and rounded once to d's dtype.

    d: (..., M, N), a: (..., M, K), b: (..., K, N), c: (..., M, N) or None; floats of any format, integers, or bool
    (then the product counts the ones of `op`, "xor" or "and").  A float64 `d` is checked on a random sample of its
    outputs, as float64 products have no exact float64 form.  Where the sum meets an Inf or a NaN, NumPy's float64
    result is the reference.  Raises ShapeError or FormatError for operands that make no product.

    >>> import numpy as np
    >>> a = np.array([[1, 2.0**-12]], np.float16)
    >>> accuracy(np.array([[1]], np.float32), a, np.ones((2, 1), np.float16))  # doctest: +ELLIPSIS
    Accuracy(outputs=1, different=1, max_ulp=2048, sampled=False, relative=0.000244081...)
    """
    got = as_array(d)
    x, y, z = _operand(a), _operand(b), None if c is None else _operand(c)
    if got.dtype.kind not in "fi" or got.dtype.itemsize not in (2, 4, 8):
        raise FormatError(
            f"accuracy compares float16, float32, float64 and int32 results, not {got.dtype}: pass matmul's"
        )
    try:
        shape = np.broadcast_shapes((*x.shape[:-1], 1), (*y.shape[:-2], 1, y.shape[-1]), () if z is None else z.shape)
    except (ValueError, IndexError):
        shape = (-1,)
    if x.ndim < 2 or y.ndim < 2 or x.shape[-1] != y.shape[-2] or shape != got.shape:
        raise ShapeError(
            f"a {x.shape} @ b {y.shape} does not give d {got.shape}: pass a (..., M, K), b (..., K, N) and "
            "d (..., M, N), as in accuracy(nbtc.matmul(a, b), a, b)"
        )
    if got.dtype.kind == "i":
        return _integers(got, x, y, z, op if as_array(a).dtype == np.bool_ else None)
    with np.errstate(all="ignore"):
        return _floats(got, x, y, z)


def _operand(x: ArrayLike) -> NDArray[np.float64]:
    return as_array(x).astype(np.float64)


def _integers(got: NDArray[Any], x: Any, y: Any, z: Any, op: str | None) -> Accuracy:
    """Exact in float64 (sums stay far below 2**53); the correctly rounded integer is the sum itself, not its wrap."""
    exact = x @ y
    if op == "xor":
        exact = x.sum(-1)[..., :, None] + y.sum(-2)[..., None, :] - 2 * exact
    if z is not None:
        exact = exact + z
    distance = np.abs(exact - got)
    different = int(np.count_nonzero(distance))
    return Accuracy(got.size, different, int(distance.max(initial=0)), relative=_relative(got, exact))


def _floats(got: NDArray[Any], x: Any, y: Any, z: Any) -> Accuracy:
    zero = np.zeros(got.shape) if z is None else np.broadcast_to(z, got.shape)
    if got.dtype.itemsize == 8:
        at = np.random.default_rng(0).choice(got.size, min(got.size, _SAMPLE), replace=False)
        flat = np.unravel_index(at, got.shape)
        return _count(got[flat], _exact(flat, got.dtype, x, y, zero), sampled=got.size > _SAMPLE)
    middle = x @ y + zero
    # every product is exact in float64 (at most 24 + 24 bits): only the additions round
    most = np.abs(x) @ np.abs(y) + np.abs(zero)
    slack = most * ((x.shape[-1] + 2) * _UNIT * 1.01)
    # and nothing rounds where all that is added are multiples of a number that 2**53 times is more than their sum: so
    # ties of narrow formats, of which one output in ten may be one, are decided here (1.01: `most` is rounded itself)
    slack[most * 1.01 < min(_last_place(x) * _last_place(y), _last_place(zero)) / _UNIT] = 0
    low, high = (middle - slack).astype(got.dtype), (middle + slack).astype(got.dtype)
    want = middle.astype(got.dtype)
    open_ = np.nonzero((low != high) & np.isfinite(middle))
    want[open_] = _exact(open_, got.dtype, x, y, zero)
    return _count(got, want)


def _last_place(x: NDArray[np.float64]) -> float:
    """The largest power of two that all elements are multiples of; 1 if they are all zero, 0 if one is not finite."""
    if not np.isfinite(x).all():
        return 0.0
    mantissa, exponent = np.frexp(x[x != 0])
    if mantissa.size == 0:
        return 1.0
    bits = (mantissa * 2.0**53).astype(np.int64)
    return float(np.min(np.ldexp((bits & -bits).astype(np.float64), exponent - 53)))


def _exact(at: tuple[NDArray[Any], ...], dtype: Any, x: Any, y: Any, zero: Any) -> NDArray[Any]:
    """Correctly rounded outputs at some indices, by exact rational sums."""
    rows = np.broadcast_to(x, (*zero.shape[:-2], *x.shape[-2:]))
    columns = np.broadcast_to(y, (*zero.shape[:-2], *y.shape[-2:]))
    out = np.empty(at[0].size, dtype)
    for n, index in enumerate(zip(*(i.tolist() for i in at), strict=True)):
        *batch, i, j = index
        row, column = rows[(*batch, i)], columns[(*batch, slice(None), j)]
        if np.isfinite(row).all() and np.isfinite(column).all() and np.isfinite(zero[index]):
            out[n] = _round(_dot(row, column, float(zero[index])), np.dtype(dtype))
        else:
            out[n] = row @ column + zero[index]
    return out


def _dot(row: NDArray[np.float64], column: NDArray[np.float64], start: float) -> Fraction:
    """Exact sum of products: integers over one power of two."""
    (m, e), (n, f) = np.frexp(row), np.frexp(column)
    least = int((e + f).min(initial=0)) - 106
    left, right = (m * 2.0**53).astype(np.int64).tolist(), (n * 2.0**53).astype(np.int64).tolist()
    shifts = (e + f - 106 - least).tolist()
    total = sum(p * q << s for p, q, s in zip(left, right, shifts, strict=True))
    return Fraction(start) + (Fraction(total) * Fraction(2) ** least)


def _round(value: Fraction, dtype: np.dtype[Any]) -> float:
    """To nearest, ties to even, in the format of a NumPy float (overflow gives an infinity)."""
    info = np.finfo(dtype)
    magnitude = abs(value)
    if magnitude == 0:
        return 0.0
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= magnitude < Fraction(2) ** exponent
    quantum = max(exponent, int(info.minexp)) - int(info.nmant)
    units = round(magnitude / Fraction(2) ** quantum)  # Python rounds a half to even
    rounded = Fraction(units) * Fraction(2) ** quantum
    result = float(rounded) if rounded <= Fraction(float(info.max)) else np.inf
    return -result if value < 0 else result


def _count(got: NDArray[Any], want: NDArray[Any], sampled: bool = False) -> Accuracy:
    distance = ulp_distance(got, want)
    different, largest = int(np.count_nonzero(distance)), int(distance.max(initial=0))
    return Accuracy(got.size, different, largest, sampled, _relative(got, want))


def _relative(got: NDArray[Any], want: NDArray[Any]) -> float:
    """Root mean square of the distances over that of the outputs; 0 where nothing is finite."""
    x, y = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    scale = float(np.linalg.norm(y[finite]))
    return float(np.linalg.norm((x - y)[finite])) / scale if scale else 0.0
