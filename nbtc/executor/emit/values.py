"""Integer values of one lane or of many: the few words in which every emitter of scalar arithmetic is written."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import VectorBuilder, like, suffix, vector

__all__ = [
    "const", "count_leading_zeros", "high_product", "is_negative", "is_zero", "like", "magnitude", "number", "order",
    "pieces", "resize", "shift", "width",
]  # fmt: skip


def width(x: Any) -> int:
    """Bits of one lane of an integer value."""
    t = x.type.element if isinstance(x.type, ir.VectorType) else x.type
    return int(t.width)


def const(v: VectorBuilder, x: Any, value: int) -> Any:
    """An integer of x's type, the same in every lane, taken modulo its width."""
    return v.const(x.type, value & ((1 << width(x)) - 1))


def number(x: Any) -> int | None:
    """The value of a constant that is the same in every lane, else None."""
    if not isinstance(x, ir.Constant) or x.constant is ir.Undefined:
        return None
    lanes = x.constant if isinstance(x.type, ir.VectorType) else [x.constant]
    if lanes is None or isinstance(lanes, str):
        return 0 if lanes is None else None
    first = lanes[0].constant if isinstance(lanes[0], ir.Constant) else lanes[0]
    same = all((lane.constant if isinstance(lane, ir.Constant) else lane) == first for lane in lanes)
    return int(first or 0) & ((1 << width(x)) - 1) if same else None


def resize(v: VectorBuilder, x: Any, bits: int, signed: bool = False) -> Any:
    """x as an integer of `bits`: cut, or extended with zeros or its sign."""
    have, t = width(x), like(x, ir.IntType(bits))
    if have == bits:
        return x
    if have > bits:
        return v.b.trunc(x, t)
    return v.b.sext(x, t) if signed else v.b.zext(x, t)


def is_negative(v: VectorBuilder, x: Any) -> Any:
    """Whether the sign bit is set, as i1."""
    return v.b.icmp_signed("<", x, const(v, x, 0))


def is_zero(v: VectorBuilder, x: Any) -> Any:
    """x == 0, as i1."""
    return v.b.icmp_unsigned("==", x, const(v, x, 0))


def magnitude(v: VectorBuilder, x: Any) -> Any:
    """|x| of a signed integer, as an unsigned one of the same width."""
    return v.b.select(is_negative(v, x), v.b.neg(x), x)


def order(v: VectorBuilder, which: str, a: Any, b: Any, signed: bool) -> Any:
    """The "min" or "max" of two integers."""
    return v.over(("s" if signed else "u") + which, a, b)


def high_product(v: VectorBuilder, a: Any, b: Any, signed: bool) -> Any:
    """The upper half of the product of two integers."""
    bits = width(a)
    full = v.b.mul(resize(v, a, 2 * bits, signed), resize(v, b, 2 * bits, signed))
    return resize(v, v.b.lshr(full, const(v, full, bits)), bits)


def pieces(v: VectorBuilder, x: Any, bits: int) -> Any:
    """x as a vector of integers of `bits`, the lowest of each lane first."""
    lanes = x.type.count if isinstance(x.type, ir.VectorType) else 1
    return v.b.bitcast(x, vector(ir.IntType(bits), lanes * width(x) // bits))


def halves(v: VectorBuilder, x: Any) -> tuple[Any, Any]:
    """The lower and the upper half of each lane."""
    bits = width(x) // 2
    return resize(v, x, bits), resize(v, v.b.lshr(x, const(v, x, bits)), bits)


def joined(v: VectorBuilder, lower: Any, upper: Any) -> Any:
    """Two values of a width as one of twice that."""
    bits = width(lower)
    wide = resize(v, upper, 2 * bits)
    return v.b.or_(v.b.shl(wide, const(v, wide, bits)), resize(v, lower, 2 * bits))


def count_leading_zeros(v: VectorBuilder, x: Any) -> Any:
    """Zeros above the highest set bit; the width for zero."""
    return v.call(f"llvm.ctlz.{suffix(x.type)}", x.type, x, ir.Constant(ir.IntType(1), 0))


def shift(v: VectorBuilder, x: Any, amount: Any, kind: str) -> Any:
    """x shifted by an i32 amount: "shl", "lshr" or "ashr"; from the width on nothing but zeros or signs is left."""
    bits = width(x)
    fixed = number(amount)
    most = bits - 1 if kind == "ashr" else bits
    if fixed is not None:
        return const(v, x, 0) if min(fixed, most) >= bits else getattr(v.b, kind)(x, const(v, x, min(fixed, most)))
    least = resize(v, v.umin(amount, const(v, amount, bits - 1)), bits)
    shifted = getattr(v.b, kind)(x, least)
    if kind == "ashr":
        return shifted
    return v.b.select(v.b.icmp_unsigned("<", amount, const(v, amount, bits)), shifted, const(v, x, 0))
