"""Mutation check: change one comparison, operator or constant of the arithmetic at a time; something must notice.

    python tests/tools/mutate.py [FILE ...] [--sample N] [--seed 0] [--processes 2]

Each mutant is compiled in a process of its own and run on the inputs that the tests use (all cases and strategies of
`nbtc.testing`, every conversion), whose right results are known.  A crash or a hang counts as noticed.  Survivors are
listed, but for those known to change nothing; exit status 1 when there are any.
"""

from __future__ import annotations

import importlib
import runpy
import sys
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from mutants import Battery, arguments, check

CORE = ("numerics/fused.py", "numerics/ieee.py", "numerics/integer.py")
CODEC = ("formats/codec.py",)
TESTS = Path(__file__).parents[1]
# survivors that change nothing, and why
_INNOCUOUS = "f32 has 2 * 11 + 2 digits: rounding a sum of two f16 twice is rounding it once"
EQUIVALENT: dict[str, str] = {
    "formats/codec.py: kept, rest, half = (U0, min(significand, U1), np.uint64(2)) -> "
    "kept, rest, half = (U0, min(significand, U1), np.uint64(3))": "a rest of 1 is below half of either",
    "numerics/ieee.py: if drop > 62: -> if drop > 63:": "no sum has its top bit at 62",
    "numerics/ieee.py: significand = magnitude & 8388607 | np.int64(field != 0) << 23 -> "
    "significand = magnitude & 8388607 | np.int64(field != 1) << 23": "f32 numbers that small are zeros in f16",
    "numerics/ieee.py: if back != total and total == total: -> if back != total and total != total:": _INNOCUOUS,
    "numerics/ieee.py: bits |= 1 -> bits |= 2": _INNOCUOUS,
    "numerics/ieee.py: if drop >= 2: -> if drop >= 3:": "at 2 neither shift moves anything",
    "numerics/ieee.py: kept, unit = (np.uint64(1 << 52), unit + 1) -> "
    "kept, unit = (np.uint64(1 << 53), unit + 1)": "the bit is masked off: its place is the exponent field's",
    "numerics/fused.py: special |= (mx >= fa[5]) | (my >= fb[5]) -> "
    "special |= (mx >= fa[5]) | (my >= fb[6])": "a look for Inf and NaN where there are none",
}


def core_battery() -> Battery:
    """Whether `chain` still gives what the oracle gives, everywhere, and `ieee` passes its own tests."""
    from nbtc.testing.cases import cases
    from nbtc.testing.strategies import strategies

    data = []
    for case in cases():
        oracle = case.oracle()
        for strategy in strategies(case.formats[0]):
            rng = np.random.default_rng(zlib.crc32(f"{case} {strategy}".encode()))
            a, b, c = case.operands(rng, strategy, 12, 11)
            data.append((a, b, c.astype(np.uint64), case.params(), oracle.matrix(a, b, c).astype(np.uint64)))

    def run() -> bool:
        chains = importlib.import_module("nbtc.testing.cases").chains
        if not all((chains(*x[:4]) == x[4]).all() for x in data):
            return False
        tests = runpy.run_path(str(TESTS / "numerics" / "test_fused.py"))  # what chains leave to the processor
        tests["test_half_rounding"]()
        for mode in ("rn", "rz", "rm", "rp"):
            tests["test_fma64_where_it_turns"](mode)
        return True

    return run


def codec_battery() -> Battery:
    """Whether conversions still give what they gave: codes, their neighbours, random words; all shifts."""
    warnings.simplefilter("ignore")
    from nbtc.formats import codec
    from nbtc.formats.conversions import CONVERSIONS, KEEP, parameters

    noise = np.random.default_rng(1).integers(0, 2**32, 200_000, dtype=np.uint32)
    near = np.arange(1 << 16, dtype=np.uint32)[:, None] << np.uint32(16) | np.uint32(
        [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFF, 0x1000, 0x1001, 0x2FFF, 0x3000, 0xFFFF, 0x17FF, 0x1800]
    )
    words = np.concatenate([noise, near.reshape(-1)])
    data = []
    for row in CONVERSIONS:
        x = words if row.source.bits == 32 else np.arange(1 << row.source.bits).astype(row.source.bits_dtype)
        for saturate in row.saturate:
            for relu in (False, True)[: 1 + row.relu]:
                p = parameters(row, relu, saturate)
                out = np.empty(x.shape, row.target.bits_dtype)
                codec.convert_words(x, out, p)
                floats = row.source.name == "f32" and row.target.signed and row.nan != KEEP
                data.append((("convert_words", "convert_floats")[: 1 + floats], x, p, out))

    shifts = (-9, -1, 0, 1, 2, 13, 53, 54, 61, 62, 63, 64, 300)
    calls = [
        (np.uint64(w), np.int64(s), negative, np.int64(mode))
        for w in (1, 2, 3, 6, 7, 10, 0x1000, 0x1001, (1 << 53) - 1)
        for s in shifts
        for negative in (False, True)
        for mode in range(5)
    ]
    rounded = [int(codec.round_shift(*c)) for c in calls]

    def run() -> bool:
        mutant = importlib.import_module("nbtc.formats.codec")
        if [int(mutant.round_shift(*c)) for c in calls] != rounded:
            return False
        return all(right(getattr(mutant, name), x, p, want) for names, x, p, want in data for name in names)

    def right(convert: Any, x: Any, p: Any, want: Any) -> bool:
        out = np.empty_like(want)
        convert(x, out, p)
        return bool((out == want).all())

    return run


def main() -> int:
    """Run the files asked for."""
    options = arguments(__doc__, [*CODEC, *CORE])
    survivors = []
    for batch, make in ((CODEC, codec_battery), (CORE, core_battery)):
        files = [f for f in options.files if f in batch]
        if files:
            battery = make()
            for file in files:
                survivors += check(file, battery, options, EQUIVALENT)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
