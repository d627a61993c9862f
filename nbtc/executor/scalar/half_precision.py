"""f16 and bf16 arithmetic, one value or two in a register (PTX ISA, "Half Precision Floating Point Instructions").

Sums and products are formed in f32, whose 24 bits are enough that rounding twice gives what rounding once would.  A
fused multiply-add rounds to odd there first, which keeps what the second rounding has to know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nbtc.compiler.builder import F64, VectorBuilder
from nbtc.executor.emit.form import Form, Op, slots
from nbtc.executor.emit.values import const, like, pieces
from nbtc.executor.scalar.float_select import extreme
from nbtc.executor.scalar.float_values import KINDS, PACKED, float_bits, flush, magnitude_bits, to_number
from nbtc.executor.scalar.floats import canonical, nearest, saturate
from nbtc.executor.scalar.narrow import narrowed, relu
from nbtc.executor.scalar.rounding import two_sum

LEAST_NORMAL_F16 = 127 - 14 << 23  # 2**-14, as f32 bits
HALF_UNIT = 1 << 24 - 11 - 1  # half a unit in the last place of f16's 11 digits, one binade below, in f32's 24
OUTSIDE = 0x7FF7  # what an H100's tensor copies fill f16 and bf16 with: the NaN that the ISA calls OOB-NaN
Arithmetic = Callable[..., Any]


def to_odd(v: VectorBuilder, found: Any, left: Any) -> Any:
    """A float rounded to nearest, as bits rounded to odd instead: toward what was left where the last bit is even."""
    bits = float_bits(v, found)
    same = v.b.icmp_signed(">=", v.b.xor(bits, float_bits(v, left)), const(v, bits, 0))
    step = v.b.select(same, const(v, bits, 1), const(v, bits, -1))
    even = v.b.icmp_unsigned("==", v.b.and_(bits, const(v, bits, 1)), const(v, bits, 0))
    inexact = v.b.fcmp_ordered("!=", left, v.const(left.type, 0.0))
    return v.b.select(v.b.and_(even, inexact), v.b.add(bits, step), bits)


def _fused(v: VectorBuilder, name: str, x: list[Any]) -> Any:
    """a * b + c as f32 bits, rounded to odd."""
    a, b, c = (to_number(v, name, n) for n in x)
    if name == "f16":  # the product of two f16 is an f32
        return to_odd(v, *two_sum(v, v.b.fmul(a, b), c))
    found = v.fma(a, b, c)
    wide = [v.b.fpext(n, like(n, F64)) for n in (a, b, c, found)]
    total, tail = two_sum(v, v.b.fmul(wide[0], wide[1]), wide[2])
    left = v.b.fadd(v.b.fsub(total, wide[3]), tail)
    # only whether it is above, below or zero matters, and an f32 must not lose that
    above = v.b.fcmp_ordered(">", left, v.const(left.type, 0.0))
    below = v.b.fcmp_ordered("<", left, v.const(left.type, 0.0))
    side = v.b.select(below, v.const(found.type, -1.0), v.const(found.type, 0.0))
    return to_odd(v, found, v.b.select(above, v.const(found.type, 1.0), side))


def arithmetic(v: VectorBuilder, op: Op, name: str, *operands: Any) -> Any:
    """add, sub, mul, fma."""
    kind = KINDS[name]
    x = [flush(v, kind, n) if op.has("ftz") else n for n in operands]
    if op.opcode == "fma":
        word = _fused(v, name, x)
    else:
        word = float_bits(v, nearest(v, op.opcode, [to_number(v, name, n) for n in x]))
    found = narrowed(v, "f32", name, "rn", word)
    if op.has("ftz"):  # tiny is what stays below the least normal number when rounded to as many digits
        tiny = v.b.icmp_unsigned(
            "<", magnitude_bits(v, KINDS["f32"], word), const(v, word, LEAST_NORMAL_F16 - HALF_UNIT)
        )
        found = v.b.select(tiny, v.b.and_(found, const(v, found, kind.sign)), found)
    if op.has("relu"):
        found = relu(v, kind, found)
    if op.has("oob"):
        found = v.b.select(_outside(v, kind, operands[:2]), const(v, found, 0), found)
    return saturate(v, name, found) if op.has("sat") else found


def _outside(v: VectorBuilder, kind: Any, factors: Sequence[Any]) -> Any:
    """Whether a factor is what tensor copies fill with outside of an array; the sum's third operand is not asked.

    Of either sign: an H100's results are in test_factors_from_outside_of_a_tensor.
    """
    a, b = (v.b.icmp_unsigned("==", magnitude_bits(v, kind, x), const(v, x, OUTSIDE)) for x in factors)
    return v.b.or_(a, b)


def sign_only(v: VectorBuilder, op: Op, name: str, a: Any) -> Any:
    """abs, neg; unlike those of f32 they make a NaN canonical."""
    kind = KINDS[name]
    x = flush(v, kind, a) if op.has("ftz") else a
    return canonical(v, name, magnitude_bits(v, kind, x) if op.opcode == "abs" else v.b.xor(x, const(v, x, kind.sign)))


def single(emit: Arithmetic) -> Callable[..., Any]:
    """The emitter of a form with one value a register."""

    def emit_one(v: VectorBuilder, op: Op, *operands: Any) -> Any:
        return emit(v, op, op.types[-1], *operands)

    return emit_one


def packed(emit: Arithmetic) -> Callable[..., Any]:
    """The emitter of a form with two values a register: twice the lanes of half the width."""

    def emit_both(v: VectorBuilder, op: Op, *operands: Any) -> Any:
        found = emit(v, op, PACKED[op.types[-1]], *(pieces(v, x, 16) for x in operands))
        return v.b.bitcast(found, operands[0].type)

    return emit_both


def rows(opcode: str, modifiers: tuple[str, ...], name: str, count: int, emit: Arithmetic) -> tuple[Form, ...]:
    """A row for one value and one for two."""
    two = f"{name}x2"
    return (
        Form(opcode, slots(*modifiers, name), (name,) * count, (name,), single(emit)),
        Form(opcode, slots(*modifiers, two), (two,) * count, (two,), packed(emit)),
    )


MODIFIERS = (
    *((opcode, ("rn?", "ftz?", "sat?"), "f16", 2) for opcode in ("add", "sub", "mul")),
    *((opcode, ("rn?",), "bf16", 2) for opcode in ("add", "sub", "mul")),
    ("fma", ("rn", "ftz?", "sat?"), "f16", 3),
    ("fma", ("rn", "ftz?", "relu"), "f16", 3),
    ("fma", ("rn", "relu?"), "bf16", 3),
    *(("fma", ("rn", "oob", "relu?"), name, 3) for name in ("f16", "bf16")),
)
SIGNS = (*((n, ("ftz?",), "f16", 1) for n in ("abs", "neg")), *((n, (), "bf16", 1) for n in ("abs", "neg")))
EXTREMES = tuple(
    (opcode, (*ftz, "NaN?", *signs), name, 2)
    for opcode in ("min", "max")
    for name, ftz in (("f16", ("ftz?",)), ("bf16", ()))
    for signs in ((), ("xorsign", "abs"))
)
FORMS = (
    *(row for spec in MODIFIERS for row in rows(*spec, arithmetic)),
    *(row for spec in SIGNS for row in rows(*spec, sign_only)),
    *(row for spec in EXTREMES for row in rows(*spec, extreme)),
)
