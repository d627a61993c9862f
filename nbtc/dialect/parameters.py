"""Kernel parameters: how arguments lie in the parameter memory of a launch, and how a kernel finds them there.

An array is its address, then the extent of each dimension, then, unless it is contiguous, the distance in bytes from
element to element along each; 64 bits each.  A tuple is its items, a number itself (a bool one byte, a complex number
two).  Every parameter lies at a multiple of its size (PTX ISA 7.1, "Kernel Function Parameters").
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import types
from numba.np.arrayobj import populate_array

from nbtc.dialect import words

GLOBAL = 1  # the address space of device memory
I64 = ir.IntType(64)
SIGNED = {"i8": "b", "i16": "h", "i32": "i", "i64": "q", "half": "H", "float": "f", "double": "d"}
UNSIGNED = {**SIGNED, "i8": "B", "i16": "H", "i32": "I", "i64": "Q"}


class Field(NamedTuple):
    """One PTX parameter: its name, LLVM type, and struct's code of its value."""

    name: str
    type: ir.Type
    code: str


class Parameter(NamedTuple):
    """An argument of a kernel: its fields, what makes their values Numba's, and what gives them for a Python value."""

    fields: list[Field]
    rebuild: Callable[[Any, Iterator[Any]], Any]
    values: Callable[[Any], Sequence[Any]]


class Place(NamedTuple):
    """Where an array lies: the address of its first element, extents, and steps in bytes."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def parameter(context: Any, name: str, kind: Any) -> Parameter:
    """How an argument of a type is passed."""
    for family, make in _FAMILIES.items():
        if isinstance(kind, family):
            return make(context, name, kind)
    words.refuse(f"argument {name} is {kind}: kernels take arrays, numbers, and tuples of them")


def _array(context: Any, name: str, kind: Any) -> Parameter:
    strided = kind.layout not in "CF"
    found = [Field(name, ir.PointerType(context.get_data_type(kind.dtype), GLOBAL), "Q")]
    found += [Field(f"{name}_shape{n}", I64, "q") for n in range(kind.ndim)]
    found += [Field(f"{name}_stride{n}", I64, "q") for n in range(kind.ndim) if strided]

    def rebuild(builder: Any, given: Iterator[Any]) -> Any:
        array = context.make_array(kind)(context, builder)
        data = builder.addrspacecast(next(given), array.data.type)
        shape = [next(given) for _ in range(kind.ndim)]
        itemsize = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
        strides = [next(given) for _ in shape] if strided else _contiguous(builder, shape, itemsize, kind.layout)
        populate_array(array, data=data, shape=shape, strides=strides, itemsize=itemsize, meminfo=None)
        return array._getvalue()

    return Parameter(found, rebuild, (lambda x: (x.address, *x.shape, *x.strides)) if strided else _address_and_shape)


def _address_and_shape(x: Place) -> Sequence[int]:
    return (x.address, *x.shape)


def _contiguous(builder: Any, shape: list[Any], itemsize: Any, layout: str) -> list[Any]:
    """Steps of an array whose last ("C") or first ("F") dimension is the innermost."""
    inner = list(reversed(shape)) if layout == "C" else shape
    found = [itemsize]
    for extent in inner[:-1]:
        found.append(builder.mul(found[-1], extent))
    found = found[: len(shape)]
    return list(reversed(found)) if layout == "C" else found


def _tuple(context: Any, name: str, kind: Any) -> Parameter:
    items = [parameter(context, f"{name}_{n}", item) for n, item in enumerate(kind)]

    def rebuild(builder: Any, given: Iterator[Any]) -> Any:
        return context.make_tuple(builder, kind, [item.rebuild(builder, given) for item in items])

    def values(x: Any) -> list[Any]:
        return [v for item, part in zip(items, x, strict=True) for v in item.values(part)]

    return Parameter([f for item in items for f in item.fields], rebuild, values)


def _number(context: Any, name: str, kind: Any) -> Parameter:
    stored = context.get_data_type(kind)
    code = (SIGNED if getattr(kind, "signed", False) else UNSIGNED)[str(stored)]

    def rebuild(builder: Any, given: Iterator[Any]) -> Any:
        return context.data_model_manager[kind].from_data(builder, next(given))

    return Parameter([Field(name, stored, code)], rebuild, lambda x: (x,))


def _complex(context: Any, name: str, kind: Any) -> Parameter:
    part = context.get_data_type(kind.underlying_float)
    found = [Field(f"{name}_{what}", part, SIGNED[str(part)]) for what in ("real", "imag")]

    def rebuild(builder: Any, given: Iterator[Any]) -> Any:
        number = context.make_complex(builder, kind)
        number.real, number.imag = next(given), next(given)
        return number._getvalue()

    return Parameter(found, rebuild, lambda x: (x.real, x.imag))


_FAMILIES: dict[Any, Callable[[Any, str, Any], Parameter]] = {
    types.Array: _array,
    types.BaseTuple: _tuple,
    types.Complex: _complex,
    (types.Number, types.Boolean): _number,
}


class Packer:
    """Python values to the bytes of a kernel's parameters."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        codes, at = "<", 0
        for field in (f for p in parameters for f in p.fields):
            size = struct.calcsize(f"<{field.code}")
            codes += f"{-at % size}x{field.code}"
            at += -at % size + size
        self._struct = struct.Struct(codes)
        self._values = [p.values for p in parameters]

    def __call__(self, arguments: Sequence[Any]) -> bytearray:
        """The bytes; an array comes as a `Place`, or as something like one."""
        found: list[Any] = []
        for values, x in zip(self._values, arguments, strict=True):
            found += values(x)
        raw = bytearray(self._struct.size)
        self._struct.pack_into(raw, 0, *found)
        return raw
