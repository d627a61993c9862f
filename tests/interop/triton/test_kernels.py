"""Kernels of the kinds that Triton's tutorials hold, against NumPy in float64."""

import numpy as np
import pytest

import nbtc
from tests.interop.triton import kernels

RNG = np.random.default_rng(11)
archs = pytest.mark.parametrize("arch", ["sm_80", "sm_90"])


def close(x, y, ulps=8):
    """Within so many units of float32 of the largest value."""
    y = np.asarray(y, np.float64)
    assert np.abs(x - y).max() <= ulps * 2**-23 * np.abs(y).max()


@archs
def test_add(arch):
    x, y = RNG.standard_normal((2, 1000)).astype(np.float32)
    out = np.zeros(1010, np.float32)
    with nbtc.triton.emulated(arch):
        kernels.add[(4,)](x, y, out, 1000, BLOCK=256)
    assert (out[:1000] == x + y).all() and (out[1000:] == 0).all()


@archs
def test_softmax(arch):
    x, out = RNG.standard_normal((7, 200)).astype(np.float32), np.zeros((7, 200), np.float32)
    with nbtc.triton.emulated(arch):
        kernels.softmax[(3,)](out, x, 200, 7, 200, BLOCK=256)
    e = np.exp(x.astype(np.float64))
    close(out, e / e.sum(1, keepdims=True))


@archs
def test_layer_norm_and_its_backward(arch):
    rows, N, groups = 9, 100, 2
    x, dy = RNG.standard_normal((2, rows, N)).astype(np.float32)
    w, b = RNG.standard_normal((2, N)).astype(np.float32)
    y, dx = np.zeros((2, rows, N), np.float32)
    mean, rstd = np.zeros((2, rows), np.float32)
    dw, db = np.zeros((2, groups, N), np.float32)
    with nbtc.triton.emulated(arch):
        kernels.layer_norm[(rows,)](x, y, w, b, mean, rstd, N, N, 1e-5, BLOCK=128)
        lock = np.zeros(groups, np.int32)
        kernels.layer_norm_backward[(rows,)](dx, dy, dw, db, x, w, mean, rstd, lock, N, N, GROUPS=groups, BLOCK=128)
    x, dy, w, b = (v.astype(np.float64) for v in (x, dy, w, b))
    r = 1 / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    hat = (x - x.mean(1, keepdims=True)) * r
    close(y, hat * w + b)
    g = dy * w
    close(dx, (g - hat * (hat * g).mean(1, keepdims=True) - g.mean(1, keepdims=True)) * r, 16)
    close(dw.sum(0), (dy * hat).sum(0), 16)
    close(db.sum(0), dy.sum(0), 16)


@archs
@pytest.mark.parametrize("causal", [False, True])
def test_flash_attention(arch, causal):
    heads, N, D = 2, 100, 32
    q, k, v = RNG.standard_normal((3, heads, N, D)).astype(np.float16)
    out = np.zeros((heads, N, D), np.float32)
    with nbtc.triton.emulated(arch):
        kernels.flash_attention[(2, heads)](q, k, v, out, D**-0.5, N, D=D, BM=64, BN=32, CAUSAL=causal)
    s = np.einsum("hid,hjd->hij", q.astype(np.float64), k.astype(np.float64)) * D**-0.5
    if causal:
        s[:, np.triu(np.ones((N, N), bool), 1)] = -np.inf
    p = np.exp(s - s.max(-1, keepdims=True))
    exact = np.einsum("hij,hjd->hid", p / p.sum(-1, keepdims=True), v.astype(np.float64))
    assert np.abs(out - exact).max() < 2**-10 * np.abs(v).max()  # weights are rounded to float16


@archs
def test_dropout(arch):
    x = RNG.standard_normal(1000).astype(np.float32)
    out, again, other = np.zeros((3, 1000), np.float32)
    with nbtc.triton.emulated(arch):
        for result, seed in ((out, 7), (again, 7), (other, 8)):
            kernels.dropout[(2,)](x, result, 1000, 0.25, seed, BLOCK=512)
    kept = out != 0
    assert 0.7 < kept.mean() < 0.8
    keep = np.float32(1 - 0.25)  # Triton divides by div.full
    quotients = nbtc.ptx.approx("div.full.f32", x.view(np.uint32), keep.view(np.uint32))
    assert (out[kept].view(np.uint32) == quotients[kept]).all()
    assert (out == again).all() and (out != other).any()


@archs
def test_atomics(arch):
    bins = RNG.integers(0, 17, 1000).astype(np.int32)
    words = RNG.integers(-(2**30), 2**30, 500).astype(np.int32)
    counts, sums = np.zeros(17, np.int32), np.zeros(4, np.int32)
    with nbtc.triton.emulated(arch):
        kernels.histogram[(8,)](bins, counts, 1000, BLOCK=128)
        kernels.atomics[(4,)](words, sums, 500, BLOCK=128)
    assert (counts == np.bincount(bins, minlength=17)).all()
    assert (sums == [words.max(), words.min(), np.bitwise_xor.reduce(words), np.bitwise_or.reduce(words)]).all()


@archs
def test_scans(arch):
    x = RNG.integers(-1000, 1000, 512).astype(np.int32)
    sums, back = np.zeros((2, 512), np.int32)
    noise, most = RNG.standard_normal(256).astype(np.float32), np.zeros(256, np.float32)
    with nbtc.triton.emulated(arch):
        kernels.scan[(2,)](x, sums, back, BLOCK=256)
        kernels.running_maximum[(1,)](noise, most, BLOCK=256)
    halves = x.reshape(2, 256)
    assert (sums == halves.cumsum(1).reshape(-1)).all()
    assert (back == halves[:, ::-1].cumsum(1)[:, ::-1].reshape(-1)).all()
    assert (most == np.maximum.accumulate(noise)).all()


@archs
def test_sort(arch):
    x = RNG.standard_normal(256).astype(np.float32)
    out = np.zeros(256, np.float32)
    with nbtc.triton.emulated(arch):
        kernels.sort[(2,)](x, out, BLOCK=128)
    assert (out == np.sort(x.reshape(2, 128), axis=1).reshape(-1)).all()
