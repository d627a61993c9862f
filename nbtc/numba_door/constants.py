"""Objects that compiled code sees as constants: formats, the enumerations of wmma, operands of instructions.

Numba forgets which member of an enumeration it has, and knows no other objects.  Here each object is a type of its own,
so that a function is compiled for it; nothing is left of it in machine code.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numba.core import types
from numba.core.imputils import lower_constant
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import (
    NativeValue,
    box,
    lower_getattr_generic,
    models,
    overload_attribute,
    register_model,
    typeof_impl,
    unbox,
)

from nbtc.errors import CompilerError
from nbtc.formats.table import FORMATS, Format
from nbtc.isa.wmma_names import AccumulateOp, BitOp, MatrixLayout, MemoryLayout, Namespace, Use


class ConstantType(types.Opaque):  # type: ignore[misc, unused-ignore]
    """The type of one object."""

    def __init__(self, value: Any) -> None:
        self.value = value
        super().__init__(f"{type(value).__name__}({value})")


def hold_constants(kind: type) -> None:
    """Let values of a type, whose `value` is the object, be constants, arguments and results of compiled functions."""
    register_model(kind)(models.OpaqueModel)

    @lower_constant(kind)  # type: ignore[untyped-decorator, unused-ignore]
    def constant(context: Any, builder: Any, typ: Any, value: Any) -> Any:
        return context.get_dummy_value()

    @unbox(kind)  # type: ignore[untyped-decorator, unused-ignore]
    def argument(typ: Any, value: Any, c: Any) -> Any:
        return NativeValue(c.context.get_dummy_value())

    @box(kind)  # type: ignore[untyped-decorator, unused-ignore]
    def result(typ: Any, value: Any, c: Any) -> Any:
        return c.pyapi.unserialize(c.pyapi.serialize_object(typ.value))


hold_constants(ConstantType)


def _typeof(value: Any, _: Any) -> ConstantType:
    return ConstantType(value)


class NamespaceType(ConstantType):
    """The type of a class that only holds other constants, such as `wmma.precision`."""


hold_constants(NamespaceType)


typeof_impl.register(Namespace)(lambda value, _: NamespaceType(value))


@infer_getattr
class _Names(AttributeTemplate):  # type: ignore[misc, unused-ignore]
    key = NamespaceType

    def generic_resolve(self, kind: NamespaceType, name: str) -> Any:
        """The type of what is called `name` there."""
        return self.context.resolve_value_type(getattr(kind.value, name)) if hasattr(kind.value, name) else None


@lower_getattr_generic(NamespaceType)  # type: ignore[untyped-decorator, unused-ignore]
def _named(context: Any, builder: Any, kind: Any, value: Any, name: str) -> Any:
    return context.get_dummy_value()


KINDS = (Format, Use, MatrixLayout, MemoryLayout, BitOp, AccumulateOp)  # whose members are constants
for _kind in KINDS:
    typeof_impl.register(_kind)(_typeof)


def constant_of(x: Any) -> Any:
    """The object of a `ConstantType`, the value of a literal or default; any other type as it is.

    A NumPy scalar class becomes its dtype.
    """
    if isinstance(x, ConstantType):
        return x.value
    if isinstance(x, types.Omitted):
        return x.value
    if isinstance(x, types.Literal):
        return x.literal_value
    if isinstance(x, types.NoneType):
        return None
    if isinstance(x, types.NumberClass):
        return str(x.dtype)
    if isinstance(x, types.BaseTuple):
        return tuple(constant_of(t) for t in x)
    return x


def literal(x: Any, kind: type | tuple[type, ...], label: str, example: str) -> Any:
    """The compile-time value of an argument, or an error that names it."""
    found = constant_of(x)
    if not isinstance(found, kind):
        raise CompilerError(
            f"{label} must be known when a function is compiled, so write it out there, as in {example}; it is {found}"
        )
    return found


def add_attributes(kind: type, names: Iterable[str]) -> None:
    """Let compiled code read attributes of a type's `value`."""
    for name in names:
        _add(kind, name)


def _add(kind: type, name: str) -> None:
    @overload_attribute(kind, name)
    def attribute(thing):
        value = getattr(thing.value, name)
        return lambda thing: value


def format_named(x: Any) -> Any:
    """What a type of compiled code says about a format: a `Format`, its name or a NumPy class."""
    found = constant_of(x)
    return FORMATS.get(found, found) if isinstance(found, str) else found
