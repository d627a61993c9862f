"""The rounding function by itself, at every shift: conversions of today's formats need only some of them."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np

from nbtc.formats.codec import bit_length, round_shift


def rounded(value: Fraction, negative: bool, mode: int) -> int:
    """By the definitions of the modes."""
    low = floor(value)
    rest = value - low
    half = Fraction(1, 2)
    up = (
        rest > half or (rest == half and low % 2 == 1),
        False,
        negative and rest > 0,
        not negative and rest > 0,
        rest >= half,
    )
    return low + int(up[mode])


def test_every_shift_mode_and_tie() -> None:
    rng = np.random.default_rng(7)
    words = [1, 2, 3, 5, (1 << 53) - 1, 1 << 52, *rng.integers(1, 1 << 53, 6).tolist()]
    for shift in (-9, -1, 0, 1, 2, 3, 13, 24, 51, 52, 53, 54, 61, 62, 63, 64, 65, 300):
        ties = [(2 * n + 1) << (shift - 1) for n in (0, 1, 6) if 0 < shift < 50]
        for significand in [
            w for w in (*words, *ties, *(t - 1 for t in ties if t > 1)) if w << max(-shift, 0) < 1 << 64
        ]:
            for negative in (False, True):
                for mode in range(5):
                    got = round_shift(np.uint64(significand), np.int64(shift), negative, np.int64(mode))
                    want = rounded(Fraction(significand) / Fraction(2) ** shift, negative, mode)
                    assert int(got) == want, (significand, shift, negative, mode)


def test_bit_length() -> None:
    for n in range(64):
        assert bit_length(np.uint64(1 << n)) == n + 1
        assert bit_length(np.uint64((1 << n) - 1)) == n
