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
from nbtc.gemm.packed_memory import contiguous
from nbtc.gemm.shares import each
from nbtc.kernels.float_fields import BIAS, FIELD_SHIFT, MANTISSA, SIGN_SHIFT, SPECIAL, float_params, magnitude_range

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
