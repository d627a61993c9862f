"""Infs and NaNs anywhere in a large product: what they decide, output by output, is what the chain gives."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import nbtc
from nbtc.formats.arrays import from_bits, to_bits
from nbtc.formats.table import FORMATS, Format
from nbtc.gemm.engines import words_items
from nbtc.testing import assert_bits_equal

pytestmark = pytest.mark.filterwarnings("ignore::nbtc.errors.UnvalidatedModelWarning")
M, K, N = 130, 150, 100
CASES: dict[str, tuple[str, str, dict[str, object]]] = {
    "f16": ("f16", "f16", {}),
    "f16-half": ("f16", "f16", {"acc": "f16"}),
    "bf16": ("bf16", "bf16", {}),
    "tf32": ("tf32", "tf32", {}),
    "e4m3-e5m2": ("e4m3", "e5m2", {}),
    "e5m2-e4m3-mma": ("e5m2", "e4m3", {"instruction": "mma"}),
    "e5m2-sm_120": ("e5m2", "e5m2", {"arch": "sm_120"}),
    "f64": ("f64", "f64", {}),
}


def draw(rng: np.random.Generator, fmt: Format, shape: tuple[int, int], density: float) -> np.ndarray:
    """Normal numbers, a fifth zeros of both signs, and Infs and NaNs of that density."""
    x = rng.standard_normal(shape)
    x[rng.random(shape) < 0.2] = 0.0
    x[rng.random(shape) < 0.1] *= -0.0
    bits = to_bits(x.astype(np.float32).astype(fmt.dtype), fmt).copy()
    low = fmt.bits - 1 - fmt.exponent  # bits below the exponent field
    infinite, chance = ((1 << fmt.exponent) - 1) << low, rng.random(shape)
    if fmt.infinite:
        bits[chance < density] = infinite
        bits[chance < density / 2] = infinite | 1 << (fmt.bits - 1)
    bits[chance > 1 - density / 3] = infinite | ((1 << low) - 1)
    if fmt.name == "tf32":  # bits that must not matter make no NaN of an Inf, and no number of a zero
        bits[(chance > 0.5) & (chance < 0.5 + density)] = infinite | 1
        bits[(chance > 0.6) & (chance < 0.7)] = 0x1FFF
    return from_bits(bits, fmt)


@pytest.mark.parametrize("densities", [(0.0005, 0.0), (0.0, 0.0005), (0.01, 0.01), (0.5, 0.001)])
@pytest.mark.parametrize("name", CASES)
def test_infs_and_nans(name: str, densities: tuple[float, float]) -> None:
    """With c absent, finite and with Infs and NaNs of its own; strided operands too."""
    a_name, b_name, options = CASES[name]
    rng = np.random.default_rng([len(name), *name.encode(), int(1e4 * densities[0]), int(1e4 * densities[1])])
    a = draw(rng, FORMATS[a_name], (M, K), densities[0])
    b = draw(rng, FORMATS[b_name], (K, N), densities[1])
    acc = nbtc.matmul(a[:1], b, **options).dtype
    finite = (rng.standard_normal((M, N)) * 100).astype(acc)
    odd = finite.copy()
    odd[rng.random((M, N)) < 0.01], odd[rng.random((M, N)) < 0.01] = np.inf, np.nan
    half = N // 2  # of a row: few enough multiply-adds for one chain an output
    assert nbtc.plan(a, b, **options).engine != nbtc.plan(a[:1], b[:, :half], **options).engine == "chain"
    for c in (None, finite, odd):
        want = np.empty((M, N), acc)
        for i, j in product(range(M), (0, half)):
            part = slice(i, i + 1), slice(j, j + half)
            want[part] = nbtc.matmul(a[part[0]], b[:, part[1]], None if c is None else c[part], **options)
        assert_bits_equal(nbtc.matmul(a, b, c, **options), want, None, f"{name} {densities}")
    strided = np.asfortranarray(a), np.asfortranarray(b)
    assert_bits_equal(nbtc.matmul(*strided, odd, **options), want, None, f"{name} {densities} strided")


def test_doubles_make_the_nan_of_a_gpu_whatever_the_host_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a host whose Inf * 0 is the positive NaN, as AArch64's is."""

    class PositiveNaN(words_items.WordsProduct):
        def run(self, a: np.ndarray, b: np.ndarray, d: np.ndarray, fresh: bool = False) -> None:
            super().run(a, b, d, fresh)
            d[np.isnan(d)] = np.nan

    rng = np.random.default_rng(3)
    a, b = (rng.choice([0.0, 1.5, np.inf, -np.inf], shape, p=[0.3, 0.68, 0.01, 0.01]) for shape in ((M, K), (K, N)))
    want = nbtc.matmul(a, b, arch="sm_90")
    assert {*want.view(np.uint64)[np.isnan(want)].tolist()} == {0xFFF8 << 48}
    monkeypatch.setattr(words_items, "WordsProduct", PositiveNaN)
    assert_bits_equal(nbtc.matmul(a, b, arch="sm_90"), want)
