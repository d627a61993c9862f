"""Integer arithmetic (PTX ISA, "Integer Arithmetic Instructions" and "Extended-Precision Integer Arithmetic")."""

from __future__ import annotations

from typing import Any

from nbtc.compiler.builder import F64, I64, VectorBuilder
from nbtc.executor.emit.form import Form, Op, slots
from nbtc.executor.emit.values import (
    const,
    high_product,
    is_negative,
    is_zero,
    like,
    magnitude,
    order,
    pieces,
    resize,
    width,
)

TYPES = tuple(f"{kind}{bits}" for bits in (16, 32, 64) for kind in "us")
SIGNED = ("s16", "s32", "s64")
WIDE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
CARRYING = ("u32", "s32", "u64", "s64")


def is_signed(op: Op) -> bool:
    """Whether the operands of an instruction with one type are signed."""
    return op.types[-1].startswith("s")


def saturating(v: VectorBuilder, op: Op, a: Any, b: Any) -> Any:
    """add.sat, sub.sat: clamped to the least and greatest value of the type."""
    return v.over(f"{'s' if is_signed(op) else 'u'}{op.opcode}.sat", a, b)


def add(v: VectorBuilder, op: Op, a: Any, b: Any) -> Any:
    """add, wrapping or .sat."""
    return saturating(v, op, a, b) if op.has("sat") else v.b.add(a, b)


def sub(v: VectorBuilder, op: Op, a: Any, b: Any) -> Any:
    """sub, wrapping or .sat."""
    return saturating(v, op, a, b) if op.has("sat") else v.b.sub(a, b)


def product(v: VectorBuilder, op: Op, a: Any, b: Any) -> Any:
    """The part of a * b that .lo, .hi or .wide names."""
    if op.has("wide"):
        return v.b.mul(*(resize(v, x, 2 * width(x), is_signed(op)) for x in (a, b)))
    return high_product(v, a, b, is_signed(op)) if op.has("hi") else v.b.mul(a, b)


def mad(v: VectorBuilder, op: Op, a: Any, b: Any, c: Any) -> Any:
    """mad: a part of the product, plus c; .hi.sat clamps the sum."""
    part = product(v, op, a, b)
    return v.over("sadd.sat", part, c) if op.has("sat") else v.b.add(part, c)


def minmax(v: VectorBuilder, op: Op, a: Any, b: Any) -> Any:
    """min, max; .relu makes a negative result zero."""
    found = order(v, op.opcode, a, b, is_signed(op))
    return v.smax(found, const(v, found, 0)) if op.has("relu") else found


def neg(v: VectorBuilder, op: Op, a: Any) -> Any:
    """neg."""
    return v.b.neg(a)


def absolute(v: VectorBuilder, op: Op, a: Any) -> Any:
    """abs; the least value stays as it is."""
    return magnitude(v, a)


def _divide_unsigned(v: VectorBuilder, a: Any, b: Any) -> Any:
    """Quotient of unsigned integers, b not zero.

    Up to 32 bits through f64, which has vector instructions: a quotient that is no integer lies at least 1/b from one,
    and its rounding moves it by less than (2**32 / b) * 2**-53.
    """
    if width(a) == 64:
        return v.b.udiv(a, b)
    return _through_f64(v, a, b)


def _through_f64(v: VectorBuilder, a: Any, b: Any) -> Any:
    from_int = [v.b.uitofp(x, like(x, F64)) for x in (a, b)]
    whole = v.over("floor", v.b.fdiv(*from_int))
    shifted = v.b.fadd(whole, v.const(whole.type, 2.0**52))  # the integer is now the low bits of the significand
    return resize(v, v.b.bitcast(shifted, like(a, I64)), width(a))


def _quotient(v: VectorBuilder, op: Op, a: Any, b: Any) -> tuple[Any, Any, Any]:
    """Quotient and the divisor that was used, which is 1 for 0, and whether it was 0."""
    none = is_zero(v, b)
    divisor = v.b.select(none, const(v, b, 1), b)
    if not is_signed(op):
        return _divide_unsigned(v, a, divisor), divisor, none
    found = _divide_unsigned(v, magnitude(v, a), magnitude(v, divisor))
    return v.b.select(is_negative(v, v.b.xor(a, divisor)), v.b.neg(found), found), divisor, none


def div(v: VectorBuilder, op: Op, a: Any, b: Any) -> Any:
    """div toward zero; a divisor of zero gives all ones, as the hardware does, and the least value / -1 wraps."""
    found, _, none = _quotient(v, op, a, b)
    return v.b.select(none, const(v, a, -1), found)


def rem(v: VectorBuilder, op: Op, a: Any, b: Any) -> Any:
    """rem with the sign of the dividend; a divisor of zero gives all ones, as the hardware does."""
    found, divisor, none = _quotient(v, op, a, b)
    return v.b.select(none, const(v, a, -1), v.b.sub(a, v.b.mul(found, divisor)))


def sad(v: VectorBuilder, op: Op, a: Any, b: Any, c: Any) -> Any:
    """sad: c + |a - b|."""
    below = order(v, "min", a, b, is_signed(op))
    above = order(v, "max", a, b, is_signed(op))
    return v.b.add(c, v.b.sub(above, below))


def product24(v: VectorBuilder, op: Op, a: Any, b: Any) -> Any:
    """mul24: bits 31..0 or 47..16 of the product of the low 24 bits."""
    kind = "ashr" if is_signed(op) else "lshr"
    low = [getattr(v.b, kind)(v.b.shl(x, const(v, x, 8)), const(v, x, 8)) for x in (a, b)]
    full = v.b.mul(*(resize(v, x, 64, is_signed(op)) for x in low))
    return resize(v, v.b.lshr(full, const(v, full, 16)) if op.has("hi") else full, 32)


def mad24(v: VectorBuilder, op: Op, a: Any, b: Any, c: Any) -> Any:
    """mad24; .hi.sat clamps the sum."""
    part = product24(v, op, a, b)
    return v.over("sadd.sat", part, c) if op.has("sat") else v.b.add(part, c)


PARTS = {"u16x2": 16, "s16x2": 16, "u8x4": 8, "s8x4": 8}  # bits of each integer of a packed type


def packed(v: VectorBuilder, op: Op, *sources: Any) -> Any:
    """add, sub, min, max, neg of two 16-bit or four 8-bit integers in a register."""
    emit: Any = {"add": add, "sub": sub, "min": minmax, "max": minmax, "neg": neg}[op.opcode]
    found = emit(v, op, *(pieces(v, r, PARTS[op.types[-1]]) for r in sources))
    return v.b.bitcast(found, sources[0].type)


def dot(v: VectorBuilder, op: Op, a: Any, b: Any, c: Any) -> Any:
    """dp4a, dp2a: c plus the products of bytes, or of halves with the .lo or .hi bytes of b."""
    count = 4 if op.opcode == "dp4a" else 2
    first = 2 if op.has("hi") else 0
    kinds = [t.startswith("s") for t in op.types]
    for i in range(count):
        x = field(v, a, 32 // count * i, 32 // count, kinds[0])
        y = field(v, b, 8 * (first + i), 8, kinds[1])
        c = v.b.add(c, v.b.mul(x, y))
    return c


def field(v: VectorBuilder, x: Any, low: int, bits: int, signed: bool) -> Any:
    """`bits` bits of x from bit `low` on, extended to x's width."""
    up = v.b.shl(x, const(v, x, width(x) - low - bits))
    return (v.b.ashr if signed else v.b.lshr)(up, const(v, x, width(x) - bits))


def _same(opcode: str, types: tuple[str, ...], count: int, emit: Any, *modifiers: str) -> tuple[Form, ...]:
    """Rows of an opcode whose operands all have the instruction's one type."""
    return tuple(Form(opcode, slots(*modifiers, t), (t,) * count, (t,), emit) for t in types)


def _multiplying(opcode: str, emit: Any, addends: int) -> tuple[Form, ...]:
    rows = [Form(opcode, slots("lo|hi", t), (t,) * (2 + addends), (t,), emit) for t in TYPES]
    return (*rows, *(Form(opcode, slots("wide", t), (t, t, *[w] * addends), (w,), emit) for t, w in WIDE.items()))


def _packed_rows() -> tuple[Form, ...]:
    bytes_ = ("u8x4", "s8x4")
    rows = [*_same("add", tuple(PARTS), 2, packed, "sat?"), *_same("sub", bytes_, 2, packed, "sat?")]
    rows += _same("neg", ("s8x4",), 1, packed)
    for opcode in ("min", "max"):
        rows += _same(opcode, ("u16x2", "u8x4"), 2, packed)
        for t, relu, emit in (("s16x2", "relu?", packed), ("s8x4", "relu?", packed), ("s32", "relu", minmax)):
            rows += [Form(opcode, slots(*s), (t, t), (t,), emit) for s in ((relu, t), (t, "relu"))]
    return tuple(rows)


def _dot_rows() -> tuple[Form, ...]:
    kinds = [(x, y) for x in ("u32", "s32") for y in ("u32", "s32")]
    types = [(x, y, "u32" if (x, y) == ("u32", "u32") else "s32") for x, y in kinds]
    rows = [Form("dp4a", slots(x, y), (x, y, d), (d,), dot) for x, y, d in types]
    return (*rows, *(Form("dp2a", slots("lo|hi", x, y), (x, y, d), (d,), dot) for x, y, d in types))


FORMS = (
    *_same("add", TYPES, 2, add),
    *_same("sub", TYPES, 2, sub),
    *_same("add", ("s32", "u32"), 2, add, "sat"),
    *_same("sub", ("s32",), 2, sub, "sat"),
    *_multiplying("mul", product, 0),
    *_multiplying("mad", mad, 1),
    *_same("mad", ("s32",), 3, mad, "hi", "sat"),
    *(row for opcode in ("min", "max") for row in _same(opcode, TYPES, 2, minmax)),
    *_same("neg", SIGNED, 1, neg),
    *_same("abs", SIGNED, 1, absolute),
    *_same("div", TYPES, 2, div),
    *_same("rem", TYPES, 2, rem),
    *_same("sad", TYPES, 3, sad),
    *_same("mul24", ("u32", "s32"), 2, product24, "lo|hi"),
    *_same("mad24", ("u32", "s32"), 3, mad24, "lo|hi"),
    *_same("mad24", ("s32",), 3, mad24, "hi", "sat"),
    *_packed_rows(),
    *_dot_rows(),
)
