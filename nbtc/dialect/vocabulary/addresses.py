"""Addresses of arrays as instructions take them: 32 bits in shared memory, 64 in global memory."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

GLOBAL, SHARED = 1, 3  # LLVM's address spaces ("User Guide for NVPTX Back-end")
I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)


def _in(c: Any, b: Any, kind: Any, value: Any, space: int, width: ir.Type) -> Any:
    data = b.bitcast(c.make_array(kind)(c, b, value).data, I8.as_pointer())
    return b.ptrtoint(b.addrspacecast(data, I8.as_pointer(space)), width)


def shared_address(c: Any, b: Any, kind: Any, value: Any) -> Any:
    """The address in shared memory of an array there."""
    return _in(c, b, kind, value, SHARED, I32)


def global_address(c: Any, b: Any, kind: Any, value: Any) -> Any:
    """The address in global memory of an array there."""
    return _in(c, b, kind, value, GLOBAL, I64)
