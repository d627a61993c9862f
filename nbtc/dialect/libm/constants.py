"""Constants of the elementary functions, from series summed in exact fractions when they are first needed."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

BITS = 1400  # of pi: 2/pi is needed from its first bit to 192 after the place of the largest exponent


def _split(x: Fraction, bits: int = 53) -> tuple[float, float]:
    """A number as a float64 of so many significant bits and a float64 of the rest."""
    scale = Fraction(2) ** (bits - math.frexp(float(x))[1])
    high = Fraction(round(x * scale)) / scale
    return float(high), float(x - high)


def _atanh(one_over: int) -> Fraction:
    """atanh(1/n), to more than 120 bits for n >= 3."""
    return sum((Fraction(1, (2 * k + 1) * one_over ** (2 * k + 1)) for k in range(40)), Fraction(0))


def _atan(one_over: int) -> int:
    """atan(1/n) * 2**BITS."""
    total, power, n = 0, (1 << BITS) // one_over, 1
    while power:
        total += power // n if n % 4 == 1 else -(power // n)
        power //= one_over * one_over
        n += 2
    return total


def _inverse_words(pi: int) -> list[int]:
    """2/pi in words of 64 bits, after one of zeros."""
    count = 20
    bits = (2 << (BITS + 64 * count)) // pi
    return [0, *(bits >> (64 * (count - 1 - n)) & ((1 << 64) - 1) for n in range(count))]


_PI = 4 * (4 * _atan(5) - _atan(239))  # Machin's formula
HALF_PI_EXACT = Fraction(_PI, 2 << BITS)
_LN2 = 2 * _atanh(3)
_LN10 = 3 * _LN2 + 2 * _atanh(9)  # 10 = 8 * 5/4

PI, PI_LOW = _split(2 * HALF_PI_EXACT)
HALF_PI, HALF_PI_LOW = _split(HALF_PI_EXACT)
HALF_PI_LAST = float(HALF_PI_EXACT - Fraction(HALF_PI) - Fraction(HALF_PI_LOW))
INVERSE_WORDS = np.array(_inverse_words(_PI), np.uint64)
LN2_HIGH, LN2_LOW = _split(_LN2, 32)  # times an exponent of 11 bits, the first is exact
LN2_NEAREST, LN2_REST = _split(_LN2)
LOG2E, LOG2E_LOW = _split(1 / _LN2)
LOG10E, LOG10E_LOW = _split(1 / _LN10)
ATAN_HALF, ATAN_HALF_LOW = _split(Fraction(_atan(2), 1 << BITS))
THIRDS, THIRDS_LOW = _split(Fraction(2, 3))
TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)
FRACTION, IMPLICIT = (1 << 52) - 1, 1 << 52
SQRT_HALF_BITS = 0x3FE6A09E667F3BCD  # of sqrt(1/2): significands are between it and sqrt(2)
SMALLEST_NORMAL = 2.0**-1022
SIMPLE_REDUCTION = 2.0**25  # below it, a multiple of pi/2 in three parts leaves 70 bits of the rest
# Taylor coefficients for `polynomial`, from where a term no longer counts in 53 bits down to the first that is summed
EXP_SERIES = tuple(1 / math.factorial(k) for k in range(13, 1, -1))
SINE_SERIES = tuple((-1) ** (k // 2) / math.factorial(k) for k in range(17, 1, -2))
COSINE_SERIES = tuple((-1) ** (k // 2) / math.factorial(k) for k in range(18, 2, -2))
ATAN_SERIES = tuple((-1) ** (k // 2) / k for k in range(29, 1, -2))
ATANH_SERIES = tuple(2 / k for k in range(25, 3, -2))  # of 2 atanh
SERIES_TERMS = 40  # of erf up to 2: the last is below 2**-56 of the sum
CONTINUED_TERMS = 60  # of erfc from 2 on: what is left out is below exp(-43)
ERFC_TERMS = tuple(math.exp(-((n / 2) ** 2)) for n in range(1, 13))  # exp(-t**2) at steps of 1/2: the next is 2**-60


# --- the gamma function: sums by Euler and Maclaurin's formula from 10 on ---
_BERNOULLI = [Fraction(*b) for b in ((1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510))]
_FROM, _FIXED = (
    10,
    1 << 160,
)  # the first Bernoulli number left out gives terms below 2**-60; sums are fixed-point numbers


def _zeta_above_one(s: int) -> Fraction:
    """zeta(s) - 1 for s >= 2."""
    total = sum(_FIXED // n**s for n in range(2, _FROM))
    found = Fraction(total, _FIXED) + Fraction(1, (s - 1) * _FROM ** (s - 1)) + Fraction(1, 2 * _FROM**s)
    for j, bernoulli in enumerate(_BERNOULLI, 1):
        rising = math.prod(range(s, s + 2 * j - 1))
        found += bernoulli * Fraction(rising, math.factorial(2 * j) * _FROM ** (s + 2 * j - 1))
    return found


def _euler_gamma() -> Fraction:
    """The limit of 1 + 1/2 + ... + 1/n - log(n)."""
    harmonic = sum((Fraction(1, n) for n in range(1, _FROM + 1)), Fraction(0))
    rest = sum((b / (2 * j * _FROM ** (2 * j)) for j, b in enumerate(_BERNOULLI, 1)), Fraction(0))
    return harmonic - _LN10 - Fraction(1, 2 * _FROM) + rest


# log(gamma(2 + z)) / z: 1 - Euler's constant, then (-1)**k (zeta(k) - 1) / k for z**(k - 1), below 2**-55 from 29 on
LOG_GAMMA_SERIES = (
    *(float((-1) ** k * _zeta_above_one(k) / k) for k in range(28, 1, -1)),
    float(1 - _euler_gamma()),
)
# log(gamma(x)) - (x - 1/2)(log(x) - 1): log(2 pi) / 2 - 1/2, and Stirling's series in 1 / x
STIRLING_CONSTANT = 0.5 * math.log(2 * math.pi) - 0.5
STIRLING_SERIES = tuple(float(b / (2 * j * (2 * j - 1))) for j, b in reversed([*enumerate(_BERNOULLI, 1)]))
