"""Stacks of threads for compiled code with large frames: how much it takes, and threads that have as much.

Unoptimised code keeps what passes between basic blocks on the stack; how much that is can't be told from their number
(17 MiB where there are 4,503, 0.6 MB where there are 3,457), so it is read from the machine code.  LLVM would say it
in a section of its own, but llvmlite can't ask for that.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

import numpy as np

from nbtc.compiler.machine_code import native
from nbtc.forks import taken_by_forks

MIB = 1 << 20
ANY_THREAD = (
    MIB // 2
)  # bytes of frames that any thread takes: the smallest stacks of threads, macOS's and Windows', have
MOST = 1 << 29  # bytes of frames at most: a thread with twice as much may not start
OTHERS = 8 * MIB  # for what the code calls, Python among it: as much as Linux gives a thread
_SUB_RSP = re.compile(rb"\x48\x81\xec(.{4})", re.DOTALL)  # sub rsp, imm32 (Intel SDM, "SUB": REX.W 81 /5 id)
# sub sp, sp, #imm12, lsl #12 (Arm Architecture Reference Manual, "SUB (immediate)"): all bits but those of imm12
_SUB_SP, _BUT_IMMEDIATE, _IMMEDIATE_AT, _SHIFT = 0xD14003FF, 0xFFC003FF, 10, 12
_STARTING = threading.Lock()  # the size of new threads' stacks is one for the process
taken_by_forks("threads", _STARTING.acquire, _STARTING.release)


def frames(objects: Iterable[bytes]) -> int:
    """Bytes of stack that functions of object files take at most, if none calls itself: all their frames together.

    Frames below 128 bytes don't count, of AArch64 those below 4 KiB.  Bytes that look like the instruction but are
    others make it more, never less.
    """
    of = _x86 if native.target()[0].startswith(("x86_64", "amd64")) else _aarch64
    return sum(of(text) for o in objects for text in _texts(o))


def _texts(code: bytes) -> list[bytes]:
    return [s.data() for s in native.binding().ObjectFileRef.from_data(code).sections() if s.is_text()]


def _x86(text: bytes) -> int:
    sizes = (int.from_bytes(found[1], "little") for found in _SUB_RSP.finditer(text))
    return sum(n for n in sizes if n % 8 == 0 and n < 1 << 31)  # the stack pointer is a multiple of 8


def _aarch64(text: bytes) -> int:
    words = np.frombuffer(text[: len(text) // 4 * 4], "<u4")
    found = words[(words & _BUT_IMMEDIATE) == _SUB_SP]
    return int((found >> _IMMEDIATE_AT & 0xFFF).astype(np.int64).sum()) << _SHIFT


def on_stack(bytes_needed: int, work: Callable[..., Any], *args: Any) -> Future[Any]:
    """work(*args) on a new thread whose stack has room for frames of so many bytes.

    Raises RuntimeError where the system has no such thread to give.
    """
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work(*args))
        except BaseException as error:
            future.set_exception(error)

    size = -(-(bytes_needed + OTHERS) // MIB) * MIB
    with _STARTING:
        before = threading.stack_size(size)
        try:
            threading.Thread(target=run, name="nbtc stack", daemon=True).start()
        finally:
            threading.stack_size(before)
    return future
