"""Constants of the builder: how they are written, and that LLVM reads them as llvmlite's own."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from llvmlite import ir

from nbtc.compiler import builder
from nbtc.compiler.builder import F32, F64, I8, I32, I64, Splat, VectorBuilder, vector
from nbtc.compiler.machine_code import native

VALUES: list[tuple[ir.Type, Any]] = [
    (I8, 200), (I32, -1), (I64, 1 << 63), (F32, -0.0), (F32, 2.0**-126), (F64, 2.0**-1000), (F64, float("inf")),
]  # fmt: skip


@pytest.mark.parametrize(("element", "value"), VALUES)
def test_a_splat_is_the_vector_of_its_lanes(element: ir.Type, value: Any) -> None:
    """Stored by machine code, both are the same bytes; lanes can be read by who folds constants."""
    kind = vector(element, 8)
    found = VectorBuilder(None, None).const(kind, value)
    assert isinstance(found, Splat) and str(found).endswith(f"splat ({ir.Constant(element, value)})")
    assert [str(x) for x in found.constant] == [str(ir.Constant(element, value))] * 8
    module = ir.Module("constants")
    for name, constant in (("short", found), ("long", ir.Constant(kind, [value] * 8))):
        f = ir.Function(module, ir.FunctionType(ir.VoidType(), [kind.as_pointer()]), name)
        b = ir.IRBuilder(f.append_basic_block())
        b.store(constant, f.args[0], align=1)
        b.ret_void()
    loaded = native.load(native.Native(native.compile_text(str(module)), {}))
    kept = [ctypes.create_string_buffer(64) for _ in range(2)]
    for name, buffer in zip(("short", "long"), kept, strict=True):
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(loaded.address(name))(ctypes.addressof(buffer))
    assert kept[0].raw == kept[1].raw != bytes(64)


def test_undefined_lanes_stay_undefined() -> None:
    """No splat is written of what has no value."""
    kind = vector(I32, 4)
    assert str(VectorBuilder(None, None).const(kind, ir.Undefined)) == str(ir.Constant(kind, ir.Undefined))


@pytest.mark.parametrize("order", [(1, True), (True, 1)])
def test_numbers_are_written_alike_whichever_came_first(order: tuple[int, int]) -> None:
    """The text of a function is its name on disk: what another one asked for before must not show in it."""
    builder._number.cache_clear()
    v = VectorBuilder(None, None)
    assert {repr(n): str(v.const(I8, n)) for n in order} == {"1": "i8 1", "True": "i8 true"}
