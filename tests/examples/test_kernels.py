"""The kernels of the tutorial, bit for bit."""

import ml_dtypes
import numpy as np
import pytest

import nbtc
from nbtc.errors import ShapeError
from nbtc.examples import alignment as reference
from nbtc.examples.kernels import (
    alignment,
    attention,
    exchange,
    gemm,
    hopper,
    multistage,
    narrow,
    sparse,
    tiles,
    warpgroup,
)
from nbtc.executor.launch import process_wide
from nbtc.testing import assert_bits_equal

pytestmark = pytest.mark.hw
RNG = np.random.default_rng(5)


def test_one_tile():
    a, b = RNG.standard_normal((2, 16, 16)).astype(np.float16)
    c = np.zeros((16, 16), np.float32)
    tiles.multiply_tile[1, 32](a.T.copy(), b, c)
    assert_bits_equal(c, nbtc.matmul(a, b, instruction="wmma"))


def test_what_threads_hold():
    a, b = tiles.fragments_of_a_counting_matrix()
    assert a[0].tolist() == [0, 1, 128, 129, 8, 9, 136, 137] * 2
    assert b[0].tolist() == [0, 16, 128, 144, 8, 24, 136, 152] * 2
    assert a[31].tolist() == [118, 119, 246, 247, 126, 127, 254, 255] * 2
    assert b[31].tolist() == [103, 119, 231, 247, 111, 127, 239, 255] * 2


@pytest.mark.parametrize("size", [(80, 48, 32), (128, 144, 64)])
def test_tiled_product_with_bounds(size):
    m, n, k = size
    a, b = RNG.standard_normal((m, k)).astype(np.float16), RNG.standard_normal((k, n)).astype(np.float16)
    c = RNG.standard_normal((m, n)).astype(np.float32)
    alpha, beta = np.float32(1.7), np.float32(-0.3)
    assert_bits_equal(gemm.gemm(a, b, c, alpha, beta), nbtc.gemm(alpha, a, b, beta, c, instruction="wmma"))


def test_plain_product_is_one_addition_after_another():
    a, b = RNG.standard_normal((20, 12)).astype(np.float32), RNG.standard_normal((12, 9)).astype(np.float32)
    d, want = np.zeros((20, 9), np.float32), np.zeros((20, 9), np.float32)
    gemm.plain_gemm[(2, 1), (16, 16)](a, b, d, d, 20, 9, 12, 1.0, 0.0)
    for p in range(12):
        want += a[:, p, None] * b[None, p]
    assert_bits_equal(d, want)


def test_exchanges():
    x = RNG.integers(0, 100, 64).astype(np.int32)
    first, sums, totals = x.copy(), x.copy(), x.copy()
    exchange.broadcast[2, 32](first)
    exchange.scan_by_eight[2, 32](sums)
    exchange.reduce_by_butterfly[2, 32](totals)
    assert_bits_equal(first, np.repeat(x[::32], 32))
    assert_bits_equal(sums, x.reshape(-1, 8).cumsum(axis=1).astype(np.int32).reshape(-1))
    assert_bits_equal(totals, np.repeat(x.reshape(2, 32).sum(axis=1), 32).astype(np.int32))


def test_blocks_take_turns():
    lock, counters = np.zeros(1, np.int32), np.zeros(5, np.int64)
    exchange.count_in_turn[200, 64](lock, counters)
    assert counters.tolist() == [200] * 5 and lock[0] == 0


def test_bits_and_nibbles():
    for ours, plain in narrow.products(seed=9):
        assert (ours == plain).all()


def test_sparse_product_is_a_chain_of_instructions():
    form = nbtc.instruction(sparse.FORM)
    dense = sparse.pruned(RNG.standard_normal((16, 96))).astype(np.float16)
    b = RNG.standard_normal((96, 8)).astype(np.float16)
    d = form.pack_c(np.zeros((16, 8), np.float32))
    for k in range(0, 96, 32):
        stored, meta = nbtc.sparse.compress(dense[:, k : k + 32], form)
        d = form(form.pack_a(stored), form.pack_b(b[k : k + 32]), d, meta)
    assert_bits_equal(sparse.gemm(dense, b), form.unpack_d(d))


def test_texts_have_the_version_that_their_instructions_need():
    """A driver refuses an instruction of a later PTX version than the text's."""
    words, numbers = np.zeros((1, 1, 32, 4), np.uint32), np.zeros((16, 8), np.float32)
    assert ".version 8.5" in sparse.sparse_gemm.ptx(words, words[..., 0].copy(), words, numbers)
    halves = np.zeros((16, 16), np.float16)
    assert ".version 8.0" in tiles.multiply_tile.ptx(halves, halves, np.zeros((16, 16), np.float32))


def test_alignment():
    a, b = RNG.integers(0, 20, (5, 40)), RNG.integers(0, 20, (5, 32))
    assert_bits_equal(alignment.scores(a, b), reference.smith_waterman(a, b))


def test_four_layouts_of_a_warpgroup():
    a, b = RNG.standard_normal((64, 16)).astype(np.float16), RNG.standard_normal((16, 32)).astype(np.float16)
    for d in warpgroup.products(a, b):
        assert_bits_equal(d, nbtc.matmul(a, b))


def test_attention_of_several_blocks():
    q, k, v = (RNG.standard_normal((n, 16)).astype(np.float16) for n in (48, 64, 64))
    scores = q.astype(float) @ k.astype(float).T / 4
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    want = weights @ v.astype(float) / weights.sum(axis=1, keepdims=True)
    found = attention.attend(q, k, v)
    assert np.abs(found - want).max() < 2e-3  # weights and result are rounded to half
    whole = attention.attend(np.concatenate([q, q]), k, v)
    assert_bits_equal(whole, np.concatenate([found, found]))


def halves(m, n, k):
    return RNG.standard_normal((m, k)).astype(np.float16), RNG.standard_normal((n, k)).astype(np.float16)


@pytest.mark.parametrize(("blocks", "cluster", "checked"), [(1, None, True), (3, 1, False), (2, 2, True)])
def test_a_warpgroup_fetches_and_two_multiply(blocks, cluster, checked, monkeypatch):
    monkeypatch.setattr(process_wide, "CHECK_ALL", checked)
    a, b = halves(256, 128, 320)  # four tiles, five steps of k: stages are used again
    d = np.zeros((256, 128), np.float16)
    hopper.launch(a, b, d, columns=64, blocks=blocks, cluster=cluster)
    assert_bits_equal(d, nbtc.matmul(a, b.T).astype(np.float16))


@pytest.mark.parametrize(
    ("m", "n", "k", "kind"),
    [(120, 64, 64, np.float16), (128, 96, 64, np.float16), (128, 64, 192, ml_dtypes.float8_e4m3fn)],
)
def test_tiles_on_hopper_are_whole(m, n, k, kind):
    d = np.full((m, n), 7, np.float16)
    with pytest.raises(ShapeError, match=f"a {m}x{k} and b {n}x{k}.*multiples of 128 rows of a, 64 rows of b"):
        hopper.launch(np.zeros((m, k), kind), np.zeros((n, k), kind), d, columns=64, blocks=1)
    assert (d == 7).all()


@pytest.mark.parametrize(("elements", "result"), [("bfloat16", "bfloat16"), ("float8_e4m3fn", "float16")])
def test_other_elements_on_hopper(elements, result):
    a, b = (x.astype(elements) for x in halves(256, 64, 640))
    d = np.zeros((256, 64), result)
    hopper.launch(a, b, d, columns=64, blocks=2)
    want = nbtc.matmul(a, b.T, instruction="wgmma").astype(result)
    assert_bits_equal(d.view(np.uint16), want.view(np.uint16))


@pytest.mark.parametrize("depth", [64, 448])
def test_copies_in_stages_and_fragments_ahead(depth):
    a, b = halves(64, 128, depth)
    d = np.zeros((64, 128), np.float16)
    multistage.launch(a, b, d.view(np.uint32), across=1, along=2)
    assert_bits_equal(d, nbtc.matmul(a, b.T, instruction=multistage.FORM).astype(np.float16))


def test_accumulators_stay_in_registers():
    a, b = halves(256, 512, 128)
    d = np.zeros((256, 512), np.float16)
    shapes = ((a, (64, 128)), (b, (64, 128)), (d, (64, 64)))
    maps = [nbtc.TensorMap(x, box, swizzle="128B") for x, box in shapes]
    texts = hopper.kernel()[0].ptx(*maps, 2, 2, 2), multistage.kernel()[0].ptx(a, b, d.view(np.uint32), 2, 2)
    assert not any(".local" in text for text in texts)
    assert texts[0].count("wgmma.mma_async") == 8 and texts[1].count("mma.sync") == 4 * 32
