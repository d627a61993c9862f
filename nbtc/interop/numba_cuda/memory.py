"""Device memory: allocations by address, and what the driver's memory functions do with them."""

from __future__ import annotations

import ctypes
import weakref
from bisect import bisect_right, insort
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.executor.launch.launch import address_of, aligned

ALIGN = 256  # bytes: what cuMemAlloc promises ("CUDA C++ Programming Guide", "Device Memory Accesses")
TOTAL = 64 << 30  # bytes that the device is said to have


class Range(NamedTuple):
    """Memory: its first byte, its bytes, and what keeps it alive."""

    first: int
    bytes: int
    owner: Any


class Outside:
    """Memory of the host that the device may reach, as an array has it."""

    def __init__(self, first: int, count: int) -> None:
        self.__array_interface__ = {"data": (first, False), "shape": (count,), "typestr": "|u1", "version": 3}


class Memory:
    """All memory of one device."""

    def __init__(self) -> None:
        self.ranges: dict[int, Range] = {}
        self.mapped: dict[int, NDArray[Any]] = {}  # arrays of the host while kernels may reach them, by number
        self._numbers = count()
        self._starts: list[int] = []
        self.used = 0

    def allocate(self, size: int) -> int:
        """The address of fresh memory."""
        buffer = aligned(max(size, 1), ALIGN)
        return self._add(address_of(buffer), size, buffer)

    def register(self, first: int, size: int) -> None:
        """Let the device reach memory of the host."""
        self._add(first, size, np.asarray(Outside(first, size)))

    def _add(self, first: int, size: int, buffer: NDArray[Any]) -> int:
        if first not in self.ranges:
            insort(self._starts, first)
        self.ranges[first] = Range(first, size, buffer)
        self.used += size
        return first

    def free(self, first: int) -> None:
        """Forget an allocation."""
        gone = self.ranges.pop(first, None)
        if gone is not None:
            self.used -= gone.bytes
            self._starts.remove(first)

    def find(self, address: int) -> Range | None:
        """The allocation that an address lies in."""
        at = bisect_right(self._starts, address) - 1
        if at < 0:
            return None
        found = self.ranges[self._starts[at]]
        return found if address < found.first + max(found.bytes, 1) else None

    def arrays(self) -> list[NDArray[Any]]:
        """Everything that a kernel may touch."""
        return [*(r.owner for r in self.ranges.values() if r.bytes), *self.mapped.values()]

    def map_host(self, array: NDArray[Any], holder: Any) -> None:
        """Let kernels reach an array of the host as long as `holder` lives."""
        number = next(self._numbers)
        self.mapped[number] = array
        weakref.finalize(holder, self.mapped.pop, number, None)


def copy(target: Any, source: Any, size: int) -> None:
    """Bytes from one address to another."""
    ctypes.memmove(int(target), int(source), size)


def fill(target: Any, byte: int, count: int) -> None:
    """One byte over and over."""
    ctypes.memset(int(target), byte, count)
