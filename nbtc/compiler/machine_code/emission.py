"""Machine code of several modules at once.

llvmlite has one lock around all that it calls of LLVM, since most of its users share one context.  LLVM itself writes
machine code on as many threads as want it, if each has a module in a context of its own and a target machine of its
own.  So that one function, more than half of what a first program waits for, is called without the lock.
"""

from __future__ import annotations

from contextlib import contextmanager
from ctypes import string_at
from threading import Condition
from typing import Any

from llvmlite.binding import ffi
from llvmlite.binding.context import GlobalContextRef

from nbtc.forks import taken_by_forks

TYPE_CHECKING = False  # see nbtc/__init__.py
if TYPE_CHECKING:
    from collections.abc import Iterator

OBJECT = 1  # and not assembly
# The function below llvmlite's lock; private (llvmlite 0.50 has it), and where it isn't there threads take turns.
_EMIT: Any = getattr(ffi.lib.LLVMPY_TargetMachineEmitToMemory, "_cfn", ffi.lib.LLVMPY_TargetMachineEmitToMemory)


def context() -> Any:
    """A context of LLVM's that only `end` ends.

    Garbage collection finalises a context and its modules in any order, and a module after its context is a crash: what
    fails leaves its context behind.
    """
    return GlobalContextRef(ffi.lib.LLVMPY_ContextCreate())


def end(module: Any, of: Any) -> None:
    """Let go a module, the last one of its context."""
    module.close()
    ffi.lib.LLVMPY_ContextDispose(of)


class _UnderWay:
    """How many threads are in LLVM without its lock: a fork waits until there are none, and none begins meanwhile."""

    def __init__(self) -> None:
        self.changed, self.count = Condition(), 0

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """While machine code is written."""
        with self.changed:
            self.count += 1
        try:
            yield
        finally:
            with self.changed:
                self.count -= 1
                self.changed.notify_all()

    def stop(self) -> None:
        """Wait until there are none, and let none begin."""
        self.changed.acquire()
        while self.count:
            self.changed.wait()

    def go_on(self) -> None:
        """Let them begin again."""
        self.changed.release()


UNDER_WAY = _UnderWay()
taken_by_forks("emission", UNDER_WAY.stop, UNDER_WAY.go_on)


def object_file(machine: Any, module: Any) -> bytes:
    """llvmlite's `machine.emit_object(module)`, without its lock."""
    with UNDER_WAY.one_more(), ffi.OutputString() as error:
        buffer = _EMIT(machine, module, OBJECT, error)
        if not buffer:
            raise RuntimeError(str(error))
        try:
            return string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
        finally:
            ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)
