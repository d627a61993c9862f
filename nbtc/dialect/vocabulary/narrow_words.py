"""Conversions and arithmetic of f16, bf16 and fp8 in kernels (PTX ISA 9.7.4 and 9.7.9, `cvt`).

f16 and bf16 operations round once, to nearest even, and their NaN is the canonical one, as on the hardware.  fp8 is
converted, saturating, never computed with: no hardware does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.typing import signature
from numba.core.typing.templates import AbstractTemplate

from nbtc.dialect import target, words
from nbtc.dialect.narrow import BF16, DOUBLE, E4M3, E5M2, FLOAT, TYPES, NarrowFloat, NarrowInteger, type_of
from nbtc.formats.table import Format

I8, I16, I32 = ir.IntType(8), ir.IntType(16), ir.IntType(32)
F16 = types.float16
HALF_BITS = 16  # of a bf16, the upper half of the float32 of the same value
SIGN = 1 << 15  # of a 16-bit float
FP8 = {E4M3: "e4m3", E5M2: "e5m2"}

# operator -> LLVM's operation on floats
ARITHMETIC = {
    operator.add: "fadd",
    operator.sub: "fsub",
    operator.mul: "fmul",
    operator.truediv: "fdiv",
    operator.iadd: "fadd",
    operator.isub: "fsub",
    operator.imul: "fmul",
    operator.itruediv: "fdiv",
}
COMPARISONS = {
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
    operator.eq: "==",
    operator.ne: "!=",
}
UNARY: tuple[Any, ...] = (operator.neg, operator.pos, abs)


# --- conversions ---
def to_float(builder: Any, kind: NarrowFloat, value: Any) -> Any:
    """The float32 of the same value."""
    if kind == BF16:
        raised = builder.shl(builder.zext(value, I32), ir.Constant(I32, HALF_BITS))
        return builder.bitcast(raised, FLOAT)
    if kind in FP8:
        text = f"cvt.rn.f16x2.{FP8[kind]}x2 $0, $1;"
        [pair] = words.inline(builder, text, [I32], [builder.zext(value, I16)], effect=False)
        return builder.fpext(builder.bitcast(builder.trunc(pair, I16), ir.HalfType()), FLOAT)
    words.refuse(f"{kind.fmt.name} elements are bits to a kernel: x.view(np.uint8) moves them; convert them outside")


def from_float(builder: Any, kind: NarrowFloat, value: Any) -> Any:
    """A float32 rounded to nearest even; out of fp8's range, its largest number."""
    if kind == BF16:
        return words.inline(builder, "cvt.rn.bf16.f32 $0, $1;", [I16], [value], effect=False)[0]
    if kind in FP8:
        text = f"cvt.rn.satfinite.{FP8[kind]}x2.f32 $0, $1, $2;"
        [pair] = words.inline(builder, text, [I16], [ir.Constant(FLOAT, 0.0), value], effect=False)
        return builder.trunc(pair, I8)
    words.refuse(f"{kind.fmt.name} elements are bits to a kernel: x.view(np.uint8) moves them; convert them outside")


@target.lowering_registry.lower_cast(NarrowFloat, types.Float)
@target.lowering_registry.lower_cast(NarrowFloat, types.Integer)
def _from_narrow(context: Any, builder: Any, kind: Any, wanted: Any, value: Any) -> Any:
    return context.cast(builder, to_float(builder, kind, value), types.float32, wanted)


@target.lowering_registry.lower_cast(NarrowFloat, types.Boolean)
def _narrow_to_bool(context: Any, builder: Any, kind: Any, wanted: Any, value: Any) -> Any:
    return builder.fcmp_unordered("!=", to_float(builder, kind, value), ir.Constant(FLOAT, 0.0))


@target.lowering_registry.lower_cast(types.Float, NarrowFloat)
@target.lowering_registry.lower_cast(types.Integer, NarrowFloat)
@target.lowering_registry.lower_cast(types.Boolean, NarrowFloat)
def _to_narrow(context: Any, builder: Any, kind: Any, wanted: Any, value: Any) -> Any:
    return from_float(builder, wanted, _odd_float(context, builder, kind, value))


def _odd_float(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """A number as float32; one that float32 lacks as its neighbour with an odd last bit, which rounds further as the
    number itself would."""
    if not isinstance(kind, types.Boolean) and kind.bitwidth > types.float32.bitwidth - isinstance(kind, types.Integer):
        if isinstance(kind, types.Integer):
            letter = "s" if kind.signed else "u"
            value = context.cast(builder, value, kind, types.int64 if kind.signed else types.uint64)
            value = _odd(builder, value, DOUBLE, (f"cvt.rz.f64.{letter}64", f"cvt.rzi.{letter}64.f64"))
        return _odd(builder, value, FLOAT, ("cvt.rz.f32.f64", "cvt.f64.f32"))
    return context.cast(builder, value, kind, types.float32)


def _odd(builder: Any, value: Any, wanted: Any, there_and_back: tuple[str, str]) -> Any:
    """A conversion toward zero; its last bit is set where it lost something."""
    there, back = there_and_back
    [found] = words.inline(builder, f"{there} $0, $1;", [wanted], [value], effect=False)
    [again] = words.inline(builder, f"{back} $0, $1;", [value.type], [found], effect=False)
    integer = isinstance(value.type, ir.IntType)
    lost = builder.icmp_signed("!=", again, value) if integer else builder.fcmp_ordered("!=", again, value)
    bits = ir.IntType(64 if wanted == DOUBLE else 32)
    return builder.bitcast(builder.or_(builder.bitcast(found, bits), builder.zext(lost, bits)), wanted)


@target.lowering_registry.lower_cast(NarrowFloat, NarrowFloat)
def _between_narrow(context: Any, builder: Any, kind: Any, wanted: Any, value: Any) -> Any:
    return value if kind == wanted else from_float(builder, wanted, to_float(builder, kind, value))


@target.lowering_registry.lower_cast(NarrowInteger, types.Number)
@target.lowering_registry.lower_cast(NarrowInteger, types.Boolean)
def _from_nibble(context: Any, builder: Any, kind: Any, wanted: Any, value: Any) -> Any:
    return context.cast(builder, value, types.int8 if kind.signed else types.uint8, wanted)


@target.lowering_registry.lower_cast(types.Float, NarrowInteger)
@target.lowering_registry.lower_cast(types.Integer, NarrowInteger)
@target.lowering_registry.lower_cast(types.Boolean, NarrowInteger)
@target.lowering_registry.lower_cast(NarrowInteger, NarrowInteger)
def _to_nibble(context: Any, builder: Any, kind: Any, wanted: Any, value: Any) -> Any:
    byte = value if isinstance(kind, NarrowInteger) else context.cast(builder, value, kind, types.int8)
    model = context.data_model_manager[wanted]
    return model.from_data(builder, model.as_data(builder, byte))


# --- operators ---
def _template(function: Any, arity: int, typed: Callable[[Any], Any]) -> None:
    """Type an operator on numbers of one format; before Numba's own, which would make float32 of them."""

    class Narrow(AbstractTemplate):  # type: ignore[misc]
        key = function
        metadata = {"target": target.NAME}  # noqa: RUF012

        def generic(self, args: Any, kws: Any) -> Any:
            if kws or len(args) != arity:
                return None
            for kind in args:
                if isinstance(kind, NarrowFloat) and kind != BF16:
                    name = getattr(function, "__name__", function)
                    words.refuse(f"{name} of {kind.fmt.name}: no hardware computes with it; convert, np.float32(x)")
            if all(a == args[0] for a in args):
                return signature(typed(args[0]), *args) if args[0] in (F16, BF16) else None
            if BF16 not in args or not all(isinstance(a, types.Number | types.Boolean) for a in args):
                return None
            # Numba's rules ask NumPy, which has no character for bf16: it counts as the float32 of the same value
            wide = [types.float32 if a == BF16 else types.unliteral(a) for a in args]
            return self.context.resolve_function_type(function, wide, {})

    target.typing_registry.register_global(function)(Narrow)


def _arithmetic(function: Any, operation: str) -> None:
    @target.lowering_registry.lower(function, F16, F16)
    def of_f16(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return getattr(builder, operation)(*args)

    @target.lowering_registry.lower(function, BF16, BF16)
    def of_bf16(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return from_float(builder, BF16, getattr(builder, operation)(*(to_float(builder, BF16, a) for a in args)))


def _comparison(function: Any, relation: str) -> None:
    # a NaN is unequal to everything, itself too, and in no other relation
    compare = "fcmp_unordered" if relation == "!=" else "fcmp_ordered"

    @target.lowering_registry.lower(function, F16, F16)
    def of_f16(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return getattr(builder, compare)(relation, *args)

    @target.lowering_registry.lower(function, BF16, BF16)
    def of_bf16(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return getattr(builder, compare)(relation, *(to_float(builder, BF16, a) for a in args))


def _unary(function: Any) -> None:
    """The sign bit alone changes."""

    def of(kind: Any) -> None:
        @target.lowering_registry.lower(function, kind)
        def signed(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            bits = builder.bitcast(args[0], I16)
            if function is operator.neg:
                bits = builder.xor(bits, ir.Constant(I16, SIGN))
            elif function is abs:
                bits = builder.and_(bits, ir.Constant(I16, SIGN - 1))
            return builder.bitcast(bits, args[0].type)

    of(F16)
    of(BF16)


for _function, _operation in ARITHMETIC.items():
    _template(_function, 2, lambda kind: kind)
    _arithmetic(_function, _operation)
for _function, _relation in COMPARISONS.items():
    _template(_function, 2, lambda kind: types.boolean)
    _comparison(_function, _relation)
for _changes_sign in UNARY:
    _template(_changes_sign, 1, lambda kind: kind)
    _unary(_changes_sign)


def _python_number(function: Any, result: Any) -> None:
    """`float(x)` and `int(x)`."""

    class Narrow(AbstractTemplate):  # type: ignore[misc]
        key = function
        metadata = {"target": target.NAME}  # noqa: RUF012

        def generic(self, args: Any, kws: Any) -> Any:
            narrow = len(args) == 1 and (args[0] == F16 or isinstance(args[0], NarrowFloat | NarrowInteger))
            return signature(result, *args) if narrow else None

    target.typing_registry.register_global(function)(Narrow)
    for kind in (types.Float, NarrowInteger):

        @target.lowering_registry.lower(function, kind)
        def converted(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return context.cast(builder, args[0], sig.args[0], sig.return_type)


_python_number(float, types.float64)
_python_number(int, types.int64)


# --- formats and their scalar classes as constants ---
def _class(x: Any) -> Any:
    """A format or a class of narrow scalars, as a class that converts and that names elements."""
    kind = TYPES[x.name] if isinstance(x, Format) else type_of(x) if isinstance(x, type) else None
    return None if kind is None else target.Typed(types.NumberClass(kind))


target.values.append(_class)


@target.lowering_registry.lower_constant(types.NumberClass)
def _no_value(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return context.get_dummy_value()
