"""Batches: items shared out whole, items with one B as rows of one product, and items of which some need repairs."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nbtc
from nbtc.gemm.engines.chain_engine import chain_outputs
from nbtc.testing import assert_bits_equal

RNG = np.random.default_rng(17)
DTYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "s8": np.int8,
    "f64": np.float64,
}
M, N, K, ITEMS = 21, 70, 90, 7


def draw(kind: str, *shape: int) -> np.ndarray:
    """Small numbers of a kind; one Inf or NaN among the floats."""
    x = (RNG.standard_normal(shape) * 10).astype(np.float32).astype(DTYPES[kind])
    if kind != "s8":
        x[(2,) * (x.ndim - 1) + (5,)] = np.nan
    return x


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", DTYPES)
def test_one_b(kind: str, threads: int) -> None:
    """(items, M, K) @ (K, N), with and without c, in order and strided; c may have more axes than a."""
    a, b = draw(kind, ITEMS, M, K), draw(kind, K, N)
    acc = nbtc.matmul(a[0], b).dtype
    c = (RNG.standard_normal((ITEMS, M, N)) * 100).astype(acc)
    strided = np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2)
    for x, y in ((a, b), (strided, b), (a, b[None])):
        plain, added = nbtc.matmul(x, y, threads=threads), nbtc.matmul(x, y, c, threads=threads)
        for i in range(ITEMS):
            assert_bits_equal(plain[i], nbtc.matmul(a[i], b, threads=1), None, f"{kind} item {i}")
            assert_bits_equal(added[i], nbtc.matmul(a[i], b, c[i], threads=1), None, f"{kind} item {i} with c")
    two = np.stack([c, c[::-1]])
    assert_bits_equal(nbtc.matmul(a, b, two, threads=threads)[1, 2], nbtc.matmul(a[2], b, c[-3]), None, kind)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", DTYPES)
def test_items_on_threads(kind: str, threads: int) -> None:
    """Enough work for several threads, in items too small to be divided; progress counts all of it."""
    a, b = draw(kind, 60, M, K), draw(kind, 60, K, N)
    seen: list[tuple[int, int]] = []
    d = nbtc.matmul(a, b, threads=threads, progress=lambda done, total: seen.append((done, total)))
    for i in range(0, 60, 7):
        assert_bits_equal(d[i], nbtc.matmul(a[i], b[i], threads=1), None, f"{kind} item {i}")
    assert seen[-1] == (60 * M * N * K,) * 2 and sorted(seen) == seen


def test_many_small_rows_are_one_product() -> None:
    """Items that one by one would go output by output are rows of a product that is large."""
    a, b = np.ones((400, 2, 64), np.float16), np.ones((64, 32), np.float16)
    p = nbtc.plan(a, b)
    assert p.engine == nbtc.plan(a.reshape(-1, 64), b).engine != nbtc.plan(a[0], b).engine == "chain"
    assert (nbtc.matmul(a, b) == 64).all()


def test_broadcast_batches_are_compiled_once() -> None:
    """Whichever operand has the batch axes, whatever accumulators are: one function of each size of elements."""
    a, b, c = np.eye(4, dtype=np.float16), np.eye(4, dtype=np.float16), np.ones((4, 4), np.float32)
    nbtc.matmul(a, b, c)
    count = len(chain_outputs.signatures)
    for shapes in (((3,), (), ()), ((), (3,), ()), ((), (), (3,)), ((2, 1), (3,), ()), ((2, 3), (2, 3), (2, 3))):
        x, y, z = (np.broadcast_to(v, (*lead, 4, 4)) for v, lead in zip((a, b, c), shapes, strict=True))
        assert (nbtc.matmul(x, y, z) == c + np.eye(4)).all()
    assert (nbtc.matmul(a, b, c.astype(np.float16), acc="f16") == c + np.eye(4)).all()
    assert (nbtc.matmul(a, b) == np.eye(4)).all()
    assert len(chain_outputs.signatures) == count
