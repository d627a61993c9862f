"""Products of dask arrays: the bits of one call, whatever the chunks, the scheduler and what happens to workers."""

import warnings

import dask
import dask.array as da
import numpy as np
import pytest
import zarr

import nbtc
from nbtc.errors import FormatError, RechunkWarning, ShapeError, UnsupportedInstructionError
from nbtc.testing import assert_bits_equal


def operands(*batch, m=50, k=96, n=34, dtype=np.float16):
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((*batch, m, k)), rng.standard_normal((*batch, k, n))
    if np.dtype(dtype).kind == "i":
        return (100 * a).astype(dtype), (100 * b).astype(dtype)
    return a.astype(dtype), b.astype(dtype)


@pytest.fixture(autouse=True)
def synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.mark.parametrize("chunks", [(50, 96, 34), (20, 32, 10), (7, 16, 34), (50, 48, 5)])
@pytest.mark.parametrize("with_c", [False, True])
def test_any_chunks_give_the_bits_of_one_call(chunks, with_c):
    a, b = operands()
    c = np.random.default_rng(1).standard_normal((50, 34)).astype(np.float32) if with_c else None
    m, k, n = chunks
    d = nbtc.dask.matmul(da.from_array(a, chunks=(m, k)), da.from_array(b, chunks=(k, n)), c)
    assert d.dtype == np.float32 and d.chunks[0][0] == m and d.chunks[1][0] == n
    assert_bits_equal(d.compute(), nbtc.matmul(a, b, c))


@pytest.mark.parametrize(
    ("order", "k"),
    [
        ("split3x32", 32),
        ("promote16", 48),
        ("slice32/2", 96),
        ("resfirst36", 96),
        ("split2x48:resfirst36", 96),
        ("segment3x16", 96),
    ],
)
def test_orders_follow_the_chain_through_chunks(order, k):
    a, b = operands()
    c = np.ones((50, 34), np.float32)
    x, y = da.from_array(a, chunks=(30, k)), da.from_array(b, chunks=(k, 20))
    assert_bits_equal(nbtc.dask.matmul(x, y, c, order=order).compute(), nbtc.matmul(a, b, c, order=order))


def test_k_split_scales_and_named_steps():
    a, b = operands()
    x, y = da.from_array(a, chunks=(30, 48)), da.from_array(b, chunks=(48, 20))
    rows, columns = np.random.default_rng(1).random((50, 1), np.float32), np.float32([[0.3]])
    more = {"k_split": 24, "scale_a": rows, "scale_b": columns}
    assert_bits_equal(nbtc.dask.matmul(x, y, **more).compute(), nbtc.matmul(a, b, **more))
    across = np.random.default_rng(1).random((1, 34), np.float32)
    assert_bits_equal(nbtc.dask.matmul(x, y, scale_b=across).compute(), nbtc.matmul(a, b, scale_b=across))
    assert_bits_equal(nbtc.dask.matmul(x, y, order="k8:seq").compute(), nbtc.matmul(a, b, order="k8:seq"))


def test_batches_broadcast():
    a, b = operands(4, 3, m=10, k=32, n=6)
    x = da.from_array(a, chunks=(2, 1, 5, 16))
    for other, chunks in ((b, (2, 3, 16, 6)), (b[:, :1], (1, 1, 32, 6)), (b[0, 0], (16, 3)), (b[0], (1, 16, 3))):
        y = da.from_array(other, chunks=chunks)
        assert_bits_equal(nbtc.dask.matmul(x, y).compute(), nbtc.matmul(a, other))
    flipped = nbtc.dask.matmul(da.from_array(a[0, 0], chunks=(5, 16)), da.from_array(b, chunks=(1, 3, 16, 6)))
    assert_bits_equal(flipped.compute(), nbtc.matmul(a[0, 0], b))


def test_packed_words_and_saturation():
    a, b = operands(m=20, k=128, n=12, dtype=np.int8)
    a, b = a >> 5, b >> 5
    words = nbtc.pack(a, "s4"), nbtc.pack(b, "s4", axis=-2)
    x, y = da.from_array(words[0], chunks=(10, 8)), da.from_array(words[1], chunks=(8, 12))
    start = np.full((20, 12), 2**31 - 40, np.int32)
    more = {"a_format": "s4", "b_format": "s4", "saturate": True}
    d = nbtc.dask.matmul(x, y, start, **more).compute()
    assert_bits_equal(d, nbtc.matmul(*words, start, **more))
    with pytest.raises(FormatError, match="pack both"):
        nbtc.dask.matmul(x, da.from_array(nbtc.unpack(words[1], "s4", axis=-2)), a_format="s4")


def test_chunks_that_do_not_meet_are_rechunked_with_a_message():
    a, b = operands()
    x, y = da.from_array(a, chunks=(50, 40)), da.from_array(b, chunks=(13, 34))
    with pytest.warns(RechunkWarning, match=r"\(40, 40, 16\) are rechunked to \(32, 32, 32\)"):
        d = nbtc.dask.matmul(x, y)
    assert_bits_equal(d.compute(), nbtc.matmul(a, b))
    with pytest.warns(RechunkWarning, match="slice32/2"):
        nbtc.dask.matmul(da.from_array(a, chunks=(50, 32)), y, order="slice32/2")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nbtc.dask.matmul(da.from_array(a, chunks=(50, 32)), y)  # b follows a


def test_nothing_to_sum():
    c = np.ones((4, 3), np.float32)
    d = nbtc.dask.matmul(np.zeros((4, 0), np.float16), np.zeros((0, 3), np.float16), c)
    assert_bits_equal(d.compute(), c)
    assert nbtc.dask.matmul(np.zeros((0, 16), np.float16), np.zeros((16, 3), np.float16)).compute().shape == (0, 3)


def test_errors_come_before_any_work():
    a, b = operands()
    with pytest.raises(ShapeError):
        nbtc.dask.matmul(a, b[:-1])
    with pytest.raises(UnsupportedInstructionError):
        nbtc.dask.matmul(a, b, arch="sm_70", acc="f16", instruction="wgmma")
    unknown = da.from_array(a)[da.from_array(a[:, 0] > 0)]
    with pytest.raises(ShapeError, match="compute_chunk_sizes"):
        nbtc.dask.matmul(unknown, b)


def test_the_plan_says_what_a_task_needs():
    x = da.zeros((8192, 4096), chunks=(1024, 512), dtype=np.float16)
    p = nbtc.dask.plan(x, x.T, k_split=512)
    assert (p.tasks, p.steps_of_k) == (8 * 8 * 8, 8) and p.chunks == ((1024,) * 8, (1024,) * 8)
    assert 2 * 1024 * 512 * 2 + 4 * 1024**2 < p.task_bytes < p.product.peak_bytes
    assert "512 tasks" in str(p) and "MiB a thread" in str(p)


@pytest.mark.parametrize("scheduler", ["threads", "synchronous"])
def test_zarr_to_zarr(tmp_path, scheduler):
    a, b = operands()
    source = zarr.open(tmp_path / "a", mode="w", shape=a.shape, chunks=(20, 32), dtype=a.dtype)
    source[:] = a
    target = zarr.open(tmp_path / "d", mode="w", shape=(50, 34), chunks=(20, 34), dtype=np.float32)
    with dask.config.set(scheduler=scheduler):
        da.store(nbtc.dask.matmul(da.from_zarr(source), b), target)
    assert_bits_equal(target[:], nbtc.matmul(a, b))
    nbtc.matmul(a, b, out=target)  # and without dask
    assert_bits_equal(target[:], nbtc.matmul(a, b))
