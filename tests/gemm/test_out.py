"""out=: arrays, memory maps and zarr-like objects, written in blocks without a second buffer of the result's size."""

import numpy as np
import pytest

import nbtc
from nbtc.errors import FormatError, ShapeError
from nbtc.gemm import out as out_module
from nbtc.gemm.planning import _decided
from nbtc.testing import assert_bits_equal


class Chunked:
    """As much of a zarr array as `out` needs; remembers what was written."""

    def __init__(self, shape, dtype, chunks):
        self.array, self.chunks, self.writes = np.zeros(shape, dtype), chunks, []
        self.shape, self.dtype = shape, np.dtype(dtype)

    def __setitem__(self, key, value):
        self.writes.append((key, value.shape))
        self.array[key] = value


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(out_module, "BLOCK_BYTES", 4096)
    monkeypatch.setattr(out_module, "BLOCK_ROWS", 8)
    _decided.cache_clear()
    yield
    _decided.cache_clear()


def operands(m, k, n, batch=()):
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((*batch, m, k)), rng.standard_normal((*batch, k, n))
    c = rng.standard_normal((*batch, m, n))
    return a.astype(np.float16), b.astype(np.float16), c.astype(np.float32)


@pytest.mark.parametrize("options", [{}, {"order": "split3x16"}, {"scale_a": 0.3}])
def test_a_memory_map_gets_the_same_bits(tmp_path, small_blocks, options):
    a, b, c = operands(45, 40, 70)
    want = nbtc.matmul(a, b, c, **options)
    file = np.memmap(tmp_path / "d", np.float32, "w+", shape=(45, 70))
    assert nbtc.matmul(a, b, c, out=file, **options) is file
    assert_bits_equal(np.asarray(file), want)
    assert nbtc.plan(a, b, c, out=file, **options).block == (14, 70)


def test_blocks_follow_chunks(small_blocks):
    a, b, _ = operands(45, 40, 70)
    d = Chunked((45, 70), np.float32, (4, 9))
    assert nbtc.matmul(a, b, out=d) is d
    assert_bits_equal(d.array, nbtc.matmul(a, b))
    assert [shape for _, shape in d.writes] == [(16, 70), (16, 70), (13, 70)]


@pytest.mark.parametrize("shape", [(5, 7, 20, 8), (2, 1, 45, 70), (9, 3, 5)])
def test_batches(small_blocks, shape):
    *batch, m, n = shape
    a, b, c = operands(m, 24, n, tuple(batch))
    rows = np.random.default_rng(4).random((*batch, m, 1)).astype(np.float32)
    for x, y, z in ((a, b, c), (a[:1], b, c), (a[0], b, c[:1]), (a, b[0], None)):
        d = np.empty((*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), m, n), np.float32)
        nbtc.matmul(x, y, z, out=d, scale_a=rows)
        assert_bits_equal(d, nbtc.matmul(x, y, z, scale_a=rows))


def test_out_may_be_c_or_overlap_an_operand(small_blocks):
    a, b, c = operands(45, 70, 70)
    want = nbtc.matmul(a, b, c)
    assert_bits_equal(nbtc.matmul(a, b, c, out=c), want)
    buffer = np.zeros((50, 70), np.float32)
    x, d = buffer[:45], buffer[5:]
    x[...] = np.random.default_rng(8).standard_normal(x.shape)
    y = b.astype(np.float32)
    want = nbtc.matmul(x, y)
    assert nbtc.plan(x, y, out=d).block == (45, 70)  # whole: rows of d are rows of a still to be read
    nbtc.matmul(x, y, out=d)
    assert_bits_equal(d, want)


def test_the_plan_counts_a_block_only():
    a, b = np.zeros((30_000, 64), np.int8), np.zeros((64, 30_000), np.int8)
    whole = nbtc.plan(a, b).peak_bytes
    d = Chunked((30_000, 30_000), np.int32, (1024, 1024))
    plan = nbtc.plan(a, b, out=d)
    assert plan.block == (1024, 30_000)
    assert plan.peak_bytes < 300 << 20 and whole >= 4 * 30_000**2  # the result alone is so large


def test_what_is_no_out():
    a, b, _ = operands(4, 16, 4)
    with pytest.raises(FormatError, match="list"):
        nbtc.matmul(a, b, out=[[0.0] * 4] * 4)
    with pytest.raises(ShapeError, match="out has shape"):
        nbtc.matmul(a, b, out=Chunked((4, 5), np.float32, (1, 1)))
    with pytest.raises(FormatError, match="float64"):
        nbtc.matmul(a, b, out=Chunked((4, 4), np.float64, (1, 1)))
    with pytest.raises(FormatError, match=r"masked.*out\.data"):
        nbtc.matmul(a, b, out=np.ma.zeros((4, 4), np.float32))
