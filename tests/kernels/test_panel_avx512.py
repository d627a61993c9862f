"""The fused micro-kernels of processors with AVX-512, run wherever AVX2 is: bits of the core, which shares nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nbtc.compiler.builder import VectorBuilder
from nbtc.compiler.cpu.host import architecture, features
from nbtc.compiler.cpu.processors import AVX2, AVX_512_FP16, AVX_512_VNNI, AVX_512_ZEN, Processor
from nbtc.formats.table import Format
from nbtc.gemm.engines.fused_engine import FusedProduct
from nbtc.kernels.panels import panel_code
from nbtc.kernels.panels.alignment_and_rounding import SumShape
from nbtc.testing import assert_bits_equal
from nbtc.testing.cases import Case, large_engines
from nbtc.testing.strategies import operands, strategies, words
from tests.kernels.avx512 import kernels_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::nbtc.errors.UnvalidatedModelWarning"),
    pytest.mark.skipif(
        architecture() not in AVX2.architectures or not features() >= AVX2.needs, reason="emulated by AVX2"
    ),
]
CASES = {
    "blocks of 16": Case("sm_90", "mma", "f16", "f16", "f32", 16),
    "blocks of 8": Case("sm_80", "mma", "f16", "f16", "f32", 16),
    "blocks of 4": Case("sm_80", "mma", "tf32", "tf32", "f32", 8),
    "f16 accumulators": Case("sm_90", "mma", "f16", "f16", "f16", 16),
    "f32 elements": Case("sm_90", "wgmma", "e4m3", "e5m2", "f32", 32),
    "f32 elements, f16 accumulators": Case("sm_89", "mma", "e4m3", "e4m3", "f16", 16),
    "long blocks": Case("sm_120", "mma", "e4m3", "e4m3", "f32", 32),
    "emulated": Case("sm_90", "mma", "e5m2", "e4m3", "f16", 32),
}


FORMS = [
    *((row, name) for row in (AVX_512_ZEN, AVX_512_FP16) for name in CASES),
    *((AVX_512_VNNI, name) for name in ("blocks of 16", "blocks of 8", "blocks of 4", "f32 elements", "long blocks")),
]


@pytest.mark.parametrize(("row", "name"), FORMS, ids=lambda x: getattr(x, "name", x))
def test_bits_are_those_of_the_core(row: Processor, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every strategy of inputs: both ways of exponents, zeros, infinite accumulators, sums that leave 32 bits."""
    seen, write_sums = set(), panel_code.write_sums

    def write(v: VectorBuilder, shape: SumShape, x: dict[str, Any]) -> None:
        seen.add((shape.target, shape.by_turns))
        write_sums(v, shape, x)

    def marked(self: FusedProduct, shape: tuple[int, ...]) -> Iterator[Any]:
        marks.append(int(np.count_nonzero(self.marks)))
        return find_marked(self, shape)

    marks, find_marked = list[int](), FusedProduct.marked
    monkeypatch.setattr(FusedProduct, "marked", marked)
    monkeypatch.setattr(panel_code, "write_sums", write)
    case, rng = CASES[name], np.random.default_rng(len(name))
    with kernels_of(row), large_engines():
        for strategy in strategies(case.formats[0]):
            shape = 6, 70, 2 * case.step + 3  # two panels, of which one is not full; K that isn't either
            drawn = operands(rng, strategy, shape, *case.formats)
            bits = [words(f, x) for f, x in zip(case.formats, drawn, strict=True)]
            marks.clear()
            for _ in range(2):
                assert_bits_equal(case.matmul(*bits), case.core(*bits), case.acc, f"{case} {strategy}")
                bits[2] &= bits[2].dtype.type(1 << (case.formats[2].bits - 1))  # zeros
            assert strategy != "normal" or marks == [0, 0]  # all is vouched for
    assert (row, True) in seen


@pytest.mark.parametrize("row", [AVX_512_ZEN, AVX_512_FP16], ids=lambda row: row.name)
def test_subnormal_accumulators(row: Processor) -> None:
    """Accumulators in f16 that are subnormal, zero or little more, beside products of all sizes."""
    rng = np.random.default_rng(5)
    with kernels_of(row), large_engines():
        for name in ("f16 accumulators", "f32 elements, f16 accumulators", "emulated"):
            case = CASES[name]
            depth = 2 * case.step + 3
            for _ in range(8):
                a, b = (near(rng, f, x) for f, x in zip(case.formats, ((6, depth), (depth, 70)), strict=False))
                c = spread(rng, case.formats[2], (6, 70), 0, int(rng.choice([0, 1, 2, 12])))
                assert_bits_equal(case.matmul(a, b, c), case.core(a, b, c), case.acc, f"{case}")


@pytest.mark.parametrize("row", [AVX_512_ZEN, AVX_512_FP16], ids=lambda row: row.name)
def test_subnormals_align_as_the_least_normal_number(row: Processor) -> None:
    """Half a last place of an accumulator, and a product that the alignment by 2**-14 truncates to 0 or does not."""
    case, a, b = CASES["f16 accumulators"], np.zeros((6, 16), np.float16), np.zeros((16, 70), np.float16)
    a[:, 0], b[0] = 2.0**-12, 2.0**-13
    a[:, 1], b[1] = 2.0 ** -np.arange(15, 21), 2.0 ** -np.arange(21, 24).repeat(24)[:70]
    c = np.random.default_rng(6).integers(0, 1 << 10, (6, 70)).astype(np.uint16) << 1 & 0x3FF
    c >>= np.arange(70).astype(np.uint16) % 10  # of all magnitudes, zeros among them
    operands = a.view(np.uint16), b.view(np.uint16), c
    with kernels_of(row), large_engines():
        assert_bits_equal(case.matmul(*operands), case.core(*operands), case.acc, str(case))


def near(rng: np.random.Generator, f: Format, shape: tuple[int, int]) -> NDArray[Any]:
    """Elements of a few neighbouring binades."""
    least = int(rng.integers(0, (1 << f.exponent) - 6))
    return spread(rng, f, shape, least, least + int(rng.integers(0, 5)))


def spread(rng: np.random.Generator, f: Format, shape: tuple[int, int], least: int, most: int) -> NDArray[Any]:
    """Bits of elements with exponent fields of a range, some of them zeros."""
    fields, signs = rng.integers(least, most + 1, shape), rng.integers(0, 2, shape) << (f.bits - 1)
    magnitudes = fields << f.mantissa | rng.integers(0, 1 << f.mantissa, shape)
    zeros = rng.random(shape) < rng.choice([0, 0.3, 0.9])
    return (np.where(zeros, 0, magnitudes) | signs).astype(f"u{f.bits // 8}")
