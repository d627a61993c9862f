"""The words of one checked launch, and what was found in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nbtc.executor.memory.ranges import Memory
from nbtc.executor.watch import words
from nbtc.executor.watch.heap import GivenMemory, HeapCells, leaked
from nbtc.executor.watch.pages import Pages, Words, fresh

LINE = 64  # bytes that caches move at once


class AccessSeen(NamedTuple):
    """One of two accesses: its place in the program, block, warp, lane (-1: several) and kind."""

    site: int
    block: int
    warp: int
    lane: int
    kind: int


class HazardFound(NamedTuple):
    """A hazard: what kind, the access that shows it, the earlier one (None: there is none), and the memory."""

    hazard: int
    mine: AccessSeen
    other: AccessSeen | None
    address: int
    size: int


class WatchedLaunch:
    """Memory of a launch: its state, its epochs, the cells of everything it may touch."""

    def __init__(self, memory: Sequence[Memory]) -> None:
        lines = np.zeros(words.STATE_WORDS + LINE // words.WORD, np.int64)
        begin = -lines.ctypes.data % LINE // words.WORD  # so that a vector of addresses is in few lines of the cache
        self.state: Words = lines[begin : begin + words.STATE_WORDS]
        self.pages = Pages()
        # a row is written when its epoch begins, so that nothing reads what an earlier launch has left
        self.epochs: Words = self.pages.rows(words.KEPT_EPOCHS, words.EPOCH, zeros=False).reshape(-1)
        self._put(words.EPOCHS, self.epochs.ctypes.data)
        self._put(words.MOST_EPOCHS, words.KEPT_EPOCHS)
        self.cells: list[tuple[Words, Words]] = []  # of each region: granules and cells
        self.heap_cells: HeapCells | None = None
        self._regions: list[tuple[int, ...]] = []
        for first, end in _ranges(memory):
            self._add(first, end - first)
        self._tell()

    @staticmethod
    def block_bytes(shared: int) -> int:
        """Bytes that a resident block with so much shared memory takes."""
        return words.block_bytes(shared)

    @staticmethod
    def block_words(count: int, shared: int) -> Any:
        """Memory for so many resident blocks: (count, words)."""
        size = words.block_bytes(shared)
        return fresh(count * size).reshape(count, size // words.WORD)

    def cover(self, first: int, size: int) -> None:
        """Watch further memory too: so many bytes from a multiple of 16."""
        self._add(first, size)
        self._tell()

    def _tell(self) -> None:
        """Where compiled code finds what is watched."""
        self.regions: Words = np.array(self._regions or [(0,) * 4], np.int64)  # one of no bytes, if there is none
        self._put(words.REGIONS, self.regions.ctypes.data)
        self._put(words.REGION_COUNT, len(self.regions))
        self._put(words.RECENT, self.regions.ctypes.data)

    def _add(self, first: int, size: int) -> None:
        granules = self._rows(size // words.GRANULE_BYTES, words.GRANULE, zeros=True)
        cells = self._rows(size // words.CELL_BYTES, words.CELL, zeros=False)  # written where a granule is split
        self.cells.append((granules, cells))
        self._regions.append((first, size, granules.ctypes.data, cells.ctypes.data))

    def _rows(self, count: int, each: int, zeros: bool) -> Words:
        try:
            return self.pages.rows(count, each, zeros)
        except MemoryError:
            raise MemoryError(
                f"checked launches take up to 18 bytes of memory for each byte that a program may touch, here "
                f'{count * each / 2**30:.0f} GiB at once: give smaller arrays, or launch with checked="off"'
            ) from None

    def heap(self, memory: Memory, live: Mapping[int, int]) -> HeapCells:
        """The granules and cells of the heap, which is among the memory given."""
        n = next(n for n, row in enumerate(self._regions) if row[0] <= memory.first < row[0] + row[1])
        before = memory.first - self._regions[n][0]
        begin, end = before // words.GRANULE_BYTES, -(-(before + memory.bytes) // words.GRANULE_BYTES)
        granules, cells = self.cells[n]
        part = slice(begin * words.CELLS, end * words.CELLS)
        self.heap_cells = HeapCells(memory, granules[begin:end], cells[part], live)
        return self.heap_cells

    def lost(self, memory: Sequence[Memory]) -> GivenMemory | None:
        """Memory that the launch got and that nobody can free any more."""
        cells = self.heap_cells
        return None if cells is None else leaked(cells.given, memory, cells.memory)

    def _put(self, at: int, value: int) -> None:
        self.state[at // words.WORD] = value

    def _get(self, at: int) -> int:
        return int(self.state[at // words.WORD])

    @property
    def address(self) -> int:
        """Of the state."""
        return int(self.state.ctypes.data)

    @property
    def suspected(self) -> bool:
        """Whether unwritten memory was used, and nothing since that shows another cause."""
        return self._get(words.SUSPECTED) != 0

    def found(self) -> HazardFound:
        """The hazard that stopped the launch, or that is suspected."""
        who = self._get(words.WHO)
        mine = AccessSeen(self._get(words.SITE), who >> 8, who & 0xFF, self._get(words.LANE), self._get(words.KIND))
        slot = self._get(words.OTHER)
        return HazardFound(
            self._get(words.HAZARD), mine, self._slot(slot) if slot else None, self._get(words.ADDRESS),
            self._get(words.SIZE),
        )  # fmt: skip

    def _slot(self, slot: int) -> AccessSeen:
        stamp = slot >> words.EPOCH_AT
        row = self.epochs[(stamp % words.KEPT_EPOCHS) * (words.EPOCH // words.WORD)]
        lane = -1 if slot >> words.SHARED_AT & 1 else slot >> words.LANE_AT & 31
        site = slot >> words.SITE_AT & (words.MOST_SITES - 1)
        return AccessSeen(site, int(row) >> 8, int(row) & 0xFF, lane, slot >> words.KIND_AT & 15)


def _ranges(memory: Sequence[Memory]) -> list[tuple[int, int]]:
    """The memory as ranges that don't overlap, on multiples of a granule's bytes."""
    step = words.GRANULE_BYTES
    given = sorted((m.first // step * step, -(-(m.first + m.bytes) // step) * step) for m in memory if m.bytes)
    out: list[tuple[int, int]] = []
    for first, end in given:
        if out and first <= out[-1][1]:
            out[-1] = out[-1][0], max(end, out[-1][1])
        else:
            out.append((first, end))
    return out
