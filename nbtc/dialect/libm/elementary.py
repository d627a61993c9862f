"""Elementary functions in the dialect itself: by IEEE operations on float64 alone, with the same bits everywhere.

Each reduces its argument to a short interval and sums a Taylor series there; what would lose bits is carried as a sum
of two numbers.  float32 functions are these, rounded: off by a little more than half a unit in the last place at most.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nbtc.compiler.python_only import compiled_only
from nbtc.dialect.libm.constants import (
    ATANH_SERIES,
    CONTINUED_TERMS,
    EXP_SERIES,
    FRACTION,
    IMPLICIT,
    LN2_HIGH,
    LN2_LOW,
    LN2_NEAREST,
    LN2_REST,
    LOG2E,
    LOG2E_LOW,
    LOG10E,
    LOG10E_LOW,
    SERIES_TERMS,
    SMALLEST_NORMAL,
    SQRT_HALF_BITS,
    THIRDS,
    THIRDS_LOW,
    TWO_OVER_ROOT_PI,
)

INF, NAN = np.inf, np.nan


def fma(x: Any, y: Any, z: Any) -> Any:
    """x * y + z, rounded once; exists in kernels only."""
    raise compiled_only("fma")


def bits_of(x: Any) -> Any:
    """The bits of a float64 as an int64; exists in kernels only."""
    raise compiled_only("bits_of")


def of_bits(x: Any) -> Any:
    """The float64 of an int64's bits; exists in kernels only."""
    raise compiled_only("of_bits")


def high_product(x: Any, y: Any) -> Any:
    """The upper 64 bits of the product of two uint64; exists in kernels only."""
    raise compiled_only("high_product")


def polynomial(z, coefficients):
    """Horner's rule, the coefficient of the highest power first; in kernels a chain without a loop."""
    p = coefficients[0]
    for c in coefficients[1:]:
        p = fma(p, z, c)
    return p


def scaled(x, k):
    """x * 2**k for x near 1, rounded once also where the result is subnormal."""
    half = k >> 1
    return x * of_bits((half + 1023) << 52) * of_bits((k - half + 1023) << 52)


def exp_parts(r, low):
    """e**(r + low) - 1 for |r| <= log(2)/2; the series ends where a term is below 2**-56."""
    p = polynomial(r, EXP_SERIES)
    return r + fma(p, r * r, low + low * r)


def exp_of_sum(x, low):
    """e**(x + low)."""
    if x > 710.0:
        return INF
    if x < -746.0:
        return 0.0
    k = math.floor(fma(x, LOG2E, 0.5))
    r = fma(-k, LN2_HIGH, x)
    rest = fma(-k, LN2_LOW, low)
    high = r + rest
    return scaled(1.0 + exp_parts(high, rest - (high - r)), np.int64(k))


def exp(x):
    return x if x != x else exp_of_sum(x, 0.0)


def exp2(x):
    if x != x:
        return x
    if x > 1025.0:
        return INF
    if x < -1080.0:
        return 0.0
    k = math.floor(x + 0.5)
    r = x - k
    high = r * LN2_NEAREST
    return scaled(1.0 + exp_parts(high, fma(r, LN2_NEAREST, -high) + r * LN2_REST), np.int64(k))


def expm1(x):
    if x != x or x == 0.0:
        return x
    if x > 710.0:
        return INF
    if x < -40.0:
        return -1.0
    k = math.floor(fma(x, LOG2E, 0.5))
    r = fma(-k, LN2_HIGH, x)
    rest = -k * LN2_LOW
    high = r + rest
    part = exp_parts(high, rest - (high - r))
    if k == 0.0:
        return part
    if k > 60.0:
        return scaled(1.0 + part, np.int64(k))
    power = of_bits((np.int64(k) + 1023) << 52)
    return (power - 1.0) + power * part


def log_parts(x):
    """(k, high, low) with log x = k log 2 + high + low, for a finite x > 0."""
    k = np.int64(0)
    if x < SMALLEST_NORMAL:
        x *= 18014398509481984.0
        k = np.int64(-54)
    bits = bits_of(x)
    shift = (bits - SQRT_HALF_BITS) >> 52
    k += shift
    f = of_bits(bits - (shift << 52)) - 1.0
    d = 2.0 + f
    s = f / d
    low = (fma(-s, d, f) - s * (f - (d - 2.0))) / d
    z = s * s
    p = polynomial(z, ATANH_SERIES)
    cube = z * s
    cube_low = fma(z, s, -cube) + fma(s, s, -z) * s + 3.0 * z * low
    third = cube * THIRDS
    third_low = fma(cube, THIRDS, -third) + cube * THIRDS_LOW + cube_low * THIRDS
    high = 2.0 * s + third
    rest = (2.0 * s - high) + third + third_low + 2.0 * low + p * z * cube
    total = high + rest
    return k, total, rest - (total - high)


def log_special(x):
    """log of what has no finite logarithm."""
    return -INF if x == 0.0 else NAN if x < 0.0 else x


def log(x):
    if not 0.0 < x < INF:
        return log_special(x)
    k, high, low = log_parts(x)
    big = k * LN2_HIGH
    total = big + high
    return total + ((high - (total - big)) + fma(float(k), LN2_LOW, low))


def log2(x):
    if not 0.0 < x < INF:
        return log_special(x)
    k, high, low = log_parts(x)
    p = high * LOG2E
    rest = fma(high, LOG2E, -p) + high * LOG2E_LOW + low * LOG2E
    total = k + p
    return total + ((p - (total - k)) + rest)


def log10(x):
    if not 0.0 < x < INF:
        return log_special(x)
    k, high, low = log_parts(x)
    big = k * LN2_HIGH
    total = big + high
    rest = (high - (total - big)) + fma(float(k), LN2_LOW, low)
    p = total * LOG10E
    return p + (fma(total, LOG10E, -p) + total * LOG10E_LOW + rest * LOG10E)


def log1p(x):
    if not -1.0 < x < INF or x == 0.0:
        return -INF if x == -1.0 else NAN if x < -1.0 else x
    u = 1.0 + x
    if u == INF:
        return log(x)
    lost = (x - (u - 1.0)) if u <= 2.0 else (1.0 - (u - x))
    k, high, low = log_parts(u)
    big = k * LN2_HIGH
    total = big + high
    return total + ((high - (total - big)) + (fma(float(k), LN2_LOW, low) + lost / u))


def power(x, y):
    if y == 0.0 or x == 1.0:
        return 1.0
    if x != x or y != y:
        return x + y
    huge = abs(y) >= 9007199254740992.0  # 2**53: whole, and even
    whole = huge or math.floor(y) == y
    odd = whole and not huge and math.floor(0.5 * y) != 0.5 * y
    sign = -1.0 if odd and (bits_of(x) < 0) else 1.0
    a = abs(x)
    if a == 0.0 or a == INF or abs(y) == INF:
        if a == 1.0:
            return 1.0
        return sign * (INF if (a > 1.0) == (y > 0.0) else 0.0)
    if x < 0.0 and not whole:
        return NAN
    k, high, low = log_parts(a)
    big = k * LN2_HIGH
    total = big + high
    rest = (high - (total - big)) + fma(float(k), LN2_LOW, low)
    p = y * total
    if abs(p) > 800.0:
        return sign * (INF if p > 0.0 else 0.0)
    return sign * exp_of_sum(p, fma(y, total, -p) + y * rest)


# --- hyperbolic functions ---
def sinh(x):
    a = abs(x)
    if a > 709.0:
        half = exp_of_sum(0.5 * a, 0.0)
        return math.copysign(0.5 * half * half, x)
    t = expm1(a)
    return math.copysign(0.5 * (t + t / (t + 1.0)), x)


def cosh(x):
    a = abs(x)
    if a > 709.0:
        half = exp_of_sum(0.5 * a, 0.0)
        return 0.5 * half * half
    e = exp(a)
    return 0.5 * e + 0.5 / e


def tanh(x):
    a = abs(x)
    if a > 22.0:
        return math.copysign(1.0, x)
    t = expm1(2.0 * a)
    return math.copysign(t / (t + 2.0), x)


# --- others ---
def hypot(x, y):
    if abs(x) == INF or abs(y) == INF:
        return INF
    if x != x or y != y:
        return NAN
    a, b = max(abs(x), abs(y)), min(abs(x), abs(y))
    scale = 1.0
    if a > 2.0**500:
        scale = 2.0**600
    elif a < 2.0**-400:
        scale = 2.0**-600
    a, b = a / scale, b / scale
    h = math.sqrt(fma(a, a, b * b))
    if h == 0.0:
        return 0.0
    aa, bb, hh = a * a, b * b, h * h
    off = (((aa - hh) + bb) + fma(a, a, -aa)) + fma(b, b, -bb) - fma(h, h, -hh)
    return (h + off / (2.0 * h)) * scale


def fmod(x, y):
    a, b = bits_of(abs(x)), bits_of(abs(y))
    infinite = 2047 << 52
    if x != x or y != y or a >= infinite or b == 0:
        return NAN
    if a < b:
        return x
    ea, eb = max(a >> 52, np.int64(1)), max(b >> 52, np.int64(1))
    ma = np.uint64((a & FRACTION) | (IMPLICIT if a >> 52 else 0))
    mb = np.uint64((b & FRACTION) | (IMPLICIT if b >> 52 else 0))
    ma %= mb
    left = ea - eb
    while left > 0 and ma != np.uint64(0):
        step = min(left, np.int64(11))  # a significand of 53 bits and 11 more fit in a word
        ma = (ma << np.uint64(step)) % mb
        left -= step
    return math.copysign(float(ma) * 2.0**-52 * of_bits(eb << 52), x)  # exact: ma has no more bits than mb


def erf(x):
    a = abs(x)
    if x != x:
        return x
    if a > 6.0:
        return math.copysign(1.0, x)
    square = x * x
    gaussian = exp_of_sum(-square, -fma(x, x, -square))
    if a > 2.0:  # 1 - erfc, by its continued fraction
        f = a
        for n in range(CONTINUED_TERMS, 0, -1):
            f = a + 0.5 * n / f
        return math.copysign(1.0 - 0.5 * TWO_OVER_ROOT_PI * gaussian / f, x)
    term = total = 1.0
    for n in range(1, SERIES_TERMS):
        term *= 2.0 * square / (2 * n + 1)
        total += term
    return TWO_OVER_ROOT_PI * x * gaussian * total
