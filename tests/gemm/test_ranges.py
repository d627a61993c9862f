"""Where the ways of the fused engine end: accumulators and operands of every exponent, sums that leave 32 bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from nbtc.testing import assert_bits_equal
from nbtc.testing.cases import Case, large_engines
from nbtc.testing.strategies import floats, words

pytestmark = pytest.mark.filterwarnings("ignore::nbtc.errors.UnvalidatedModelWarning")
CASES = {
    "f16": Case("sm_90", "mma", "f16", "f16", "f32", 16),
    "bf16": Case("sm_90", "mma", "bf16", "bf16", "f32", 16),
    "tf32": Case("sm_80", "mma", "tf32", "tf32", "f32", 8),
    "e4m3": Case("sm_90", "wgmma", "e4m3", "e4m3", "f32", 32),
    "e5m2-emulated": Case("sm_90", "mma", "e5m2", "e5m2", "f32", 32),
    "e4m3-sm_120": Case("sm_120", "mma", "e4m3", "e4m3", "f32", 32),
}


@pytest.fixture(autouse=True)
def _no_product_is_small() -> Iterator[None]:
    with large_engines():
        yield


def drawn(case: Case, side: int, exponent: Any, shape: tuple[int, int], seed: int) -> np.ndarray:
    """Bits of an operand (0, 1) or accumulators (2) of random sign and significand."""
    rng, fmt = np.random.default_rng([side, seed]), case.formats[side]
    return words(fmt, floats(rng, fmt, np.broadcast_to(exponent, shape)))


@pytest.mark.parametrize("name", CASES)
def test_accumulators_of_every_exponent(name: str) -> None:
    """One exponent a product, from subnormals to the largest; some sums hold nothing but the accumulator."""
    case = CASES[name]
    a, b = drawn(case, 0, 0, (4, 20), 0), drawn(case, 1, 0, (20, 5), 0)
    a[:2] &= 1 << (case.formats[0].bits - 1)  # zeros
    for exponent in range(-149, 128):
        c = drawn(case, 2, exponent, (4, 5), exponent + 200)
        assert_bits_equal(case.matmul(a, b, c), case.core(a, b, c), "f32", f"{case} c of 2**{exponent}")


@pytest.mark.parametrize("name", ["bf16", "tf32"])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("sign", [0, 1])
@pytest.mark.parametrize("exponent", [-126, -60, -30, 30, 60, 100])
def test_one_element_widens_the_range(name: str, side: int, sign: int, exponent: int) -> None:
    """A single element of another exponent, of either sign, in an operand of the other sign, is seen."""
    case = CASES[name]
    bits = [drawn(case, i, 0, shape, 7) for i, shape in enumerate(((6, 40), (40, 9), (6, 9)))]
    top = bits[side].dtype.type(1 << (case.formats[side].bits - 1 if name == "bf16" else 31))
    bits[side] = bits[side] & ~top if sign else bits[side] | top
    far = drawn(case, side, exponent, (1, 1), 1)[0, 0]
    bits[side][3, 2] = far | top if sign else far & ~top
    bits[2] &= np.uint32(1 << 31)
    assert_bits_equal(case.matmul(*bits), case.core(*bits), "f32", f"{case} {side} {sign} {exponent}")


@pytest.mark.parametrize("name", ["f16", "bf16", "e4m3-sm_120"])
@pytest.mark.parametrize("sign", [0, 1])
def test_sums_that_leave_32_bits_in_a_whole_tile(name: str, sign: int) -> None:
    """Largest significands of one sign and accumulators up to the next power of two, no output a zero.

    In a tile with places left over, their zeros could hide that a sum goes unnoticed, since tiles are done again whole.
    """
    case = CASES[name]
    fa, fb, _ = case.formats
    ones = [(f.bias << f.mantissa) | ((1 << f.mantissa) - 1) for f in (fa, fb)]
    k, flip = case.step, sign << (fa.bits - 1)
    a, b = np.full((64, k), ones[0] | flip, fa.bits_dtype), np.full((k, 128), ones[1], fb.bits_dtype)
    c = drawn(case, 2, np.arange(-2, 6)[:, None].repeat(8, 0), (64, 128), 3) & np.uint32(0x7FFFFFFF)
    c |= np.uint32(sign << 31)
    d = case.matmul(a, b, c)
    assert_bits_equal(d, case.core(a, b, c), "f32", f"{case} {sign}")
