"""Memory that kernels may touch: allocations of every kind by address, and copies that follow no bad pointer."""

from __future__ import annotations

import ctypes
import threading
import weakref
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, NamedTuple

from nbtc.executor.memory.ranges import Memory as Range
from nbtc.libcuda import host
from nbtc.libcuda.arena import Arena
from nbtc.libcuda.direct import words
from nbtc.libcuda.errors import INVALID_VALUE, OUT_OF_MEMORY, CudaError
from nbtc.libcuda.state import current_or_none, numbers, processor

GRANULE = 512  # bytes that allocations are multiples of
ALIGN = 512  # bytes; cuMemAlloc promises 256 (CUDA C++ Programming Guide, "Device Memory Accesses")
# Large host arrays begin shortly after a page's first byte (malloc), and a copy to an address that is shortly after the
# source's, modulo a page, takes three to fifteen times as long on AMD's processors (`rep movsb`; measured): so device
# memory lies half a page from there.
PAGE, ASIDE = 4096, 2048  # bytes
PITCH = 512  # bytes that rows of a pitched allocation are multiples of


class Kind(IntEnum):
    """Whose memory it is, as clients see it."""

    HOST = 1
    DEVICE = 2
    MANAGED = 3
    POOL = 4
    MAPPED = 5  # by cuMemMap
    MODULE = 6  # a module's variables
    CONDITION = 7  # what a graph's conditional node looks at
    ARRAY = 8  # a CUDA array, which no pointer reaches
    HOST_POOL = 9  # of a pool on the host
    OPENED = 10  # another process's, by cuIpcOpenMemHandle
    IMPORTED = 11  # another process's pool's


SHARED = (Kind.DEVICE, Kind.POOL)  # what other processes may be let into
OTHERS = (Kind.MODULE, Kind.OPENED, Kind.IMPORTED)  # what takes nothing of the device's free memory
FILE, HEADER = "nbtc-device", 1 << 20  # the name of the file that `SHARED` lies in, and the bytes before it (`sharing`)


class Outside:
    """Memory that no array of Python's holds, as an array has it."""

    def __init__(self, first: int, count: int) -> None:
        self.__array_interface__: Any = {"data": (first, False), "shape": (count,), "typestr": "|u1", "version": 3}


class Reserved(Outside):
    """Addresses that a graph's allocation gets whenever it runs; nodes and the allocation keep them."""

    def __init__(self, first: int, count: int, gone: deque[int]) -> None:
        super().__init__(first, count)
        self.first, self.bytes = first, count
        # The collector may run in the midst of the arena's own work: the address waits until the next reservation.
        weakref.finalize(self, gone.append, first).atexit = False


class Block(NamedTuple):
    """An allocation; `owner` keeps it alive."""

    first: int
    bytes: int
    kind: Kind
    flags: int
    owner: Any
    id: int
    context: Any

    @property
    def end(self) -> int:
        """The first byte after it."""
        return self.first + max(self.bytes, 1)


class Memory:
    """All memory of the device."""

    def __init__(self) -> None:
        self.blocks: dict[int, Block] = {}
        self._starts: list[int] = []
        self.used = self.version = 0
        self.lock = threading.RLock()
        self._reach: list[Range] = []
        self._seen = -1
        self._arenas: dict[bool, Arena] = {}
        self.reserved: weakref.WeakValueDictionary[int, Reserved] = weakref.WeakValueDictionary()
        self._gone: deque[int] = deque()
        self.when_freed: list[Callable[[Block], None]] = []
        self.most = [0, 0]  # bytes that graphs have used and reserved at once

    def arena(self, shared: bool) -> Arena:
        """Where allocations lie; twice the memory, so that its pieces need not fit perfectly."""
        if shared not in self._arenas:
            with self.lock:
                if shared not in self._arenas:
                    made = Arena(2 * self.total, FILE, HEADER) if shared else Arena(2 * self.total)
                    host.guard(made.low, made.high, self.everywhere)
                    if not words.guard(made.low, made.high):
                        words.words.address = 0
                    self._arenas[shared] = made
        return self._arenas[shared]

    def _give(self, first: int) -> None:
        for arena in self._arenas.values():
            if arena.low <= first < arena.high:
                arena.give(first)

    @property
    def total(self) -> int:
        """Bytes that the device has."""
        return processor().facts.memory_bytes

    def allocate(self, size: int, kind: Kind, flags: int = 0, align: int = ALIGN) -> int:
        """The address of fresh memory."""
        first = self._take(size, kind, align)
        return self.add(Block(first, size, kind, flags, Outside(first, size), next(numbers), current_or_none()))

    def _take(self, size: int, kind: Kind, align: int = ALIGN) -> int:
        if not 0 < size <= self.total - self.used:
            raise CudaError(OUT_OF_MEMORY if size > 0 else INVALID_VALUE)
        while self._gone:
            self._give(self._gone.popleft())
        rounded = -(-size // GRANULE) * GRANULE
        page, after = (PAGE, ASIDE) if rounded >= PAGE and kind is not Kind.HOST and align <= ASIDE else (GRANULE, 0)
        return self.arena(kind in SHARED).take(rounded, max(align, page), after)

    def reserve(self, size: int) -> Reserved:
        """Addresses for an allocation that comes and goes."""
        first = self._take(size, Kind.POOL)
        made = self.reserved[first] = Reserved(first, size, self._gone)
        self.most[1] = max(self.most[1], self.of_graphs()[2])
        return made

    def of_graphs(self) -> tuple[int, int, int, int]:
        """Bytes of graphs' allocations: used now, at most, reserved now, at most."""
        held = list(self.reserved.values())
        used = sum(r.bytes for r in held if r.first in self.blocks)
        return used, self.most[0], sum(r.bytes for r in held), self.most[1]

    def add(self, block: Block) -> int:
        """Let kernels reach a range."""
        with self.lock:
            if self.overlaps(block.first, block.bytes):
                raise CudaError(INVALID_VALUE)
            insort(self._starts, block.first)
            self.blocks[block.first] = block
            self.used += block.bytes if block.kind not in OTHERS else 0
            self._changed()
        if isinstance(block.owner, Reserved):
            self.most[0] = max(self.most[0], self.of_graphs()[0])
        return block.first

    def _changed(self) -> None:
        self.version += 1
        words.memory_changed(self.version)

    def overlaps(self, first: int, size: int) -> bool:
        """Whether some of it is an allocation's already."""
        with self.lock:
            at = bisect_left(self._starts, first + max(size, 1)) - 1
            return at >= 0 and self.blocks[self._starts[at]].end > first

    def free(self, first: int, *kinds: Kind) -> Block:
        """Take back an allocation of one of these kinds."""
        with self.lock:
            found = self.blocks.get(first)
            if found is None or found.kind not in kinds:
                raise CudaError(INVALID_VALUE)
            del self.blocks[first]
            del self._starts[bisect_left(self._starts, first)]
            self.used -= found.bytes if found.kind not in OTHERS else 0
            self._changed()
        for told in self.when_freed:
            told(found)
        if not isinstance(found.owner, Reserved):
            self._give(first)
        return found

    def find(self, address: int) -> Block | None:
        """The allocation that an address lies in."""
        with self.lock:
            at = bisect_right(self._starts, address) - 1
            found = self.blocks[self._starts[at]] if at >= 0 else None
        return found if found is not None and address < found.end else None

    def of_context(self, context: Any) -> Iterable[Block]:
        """What a context's end takes along."""
        with self.lock:
            return [b for b in self.blocks.values() if b.context is context]

    def reach(self) -> list[Range]:
        """What kernels may touch; the same list as long as nothing changes."""
        if self._seen != self.version:
            with self.lock:
                self._reach = [
                    Range(f"device memory of allocation {b.id}", b.first, b.bytes, True, b.owner)
                    for b in self.blocks.values()
                    if b.bytes and b.kind not in (Kind.MODULE, Kind.ARRAY)
                ]
                self._seen = self.version
        return self._reach

    def inside(self, address: int, size: int) -> Block:
        """The allocation that holds all of a range; an error where there is none."""
        found = self.find(address)
        if found is None or address + size > found.end:
            raise CudaError(INVALID_VALUE)
        return found

    def everywhere(self, address: int, size: int) -> bool:
        """Whether a range lies in one allocation."""
        found = self.find(address)
        return found is not None and address + size <= found.end


memory = Memory()


def copy(target: int, source: int, size: int, device: tuple[bool, bool] = (False, False)) -> None:
    """Copy bytes; device: whether the target and the source have to be the device's.

    What lies in allocations is known to be there; the host's other memory is copied by the kernel, which says so where
    it isn't.  A range that begins in an allocation and leaves it is refused, wherever it ends.
    """
    if size < 0:
        raise CudaError(INVALID_VALUE)
    if not size:
        return
    known = True
    for address, wanted in zip((target, source), device, strict=True):
        found = memory.find(address)
        if found is not None and address + size > found.end:
            raise CudaError(INVALID_VALUE)
        if found is None and wanted:
            raise CudaError(INVALID_VALUE)
        known = known and found is not None
    if known:
        ctypes.memmove(target, source, size)
    else:
        host.copy(target, source, size)


def fill(target: int, value: int, width: int, count: int) -> None:
    """`count` elements of `width` bytes, all alike, in one allocation."""
    size = width * count
    if not size:
        return
    memory.inside(target, size)
    raw = (value & (1 << 8 * width) - 1).to_bytes(width, "little")
    if len(set(raw)) == 1:
        ctypes.memset(target, raw[0], size)
        return
    if target % width:
        raise CudaError(INVALID_VALUE)
    ctypes.memmove(target, raw, width)
    done = width
    while done < size:  # what is there doubles
        step = min(done, size - done)
        ctypes.memmove(target + done, target, step)
        done += step
