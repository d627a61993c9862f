"""Conversions between number formats, bit for bit as the `cvt` instruction does them.

One integer function decodes any float format, rounds in any mode, and encodes any other; what a form may do and what
becomes of a NaN are rows of `conversions.py`.
"""

from __future__ import annotations

import numpy as np

from nbtc.compiler.jit import jit

# index of each entry of the parameter vector
S_EXP, S_MAN, S_SPECIAL, S_INFINITE, S_ZERO, D_EXP, D_MAN, D_SHIFT, D_SPECIAL, D_INFINITE, D_SIGNED, D_ZERO = range(12)
NAN, ROUNDING, RELU, SATURATE = range(12, 16)
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
    top = exponent + bit_length(significand) - 1
    if p[D_ZERO] == 0 and (top < least - 1 or (top == least - 1 and significand & (significand - U1) == U0)):
        return U0  # code 0 is the power of two below the least normal: nothing is smaller
    unit = max(top - mantissa, least)
    kept = round_shift(significand, unit - exponent, negative, p[ROUNDING])
    # a kept hidden bit adds one to the exponent field, and a carry out of the rounding one more
    code = kept + (np.uint64(unit - least) << np.uint64(mantissa))
    past = np.uint64(p[D_SPECIAL])
    if code < past:
        return code
    r = p[ROUNDING]
    if p[SATURATE] != 0 or r == 1 or (r == 2 and not negative) or (r == 3 and negative):
        return past - U1
    return past


@jit(inline=True)
def special(mantissa, negative, p):
    """Code without its sign of an infinity (mantissa 0) or NaN whose payload is kept, cut to the target's width."""
    past = np.uint64(p[D_SPECIAL])
    if p[D_INFINITE] == 0:
        return past - U1 if p[SATURATE] != 0 else past
    drop = p[S_MAN] - p[D_MAN]
    payload = mantissa >> np.uint64(drop) if drop >= 0 else mantissa << np.uint64(-drop)
    return past + payload - U1 if p[SATURATE] != 0 else past + payload


@jit(inline=True)
def convert_one(x, p):
    """One element: bits of the source format in a uint64 to bits of the target format in a uint64."""
    magnitude = x & ((U1 << np.uint64(p[S_EXP] + p[S_MAN])) - U1)
    mantissa = x & ((U1 << np.uint64(p[S_MAN])) - U1)
    field = magnitude >> np.uint64(p[S_MAN])
    negative = x != magnitude and p[D_SIGNED] != 0  # a format without a sign takes absolute values
    infinite = p[S_INFINITE] != 0 and magnitude == np.uint64(p[S_SPECIAL])
    if magnitude >= np.uint64(p[S_SPECIAL]) and not infinite and p[NAN] >= 0:
        return np.uint64(p[NAN]) << np.uint64(p[D_SHIFT])
    if magnitude >= np.uint64(p[S_SPECIAL]):
        code = special(mantissa, negative, p)
    elif magnitude == U0 and p[S_ZERO] != 0:
        code = U0
    else:
        exponent = max(np.int64(field), p[S_ZERO]) - (np.int64(1) << (p[S_EXP] - 1)) + 1 - p[S_MAN]
        if field != U0 or p[S_ZERO] == 0:
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


F32_MANTISSA = 23
MOST_SHIFT = 25  # shifts the 24 bits of a significand below half a unit


@jit
def convert_floats(x, out, p):
    """`convert_words` of f32 to a signed format without payloads (NAN of p is a code), in 32-bit arithmetic throughout.

    Each step is a selection, so that LLVM makes vectors of it.
    """
    one, none = np.uint32(1), np.uint32(0)
    mantissa, shift = np.uint32(p[D_MAN]), np.uint32(p[D_SHIFT])
    drop = np.uint32(F32_MANTISSA) - mantissa
    least = np.uint32(128 - (1 << (p[D_EXP] - 1)) + 1)  # field in f32 of the target's least normal
    special, nan = np.uint32(p[D_SPECIAL]), np.uint32(p[NAN])
    infinity = special if p[D_INFINITE] != 0 and p[SATURATE] == 0 else special - one
    sign_at = np.uint32(p[D_EXP] + p[D_MAN])
    rounding = p[ROUNDING]
    nearest, even, away = np.uint32(rounding == 0), np.uint32(rounding == 0), np.uint32(rounding == 4)
    down, up = np.uint32(rounding == 2), np.uint32(rounding == 3)
    to_zero, relu = np.uint32(rounding == 1), np.uint32(p[RELU] != 0)
    saturate = np.uint32(p[SATURATE] != 0)
    for i in range(x.size):
        word = np.uint32(x[i])
        negative = np.uint32(word >> np.uint32(31))
        magnitude = np.uint32(word & np.uint32(0x7FFFFFFF))
        field = np.uint32(magnitude >> np.uint32(F32_MANTISSA))
        hidden = np.uint32(np.uint32(field != none) << np.uint32(F32_MANTISSA))
        significand = np.uint32((magnitude & np.uint32(0x7FFFFF)) | hidden)
        exponent = max(field, one)
        below = np.uint32(max(least, exponent) - exponent)
        by = min(np.uint32(drop + below), np.uint32(MOST_SHIFT))
        kept = np.uint32(significand >> by)
        rest = np.uint32(significand & np.uint32(np.uint32(one << by) - one))
        half = np.uint32(one << np.uint32(by - one))
        over, tie, some = np.uint32(rest > half), np.uint32(rest == half), np.uint32(rest != none)
        more = np.uint32(nearest & (over | (tie & kept & even)))
        more = np.uint32(more | (away & (over | tie)) | (some & ((down & negative) | (up & (negative ^ one)))))
        code = np.uint32(kept + more + np.uint32(np.uint32(max(least, exponent) - least) << mantissa))
        inward = np.uint32(saturate | to_zero | (down & (negative ^ one)) | (up & negative))
        code = np.uint32(special - inward) if code >= special else code
        code = infinity if magnitude == np.uint32(0x7F800000) else code
        code = none if relu & negative else np.uint32(code | np.uint32(negative << sign_at))
        code = nan if magnitude > np.uint32(0x7F800000) else code
        out[i] = np.uint32(code << shift)
