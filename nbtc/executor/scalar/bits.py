"""Logic, shifts and bit fields (PTX ISA, "Logic and Shift Instructions", and the bit fields among the integers)."""

from __future__ import annotations

from typing import Any

from nbtc.compiler.builder import VectorBuilder
from nbtc.errors import ParseError
from nbtc.executor.emit.form import Form, Op, slots
from nbtc.executor.emit.values import const, count_leading_zeros, is_negative, is_zero, number, resize, shift, width
from nbtc.executor.scalar.integers import TYPES, is_signed

BITS = ("b16", "b32", "b64")
FIELD_TYPES = ("u32", "u64", "s32", "s64")


def immediate(op: Op, x: Any) -> int:
    """The value of an operand that has to be a constant."""
    value = number(x)
    if value is None:
        raise ParseError(
            f"{op.text}: the operand has to be an immediate, not a register; write its value, such as 0x80"
        )
    return value


def logic(v: VectorBuilder, op: Op, a: Any, b: Any) -> Any:
    """and, or, xor."""
    return {"and": v.b.and_, "or": v.b.or_, "xor": v.b.xor}[op.opcode](a, b)


def invert(v: VectorBuilder, op: Op, a: Any) -> Any:
    """not."""
    return v.b.xor(a, const(v, a, -1))


def cnot(v: VectorBuilder, op: Op, a: Any) -> Any:
    """cnot: 1 for 0, else 0."""
    return resize(v, is_zero(v, a), width(a))


def shl(v: VectorBuilder, op: Op, a: Any, amount: Any) -> Any:
    """shl; amounts from the width on give zero."""
    return shift(v, a, amount, "shl")


def shr(v: VectorBuilder, op: Op, a: Any, amount: Any) -> Any:
    """shr, with copies of the sign for signed types; amounts from the width on leave nothing else."""
    return shift(v, a, amount, "ashr" if is_signed(op) else "lshr")


def funnel_shift(v: VectorBuilder, op: Op, a: Any, b: Any, amount: Any) -> Any:
    """shf: the upper word of b:a shifted left, or the lower word of it shifted right; at most by 32 or modulo 32."""
    found = v.over("fshl" if op.has("l") else "fshr", b, a, amount)
    if op.has("wrap"):
        return found
    return v.b.select(v.b.icmp_unsigned("<", amount, const(v, amount, 32)), found, a if op.has("l") else b)


def lop3(v: VectorBuilder, op: Op, a: Any, b: Any, c: Any, table: Any, q: Any = None) -> Any:
    """lop3: bit 4a + 2b + c of the immediate, for each bit; with .and/.or also (result != 0) combined with q."""
    lut = immediate(op, table)
    ones, zeros = const(v, a, -1), const(v, a, 0)
    of_c = (zeros, v.b.xor(c, ones), c, ones)  # the four functions of c, by their two entries of the table
    of_bc = [_choose(v, b, of_c[lut >> i + 2 & 3], of_c[lut >> i & 3]) for i in (0, 4)]
    found = _choose(v, a, of_bc[1], of_bc[0])
    if q is None:
        return found
    return found, logic(v, Op(op.modifiers[0], ()), v.b.not_(is_zero(v, found)), q)


def _choose(v: VectorBuilder, s: Any, one: Any, zero: Any) -> Any:
    """Bit by bit, `one` where s is set, else `zero`."""
    return one if one is zero else v.b.xor(zero, v.b.and_(s, v.b.xor(one, zero)))


def _count(v: VectorBuilder, a: Any, x: Any) -> Any:
    """A field's start or length: its low byte for fields of 32 bits, all of it for 64 (recorded on
    an H200, golden/scalar_rows_h200.npz)."""
    return v.b.and_(x, const(v, x, 0xFF)) if width(a) == 32 else x


def low_bits(v: VectorBuilder, x: Any, count: Any, signed: bool) -> Any:
    """The `count` lowest bits of x (an i32 count, all of x from the width on), extended; 0 for none."""
    unused = v.b.sub(const(v, count, width(x)), v.umin(count, const(v, count, width(x))))
    return shift(v, shift(v, x, unused, "shl"), unused, "ashr" if signed else "lshr")


def bfe(v: VectorBuilder, op: Op, a: Any, start: Any, count: Any) -> Any:
    """bfe: a field of a, extended; bits past the end of a are zero, or its sign."""
    moved = shift(v, a, _count(v, a, start), "ashr" if is_signed(op) else "lshr")
    return low_bits(v, moved, _count(v, a, count), is_signed(op))


def bfi(v: VectorBuilder, op: Op, a: Any, b: Any, start: Any, count: Any) -> Any:
    """bfi: b with a field replaced by the low bits of a."""
    mask = shift(v, low_bits(v, const(v, a, -1), _count(v, a, count), False), _count(v, a, start), "shl")
    moved = shift(v, a, _count(v, a, start), "shl")
    return v.b.xor(b, v.b.and_(v.b.xor(b, moved), mask))


def bfind(v: VectorBuilder, op: Op, a: Any) -> Any:
    """bfind: the place of the highest bit that is not the sign, or all ones; .shiftamt: how far it is from the top."""
    x = v.b.select(is_negative(v, a), v.b.not_(a), a) if is_signed(op) else a
    zeros = count_leading_zeros(v, x)
    found = zeros if op.has("shiftamt") else v.b.sub(const(v, x, width(x) - 1), zeros)
    return resize(v, v.b.select(is_zero(v, x), const(v, x, -1), found), 32)


def brev(v: VectorBuilder, op: Op, a: Any) -> Any:
    """brev."""
    return v.over("bitreverse", a)


def clz(v: VectorBuilder, op: Op, a: Any) -> Any:
    """clz."""
    return resize(v, count_leading_zeros(v, a), 32)


def popc(v: VectorBuilder, op: Op, a: Any) -> Any:
    """popc."""
    return resize(v, v.popcount(a), 32)


def fns(v: VectorBuilder, op: Op, mask: Any, base: Any, offset: Any) -> Any:
    """fns: the place of the offset-th set bit at or after base (before it for a negative offset), or all ones.

    Offset 0 asks for the bit at base itself, which is the first one found if that is set.
    """
    back = is_negative(v, offset)
    start = v.b.select(back, v.b.sub(const(v, base, 31), base), base)
    ahead = shift(v, v.b.select(back, v.over("bitreverse", mask), mask), start, "lshr")
    here = is_zero(v, offset)
    ahead = v.b.select(here, v.b.and_(ahead, const(v, ahead, 1)), ahead)
    steps = v.b.select(back, v.b.neg(offset), offset)
    skip = v.b.select(here, const(v, steps, 0), v.b.sub(steps, const(v, steps, 1)))
    place = v.b.add(start, _nth_set(v, ahead, skip))
    place = v.b.select(back, v.b.sub(const(v, place, 31), place), place)
    return v.b.select(v.b.icmp_unsigned("<", skip, v.popcount(ahead)), place, const(v, place, -1))


def _nth_set(v: VectorBuilder, x: Any, skip: Any) -> Any:
    """Where the set bit with `skip` set bits below it is, by halving."""
    place = const(v, x, 0)
    for step in (16, 8, 4, 2, 1):
        below = v.popcount(v.b.and_(v.b.lshr(x, place), const(v, x, (1 << step) - 1)))
        beyond = v.b.icmp_unsigned(">=", skip, below)
        place = v.b.select(beyond, v.b.add(place, const(v, x, step)), place)
        skip = v.b.select(beyond, v.b.sub(skip, below), skip)
    return place


def _places(v: VectorBuilder, op: Op, x: Any) -> Any:
    """A bit count: .wrap counts modulo 32, .clamp at most to 32."""
    return v.b.and_(x, const(v, x, 31)) if op.has("wrap") else v.umin(x, const(v, x, 32))


def bmsk(v: VectorBuilder, op: Op, start: Any, count: Any) -> Any:
    """bmsk: ones in `count` bits from `start` on, as far as the word goes."""
    return shift(v, low_bits(v, const(v, start, -1), _places(v, op, count), False), _places(v, op, start), "shl")


def szext(v: VectorBuilder, op: Op, a: Any, count: Any) -> Any:
    """szext: the low `count` bits, extended with the sign (.s32) or zeros (.u32)."""
    return low_bits(v, a, _places(v, op, count), is_signed(op))


def _field_rows() -> tuple[Form, ...]:
    rows = [Form("bfe", slots(t), (t, "u32", "u32"), (t,), bfe) for t in FIELD_TYPES]
    rows += [Form("bfi", slots(t), (t, t, "u32", "u32"), (t,), bfi) for t in ("b32", "b64")]
    rows += [Form("bfind", slots("shiftamt?", t), (t,), ("u32",), bfind) for t in FIELD_TYPES]
    rows += [Form("brev", slots(t), (t,), (t,), brev) for t in ("b32", "b64")]
    rows += [Form(n, slots(t), (t,), ("u32",), e) for n, e in (("clz", clz), ("popc", popc)) for t in ("b32", "b64")]
    rows += [Form("szext", slots("clamp|wrap", t), (t, "u32"), (t,), szext) for t in ("u32", "s32")]
    rows.append(Form("bmsk", slots("clamp|wrap", "b32"), ("b32", "b32"), ("b32",), bmsk))
    rows.append(Form("fns", slots("b32"), ("b32", "b32", "s32"), ("b32",), fns))
    return tuple(rows)


def _logic_rows() -> tuple[Form, ...]:
    rows = [Form(n, slots(t), (t, t), (t,), logic) for n in ("and", "or", "xor") for t in ("pred", *BITS)]
    rows += [Form("not", slots(t), (t,), (t,), invert) for t in ("pred", *BITS)]
    rows += [Form("cnot", slots(t), (t,), (t,), cnot) for t in BITS]
    rows += [Form("shl", slots(t), (t, "u32"), (t,), shl) for t in BITS]
    rows += [Form("shr", slots(t), (t, "u32"), (t,), shr) for t in (*BITS, *TYPES)]
    rows.append(Form("shf", slots("l|r", "clamp|wrap", "b32"), ("b32", "b32", "u32"), ("b32",), funnel_shift))
    words = ("b32",) * 4
    rows.append(Form("lop3", slots("b32"), words, ("b32",), lop3))
    rows.append(Form("lop3", slots("and|or", "b32"), (*words, "pred"), ("b32", "pred"), lop3))
    return tuple(rows)


FORMS = (*_logic_rows(), *_field_rows())
