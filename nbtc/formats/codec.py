"""Conversions between number formats, bit for bit as the `cvt` instruction does them.

One integer function decodes any float format, rounds in any mode, and encodes any other; what a form may do and what
becomes of a NaN are rows of `conversions.py`.
"""

from __future__ import annotations

import numpy as np

from nbtc.compiler.jit import jit

# index of each entry of the parameter vector
S_EXP, S_MAN, S_FINITE, D_EXP, D_MAN, D_SHIFT, D_FINITE, NAN, ROUNDING, RELU, SATURATE = range(11)
U0, U1 = np.uint64(0), np.uint64(1)


@jit(inline=True)
def bit_length(x):
    """Position of the leading one plus one; 0 for 0."""
    n = np.int64(0)
    step = np.int64(32)
    while step > 0:
        if x >> np.uint64(step) != U0:
            x >>= np.uint64(step)
            n += step
        step >>= 1
    return n + np.int64(x)


@jit(inline=True)
def round_shift(significand, shift, negative, rounding):
    """significand / 2**shift as an integer, rounded: 0 to nearest even, 1 to zero, 2 down, 3 up, 4 to nearest away."""
    if shift <= 0:
        return significand << np.uint64(-shift)
    if shift > 62:  # operands stay below 2**54: all of it is below half a unit
        kept, rest, half = U0, min(significand, U1), np.uint64(2)
    else:
        kept = significand >> np.uint64(shift)
        half = U1 << np.uint64(shift - 1)
        rest = significand & ((half << U1) - U1)
    up = False
    if rounding == 0:
        up = rest > half or (rest == half and kept & U1 != U0)
    elif rounding == 2:
        up = negative and rest != U0
    elif rounding == 3:
        up = not negative and rest != U0
    elif rounding == 4:
        up = rest >= half
    return kept + np.uint64(up)


@jit(inline=True)
def encode(significand, exponent, negative, p):
    """Code without its sign (in units of the last place) of significand * 2**exponent, significand > 0."""
    mantissa = p[D_MAN]
    least = np.int64(2) - (np.int64(1) << (p[D_EXP] - 1)) - mantissa  # exponent of the least subnormal
    unit = max(exponent + bit_length(significand) - 1 - mantissa, least)
    kept = round_shift(significand, unit - exponent, negative, p[ROUNDING])
    # a kept hidden bit adds one to the exponent field, and a carry out of the rounding one more
    code = kept + (np.uint64(unit - least) << np.uint64(mantissa))
    infinity = ((U1 << np.uint64(p[D_EXP])) - U1) << np.uint64(mantissa)
    top = infinity + (U1 << np.uint64(mantissa)) - np.uint64(2) if p[D_FINITE] != 0 else infinity - U1
    if code <= top:
        return code
    r = p[ROUNDING]
    if p[SATURATE] != 0 or r == 1 or (r == 2 and not negative) or (r == 3 and negative):
        return top
    return infinity


@jit(inline=True)
def special(mantissa, negative, p):
    """Code without its sign of an infinity (mantissa 0) or NaN whose payload is kept, cut to the target's width."""
    infinity = ((U1 << np.uint64(p[D_EXP])) - U1) << np.uint64(p[D_MAN])
    drop = p[S_MAN] - p[D_MAN]
    payload = mantissa >> np.uint64(drop) if drop >= 0 else mantissa << np.uint64(-drop)
    code = infinity + payload
    if p[SATURATE] != 0:
        if p[D_FINITE] != 0:
            return infinity + (U1 << np.uint64(p[D_MAN])) - np.uint64(2)
        return code - U1
    return code


@jit(inline=True)
def convert_one(x, p):
    """One element: bits of the source format in a uint64 to bits of the target format in a uint64."""
    ones = (U1 << np.uint64(p[S_EXP])) - U1
    mantissa = x & ((U1 << np.uint64(p[S_MAN])) - U1)
    field = x >> np.uint64(p[S_MAN]) & ones
    negative = x >> np.uint64(p[S_EXP] + p[S_MAN]) != U0
    all_ones = mantissa == (U1 << np.uint64(p[S_MAN])) - U1
    nan = field == ones and (all_ones if p[S_FINITE] != 0 else mantissa != U0)
    if nan and p[NAN] >= 0:
        return np.uint64(p[NAN]) << np.uint64(p[D_SHIFT])
    if field == ones and (p[S_FINITE] == 0 or nan):
        code = special(mantissa, negative, p)
    elif field == U0 and mantissa == U0:
        code = U0
    else:
        exponent = max(np.int64(field), 1) - (np.int64(1) << (p[S_EXP] - 1)) + 1 - p[S_MAN]
        if field != U0:
            mantissa |= U1 << np.uint64(p[S_MAN])
        code = encode(mantissa, exponent, negative, p)
    if negative:
        code = U0 if p[RELU] != 0 else code | U1 << np.uint64(p[D_EXP] + p[D_MAN])
    return code << np.uint64(p[D_SHIFT])


@jit
def convert_words(x, out, p):
    """Every word of the flat array x into the flat array out."""
    for i in range(x.size):
        out[i] = convert_one(np.uint64(x[i]), p)
