"""How products are dealt to threads: tasks cover the block once, and idle threads are few, up to 64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nbtc
from nbtc.compiler.stages import Stage
from nbtc.gemm.shares import USUAL, Costs, column_shares, in_line, row_shares
from nbtc.testing.thread_simulation import Machine, blocks, efficiency, seconds

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


@pytest.mark.parametrize("uneven", [0, 0.3])
@pytest.mark.parametrize("threads", [2, 4, 8, 16, 32, 64])
@pytest.mark.parametrize("size", [4096, 8192])
def test_threads_are_busy(threads: int, size: int, uneven: float) -> None:
    """Of a large product 85 % of all threads' time is sums, also where the slowest takes 1.3 times the fastest's."""
    assert 0.85 < efficiency(size, threads, Machine(uneven=uneven)) < 1


@pytest.mark.parametrize("threads", [2, 16])
def test_fast_sums_are_cut_into_fewer_tasks(threads: int) -> None:
    """Where packing a row takes as long as a hundred columns of sums, tasks are wider: rows are packed less often."""
    usual, fast = (row_shares(4096, 128, 32, threads, 96, (), costs) for costs in (USUAL, Costs(110, 4096)))
    packed, packed_fast = (sum(rows for _, rows, _, _ in work) for work in (usual, fast))
    assert packed_fast < packed and threads <= len(fast) < len(usual)


def test_a_simulated_thread_alone_waits_for_nobody() -> None:
    """It packs, sums and is in Python, one after the other."""
    shares = [
        (stage, i) for block in blocks(2048, 1) for stage in (block.pack, block.rows) for i in range(len(stage.shares))
    ]
    free = Machine(python=0, cache=float("inf"), memory=float("inf"))
    lines = sum(s.shares[i][1] * (1 if s.units else PANEL) for s, i in shares)  # rows of A, and columns of B
    packing = USUAL.packing * lines * 512
    assert seconds(2048, 1, free) == pytest.approx((2048**3 + packing) / free.rate)
    in_python = free._replace(python=1.0)
    assert seconds(2048, 1, in_python) == pytest.approx(len(shares) + seconds(2048, 1, free))


def test_shares_come_after_what_they_need() -> None:
    """In the order of the line, and no block is packed into memory that rows still pass."""
    for threads in (1, 2, 16):
        done: dict[Stage, set[int]] = {}
        for stage, i in in_line(blocks(3000, threads), threads):
            assert all(len(done[need]) == len(need.shares) for need in stage.needs)
            assert stage.follows is None or i in done[stage.follows]
            done.setdefault(stage, set()).add(i)
        assert all(len(numbers) == len(stage.shares) for stage, numbers in done.items())


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
