"""What a plan says: sizes, time and axes of this product; equal plans; warnings that point at the caller."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import nbtc
from nbtc.errors import UnvalidatedModelWarning
from nbtc.gemm.engines import engines
from nbtc.numerics import models
from nbtc.testing import assert_bits_equal


def zeros(*shape: int, dtype: Any = np.float16) -> np.ndarray:
    """Operands that take no memory."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def test_an_unpickled_plan_equals_itself() -> None:
    p = nbtc.plan(zeros(64, 96), zeros(96, 32))
    assert pickle.loads(pickle.dumps(p)) == p
    assert nbtc.plan(zeros(64, 96), zeros(96, 33)) != p


def test_memory_is_what_a_product_takes() -> None:
    """Two threads take for 4096^3 in f16 the result of 64 MiB and a few more, B packed ahead; 20,000^3 hardly more."""
    for size, extra in ((4096, 41 << 20), (20_000, 60 << 20)):
        result = 4 * size**2
        assert result < nbtc.plan(zeros(size, size), zeros(size, size), threads=2).peak_bytes < result + extra


def test_explain_gives_sizes_time_and_a_batch_where_there_is_one() -> None:
    plain = nbtc.plan(zeros(1024, 2048), zeros(2048, 512)).explain()
    assert "1024x512x2048 (M, N, K)" in plain and "batch" not in plain
    assert "a 4.0 MiB, b 2.0 MiB, result 2.0 MiB, work" in plain and "time: about" in plain
    assert "(batch, M, N, K)" in str(nbtc.plan(zeros(3, 4, 5), zeros(5, 6)))


def test_a_batch_with_one_b_is_one_product_even_where_a_is_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    run = engines.FusedProduct.run
    monkeypatch.setattr(engines.FusedProduct, "run", lambda self, *args: (calls.append(self.a.shape), run(self, *args)))
    a = np.random.default_rng(2).standard_normal((90, 4, 3, 64)).astype(np.float16)
    b = np.random.default_rng(3).standard_normal((64, 40)).astype(np.float16)
    if nbtc.plan(a, b).engine != "panel":
        pytest.skip("this machine has no panel kernel")
    for part in (a[:, :1], a[:, 1:3, ::2], a[::2, :, 1:]):
        want = nbtc.matmul(np.ascontiguousarray(part), b)
        calls.clear()
        assert_bits_equal(nbtc.matmul(part, b), want)
        assert calls == [(part.size // 64, 64)]


def test_the_copy_of_a_slice_is_planned() -> None:
    a = np.zeros((500, 8, 64, 64), np.float16)
    uneven, even = a[:, :4], a[:, :, :, :64]
    b = zeros(64, 8)
    assert nbtc.plan(uneven, b).peak_bytes - nbtc.plan(np.ascontiguousarray(uneven), b).peak_bytes == uneven.nbytes
    assert nbtc.plan(even, b) == nbtc.plan(a, b)


def test_a_warning_points_at_the_line_that_called() -> None:
    models._WARNED.clear()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        nbtc.plan(zeros(16, 16), zeros(16, 16), arch="sm_121")
        nbtc.matmul(np.zeros((2, 16), np.float16), np.zeros((16, 2), np.float16), arch="sm_120")
    assert [w.filename for w in seen if w.category is UnvalidatedModelWarning] == [__file__] * 2
