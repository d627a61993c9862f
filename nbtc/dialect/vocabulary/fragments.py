"""Fragments in kernels: a thread's own registers of a tile, in local memory that LLVM turns into registers.

A fragment is a variable, as in CUDA C++: functions that get it change it.  So its value is its registers' address.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import models, register_model
from numba.np.arrayobj import populate_array

from nbtc.dialect import target, words
from nbtc.dialect.narrow import TYPES
from nbtc.dialect.vocabulary import rows
from nbtc.formats.table import FORMATS
from nbtc.isa.wmma_names import Use
from nbtc.numba_door.constants import ConstantType
from nbtc.numba_door.fragment import EXAMPLE, FragmentKind

ALIGN = 16  # bytes


class LocalFragmentType(types.Type):  # type: ignore[misc]
    """A fragment of a tile."""

    def __init__(self, tile: FragmentKind) -> None:
        self.tile = tile
        super().__init__(f"kernel {tile}")

    @property
    def element(self) -> Any:
        """The type of an item of `x`."""
        fmt = self.tile.format
        if fmt.packed:
            return types.int32 if fmt.signed else types.uint32
        return TYPES[fmt.name]


@register_model(LocalFragmentType)
class _FragmentAddress(models.OpaqueModel):  # type: ignore[misc]
    """The address of the registers."""


def tile_of(kind: Any, name: str, use: Use | None = None) -> FragmentKind:
    """The tile of an argument that has to be a fragment (of a use); refuses others."""
    if not isinstance(kind, LocalFragmentType) or (use is not None and kind.tile.use is not use):
        wanted = "a fragment" if use is None else f"a fragment that is a {use.name}"
        words.refuse(f"{name} works on {wanted}, not on {getattr(kind, 'tile', kind)}: make one with {EXAMPLE}")
    return kind.tile


_FORMATS = {kind: FORMATS[name] for name, kind in reversed(TYPES.items())}  # the first of those that share a type


def format_of(kind: Any) -> Any:
    """What a kernel says for a format, as other calls' fragments get it."""
    found = _FORMATS.get(kind.dtype) if isinstance(kind, types.DTypeSpec) else None
    return kind if found is None else ConstantType(found)


def made(builder: Any, tile: FragmentKind) -> Any:
    """Memory of a fragment, on the stack."""
    operand = tile.operand
    buffer = cgutils.alloca_once(builder, ir.ArrayType(rows.register_type(operand), rows.count(operand)))
    buffer.align = ALIGN
    return builder.bitcast(buffer, ir.IntType(8).as_pointer())


def _slots(builder: Any, tile: FragmentKind, address: Any) -> list[Any]:
    operand = tile.operand
    first = builder.bitcast(address, rows.register_type(operand).as_pointer())
    return [builder.gep(first, [ir.Constant(ir.IntType(32), n)]) for n in range(rows.count(operand))]


def registers(builder: Any, tile: FragmentKind, address: Any) -> list[Any]:
    """The values of a fragment's registers."""
    return [builder.load(p) for p in _slots(builder, tile, address)]


def put(builder: Any, tile: FragmentKind, address: Any, values: Sequence[Any]) -> None:
    """New values for a fragment's registers."""
    for place, value in zip(_slots(builder, tile, address), values, strict=True):
        builder.store(value, place)


@target.typing_registry.register_attr
class _Attributes(AttributeTemplate):  # type: ignore[misc]
    key = LocalFragmentType

    def resolve_x(self, kind: LocalFragmentType) -> Any:
        """The elements: an array of the thread's own."""
        return types.Array(kind.element, 1, "C")

    def resolve_num_elements(self, kind: LocalFragmentType) -> Any:
        """Known when the kernel is compiled."""
        return types.IntegerLiteral(kind.tile.num_elements)

    def resolve_num_storage_elements(self, kind: LocalFragmentType) -> Any:
        """Known when the kernel is compiled."""
        return types.IntegerLiteral(kind.tile.num_storage_elements)


@target.lowering_registry.lower_getattr(LocalFragmentType, "x")
def _x(context: Any, builder: Any, kind: LocalFragmentType, value: Any) -> Any:
    array = context.make_array(types.Array(kind.element, 1, "C"))(context, builder)
    size = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.element)))
    shape = [context.get_constant(types.intp, kind.tile.num_storage_elements)]
    data = builder.bitcast(value, array.data.type)
    populate_array(array, data=data, shape=shape, strides=[size], itemsize=size, meminfo=None)
    return array._getvalue()


@target.lowering_registry.lower_getattr_generic(LocalFragmentType)
def _count(context: Any, builder: Any, kind: LocalFragmentType, value: Any, name: str) -> Any:
    return context.get_constant(types.intp, getattr(kind.tile, name))
