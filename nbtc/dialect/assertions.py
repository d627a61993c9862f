"""How device code ends a launch: `__assertfail`, which CUDA's driver and the executor both have."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
POINTER = I8.as_pointer()
GLOBAL = 1  # the address space of device memory (LLVM, "User Guide for NVPTX Back-end", "Address Spaces")


def text(builder: Any, content: str) -> Any:
    """The generic address of a constant text that ends with a zero byte."""
    raw = bytearray(content.encode() + b"\0")
    kind = ir.ArrayType(I8, len(raw))
    name = builder.module.get_unique_name("text")
    found = ir.GlobalVariable(builder.module, kind, name, addrspace=GLOBAL)
    found.linkage = "internal"
    found.global_constant = True
    found.initializer = ir.Constant(kind, raw)
    return builder.addrspacecast(builder.bitcast(found, ir.PointerType(I8, GLOBAL)), POINTER)


def declared(module: ir.Module, name: str, result: ir.Type, arguments: list[ir.Type]) -> ir.Function:
    """A function of the module that is defined elsewhere."""
    found = module.globals.get(name)
    return found if found is not None else ir.Function(module, ir.FunctionType(result, arguments), name)


def fail(builder: Any, message: str, loc: Any, function: str) -> None:
    """End the launch with a message and the place in the source."""
    callee = declared(builder.module, "__assertfail", ir.VoidType(), [POINTER, POINTER, I32, POINTER, I64])
    callee.attributes.add("noreturn")
    file, line = (loc.filename, loc.line) if loc is not None else ("", 0)
    arguments = [text(builder, message), text(builder, file), ir.Constant(I32, line), text(builder, function)]
    builder.call(callee, [*arguments, ir.Constant(I64, 1)])  # 1: bytes of a character
