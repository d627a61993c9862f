"""Processors without AVX-512, or without AVX2: the same bits from plainer kernels, and never an aborted process."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nbtc

AVX2 = "+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,+fma,+f16c,+bmi,+bmi2"
TARGETS = {
    "generic": {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
    "avx2": {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": AVX2},
    "host": {},
}
WIDE = "avx512f"
RUN = """
import hashlib
import numpy as np
import nbtc
from nbtc.compiler.host import features
from nbtc.testing.strategies import operands
from nbtc.formats.arrays import from_bits, to_bits
from nbtc.formats.table import FORMATS

def digest(a, b, acc, strategies):
    h = hashlib.sha256()
    formats = [FORMATS[f] for f in (a, b, acc)]
    for strategy in strategies:
        for shape in ((66, 70, 80), (33, 65, 40)):
            bits = operands(np.random.default_rng(5), strategy, shape, *formats)
            x, y, c = (from_bits(v.astype(f.bits_dtype), f) for v, f in zip(bits, formats))
            h.update(to_bits(nbtc.matmul(x, y, c, threads=2)).tobytes())
    return h.hexdigest()

if __name__ == "__main__":
    floats = ("normal", "random_bits", "subnormal", "special")
    print("avx512f" in features(), flush=True)
    print(digest("f16", "f16", "f32", floats), flush=True)
    print(digest("s8", "s8", "s32", ("uniform", "near_limit")), flush=True)
    print(digest("f64", "f64", "f64", floats), flush=True)
"""


def start(folder: Path, target: dict[str, str]) -> subprocess.Popen[str]:
    """A process that computes the digests as that processor would, with a cache of its own."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
    root = str(Path(nbtc.__file__).parents[1])
    environment |= {"PYTHONPATH": root, "NUMBA_CACHE_DIR": str(folder), "NUMBA_NUM_THREADS": "2", **target}
    command = [sys.executable, "-W", "error", "-c", RUN]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def expected() -> list[str]:
    """The digests by one compiled chain an output, which the oracle tests check."""
    import dataclasses

    from nbtc.gemm import run
    from nbtc.gemm.plan import prepare

    def by_chain(a: np.ndarray, b: np.ndarray, c: np.ndarray, threads: int) -> np.ndarray:
        p = prepare(a, b, c, threads=threads)
        p.plan = dataclasses.replace(p.plan, engine="chain")
        return run._execute(p, None, False)

    scope: dict[str, object] = {"__name__": "digests"}
    exec(RUN, scope)
    scope["nbtc"] = type("ByChain", (), {"matmul": staticmethod(by_chain)})
    digest = scope["digest"]
    floats = ("normal", "random_bits", "subnormal", "special")
    integers = ("uniform", "near_limit")
    return [
        digest(f, f, acc, names)  # type: ignore[operator]
        for f, acc, names in (("f16", "f32", floats), ("s8", "s32", integers), ("f64", "f64", floats))
    ]


@pytest.fixture(scope="module")
def want() -> list[str]:
    """Computed once for all targets."""
    found = expected()
    assert len(set(found)) == 3 and all(len(x) == hashlib.sha256().digest_size * 2 for x in found)
    return found


@pytest.mark.parametrize("name", TARGETS)
def test_target(name: str, tmp_path: Path, want: list[str]) -> None:
    """f16, s8 and f64 on hard inputs: no process dies, the bits are those of the chain."""
    process = start(tmp_path, TARGETS[name])
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, f"exit code {process.returncode}: {error[-2000:]}"
    wide, *digests = out.split()
    assert name == "host" or wide == "False"
    assert digests == want
