"""Products with block scales: against the oracle and one output at a time, large and small; shapes, kinds, errors."""

from __future__ import annotations

import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import nbtc
from nbtc.compiler.cpu.processors import host_processor
from nbtc.errors import FormatError, OptionError, ShapeError, UnsupportedInstructionError, UnvalidatedModelWarning
from nbtc.formats.arrays import from_bits
from nbtc.formats.table import FORMATS, Format
from nbtc.gemm import block_scaled
from nbtc.gemm.engines import scaled_rows_engine
from nbtc.numerics import models
from nbtc.numerics.exact_scaled import ScaledOracle
from nbtc.testing import assert_bits_equal
from nbtc.testing.scaled_cases import Drawn, draw

pytestmark = pytest.mark.filterwarnings("ignore::nbtc.errors.UnvalidatedModelWarning")
E2, E8 = ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e8m0fnu
GROUPED = [("ue8m0", 32), ("ue8m0", 16), ("ue4m3", 16)]


def product(x: Drawn, a: str, b: str, scale: str, c: bool = True, **more: object) -> np.ndarray:
    """`matmul` of drawn codes."""
    how = {"arch": "sm_120", "scale_a": from_bits(x.xs, scale), "scale_b": from_bits(x.ys, scale)} | more
    return nbtc.matmul(from_bits(x.a, a), from_bits(x.b, b), x.c.view(np.float32) if c else None, **how)


def oracle(a: str, b: str, scale: str, block: int) -> ScaledOracle:
    unit, step = ("grouped", 64) if a == b == "e2m1" else ("scaled", 32)
    row = models._ROWS["sm_120", unit, models.family(FORMATS[a])]
    return ScaledOracle(row, FORMATS[a], FORMATS[b], FORMATS["f32"], step, FORMATS[scale], step // block)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """No product is too small for the engines."""
    monkeypatch.setattr(block_scaled, "SMALL", 0)


@pytest.mark.parametrize(("scale", "block"), GROUPED)
def test_engine_and_oracle(scale: str, block: int, large: None) -> None:
    """Whole steps, drawn inputs of every kind."""
    rng, judge = np.random.default_rng(block), oracle("e2m1", "e2m1", scale, block)
    for _ in range(40):
        m, n, k = int(rng.integers(1, 7)), int(rng.integers(1, 19)), 64 * int(rng.integers(1, 4))
        x = draw(rng, (m, n, k), (FORMATS["e2m1"],) * 2 + (FORMATS[scale],), k // block)
        want = judge.matrix(x.a, x.b, x.c, x.xs, x.ys)
        assert_bits_equal(product(x, "e2m1", "e2m1", scale, kind="mxf4nvf4").view(np.uint32), want, "f32")


@pytest.mark.parametrize(("scale", "block"), GROUPED)
def test_engine_and_single_outputs(scale: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any sizes, K that ends inside of a block, several blocks of rows, threads."""
    rng = np.random.default_rng(3)
    shapes = [(300, 70, 130), (5, 33, 1000), (1, 1, 17 if block == 16 else 33), (64, 16, 640)]
    for m, n, k in shapes:
        x = draw(rng, (m, n, k), (FORMATS["e2m1"],) * 2 + (FORMATS[scale],), -(-k // block))
        monkeypatch.setattr(block_scaled, "SMALL", 1 << 60)
        want = product(x, "e2m1", "e2m1", scale)
        monkeypatch.setattr(block_scaled, "SMALL", 0)
        for threads in (1, 3):
            assert_bits_equal(product(x, "e2m1", "e2m1", scale, threads=threads), want)


def test_large_products_use_the_engine() -> None:
    a, s = np.ones((128, 128), E2), np.ones((128, 4), E8)
    assert nbtc.plan(a, a, arch="sm_120", scale_a=s, scale_b=s.T).engine == "blocks"
    small = nbtc.plan(a[:1], a[:, :1], arch="sm_120", scale_a=s[:1], scale_b=s.T[:, :1], threads=1)
    assert small.engine == "chain" and small.steps == 2 and "sm_120 mxf4 (literature)" in small.explain()
    assert (nbtc.matmul(a, a, arch="sm_100", scale_a=s, scale_b=s.T) == 128).all()


@pytest.mark.parametrize("pair", [("e4m3", "e4m3"), ("e5m2", "e2m1")])
def test_rows_and_single_outputs(pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Several panels of columns, K that ends inside of a block, Inf and NaN among elements and scales."""
    rng = np.random.default_rng(4)
    for m, n, k in ((5, 70, 90), (1, 200, 33), (9, 3, 320), (3, 64, 64)) * 3:
        x = draw(rng, (m, n, k), (*(FORMATS[f] for f in pair), FORMATS["ue8m0"]), -(-k // 32))
        monkeypatch.setattr(block_scaled, "SMALL", 1 << 60)
        want = product(x, *pair, "ue8m0")
        monkeypatch.setattr(block_scaled, "SMALL", 0)
        assert_bits_equal(product(x, *pair, "ue8m0", threads=2), want)


RANGES = {  # exponents of scales, and whether they are within reach of the sums of `panel`
    "near": (-4, 5, True),
    "full range": (-60, 31, True),
    "products below 2**-133": (-126, -60, True),
    "sums that overflow": (50, 64, False),
    "everything": (-127, 128, False),
}


@pytest.mark.skipif(host_processor() is None, reason="without vectors of its own this host takes the engine of rows")
@pytest.mark.parametrize("pair", [("e4m3", "e4m3"), ("e5m2", "e2m1"), ("e3m2", "e4m3")])
@pytest.mark.parametrize("name", RANGES)
def test_scales_lift_exponents(name: str, pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of scales; few elements that are not zero or subnormal, whose exponents then align the sums."""
    low, high, reached = RANGES[name]
    rng, (fa, fb) = np.random.default_rng([low + 200, len(pair[0])]), (FORMATS[f] for f in pair)
    taken: list[object] = []
    rows = scaled_rows_engine.ScaledRowsProduct
    monkeypatch.setattr(
        scaled_rows_engine, "ScaledRowsProduct", lambda *args, **how: taken.append(args) or rows(*args, **how)
    )
    for m, n, k, sparse in ((70, 130, 90, 0.0), (5, 64, 608, 0.7), (64, 70, 64, 0.95), (66, 3, 33, 0.3)):
        a, b = (_finite(rng, f, shape, sparse) for f, shape in ((fa, (m, k)), (fb, (k, n))))
        blocks = -(-k // 32)
        xs, ys = (rng.integers(low + 127, high + 127, shape).astype(np.uint8) for shape in ((m, blocks), (blocks, n)))
        exponents = np.clip(rng.integers(2 * low, 2 * high + 12, (m, n)), -148, 127)
        c = (np.ldexp(rng.uniform(1, 2, (m, n)), exponents) * rng.choice([-1, 0, 1], (m, n))).astype(np.float32)
        x = Drawn(a, b, c.view(np.uint32), xs, ys)
        for with_c in (False, True):
            monkeypatch.setattr(block_scaled, "SMALL", 1 << 60)
            want = product(x, *pair, "ue8m0", with_c)
            monkeypatch.setattr(block_scaled, "SMALL", 0)
            assert_bits_equal(product(x, *pair, "ue8m0", with_c, threads=2), want)
    assert reached == (not taken)


def _finite(rng: np.random.Generator, fmt: Format, shape: tuple[int, ...], sparse: float) -> np.ndarray:
    """Codes of numbers; a share of them is zero or subnormal."""
    magnitude = rng.integers(0, fmt.special or 1 << (fmt.bits - 1), shape)
    small = rng.integers(0, 1 << fmt.mantissa, shape)
    codes = np.where(rng.random(shape) < sparse, small, magnitude) | rng.integers(0, 2, shape) << (fmt.bits - 1)
    return codes.astype(np.uint8)


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_that_leave_32_bits(sign: int) -> None:
    """All products are as large as they can be and of one sign; one row has an Inf, one column a scale that is none."""
    a, b = np.full((66, 128), 1.875, "float8_e4m3fn"), np.full((128, 70), sign * 1.875, "float8_e4m3fn")
    s = np.ones((66, 4), E8), np.ones((4, 70), E8)
    s[1][2, 3] = np.nan
    a[7, 9] = np.nan
    d = nbtc.matmul(a, b, arch="sm_120", scale_a=s[0], scale_b=s[1])
    expected = np.full((66, 70), sign * 128 * 1.875**2, np.float32)
    expected[7], expected[:, 3] = np.nan, np.nan
    expected.view(np.uint32)[np.isnan(expected)] = 0x7FFFFFFF
    assert_bits_equal(d, expected)


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_at_the_end_of_32_bits(sign: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of exponent 0 that sum to about 64, 2**31 units of the last place, and c up to that or a unit away."""
    rng = np.random.default_rng(8)
    a, b = (rng.integers(0, 8, shape).astype(np.uint8) + 0x38 for shape in ((70, 32), (32, 66)))
    b |= np.uint8(0x80 * (sign < 0))
    total = from_bits(a, "e4m3").astype(np.float64) @ from_bits(b, "e4m3").astype(np.float64)
    units = rng.integers(-2, 3, total.shape) * 2.0**-25
    c = (sign * 64 - total + units).astype(np.float32)
    scales = np.full((70, 1), 127, np.uint8), np.full((1, 66), 127, np.uint8)
    x = Drawn(a, b, c.view(np.uint32), *scales)
    near = (np.abs(c) < 2) & (np.abs(c + total - sign * 64) <= 2.0**-24)
    assert near.sum() > 100  # c of exponent 0 does not align the sum
    monkeypatch.setattr(block_scaled, "SMALL", 1 << 60)
    want = product(x, "e4m3", "e4m3", "ue8m0")
    monkeypatch.setattr(block_scaled, "SMALL", 0)
    assert_bits_equal(product(x, "e4m3", "e4m3", "ue8m0"), want)


@pytest.mark.parametrize("pair", [("e4m3", "e5m2"), ("e5m2", "e2m1"), ("e2m3", "e3m2"), ("e4m3", "e4m3")])
def test_scaled_and_oracle(pair: tuple[str, str], large: None) -> None:
    rng, judge = np.random.default_rng(9), oracle(*pair, "ue8m0", 32)
    for _ in range(25):
        m, n, k = int(rng.integers(1, 6)), int(rng.integers(1, 19)), 32 * int(rng.integers(1, 4))
        x = draw(rng, (m, n, k), (*(FORMATS[f] for f in pair), FORMATS["ue8m0"]), k // 32)
        want = judge.matrix(x.a, x.b, x.c, x.xs, x.ys)
        assert_bits_equal(product(x, *pair, "ue8m0").view(np.uint32), want, "f32")


def test_published_vectors(large: None) -> None:
    """Every tile of the published model, where NBTC_VECTORS names the folder of recordings."""
    folder = os.environ.get("NBTC_VECTORS")
    if folder is None:
        pytest.skip("NBTC_VECTORS is not set")
    with np.load(Path(folder) / "blackwell_models.npz") as z:
        for form in sorted({k.rsplit("__", 1)[0] for k in z.files if ".mx" in k}):
            where, kind, _, scale, a, b = form.split(".")
            x = Drawn(*(z[f"{form}__{n}"] for n in ("A", "B")), z[f"{form}__C"].astype(np.uint32),
                      *(z[f"{form}__{n}"] for n in ("SA", "SB")))  # fmt: skip
            got = product(x, a, b, scale, kind=kind, arch="sm_120" if where == "sm120" else "sm_100")
            assert_bits_equal(got.view(np.uint32), z[f"{form}__D"].astype(np.uint32), "f32", form)


def test_batches_broadcast_and_splits_add(large: None) -> None:
    rng = np.random.default_rng(1)
    a, b = (from_bits(rng.integers(0, 16, s, dtype=np.uint8), "e2m1") for s in ((3, 1, 8, 128), (2, 128, 9)))
    sa, sb = (from_bits(rng.integers(120, 134, s, dtype=np.uint8), "ue8m0") for s in ((8, 4), (2, 4, 9)))
    d = nbtc.matmul(a, b, arch="sm_120", scale_a=sa, scale_b=sb)
    assert d.shape == (3, 2, 8, 9)
    one = nbtc.matmul(a[2, 0], b[1], arch="sm_120", scale_a=sa, scale_b=sb[1])
    assert_bits_equal(d[2, 1], one)
    parts = [
        nbtc.matmul(a[2, 0][:, k], b[1][k], arch="sm_120", scale_a=sa[:, s], scale_b=sb[1][s])
        for k, s in ((slice(64), slice(2)), (slice(64, 128), slice(2, 4)))
    ]
    how = {"arch": "sm_120", "scale_a": sa, "scale_b": sb[1]}
    split = nbtc.matmul(a[2, 0], b[1], np.ones((8, 9), np.float32), k_split=64, **how)
    assert_bits_equal(split, parts[0] + parts[1] + np.float32(1))
    out = np.empty((8, 9), np.float32)
    assert nbtc.matmul(a[2, 0], b[1], arch="sm_120", scale_a=sa, scale_b=sb[1], out=out) is out
    assert_bits_equal(out, one)


def test_packed_words_and_transposed_operands(large: None) -> None:
    rng = np.random.default_rng(2)
    a = from_bits(rng.integers(0, 16, (8, 96), dtype=np.uint8), "e2m1")
    s = np.ones((8, 3), E8)
    want = nbtc.matmul(a, a.T, arch="sm_120", scale_a=s, scale_b=s.T)
    words = nbtc.pack(a, "e2m1")
    got = nbtc.matmul(words, a.T, arch="sm_120", scale_a=s, scale_b=s.T, a_format="e2m1")
    assert_bits_equal(got, want)
    assert_bits_equal(want, (a.astype(np.float32) @ a.T.astype(np.float32)))


def test_nothing_to_multiply() -> None:
    none = np.ones((4, 0), E2), np.ones((0, 5), E2)
    scales = {"scale_a": np.ones((4, 0), E8), "scale_b": np.ones((0, 5), E8), "arch": "sm_120"}
    c = np.full((4, 5), -0.0, np.float32)
    assert_bits_equal(nbtc.matmul(*none, c, **scales), c)


def test_kinds_and_instructions() -> None:
    f8, e2 = np.ones((4, 64), ml_dtypes.float8_e4m3fn), np.ones((4, 64), E2)
    s32, s16 = np.ones((4, 2), E8), np.ones((4, 4), E8)
    v16 = s16.astype(np.float32).astype(ml_dtypes.float8_e4m3fn)
    name = lambda a, s, **how: nbtc.plan(a, a.T, scale_a=s, scale_b=s.T, **how).instruction  # noqa: E731
    assert ".kind::mxf4.block_scale.scale_vec::2X" in name(e2, s32, arch="sm_120")
    assert ".kind::mxf4nvf4.block_scale.scale_vec::4X" in name(e2, s16, arch="sm_121")
    assert name(e2, v16, arch="sm_120").endswith("f32.ue4m3")
    assert ".kind::mxf8f6f4.block_scale.scale_vec::1X" in name(f8, s32, arch="sm_120")
    assert name(e2, s32, arch="sm_120", kind="mxf8f6f4").endswith("f32.e2m1.e2m1.f32.ue8m0")
    assert name(e2, v16, arch="sm_100") == "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X"
    assert name(f8, s32, arch="sm_103", instruction="tcgen05").endswith("mxf8f6f4.block_scale.scale_vec::1X")
    with pytest.raises(UnsupportedInstructionError, match="mxf4 and mxf4nvf4 take e2m1"):
        name(f8, s16, arch="sm_120")
    with pytest.raises(UnsupportedInstructionError, match="sm_90 has no"):
        name(f8, s32)
    with pytest.raises(UnsupportedInstructionError, match="sm_100 has no mma"):
        name(f8, s32, arch="sm_100", instruction="mma")
    with pytest.raises(OptionError, match="is not of these operands"):
        name(f8, s32, arch="sm_120", instruction=name(e2, s32, arch="sm_120"))
    assert nbtc.plan(e2, f8.T, arch="sm_120").instruction.endswith("kind::f8f6f4.f32.e2m1.e4m3.f32")
    assert nbtc.plan(e2, e2.T, arch="sm_100").instruction == "tcgen05.mma.cta_group::1.kind::f8f6f4"
    i8 = np.ones((4, 64), np.int8)
    assert nbtc.plan(i8, i8.T, arch="sm_100", kind="i8").instruction.endswith("kind::i8")
    with pytest.raises(OptionError, match="kind='fp4' does not exist"):
        nbtc.matmul(e2, e2.T, arch="sm_120", kind="fp4")


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"scale_b": None}, OptionError, "come in pairs"),
        ({"scale_b": np.ones((2, 4), ml_dtypes.float8_e4m3fn)}, FormatError, "both float8_e4m3fn|both ml_dtypes"),
        ({"scale_b": np.ones((3, 4), E8)}, ShapeError, "scale_b"),
        ({"scale_a": np.ones((5, 2), E8)}, ShapeError, "scale_a"),
        ({"acc": "f16"}, OptionError, "accumulate in f32"),
        ({"k_split": 32}, OptionError, "whole steps of 64"),
        ({"k_split": 0}, OptionError, "k_split=0 is not a length of K"),
        ({"k_split": [64]}, OptionError, "is not a length of K"),
        ({"saturate": True}, OptionError, "with block scales"),
        ({"order": "seq"}, OptionError, "with block scales"),
        ({"scale_a": np.ones((7, 4, 2), E8), "scale_b": np.ones((6, 2, 4), E8)}, ShapeError, "do not broadcast"),
    ],
)
def test_errors(how: dict[str, object], error: type[Exception], message: str) -> None:
    a = np.ones((4, 64), E2)
    scales = {"scale_a": np.ones((4, 2), E8), "scale_b": np.ones((2, 4), E8), "arch": "sm_120"}
    with pytest.raises(error, match=message):
        nbtc.matmul(a, a.T, **scales | how)


def test_doubtful_models_warn_once() -> None:
    models._WARNED.clear()
    a, s = np.ones((4, 64), E2), np.ones((4, 2), E8)
    with pytest.warns(UnvalidatedModelWarning, match="literature"):
        nbtc.matmul(a, a.T, arch="sm_100", scale_a=s, scale_b=s.T)


def test_the_result_goes_to_a_tensor_of_torch() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(s).astype(ml_dtypes.float8_e4m3fn) for s in ((32, 64), (64, 32)))
    how = {"arch": "sm_120", "scale_a": np.ones((32, 2), E8), "scale_b": np.ones((2, 32), E8)}
    out = torch.zeros(32, 32)
    nbtc.matmul(a, b, out=out, **how)
    assert_bits_equal(out.numpy(), nbtc.matmul(a, b, **how))
