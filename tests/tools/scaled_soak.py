"""Block-scaled products by the compiled chain and by the engines, against the exact oracle, on fresh inputs.

python tests/tools/scaled_soak.py [--products 200000] [--seed 1]
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np

import nbtc
from nbtc.errors import UnvalidatedModelWarning
from nbtc.formats.arrays import from_bits
from nbtc.formats.table import FORMATS
from nbtc.gemm import block_scaled
from nbtc.numerics import models
from nbtc.numerics.exact_scaled import ScaledOracle
from nbtc.testing.scaled_cases import draw

FP = ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")
CASES = [("mxf8f6f4", a, b, "ue8m0", 32) for a in FP for b in FP]
CASES += [
    ("mxf4nvf4", "e2m1", "e2m1", scale, block) for scale, block in (("ue8m0", 32), ("ue8m0", 16), ("ue4m3", 16))
] * 9
M, N = 8, 20


def judge(case: tuple[str, str, str, str, int], rng: np.random.Generator) -> int:
    """Products that differ from the oracle's in one drawn case, by either way of computing them."""
    kind, a, b, scale, block = case
    unit, step = ("scaled", 32) if kind == "mxf8f6f4" else ("grouped", 64)
    fa, fb, fs = FORMATS[a], FORMATS[b], FORMATS[scale]
    k = step * int(rng.integers(1, 4))
    x = draw(rng, (M, N, k), (fa, fb, fs), k // block)
    row = models._ROWS["sm_120", unit, models.family(fa)]
    want = ScaledOracle(row, fa, fb, FORMATS["f32"], step, fs, step // block).matrix(x.a, x.b, x.c, x.xs, x.ys)
    bad = 0
    for small in (0, 1 << 60):  # the engines, then one output at a time
        block_scaled.SMALL = small
        got = nbtc.matmul(
            from_bits(x.a, fa), from_bits(x.b, fb), x.c.view(np.float32), arch="sm_120", kind=kind, threads=1,
            scale_a=from_bits(x.xs, fs), scale_b=from_bits(x.ys, fs),
        )  # fmt: skip
        bad += int((got.view(np.uint32) != want).sum())
    if bad:
        print(f"{case}: {bad} differ")
    return bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--products", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    warnings.simplefilter("ignore", UnvalidatedModelWarning)
    rng, done, bad, start, turn = np.random.default_rng(args.seed), 0, 0, time.time(), 0
    while done < args.products:
        bad += judge(CASES[turn % len(CASES)], rng)
        done, turn = done + M * N, turn + 1
    print(f"{done:,} products against the oracle, each two ways: {bad} mismatches, {time.time() - start:.0f} s")
    raise SystemExit(bad > 0)


if __name__ == "__main__":
    main()
