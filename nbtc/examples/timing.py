"""Times the DPX examples against their plain NumPy versions: `python -m nbtc.examples.timing`.

Smith-Waterman and Needleman-Wunsch on pairs of 1000 x 1000 residues in billions of cell updates a second (GCUPS), both
against NumPy on one pair at a time and on all pairs at once; Floyd-Warshall in billions of relaxations a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc import dpx
from nbtc.examples import alignment, shortest_paths

RESIDUES = 1000


def residues(pairs: int, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Two batches of random proteins, as codes 0..19."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 20, (2, pairs, RESIDUES), dtype=np.int32)
    return a, b


def weights(nodes: int, seed: int = 0) -> NDArray[np.int32]:
    """A dense random graph."""
    w = np.random.default_rng(seed).integers(1, 1000, (nodes, nodes), dtype=np.int32)
    np.fill_diagonal(w, 0)
    return w


def best_time(call: Callable[[], Any], repeat: int = 3) -> float:
    """The shortest of a few runs, in seconds, after one that compiles."""
    call()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def alignments(pairs: int = 64) -> None:
    """Cell updates a second, and how many times those of NumPy they are."""
    a, b = residues(pairs)
    for name in ("smith_waterman", "needleman_wunsch"):
        fast, plain = getattr(alignment, name), getattr(alignment, f"plain_{name}")
        if not np.array_equal(fast(a, b), plain(a, b)):
            raise RuntimeError(f"{name} and its NumPy version disagree; that is a bug in nbtc")
        one = RESIDUES**2 / best_time(partial(plain, a[:1], b[:1])) / 1e9
        many = pairs * RESIDUES**2 / best_time(partial(plain, a, b), 1) / 1e9
        for threads in (1, None):
            rate = pairs * RESIDUES**2 / best_time(partial(fast, a, b, threads=threads)) / 1e9
            print(
                f"{name:18} {'1 thread' if threads else 'all CPUs'}: {rate:6.2f} GCUPS, "
                f"{rate / one:4.0f}x NumPy pair by pair ({one:.3f}), {rate / many:4.1f}x all pairs at once ({many:.3f})"
            )


def paths(sizes: tuple[int, ...] = (256, 512, 1024)) -> None:
    """Relaxations a second, and how many times those of NumPy they are."""
    for nodes in sizes:
        w = weights(nodes)
        fast = nodes**3 / best_time(partial(shortest_paths.floyd_warshall, w)) / 1e9
        plain = nodes**3 / best_time(partial(shortest_paths.plain_floyd_warshall, w), 1) / 1e9
        print(f"floyd_warshall {nodes:5} nodes: {fast:6.2f} G/s, {fast / plain:4.1f}x NumPy ({plain:.2f})")


def functions(elements: int = 1 << 16) -> None:
    """Results a second of single functions on arrays, with out=."""
    rng = np.random.default_rng(0)
    for name in ("vimax3_s32", "viaddmax_s32_relu", "viaddmin_s32", "viaddmax_s16x2", "vimin3_u16x2"):
        dtype = np.int32 if "_s32" in name else np.uint32
        a, b, c = rng.integers(-(2**31), 2**31, (3, elements)).astype(np.int32).view(dtype)
        out = np.empty(elements, dtype)
        seconds = best_time(partial(getattr(dpx, name), a, b, c, out=out), 200)
        print(f"{name:18} {elements} elements: {elements / seconds / 1e9:5.2f} G results/s")


if __name__ == "__main__":
    functions()
    alignments()
    paths()
