"""Conversions: every code of the small formats, neighbours and ties of target codes, and what an H200 returned."""

from __future__ import annotations

import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from nbtc.errors import FormatError, OptionError, UnvalidatedModelWarning
from nbtc.formats import conversions
from nbtc.formats.arrays import from_bits
from nbtc.formats.conversions import CONVERSIONS, Conversion, conversion, convert
from nbtc.formats.table import FORMATS, Format
from nbtc.numerics import exact_float
from nbtc.testing import assert_bits_equal

F16, BF16, TF32, F32 = (FORMATS[n] for n in ("f16", "bf16", "tf32", "f32"))
FP8 = [FORMATS["e4m3"], FORMATS["e5m2"]]


def codes(fmt: Format) -> np.ndarray:
    """Every code of a format, as its array."""
    return from_bits(np.arange(1 << fmt.bits).astype(fmt.bits_dtype), fmt)


@np.errstate(all="ignore")
def hard_f32(target: Format) -> np.ndarray:
    """f32 values at, between and beside the codes of a format, f32's own edges, and random bits."""
    shift = 13 if target.name == "tf32" else 0
    number = np.arange(1 << min(16, target.bits), dtype=np.uint32)
    if target.name == "tf32":
        number = (number[:, None] << np.uint32(3) | np.array([0, 5, 7], np.uint32)).reshape(-1) & np.uint32(0x7FFFF)
        exact = (number << np.uint32(shift)).view(np.float32)
    else:
        exact = from_bits(number.astype(target.bits_dtype), target).astype(np.float32)
    words = exact[np.isfinite(exact)].view(np.uint32)
    step = 1 << (22 - target.mantissa)  # half a unit of the target's last place, in a normal's words
    near = [words + np.uint32(d % 2**32) for d in (0, 1, -1, step, step + 1, step - 1, -step)]
    edges = np.array([0, 1, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF], np.uint32)
    half = (exact.astype(np.float64) * 0.5 + np.roll(exact, 1).astype(np.float64) * 0.5).astype(np.float32)
    noise = np.random.default_rng(target.code + 1).integers(0, 2**32, 100_000, dtype=np.uint32)
    return np.concatenate([*near, edges, edges | np.uint32(1 << 31), half.view(np.uint32), noise]).view(np.float32)


@np.errstate(all="ignore")
def reference(x: np.ndarray, target: Format, mode: str, saturate: bool, relu: bool, nan: int) -> np.ndarray:
    """By comparison of values: the nearest code from another library, then a step in the mode's direction."""
    wide = x.astype(np.float64)
    dtype = {"tf32": None}.get(target.name, target.dtype)
    nearest = _tf32(x) if dtype is None else x.astype(dtype)
    value = nearest.astype(np.float64)
    bits = nearest.view(target.bits_dtype).astype(np.int64) >> (13 if dtype is None else 0)
    magnitude, sign = bits & ~(1 << (target.exponent + target.mantissa)), np.signbit(x)
    top = target.special - 1
    finite = np.isfinite(wide)
    if mode != "rn":
        past = (np.abs(value) > np.abs(wide)) & finite
        down = {"rz": np.ones_like(sign), "rm": ~sign, "rp": sign}[mode]
        short = (np.abs(value) < np.abs(wide)) & finite
        magnitude = magnitude - (past & down) + (short & ~down)
    if saturate:
        over = (np.abs(wide) > _value(top, target)) & ~np.isnan(wide)
        magnitude = np.where(over, top, np.minimum(magnitude, top))
    sign = sign & (not relu)
    out = np.where(np.signbit(x) & relu, 0, magnitude) | sign.astype(np.int64) << (target.exponent + target.mantissa)
    out = np.where(np.isnan(wide), nan, out)
    return (out << (13 if dtype is None else 0)).astype(target.bits_dtype)


def _value(code: int, fmt: Format) -> float:
    significand, exponent = exact_float.decode(code << 13 if fmt.name == "tf32" else code, fmt)
    return float(significand) * 2.0 ** (exponent - fmt.mantissa)


def _tf32(x: np.ndarray) -> np.ndarray:
    """To nearest even by the addition of almost half a unit."""
    w = x.view(np.uint32)
    finite = (w & np.uint32(0x7F800000)) != np.uint32(0x7F800000)
    rounded = w + np.uint32(0xFFF) + (w >> np.uint32(13) & np.uint32(1)) & np.uint32(0xFFFFE000)
    return np.where(finite, rounded, w).view(np.float32)


NARROWING = [c for c in CONVERSIONS if not c.widening and c.rounding != "rna" and c.target.signed]
FORMS = [(c, s, r) for c in NARROWING for s in c.saturate for r in ((False, True) if c.relu else (False,))]


@pytest.mark.parametrize(
    ("row", "saturate", "relu"),
    FORMS,
    ids=[f"{c.source}-{c.target}-{c.rounding}{'-sat' * s}{'-relu' * r}" for c, s, r in FORMS],
)
@pytest.mark.filterwarnings("ignore::nbtc.errors.UnvalidatedModelWarning")
def test_narrowing(row: Conversion, saturate: bool, relu: bool) -> None:
    c = row
    x = hard_f32(c.target) if c.source == F32 else codes(c.source)
    got = convert(x, c.target, c.rounding, saturate, relu)
    assert got.dtype == c.target.dtype
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float32)
    assert_bits_equal(
        got.view(c.target.bits_dtype), reference(wide, c.target, c.rounding, saturate, relu, c.nan), c.target
    )


@pytest.mark.parametrize("saturate", [False, True])
def test_rna_to_tf32_is_an_addition_and_a_mask(saturate: bool) -> None:
    x = hard_f32(TF32)
    w = x.view(np.uint32)
    special = (w & np.uint32(0x7F800000)) == np.uint32(0x7F800000)
    want = np.where(special, w, w + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    if saturate:
        want = np.where((want & np.uint32(0x7F800000)) == np.uint32(0x7F800000), want - np.uint32(0x2000), want)
    assert_bits_equal(convert(x, "tf32", "rna", saturate).view(np.uint32), want, "tf32")


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("source", FP8, ids=str)
def test_fp8_widens_exactly(source: Format, relu: bool) -> None:
    x = codes(source)
    want = x.astype(np.float16).view(np.uint16)
    want[np.isnan(x.astype(np.float32))] = 0x7FFF
    if relu:
        want[(want >> 15) == 1] = 0
    assert_bits_equal(convert(x, "f16", relu=relu).view(np.uint16), want, "f16")


def test_halves_widen_exactly() -> None:
    x = codes(F16)
    want = x.astype(np.float32).view(np.uint32)
    want[np.isnan(x)] = 0x7FFFFFFF
    assert_bits_equal(convert(x, "f32").view(np.uint32), want, "f32")
    bits = np.arange(65536, dtype=np.uint32) << np.uint32(16)
    assert_bits_equal(convert(codes(BF16), "f32").view(np.uint32), bits, "f32")


def test_shapes_strides_and_scalars() -> None:
    x = np.linspace(-3, 3, 24, dtype=np.float32).reshape(2, 3, 4)
    assert_bits_equal(convert(x[:, ::-1, ::2], "f16"), x[:, ::-1, ::2].astype(np.float16))
    assert convert(np.float32(1.5), "bf16").shape == ()
    assert convert(np.zeros((0, 3), np.float32), "e4m3").shape == (0, 3)
    assert convert(x, FORMATS["bf16"]).dtype == ml_dtypes.bfloat16


def test_fp8_saturates_unless_told_what_no_form_does() -> None:
    assert float(convert(np.float32(1e9), "e5m2")) == 57344.0
    with pytest.raises(OptionError, match="always saturates"):
        convert(np.float32(1), "e4m3", saturate=False)


def test_unrecorded_forms_warn() -> None:
    conversions._warn.cache_clear()
    with pytest.warns(UnvalidatedModelWarning, match="no recording"):
        convert(np.zeros(2, ml_dtypes.bfloat16), "e4m3")
    with pytest.warns(UnvalidatedModelWarning, match="tf32"):
        convert(np.zeros(2, np.float32), "tf32", saturate=True)


@pytest.mark.parametrize("source", FORMATS.values(), ids=str)
def test_pairs_the_hardware_lacks_raise(source: Format) -> None:
    have = {c.target for c in CONVERSIONS if c.source == source}
    carried = {FORMATS["f32"]} if source == TF32 else set()
    for target in set(FORMATS.values()) - have - carried:
        with pytest.raises(FormatError, match=f"no form {source.name} -> {target.name}.*nbtc.convert"):
            conversion(source, target)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (("f16", "rna"), "only rn rz rm rp"),
        (("bf16", "rm"), "only rn rz"),
        (("e4m3", "rz"), "only rn"),
        (("f16", "rm", False, True), "takes no .relu"),
        (("f16", "rp", True), "takes no .satfinite"),
        (("tf32", "rna", False, True), "takes no .relu"),
        (("f16", "rn", "yes"), "not a truth value"),
        (("f16", "rn", None, 2), "not a truth value"),
    ],
)
def test_roundings_and_modifiers_the_hardware_lacks_raise(how: tuple[object, ...], message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        convert(np.float32([1]), *how)  # type: ignore[arg-type]
    assert len(str(caught.value)) >= 40


def test_other_dtypes_raise() -> None:
    for x in ([1.5], np.zeros(2, np.int8), np.zeros(2, np.uint16)):
        with pytest.raises(FormatError):
            convert(x, "f16")


def test_recordings_of_an_h200() -> None:
    """Whole instructions are in tests/ops/test_convert.py; here single elements through arrays."""
    folder = Path(os.environ.get("NBTC_GOLDEN", Path(__file__).parents[1] / "golden"))
    count = 0
    with np.load(folder / "cvt.npz") as z:
        for key in z.files:
            parts = key.split("__")[0].split("_")[1:]
            if not key.endswith("__f32") or key.startswith("in__"):
                continue
            rounding = next(p for p in parts if p in ("rn", "rz", "rm", "rp", "rna"))
            got = convert(z["in__f32"].view(np.float32), parts[-2], rounding, "satfinite" in parts, "relu" in parts)
            assert_bits_equal(got.view(z[key].dtype), z[key], what=key)
            count += 1
    assert count == 15


@pytest.mark.parametrize("dtype", ["int64", "complex64", "object", "longdouble"])
def test_dtypes_that_no_cvt_takes(dtype):
    with pytest.raises(FormatError, match=rf"x has elements of {np.dtype(dtype)}.*x\.astype\(np\.float32\)"):
        convert(np.ones(3, dtype), "e4m3")
