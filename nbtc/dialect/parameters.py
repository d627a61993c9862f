"""Kernel parameters: how arguments lie in the parameter memory of a launch, and how a kernel finds them there.

An array is its address, then the extent of each dimension, then, unless it is contiguous, the distance in bytes from
element to element along each; 64 bits each.  A tuple is its items, a number itself (a bool one byte, a complex number
two).  Every parameter lies at a multiple of its size (PTX ISA 7.1, "Kernel Function Parameters").  A tensor map is its
128 bytes, at a multiple of 64, which stay where they are: the kernel knows their address.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.np.arrayobj import populate_array

from nbtc.dialect import words
from nbtc.errors import RangeError
from nbtc.executor.transfer.tensor_map import BYTES as MAP_BYTES

GLOBAL = 1  # the address space of device memory
MAP_ALIGN = 64  # bytes (CUDA driver API, "Tensor Map Object Management")
I64 = ir.IntType(64)
INTEGERS = {8: "b", 16: "h", 32: "i", 64: "q"}  # struct's codes by bits, signed; the unsigned ones are capital
FLOATS = {16: "e", 32: "f", 64: "d"}
MAP_CODE = f"{MAP_BYTES}s"


class TensorMapType(types.Opaque):  # type: ignore[misc]
    """A tensor map: kernels know its generic address."""


TENSOR_MAP = TensorMapType("nbtc.TensorMap")


class ParameterField(NamedTuple):
    """One PTX parameter: its name and LLVM type; by_value: what the type points to is passed, not its address."""

    name: str
    type: ir.Type
    by_value: bool = False


class KernelParameter(NamedTuple):
    """An argument as a kernel receives it: its fields, and what makes Numba's value of theirs."""

    fields: list[ParameterField]
    rebuild: Callable[[Any, Iterator[Any]], Any]


class ParameterPlace(NamedTuple):
    """Where an array lies: the address of its first element, extents, and steps in bytes."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


# --- in the kernel ---
def parameter(context: Any, name: str, kind: Any) -> KernelParameter:
    """How an argument of a type is passed."""
    for family, make in _FAMILIES.items():
        if isinstance(kind, family):
            return make(context, name, kind)
    words.refuse(f"argument {name} is {kind}: kernels take arrays, numbers, and tuples of them")


def _strided(kind: Any) -> bool:
    return kind.layout not in "CF"


def _array(context: Any, name: str, kind: Any) -> KernelParameter:
    found = [ParameterField(name, ir.PointerType(context.get_data_type(kind.dtype), GLOBAL))]
    found += [ParameterField(f"{name}_shape{n}", I64) for n in range(kind.ndim)]
    found += [ParameterField(f"{name}_stride{n}", I64) for n in range(kind.ndim) if _strided(kind)]

    def rebuild(builder: Any, given: Iterator[Any]) -> Any:
        array = context.make_array(kind)(context, builder)
        data = builder.addrspacecast(next(given), array.data.type)
        shape = [next(given) for _ in range(kind.ndim)]
        itemsize = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
        strides = [next(given) for _ in shape] if _strided(kind) else _contiguous(builder, shape, itemsize, kind.layout)
        populate_array(array, data=data, shape=shape, strides=strides, itemsize=itemsize, meminfo=None)
        return array._getvalue()

    return KernelParameter(found, rebuild)


def _contiguous(builder: Any, shape: list[Any], itemsize: Any, layout: str) -> list[Any]:
    """Steps of an array whose last ("C") or first ("F") dimension is the innermost."""
    inner = list(reversed(shape)) if layout == "C" else shape
    found = [itemsize]
    for extent in inner[:-1]:
        found.append(builder.mul(found[-1], extent))
    found = found[: len(shape)]
    return list(reversed(found)) if layout == "C" else found


def _tuple(context: Any, name: str, kind: Any) -> KernelParameter:
    items = [parameter(context, f"{name}_{n}", item) for n, item in enumerate(kind)]

    def rebuild(builder: Any, given: Iterator[Any]) -> Any:
        return context.make_tuple(builder, kind, [item.rebuild(builder, given) for item in items])

    return KernelParameter([f for item in items for f in item.fields], rebuild)


def _number(context: Any, name: str, kind: Any) -> KernelParameter:
    def rebuild(builder: Any, given: Iterator[Any]) -> Any:
        return context.data_model_manager[kind].from_data(builder, next(given))

    return KernelParameter([ParameterField(name, context.get_data_type(kind))], rebuild)


def _complex(context: Any, name: str, kind: Any) -> KernelParameter:
    part = context.get_data_type(kind.underlying_float)

    def rebuild(builder: Any, given: Iterator[Any]) -> Any:
        number = context.make_complex(builder, kind)
        number.real, number.imag = next(given), next(given)
        return number._getvalue()

    return KernelParameter([ParameterField(f"{name}_{what}", part) for what in ("real", "imag")], rebuild)


def _tensor_map(context: Any, name: str, kind: Any) -> KernelParameter:
    buffer = ir.PointerType(ir.ArrayType(ir.IntType(8), MAP_BYTES))

    def rebuild(builder: Any, given: Iterator[Any]) -> Any:
        argument = next(given)
        # the copy engine reads the map where the launch put it; LLVM would hand out the address of a copy
        place = f"{argument.parent.name}_param_{argument.parent.args.index(argument)}"
        [address] = words.inline(builder, f"mov.b64 $0, {place}; cvta.param.u64 $0, $0;", [I64], [], effect=False)
        return builder.inttoptr(address, context.get_value_type(kind))

    return KernelParameter([ParameterField(name, buffer, by_value=True)], rebuild)


_FAMILIES: dict[Any, Callable[[Any, str, Any], KernelParameter]] = {
    types.Array: _array,
    types.BaseTuple: _tuple,
    types.Complex: _complex,
    TensorMapType: _tensor_map,
    (types.Number, types.Boolean): _number,
}


# --- in Python ---
class ParameterPacking(NamedTuple):
    """An argument as a launch passes it: struct's codes of its fields, and what gives their values."""

    codes: tuple[str, ...]
    values: Callable[[Any], Sequence[Any]]


def packing(kind: Any) -> ParameterPacking:
    """The fields of an argument of a type, in the order of `parameter`."""
    if isinstance(kind, types.Array):
        extents = ("q",) * kind.ndim
        if _strided(kind):
            return ParameterPacking(("Q", *extents, *extents), lambda x: (x.address, *x.shape, *x.strides))
        return ParameterPacking(("Q", *extents), lambda x: (x.address, *x.shape))
    if isinstance(kind, types.BaseTuple):
        items = [packing(item) for item in kind]
        codes = tuple(code for item in items for code in item.codes)
        return ParameterPacking(
            codes, lambda x: [v for item, part in zip(items, x, strict=True) for v in item.values(part)]
        )
    if isinstance(kind, types.Complex):
        return ParameterPacking((FLOATS[kind.underlying_float.bitwidth],) * 2, lambda x: (x.real, x.imag))
    if isinstance(kind, types.Boolean):
        return ParameterPacking(("B",), lambda x: (bool(x),))
    if hasattr(kind, "fmt"):  # a format that struct does not know: its bits
        bits = np.dtype(f"u{kind.bitwidth // 8}")
        return ParameterPacking((INTEGERS[kind.bitwidth].upper(),), lambda x: (np.asarray(x).view(bits)[()],))
    if isinstance(kind, types.Float):
        return ParameterPacking((FLOATS[kind.bitwidth],), lambda x: (x,))
    if kind is TENSOR_MAP:
        return ParameterPacking((MAP_CODE,), lambda x: (x,))
    code = INTEGERS[kind.bitwidth]
    return ParameterPacking((code if kind.signed else code.upper(),), lambda x: (x,))


class ParameterPacker:
    """Python values to the bytes of a kernel's parameters."""

    def __init__(self, kinds: Sequence[Any]) -> None:
        packings = [packing(kind) for kind in kinds]
        codes, at = "<", 0
        for code in (code for p in packings for code in p.codes):
            size = struct.calcsize(f"<{code}")
            gap = -at % (MAP_ALIGN if code == MAP_CODE else size)
            codes += f"{gap}x{code}"
            at += gap + size
        self._struct = struct.Struct(codes)
        self._values = [p.values for p in packings]

    def fields(self, arguments: Sequence[Any]) -> list[Any]:
        """The value of each PTX parameter; an array comes as a `ParameterPlace`, or as something like one."""
        found: list[Any] = []
        for values, x in zip(self._values, arguments, strict=True):
            found += values(x)
        return found

    def __call__(self, arguments: Sequence[Any]) -> bytearray:
        """The bytes of all."""
        raw = bytearray(self._struct.size)
        try:
            self._struct.pack_into(raw, 0, *self.fields(arguments))
        except struct.error:
            raise RangeError(
                "a kernel's argument is a whole number beyond 64 bits: pass a float, or a smaller one"
            ) from None
        return raw
