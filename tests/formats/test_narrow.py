"""Formats below a byte and scales: every code there and back, what special inputs become, and how they pack."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import nbtc
from nbtc.errors import FormatError
from nbtc.formats.arrays import from_bits, to_bits
from nbtc.formats.conversions import convert
from nbtc.formats.table import FORMATS, Format
from nbtc.ops.convert import cvt
from nbtc.testing import assert_bits_equal

NUMBERS = [FORMATS[n] for n in ("e2m1", "e2m3", "e3m2")]
pytestmark = pytest.mark.filterwarnings("ignore::nbtc.errors.UnvalidatedModelWarning")


def value(code: int, fmt: Format) -> Fraction:
    """By the definition of the format's fields."""
    fraction, field = code & ((1 << fmt.mantissa) - 1), code >> fmt.mantissa & ((1 << fmt.exponent) - 1)
    significand = fraction + (1 << fmt.mantissa if field or not fmt.zero else 0)
    scale = Fraction(2) ** (max(field, int(fmt.zero)) - fmt.bias - fmt.mantissa)
    return significand * scale * (-1 if fmt.signed and code >> (fmt.bits - 1) else 1)


@pytest.mark.parametrize(
    ("fmt", "largest", "least"),
    [("e2m1", 6, Fraction(1, 2)), ("e2m3", Fraction(15, 2), Fraction(1, 8)), ("e3m2", 28, Fraction(1, 16)),
     ("ue8m0", Fraction(2) ** 127, Fraction(2) ** -127), ("ue4m3", 448, Fraction(1, 512)),
     ("e4m3", 448, Fraction(1, 512)), ("e5m2", 57344, Fraction(1, 65536))],
)  # fmt: skip
def test_ends_of_a_format(fmt: str, largest: Fraction, least: Fraction) -> None:
    f = FORMATS[fmt]
    assert value(f.special - 1, f) == largest and 2**f.emax <= largest < 2 ** (f.emax + 1)
    assert value(int(f.zero), f) == least


@pytest.mark.parametrize("fmt", [FORMATS[n] for n in ("e2m1", "e2m3", "e3m2", "ue8m0")], ids=str)
def test_values_are_those_of_ml_dtypes(fmt: Format) -> None:
    codes = np.arange(fmt.special if not fmt.signed else 1 << fmt.bits, dtype=np.uint8)
    want = [float(value(int(c), fmt)) for c in codes]
    assert from_bits(codes, fmt).astype(np.float64).tolist() == want
    assert_bits_equal(to_bits(from_bits(codes | np.uint8(-1 << fmt.bits & 0xFF), fmt), fmt), codes)


@pytest.mark.parametrize("half", ["f16", "bf16"])
@pytest.mark.parametrize("source", NUMBERS, ids=str)
def test_every_code_widens_exactly_and_comes_back(source: Format, half: str) -> None:
    x = from_bits(np.arange(1 << source.bits, dtype=np.uint8), source)
    wide = convert(x, half)
    assert_bits_equal(wide, x.astype(wide.dtype))
    assert_bits_equal(convert(wide, source), x)
    assert_bits_equal(convert(x.astype(np.float32), source), x)
    clamped = convert(x, half, relu=True)
    assert_bits_equal(clamped, np.where(np.signbit(x.astype(np.float32)), np.array(0, wide.dtype), wide))


@pytest.mark.parametrize("target", NUMBERS, ids=str)
def test_ties_go_to_even_codes_and_the_rest_to_the_nearest(target: Format) -> None:
    top = target.special - 1
    for code in range(top):
        low, high = value(code, target), value(code + 1, target)
        middle = np.float32(float((low + high) / 2))
        for x, want in ((middle, code + code % 2), (np.nextafter(middle, np.float32(0)), code),
                        (np.nextafter(middle, np.float32(99)), code + 1)):  # fmt: skip
            for sign in (0, 1):
                got = convert(np.float32(-x if sign else x), target).view(np.uint8)
                assert int(got) == want | sign << (target.bits - 1), (x, sign)


@pytest.mark.parametrize("target", NUMBERS, ids=str)
@pytest.mark.parametrize("source", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_what_is_no_small_number_saturates(target: Format, source: type) -> None:
    top, sign = target.special - 1, 1 << (target.bits - 1)
    x = np.array([np.nan, -np.nan, np.inf, -np.inf, 30000, -30000, -0.0, -1e-7], np.float32).astype(source)
    want = [top, top, top, top | sign, top, top | sign, sign, sign]
    assert convert(x, target).view(np.uint8).tolist() == want
    assert convert(x, target, relu=True).view(np.uint8).tolist() == [top, top, top, 0, top, 0, 0, 0]


def test_scales_are_powers_of_two_of_the_absolute_value() -> None:
    exact = np.ldexp(1.0, np.arange(-127, 128)).astype(np.float32)
    for rounding in ("rz", "rp"):
        for x in (exact, -exact):
            assert convert(x, "ue8m0", rounding).view(np.uint8).tolist() == list(range(255))
    above, below = np.nextafter(exact, np.float32(np.inf)), np.nextafter(exact, np.float32(0))
    assert convert(above, "ue8m0", "rz").view(np.uint8).tolist() == list(range(255))
    assert convert(above, "ue8m0", "rp").view(np.uint8).tolist() == list(range(1, 256))
    assert convert(above, "ue8m0", "rp", True).view(np.uint8).tolist() == [*range(1, 255), 254]
    assert convert(below, "ue8m0", "rz").view(np.uint8).tolist() == [0, *range(254)]
    assert convert(below, "ue8m0", "rp").view(np.uint8).tolist() == list(range(255))
    ends = np.array([0, -0.0, 1e-45, np.inf, -np.inf, np.nan], np.float32)
    assert convert(ends, "ue8m0", "rz").view(np.uint8).tolist() == [0, 0, 0, 255, 255, 255]
    assert convert(ends, "ue8m0", "rp", True).view(np.uint8).tolist() == [0, 0, 0, 254, 254, 255]


@pytest.mark.parametrize("rounding", ["rz", "rp"])
def test_every_bf16_as_a_scale_and_every_scale_as_bf16(rounding: str) -> None:
    words = np.arange(1 << 15, dtype=np.uint16)
    field, fraction = words >> 7, words & 127
    finite = words < 0x7F80
    with np.errstate(all="ignore"):
        magnitude = words.view(ml_dtypes.bfloat16).astype(np.float64)
        exact = np.log2(np.where(finite & (words > 0), magnitude, 1))
    step = np.floor if rounding == "rz" else np.ceil
    want = np.where(words == 0, 0, np.clip(step(exact) + 127, 0, 255))
    want = np.where(finite, want, 255).astype(np.uint8)
    assert field.max() == 255 and fraction.max() == 127
    for sign in (0, 0x8000):
        got = convert((words | np.uint16(sign)).view(ml_dtypes.bfloat16), "ue8m0", rounding)
        assert_bits_equal(got.view(np.uint8), want)
    codes = np.arange(256, dtype=np.uint8)
    back = convert(codes.view(ml_dtypes.float8_e8m0fnu), "bf16").view(np.uint16)
    assert back.tolist() == [0x40, *(c << 7 for c in range(1, 255)), 0x7FFF]


@pytest.mark.parametrize("target", ["e2m1", "e2m3", "e3m2", "ue8m0"])
def test_words_and_arrays_agree(target: str) -> None:
    rng = np.random.default_rng(8)
    x = rng.integers(0, 2**32, 4000, dtype=np.uint32)
    x[:2000] = (rng.standard_normal(2000) * 3).astype(np.float32).view(np.uint32)
    slot = 4 if target == "e2m1" else 8
    scale = target == "ue8m0"
    for source in ("f32", "bf16x2") if scale else ("f32", "f16x2", "bf16x2"):
        head = "cvt.rz" if scale else "cvt.rn.satfinite"
        if source == "f32":
            parts, words = (x.view(np.float32), x[::-1].view(np.float32)), (x, x[::-1])
        else:
            dtype = np.dtype(FORMATS[source[:-2]].dtype)
            parts, words = ((x >> 16).astype(np.uint16).view(dtype), x.astype(np.uint16).view(dtype)), (x,)
        high, low = (convert(p, target, "rz" if scale else "rn").view(np.uint8).astype(np.uint16) for p in parts)
        got = cvt(f"{head}.{target}x2.{source}", *words)
        assert got.dtype == (np.uint8 if slot == 4 else np.uint16)
        assert_bits_equal(got.astype(np.uint16), high << np.uint16(slot) | low)
    for wide in ("bf16x2",) if scale else ("f16x2", "bf16x2"):
        pairs = np.arange(1 << 2 * slot).astype(np.uint8 if slot == 4 else np.uint16)
        fmt = FORMATS[target]
        upper, lower = (from_bits(p.astype(np.uint8) & np.uint8(2**fmt.bits - 1), fmt) for p in (pairs >> slot, pairs))
        a, b = (convert(v, wide[:-2]).view(np.uint16).astype(np.uint32) for v in (upper, lower))
        assert_bits_equal(cvt(f"cvt.rn.{wide}.{target}x2", pairs), a << np.uint32(16) | b)


def test_packing_follows_the_row() -> None:
    x = from_bits(np.arange(16, dtype=np.uint8), "e2m1").reshape(2, 8)
    words = nbtc.pack(x, "e2m1")
    assert [hex(w) for w in words.ravel()] == ["0x76543210", "0xfedcba98"]
    assert_bits_equal(nbtc.unpack(words, nbtc.e2m1), x)
    for fmt in ("e2m3", "e3m2", "ue4m3", "e4m3"):
        assert not FORMATS[fmt].packed
        with pytest.raises(FormatError, match=f"not {fmt}, one element a byte"):
            nbtc.pack(np.zeros(8, FORMATS[fmt].dtype), fmt)
    with pytest.raises(FormatError, match="round first"):
        nbtc.pack(np.zeros(8, np.float32), "e2m1")


def test_a_dtype_means_its_first_format() -> None:
    assert nbtc.as_format(ml_dtypes.float8_e4m3fn) is nbtc.e4m3 and nbtc.as_format("ue4m3") is nbtc.ue4m3
    assert nbtc.as_format(ml_dtypes.float8_e8m0fnu) is nbtc.ue8m0
    padded = np.array([0x80, 0xB8], np.uint8).view(ml_dtypes.float8_e4m3fn)
    assert to_bits(padded, "ue4m3").tolist() == [0x00, 0x38]


def test_a_format_whose_fields_do_not_add_up_is_refused() -> None:
    with pytest.raises(FormatError, match="take 7 bits, not 6"):
        Format("e3m3", 41, "float", 6, 3, 3, dtype_name="float6_e2m3fn")
