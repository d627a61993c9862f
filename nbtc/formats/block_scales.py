"""Scales of blocks by their codes: one table a format, which everything but the oracle reads."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.formats.table import Format, ue4m3

MANTISSA = ue4m3.mantissa  # bits of significands below one: the most that a format of scales has


class ScaleTable(NamedTuple):
    """Of every byte as a scale: significand * 2**(exponent - MANTISSA), int64 both, and whether it is NaN."""

    significands: NDArray[np.int64]
    exponents: NDArray[np.int64]
    nan: NDArray[np.bool_]

    @property
    def values(self) -> NDArray[np.float64]:
        """The numbers; those of NaNs mean nothing."""
        return np.ldexp(self.significands.astype(np.float64), self.exponents - MANTISSA)


@cache
def scale_table(fmt: Format) -> ScaleTable:
    """That of ue8m0 or ue4m3; bits above the format's are ignored.

    >>> from nbtc.formats.table import ue4m3
    >>> [float(scale_table(ue4m3).values[code]) for code in (0x01, 0x38, 0xB9)]
    [0.001953125, 1.0, 1.125]
    """
    magnitudes = np.arange(256) & ((1 << fmt.bits) - 1)
    fields, fractions = magnitudes >> fmt.mantissa, magnitudes & ((1 << fmt.mantissa) - 1)
    subnormal = (fields == 0) & fmt.zero
    significands = fractions + np.where(subnormal, 0, 1 << fmt.mantissa) << (MANTISSA - fmt.mantissa)
    return ScaleTable(significands, np.where(subnormal, 1, fields) - fmt.bias, magnitudes == fmt.special)
