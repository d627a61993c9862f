"""Memory from `malloc` in checked launches: which of it may be used, and what is left that nobody could free."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.executor.memory.ranges import Memory
from nbtc.executor.watch import words

_MARKS = words.MARKS // words.WORD


class GivenMemory(NamedTuple):
    """Memory that a thread got: its bytes, the place in the program, block and thread (both linear)."""

    bytes: int
    site: int
    block: int
    thread: int


class HeapCells:
    """The granules and cells of the module's heap: all of it is freed but what `malloc` gave.

    Granules say so, for there are 8 MiB of heap: cells are written only where memory ends inside of a granule, and
    come from their granule anywhere else.
    """

    first: int
    granules: NDArray[np.int64]
    cells: NDArray[np.int64]

    def __init__(
        self, memory: Memory, granules: NDArray[np.int64], cells: NDArray[np.int64], live: Mapping[int, int]
    ) -> None:
        self.memory = memory
        self.first = memory.first // words.GRANULE_BYTES * words.GRANULE_BYTES
        self.granules, self.cells = granules, cells
        self.granules[:, _MARKS] = words.FREED
        self.given: dict[int, GivenMemory] = {}
        for address, size in live.items():
            self._usable(address, size)

    def _usable(self, address: int, size: int) -> None:
        """Memory from a multiple of a granule's bytes on, which nobody has touched."""
        begin = (address - self.first) // words.GRANULE_BYTES
        end = begin + size // words.GRANULE_BYTES
        self.granules[begin:end] = 0
        if rest := -(-(size % words.GRANULE_BYTES) // words.CELL_BYTES):
            self.granules[end] = 0
            self.granules[end, _MARKS] = words.SPLIT
            last = self.cells[end * words.CELLS : (end + 1) * words.CELLS]
            last[:] = 0
            last[rest:, _MARKS] = words.FREED

    def _freed(self, address: int, size: int) -> None:
        begin = (address - self.first) // words.GRANULE_BYTES
        rows = self.granules[begin : begin + -(-size // words.GRANULE_BYTES)]
        rows[:] = 0
        rows[:, _MARKS] = words.FREED

    def take(self, address: int, size: int, site: int, block: int, thread: int) -> None:
        """`malloc` gave memory to a thread (0: there was none)."""
        if address:
            self.given[address] = GivenMemory(size, site, block, thread)
            self._usable(address, size)

    def give(self, address: int) -> None:
        """It came back."""
        found = self.given.pop(address, None)
        if found is not None:
            self._freed(address, found.bytes)


def leaked(given: Mapping[int, GivenMemory], memory: Sequence[Memory], heap: Memory) -> GivenMemory | None:
    """The first memory of a launch to which no word that outlives it leads, directly or by way of other such memory."""
    if not given:
        return None
    starts = np.array(sorted(given), np.uint64)
    ends = starts + np.array([max(1, given[int(a)].bytes) for a in starts], np.uint64)
    reached = np.zeros(len(starts), bool)
    todo = [_words(m.first, m.bytes) for m in memory if m.first != heap.first]
    while todo:
        values = todo.pop()
        n = np.searchsorted(starts, values, "right") - 1
        inside = (n >= 0) & (values < ends[n])
        new = np.unique(n[inside])
        new = new[~reached[new]]
        reached[new] = True
        todo += [_words(int(starts[i]), int(ends[i] - starts[i])) for i in new]
    lost = starts[~reached]
    return given[int(lost[0])] if len(lost) else None


def _words(first: int, size: int) -> NDArray[np.uint64]:
    """The aligned 64-bit words of memory."""
    begin = -(-first // words.WORD) * words.WORD
    count = max(0, (first + size - begin) // words.WORD)
    raw = (ctypes.c_uint64 * count).from_address(begin) if count else ()
    return np.array(raw, np.uint64)
