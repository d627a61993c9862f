"""Millions of dot products, by the compiled core and by `matmul`, against the exact oracle: all cases, all strategies.

    python tests/tools/oracle_soak.py [--count 10000000] [--processes 2] [--seed 0] [--seconds 1800]

`matmul` computes the same products on its fast engines, where an instruction does the case by itself.  Prints the
figures by arithmetic and exits with 1 when a bit differs, or the core's count is not reached.  A work item is one case
with all its strategies and a seed of its own, so that a mismatch can be repeated.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from nbtc.testing.cases import cases, large_engines
from nbtc.testing.strategies import strategies

SHAPES = ((16, 15), (15, 16), (5, 66), (67, 4))  # also a little beyond the tiles and panels of the engines
Counts = Counter[tuple[str, str]]  # dot products by (what was compared, arithmetic)


def work(item: tuple[int, int]) -> tuple[Counts, list[str]]:
    """One case: products compared, what differs."""
    index, seed = item
    case = cases()[index]
    ways = {"core": case.core} | ({"matmul": case.matmul} if case.instruction() else {})
    oracle, counts, bad = case.oracle(), Counts(), []
    for strategy in strategies(case.formats[0]):
        rng = np.random.default_rng([seed, index, *strategy.encode()])
        bits = case.operands(rng, strategy, *SHAPES[int(rng.integers(len(SHAPES)))])
        want = oracle.matrix(*bits)
        for way, compute in ways.items():
            with large_engines():
                got = compute(*bits)
            counts[way, case.row.id] += got.size
            for i, j in np.argwhere(got != want)[:1]:
                bad.append(
                    f"{case} {strategy} seed {seed} K={bits[0].shape[1]} ({i}, {j}): "
                    f"{way} 0x{int(got[i, j]):x}, oracle 0x{int(want[i, j]):x}"
                )
    return counts, bad


def items(seed: int) -> Iterator[tuple[int, int]]:
    """Work without end, every case in turn."""
    while True:
        yield from ((index, seed) for index in range(len(cases())))
        seed += 1


def main() -> int:
    """Run until the count or the time is reached."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1800)
    options = parser.parse_args()
    start, done, bad = time.monotonic(), Counts(), list[str]()
    source = items(options.seed)
    with ProcessPoolExecutor(options.processes) as pool:
        while _total(done, "core") < options.count and time.monotonic() - start < options.seconds and len(bad) < 20:
            batch = [next(source) for _ in range(options.processes * len(cases()))]
            for counts, differ in pool.map(work, batch, chunksize=8):
                done += counts
                bad += differ
    for (way, name), count in sorted(done.items()):
        print(f"{count:>12,}  {way:<6}  {name}")
    print("\n".join(bad))
    seconds, core = time.monotonic() - start, _total(done, "core")
    print(
        f"{core:,} dot products of the core and {_total(done, 'matmul'):,} of matmul in {seconds:.0f} s "
        f"({done.total() / seconds:,.0f} a second), {len(bad)} mismatches"
    )
    return 1 if bad or core < options.count else 0


def _total(counts: Counts, way: str) -> int:
    return sum(count for (which, _), count in counts.items() if which == way)


if __name__ == "__main__":
    sys.exit(main())
