"""Words that make arrays: shared memory of a block, fixed and dynamic, and local memory of a thread (PTX ISA 5.1)."""

from __future__ import annotations

from math import prod
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing import signature
from numba.np.arrayobj import populate_array

from nbtc.dialect import language, words
from nbtc.dialect.element import element_type

SHARED = 3  # LLVM's address space ("User Guide for NVPTX Back-end")
ALIGN = 16  # bytes: what the widest loads and ldmatrix want
MOST_ALIGN = 1024  # swizzled tiles of 128 bytes repeat that often
DYNAMIC = "nbtc_dynamic_shared"
I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
HERE = language.__name__


def _extents(name: str, shape: Any) -> tuple[int, ...]:
    """A shape of constants."""
    parts = tuple(shape) if isinstance(shape, types.BaseTuple) else (shape,)
    found = tuple(getattr(p, "literal_value", None) for p in parts)
    if not all(isinstance(n, int) and n > 0 for n in found):
        said = ", ".join("?" if n is None else str(n) for n in found)
        words.refuse(
            f"{name}: the shape is ({said}){', where ? is known only when the kernel runs' * (None in found)}: pass "
            f"constants from 1 up, such as {name}((16, 64), nbtc.f16), with names and arithmetic of constants"
            + ", or None for the part whose size the launch gives"
            * (name == "shared")
        )
    return found  # type: ignore[return-value]


def _alignment(name: str, align: Any) -> int:
    found = ALIGN if align is types.none else getattr(align, "literal_value", 0)
    if not isinstance(found, int) or not 1 <= found <= MOST_ALIGN or found & (found - 1):
        words.refuse(f"{name}: align={found or align}: pass a constant power of two up to {MOST_ALIGN} (bytes)")
    return found


def _array(context: Any, builder: Any, kind: Any, data: Any, shape: list[Any]) -> Any:
    """A contiguous array at an address."""
    array = context.make_array(kind)(context, builder)
    itemsize = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    strides = [itemsize]
    for extent in shape[:0:-1]:
        strides.insert(0, builder.mul(strides[0], extent))
    data = builder.bitcast(data, array.data.type)
    populate_array(array, data=data, shape=shape, strides=strides, itemsize=itemsize, meminfo=None)
    return array._getvalue()


def _generic(builder: Any, variable: Any) -> Any:
    return builder.addrspacecast(variable, ir.PointerType(variable.type.pointee))


def _in_shared(context: Any, module: Any, element: Any, count: int, align: int) -> Any:
    kind = ir.ArrayType(context.get_data_type(element), count)
    found = ir.GlobalVariable(module, kind, module.get_unique_name("shared"), addrspace=SHARED)
    found.linkage = "internal"
    found.align = align
    found.initializer = ir.Constant(kind, ir.Undefined)
    return found


def _dynamic(builder: Any, itemsize: int, align: int) -> tuple[Any, Any]:
    """The dynamic part: where it begins, and how many elements it has."""
    module = builder.module
    found = module.globals.get(DYNAMIC)
    if found is None:
        found = ir.GlobalVariable(module, ir.ArrayType(I8, 0), DYNAMIC, addrspace=SHARED)
    found.align = max(align, found.align or 1)
    [size] = words.inline(builder, "mov.u32 $0, %dynamic_smem_size;", [I32], [], effect=False)
    return _generic(builder, found), builder.udiv(builder.zext(size, I64), ir.Constant(I64, itemsize))


@words.word(f"{HERE}.shared")
def _shared(context: Any, shape: Any, format: Any, align: Any = None) -> Any:
    element, boundary = element_type("shared", format), _alignment("shared", align)
    dynamic = isinstance(shape, types.NoneType)
    extents = () if dynamic else _extents("shared", shape)
    kind = types.Array(element, max(1, len(extents)), "C")

    def emit(c: Any, b: Any, s: Any, a: Any) -> Any:
        if dynamic:
            data, size = _dynamic(b, c.get_abi_sizeof(c.get_data_type(element)), boundary)
            return _array(c, b, kind, data, [size])
        data = _generic(b, _in_shared(c, b.module, element, prod(extents), boundary))
        return _array(c, b, kind, data, [c.get_constant(types.intp, n) for n in extents])

    return signature(kind, shape, format, align), emit


@words.word(f"{HERE}.local")
def _local(context: Any, shape: Any, format: Any) -> Any:
    element, extents = element_type("local", format), _extents("local", shape)
    kind = types.Array(element, len(extents), "C")

    def emit(c: Any, b: Any, s: Any, a: Any) -> Any:
        buffer = cgutils.alloca_once(b, ir.ArrayType(c.get_data_type(element), prod(extents)))
        buffer.align = ALIGN
        return _array(c, b, kind, buffer, [c.get_constant(types.intp, n) for n in extents])

    return signature(kind, shape, format), emit
