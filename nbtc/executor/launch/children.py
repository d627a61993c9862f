"""What a grid launches on the device, kernels, copies and fills: kept while it runs, run when it has ended."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nbtc.errors import ProgramError
from nbtc.executor.kernel.link import function_at
from nbtc.executor.launch.launch import Dim
from nbtc.executor.memory.ranges import Memory
from nbtc.executor.text.data import Function, PtxModule

TAIL = 3  # cudaStreamTailLaunch: after all else that the same grid launched
LOW = (1 << 32) - 1
ERRORS = {0: ("no error", "cudaSuccess"), 2: ("out of memory", "cudaErrorMemoryAllocation")}  # that device code gets
UNKNOWN = ("unrecognized error code", "unrecognized error code")


class Child(NamedTuple):
    """A grid that was launched on the device; parameters: their bytes, as the kernel finds them."""

    kernel: str
    grid: Dim
    block: Dim
    shared: int
    parameters: bytearray
    stream: int = 0


class Transfer(NamedTuple):
    """A copy, or a fill with a byte, that was asked for on the device."""

    to: int
    size: int
    origin: int | None
    byte: int
    stream: int = 0

    def run(self, memory: Sequence[Memory]) -> None:
        """Do it, inside of memory that the grid may touch."""
        _require(memory, self.to, self.size, True)
        if self.origin is None:
            ctypes.memset(self.to, self.byte, self.size)
        else:
            _require(memory, self.origin, self.size, False)
            ctypes.memmove(self.to, self.origin, self.size)


def _require(memory: Sequence[Memory], address: int, size: int, writes: bool) -> None:
    inside = (m for m in memory if m.first <= address and address + size <= m.first + m.bytes)
    if size and not any(m.writable or not writes for m in inside):
        what = "writes" if writes else "reads"
        raise ProgramError(
            f"a copy or fill that a kernel asks for {what} {size} bytes at {address:#x}, outside all memory",
            title="out of bounds",
            kind="STORE_BOUNDS" if writes else "LOAD_BOUNDS",
        )


def parameter_bytes(kernel: Function) -> int:
    """Of all parameters of a kernel, as they lie in memory."""
    at = 0
    for v in kernel.prototype.arguments:
        at += -at % v.align + v.bytes
    return at


class Children:
    """What the threads of one grid launch."""

    def __init__(self, module: PtxModule) -> None:
        self.module = module
        self.waiting: dict[int, Child] = {}  # for their parameters, by the buffer's address
        self.launched: list[Child | Transfer] = []

    def wanted(self, row: Any) -> Child:
        """What a thread wants to launch, its parameters not yet there."""
        kernel = function_at(self.module, int(row[0]))
        if kernel is None or not kernel.entry:
            raise ProgramError(f"a kernel launches what is not a kernel of its module: address {int(row[0]):#x}")
        grid, block, both = (int(x) for x in row[1:4])
        sizes = ((grid & LOW, grid >> 32, both & LOW), (block & LOW, block >> 32, both >> 32))
        return Child(kernel.name, *sizes, int(row[4]) & LOW, bytearray(parameter_bytes(kernel)))

    def launch(self, address: int, stream: int, raw: bytes) -> None:
        """Launch with the parameters that are in a buffer now."""
        child = self.waiting.pop(address)
        self.launched.append(child._replace(parameters=bytearray(raw), stream=stream))

    def run(self, memory: Sequence[Memory], launch: Callable[[Child], object]) -> None:
        """Everything in its order, but for what is at the tail."""
        for one in sorted(self.launched, key=lambda one: one.stream == TAIL):
            if isinstance(one, Transfer):
                one.run(memory)
            else:
                launch(one)
