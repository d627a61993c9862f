"""The tiled product of the examples at a size: `python scripts/kernels.py [SIZE]`.

Prints what compiling costs, then latency and error of the wmma kernel and of plain kernels, a thread an element, in f32
and f16, beside `nbtc.gemm` and NumPy.  Errors are against float64, relative to the largest element of the result.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nbtc
from nbtc.examples.kernels import gemm as example

THREADS = 16  # of a side of a plain kernel's block


def best(run: Callable[[], Any], repeat: int = 3) -> float:
    """The shortest of a few runs, in seconds."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def plain(a: NDArray[Any], b: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """a @ b, one thread an element, summed in dtype."""
    (m, k), n = a.shape, b.shape[1]
    d = np.zeros((m, n), dtype)
    grid = -(-m // THREADS), -(-n // THREADS)
    example.plain_gemm[grid, (THREADS, THREADS)](a.astype(dtype), b.astype(dtype), d, d, m, n, k, 1.0, 0.0)
    return d


def main(size: int) -> None:
    """Print the table for square matrices."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, size, size)).astype(np.float16)
    c = np.zeros((size, size), np.float32)
    start = time.perf_counter()
    example.gemm(a[:16, :16], b[:16, :16], c[:16, :16])
    print(f"first launch, compilation included: {time.perf_counter() - start:.2f} s")
    exact = a.astype(np.float64) @ b.astype(np.float64)
    want = nbtc.gemm(1.0, a, b, 0.0, c, instruction="wmma")
    differing = int((example.gemm(a, b, c) != want).sum())
    print(f"{size}^3: {differing} elements differ from nbtc.gemm\n{'':24}{'ms':>10}{'error':>12}")
    rows: list[tuple[str, Callable[[], NDArray[Any]]]] = [
        ("wmma kernel", lambda: example.gemm(a, b, c)),
        ("plain kernel, f32", lambda: plain(a, b, np.float32)),
        ("plain kernel, f16", lambda: plain(a, b, np.float16)),
        ("nbtc.gemm", lambda: nbtc.gemm(1.0, a, b, 0.0, c, instruction="wmma")),
        ("numpy, f32", lambda: a.astype(np.float32) @ b.astype(np.float32)),
    ]
    for name, run in rows:
        error = np.abs(run().astype(np.float64) - exact).max() / np.abs(exact).max()
        print(f"{name:24}{1e3 * best(run, 1 if name.startswith('plain') else 5):10.1f}{error:12.1e}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1024)
