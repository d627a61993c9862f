"""Millions of dot products of the compiled core against the exact oracle, over all cases and strategies.

    python tests/tools/oracle_soak.py [--count 10000000] [--processes 2] [--seed 0] [--seconds 1800]

Prints the figures by arithmetic and exits with 1 when a bit differs.  A work item is one case with all its strategies
and a seed of its own, so that a mismatch can be repeated.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from nbtc._jit import jit
from nbtc.numerics.fused import chain
from nbtc.testing.cases import cases
from nbtc.testing.strategies import strategies

M, N = 16, 15


@jit
def chains(a, b, c, params):
    """d[i, j] of uint64 words; one specialisation serves all formats."""
    m, n, k = a.shape[0], b.shape[1], a.shape[1]
    d = np.empty((m, n), np.uint64)
    fa, fb = a.reshape(-1), b.reshape(-1)
    for i in range(m):
        for j in range(n):
            d[i, j] = chain(fa, i * k, 1, fb, j, n, k, c[i, j], params)
    return d


def work(item: tuple[int, int]) -> tuple[str, int, list[str]]:
    """One case: (its arithmetic, products compared, what differs)."""
    index, seed = item
    case = cases()[index]
    oracle, params, count, bad = case.oracle(), case.params(), 0, []
    for strategy in strategies(case.formats[0]):
        rng = np.random.default_rng([seed, index, *strategy.encode()])
        a, b, c = (np.ascontiguousarray(x) for x in case.operands(rng, strategy, M, N))
        words = [x.astype(f.bits_dtype) for x, f in zip((a, b), case.formats[:2], strict=True)]
        got, want = chains(*words, c, params), oracle.matrix(a, b, c)
        count += got.size
        for i, j in np.argwhere(got != want)[:1]:
            bad.append(
                f"{case} {strategy} seed {seed} ({i}, {j}): core 0x{int(got[i, j]):x}, oracle 0x{int(want[i, j]):x}"
            )
    return case.row.id, count, bad


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
    start, done, bad = time.monotonic(), Counter[str](), list[str]()
    source = items(options.seed)
    with ProcessPoolExecutor(options.processes) as pool:
        while done.total() < options.count and time.monotonic() - start < options.seconds and len(bad) < 20:
            batch = [next(source) for _ in range(4 * len(cases()))]
            for name, count, differ in pool.map(work, batch, chunksize=8):
                done[name] += count
                bad += differ
    for name, count in sorted(done.items()):
        print(f"{count:>12,}  {name}")
    print("\n".join(bad))
    seconds = time.monotonic() - start
    rate = done.total() / seconds
    print(f"{done.total():,} dot products in {seconds:.0f} s ({rate:,.0f} a second), {len(bad)} mismatches")
    return 1 if bad or done.total() < options.count else 0


if __name__ == "__main__":
    sys.exit(main())
