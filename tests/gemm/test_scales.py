"""scale_a and scale_b of float32 products: two multiplications of the finished result, each rounded."""

import numpy as np
import pytest

import nbtc
from nbtc.errors import FormatError, OptionError, ShapeError
from nbtc.testing import assert_bits_equal

F = np.float32


def operands(m=9, k=40, n=7, batch=()):
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((*batch, m, k)), rng.standard_normal((*batch, k, n))
    return a.astype(np.float16), b.astype(np.float16), rng


def test_rows_then_columns_each_rounded():
    a, b, rng = operands()
    rows, columns = rng.random((9, 1)).astype(F), rng.random((1, 7)).astype(F)
    c = rng.standard_normal((9, 7)).astype(F)
    d = nbtc.matmul(a, b, c)
    assert_bits_equal(nbtc.matmul(a, b, c, scale_a=rows, scale_b=columns), (d * rows) * columns)
    assert (np.asarray((d * rows) * columns) != d * (rows * columns)).any()  # the order can be told
    assert_bits_equal(nbtc.matmul(a, b, c, scale_b=0.1), d * F(0.1))
    assert_bits_equal(nbtc.matmul(a, b, c, scale_a=F(3), scale_b=np.float32([[0.7]])), (d * F(3)) * F(0.7))


@pytest.mark.parametrize("given", ["scale_a", "scale_b"])
def test_a_scale_of_one_side_alone(given):
    a, b, rng = operands()
    scale = rng.random((9, 1) if given == "scale_a" else (1, 7)).astype(F)
    assert_bits_equal(nbtc.matmul(a, b, **{given: scale}), nbtc.matmul(a, b) * scale)


def test_scales_follow_every_order_and_batch():
    a, b, rng = operands(batch=(3,))
    rows = rng.random((3, 9, 1)).astype(F)
    d = nbtc.matmul(a, b, order="split3x16")
    assert_bits_equal(nbtc.matmul(a, b, order="split3x16", scale_a=rows, scale_b=2.5), d * rows * F(2.5))


def test_a_nan_is_canonical():
    one = np.ones((1, 1), np.float16)
    d = nbtc.matmul(one, one, scale_a=np.array([[-np.nan]], F))
    assert d.view(np.uint32)[0, 0] == 0x7FFFFFFF


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"scale_a": np.ones((9, 1))}, FormatError),
        ({"scale_a": np.ones((7, 1), F)}, ShapeError),
        ({"scale_a": np.ones(9, F)}, ShapeError),
        ({"scale_b": np.ones((9, 1), F)}, ShapeError),
        ({"scale_b": np.ones((2, 1, 7), F)}, ShapeError),
        ({"scale_b": True}, FormatError),
        ({"scale_a": 2.0, "acc": "f16"}, OptionError),
    ],
)
def test_what_is_no_scale(given, error):
    a, b, _ = operands()
    with pytest.raises(error, match="scale_"):
        nbtc.matmul(a, b, **given)
