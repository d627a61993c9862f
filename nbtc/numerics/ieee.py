"""IEEE arithmetic on bit patterns: rounding an exact sum to f32 or f16, f16 <-> f32, and fma in f64 for all four modes.

The hardware's own instructions do what they do exactly (f32 addition and fma, f64 fma to nearest).  What they lack, or
what differs from machine to machine (directed rounding, NaN payloads), is integer arithmetic here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from nbtc.compiler.bits import as_f32, as_f64, as_i32, as_i64
from nbtc.compiler.jit import jit

NAN32, NAN16 = 0x7FFFFFFF, 0x7FFF  # what tensor cores answer
INF32, INF16 = 0x7F800000, 0x7C00
RN, RZ, RM, RP = range(4)
_SIGN64 = np.uint64(1 << 63)
_INF64 = np.uint64(0x7FF << 52)
_QUIET64 = np.uint64(1 << 51)
INVALID64 = np.uint64(0xFFF8 << 48)
_FRACTION64 = np.uint64((1 << 52) - 1)


@jit(inline=True)
def f64_of(x):
    """The f64 with these bits."""
    return as_f64(np.int64(x))


@jit(inline=True)
def bits64(x):
    """The bits of an f64."""
    return np.uint64(as_i64(x))


@jit(inline=True)
def f32_of(x):
    """The f32 with these bits."""
    return as_f32(np.int32(x))


@jit(inline=True)
def bits32(x):
    """The bits of an f32."""
    return np.uint32(as_i32(x))


@intrinsic
def hardware_fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c with one rounding to nearest even, f32 or f64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return (a(a, b, c), codegen) if a == b == c and isinstance(a, types.Float) else None


@intrinsic
def leading_zeros(typingctx: Any, x: Any) -> Any:
    """Zero bits above the highest set bit of a 64-bit integer; 64 for zero."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return (types.int64(x), codegen) if x in (types.int64, types.uint64) else None


@intrinsic
def multiply_wide(typingctx: Any, x: Any, y: Any) -> Any:
    """The 128-bit product of two uint64 as (high, low)."""
    signature = types.UniTuple(types.uint64, 2)(types.uint64, types.uint64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        wide, word = ir.IntType(128), ir.IntType(64)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        high = builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), word)
        return context.make_tuple(builder, sig.return_type, (high, builder.trunc(product, word)))

    return (signature, codegen) if x == y == types.uint64 else None


@jit(inline=True)
def round_magnitude(magnitude, exponent, digits, least, nearest):
    """magnitude * 2**exponent cut to `digits` significant bits and to multiples of 2**least: (significand, exponent).

    Toward zero, or to nearest even.  Everything is int64.
    """
    unit = max(exponent + 64 - leading_zeros(magnitude) - digits, least)
    drop = unit - exponent
    if drop <= 0:
        return magnitude << -drop, unit
    if drop > 62:
        return np.int64(0), unit
    kept = magnitude >> drop
    if nearest:
        rest = magnitude - (kept << drop)
        half = np.int64(1) << (drop - 1)
        if rest > half or (rest == half and kept & 1):
            kept += 1
    return kept, unit


@jit(inline=True)
def encode(kept, unit, mantissa, low, high):
    """Bits of kept * 2**unit in a binary format with exponents low..high; infinity beyond."""
    if kept == 0:
        return np.int64(0)
    width = 64 - leading_zeros(kept)
    top = unit + width - 1
    if top > high:
        return np.int64(high - low + 2) << mantissa
    if top < low:
        return kept << (unit - low + mantissa)
    shift = mantissa + 1 - width
    aligned = kept << shift if shift >= 0 else kept >> -shift  # a carry to 2**width leaves zeros below
    return aligned + (np.int64(top - low) << mantissa)


@jit(inline=True)
def f16_to_f32(x):
    """f16 bits to f32 bits (int64 both); any NaN becomes canonical."""
    sign = (x & 0x8000) << 16
    magnitude = x & 0x7FFF
    if magnitude >= INF16:
        return np.int64(NAN32) if magnitude > INF16 else sign | INF32
    if magnitude >= 0x400:
        return sign | ((magnitude << 13) + (112 << 23))
    if magnitude == 0:
        return sign
    top = 63 - leading_zeros(magnitude)
    return sign | ((magnitude << (23 - top)) + ((top + 102) << 23))


@jit(inline=True)
def f32_to_f16(x):
    """f32 bits to f16 bits (int64 both), nearest even; any NaN becomes canonical."""
    sign = (x >> 16) & 0x8000
    magnitude = x & 0x7FFFFFFF
    if magnitude >= INF32:
        return np.int64(NAN16) if magnitude > INF32 else sign | INF16
    field = magnitude >> 23
    significand = (magnitude & 0x7FFFFF) | (np.int64(field != 0) << 23)
    kept, unit = round_magnitude(significand, max(field, 1) - 150, 11, -24, True)
    return sign | encode(kept, unit, 10, -14, 15)


@jit(inline=True)
def add32(x, y):
    """f32 bits x + y, nearest even; NaN canonical."""
    total = np.int64(bits32(f32_of(np.uint32(x)) + f32_of(np.uint32(y))))
    return np.int64(NAN32) if (total & 0x7FFFFFFF) > INF32 else total


@jit(inline=True)
def fma32(a, b, c):
    """f32 bits a * b + c, one rounding to nearest even; NaN as the host makes it."""
    return np.int64(bits32(hardware_fma(f32_of(np.uint32(a)), f32_of(np.uint32(b)), f32_of(np.uint32(c)))))


@jit(inline=True)
def add16(x, y):
    """f16 bits x + y, nearest even (through f64, where the sum is exact); NaN canonical."""
    total = np.float64(f32_of(np.uint32(f16_to_f32(x)))) + np.float64(f32_of(np.uint32(f16_to_f32(y))))
    single = np.float32(total)
    bits = np.int64(bits32(single))
    # the sum has at most 41 bits: an f32 made odd where inexact rounds to f16 like the sum itself
    back = np.float64(single)
    if back != total and total == total:
        if abs(back) > abs(total):
            bits -= 1
        bits |= 1
    return f32_to_f16(bits)


@jit(inline=True)
def _shift_right_sticky(high, low, distance):
    """A 128-bit value shifted right; bits lost leave their trace in bit 0."""
    if distance == 0:
        return high, low
    if distance >= 128:
        return np.uint64(0), np.uint64((high | low) != np.uint64(0))
    if distance >= 64:
        lost = low
        low, high = high, np.uint64(0)
        distance -= 64
        if distance == 0:
            return high, low | np.uint64(lost != np.uint64(0))
        lost |= low << np.uint64(64 - distance)
        return high, (low >> np.uint64(distance)) | np.uint64(lost != np.uint64(0))
    n = np.uint64(distance)
    lost = low << np.uint64(64 - distance)
    low = (low >> n) | (high << np.uint64(64 - distance)) | np.uint64(lost != np.uint64(0))
    return high >> n, low


@jit(inline=True)
def _shift_left(high, low, distance):
    """A 128-bit value shifted left by 0..127."""
    if distance == 0:
        return high, low
    if distance >= 64:
        return low << np.uint64(distance - 64), np.uint64(0)
    n = np.uint64(distance)
    return (high << n) | (low >> np.uint64(64 - distance)), low << n


@jit(inline=True)
def _normalise(high, low, exponent):
    """A 128-bit value with its top bit moved to bit 125, and its exponent adjusted."""
    zeros = leading_zeros(high)
    if zeros == 64:
        zeros += leading_zeros(low)
    zeros -= 2
    high, low = _shift_left(high, low, zeros)
    return high, low, exponent - zeros


@jit(inline=True)
def _parts64(x):
    """Significand (hidden bit included) and exponent of its lowest bit, of finite f64 bits."""
    field = np.int64((x & _INF64) >> np.uint64(52))
    significand = x & _FRACTION64
    if field != 0:
        significand |= np.uint64(1 << 52)
    return significand, max(field, np.int64(1)) - 1075


@jit
def fma64_nan(a, b, c):
    """The NaN that fma(a, b, c) gives: the first NaN among b, c, a made quiet, else the invalid operation's."""
    if (b & ~_SIGN64) > _INF64:
        return b | _QUIET64
    if (c & ~_SIGN64) > _INF64:
        return c | _QUIET64
    if (a & ~_SIGN64) > _INF64:
        return a | _QUIET64
    return INVALID64


@jit
def _pack64(negative, high, low, exponent, mode):
    """Round a 128-bit magnitude (bit 0 sticky, top bit at 125 or just below) * 2**exponent to f64 bits."""
    sign = _SIGN64 if negative else np.uint64(0)
    zeros = leading_zeros(high)
    if zeros == 64:
        zeros += leading_zeros(low)
    unit = max(exponent + (128 - zeros) - 53, np.int64(-1074))
    drop = unit - exponent
    # two more bits than are kept: the half and the sticky bit
    if drop >= 2:
        high, low = _shift_right_sticky(high, low, drop - 2)
    else:
        high, low = _shift_left(high, low, 2 - drop)
    kept, rest = low >> np.uint64(2), low & np.uint64(3)
    away = False
    if mode == RN:
        away = rest == np.uint64(3) or (rest == np.uint64(2) and (kept & np.uint64(1)) != np.uint64(0))
    elif mode == RM:
        away = negative and rest != np.uint64(0)
    elif mode == RP:
        away = (not negative) and rest != np.uint64(0)
    if away:
        kept += np.uint64(1)
    if kept == np.uint64(1 << 53):
        kept, unit = np.uint64(1 << 52), unit + 1
    if kept < np.uint64(1 << 52):
        return sign | kept
    field = unit + 1075
    if field >= 2047:
        outward = mode == RN or (mode == RM and negative) or (mode == RP and not negative)
        return sign | (_INF64 if outward else _INF64 - np.uint64(1))
    return sign | ((np.uint64(field) << np.uint64(52)) + (kept & _FRACTION64))


@jit
def _add_exact64(sp, ph, pl, pe, sc, ch, cl, ce, mode):
    """Sum of two nonzero 128-bit magnitudes with signs, both with the top bit at 125, rounded to f64 bits."""
    if ce > pe or (ce == pe and (ch > ph or (ch == ph and cl > pl))):
        sp, ph, pl, pe, sc, ch, cl, ce = sc, ch, cl, ce, sp, ph, pl, pe
    ch, cl = _shift_right_sticky(ch, cl, pe - ce)
    if sp == sc:
        low = pl + cl
        high = ph + ch + np.uint64(low < pl)
    else:
        low = pl - cl
        high = ph - ch - np.uint64(pl < cl)
        if (high | low) == np.uint64(0):
            return _SIGN64 if mode == RM else np.uint64(0)
    return _pack64(sp, high, low, pe, mode)


@jit
def fma64_software(a, b, c, mode):
    """f64 bits of a * b + c with one rounding: 0 nearest even, 1 toward zero, 2 down, 3 up.  NaN as tensor cores do."""
    inf_a, inf_b, inf_c = a & ~_SIGN64, b & ~_SIGN64, c & ~_SIGN64
    if inf_a > _INF64 or inf_b > _INF64 or inf_c > _INF64:
        return fma64_nan(a, b, c)
    product_sign = (a ^ b) & _SIGN64
    zero = np.uint64(0)
    if inf_a == _INF64 or inf_b == _INF64:
        clash = inf_c == _INF64 and (c & _SIGN64) != product_sign
        return INVALID64 if inf_a == zero or inf_b == zero or clash else product_sign | _INF64
    if inf_c == _INF64:
        return c
    sa, ea = _parts64(a)
    sb, eb = _parts64(b)
    sc, ec = _parts64(c)
    if sa == zero or sb == zero:
        if sc != zero:
            return c
        same = product_sign == (c & _SIGN64)
        return c if same else (_SIGN64 if mode == RM else zero)
    ph, pl = multiply_wide(sa, sb)
    ph, pl, pe = _normalise(ph, pl, ea + eb)
    if sc == zero:
        return _pack64(product_sign != zero, ph, pl, pe, mode)
    ch, cl, ce = _normalise(zero, sc, ec)
    return _add_exact64(product_sign != zero, ph, pl, pe, (c & _SIGN64) != zero, ch, cl, ce, mode)


@jit
def fma64(a, b, c, mode):
    """`fma64_software`, by the host's fma where that is the same."""
    if mode == RN:
        result = bits64(hardware_fma(f64_of(a), f64_of(b), f64_of(c)))
        if (result & ~_SIGN64) <= _INF64:
            return result
    return fma64_software(a, b, c, mode)
