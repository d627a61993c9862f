"""Memory from `malloc` in checked launches: which of it may be used, and what is left that nobody could free."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.executor.arguments import Memory
from nbtc.executor.watch import words

_MARKS = words.MARKS // words.WORD


class Given(NamedTuple):
    """Memory that a thread got: its bytes, the place in the program, block and thread (both linear)."""

    bytes: int
    site: int
    block: int
    thread: int


class HeapCells:
    """The cells of the module's heap: all of it is freed but what `malloc` gave."""

    def __init__(self, memory: Memory, cells: NDArray[np.int64], live: Mapping[int, int]) -> None:
        self.memory = memory
        self.first = memory.first // words.CELL_BYTES * words.CELL_BYTES
        self.cells = cells
        self.cells[:, _MARKS] = words.FREED
        self.given: dict[int, Given] = {}
        for address, size in live.items():
            self._clear(address, size, 0)

    def _clear(self, address: int, size: int, marks: int) -> None:
        begin = (address - self.first) // words.CELL_BYTES
        rows = self.cells[begin : begin + -(-size // words.CELL_BYTES)]
        rows[:] = 0
        rows[:, _MARKS] = marks

    def take(self, address: int, given: Given) -> None:
        """`malloc` gave memory."""
        if address:
            self.given[address] = given
            self._clear(address, given.bytes, 0)

    def give(self, address: int) -> None:
        """It came back."""
        found = self.given.pop(address, None)
        if found is not None:
            self._clear(address, found.bytes, words.FREED)


def leaked(given: Mapping[int, Given], memory: Sequence[Memory], heap: Memory) -> Given | None:
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
