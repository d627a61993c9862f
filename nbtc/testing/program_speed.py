"""Programs whose speed is measured, each beside what does the same work without a warp: recorded PTX, larger inputs.

The texts are those of a folder of recorded programs (`nbtc verify --programs`).
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import ml_dtypes
import numpy as np

import nbtc
from nbtc.compiler.jit import jit
from nbtc.executor.code.machine import BlockShape, Options

TILE, THREADS = 64, 128  # of the matrix products and of attention: rows and columns of a block's tile, and its threads
STAGES = 24576  # bytes of shared memory: three stages of two tiles, at most
ELEMENTS = 1 << 24  # of the vector sums
HEADS, SEQUENCE, DEPTH = 8, 1024, 64  # of attention: its two products are as many multiply-adds as one of 1024^3
CHECKED_SIZE = 256  # of the product that is watched
CHECKED_ELEMENTS = 1 << 18  # of the sums that are: their shadow memory is 48 MiB where all granules are split
SUMS = {  # by elements of a thread: a recorded text, and its kernel
    1: ("vector_add.ptx", "vector_add"),
    8: ("triton_add.ptx", "add"),
}
GROUPS = 256  # blocks of the softmax; a row is one block's
OWN = Path(__file__).with_name("ptx")  # texts that the folder of recorded programs has not
NUMBERS = 1_000_000  # whose Collatz sequences are followed
SCRATCH = (None, None)  # pointers after the arguments of Triton's kernels, not used by these
EMPTY = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n"


class Timed(NamedTuple):
    """A launch on `threads` threads, and a call that does as much; floor: how fast at least, relative to that.

    shared: among threads, which a checked launch is not.
    """

    name: str
    launch: Callable[[int], Any]
    reference: Callable[[], Any]
    floor: float
    shared: bool


Calls = tuple[Callable[[int], Any], Callable[[], Any]]  # a launch on so many threads, and the reference


def empty_launch() -> Callable[[], Any]:
    """A launch of a kernel that does nothing: what every launch costs."""
    kernel = nbtc.load(EMPTY)["k"]
    return lambda: kernel[1, 32]()


COMPILED = {  # by what they are called: a recorded text, and its kernel
    "f16 matmul": ("triton_matmul_f16_sm80.ptx", "matmul"),
    "vector sum": ("triton_add.ptx", "add"),
    "layer norm": ("triton_layer_norm.ptx", "layer_norm"),
    "attention": ("triton_attention_sm80.ptx", "attention"),
}


class Seconds(NamedTuple):
    """Of the clock, which a user waits; and of processors, all threads together."""

    waited: float
    processor: float


def compile_seconds(folder: str | Path, name: str = "f16 matmul") -> tuple[Seconds, Seconds]:
    """Until one of Triton's kernels can be launched: compiled, and from the cache on disk."""
    file, kernel = COMPILED[name]
    text = Path(folder) / "ptx" / file
    empty_launch()()  # LLVM begins
    with tempfile.TemporaryDirectory() as cache, mock.patch.dict(os.environ, NBTC_CACHE_DIR=cache):
        return _prepared(text, kernel), min(_prepared(text, kernel) for _ in range(3))


def _prepared(text: Path, kernel: str) -> Seconds:
    clock, processor = time.perf_counter(), time.process_time()
    nbtc.load(text).compiled(kernel, BlockShape.of((THREADS, 1, 1)), Options("sm_90"))
    return Seconds(time.perf_counter() - clock, time.process_time() - processor)


def programs(folder: str | Path, size: int = 1024) -> Iterator[Timed]:
    """All of them; size: of the matrix products."""
    texts = Path(folder) / "ptx"
    return (
        Timed(name, *make(texts, size), floor, shared=make is not _checked) for name, (floor, make) in PROGRAMS.items()
    )


def _product(texts: Path, size: int, name: str, entry: str, dtype: Any) -> Calls:
    """Triton's matrix product (its B transposed for bytes), beside NumPy's in float32."""
    launch = _product_launch(texts / name, size, entry, dtype)[0]
    x, y = (np.random.default_rng(0).standard_normal((size, size), np.float32) for _ in range(2))
    return launch, lambda: x @ y


def _product_launch(text: Path, size: int, entry: str, dtype: Any) -> Calls:
    """Launches of a product, plain and checked."""
    rng = np.random.default_rng(0)
    kernel = nbtc.load(text)[entry]
    a, b = (rng.integers(-8, 8, (size, size)).astype(dtype) for _ in range(2))
    c = np.zeros((size, size), np.int32 if dtype is np.int8 else np.float32)
    blocks = -(-size // TILE)
    grid = (blocks, blocks) if entry == "matmul_nt" else (blocks * blocks,)
    args = (a, b, c, *[size] * 6, *SCRATCH)
    return (
        lambda threads: kernel.launch(grid, THREADS, args, shared=STAGES, threads=threads),
        lambda: kernel.launch(grid, THREADS, args, shared=STAGES, threads=1, checked=True),
    )


def _checked(texts: Path, size: int) -> Calls:
    """A product that is watched, beside the same one that is not."""
    plain, checked = _product_launch(texts / "triton_matmul_f16_sm80.ptx", CHECKED_SIZE, "matmul", np.float16)
    return lambda threads: checked(), lambda: plain(1)


def _attention(texts: Path, size: int) -> Calls:
    """Flash attention, beside a product of as many multiply-adds."""
    rng = np.random.default_rng(0)
    kernel = nbtc.load(texts / "triton_attention_sm80.ptx")["attention"]
    q, k, v = (rng.standard_normal((HEADS, SEQUENCE, DEPTH)).astype(np.float16) for _ in range(3))
    out = np.zeros(q.shape, np.float32)
    args = (q, k, v, out, 1.4426950408889634 / DEPTH**0.5, SEQUENCE, *SCRATCH)
    products, _ = _product_launch(texts / "triton_matmul_f16_sm80.ptx", 1024, "matmul", np.float16)
    return (
        lambda threads: kernel.launch((SEQUENCE // TILE, HEADS), THREADS, args, shared=STAGES, threads=threads),
        lambda: products(1),
    )


def checked_sum(folder: str | Path, each: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A sum of vectors on one thread, watched and not."""
    name, entry = SUMS[each]
    kernel = nbtc.load(Path(folder) / "ptx" / name)[entry]
    x, y, out = (np.ones(CHECKED_ELEMENTS, np.float32) for _ in range(3))
    args = (x, y, out, CHECKED_ELEMENTS, *SCRATCH)[: len(kernel.params)]
    launch = partial(kernel.launch, CHECKED_ELEMENTS // (each * THREADS), THREADS, args)
    return partial(launch, checked=True), partial(launch, threads=1)


def _vector_sum(texts: Path, size: int, each: int) -> Calls:
    """A sum of vectors, `each` elements a thread of a block; Triton's wants its pointers after."""
    name, entry = SUMS[each]
    kernel = nbtc.load(texts / name)[entry]
    x, y, out = (np.ones(ELEMENTS, np.float32) for _ in range(3))
    args = (x, y, out, ELEMENTS, *SCRATCH)[: len(kernel.params)]
    return (
        lambda threads: kernel.launch(ELEMENTS // (each * THREADS), THREADS, args, threads=threads),
        lambda: np.add(x, y, out=out),
    )


def _softmax(texts: Path, size: int, text: Path, rows: int, columns: int) -> Calls:
    kernel = nbtc.load(texts / text)["softmax"]
    x = np.random.default_rng(0).standard_normal((rows, columns), np.float32)
    out = np.zeros_like(x)
    args = (out, x, columns, columns, rows, columns, *SCRATCH)

    def reference() -> Any:
        e = np.exp(x - x.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    return lambda threads: kernel.launch(GROUPS, THREADS, args, shared=16, threads=threads), reference


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


def _collatz(texts: Path, size: int) -> Calls:
    kernel = nbtc.load(texts / "collatz.ptx")["collatz"]
    first = np.arange(1, NUMBERS + 1, dtype=np.uint32)
    steps, peak = np.zeros(NUMBERS, np.uint32), np.zeros(NUMBERS, np.uint64)
    args = (first, steps, peak, NUMBERS)
    blocks = -(-NUMBERS // THREADS)
    return (
        lambda threads: kernel.launch(blocks, THREADS, args, threads=threads),
        lambda: collatz(first, steps, peak),
    )


def _product_of(name: str, entry: str, dtype: Any) -> Callable[[Path, int], Calls]:
    return partial(_product, name=f"triton_matmul_{name}.ptx", entry=entry, dtype=dtype)


# by name: how fast at least, relative to the reference, and what makes the two calls
PROGRAMS: dict[str, tuple[float, Callable[[Path, int], Calls]]] = {
    "f16 matmul, mma": (0.14, _product_of("f16_sm80", "matmul", np.float16)),
    "f16 matmul, wgmma": (0.17, _product_of("f16_sm90", "matmul", np.float16)),
    "int8 matmul, mma": (0.4, _product_of("i8_sm80", "matmul_nt", np.int8)),
    "int8 matmul, wgmma": (0.36, _product_of("i8_sm90", "matmul_nt", np.int8)),
    "e4m3 matmul, wgmma": (0.16, _product_of("fp8_sm90", "matmul_nt", ml_dtypes.float8_e4m3fn)),
    "attention, x its products alone": (1 / 1.5, _attention),
    "vector sum, an element a thread": (0.3, partial(_vector_sum, each=1)),
    "vector sum, 8 elements a thread": (0.3, partial(_vector_sum, each=8)),
    "softmax of rows of 256": (0.3, partial(_softmax, text=Path("triton_softmax.ptx"), rows=16384, columns=256)),
    "softmax of rows of 1000": (
        0.3,
        partial(_softmax, text=OWN / "triton_softmax_1024.ptx", rows=4096, columns=1000),
    ),
    "Collatz, x plain Numba": (0.25, _collatz),
    "checked f16 matmul, x unchecked": (1 / 6, _checked),
}
