"""The gamma function, the complementary error function and inverse hyperbolic functions, as `elementary`.

Between 3/2 and 5/2 the gamma function is exp of the Taylor series of its logarithm around 2; elsewhere its recurrence
leads there, by factors that are exact and a product that is carried as two numbers.
"""

from __future__ import annotations

import math

from nbtc.dialect.libm.constants import (
    ERFC_TERMS,
    LN2_NEAREST,
    LOG_GAMMA_SERIES,
    PI,
    STIRLING_CONSTANT,
    STIRLING_SERIES,
)
from nbtc.dialect.libm.elementary import INF, NAN, erf, exp, exp_of_sum, fma, log, log1p, polynomial
from nbtc.dialect.libm.trigonometric import sin

GAMMA_OVERFLOWS = 172.0  # 171! is larger than any float64
ALL_WHOLE = -(2.0**52)  # smaller numbers have no fraction
GAMMA_VANISHES = -400.0  # 1 / 184! is smaller than any; two factors' products stay below 2**1023 down to -400
STIRLING_FROM = 16.0  # the first term left out of the series is below 2**-57 there
ERFC_STEP = 0.5  # of the trapezoidal rule: what it leaves out is exp(-(pi / 0.5)**2) = 2**-56.9 of the integral


# --- the complementary error function ---
def erfc(x):
    a = abs(x)
    if x != x:
        return x
    if a < 0.5:
        return 1.0 - erf(x)
    if a > 28.0:  # exp(-28**2) is below the smallest float64
        return 2.0 if x < 0.0 else 0.0
    square = x * x
    gaussian = exp_of_sum(-square, -fma(x, x, -square))
    # the integral of exp(-t**2) / (t**2 + x**2) over all t by the trapezoidal rule, less the pole's share (Matta and
    # Reichel, "Uniform computation of the error function and other related functions", 1971)
    total = 0.5 / square
    for n in range(len(ERFC_TERMS)):
        at = ERFC_STEP * (n + 1)
        total += ERFC_TERMS[n] / (at * at + square)
    found = 2.0 * ERFC_STEP / PI * a * gaussian * total
    if a < PI / ERFC_STEP:  # the pole at i * x lies inside of the strip that the rule sees
        found -= 2.0 / (exp(2.0 * PI / ERFC_STEP * a) - 1.0)
    return 2.0 - found if x < 0.0 else found


# --- gamma ---
def log_gamma_near_two(z):
    """log(gamma(2 + z)) for z from -1/2 to 1/2."""
    return z * polynomial(z, LOG_GAMMA_SERIES)


def rising(start, x, first, count, step):
    """start * (x + first) * (x + first + step) ..., so many factors, in two parts; x + n is exact for each."""
    high, low = start, 0.0
    for n in range(count):
        factor = x + float(first + step * n)
        product = high * factor
        low = fma(low, factor, fma(high, factor, -product))
        high = product
    return high, low


def gamma(x):
    a = abs(x)
    if x != x or x == -INF or x < ALL_WHOLE:
        return NAN
    if x >= GAMMA_OVERFLOWS:
        return INF
    z, steps = x, 0
    if x >= 1.5:
        steps = int(x - 1.5)
        z = (x - float(steps)) - 2.0
    elif x >= 0.5:
        z = x - 1.0
    elif x <= -0.5:
        steps = -math.floor(x + 0.5)
        z = x + float(steps)
        if z == 0.0:
            return NAN
        if x < GAMMA_VANISHES:
            return 0.0 if math.floor(x) % 2 == 0 else -0.0
    value = exp(log_gamma_near_two(z))
    if x >= 1.5:
        high, low = rising(value, x, -1, steps, -1)
        return INF if high == INF else high + low
    if x >= 0.5:
        return value / x
    value = value / (1.0 + z) / z
    if a < 0.5:
        return value
    for part in range(2):  # every other factor each: the product of all might overflow
        high, low = rising(1.0, x, part, (steps + 1 - part) // 2, 2)
        q = value / high
        value = q - q * (low / high)
    return value


def lgamma(x):
    a = abs(x)
    if x != x:
        return x
    if a == INF or x < ALL_WHOLE:
        return INF
    y = a if x <= -0.5 else x  # it is reflected below -1/2
    rest = x - float(math.floor(x + 0.5))
    if x <= 0.0 and rest == 0.0:
        return INF
    z, high, low = y, abs(y), 0.0
    if 1.5 <= y < STIRLING_FROM:
        steps = int(y - 1.5)
        z = (y - float(steps)) - 2.0
        high, low = rising(1.0, y, -1, steps, -1)
    elif y >= 0.5:
        z = y - 1.0
    logarithm = log(high + low)
    if y >= STIRLING_FROM:
        over = 1.0 / y
        series = over * polynomial(over * over, STIRLING_SERIES)
        found = fma(y - 0.5, logarithm - 1.0, STIRLING_CONSTANT) + series
    else:
        found = log_gamma_near_two(z)
        found += logarithm if y >= 1.5 else -logarithm
        if y < 0.5:
            found -= log1p(y)
    return log(PI / (a * abs(sin(PI * rest)))) - found if x <= -0.5 else found


# --- inverse hyperbolic functions ---
def asinh(x):
    a = abs(x)
    if a > 2.0**28:  # the one below the root no longer counts
        return math.copysign(log(a) + LN2_NEAREST, x)
    return math.copysign(log1p(a + a * a / (1.0 + math.sqrt(fma(a, a, 1.0)))), x)


def acosh(x):
    if x < 1.0:
        return NAN
    if x > 2.0**28:
        return log(x) + LN2_NEAREST
    above = x - 1.0
    return log1p(above + math.sqrt(fma(above, above, 2.0 * above)))


def atanh(x):
    a = abs(x)
    if a > 1.0:
        return NAN
    if a == 1.0:
        return math.copysign(INF, x)
    return math.copysign(0.5 * log1p(2.0 * a / (1.0 - a)), x)
