"""The fused micro-kernels of processors with AVX-512, run wherever AVX2 is: bits of the core, which shares nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from nbtc.compiler.builder import VectorBuilder
from nbtc.compiler.cpu.host import architecture, features
from nbtc.compiler.cpu.processors import AVX2, AVX_512_FP16, AVX_512_VNNI, AVX_512_ZEN, Processor
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
