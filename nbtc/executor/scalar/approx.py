"""Approximate functions (".approx" and ".full" forms): what PTX adds around the special function unit.

The unit takes subnormals for zeros (`kernels.special_functions`).  Forms without .ftz scale subnormal operands into its
range, and divisions multiply by its reciprocal; every product and sum here is an f32 operation rounded to nearest.  The
scalings are those that ptxas writes; results were recorded for every input (divisions: samples), see
`numerics.special_functions`.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import F64 as DOUBLE
from nbtc.compiler.builder import VectorBuilder, suffix
from nbtc.compiler.machine_code.split import shared_module
from nbtc.executor.emit.form import Emit, Form, Op, Slot, slots
from nbtc.executor.emit.values import const, is_negative, like, resize
from nbtc.executor.scalar import floats
from nbtc.executor.scalar.float_values import (
    KINDS,
    as_float,
    double_bits,
    float_bits,
    is_nan,
    magnitude_bits,
    to_number,
)
from nbtc.executor.scalar.floats import canonical
from nbtc.executor.scalar.half_precision import packed, single
from nbtc.executor.scalar.narrow import narrowed
from nbtc.kernels.special_functions import special_function
from nbtc.numerics.special_functions import SUMMARY

F32, F64 = KINDS["f32"], KINDS["f64"]
UP = 24  # exponents by which subnormal operands are scaled: all of them become normal
# what a result is multiplied by where its operand was scaled by 2**24
BACK = {"rsqrt": 2.0**12, "sqrt": 2.0**-12}
LARGE = 2.0**126  # reciprocals of what is larger are subnormal
UP_F64 = 54  # as UP; even, so that a root's result is scaled by 2**27


def unit(v: VectorBuilder, name: str, x: Any) -> Any:
    """A function of the unit on f32 words: a call, since its code is long and many programs have it."""
    module = shared_module(v.b.module)
    own = f"nbtc_unit_{name}_{suffix(x.type)}"
    function = module.globals.get(own)
    if function is None:
        function = ir.Function(module, ir.FunctionType(x.type, [x.type]), own)
        function.linkage = "internal"
        for attribute in ("noinline", "nounwind"):
            function.attributes.add(attribute)
        inner = VectorBuilder(None, ir.IRBuilder(function.append_basic_block("entry")), v.target)
        inner.b.ret(special_function(inner, name, function.args[0]))
    return v.b.call(function, [x])


def _magnitude(v: VectorBuilder, x: Any) -> Any:
    return as_float(v, magnitude_bits(v, F32, float_bits(v, x)))


def _scaled_operand(v: VectorBuilder, x: Any, *cases: tuple[str, float, float]) -> Any:
    """What x is multiplied by: the factor of the last case (comparison, bound, factor) that |x| meets, else 1."""
    size, factor = _magnitude(v, x), v.const(x.type, 1.0)
    for comparison, bound, times in cases:
        met = v.b.fcmp_ordered(comparison, size, v.const(x.type, bound))
        factor = v.b.select(met, v.const(x.type, times), factor)
    return factor


SUBNORMAL = ("<", 2.0**-126, 2.0**UP)


def _call(v: VectorBuilder, name: str, x: Any) -> Any:
    """The unit on floats."""
    return as_float(v, unit(v, name, float_bits(v, x)))


def _kept_subnormals(v: VectorBuilder, name: str, x: Any) -> Any:
    """A function of all f32, subnormal ones too."""
    if name in ("sin", "cos", "tanh"):
        return _call(v, name, x)
    if name == "ex2":
        low = v.b.fcmp_ordered("<", x, v.const(x.type, -126.0))
        half = _call(v, name, v.b.select(low, v.b.fmul(x, v.const(x.type, 0.5)), x))
        return v.b.select(low, v.b.fmul(half, half), half)
    factor = _scaled_operand(v, x, SUBNORMAL)
    found = _call(v, name, v.b.fmul(x, factor))
    tiny = v.b.fcmp_ordered("!=", factor, v.const(x.type, 1.0))
    if name == "lg2":
        return v.b.select(tiny, v.b.fsub(found, v.const(x.type, float(UP))), found)
    return v.b.select(tiny, v.b.fmul(found, v.const(x.type, BACK[name])), found)


def approximate(v: VectorBuilder, op: Op, x: Any) -> Any:
    """A function of one f32; .ftz is the unit as it is."""
    if op.has("ftz"):
        return unit(v, op.opcode, x)
    if op.opcode == "rcp":
        return floats.arithmetic(v, Op("mul", ("f32",)), scale(v, op, x), scaled(v, op, x))
    return canonical(v, "f32", float_bits(v, _kept_subnormals(v, op.opcode, as_float(v, x))))


def _divisor_factor(v: VectorBuilder, op: Op, b: Any) -> Any | None:
    """What both operands of a division are multiplied by, so that the reciprocal is not lost; None for nothing.

    .approx keeps large divisors as they are.
    """
    cases = [] if op.has("ftz") else [SUBNORMAL]
    if op.has("full"):
        cases.append((">" if op.has("ftz") else ">=", LARGE, 0.25))
    return _scaled_operand(v, as_float(v, b), *cases) if cases else None


def _times(v: VectorBuilder, x: Any, factor: Any | None) -> Any:
    return x if factor is None else float_bits(v, v.b.fmul(as_float(v, x), factor))


def dividend(v: VectorBuilder, op: Op, a: Any, b: Any) -> Any:
    """The first factor of a quotient."""
    return _times(v, a, _divisor_factor(v, op, b))


def reciprocal(v: VectorBuilder, op: Op, b: Any) -> Any:
    """The second."""
    return unit(v, "rcp", _times(v, b, _divisor_factor(v, op, b)))


def divide(v: VectorBuilder, op: Op, a: Any, b: Any) -> Any:
    """a times the reciprocal of b: of one number where all lanes share b, as where a row is divided by its sum."""
    multiply = Op("mul", ("ftz", "f32") if op.has("ftz") else ("f32",))
    factor, inverse = _divisor_factor(v, op, b), reciprocal(v, op, b)
    shares = [isinstance(x.type, ir.VectorType) for x in (a, b)]
    if shares == [True, False]:
        inverse = v.splat(inverse, a.type.count)
        factor = factor if factor is None else v.splat(factor, a.type.count)
    elif shares == [False, True]:
        a = v.splat(a, b.type.count)
    return floats.arithmetic(v, multiply, _times(v, a, factor), inverse)


def scale(v: VectorBuilder, op: Op, x: Any) -> Any:
    """What rcp.approx multiplies its operand by, and the result: its two factors are this and `scaled`."""
    return float_bits(v, _scaled_operand(v, as_float(v, x), SUBNORMAL, (">=", LARGE, 0.25)))


def scaled(v: VectorBuilder, op: Op, x: Any) -> Any:
    """The reciprocal of what `scale` makes of x."""
    return unit(v, "rcp", _times(v, x, as_float(v, scale(v, op, x))))


def half_precision_function(v: VectorBuilder, op: Op, name: str, a: Any) -> Any:
    """ex2, tanh of f16 and bf16: that of the f32, cut; an f16 overflows at 2**16."""
    word = unit(v, op.opcode, float_bits(v, to_number(v, name, a)))
    if name == "f16":
        over = v.b.icmp_signed(">=", word, const(v, word, 127 + 16 << F32.fraction))
        word = v.b.select(v.b.and_(over, v.b.not_(is_nan(v, F32, word))), const(v, word, F32.infinity), word)
    return narrowed(v, "f32", name, "rz", word)


def _upper(v: VectorBuilder, x: Any) -> Any:
    """The upper word of a double."""
    return resize(v, v.b.lshr(x, const(v, x, 32)), 32)


def _seed(v: VectorBuilder, name: str, x: Any) -> Any:
    """rcp, rsqrt of a double's sign, exponent and 20 upper bits of its fraction, as many bits of the result.

    The unit gets a number from 1/2 to 2 of that fraction, and the result's exponent is moved: subnormals are zeros.
    """
    b = v.b
    x = b.and_(x, const(v, x, -1 << 32))  # a NaN that only its lower word tells from an infinity is taken for one
    word = _upper(v, x)
    exponent = b.and_(b.lshr(word, const(v, word, 20)), const(v, word, (1 << 11) - 1))
    unbiased = b.sub(exponent, const(v, exponent, F64.bias))
    if name == "rsqrt":
        left = b.and_(unbiased, const(v, exponent, 1))
        moved = b.neg(b.ashr(unbiased, const(v, exponent, 1)))
    else:
        left, moved = const(v, exponent, 0), b.neg(unbiased)
    fraction = b.shl(b.and_(word, const(v, word, (1 << 20) - 1)), const(v, word, F32.fraction - 20))
    field = b.shl(b.add(left, const(v, left, F32.bias)), const(v, left, F32.fraction))
    found = unit(v, name, b.or_(b.and_(word, const(v, word, 1 << 31)), b.or_(field, fraction)))
    wide = double_bits(v, b.fpext(as_float(v, found), like(x, DOUBLE)))
    kept = b.and_(wide, const(v, x, -1 << 32))
    result = b.add(kept, b.shl(resize(v, moved, 64, signed=True), const(v, x, F64.fraction)))
    # an exponent that is none: zero with the sign
    end = b.add(resize(v, b.and_(b.lshr(kept, const(v, x, F64.fraction)), const(v, x, (1 << 11) - 1)), 32), moved)
    sign = b.and_(x, const(v, x, F64.sign))
    result = b.select(b.icmp_signed("<=", end, const(v, end, 0)), sign, result)
    return _specials(v, name, x, result)


def _specials(v: VectorBuilder, name: str, x: Any, result: Any) -> Any:
    """A double's result where the operand is zero, negative (a root), infinite or no number."""
    b, size = v.b, magnitude_bits(v, F64, x)
    sign = b.and_(x, const(v, x, F64.sign))
    nan = const(v, x, F32.nan << 32)
    if name == "rsqrt":
        result = b.select(is_negative(v, x), nan, result)
    result = b.select(b.icmp_unsigned("==", size, const(v, size, F64.infinity)), sign, result)
    if name == "rsqrt":
        result = b.select(b.icmp_unsigned("==", x, const(v, x, F64.sign | F64.infinity)), nan, result)
    zero = b.icmp_unsigned("<", size, const(v, size, F64.least_normal))
    result = b.select(zero, b.or_(sign, const(v, x, F64.infinity)), result)
    return b.select(is_nan(v, F64, x), nan, result)


def upper_word(v: VectorBuilder, op: Op, a: Any) -> Any:
    """rcp, rsqrt .approx.ftz.f64: from the upper word of a double to one whose lower word is zero, cut."""
    return _seed(v, op.opcode, a)


def full_rsqrt(v: VectorBuilder, op: Op, a: Any) -> Any:
    """rsqrt.approx.f64, subnormals kept: the seed r and one step, r + (1/2 + 3/8 e) r e with e = 1 - x r r."""
    b = v.b
    tiny = b.icmp_unsigned("<", magnitude_bits(v, F64, a), const(v, a, F64.least_normal))
    number = as_float(v, a)
    t = number.type
    x = b.select(tiny, b.fmul(number, v.const(t, 2.0**UP_F64)), number)
    r = as_float(v, _seed(v, "rsqrt", double_bits(v, x)))
    e = v.fma(x, b.fneg(b.fmul(r, r)), v.const(t, 1.0))
    found = v.fma(v.fma(e, v.const(t, 0.375), v.const(t, 0.5)), b.fmul(r, e), r)
    found = b.select(tiny, b.fmul(found, v.const(t, 2.0 ** (UP_F64 // 2))), found)
    bits = double_bits(v, found)
    size = magnitude_bits(v, F64, a)
    sign = b.and_(a, const(v, a, F64.sign))
    negative = b.and_(is_negative(v, a), b.icmp_unsigned("!=", size, const(v, a, 0)))
    bits = b.select(negative, const(v, a, F64.nan), bits)
    bits = b.select(b.icmp_unsigned("==", size, const(v, a, 0)), b.or_(sign, const(v, a, F64.infinity)), bits)
    bits = b.select(b.icmp_unsigned("==", a, const(v, a, F64.infinity)), const(v, a, 0), bits)
    return b.select(is_nan(v, F64, a), b.or_(a, const(v, a, F64.quiet)), bits)


def _rows() -> list[Form]:
    one, two = ("f32",), ("f32", "f32")
    names = ("rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos")
    rows = [_row(n, slots("approx", "ftz?", "f32"), one, approximate) for n in names]
    rows.append(_row("tanh", slots("approx", "f32"), one, approximate))
    rows.append(_row("div", slots("approx|full", "ftz?", "f32"), two, divide)._replace(mixed=True))
    rows += [_row(n, slots("approx", "ftz", "f64"), ("f64",), upper_word) for n in ("rcp", "rsqrt")]
    rows.append(_row("rsqrt", slots("approx", "f64"), ("f64",), full_rsqrt))
    return rows


def _row(opcode: str, modifiers: tuple[Slot, ...], sources: tuple[str, ...], emit: Emit) -> Form:
    return Form(opcode, modifiers, sources, sources[:1], emit, evidence=SUMMARY)


def _half_precision_rows() -> list[Form]:
    rows = []
    for opcode, name, ftz in (("ex2", "f16", ()), ("ex2", "bf16", ("ftz",)), ("tanh", "f16", ()), ("tanh", "bf16", ())):
        for t, make in ((name, single), (f"{name}x2", packed)):
            rows.append(_row(opcode, slots("approx", *ftz, t), (t,), make(half_precision_function)))
    return rows


FORMS = (*_rows(), *_half_precision_rows())
MNEMONICS = {".".join((f.opcode, *filter(None, choice))): f for f in FORMS for choice in product(*f.slots)}

# What `kernel.contract` makes of quotients and reciprocals whose last product joins a sum; no text can spell them.
_QUOTIENT = slots("approx|full", "ftz?", "f32")
FACTORS = (
    _row("div%dividend", _QUOTIENT, ("f32", "f32"), dividend),
    _row("div%reciprocal", _QUOTIENT, ("f32",), reciprocal),
    _row("rcp%scale", slots("approx", "f32"), ("f32",), scale),
    _row("rcp%scaled", slots("approx", "f32"), ("f32",), scaled),
)
