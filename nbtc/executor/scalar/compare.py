"""Comparison and selection (PTX ISA, "Comparison and Selection Instructions", and their half-precision forms)."""

from __future__ import annotations

from typing import Any

from nbtc.compiler.builder import VectorBuilder
from nbtc.executor.emit.form import WIDTHS, Form, Op, slots
from nbtc.executor.emit.values import const, halves, is_negative, joined, resize
from nbtc.executor.scalar.bits import BITS, logic
from nbtc.executor.scalar.float_values import KINDS, PACKED, flush, is_nan, magnitude_bits, to_number
from nbtc.executor.scalar.integers import TYPES

ORDERS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
UNSIGNED_ORDERS = {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
UNORDERED = {f"{name}u": sign for name, sign in ORDERS.items()}  # true also when an operand is a NaN
NUMBERS = {"num": "ord", "nan": "uno"}
FLOAT_COMPARISONS = (*ORDERS, *UNORDERED, *NUMBERS)
BOOLEANS = ("and", "or", "xor")
FLOATS = ("f16", "bf16", "f32", "f64")


def _comparisons(t: str) -> tuple[str, ...]:
    if t in FLOATS or t in PACKED:
        return FLOAT_COMPARISONS
    if t.startswith("b"):
        return ("eq", "ne")
    return (*ORDERS, *UNSIGNED_ORDERS) if t.startswith("u") else tuple(ORDERS)


def compare_integers(v: VectorBuilder, name: str, signed: bool, a: Any, b: Any) -> Any:
    """The comparison of two integers, as i1."""
    sign = {**ORDERS, **UNSIGNED_ORDERS}[name]
    return (v.b.icmp_signed if signed else v.b.icmp_unsigned)(sign, a, b)


def compare_floats(v: VectorBuilder, name: str, t: str, ftz: bool, a: Any, b: Any) -> Any:
    """The comparison of two floats given by their bits, as i1."""
    x, y = (to_number(v, t, flush(v, KINDS[t], n) if ftz else n) for n in (a, b))
    if name in NUMBERS:
        return v.b.fcmp_ordered(NUMBERS[name], x, y)
    return v.b.fcmp_unordered(UNORDERED[name], x, y) if name in UNORDERED else v.b.fcmp_ordered(ORDERS[name], x, y)


def compare(v: VectorBuilder, op: Op, t: str, a: Any, b: Any) -> Any:
    """The comparison an instruction names, of operands of type t."""
    name = op.modifiers[0]
    if t in FLOATS:
        return compare_floats(v, name, t, op.has("ftz"), a, b)
    return compare_integers(v, name, t.startswith("s"), a, b)


def combine(v: VectorBuilder, op: Op, found: Any, c: Any) -> Any:
    """found with a third predicate, by .and, .or or .xor; found itself without one."""
    return found if c is None else logic(v, Op(op.among(BOOLEANS), ()), found, c)


def setp(v: VectorBuilder, op: Op, a: Any, b: Any, c: Any = None) -> Any:
    """setp: p, and q from the opposite of the comparison."""
    found = compare(v, op, op.types[-1], a, b)
    return combine(v, op, found, c), combine(v, op, v.b.not_(found), c)


def setp_packed(v: VectorBuilder, op: Op, a: Any, b: Any, c: Any = None) -> Any:
    """setp of two packed values: p for the lower, q for the upper."""
    t = PACKED[op.types[-1]]
    return tuple(combine(v, op, compare(v, op, t, x, y), c) for x, y in zip(halves(v, a), halves(v, b), strict=True))


def set_word(v: VectorBuilder, op: Op, a: Any, b: Any, c: Any = None) -> Any:
    """set: all ones, or 1.0 for a float result, where the comparison holds; else 0."""
    target, source = op.types
    return _mark(v, target, combine(v, op, compare(v, op, source, a, b), c), resize(v, a, WIDTHS[target]))


def _mark(v: VectorBuilder, t: str, found: Any, shape: Any) -> Any:
    yes = KINDS[t].one if t in KINDS else -1
    return v.b.select(found, const(v, shape, yes), const(v, shape, 0))


def set_packed(v: VectorBuilder, op: Op, a: Any, b: Any, c: Any = None) -> Any:
    """set of two packed values: 1.0 in each half, or all ones of it for an integer result."""
    target, source = op.types
    found = [
        _mark(v, PACKED.get(target, "b16"), combine(v, op, compare(v, op, PACKED[source], x, y), c), x)
        for x, y in zip(halves(v, a), halves(v, b), strict=True)
    ]
    return joined(v, *found)


def selp(v: VectorBuilder, op: Op, a: Any, b: Any, p: Any) -> Any:
    """selp: a if p, else b."""
    return v.b.select(p, a, b)


def slct(v: VectorBuilder, op: Op, a: Any, b: Any, c: Any) -> Any:
    """slct: a if c >= 0, else b; a NaN is not."""
    if op.types[-1] == "s32":
        return v.b.select(is_negative(v, c), b, a)
    at_least_zero = compare_floats(v, "ge", "f32", op.has("ftz"), c, const(v, c, 0))
    return v.b.select(at_least_zero, a, b)


def testp(v: VectorBuilder, op: Op, a: Any) -> Any:
    """testp: the class of a float; zeros count as normal."""
    kind = KINDS[op.types[-1]]
    m = magnitude_bits(v, kind, a)
    infinite = v.b.icmp_unsigned("==", m, const(v, m, kind.infinity))
    finite = v.b.icmp_unsigned("<", m, const(v, m, kind.infinity))
    # zero less one wraps to the greatest number
    subnormal = v.b.icmp_unsigned("<", v.b.sub(m, const(v, m, 1)), const(v, m, kind.least_normal - 1))
    classes = {
        "finite": finite,
        "infinite": infinite,
        "notanumber": is_nan(v, kind, a),
        "number": v.b.not_(is_nan(v, kind, a)),
        "normal": v.b.and_(finite, v.b.not_(subnormal)),
        "subnormal": subnormal,
    }
    return classes[op.modifiers[0]]


def _with_predicate(opcode: str, head: str, tail: tuple[str, ...], t: str, results: tuple[str, ...], emit: Any) -> Any:
    """The row of a comparison, and that of its combination with a third predicate."""
    yield Form(opcode, slots(head, *tail), (t, t), results, emit)
    yield Form(opcode, slots(head, "|".join(BOOLEANS), *tail), (t, t, "pred"), results, emit)


def _rows(opcode: str, source: str, target: str | None, emit: Any) -> tuple[Form, ...]:
    ftz = ("ftz?",) if source in ("f16", "f32", "f16x2") else ()
    tail = (*ftz, source) if target is None else (*ftz, target, source)
    results = ("pred", "pred") if target is None else (target,)
    return tuple(_with_predicate(opcode, "|".join(_comparisons(source)), tail, source, results, emit))


SET_TARGETS = {
    **dict.fromkeys((*BITS, *TYPES, "f32", "f64"), ("u32", "s32", "f32", "f16", "bf16")),
    "f16": ("u16", "s16", "u32", "s32", "f16", "bf16"),
    "bf16": ("u16", "s16", "u32", "s32", "bf16"),
}
FORMS = (
    *(row for t in (*BITS, *TYPES, *FLOATS) for row in _rows("setp", t, None, setp)),
    *(row for t in PACKED for row in _rows("setp", t, None, setp_packed)),
    *(row for t, targets in SET_TARGETS.items() for target in targets for row in _rows("set", t, target, set_word)),
    *(row for t in PACKED for target in (t, "u32", "s32") for row in _rows("set", t, target, set_packed)),
    *(Form("selp", slots(t), (t, t, "pred"), (t,), selp) for t in (*BITS, *TYPES, "f32", "f64")),
    *(Form("slct", slots(t, "s32"), (t, t, "s32"), (t,), slct) for t in (*BITS, *TYPES, "f32", "f64")),
    *(Form("slct", slots("ftz?", t, "f32"), (t, t, "f32"), (t,), slct) for t in (*BITS, *TYPES, "f32", "f64")),
    *(
        Form("testp", slots("finite|infinite|number|notanumber|normal|subnormal", t), (t,), ("pred",), testp)
        for t in ("f32", "f64")
    ),
)
