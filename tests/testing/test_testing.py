"""The helpers that tests stand on: a comparison must notice every bit, a distance must count values."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbtc.errors import BoundsError, FormatError, GoldenMismatch, NbtcError, OptionError, ShapeError
from nbtc.formats.arrays import from_bits
from nbtc.formats.table import FORMATS
from nbtc.testing import assert_bits_equal, classify, recordings, ulp_distance
from nbtc.testing.cases import cases
from nbtc.testing.strategies import operands, strategies

FLOATS = [f for f in FORMATS.values() if f.kind == "float"]


@given(st.sampled_from(FLOATS), st.integers(0, 2**64 - 1), st.integers(0, 63))
@settings(max_examples=200, deadline=None)
def test_one_flipped_bit_is_one_difference_of_one_class(fmt: object, word: int, bit: int) -> None:
    word &= (1 << fmt.bits) - 1  # type: ignore[attr-defined]
    other = word ^ 1 << bit % fmt.bits  # type: ignore[attr-defined]
    x, y = (from_bits(np.array([w], fmt.bits_dtype), fmt) for w in (word, other))  # type: ignore[attr-defined]
    assert_bits_equal(x, x.copy())
    with pytest.raises(GoldenMismatch, match="1 of 1 differ in bits"):
        assert_bits_equal(x, y)
    assert sum(int(m.sum()) for m in classify(x, y).values()) == 1


def test_classes() -> None:
    x = np.float32([0.0, 1.0, np.inf, 1.0, np.nan, 2.0])
    y = np.float32([-0.0, 1.0, 3.0, np.nextafter(np.float32(1), np.float32(2)), np.nan, np.nan])
    y.view(np.uint32)[4] += 1
    found = {name: np.flatnonzero(mask).tolist() for name, mask in classify(x, y).items()}
    assert found == {"zero sign": [0], "Inf": [2], "value": [3], "NaN payload": [4], "NaN against number": [5]}
    with pytest.raises(
        GoldenMismatch, match=r"run: 5 of 6 .* 1 value \(by 1 ulps at most\), 1 zero sign, 1 NaN payload"
    ):
        assert_bits_equal(x, y, what="run")


def test_e4m3_has_no_infinity() -> None:
    words = np.array([0x7E, 0x7F, 0xFF], np.uint8)
    found = classify(words, np.array([0x7F, 0xFF, 0x7E], np.uint8), "e4m3")
    assert {n: int(m.sum()) for n, m in found.items() if m.any()} == {"NaN against number": 2, "NaN payload": 1}


@pytest.mark.parametrize("fmt", [f for f in FLOATS if f.bits <= 16], ids=str)
def test_neighbours_are_one_apart(fmt: object) -> None:
    codes = np.arange(1 << fmt.bits).astype(fmt.bits_dtype)  # type: ignore[attr-defined]
    with np.errstate(invalid="ignore"):  # signalling NaNs
        values = from_bits(codes, fmt).astype(np.float64)
    order = np.argsort(values[np.isfinite(values)], kind="stable")
    line = codes[np.isfinite(values)][order]
    gaps = ulp_distance(line[1:], line[:-1], fmt)
    expected = (np.diff(np.sort(values[np.isfinite(values)])) > 0).astype(np.uint64)
    assert (gaps == expected).all()


def test_distances_across_zero_and_to_nan() -> None:
    assert ulp_distance(np.float64([-5e-324]), np.float64([5e-324])).tolist() == [2]
    assert ulp_distance(np.float64([-np.inf]), np.float64([np.inf])).tolist() == [2 * 0x7FF0000000000000]
    assert ulp_distance(np.float32([np.nan, 1]), np.float32([np.nan, np.nan])).tolist() == [0, 2**64 - 1]
    assert ulp_distance(np.int8([-128, 5]), np.int8([127, 7])).tolist() == [255, 2]
    tf32 = np.uint32([0x3F800000 | 0x1FFF, 0x3F802000])
    assert ulp_distance(tf32[:1], tf32[1:], "tf32").tolist() == [1]


def test_integers_are_values() -> None:
    with pytest.raises(
        GoldenMismatch, match=r"1 value \(by 3 at most\); first at \(1,\): 0x00000004 \(4\), not 0x00000007"
    ):
        assert_bits_equal(np.int32([1, 4]), np.int32([1, 7]))


@pytest.mark.parametrize(
    ("x", "y", "error"),
    [
        (np.zeros(2), np.zeros(3), ShapeError),
        (np.zeros(2), np.zeros((1, 2)), ShapeError),
        (np.zeros(2, np.float32), np.zeros(2), FormatError),
        (np.zeros(2, complex), np.zeros(2, complex), FormatError),
        (np.array(["a"]), np.array(["a"]), FormatError),
    ],
)
def test_what_cannot_be_compared_raises(x: np.ndarray, y: np.ndarray, error: type[NbtcError]) -> None:
    with pytest.raises(error) as caught:
        assert_bits_equal(x, y)
    assert len(str(caught.value)) >= 40


def test_recordings_are_read_group_by_group(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "r.npz", form__some__dist__A=np.arange(3), form__some__dist__D=np.arange(2), other__x__A=np.zeros(1)
    )
    (tmp_path / "index.json").write_text(json.dumps({"form": {"kind": "mma"}}))
    first, second = recordings(tmp_path, "r.npz")
    assert (first.form, first.distribution, first.entry) == ("form", "some__dist", {"kind": "mma"})
    assert sorted(first.arrays) == ["A", "D"]
    assert (second.form, second.entry) == ("other", {})
    with pytest.raises(BoundsError, match=r"holds r\.npz"):
        next(recordings(tmp_path, "none.npz"))


def test_strategies_are_deterministic_and_fit_their_formats() -> None:
    for case in cases()[::5]:
        for name in strategies(case.formats[0]):
            first, second = (case.operands(np.random.default_rng(3), name, 3, 2) for _ in range(2))
            for x, y, fmt in zip(first, second, case.formats, strict=True):
                assert_bits_equal(x, y)
                assert fmt.bits == 64 or not (x >> np.uint64(fmt.bits)).any()


def test_an_unknown_strategy_raises() -> None:
    f16 = FORMATS["f16"]
    with pytest.raises(OptionError, match=r"near_limit.*pass strategy="):
        operands(np.random.default_rng(0), "near_limit", (1, 1, 1), f16, f16, f16)
