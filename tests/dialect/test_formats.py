"""Arrays and numbers of every format: storage, conversion, arithmetic."""

import ml_dtypes
import numpy as np
import pytest

import nbtc
from nbtc.errors import KernelError

NARROW = [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
NIBBLES = [ml_dtypes.int4, ml_dtypes.uint4]


@nbtc.kernel
def operations(x, y, real, truth):
    i = nbtc.grid(1)
    real[0, i] = x[i] + y[i]
    real[1, i] = x[i] - y[i]
    real[2, i] = x[i] * y[i]
    real[3, i] = x[i] / y[i]
    real[4, i] = -x[i]
    real[5, i] = abs(x[i])
    truth[0, i] = x[i] < y[i]
    truth[1, i] = x[i] == y[i]
    truth[2, i] = x[i] != x[i]
    truth[3, i] = x[i] >= y[i]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["f16", "bf16"])
def test_arithmetic_rounds_once(dtype):
    n = 1 << 13
    rng = np.random.default_rng(5)
    x, y = (rng.integers(0, 1 << 16, n).astype(np.uint16).view(dtype) for _ in range(2))
    real, truth = np.zeros((6, n), dtype), np.zeros((4, n), bool)
    operations[n // 128, 128](x, y, real, truth)
    with np.errstate(all="ignore"):
        expected = np.stack([x + y, x - y, x * y, x / y, -x, abs(x)])
        relations = [x < y, x == y, x != x, x >= y]
    nan = np.isnan(expected.astype(np.float32))
    assert (real.view(np.uint16)[~nan] == expected.view(np.uint16)[~nan]).all()
    assert np.isnan(real[nan].astype(np.float32)).all() and (real[:4].view(np.uint16)[nan[:4]] == 0x7FFF).all()
    assert (truth == relations).all()


@nbtc.kernel
def converted(x, outs):
    i = nbtc.grid(1)
    if i < x.size:
        outs[0][i] = x[i]
        outs[1][i] = x[i]
        outs[2][i] = x[i]
        outs[3][i] = x[i]
        outs[4][i] = x[i]


@pytest.mark.parametrize("dtype", [*NARROW, *NIBBLES], ids=lambda d: np.dtype(d).name)
def test_conversion_between_formats(dtype):
    size = np.dtype(dtype).itemsize
    bits = np.arange(16 if dtype in NIBBLES else 1 << 8 * size, dtype=f"u{size}")
    x = bits.view(dtype)
    x = x[np.isfinite(x.astype(np.float32)) & (abs(x.astype(np.float32)) < 448)]  # fp8 saturates in kernels
    outs = tuple(np.zeros(x.size, t) for t in (*NARROW, np.float64))
    converted[-(-x.size // 128), 128](x, outs)
    for out in outs:
        assert (out.view(np.uint8) == x.astype(np.float32).astype(out.dtype).view(np.uint8)).all()


@nbtc.kernel
def one(x, y):
    i = nbtc.grid(1)
    if i < x.size:
        y[i] = x[i]


def test_integers_of_four_bits_wrap():
    x, y = np.arange(-20, 20, dtype=np.int32), np.zeros(40, ml_dtypes.int4)
    one[2, 32](x, y)
    assert (y.astype(np.int32) == (x + 8) % 16 - 8).all() and (y.view(np.uint8) == x % 16).all()


def test_a_float64_rounds_once_to_bf16():
    x = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8, 1 + 3 * 2.0**-8 - 2.0**-50, -(1 + 2.0**-8 + 2.0**-40), np.inf])
    y = np.zeros(5, ml_dtypes.bfloat16)
    one[1, 32](x, y)
    assert y.tolist() == [1 + 2.0**-7, 1, 1 + 2.0**-7, -1 - 2.0**-7, np.inf]
    whole = np.array([(1 << 62) + (1 << 54) + 1, (1 << 62) + (1 << 54), -(1 << 62) - (1 << 54) - 1, 257], np.int64)
    one[1, 32](whole, y)
    assert y[:4].tolist() == [2.0**62 + 2.0**55, 2.0**62, -(2.0**62) - 2.0**55, 256]


def test_fp8_saturates():
    y = np.zeros(3, ml_dtypes.float8_e4m3fn)
    one[1, 32](np.array([1000, -np.inf, 448], np.float32), y)
    assert y.tolist() == [448, -448, 448]


@nbtc.kernel
def everywhere(x, out):
    t = nbtc.thread_idx.x
    s = nbtc.shared(32, nbtc.bf16)
    h = nbtc.shared((4, 8), "f16")
    e = nbtc.local(2, nbtc.e4m3)
    s[t] = x[t] * nbtc.bf16(2)
    h[t // 8, t % 8] = np.float16(t) + nbtc.f16(0.25)
    e[0] = t
    nbtc.syncthreads()
    out[0, t] = s[31 - t]
    out[1, t] = float(h[t // 8, t % 8]) + int(e[0])
    out[2, t] = x.view(np.uint16)[t]


def test_formats_in_shared_and_local_memory():
    x = np.arange(32).astype(ml_dtypes.bfloat16)
    out = np.zeros((3, 32), np.float32)
    everywhere[1, 32](x, out)
    t = np.arange(32)
    assert (out[0] == 2 * (31 - t)).all() and (out[2] == x.view(np.uint16)).all()
    assert (out[1] == t + 0.25 + t.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)).all()


@nbtc.kernel
def mixed(x, factor, out):
    out[0] = x[0] * factor
    out[1] = x[0] * 2 + factor
    out[2] = 0.5 - factor
    out[3] = 1 if factor > 1 else 0


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_scalars_and_other_numbers(dtype):
    x, factor, out = np.array([3.140625], dtype), dtype(1.2), np.zeros(4)
    mixed[1, 1](x, factor, out)
    value, number = float(x[0]), float(factor)
    assert out.tolist() == [float(x[0] * factor), value * 2 + number, 0.5 - number, 1.0]


@nbtc.kernel
def sums(x, out):
    out[0] = x[0] + x[1]


@pytest.mark.parametrize("name", ["e4m3", "ue8m0"])
def test_no_arithmetic_where_hardware_has_none(name):
    with pytest.raises(KernelError, match=f"add of {name}: no hardware computes with it"):
        sums.ptx(np.zeros(2, nbtc.as_format(name).dtype), np.zeros(1))


def test_products_and_sums_are_not_fused():
    @nbtc.kernel
    def multiply_add(x):
        x[0] = x[0] * x[1] + x[2]

    for dtype, name in ((np.float16, "f16"), (np.float32, "f32")):
        text = multiply_add.ptx(np.zeros(3, dtype))
        assert f"mul.rn.{name}" in text and f"add.rn.{name}" in text
