"""The compiled core against the exact oracle, over every model, format, step and strategy: no bit differs."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import numpy as np
import pytest

from nbtc.formats.table import FORMATS
from nbtc.numerics import models
from nbtc.numerics.exact import Oracle
from nbtc.testing import assert_bits_equal
from nbtc.testing.cases import Case, cases
from nbtc.testing.strategies import strategies

PRODUCTS = Path(__file__).parents[1] / "golden" / "products.npz"


def check(case: Case, strategy: str, m: int, n: int) -> int:
    """Compare one matrix of dot products; returns how many."""
    rng = np.random.default_rng(zlib.crc32(f"{case} {strategy}".encode()))
    a, b, c = case.operands(rng, strategy, m, n)
    got = case.core(a, b, c)
    fmt = case.acc if case.acc != "s32" else None
    assert_bits_equal(got, case.oracle().matrix(a, b, c), fmt, f"{case} {strategy} K={a.shape[1]}")
    return got.size


def test_two_hundred_thousand_dot_products() -> None:
    """All cases and strategies, at least 200,000 products."""
    count = sum(check(case, strategy, 12, 11) for case in cases() for strategy in strategies(case.formats[0]))
    assert count >= 200_000


def recorded() -> list[tuple[str, Case, tuple[np.ndarray, ...]]]:
    """(key, case, (A, B, C, D)) of the committed recordings, or of all of them where NBTC_GOLDEN names a directory."""
    if "NBTC_GOLDEN" in os.environ:
        import runpy

        found = runpy.run_path(str(PRODUCTS.with_name("make_products.py")))["products"](Path(os.environ["NBTC_GOLDEN"]))
        return [(p.key, _case(p.key), tuple(p[1:])) for p in found]
    with np.load(PRODUCTS) as z:
        keys = sorted({k.rpartition("__")[0] for k in z.files})
        return [(key, _case(key), tuple(z[f"{key}__{q}"] for q in "ABCD")) for key in keys]


def _case(key: str) -> Case:
    unit, a, b, acc, sat, rounding, op, k, _ = key.split("__")
    return Case("sm_90", unit, a, b, acc, int(k[1:]), sat == "sat", rounding, op)


@pytest.mark.parametrize("unit", ["mma", "quad", "wgmma", "wmma"])
def test_recordings_of_an_h200(unit: str) -> None:
    """Both the oracle and the compiled core give the recorded bits."""
    rows = [r for r in recorded() if r[1].unit == unit]
    assert len(rows) > 10
    for key, case, (a, b, c, d) in rows:
        oracle = case.oracle()
        for t in range(len(a)):
            x, y = (np.ascontiguousarray(v[t].astype(f.bits_dtype)) for v, f in zip((a, b), case.formats, strict=False))
            assert_bits_equal(case.core(x, y, c[t]).astype(d.dtype), d[t], what=f"core {key} {t}")
            assert_bits_equal(oracle.matrix(a[t], b[t], c[t]), d[t], what=f"oracle {key} {t}")


def test_no_products_copies_c() -> None:
    """K = 0 runs no instruction: c comes back bit for bit, -0 and NaN payloads too."""
    for case in cases()[::7]:
        fa, fb, acc = case.formats
        c = np.array([[1 << (acc.bits - 1), (1 << (acc.bits - 1)) - 5, 3]], acc.bits_dtype)
        a, b = np.zeros((1, 0), fa.bits_dtype), np.zeros((0, 3), fb.bits_dtype)
        assert_bits_equal(case.core(a, b, c), c)
        assert_bits_equal(case.oracle().matrix(a, b, c), c)


def test_later_steps_take_sums_in_the_accumulators_format() -> None:
    """An f16 C that is aligned as it is given: what one instruction leaves to the next is f32."""
    f16, f32 = FORMATS["f16"], FORMATS["f32"]
    row = models.model("sm_70", "mma", f16)
    assert row.c_as_given
    given, wide = Oracle(row, f16, f16, f32, 4, c=f16), Oracle(row, f16, f16, f32, 4)
    rng = np.random.default_rng(70)
    for _ in range(50):
        a, b = rng.integers(0, 0x7C00, (2, 8)).tolist()
        c = int(rng.integers(0, 0x7C00))
        assert given.dot(a, b, c) == wide.dot(a[4:], b[4:], given.dot(a[:4], b[:4], c))
