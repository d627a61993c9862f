"""How many threads share a product, simulated for machines with more processors than there are here.

Threads take the shares of a product as they do in truth, in the order of `in_line`, and each begins when what it needs
is done.  A share takes as long as its sums and its packing; while Python hands one out, no other thread is in Python;
packed columns come from the last-level cache, and sums from memory, at the rates below.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heapreplace
from typing import NamedTuple

from nbtc.compiler.stages import Stage
from nbtc.gemm.shares import (
    USUAL,
    BlockStages,
    RowsBefore,
    buffers,
    column_shares,
    columns_at_once,
    in_line,
    row_shares,
)

PANEL, ROWS, DEPTH, BYTES = (
    64,
    64,
    512,
    9,
)  # of an f16 product: columns of a panel, rows and depth of a block, B's bytes


class Machine(NamedTuple):
    """What shares take: multiply-adds a second of a thread, Python's seconds for a share, bytes a second of all threads
    together from the last-level cache and from memory; how much slower the slowest thread is than the fastest.
    """

    rate: float = 25e9
    python: float = 10e-6
    cache: float = 400e9
    memory: float = 150e9
    uneven: float = 0.0

    def slowness(self, thread: int, threads: int) -> float:
        """How much longer than the fastest a thread takes: threads of all kinds between the two."""
        return 1 + self.uneven * (thread * 7 % threads) / max(1, threads - 1)


def _nothing(*_: int) -> None:
    """What a share does here."""


def blocks(size: int, threads: int) -> Iterator[BlockStages]:
    """The stages of a product of `size` rows, columns and products, as the engines have them."""
    at_once = columns_at_once(threads)
    count = -(-size // at_once) * -(-size // DEPTH)
    before = RowsBefore(buffers(threads, count))
    for j in range(0, size, at_once):
        panels = -(-min(at_once, size - j) // PANEL)
        rows = row_shares(size, panels, PANEL, threads, ROWS, ())
        for k in range(0, size, DEPTH):
            pack = Stage(_nothing, (), column_shares(panels, PANEL, threads), needs=before.of_memory())
            passing = Stage(_nothing, (), rows, 1, [pack], before.of_sums(k > 0))
            before.add(passing)
            yield BlockStages(pack, None, passing)


def seconds(size: int, threads: int, machine: Machine) -> float:
    """How long the last of so many threads is at a product of that size."""
    ready: dict[Stage, list[float]] = {}  # when each share is done
    python = 0.0
    free = [(0.0, thread) for thread in range(threads)]
    heapify(free)
    for stage, i in in_line(blocks(size, threads), threads):
        begin, thread = free[0]
        python = max(python, begin) + machine.python
        needed = [max(ready[s]) for s in stage.needs if s in ready]
        if stage.follows in ready:
            needed.append(ready[stage.follows][i])
        took = _work(stage, i, threads, machine) * machine.slowness(thread, threads)
        end = max([python, *needed]) + took
        ready.setdefault(stage, [0.0] * len(stage.shares))[i] = end
        heapreplace(free, (end, thread))
    return max(free)[0]


def _work(stage: Stage, i: int, threads: int, machine: Machine) -> float:
    """Seconds of a share while all threads work."""
    if not stage.units:
        columns: float = stage.shares[i][1] * PANEL
        return max(columns * USUAL.packing * DEPTH / machine.rate, threads * columns * DEPTH * 2 / machine.memory)
    _, rows, _, panels = stage.shares[i]
    columns = panels * PANEL
    sums: float = rows * (columns + USUAL.packing) * DEPTH / machine.rate
    packed: float
    others: float
    packed, others = -(-rows // ROWS) * columns * DEPTH * BYTES, rows * (columns * 8 + DEPTH * 2)
    return max(sums, threads * packed / machine.cache, threads * others / machine.memory)


def efficiency(size: int, threads: int, machine: Machine) -> float:
    """The sums of a product on one fastest thread, over the time that all threads have together."""
    speeds = sum(1 / machine.slowness(thread, threads) for thread in range(threads))
    return size**3 / machine.rate / speeds / seconds(size, threads, machine)
