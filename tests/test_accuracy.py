"""The yardstick itself: correctly rounded products against exact fractions, for every kind of operand."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbtc.accuracy import Accuracy, accuracy
from nbtc.errors import FormatError, ShapeError


def exact(a, b, c=0.0):
    return sum((Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a, b, strict=True)), Fraction(float(c)))


finite = st.floats(-60000, 60000, width=16)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=9), st.floats(-1e6, 1e6, width=32))
def test_float32_results(pairs, start):
    a, b = (np.array(v, np.float16) for v in zip(*pairs, strict=True))
    c = np.array([[start]], np.float32)
    value = exact(a, b, start)
    near = np.float32(float(value)) if value else np.float32(0)
    candidates = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]
    gaps = [abs(Fraction(float(x)) - value) for x in candidates]
    for x, gap in zip(candidates, gaps, strict=True):
        found = accuracy(np.array([[x]]), a[None], b[:, None], c)
        if gap > min(gaps):  # not the nearest: it must be counted
            assert found.different == 1
        elif gaps.count(gap) == 1:
            assert found.different == 0


def test_halfway_goes_to_even():
    one, tie = np.ones((2, 1), np.float16), np.array([[1.0, 2.0**-11]], np.float16)
    assert accuracy(np.array([[1.0]], np.float16), tie, one).different == 0
    odd = np.array([[1.0 + 2.0**-10, 2.0**-11]], np.float16)
    assert accuracy(np.array([[1.0 + 2.0**-10]], np.float16), odd, one) == Accuracy(1, 1, 1)


@pytest.mark.parametrize(
    ("dtype", "least"), [(ml_dtypes.float8_e4m3fn, -6), (ml_dtypes.float8_e5m2, -7), (np.float16, -4)]
)
def test_sums_that_float64_holds_need_no_fractions(dtype, least, monkeypatch):
    """Among them many ties: a product of 512 x 512 x 4096 of e4m3 took minutes."""
    rng = np.random.default_rng(0)
    shapes, c = ((6, 300), (300, 7)), np.full((6, 7), 0.5)
    a, b = ((rng.standard_normal(n) * 2.0 ** rng.integers(least, -least, n)).astype(dtype) for n in shapes)
    best = np.array([[float(exact(row, column, 0.5)) for column in b.T] for row in a])
    sums = best.astype(np.float32)
    assert (best != sums).any()
    with monkeypatch.context() as m:
        m.setattr("nbtc.accuracy._dot", None)
        assert accuracy(sums, a, b, c).different == 0
        assert accuracy(np.nextafter(sums, np.float32(0)), a, b, c).different == sums.size
    assert accuracy(sums, a, b, c + 2.0**-60).outputs == sums.size  # too small for float64: summed as fractions


def test_sums_that_cancel_to_the_last_bit():
    a = np.array([[60000, 2.0**-24, -60000]], np.float16)
    b = np.array([[60000], [2.0**-24], [60000]], np.float16)
    assert accuracy(np.array([[2.0**-48]], np.float32), a, b).different == 0
    assert accuracy(np.array([[0.0]], np.float32), a, b).different == 1


def test_float64_is_sampled():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((40, 30)), rng.standard_normal((30, 40))
    best = np.array([[float(exact(row, column)) for column in b.T] for row in a])  # float(Fraction) rounds correctly
    found = accuracy(best, a, b)
    assert found == Accuracy(512, 0, 0, sampled=True)
    assert accuracy(np.nextafter(best, np.inf), a, b).different == 512


def test_specials_and_zeros():
    a, b = np.array([[np.inf, 1.0]], np.float16), np.array([[1.0], [1.0]], np.float16)
    assert accuracy(np.array([[np.inf]], np.float32), a, b).different == 0
    assert accuracy(np.array([[1.0]], np.float32), a, b).different == 1
    assert accuracy(np.array([[-0.0]], np.float32), 0 * b.T, b).different == 0
    assert accuracy(np.array([[np.inf]], np.float16), np.array([[300.0]]), np.array([[300.0]])).different == 0


def test_integers_and_bits():
    rng = np.random.default_rng(0)
    a, b = rng.integers(-128, 128, (5, 70)), rng.integers(-128, 128, (70, 6))
    assert accuracy((a @ b).astype(np.int32), a.astype(np.int8), b.astype(np.int8)).different == 0
    x, y = rng.integers(0, 2, (5, 70)).astype(bool), rng.integers(0, 2, (70, 6)).astype(bool)
    ones = np.array([[np.sum(r ^ c) for c in y.T] for r in x], np.int32)
    assert accuracy(ones, x, y).different == 0
    assert accuracy(ones + 3, x, y) == Accuracy(30, 30, 3)
    assert accuracy((x.astype(np.int32) @ y), x, y, op="and").different == 0


def test_batches_and_narrow_formats():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((3, 4, 16)).astype(ml_dtypes.bfloat16)
    b = rng.standard_normal((16, 5)).astype(ml_dtypes.bfloat16)
    d = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
    assert accuracy(d, a, b) == Accuracy(60, 0, 0)


def test_what_makes_no_product_is_refused():
    with pytest.raises(ShapeError, match="does not give"):
        accuracy(np.ones((2, 2), np.float32), np.ones((2, 3)), np.ones((2, 2)))
    with pytest.raises(FormatError, match="accuracy compares"):
        accuracy(np.ones((2, 2), complex), np.ones((2, 2)), np.ones((2, 2)))
