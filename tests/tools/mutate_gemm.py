"""Mutation check of the vector code of large products: emitted instructions, lanes, places, how work is cut.

    python tests/tools/mutate_gemm.py [FILE ...] [--sample N] [--seed 0] [--processes 2]

As `mutate.py`, but every function of a file is mutated, and `matmul` on its fast engines is judged: all strategies
against the exact oracle, shapes beyond every block of the engines against one compiled chain an output.
"""

from __future__ import annotations

import importlib
import sys
import warnings
import zlib
from typing import Any

import numpy as np
from mutants import Battery, arguments, check

FUSED = (
    "kernels/panels/panel_pack.py",
    "kernels/panels/panel_rows.py",
    "kernels/panels/panel_columns.py",
    "kernels/panels/panel_elements.py",
    "kernels/panels/alignment_and_rounding.py",
    "kernels/panels/fused_sum.py",
    "kernels/panels/panel_schedules.py",
    "kernels/panels/panel.py",
    "gemm/engines/fused_engine.py",
    "gemm/engines/packed_layout.py",
)
WORDS = ("kernels/words/words_pack.py", "gemm/engines/words_engine.py", "kernels/words/words.py")
# arch, unit, a, b, accumulator, K of the instruction, more of a `Case`: one of each kernel
FUSED_CASES: tuple[tuple[Any, ...], ...] = (
    ("sm_90", "mma", "f16", "f16", "f32", 16),
    ("sm_90", "wgmma", "e4m3", "e5m2", "f32", 32),
    ("sm_80", "mma", "f16", "f16", "f16", 8),
    ("sm_90", "mma", "bf16", "bf16", "f32", 16),
    ("sm_90", "mma", "e5m2", "e4m3", "f16", 32),
    ("sm_90", "mma", "tf32", "tf32", "f32", 4),
    ("sm_89", "mma", "e4m3", "e4m3", "f16", 32),
    ("sm_100", "mma", "e4m3", "e4m3", "f32", 16),
    ("sm_120", "mma", "e5m2", "e5m2", "f32", 32),
)
WORDS_CASES: tuple[tuple[Any, ...], ...] = (
    ("sm_90", "mma", "s8", "s8", "s32", 32),
    ("sm_90", "mma", "u8", "s8", "s32", 16),
    ("sm_90", "mma", "s8", "u8", "s32", 32, True),
    ("sm_90", "mma", "s4", "s4", "s32", 64),
    ("sm_90", "mma", "u4", "s4", "s32", 64),
    ("sm_90", "mma", "s4", "u4", "s32", 32),
    ("sm_90", "mma", "b1", "b1", "s32", 256),
    ("sm_90", "mma", "b1", "b1", "s32", 128, False, "rn", "and"),
    ("sm_90", "mma", "f64", "f64", "f64", 8),
    *(("sm_90", "mma", "f64", "f64", "f64", 16, False, r) for r in ("rz", "rm", "rp")),
)
# one more than tiles, panels and row blocks; more columns than are packed at once; K of several packed blocks
SHAPES = ((68, 67, 50), (3, 130, 33), (131, 2, 20), (2, 1030, 7), (4, 3, 1100))
DEEP = {"s8": 4 * 512 + 9, "u8": 4 * 512 + 9, "s4": 4 * 1024 + 9, "u4": 4 * 1024 + 9, "b1": 40 * 1024}
_CUT = "how work is shared out, not what is done"
_WAY = "near or far: both are right, and accumulators out of the near range flag their tile"
# survivors that change nothing, and why
EQUIVALENT: dict[str, str] = {
    "gemm/engines/packed_layout.py: plain = rc is None or not rc.greatest >= rc.least or "
    "(rc.least >= floor_exponent and rc.greatest < 60) -> plain = rc is None or not rc.greatest >= rc.least or "
    "(rc.least > floor_exponent and rc.greatest < 60)": _WAY,
    "gemm/engines/packed_layout.py: plain = rc is None or not rc.greatest >= rc.least or "
    "(rc.least >= floor_exponent and rc.greatest < 60) -> plain = rc is None or not rc.greatest >= rc.least or "
    "(rc.least >= floor_exponent or rc.greatest < 60)": _WAY,
    "gemm/engines/fused_engine.py: if threads == 1 or blocks >= 2 * threads: -> "
    "if threads != 1 or blocks >= 2 * threads:": _CUT,
    "gemm/engines/fused_engine.py: size = ROW_BLOCK * (TASK_BLOCKS if threads == 1 else min(TASK_BLOCKS, max(1, blocks "
    "// (8 * threads)))) -> size = ROW_BLOCK * (TASK_BLOCKS if threads == 1 else min(TASK_BLOCKS, max(1, blocks // "
    "(8 + threads))))": _CUT,
    "gemm/engines/words_engine.py: if threads == 1 or blocks >= 2 * threads: -> "
    "if threads == 1 or blocks >= 2 + threads:": _CUT,
    "gemm/engines/words_engine.py: share = -(-count // (1 if threads == 1 else min(count, 4 * threads))) * width -> "
    "share = -(-count // (2 if threads == 1 else min(count, 4 * threads))) * width": _CUT,
}


def battery(rows: tuple[tuple[Any, ...], ...]) -> Battery:
    """Whether `matmul` still gives what the oracle, or the chain, gives."""
    from nbtc.formats.arrays import from_bits
    from nbtc.testing.cases import Case
    from nbtc.testing.strategies import operands, strategies, words

    warnings.simplefilter("ignore")
    data = []

    def note(case: Any, bits: Any, want: Any, more: dict[str, Any]) -> None:
        arrays = [from_bits(x, f) for x, f in zip(bits, case.formats, strict=True)]
        data.append((arrays, case.options() | more, want))
        turned = [np.asfortranarray(x) for x in arrays[:2]]
        if more:
            data.append(([*turned, arrays[2]], case.options() | {"threads": 3}, want))

    for row in rows:
        case = Case(*row)
        for strategy in strategies(case.formats[0]):
            rng = np.random.default_rng(zlib.crc32(f"{case} {strategy}".encode()))
            bits = case.operands(rng, strategy, 12, 11)
            note(case, bits, case.oracle().matrix(*bits), {})
        for m, n, k in SHAPES:
            k = DEEP.get(case.a, k) if m == 4 else k
            rng = np.random.default_rng([m, n, k])
            strategy = strategies(case.formats[0])[0 if n > 100 else 1]
            drawn = operands(rng, strategy, (m, n, k), *case.formats)
            bits = [words(f, x) for f, x in zip(case.formats, drawn, strict=True)]
            note(case, bits, case.core(*bits), {"threads": 1})
    return lambda: _right(data)


def _right(data: list[Any]) -> bool:
    for engine in importlib.import_module("nbtc.gemm.engines.engines").ENGINES:
        engine.worth = 0  # threads at any size
    with importlib.import_module("nbtc.testing.cases").large_engines():
        return all(_same(x) for x in data) and _right_elsewhere(data)


def _same(item: tuple[list[Any], dict[str, Any], Any]) -> bool:
    from nbtc.formats.arrays import to_bits

    arrays, how, want = item
    return bool((to_bits(importlib.import_module("nbtc.gemm.run").matmul(*arrays, **how)) == want).all())


def _right_elsewhere(data: list[Any]) -> bool:
    """Whether sums of bytes are right without VPDPBUSD too; other fallbacks are for `tests/gemm/test_targets.py`."""
    kernel = importlib.import_module("nbtc.kernels.words.words")
    kernel.dot_of_bytes = lambda: kernel.PAIRS
    importlib.import_module("nbtc.gemm.engines.words_engine").scheme.cache_clear()
    return all(_same(x) for x in data if x[0][0].dtype == np.int8)


def main() -> int:
    """Run the files asked for."""
    options = arguments(__doc__, [*FUSED, *WORDS])
    survivors = []
    for batch, rows in ((FUSED, FUSED_CASES), (WORDS, WORDS_CASES)):
        files = [f for f in options.files if f in batch]
        if files:
            judge = battery(rows)
            for file in files:
                survivors += check(file, judge, options, EQUIVALENT, whole=True, seconds=300)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
