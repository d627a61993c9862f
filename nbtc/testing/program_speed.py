"""Programs whose speed is measured, each beside what does the same work without a warp: recorded PTX, larger inputs.

The texts are those of a folder of recorded programs (`nbtc verify --programs`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import nbtc
from nbtc.compiler.jit import jit

TILE, THREADS = 64, 128  # of the matrix products: rows and columns of a block's tile, and its threads
ELEMENTS, BLOCK = 1 << 24, 1024  # of the vector sum, and those of a block
ROWS, COLUMNS, GROUPS = 16384, 256, 256  # of the softmax (a row is one block's, at most 256 wide), and its blocks
NUMBERS = 1_000_000  # whose Collatz sequences are followed
SCRATCH = (None, None)  # pointers behind the arguments of Triton's kernels, not used by these
EMPTY = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n"


class Timed(NamedTuple):
    """A launch on `threads` threads, and a call that does as much; floor: how fast at least, relative to that."""

    name: str
    launch: Callable[[int], Any]
    reference: Callable[[], Any]
    floor: float


def empty_launch() -> Callable[[], Any]:
    """A launch of a kernel that does nothing: what every launch costs."""
    kernel = nbtc.load(EMPTY)["k"]
    return lambda: kernel[1, 32]()


def programs(folder: str | Path, size: int = 1024) -> tuple[Timed, ...]:
    """All of them; size: of the matrix products."""
    texts = Path(folder) / "ptx"
    return (
        _product(texts / "triton_matmul_f16_sm80.ptx", "matmul", size, np.float16, 0.14),
        _product(texts / "triton_matmul_i8_sm80.ptx", "matmul_nt", size, np.int8, 0.4),
        _vector_sum(texts / "triton_add.ptx"),
        _softmax(texts / "triton_softmax.ptx"),
        _collatz(texts / "collatz.ptx"),
    )


def _product(text: Path, entry: str, size: int, dtype: Any, floor: float) -> Timed:
    """Triton's matrix product (its B transposed for integers), beside NumPy's in float32."""
    rng = np.random.default_rng(0)
    kernel = nbtc.load(text)[entry]
    a, b = (rng.integers(-8, 8, (size, size)).astype(dtype) for _ in range(2))
    c = np.zeros((size, size), np.int32 if dtype is np.int8 else np.float32)
    blocks = -(-size // TILE)
    grid = (blocks, blocks) if entry == "matmul_nt" else (blocks * blocks,)
    args = (a, b, c, *[size] * 6, *SCRATCH)
    x, y = (rng.standard_normal((size, size), np.float32) for _ in range(2))
    shared = 16384  # as recorded: two stages of two tiles
    return Timed(
        f"{np.dtype(dtype).name} matmul {size}^3",
        lambda threads: kernel.launch(grid, THREADS, args, shared=shared, threads=threads),
        lambda: x @ y,
        floor,
    )


def _vector_sum(text: Path) -> Timed:
    kernel = nbtc.load(text)["add"]
    x, y, out = (np.ones(ELEMENTS, np.float32) for _ in range(3))
    args = (x, y, out, ELEMENTS, *SCRATCH)
    return Timed(
        "vector sum of 16 M floats",
        lambda threads: kernel.launch(ELEMENTS // BLOCK, THREADS, args, threads=threads),
        lambda: np.add(x, y, out=out),
        0.3,
    )


def _softmax(text: Path) -> Timed:
    kernel = nbtc.load(text)["softmax"]
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), np.float32)
    out = np.zeros_like(x)
    args = (out, x, COLUMNS, COLUMNS, ROWS, COLUMNS, *SCRATCH)

    def reference() -> Any:
        e = np.exp(x - x.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    return Timed(
        f"softmax {ROWS} x {COLUMNS}",
        lambda threads: kernel.launch(GROUPS, THREADS, args, shared=16, threads=threads),
        reference,
        0.3,
    )


@jit()
def collatz(first, steps, peak):
    """What the kernel does, in one thread of plain Numba."""
    for i in range(first.size):
        x, count, most = np.uint64(first[i]), 0, np.uint64(first[i])
        while x > np.uint64(1):
            x = np.uint64(3) * x + np.uint64(1) if x & np.uint64(1) else x >> np.uint64(1)
            count += 1
            most = max(most, x)
        steps[i], peak[i] = count, most


def _collatz(text: Path) -> Timed:
    kernel = nbtc.load(text)["collatz"]
    first = np.arange(1, NUMBERS + 1, dtype=np.uint32)
    steps, peak = np.zeros(NUMBERS, np.uint32), np.zeros(NUMBERS, np.uint64)
    args = (first, steps, peak, NUMBERS)
    blocks = -(-NUMBERS // THREADS)
    return Timed(
        "Collatz of 1 M numbers, x plain Numba",
        lambda threads: kernel.launch(blocks, THREADS, args, threads=threads),
        lambda: collatz(first, steps, peak),
        0.25,
    )
