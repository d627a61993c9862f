"""The heap of device code: memory for its `malloc` (CUDA C++ Programming Guide, "Dynamic Global Memory Allocation")."""

from __future__ import annotations

import ctypes
from bisect import bisect
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from nbtc.executor.memory.ranges import Memory

HEAP_BYTES = 8 << 20  # CUDA's default heap (cudaLimitMallocHeapSize)
HEAP_MARGIN = 4096  # bytes of nobody on both sides: what misses an array beside the heap is outside all memory
HEAP_ALIGN = 16


class Heap:
    """Memory for `malloc`, which lasts as long as the module."""

    def __init__(self) -> None:
        self.memory: NDArray[np.uint8] = np.empty(HEAP_BYTES + 2 * HEAP_MARGIN, np.uint8)
        self.start: int = self.memory.ctypes.data + HEAP_MARGIN
        used = -self.start % HEAP_ALIGN
        self.sizes: dict[int, int] = {}
        # what is free, ascending; no two touch
        self.holes: list[tuple[int, int]] = [(self.start + used, HEAP_BYTES - used)]
        self.lock: Lock = Lock()
        self.texts: dict[str, int] = {}

    def take(self, size: int) -> int:
        """An address, or 0 when there is no room: of the first hole that is large enough."""
        taken = -(-max(size, 1) // HEAP_ALIGN) * HEAP_ALIGN
        with self.lock:
            for n, (first, free) in enumerate(self.holes):
                if free >= taken:
                    self.holes[n : n + 1] = [(first + taken, free - taken)] if free > taken else []
                    self.sizes[first] = taken
                    return first
            return 0

    def text(self, words: str) -> int:
        """The address of a constant text, made once."""
        if words not in self.texts:
            raw = words.encode() + b"\0"
            self.texts[words] = self.take(len(raw))
            if self.sizes.pop(self.texts[words], 0):  # nobody may free it
                ctypes.memmove(self.texts[words], raw, len(raw))
        return self.texts[words]

    @property
    def range(self) -> Memory:
        """All of it."""
        return Memory("malloc'ed memory", self.start, HEAP_BYTES, True, self.memory)

    def give(self, address: int) -> bool:
        """Take memory back; False if it was not given out."""
        with self.lock:
            taken = self.sizes.pop(address, 0)
            if taken:
                self._join(address, taken)
            return bool(taken)

    def _join(self, first: int, size: int) -> None:
        """Add a hole, one with those that it touches: sizes that grow would find none large enough otherwise."""
        n = bisect(self.holes, (first, size))
        if n < len(self.holes) and self.holes[n][0] == first + size:
            size += self.holes.pop(n)[1]
        if n and sum(self.holes[n - 1]) == first:
            before, free = self.holes[n - 1]
            self.holes[n - 1] = before, free + size
        else:
            self.holes.insert(n, (first, size))
