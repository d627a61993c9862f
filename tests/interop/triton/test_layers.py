"""Kernels of the kinds that collections for language models hold, against NumPy in float64."""

import ml_dtypes
import numpy as np
import pytest

import nbtc
from nbtc.testing import assert_bits_equal
from tests.interop.triton import layers

RNG = np.random.default_rng(29)
E4M3 = ml_dtypes.float8_e4m3fn


@pytest.fixture(autouse=True)
def hopper():
    with nbtc.triton.emulated("sm_90"):
        yield


def close(x, y, tolerance):
    """Within so much of the largest value."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    assert np.abs(x - y).max() <= tolerance * np.abs(y).max()


def test_rms_norm():
    x, w = RNG.standard_normal((5, 300)).astype(ml_dtypes.bfloat16), RNG.standard_normal(300).astype(np.float32)
    y = np.zeros_like(x)
    layers.rms_norm[(5,)](x, y, w, 300, 1e-6, BLOCK=512)
    exact = x.astype(np.float64)
    close(y, exact / np.sqrt((exact * exact).mean(1, keepdims=True) + 1e-6) * w, 2**-7)


def test_cross_entropy_and_its_gradient():
    x, labels = RNG.standard_normal((6, 500)).astype(np.float32), RNG.integers(0, 500, 6)
    labels[2] = -100
    loss, gradient = np.zeros(6, np.float32), np.full((6, 500), 7, np.float32)
    layers.cross_entropy[(6,)](x, labels, loss, gradient, 500, -100, BLOCK=128)
    p = np.exp(x.astype(np.float64))
    p /= p.sum(1, keepdims=True)
    counted = labels >= 0
    want = np.where(counted, -np.log(p[np.arange(6), labels]), 0)
    p[counted, labels[counted]] -= 1
    close(loss, want, 2e-6)
    close(gradient, np.where(counted[:, None], p, 0), 2e-6)


def test_rotary_embedding():
    q = RNG.standard_normal((4, 6, 64)).astype(np.float16)
    angle = np.outer(np.arange(4), 10000.0 ** (-np.arange(32) / 32))
    c, s = np.cos(angle), np.sin(angle)
    a, b = q[..., :32].astype(np.float64), q[..., 32:].astype(np.float64)
    layers.rotary[(4,)](q, c.astype(np.float32), s.astype(np.float32), 6, D=64, BLOCK=8)
    close(q, np.concatenate([a * c[:, None] - b * s[:, None], b * c[:, None] + a * s[:, None]], -1), 2**-10)


def test_dequantized_int4_product():
    M, N, K, group = 40, 64, 128, 64
    a, w = RNG.standard_normal((M, K)).astype(np.float16), RNG.integers(0, 16, (K, N))
    zeros, scales = RNG.integers(0, 16, (2, N)).astype(np.int32), RNG.random((2, N)).astype(np.float16)
    packed = sum(w[i::8].astype(np.uint32) << np.uint32(4 * i) for i in range(8))
    c = np.zeros((M, N), np.float32)
    layers.int4_matmul[(1,)](a, packed.view(np.int32), scales, zeros, c, M, N, K, BM=64, BN=64, BK=32, GROUP=group)
    b = (w - np.repeat(zeros, group, 0)).astype(np.float16) * np.repeat(scales, group, 0)
    assert_bits_equal(c, nbtc.matmul(a, b, arch="sm_90", instruction="wgmma"))


def test_products_of_scaled_blocks():
    a, b = (RNG.standard_normal((64, 64)).astype(E4M3) for _ in range(2))
    sa, sb = RNG.integers(125, 130, (2, 64, 2)).astype(np.uint8)
    c = np.zeros((64, 64), np.float32)
    layers.scaled_product[(1,)](a.view(np.uint8), sa, b.view(np.uint8), sb, c, M=64, N=64, K=64)
    factors = [np.repeat(2.0 ** (s.astype(int) - 127), 32, 1) for s in (sa, sb)]
    close(c, (a.astype(np.float64) * factors[0]) @ (b.astype(np.float64) * factors[1].T), 1e-5)


def test_places_of_extremes_and_the_largest():
    x = RNG.permutation(1024).reshape(16, 64).astype(np.float32)
    values, places, least = np.zeros(16, np.float32), np.zeros(16, np.int32), np.zeros(64, np.int32)
    top = np.zeros((16, 4), np.float32)
    layers.extremes[(1,)](x, values, places, least, top, M=16, N=64, K=4)
    assert (values == x.max(1)).all() and (places == x.argmax(1)).all() and (least == x.argmin(0)).all()
    assert_bits_equal(top, -np.sort(-x, 1)[:, :4])


def test_a_recurrence_as_a_scan():
    gates, x = RNG.random((2, 64, 32)).astype(np.float32)
    out, state, want = np.zeros_like(x), np.zeros(32), []
    layers.recurrence[(1,)](gates, x, out, T=64, D=32)
    for g, new in zip(gates.astype(np.float64), x, strict=True):
        state = g * state + new
        want.append(state)
    close(out, want, 1e-6)


def test_stream_k():
    a, b = RNG.standard_normal((128, 160)).astype(np.float16), RNG.standard_normal((160, 64)).astype(np.float16)
    c, locks = np.zeros((128, 64), np.float32), np.zeros(2, np.int32)
    layers.stream_k[(3,)](a, b, c, locks, 64, 160, 10, BM=64, BN=64, BK=32)
    close(c, a.astype(np.float64) @ b.astype(np.float64), 1e-5)


def test_attention_over_pages():
    H, D, size = 2, 64, 16
    q, lengths = RNG.standard_normal((3, H, D)).astype(np.float16), np.array([5, 33, 64], np.int32)
    keys, values = RNG.standard_normal((2, 12, size, H, D)).astype(np.float16)
    tables, out = RNG.permutation(12).reshape(3, 4).astype(np.int32), np.zeros((3, H, D), np.float32)
    layers.paged_attention[(3, H)](q, keys, values, tables, lengths, out, D**-0.5, H, 4, D=D, SIZE=size)
    for one, pages, length, found in zip(q.astype(np.float64), tables, lengths, out, strict=True):
        k, v = (x[pages].reshape(-1, H, D)[:length].astype(np.float64) for x in (keys, values))
        p = np.exp(np.einsum("hd,thd->ht", one, k) * D**-0.5)
        close(found, np.einsum("ht,thd->hd", p / p.sum(1, keepdims=True), v), 1e-5)
