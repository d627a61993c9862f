"""Kernels of large products as LLVM compiles them for x86: what keeps them fast, seen wherever this runs."""

from __future__ import annotations

import re

import pytest

from nbtc.testing import kernel_code
from nbtc.testing.kernel_code import operations, words_operations

# Vector operations of sixteen sums, multiply-adds included; loads, stores and broadcasts from memory aside.
MOST = {
    "f16, bf16": (56.0, 53.1, 53.9),
    "tf32, f16 of sm_80": (35.5, 32.6, 32.9),
    "f16 accumulators": (66.5, 62.1, 61.9),
    "e4m3, e5m2 unit": (61.0, 59.0, 60.8),
}


# The same of eight sums with AVX2, whose stores take as long as two multiply-adds on Zen 3.
MOST_AVX2 = {"f16, bf16": 59.3, "tf32, f16 of sm_80": 38.3, "f16 accumulators": 70.5, "e4m3, e5m2 unit": 66.3}


@pytest.mark.parametrize("cpu", ["znver3", "alderlake"])
@pytest.mark.parametrize("name", MOST_AVX2)
def test_operations_of_a_chunk_with_avx2(name: str, cpu: str) -> None:
    """Start values, ends and exponent maxima count as often as a chunk has them, though they are in two loops."""
    found = operations(cpu, name)
    assert found.vector <= MOST_AVX2[name]
    assert found.multiply_adds == operations("znver4", name).multiply_adds
    assert found.stores <= 1.8


@pytest.mark.parametrize("name", MOST)
def test_operations_of_a_chunk(name: str) -> None:
    """On Intel each takes one of two ports, and little else decides how long a product takes."""
    for cpu, most in zip(("znver4", "sapphirerapids", "cascadelake"), MOST[name], strict=True):
        found = operations(cpu, name)
        assert found.vector <= most, cpu
        assert found.stores <= 4.4, cpu


@pytest.mark.parametrize(("name", "least"), [("s8, u8, s4, u4", 1), ("b1", 3), ("f64", 2)])
def test_operations_of_words(name: str, least: float) -> None:
    """A word of A by a register of B is what has to be done, and nothing is spilled."""
    assert words_operations("cascadelake", name).vector == (8 if name == "b1" else least)
    with_avx2 = {"s8, u8, s4, u4": 2, "b1": 8, "f64": 2}  # bytes in pairs of 16 bits: a product and an addition
    assert words_operations("znver3", name)[::2] == (with_avx2[name], 0)
    for cpu in ("znver4", "sapphirerapids"):
        found = words_operations(cpu, name)
        assert (found.vector, found.stores) == (least, 0), cpu


@pytest.fixture(params=["znver4", "sapphirerapids"])
def assembly(request: pytest.FixtureRequest) -> str:
    """Blocks of eight products to f32: of all shapes the one with most bookkeeping beside its sums."""
    return kernel_code.assembly(request.param, "tf32, f16 of sm_80")


def test_the_frame_is_aligned(assembly: str) -> None:
    """A vector that is spilled must not cross a cache line: where it crossed a page, sums took a fifth longer."""
    assert re.search(r"andq\s+\$-64, %rsp", assembly)
    assert not re.findall(r"movq\s+%r(?!bp)\w+, %rsp", assembly)  # memory taken when the frame has its size
    assert not re.findall(r"vmov(?:dqu\d*|up[sd])\s+%zmm\d+, -?\w*\(%r[sb]p\)", assembly)


def test_elements_of_a_are_loaded_as_integers(assembly: str) -> None:
    """vbroadcastsd would take a shuffle each, a tenth of all operations beside the multiply-adds."""
    assert len(re.findall(r"vpbroadcastq\s.*\(.*%zmm", assembly)) >= 2 * 4 * 8
    assert "vbroadcastsd" not in assembly


def test_elements_of_a_in_f32_are_loaded_as_integers() -> None:
    """vbroadcastss is loaded once a cycle, vpbroadcastd twice: a twentieth of a product."""
    text = kernel_code.assembly("znver4", "e4m3, e5m2 unit")
    assert len(re.findall(r"vpbroadcastd\s.*\(.*%zmm", text)) >= 4 * 32
    assert "vbroadcastss" not in text


def test_rounding_to_f16_takes_no_multiplier_beside_its_scaling() -> None:
    """Comparisons and saturating sums of bytes take Zen's multipliers; four comparisons are of a step's maxima."""
    text = kernel_code.assembly("znver4", "f16 accumulators")
    assert "vpcmpneqd" not in text
    assert "vpaddusb" not in text


def test_few_registers_are_stored(assembly: str) -> None:
    """On Zen 4 four stores beside sixteen multiply-adds take 22 cycles instead of 16.

    A step of 16 chunks stores alignment exponents, start values and results of each, 4 rows of maxima and 4 of counts;
    before the loop, as much as 8 chunks and two steps begin with.  A few more are spilled.
    """
    stores = re.findall(r"vmov\w+\s+%zmm\d+, [^%\n]*\(%", assembly)
    assert len(stores) <= 3 * 16 + 8 + 2 * 8 + 2 * 8 + 16


def test_signs_are_counted_in_bytes(assembly: str) -> None:
    """Counts of sixteen sums take a multiplier for as long as a multiply-add does; of 64 they take it no longer."""
    assert "vpopcntd" not in assembly
    assert len(re.findall(r"vpopcntb\s.*%zmm", assembly)) == 3 * 4  # of a step, and of two before the first
