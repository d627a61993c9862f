"""One rounding of an exact value to a float format, in fractions."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

from nbtc.formats.table import FORMATS, Format
from nbtc.numerics.exact_float import canonical_nan, infinity, round_up
from tests.reference.compare import LARGE, flushed, number

__all__ = ["FORMATS", "LARGE", "flushed", "greatest", "infinity", "nan", "number", "root", "rounded"]


def _exponent(x: Fraction) -> int:
    """floor(log2(x)) of a positive fraction."""
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if x >= Fraction(2) ** e else e - 1


def greatest(fmt: Format) -> int:
    """Bits of the greatest finite number."""
    return fmt.special - 1


def _past_all(fmt: Format) -> int:
    """What is too large becomes: an infinity, or the greatest number of a format without one."""
    return infinity(0, fmt) if fmt.infinite else greatest(fmt)


def nan(fmt: Format) -> int:
    """The NaN an operation makes."""
    return 0xFFF8 << 48 if fmt.name == "f64" else canonical_nan(fmt)


def rounded(x: Fraction, fmt: Format, mode: str = "rn", negative: bool = False, ftz: bool = False) -> int:
    """Bits of x; `negative` is the sign of a zero.  ftz: zero for what is below the least normal, rounded as one."""
    if x:
        negative = x < 0
    sign = int(negative) << fmt.exponent + fmt.mantissa
    m = abs(x)
    if not m:
        return sign
    if m >= LARGE:
        return sign | _past_all(fmt)
    if ftz and _units(m, _exponent(m) - fmt.mantissa, negative, mode)[1] < Fraction(2) ** fmt.emin:
        return sign
    unit = max(_exponent(m), fmt.emin) - fmt.mantissa
    kept = _units(m, unit, negative, mode)[0]
    code = kept + (unit - (fmt.emin - fmt.mantissa) << fmt.mantissa)
    if code > greatest(fmt):
        stops = mode == "rz" or mode == ("rp" if negative else "rm")
        return sign | (greatest(fmt) if stops else _past_all(fmt))
    return sign | code


def _units(m: Fraction, unit: int, negative: bool, mode: str) -> tuple[int, Fraction]:
    """A magnitude in whole units of 2**unit, and their value."""
    scaled = m / Fraction(2) ** unit
    kept = scaled.numerator // scaled.denominator
    rest = scaled - kept
    if mode == "rna":
        kept += 2 * rest >= 1
    else:  # thirds keep the comparisons with nothing and a half
        part = 0 if not rest else 3 if 2 * rest == 1 else 2 if 2 * rest < 1 else 4
        kept += round_up(kept, part, 3, negative, mode)
    return kept, kept * Fraction(2) ** unit


def root(x: Fraction, digits: int = 120) -> Fraction:
    """A fraction that rounds as the square root does in any direction: exact, or cut with a third of a unit added."""
    shift = 2 * max(0, digits - _exponent(x)) if x else 0
    n = x.numerator << shift
    whole = isqrt(n // x.denominator)
    exact = whole * whole * x.denominator == n
    return (whole + (0 if exact else Fraction(1, 3))) / Fraction(2) ** (shift // 2)
