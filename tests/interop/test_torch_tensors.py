"""Tensors where arrays go: every format both know, results as tensors, gradients refused."""

import ml_dtypes
import numpy as np
import pytest
import torch

import nbtc
from nbtc.errors import FormatError
from nbtc.formats.arrays import as_array
from nbtc.testing import assert_bits_equal

FORMATS = {
    torch.float64: np.float64,
    torch.float32: np.float32,
    torch.float16: np.float16,
    torch.bfloat16: ml_dtypes.bfloat16,
    torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn,
    torch.float8_e5m2: ml_dtypes.float8_e5m2,
    torch.int8: np.int8,
    torch.uint8: np.uint8,
    torch.bool: np.bool_,
}


@pytest.mark.parametrize("dtype", FORMATS)
def test_products_of_tensors(dtype):
    torch.manual_seed(0)
    x, y = (4 * torch.randn(9, 32)).to(dtype), (4 * torch.randn(32, 5)).to(dtype)
    a, b = as_array(x), as_array(y)
    assert a.dtype == FORMATS[dtype] and as_array(x.t()).ctypes.data == a.ctypes.data
    d = nbtc.matmul(x, y.t().contiguous().t())
    assert isinstance(d, torch.Tensor)
    assert_bits_equal(d.numpy(), nbtc.matmul(a, b))
    assert isinstance(nbtc.matmul(a, b), np.ndarray) and isinstance(nbtc.matmul(x, b), torch.Tensor)
    out = torch.empty_like(d)
    assert nbtc.matmul(x, y, out=out) is out and torch.equal(out, d)
    assert nbtc.plan(x, y, out=out).shape == (9, 5, 32)


def test_gemm_and_scales():
    x, c = torch.randn(8, 16).half(), torch.randn(8, 8).half()
    d = nbtc.gemm(2, x, x.t(), 0.5, c)
    assert isinstance(d, torch.Tensor) and d.dtype == torch.float16
    assert_bits_equal(d.numpy(), nbtc.gemm(2, x.numpy(), x.numpy().T, 0.5, c.numpy()))
    rows = torch.rand(8, 1)
    scaled = nbtc.matmul(x, x.t(), scale_a=rows)
    assert_bits_equal(scaled.numpy(), nbtc.matmul(x.numpy(), x.numpy().T) * rows.numpy())


@pytest.mark.parametrize("fmt", ["bf16", "f16", "tf32", "e4m3", "e5m2"])
def test_convert(fmt):
    x = torch.randn(3, 5)
    y = nbtc.convert(x, fmt)
    assert isinstance(y, torch.Tensor) and nbtc.as_format(y.dtype).dtype == nbtc.as_format(fmt).dtype
    assert_bits_equal(as_array(y), nbtc.convert(x.numpy(), fmt))


def test_pack_and_unpack():
    x = torch.arange(-8, 8, dtype=torch.int8)
    words = nbtc.pack(x, "s4")
    assert words.dtype == torch.uint32 and words.tolist() == nbtc.pack(x.numpy(), "s4").tolist()
    assert isinstance(nbtc.unpack(words, "s4"), np.ndarray)  # torch has no int4 elements
    bits = torch.rand(70) > 0.5
    assert torch.equal(nbtc.unpack(nbtc.pack(bits, "b1"), "b1", count=70), bits)


def test_a_gradient_is_not_lost_silently():
    x = torch.randn(4, 16, requires_grad=True)
    with pytest.raises(FormatError, match=r"detach\(\)"):
        nbtc.matmul(x, x.detach().t())
    with pytest.raises(FormatError, match="emulate"):
        nbtc.convert(x, "bf16")
    with torch.no_grad():
        nbtc.matmul(x, x.t())
    assert isinstance(nbtc.matmul(x.detach(), x.detach().t()), torch.Tensor)


def test_conjugates_and_views():
    x = torch.view_as_complex(torch.randn(4, 16, 2)).conj().imag
    assert x.is_neg()
    assert_bits_equal(as_array(x), x.resolve_neg().numpy())
