"""How a product is dealt to threads: what is packed of B at once, and which rows and columns a task takes.

All rows of A pass one packed block of B, then the next one, which is packed before the last rows have passed: so no
thread waits for another before the product's end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.stages import Order, Stage, one_stage
from nbtc.compiler.threads import ThreadTeam

# Columns of B packed at once by up to four threads: 5 MiB at most, which stay in the last-level cache while all rows
# of A pass.  Servers have 1.5 MiB of it a core and more, so that more threads may pack more, and so pack the rows of A
# less often, which is a sixth of the time of integers in tile registers.
COLUMNS, FEW, MOST = 1024, 4, 4096
TASK_BLOCKS = 8  # row blocks a task takes at most: tens of milliseconds
PACKED = 256  # columns of B that are worth a task of packing: 0.1 to 0.2 ms
AHEAD = 2  # shares a thread that are left of a block's when the next block is packed: what is needed then is done
COPIED = 4 << 20  # bytes that are worth copying on several threads: a millisecond
Share = tuple[int, int, int, int]  # first row, rows, first panel, panels


class Costs(NamedTuple):
    """What a task of rows takes beside its sums, counted in sums of full depth.

    packing: columns of sums that take as long as packing a row of A; 4 (b1) to 16 (e4m3) were timed by hand.
    call: sums that take as long as what Python does for a task, 10 microseconds in which no other thread is in Python;
    400 (f16) to 1,100 (s8).
    """

    packing: int = 16
    call: int = 1024


USUAL = Costs()


def columns_at_once(threads: int) -> int:
    """Columns of B that are packed together.

    >>> [columns_at_once(threads) for threads in (1, 4, 8, 64)]
    [1024, 1024, 2048, 4096]
    """
    return min(MOST, COLUMNS * max(1, threads // FEW))


def _pieces(count: int, size: int) -> Iterator[tuple[int, int]]:
    """(first, how many) of each piece of a count."""
    return ((i, min(size, count - i)) for i in range(0, count, size))


@lru_cache(maxsize=256)
def row_shares(
    rows: int, panels: int, width: int, threads: int, block: int, heights: tuple[int, ...], costs: Costs = USUAL
) -> list[Share]:
    """Tasks for some rows of A and all panels of B, `width` columns each; every task packs its rows anew.

    block: rows packed at a time.  heights: other numbers of rows a task may have.  A list of tasks that idle threads
    take from is done, at the latest, in the mean of the threads' work and one task more: the cut for which that is
    least, counted in sums.
    """
    if threads == 1:
        return [(*r, 0, panels) for r in _pieces(rows, TASK_BLOCKS * block)]

    def latest(cut: tuple[int, int]) -> float:
        high, wide = cut
        across, tasks = -(-panels // wide), -(-rows // high) * -(-panels // wide)
        longest = min(high, rows) * (wide * width + costs.packing)
        work = rows * (panels * width + costs.packing * across)
        return work / threads + longest * (threads - 1) / threads + tasks * costs.call

    high = [n * block for n in range(TASK_BLOCKS, 0, -1) if n == 1 or n * block < 2 * rows]
    wide = sorted({-(-panels // n) for n in range(1, panels + 1)}, reverse=True)
    height, across = min(product((*high, *heights), wide), key=latest)
    return [(*r, *p) for r in _pieces(rows, height) for p in _pieces(panels, across)]


@lru_cache(maxsize=256)
def column_shares(panels: int, width: int, threads: int) -> list[tuple[int, int]]:
    """(first panel, panels) of each task of packing B: four a thread, unless they were too small."""
    if threads == 1:
        return [(0, panels)]
    worth = min(-(-PACKED // width), -(-panels // threads))
    return list(_pieces(panels, max(worth, -(-panels // (4 * threads)))))


class BlockStages(NamedTuple):
    """Of a packed block of B: its packing, what is decided by what was found there, and the rows of A that pass it."""

    pack: Stage
    decide: Stage | None
    rows: Stage


def buffers(threads: int, blocks: int) -> int:
    """How many packed blocks of B there are at once."""
    return min(blocks, 1 if threads == 1 else 2)


class RowsBefore:
    """Rows that pass the last blocks: what is done before the next block's shares begin."""

    def __init__(self, memories: int) -> None:
        self._memories, self._stages = memories, list[Stage]()

    def of_memory(self) -> list[Stage]:
        """Before the next block is packed, as its memory is that of the last block but one."""
        return self._stages[: max(0, len(self._stages) + 1 - self._memories)]

    def of_sums(self, go_on: bool) -> Stage | None:
        """Before rows pass the next block, where their sums go on with those of the last one."""
        return self._stages[-1] if go_on else None

    def add(self, rows: Stage) -> None:
        """Rows pass one more block."""
        self._stages = [*self._stages[-1:], rows]


def in_line(blocks: Iterable[BlockStages], threads: int) -> Order:
    """The shares of all blocks in the order in which threads take them."""
    rest: list[tuple[Stage, int]] = []
    for block in blocks:
        half = len(rest) // 2
        yield from one_stage(block.pack)
        yield from rest[:half]
        if block.decide:
            yield from one_stage(block.decide)
        yield from rest[half:]
        count = len(block.rows.shares)
        kept = 0 if threads == 1 else min(AHEAD * threads, count // 2)
        shares = list(one_stage(block.rows))
        yield from shares[: count - kept]
        rest = shares[count - kept :]
    yield from rest


def copy(to: NDArray[Any], from_: NDArray[Any], team: ThreadTeam) -> None:
    """to[...] = from_, matrices of one shape, rows shared out: one thread copies 64 MiB as long as sixteen multiply."""
    rows = to.shape[-2]
    if team.threads == 1 or to.nbytes < COPIED:
        to[...] = from_
        return

    def part(i: int, n: int) -> None:
        with np.errstate(all="ignore"):  # each thread has its own: a copy to a narrower type may overflow
            to[..., i : i + n, :] = from_[..., i : i + n, :]

    team.run(part, (), list(_pieces(rows, -(-rows // team.threads))))


def each(parts: Iterable[Any], work: Any, team: ThreadTeam) -> list[Any]:
    """work(part) of every part, in their order."""
    found: dict[int, Any] = {}

    def one(i: int, part: Any) -> None:
        found[i] = work(part)

    team.run(one, (), list(enumerate(parts)))
    return [found[i] for i in sorted(found)]
