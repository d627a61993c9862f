"""The cvt instruction on words: recordings of an H200, packing order, cvt.pack, and every form that does not exist."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbtc.errors import (
    FormatError,
    NbtcError,
    OptionError,
    ParseError,
    RangeError,
    ShapeError,
    UnsupportedInstructionError,
)
from nbtc.formats.conversions import convert
from nbtc.ops.convert import cvt
from nbtc.testing import assert_bits_equal

GOLDEN = Path(os.environ.get("NBTC_GOLDEN", Path(__file__).parents[1] / "golden")) / "cvt.npz"


def test_recordings_of_an_h200() -> None:
    with np.load(GOLDEN) as z:
        f32, b16, b32 = z["in__f32"], z["in__b16"], z["in__b32"]
        sources = {"f32": (f32,), "b16": (b16,), "b32": (b32,), "f32pair": (f32, f32[np.arange(f32.size) ^ 1])}
        keys = [k for k in z.files if not k.startswith("in__")]
        for key in keys:
            form, kind = key.split("__")
            mnemonic = form.replace("_", ".")
            got = cvt(mnemonic, *sources[kind])
            assert got.dtype == z[key].dtype
            assert_bits_equal(got, z[key], what=mnemonic)
            deep = cvt(mnemonic, *(x.reshape(2, 2, -1) for x in sources[kind]))
            assert_bits_equal(deep, z[key].reshape(2, 2, -1), what=mnemonic)
        assert len(keys) == 35


ONE, TWO, MINUS = (int(np.float32(v).view(np.uint32)) for v in (1.0, 2.0, -3.0))


@pytest.mark.parametrize(
    ("mnemonic", "words", "want"),
    [
        ("cvt.rn.f16x2.f32", (ONE, TWO), 0x3C004000),
        ("cvt.rz.bf16x2.f32", (ONE, TWO), 0x3F804000),
        ("cvt.rn.satfinite.e4m3x2.f32", (ONE, TWO), 0x3840),
        ("cvt.rn.satfinite.relu.e5m2x2.f32", (MINUS, TWO), 0x0040),
        ("cvt.rn.satfinite.e4m3x2.f16x2", (0x3C004000,), 0x3840),
        ("cvt.rn.f16x2.e4m3x2", (0x3840,), 0x3C004000),
        ("cvt.rn.relu.f16x2.e5m2x2", (0xBC40,), 0x00004000),
        ("cvt.f32.bf16", (0xFFC1,), 0xFFC10000),
        ("cvt.f32.f16", (0xFE01,), 0x7FFFFFFF),
    ],
)
def test_the_first_operand_goes_to_the_high_half(mnemonic: str, words: tuple[int, ...], want: int) -> None:
    assert int(cvt(mnemonic, *words)) == want


@pytest.mark.parametrize(
    ("target", "source"),
    [(f"{t}{pair}", f"f32{half}") for t in ("f16", "bf16") for pair, half in (("", ""), ("x2", ""))],
)
@pytest.mark.parametrize("modifiers", ["rn", "rz", "rn.relu", "rz.satfinite", "rn.relu.satfinite", "rz.satfinite.relu"])
def test_words_and_arrays_agree(target: str, source: str, modifiers: str) -> None:
    x = np.random.default_rng(5).integers(0, 2**32, 4000, dtype=np.uint32)
    fmt = target.removesuffix("x2")
    how = {"saturate": "satfinite" in modifiers, "relu": "relu" in modifiers}
    high, low = (
        convert(w.view(np.float32), fmt, modifiers[:2], **how).view(np.uint16).astype(np.uint32) for w in (x, x[::-1])
    )
    if target.endswith("x2"):
        assert_bits_equal(cvt(f"cvt.{modifiers}.{target}.{source}", x, x[::-1]), high << np.uint32(16) | low)
    else:
        assert_bits_equal(cvt(f"cvt.{modifiers}.{target}.{source}", x), high.astype(np.uint16))


WIDTHS = [("s", 16), ("u", 16), ("s", 8), ("u", 8), ("s", 4), ("u", 4), ("s", 2), ("u", 2)]


@given(
    a=st.integers(-(2**31), 2**31 - 1) | st.integers(-300, 300),
    b=st.integers(-(2**31), 2**31 - 1) | st.integers(-300, 300),
    c=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(WIDTHS),
)
@settings(max_examples=300, deadline=None)
def test_integer_packing(a: int, b: int, c: int, kind: tuple[str, int]) -> None:
    letter, width = kind
    low = -(1 << (width - 1)) if letter == "s" else 0
    high = low + (1 << width) - 1
    fields = [min(max(v, low), high) & ((1 << width) - 1) for v in (a, b)]
    want = ((c << 2 * width if width < 16 else 0) | fields[0] << width | fields[1]) & 0xFFFFFFFF
    operands = (a, b) if width == 16 else (a, b, c)
    tail = "s32" if width == 16 else "s32.b32"
    assert int(cvt(f"cvt.pack.sat.{letter}{width}.{tail}", *operands)) == want


def test_operands_broadcast_and_may_be_signed() -> None:
    a, b = np.int32([[70000], [-5]]), np.uint32([1, 2, 3])
    got = cvt("cvt.pack.sat.u16.s32", a, b)
    assert got.tolist() == [[0xFFFF0001, 0xFFFF0002, 0xFFFF0003], [1, 2, 3]]
    assert (cvt("cvt.rn.f16x2.f32", np.uint32(ONE), np.uint32([ONE, TWO]), threads=1) == [0x3C003C00, 0x3C004000]).all()


ILLEGAL = (
    "cvt.f16.f32",
    "cvt.rn.f32.f16",
    "cvt.rn.e4m3x2.f32",
    "cvt.rz.satfinite.e4m3x2.f32",
    "cvt.rn.satfinite.e4m3.f32",
    "cvt.rn.satfinite.e4m3.f16",
    "cvt.rm.bf16.f32",
    "cvt.rm.f16x2.f32",
    "cvt.rm.relu.f16.f32",
    "cvt.rna.relu.tf32.f32",
    "cvt.rn.tf32x2.f32",
    "cvt.rn.satfinite.f16x2.e4m3x2",
    "cvt.rn.f16x2.f16x2",
    "cvt.rn.rn.f16.f32",
    "cvt.rn.ftz.f16.f32",
    "cvt.rn.f16.f64",
    "cvt.f32.f16x2",
    "cvt.rn",
    "cvt.pack.sat.u8.s32",
    "cvt.pack.sat.u16.s32.b32",
    "cvt.pack.u8.s32.b32",
    "cvt.pack.sat.u32.s32.b32",
    "add.f32",
)


@pytest.mark.parametrize("mnemonic", ILLEGAL)
def test_forms_that_do_not_exist_raise_and_name_one_that_does(mnemonic: str) -> None:
    with pytest.raises(ParseError, match=r"[Nn]earest legal form|cvt\.") as caught:
        cvt(mnemonic, np.uint32(1))
    assert len(str(caught.value)) >= 40


@pytest.mark.parametrize("mnemonic", ["cvt.rs.satfinite.e2m1x4.f32", "cvt.rs.relu.f16x2.f32", "cvt.rs.bf16x2.f32"])
def test_forms_without_recorded_arithmetic_refuse(mnemonic: str) -> None:
    with pytest.raises(UnsupportedInstructionError, match=r"no recorded arithmetic.*random bits"):
        cvt(mnemonic, np.uint32(1))


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((), ShapeError),
        ((np.uint32(1), np.uint32(1)), ShapeError),
        ((np.float32(1),), FormatError),
        ((np.uint16(1),), FormatError),
        ((np.uint64(1),), FormatError),
        ((1 << 32,), RangeError),
        ((-(1 << 31) - 1,), RangeError),
    ],
)
def test_wrong_operands_raise(words: tuple[object, ...], error: type[NbtcError]) -> None:
    with pytest.raises(error) as caught:
        cvt("cvt.rn.f16.f32", *words)  # type: ignore[arg-type]
    assert len(str(caught.value)) >= 40


def test_shapes_that_do_not_broadcast_and_wrong_threads_raise() -> None:
    with pytest.raises(ShapeError, match="do not broadcast"):
        cvt("cvt.rn.f16x2.f32", np.zeros(2, np.uint32), np.zeros(3, np.uint32))
    for threads in (0, True, "2"):
        with pytest.raises(OptionError, match="threads"):
            cvt("cvt.rn.f16.f32", np.uint32(1), threads=threads)  # type: ignore[arg-type]
    with pytest.raises(ParseError, match="is not text"):
        cvt(3, np.uint32(1))  # type: ignore[arg-type]
