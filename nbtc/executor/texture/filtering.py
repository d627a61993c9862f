"""What texture units make of neighbouring texels: weights of 8 bits, sums in fixed point, one rounding.

(CUDA C++ Programming Guide, "Linear Filtering", gives weights of 8 bits; the rest was fitted to what an H100 returned,
tests/golden/textures.)  The two or four texels of a plane share a sum, in which the largest fixes the unit; a texture
of three dimensions adds the sums of its two planes.
"""

from __future__ import annotations

import numpy as np

from nbtc.compiler.jit import jit
from nbtc.executor.texture.objects import TexelFormat
from nbtc.numerics.ieee import bits64, f32_of, f64_of

ONE = 256  # the weights of a texel's neighbours add up to it
GUARD = 4  # bits that a texel keeps below its own last one when the unit is set by a larger one
BELOW = 2  # further bits of a plane's sum when the other plane's is larger
F16, S8, S16, U8, U16 = (
    TexelFormat.F16.value,
    TexelFormat.S8.value,
    TexelFormat.S16.value,
    TexelFormat.U8.value,
    TexelFormat.U16.value,
)
# fraction bits, exponent bias, exponent of the least normal number
_F32, _F16 = (23, 127, -126), (10, 15, -14)


@jit(inline=True)
def plane_weights(x, y, total, weights):
    """Weights of a plane's texels (0, 0), (1, 0), (0, 1), (1, 1) from the position between them, in 256ths."""
    right = (x * total + 128) >> 8
    left = total - right
    lower_right, lower_left = (right * y + 128) >> 8, (left * y + 127) >> 8
    weights[0], weights[1] = left - lower_left, right - lower_right
    weights[2], weights[3] = lower_left, lower_right


@jit(inline=True)
def _exponent(bits, fraction, least, bias):
    """The exponent of a float's bits, and its significand as an integer."""
    field = (bits & 0x7FFFFFFF) >> fraction
    own = bits & ((1 << fraction) - 1)
    if field:
        return field - bias, own | (1 << fraction)
    return least, own if fraction == 10 else 0  # f32's subnormals count as zero


@jit(inline=True)
def power_of_2(e):
    """2.0 ** e from its bits: pow took a fifth of a filtered read.  Least: the least normal double."""
    return f64_of(np.uint64((max(e, -1022) + 1023) << 52))


@jit(inline=True)
def _fixed_sum(texels, weights, first, each, fraction, bias, least, sign):
    """A plane's floats as integers under the exponent of the largest, times their weights: (exponent, sum)."""
    top = least - 1000
    for n in range(first, first + each):
        exponent, significand = _exponent(texels[n] & (sign - 1), fraction, least, bias)
        if weights[n] > 0 and significand:
            top = max(top, exponent)
    total = 0
    for n in range(first, first + each):
        exponent, significand = _exponent(texels[n] & (sign - 1), fraction, least, bias)
        shift = top - exponent
        if weights[n] > 0 and shift <= fraction + GUARD:
            part = ((significand << GUARD) >> shift) * weights[n]
            total += -part if texels[n] & sign else part
    return top, total


@jit(inline=True)
def _rounded(value, fraction, least):
    """A double rounded to a float's precision, ties away from zero."""
    size = abs(value)
    if size < power_of_2(least):
        unit = power_of_2(least - fraction)
        size = np.floor(size / unit + 0.5) * unit
    else:
        cut = 52 - fraction
        word = np.int64(bits64(size)) + (np.int64(1) << (cut - 1))
        size = f64_of(np.uint64(word & -(np.int64(1) << cut)))
    return -size if value < 0 else size


@jit(inline=True)
def filtered_floats(texels, weights, planes, each, half):
    """The filtered value of f32 or f16 texels (their bits) as an f32; each: how many of a plane's four count."""
    fraction, bias, least = _F16 if half else _F32
    sign = np.int64(0x8000) if half else np.int64(0x80000000)
    special, infinities = False, 0
    for n in range(4 * (planes - 1) + each):
        size = texels[n] & (sign - 1)
        if size >> fraction == 2 * bias + 1:  # of weight 0 too
            special = special or (size & ((1 << fraction) - 1)) != 0
            infinities |= 2 if texels[n] & sign else 1
    if special or infinities == 3:
        return f32_of(np.uint32(0x7FFFE000 if half else 0x7FFFFFFF))
    if infinities:
        return np.float32(-np.inf) if infinities == 2 else np.float32(np.inf)
    top, total = _fixed_sum(texels, weights, 0, each, fraction, bias, least, sign)
    total <<= BELOW
    if planes == 2:
        other, more = _fixed_sum(texels, weights, 4, each, fraction, bias, least, sign)
        more <<= BELOW
        if other > top:
            top, other, total, more = other, top, more, total
        total += more >> min(top - other, 63)
    unit = power_of_2(top - fraction - GUARD - 8 - BELOW)
    value = _rounded(np.float64(total) * unit, fraction, least)
    return np.float32(value if half or abs(value) >= power_of_2(least) else 0.0)


@jit(inline=True)
def filtered_fractions(texels, weights, count, format):
    """The filtered value of texels that are fractions of 1, as an f32: the unit rounds to 16 bits."""
    total = 0
    for n in range(count):
        total += texels[n] * weights[n]
    if format == U8:
        total *= 257  # 0xFF becomes 0xFFFF
    if format == S8:  # 0x7F becomes 0x7FFF
        total = (8 * total + (total >> 4) + (total >> 12) + 4) >> 3
    else:
        total = (total + 128) >> 8
    if format in (U8, U16):
        return np.float32(total / 65535.0)
    return np.float32(max(total, -32767) / 32767.0)
