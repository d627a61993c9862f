"""Which exponents the elements of an operand have: by its format if they are few, else as they are found."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.jit import call
from nbtc.compiler.threads import ThreadTeam
from nbtc.formats.table import Format, f16
from nbtc.gemm.engines.packed_memory import contiguous
from nbtc.gemm.shares import each
from nbtc.kernels.float_fields import BIAS, FIELD_SHIFT, MANTISSA, SIGN_SHIFT, SPECIAL, float_params, magnitude_range
from nbtc.kernels.repeated import ANY_MAGNITUDES, Magnitudes

BELOW, ABOVE = 4, 2  # binades that `wider` adds
MEASURED = 1 << 20  # elements whose exponents are measured together


@dataclass(frozen=True)
class Range:
    """Least and greatest exponent of the finite non-zero elements; `least` above `greatest` when there are none."""

    least: int
    greatest: int

    @property
    def spread(self) -> int:
        """Binades spanned, less one."""
        return max(0, self.greatest - self.least)


@lru_cache(maxsize=64)
def _whole_range(fmt: Format, widened: bool) -> Range:
    """The range of a format's exponents."""
    return Range(max(f16.emin, fmt.emin - fmt.mantissa) if widened else fmt.emin, fmt.emax)


def exponents_of(x: NDArray[Any], fmt: Format, team: ThreadTeam, widened: bool = False) -> Range:
    """The range of a matrix's exponents: of the format if that is small, else measured.

    widened: to f16, in which the subnormals of e4m3 are normal, those of e5m2 not.
    """
    if fmt.exponent <= 5:
        return _whole_range(fmt, widened)
    where = _fields(fmt)
    lines = x if x.flags.c_contiguous or not x.flags.f_contiguous else x.T
    if x.size <= MEASURED:
        low, high = _magnitudes(lines, where)
    else:
        step = max(1, MEASURED // lines.shape[1])
        parts = each(range(0, lines.shape[0], step), lambda i: _magnitudes(lines[i : i + step], where), team)
        low, high = min(p[0] for p in parts), max(p[1] for p in parts)
    if not high:
        return Range(0, 0)
    least, greatest = (max(1, magnitude >> where.field) - where.bias for magnitude in (low + 1, high))
    return Range(least, greatest)


def wider(found: Range, fmt: Format, before: Range | None = None) -> Range:
    """Some binades more than were found, so that other operands of their kind fit too, and than there were before.

    Among a thousand normal numbers the least differs from draw to draw by two or three binades.

    >>> import nbtc
    >>> wider(Range(-9, 1), nbtc.bf16, Range(-20, 0))
    Range(least=-20, greatest=3)
    """
    if fmt.exponent <= 5:
        return found
    least, greatest = found.least - BELOW, found.greatest + ABOVE
    if before:
        least, greatest = min(least, before.least), max(greatest, before.greatest)
    return Range(max(fmt.emin, least), min(fmt.emax, greatest))


def magnitudes(fmt: Format, count: int, x: Range) -> Magnitudes:
    """Those of `count` elements whose exponents are in a range; of formats of few exponents all."""
    if fmt.exponent <= 5:
        return ANY_MAGNITUDES
    f = _fields(fmt)
    least = x.least + f.bias
    first = 1 if least <= 1 else least << f.field
    return Magnitudes(count, fmt.dtype.itemsize, f.kept, f.special, first, ((x.greatest + f.bias + 1) << f.field) - 1)


class _Fields(NamedTuple):
    """The bits of a format's magnitudes, the first that is not a number, where its exponents are, and their bias."""

    kept: int
    special: int
    field: int
    bias: int


@lru_cache(maxsize=64)
def _fields(fmt: Format) -> _Fields:
    p = float_params(fmt)
    mantissa, bias, sign, field, special = (int(p[i]) for i in (MANTISSA, BIAS, SIGN_SHIFT, FIELD_SHIFT, SPECIAL))
    return _Fields((1 << sign) - (1 << (field - mantissa)), special, field, bias)


def _magnitudes(lines: NDArray[Any], where: _Fields) -> tuple[int, int]:
    """What `magnitude_range` finds in some lines of a matrix."""
    kept = np.array([(1 << 8 * lines.itemsize) - 1, 0], lines.dtype)
    call(magnitude_range, lines.dtype, contiguous(lines).reshape(-1), where.kept, where.special, kept)
    low, high = kept.tolist()
    return low, high
