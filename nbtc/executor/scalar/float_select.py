"""min, max, abs, neg, copysign of f32, f64, f16 and bf16: no rounding, only bits (PTX ISA, "Floating Point" and
"Half Precision Floating Point Instructions").

abs and neg are additions of -0 to the hardware, so a NaN is what any sum makes of it, and its sign stays, also where an
instruction that uses the result has taken them in (`test_signs_of_nans`, an H200).
"""

from __future__ import annotations

from typing import Any

from nbtc.compiler.builder import VectorBuilder
from nbtc.executor.emit.form import Form, Op, slots
from nbtc.executor.emit.values import const, is_negative, order
from nbtc.executor.scalar.float_values import KINDS, FloatKind, as_float, float_bits, flush, is_nan, magnitude_bits


def _ordered(v: VectorBuilder, kind: FloatKind, x: Any) -> Any:
    """A signed integer that is ordered as the float is, -0 below +0; its own inverse."""
    return v.b.select(is_negative(v, x), v.b.xor(x, const(v, x, kind.sign - 1)), x)


def extreme(v: VectorBuilder, op: Op, name: str, *operands: Any) -> Any:
    """min, max: a NaN gives way to a number; with .NaN it is the result.  .xorsign: of magnitudes, with both signs."""
    kind = KINDS[name]
    x = [flush(v, kind, n) for n in operands] if op.has("ftz") else list(operands)
    sign = v.b.and_(v.b.xor(x[0], x[1]), const(v, x[0], kind.sign))
    if op.has("abs"):
        x = [magnitude_bits(v, kind, n) for n in x]
    found = x[0]
    for n in x[1:]:
        found = _of_two(v, op, kind, found, n)
    if op.has("xorsign"):
        signed = v.b.or_(found, sign)
        return v.b.select(is_nan(v, kind, found), found, signed)
    return found


def _single(v: VectorBuilder, op: Op, a: Any, b: Any) -> Any:
    """As `_of_two`, of f32: by comparisons of numbers, of which processors have both results in one instruction."""
    build, kind = v.b, KINDS["f32"]
    x, y = as_float(v, a), as_float(v, b)
    if op.has("NaN"):
        nan = build.fcmp_unordered("uno", x, y)
    else:  # a NaN takes the other's value; if that is one too, both have it
        x = build.select(build.fcmp_unordered("uno", x, x), y, x)
        y = build.select(build.fcmp_unordered("uno", y, y), x, y)
        nan = build.fcmp_unordered("uno", x, x)
    sign, join = (">", build.and_) if op.opcode == "max" else ("<", build.or_)
    # of equal values each comparison picks another one: zeros differ in their sign, which -0 has for min alone
    picked = [build.select(build.fcmp_ordered(sign, p, q), p, q) for p, q in ((x, y), (y, x))]
    return build.select(nan, const(v, a, kind.nan), join(*(float_bits(v, p) for p in picked)))


def _of_two(v: VectorBuilder, op: Op, kind: FloatKind, a: Any, b: Any) -> Any:
    if kind == KINDS["f32"]:
        return _single(v, op, a, b)
    picked = _ordered(v, kind, order(v, op.opcode, _ordered(v, kind, a), _ordered(v, kind, b), True))
    a_nan, b_nan = is_nan(v, kind, a), is_nan(v, kind, b)
    # of two NaNs f64 keeps the second's payload
    nan = v.b.or_(b, const(v, b, kind.quiet)) if kind == KINDS["f64"] else const(v, a, kind.nan)
    if op.has("NaN"):
        return v.b.select(v.b.or_(a_nan, b_nan), nan, picked)
    return v.b.select(a_nan, v.b.select(b_nan, nan, b), v.b.select(b_nan, a, picked))


def minmax(v: VectorBuilder, op: Op, *operands: Any) -> Any:
    """min, max of one value a register."""
    return extreme(v, op, op.types[-1], *operands)


def absolute(v: VectorBuilder, op: Op, a: Any) -> Any:
    """abs: the sign cleared, unless it is a NaN's."""
    kind = KINDS[op.types[-1]]
    return _number_or_nan(v, kind, a, magnitude_bits(v, kind, flush(v, kind, a) if op.has("ftz") else a))


def neg(v: VectorBuilder, op: Op, a: Any) -> Any:
    """neg: the sign turned, unless it is a NaN's."""
    kind = KINDS[op.types[-1]]
    turned = v.b.xor(flush(v, kind, a) if op.has("ftz") else a, const(v, a, kind.sign))
    return _number_or_nan(v, kind, a, turned)


def _number_or_nan(v: VectorBuilder, kind: FloatKind, a: Any, found: Any) -> Any:
    """found, or what arithmetic makes of a where that is a NaN: the canonical one (f32), or a itself, quiet (f64)."""
    nan = v.b.or_(a, const(v, a, kind.quiet)) if kind is KINDS["f64"] else const(v, a, kind.nan)
    return v.b.select(is_nan(v, kind, a), nan, found)


def copysign(v: VectorBuilder, op: Op, a: Any, b: Any) -> Any:
    """copysign: b with the sign of a."""
    kind = KINDS[op.types[-1]]
    return v.b.or_(magnitude_bits(v, kind, b), v.b.and_(a, const(v, a, kind.sign)))


FORMS = (
    *(
        Form(opcode, slots("ftz?", "NaN?", *signs, "f32"), ("f32",) * count, ("f32",), minmax, optional=count - 2)
        for opcode in ("min", "max")
        for signs, count in (((), 3), (("xorsign", "abs"), 2))
    ),
    *(Form(opcode, slots("ftz?", "NaN?", "abs", "f32"), ("f32",) * 3, ("f32",), minmax) for opcode in ("min", "max")),
    *(Form(opcode, slots("f64"), ("f64", "f64"), ("f64",), minmax) for opcode in ("min", "max")),
    *(Form("abs", slots(*ftz, t), (t,), (t,), absolute) for t, ftz in (("f32", ("ftz?",)), ("f64", ()))),
    *(Form("neg", slots(*ftz, t), (t,), (t,), neg) for t, ftz in (("f32", ("ftz?",)), ("f64", ()))),
    *(Form("copysign", slots(t), (t, t), (t,), copysign) for t in ("f32", "f64")),
)
