"""How products are dealt to threads: tasks cover the block once, and idle threads are few, up to 64."""

from __future__ import annotations

from heapq import heapreplace

import ml_dtypes
import numpy as np
import pytest

import nbtc
from nbtc.gemm.shares import PACKING, column_shares, columns_at_once, row_shares

BLOCK, PANEL = 64, 64  # of fused products


@pytest.mark.parametrize("threads", [1, 2, 3, 16, 64])
@pytest.mark.parametrize(("rows", "panels"), [(1, 1), (64, 16), (100, 3), (1000, 16), (4096, 64)])
@pytest.mark.parametrize("heights", [(), (24,)])
def test_tasks_cover_a_block_once(threads: int, rows: int, panels: int, heights: tuple[int, ...]) -> None:
    """Every row of every panel is in one task, and every panel of B is packed by one."""
    seen = np.zeros((rows, panels), int)
    for i, n, p, wide in row_shares(rows, panels, PANEL, threads, BLOCK, heights):
        assert n > 0 and wide > 0
        seen[i : i + n, p : p + wide] += 1
    assert (seen == 1).all()
    packed = np.zeros(panels, int)
    for p, wide in column_shares(panels, PANEL, threads):
        packed[p : p + wide] += 1
    assert (packed == 1).all()


@pytest.mark.parametrize("threads", [2, 4, 8, 16, 32, 64])
@pytest.mark.parametrize("size", [2048, 4096, 8192])
def test_threads_are_busy(threads: int, size: int) -> None:
    """Of a large product at least 85 % of all threads' time is sums, as tasks are taken in order by idle threads."""
    columns = min(size, columns_at_once(threads))
    ends = [0] * threads
    for _, rows, _, panels in row_shares(size, columns // PANEL, PANEL, threads, BLOCK, ()):
        heapreplace(ends, ends[0] + rows * (panels * PANEL + PACKING))
    assert size * columns > 0.85 * threads * max(ends)


@pytest.mark.parametrize("threads", [8, 16])
@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, np.float32, np.int8, np.float64])
def test_wide_blocks_of_many_threads_make_the_same_bits(kind: type, threads: int) -> None:
    """More columns than one thread packs at once, with a last block that is narrow, into `out` too."""
    rng = np.random.default_rng(3)
    a, b = (np.asarray(rng.standard_normal(shape) * 30).astype(kind) for shape in ((130, 96), (96, 2500)))
    c = rng.standard_normal((130, 2500)) * 9
    alone = nbtc.matmul(a, b, threads=1)
    c = c.astype(alone.dtype)
    assert nbtc.matmul(a, b, threads=threads).tobytes() == alone.tobytes()
    out = np.empty_like(alone)
    nbtc.matmul(a, b, c, out=out, threads=threads)
    assert out.tobytes() == nbtc.matmul(a, b, c, threads=1).tobytes()


def test_a_large_result_is_copied_whole() -> None:
    """By several threads into an array whose rows do not lie one after the other, and for accumulators of f16."""
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((1030, 16), (16, 2100)))
    for acc in ("f32", "f16"):
        alone = nbtc.matmul(a, b, acc=acc, threads=1)
        out = np.zeros((2100, 1030), alone.dtype).T
        nbtc.matmul(a, b, acc=acc, out=out, threads=3)
        assert out.tobytes() == alone.tobytes()
