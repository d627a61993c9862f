"""Block formats: scales and elements by their definitions, there and back, layouts of libraries, what is refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nbtc
from nbtc.errors import FormatError, OptionError, ShapeError
from nbtc.formats.table import FORMATS
from nbtc.mx import dequantize, from_blocked, quantize, to_blocked

pytestmark = pytest.mark.filterwarnings("ignore::nbtc.errors.UnvalidatedModelWarning")
MX = [("mxfp8", "e4m3"), ("mxfp8", "e5m2"), ("mxfp6", "e2m3"), ("mxfp6", "e3m2"), ("mxfp4", "e2m1")]


def data() -> np.ndarray:
    """Rows of many magnitudes, a block of zeros, one with a NaN and one with an Inf, subnormals."""
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((64, 100)) * np.exp(rng.standard_normal((64, 1)) * 30)).astype(np.float32)
    x[3, :32], x[4, 5], x[5, 40] = 0, np.nan, -np.inf
    x[6] = rng.integers(0, 1 << 23, 100).astype(np.uint32).view(np.float32)
    x[7] = rng.integers(0, 40, 100).astype(np.uint32).view(np.float32)
    return x


@pytest.mark.parametrize(("name", "element"), MX)
def test_mx_by_its_definition(name: str, element: str) -> None:
    x, fmt = data(), FORMATS[element]
    elements, scales = quantize(x, name, element=element)
    assert elements.dtype == fmt.dtype and scales.dtype == ml_dtypes.float8_e8m0fnu and scales.shape == (64, 4)
    for s in range(4):
        block = x[:, 32 * s : 32 * (s + 1)].astype(np.float64)
        amax = np.abs(block).max(1)
        fine = np.isfinite(amax)
        with np.errstate(divide="ignore", invalid="ignore"):
            exponent = np.clip(np.floor(np.log2(amax[fine])) - fmt.emax, -127, 127)
        got = scales[:, s].view(np.uint8)
        assert (got[~fine] == 0xFF).all() and (got[fine] == exponent + 127).all()
        scaled = (block[fine] / np.exp2(exponent)[:, None]).astype(np.float32)
        with np.errstate(over="ignore"):
            want = nbtc.convert(scaled, element).view(np.uint8)
        assert (elements[fine, 32 * s : 32 * (s + 1)].view(np.uint8) == want).all()


def test_nvfp4_by_its_definition() -> None:
    x = (np.random.default_rng(2).standard_normal((50, 72)) * np.logspace(-6, 3, 50)[:, None]).astype(np.float32)
    x[9, :16] = 0
    elements, scales, tensor = quantize(x, "nvfp4")
    encode = np.float32(2688) / np.abs(x).max()
    assert tensor == np.float32(1) / encode and scales.shape == (50, 5)
    for s in range(5):
        block = x[:, 16 * s : 16 * (s + 1)]
        wanted = np.abs(block).max(1) / np.float32(6) * encode
        want = nbtc.convert(wanted, "e4m3")
        assert (scales[:, s].view(np.uint8) == want.view(np.uint8)).all()
        with np.errstate(divide="ignore"):
            factor = np.float32(1) / (want.astype(np.float32) * tensor)
        factor[want.astype(np.float32) == 0] = 0
        got = elements[:, 16 * s : 16 * (s + 1)].view(np.uint8)
        assert (got == nbtc.convert(block * factor[:, None], "e2m1").view(np.uint8)).all()


@pytest.mark.parametrize("name", ["mxfp8", "mxfp6", "mxfp4", "nvfp4"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_there_and_back(name: str, axis: int) -> None:
    x = np.random.default_rng(3).standard_normal((3, 48, 40)).astype(np.float32)
    parts = quantize(x, name, axis=axis)
    block = 16 if name == "nvfp4" else 32
    shape = list(x.shape)
    shape[axis] = -(-shape[axis] // block)
    assert parts[0].shape == x.shape and parts[1].shape == tuple(shape)
    back = dequantize(*parts, axis=axis)
    # a magnitude beyond the largest element, but below the next power of two, saturates
    limit = {"mxfp8": 0.13, "mxfp6": 0.14, "mxfp4": 0.6, "nvfp4": 0.4}[name]
    assert back.dtype == np.float32 and np.abs(back - x).max() < limit * np.abs(x).max()
    again = quantize(back, name, axis=axis)
    if name != "nvfp4":
        assert (dequantize(*again, axis=axis) == back).all()


def test_products_of_quantized_matrices_are_products_of_what_they_stand_for() -> None:
    rng = np.random.default_rng(4)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((24, 128), (128, 32)))
    for name in ("mxfp8", "mxfp4", "nvfp4"):
        a, sa, *ta = quantize(x, name)
        b, sb, *tb = quantize(w, name, axis=0)
        got = nbtc.matmul(a, b, arch="sm_120", scale_a=sa, scale_b=sb).astype(np.float64)
        want = dequantize(a, sa).astype(np.float64) @ dequantize(b, sb, axis=0).astype(np.float64)
        assert np.abs(got - want).max() <= 2e-6 * np.abs(want).max()
        assert len(ta) == len(tb) == (name == "nvfp4")


def test_threads_inputs_and_empty_arrays() -> None:
    x = np.random.default_rng(5).standard_normal((40, 64)).astype(np.float32)
    for name in ("mxfp4", "nvfp4"):
        want = quantize(x, name)
        for got in (quantize(x, name, threads=3), quantize(np.asfortranarray(x), name)):
            assert all(np.asarray(g).tobytes() == np.asarray(w).tobytes() for g, w in zip(got, want, strict=True))
    assert quantize(x.astype(np.float16), "mxfp8")[0].shape == x.shape
    assert quantize(np.zeros((0, 64), np.float32), "mxfp4")[1].shape == (0, 2)
    zero = quantize(np.zeros((2, 16), np.float32), "nvfp4")
    assert (dequantize(*zero) == 0).all() and zero[2] == 1


def test_tiles_of_scales() -> None:
    x = np.random.default_rng(6).integers(0, 256, (300, 9), dtype=np.uint8)
    flat = to_blocked(x.view(ml_dtypes.float8_e8m0fnu))
    assert flat.dtype == ml_dtypes.float8_e8m0fnu and flat.size == 3 * 3 * 512
    octets = flat.view(np.uint8)
    for r, j in ((0, 0), (31, 3), (32, 0), (127, 8), (128, 4), (299, 8)):
        tile = (r // 128) * 3 + j // 4
        assert octets[512 * tile + 16 * (r % 32) + 4 * (r % 128 // 32) + j % 4] == x[r, j]
    assert (from_blocked(flat, 300, 9).view(np.uint8) == x).all()
    assert octets.astype(int).sum() == x.astype(int).sum()


def test_what_is_refused() -> None:
    x = np.zeros((4, 64), np.float32)
    for call, error, message in (
        (lambda: quantize(x, "mxfp5"), OptionError, "is not a block format"),
        (lambda: quantize(x, "mxfp4", element="e4m3"), OptionError, "elements of e2m1"),
        (lambda: quantize(x.astype(np.float64), "mxfp4"), FormatError, "x is float64"),
        (lambda: quantize(x, "mxfp4", axis=2), ShapeError, "axis=2"),
        (lambda: quantize(np.float32(1), "mxfp4"), ShapeError, "1-D"),
        (lambda: dequantize(x, x), FormatError, "what nbtc.mx.quantize returns"),
        (lambda: dequantize(*(v.T for v in quantize(x, "mxfp4"))), ShapeError, "same axis"),
        (lambda: to_blocked(x), ShapeError, "one byte each"),
        (lambda: from_blocked(np.zeros(5, np.uint8), 4, 4), ShapeError, "tiles of 512 bytes"),
    ):
        with pytest.raises(error, match=message):
            call()
