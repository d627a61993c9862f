"""Rounding of exact results in every direction, without touching the processor's rounding mode.

An operation first runs rounded to nearest, with the sign of what that rounding left (an error-free
transformation).  Both together are a significand, cut toward zero, and a sticky bit, which integers then round to any
format in any direction: nothing here depends on the state of a control register, nor on which processor runs it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from nbtc.compiler.builder import F64, I1, VectorBuilder
from nbtc.executor.emit.values import const, count_leading_zeros, is_negative, is_zero, like, order, resize
from nbtc.executor.scalar.float_values import KINDS, FloatKind, as_float, double_bits, magnitude_bits

DIRECTIONS = ("rn", "rz", "rm", "rp")
DOUBLE = KINDS["f64"]
DOUBLE_BIAS = 1023


class Exact(NamedTuple):
    """(-1)**negative * (significand + (0 < x < 1 if sticky)) * 2**exponent; i64 significand below 2**63."""

    negative: Any
    significand: Any
    exponent: Any
    sticky: Any


def two_sum(v: VectorBuilder, a: Any, b: Any) -> tuple[Any, Any]:
    """a + b rounded to nearest, and what is left; exact unless the sum overflows."""
    total = v.b.fadd(a, b)
    b_part = v.b.fsub(total, a)
    a_part = v.b.fsub(total, b_part)
    return total, v.b.fadd(v.b.fsub(a, a_part), v.b.fsub(b, b_part))


def sum_of_product(v: VectorBuilder, a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    """a * b + c rounded to nearest, and a double with the sign of what is left (Boldo and Muller's error of an fma)."""
    total = v.fma(a, b, c)
    high = v.b.fmul(a, b)
    low = v.fma(a, b, v.b.fneg(high))
    small, tail = two_sum(v, c, low)
    large, middle = two_sum(v, high, small)
    return total, v.b.fadd(v.b.fadd(v.b.fsub(large, total), middle), tail)


def quotient(v: VectorBuilder, a: Any, b: Any) -> tuple[Any, Any]:
    """a / b rounded to nearest, and a double with the sign of what is left."""
    found = v.b.fdiv(a, b)
    rest = v.fma(v.b.fneg(found), b, a)
    return found, v.b.select(v.b.fcmp_ordered("<", b, v.const(b.type, 0.0)), v.b.fneg(rest), rest)


def square_root(v: VectorBuilder, a: Any) -> tuple[Any, Any]:
    """The root rounded to nearest, and a double with the sign of what is left."""
    found = v.over("sqrt", a)
    return found, v.fma(v.b.fneg(found), found, a)


def exact(v: VectorBuilder, rounded: Any, left: Any = None) -> Exact:
    """A finite double, and the sign of what its rounding left (None: nothing), as a cut significand and a sticky bit.

    What was rounded away from zero is one unit less, and more than nothing.
    """
    bits = double_bits(v, rounded)
    m = magnitude_bits(v, DOUBLE, bits)
    sticky = v.const(like(bits, I1), 0)
    if left is not None:
        sticky = v.b.fcmp_unordered("!=", left, v.const(left.type, 0.0))
        back = v.b.and_(sticky, is_negative(v, v.b.xor(bits, double_bits(v, left))))
        m = v.b.sub(m, resize(v, back, 64))
    field = v.b.lshr(m, const(v, m, DOUBLE.fraction))
    hidden = v.b.select(is_zero(v, field), const(v, m, 0), const(v, m, DOUBLE.least_normal))
    significand = v.b.or_(v.b.and_(m, const(v, m, DOUBLE.least_normal - 1)), hidden)
    unit = v.b.sub(v.umax(field, const(v, m, 1)), const(v, m, DOUBLE_BIAS + DOUBLE.fraction))
    return Exact(is_negative(v, bits), significand, unit, sticky)


def _upward(v: VectorBuilder, direction: str, x: Exact, kept: Any, rest: Any, half: Any) -> Any:
    """Whether the kept part of the magnitude goes up by one."""
    if direction == "rn":
        odd = v.b.trunc(kept, like(kept, I1))
        tie = v.b.and_(v.b.icmp_unsigned("==", rest, half), v.b.or_(x.sticky, odd))
        return v.b.or_(v.b.icmp_unsigned(">", rest, half), tie)
    if direction == "rna":
        return v.b.icmp_unsigned(">=", rest, half)
    if direction == "rz":
        return v.const(x.sticky.type, 0)
    some = v.b.or_(x.sticky, v.b.not_(is_zero(v, rest)))
    return v.b.and_(some, x.negative if direction == "rm" else v.b.not_(x.negative))


def pack(v: VectorBuilder, kind: FloatKind, direction: str, x: Exact, saturate: bool = False) -> Any:
    """Bits of x rounded to a format, as i64; what is too large becomes an infinity or the greatest finite number."""
    top = v.b.sub(count_leading_zeros(v, x.significand), const(v, x.significand, 1))
    m = v.b.shl(x.significand, top)  # bit 62 is the highest
    place = v.b.add(v.b.sub(const(v, m, 62 + kind.bias), top), x.exponent)  # its exponent field
    below = v.smax(v.b.sub(const(v, m, 1), place), const(v, m, 0))  # how far it is below the least normal
    shift = v.b.add(const(v, m, 62 - kind.fraction), below)
    beyond = v.b.icmp_signed(">", shift, const(v, m, 63))
    m = v.b.select(beyond, v.umin(m, const(v, m, 1)), m)
    shift = v.b.select(beyond, const(v, m, 63), shift)
    kept = v.b.lshr(m, shift)
    rest = v.b.sub(m, v.b.shl(kept, shift))
    half = v.b.lshr(v.b.shl(const(v, m, 1), shift), const(v, m, 1))
    up = _upward(v, direction, x, kept, rest, half)
    limit = 1 << kind.bits - 1 - kind.fraction  # a field past all others
    field = v.b.sub(clamp(v, place, 1, limit), const(v, m, 1))
    bits = v.b.add(v.b.add(v.b.shl(field, const(v, m, kind.fraction)), kept), resize(v, up, 64))
    bits = v.b.select(is_zero(v, x.significand), const(v, m, 0), bits)
    over = v.b.icmp_unsigned(">", bits, const(v, m, kind.greatest))
    bits = v.b.select(over, _too_large(v, kind, direction, x, m, saturate), bits)
    return v.b.or_(bits, v.b.select(x.negative, const(v, m, kind.sign), const(v, m, 0)))


def _too_large(v: VectorBuilder, kind: FloatKind, direction: str, x: Exact, shape: Any, saturate: bool) -> Any:
    finite, infinite = const(v, shape, kind.greatest), const(v, shape, kind.infinity)
    if saturate or direction == "rz":
        return finite
    if direction in ("rn", "rna"):
        return infinite
    return v.b.select(x.negative, *((infinite, finite) if direction == "rm" else (finite, infinite)))


def scaled(v: VectorBuilder, bits: Any) -> tuple[Any, Any]:
    """A finite double, not zero, as a double in +-[1, 2) and the exponent it was scaled by."""
    x = as_float(v, bits)
    tiny = v.b.icmp_unsigned("<", magnitude_bits(v, DOUBLE, bits), const(v, bits, DOUBLE.least_normal))
    normal = v.b.select(tiny, double_bits(v, v.b.fmul(x, v.const(like(bits, F64), 2.0**54))), bits)
    field = v.b.lshr(magnitude_bits(v, DOUBLE, normal), const(v, bits, DOUBLE.fraction))
    bias = v.b.select(tiny, const(v, bits, DOUBLE_BIAS + 54), const(v, bits, DOUBLE_BIAS))
    mantissa = v.b.and_(normal, const(v, bits, DOUBLE.sign | DOUBLE.least_normal - 1))
    return as_float(v, v.b.or_(mantissa, const(v, bits, DOUBLE.one))), v.b.sub(field, bias)


def with_exponent(v: VectorBuilder, m: Any, exponent: Any) -> Any:
    """A double in +-[1, 2) times 2**exponent, which stays in the range of normal numbers."""
    bits = double_bits(v, m)
    return as_float(v, v.b.add(bits, v.b.shl(exponent, const(v, bits, DOUBLE.fraction))))


def clamp(v: VectorBuilder, x: Any, least: int, most: int) -> Any:
    """A signed integer held between two bounds."""
    return order(v, "min", order(v, "max", x, const(v, x, least), True), const(v, x, most), True)
