"""LLVM coroutines: a warp's code that can be left in the middle and resumed (LLVM, "Coroutines in LLVM")."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from nbtc.compiler.builder import I1, I8, I32, I64, VectorBuilder

ALIGN = 256  # of a frame: <32 x i64> wants it
HEADER = 256  # bytes before a frame, where the scheduler keeps its lists
POINTER = I8.as_pointer()
VOID = ir.VoidType()


class TokenType(ir.Type):  # type: ignore[misc]
    """LLVM's `token`."""

    def _to_string(self) -> str:
        return "token"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenType)

    def __hash__(self) -> int:
        return hash(TokenType)


TOKEN = TokenType()
NO_TOKEN = ir.values.FormattedConstant(TOKEN, "none")
NULL = ir.Constant(POINTER, None)
# llvm.coro.end gives nothing from LLVM 22 on, before an i1
END_RESULT = VOID if llvm.llvm_version_info[0] >= 22 else I1


def declare(module: ir.Module, name: str, result: ir.Type, arguments: tuple[ir.Type, ...]) -> Any:
    """A function of LLVM or of the process, declared once."""
    found = module.globals.get(name)
    return found if found is not None else ir.Function(module, ir.FunctionType(result, arguments), name)


class Coroutine:
    """Turns a function that returns a frame's address into a coroutine: `begin` first, `suspend` anywhere, `end` last.

    The caller gives the memory of the frame.
    """

    def __init__(self, v: VectorBuilder, function: Any) -> None:
        self.v, self.b, self.function = v, v.b, function
        set.add(function.attributes, "presplitcoroutine")  # llvmlite doesn't know the attribute
        self.handle: Any = None
        self.leave = function.append_basic_block("coroutine.leave")
        self.stuck = function.append_basic_block("coroutine.stuck")

    def _call(self, name: str, result: ir.Type, *args: Any) -> Any:
        kinds = tuple(a.type for a in args)
        return self.b.call(declare(self.b.module, f"llvm.coro.{name}", result, kinds), args)

    def begin(self, memory: Any) -> None:
        """Start: `memory(bytes)` emits the allocation of a frame."""
        identity = self._call("id", TOKEN, ir.Constant(I32, ALIGN), NULL, NULL, NULL)
        size = self.b.call(declare(self.b.module, "llvm.coro.size.i64", I64, ()), ())
        self.handle = self._call("begin", POINTER, identity, memory(size))

    def suspend(self, final: bool = False) -> None:
        """Return to whoever resumed; go on after this when resumed again."""
        state = self._call("suspend", I8, NO_TOKEN, ir.Constant(I1, final))
        resumed = self.function.append_basic_block("resumed")
        switch = self.b.switch(state, self.leave)
        switch.add_case(ir.Constant(I8, 0), self.stuck if final else resumed)
        switch.add_case(ir.Constant(I8, 1), self.leave)
        self.b.position_at_end(resumed)
        if final:
            self.b.unreachable()

    def end(self) -> None:
        """Emit the common way out."""
        with self.b.goto_block(self.leave):
            self.b.position_at_end(self.leave)
            self._call("end", END_RESULT, self.handle, ir.Constant(I1, 0), NO_TOKEN)
            self.b.ret(self.handle)
        with self.b.goto_block(self.stuck):
            self.b.position_at_end(self.stuck)
            self.b.unreachable()


def resume(v: VectorBuilder, handle: Any) -> None:
    """Let a suspended coroutine go on."""
    v.b.call(declare(v.b.module, "llvm.coro.resume", VOID, (POINTER,)), (handle,))
