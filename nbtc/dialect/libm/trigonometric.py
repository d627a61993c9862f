"""Functions of angles and their inverses, as `elementary`: sums of Taylor series below an eighth of a turn."""

from __future__ import annotations

import math

import numpy as np

from nbtc.dialect.libm.constants import (
    ATAN_HALF,
    ATAN_HALF_LOW,
    ATAN_SERIES,
    COSINE_SERIES,
    FRACTION,
    HALF_PI,
    HALF_PI_LAST,
    HALF_PI_LOW,
    IMPLICIT,
    INVERSE_WORDS,
    PI,
    PI_LOW,
    SIMPLE_REDUCTION,
    SINE_SERIES,
)
from nbtc.dialect.libm.elementary import INF, NAN, bits_of, fma, high_product, polynomial


def reduced_large(x):
    """`reduced` for x >= 2**25: its significand times the bits of 2/pi that give less than four quarter turns."""
    bits = bits_of(x)
    m = np.uint64(bits & FRACTION | IMPLICIT)
    first = (bits >> 52) - 1075 - 2 + 64  # x is m * 2**e: bits of 2/pi from e - 2 on; a word of zeros lies in front
    at, shift = first >> 6, np.uint64(first & 63)
    v2, v1, v0 = (
        window(INVERSE_WORDS[at], INVERSE_WORDS[at + 1], shift),
        window(INVERSE_WORDS[at + 1], INVERSE_WORDS[at + 2], shift),
        window(INVERSE_WORDS[at + 2], INVERSE_WORDS[at + 3], shift),
    )
    low = m * v1
    middle = high_product(m, v0) + low
    carry = np.uint64(1) if middle < low else np.uint64(0)
    top = m * v2 + high_product(m, v1) + carry
    quadrant = np.int64(top >> np.uint64(62))
    high = (top << np.uint64(2)) | (middle >> np.uint64(62))  # the fraction of a quarter turn, 128 bits
    rest = middle << np.uint64(2)
    sign = 1.0
    if high >> np.uint64(63) != np.uint64(0):  # beyond a half: the distance from the next quadrant
        quadrant += 1
        high, rest, sign = ~high, ~rest, -1.0
    a = float(high >> np.uint64(11)) * 2.0**-53
    b = float(((high & np.uint64(2047)) << np.uint64(53)) | (rest >> np.uint64(11))) * 2.0**-117
    turns = a + b
    lost = b - (turns - a)
    angle = turns * HALF_PI
    left = fma(turns, HALF_PI, -angle) + fma(turns, HALF_PI_LOW, lost * HALF_PI)
    return quadrant, sign * angle, sign * left


def window(word, following, shift):
    """64 bits from the bit `shift` of a word on."""
    if shift == np.uint64(0):
        return word
    return (word << shift) | (following >> (np.uint64(64) - shift))


def reduced(x):
    """(n, high, low) with |x| = n pi/2 + high + low, and |high| <= pi/4."""
    a = abs(x)
    if a >= SIMPLE_REDUCTION:
        return reduced_large(a)
    n = math.floor(fma(a, 1.0 / HALF_PI, 0.5))
    r = fma(-n, HALF_PI, a)
    p = n * HALF_PI_LOW
    p_low = fma(n, HALF_PI_LOW, -p) + n * HALF_PI_LAST
    high = r - p
    lost = (r - high) - p
    return np.int64(n), high, lost - p_low


def sine(r, low):
    """sin(r + low) for |r| <= pi/4."""
    z = r * r
    p = polynomial(z, SINE_SERIES)
    return r + fma(p * z, r, low * (1.0 - 0.5 * z))


def cosine(r, low):
    """cos(r + low) for |r| <= pi/4."""
    z = r * r
    p = polynomial(z, COSINE_SERIES)
    half = 0.5 * z
    w = 1.0 - half
    return w + (((1.0 - w) - half) + fma(p, z * z, -r * low - 0.5 * fma(r, r, -z)))


def turned(n, high, low):
    """sin of n quarter turns and a rest."""
    value = cosine(high, low) if n & 1 else sine(high, low)
    return -value if n & 2 else value


def sin(x):
    if not abs(x) < INF:
        return x - x
    if abs(x) < 2.0**-27:
        return x
    n, high, low = reduced(x)
    value = turned(n, high, low)
    return -value if x < 0.0 else value


def cos(x):
    if not abs(x) < INF:
        return x - x
    n, high, low = reduced(x)
    return turned(n + 1, high, low)


def tan(x):
    if not abs(x) < INF:
        return x - x
    if abs(x) < 2.0**-27:
        return x
    n, high, low = reduced(x)
    s, c = sine(high, low), cosine(high, low)
    value = -c / s if n & 1 else s / c
    return -value if x < 0.0 else value


def atan_below_one(a):
    """(high, low) of atan a for 0 <= a <= 1."""
    high, low, t = 0.0, 0.0, a
    if a > 0.75:
        high, low, t = HALF_PI / 2, HALF_PI_LOW / 2, (a - 1.0) / (a + 1.0)
    elif a > 0.25:
        high, low, t = ATAN_HALF, ATAN_HALF_LOW, (a - 0.5) / fma(0.5, a, 1.0)
    z = t * t
    p = polynomial(z, ATAN_SERIES)
    if high == 0.0:
        return t, p * z * t
    total = high + t
    return total, ((high - total) + t) + fma(p * z, t, low)


def atan(x):
    a = abs(x)
    if a <= 1.0:
        high, low = atan_below_one(a)
        return math.copysign(high + low, x)
    if x != x:
        return x
    high, low = atan_below_one(1.0 / a)
    total = HALF_PI - high
    return math.copysign(total + (((HALF_PI - total) - high) + (HALF_PI_LOW - low)), x)


def atan2(y, x):
    if x != x or y != y:
        return x + y
    a, b = abs(y), abs(x)
    if a == 0.0 and b == 0.0:
        high, low = 0.0, 0.0
    elif a == b:
        high, low = HALF_PI / 2, HALF_PI_LOW / 2
    elif a < b:
        high, low = atan_below_one(a / b)
    else:
        part, part_low = atan_below_one(b / a)
        high = HALF_PI - part
        low = ((HALF_PI - high) - part) + (HALF_PI_LOW - part_low)
    if bits_of(x) < 0:
        total = PI - high
        high, low = total, ((PI - total) - high) + (PI_LOW - low)
    return math.copysign(high + low, y)


def asin(x):
    return NAN if abs(x) > 1.0 else atan2(x, math.sqrt((1.0 - x) * (1.0 + x)))


def acos(x):
    return NAN if abs(x) > 1.0 else atan2(math.sqrt((1.0 - x) * (1.0 + x)), x)
