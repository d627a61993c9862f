"""Processors without AVX-512, or without AVX2: the same bits from plainer kernels, and never an aborted process."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nbtc
from nbtc.errors import UnvalidatedModelWarning
from nbtc.gemm import block_scaled
from nbtc.testing.hosts import HOSTS

RUN = """
import hashlib
import warnings
import numpy as np
import nbtc
from nbtc.compiler.host import features
from nbtc.errors import UnvalidatedModelWarning
from nbtc.testing.scaled_cases import draw
from nbtc.testing.strategies import operands
from nbtc.formats.arrays import from_bits, to_bits
from nbtc.formats.table import FORMATS

FLOATS, INTEGERS = ("normal", "random_bits", "subnormal", "special"), ("uniform", "near_limit")
# multiplicands, accumulator, how, operands: every kernel and each of its ways to round
PRODUCTS = (
    ("f16", "f16", "f32", {}, FLOATS),
    ("f16", "f16", "f16", {"arch": "sm_80"}, FLOATS),
    ("bf16", "bf16", "f32", {}, FLOATS),
    ("tf32", "tf32", "f32", {}, FLOATS),
    ("e4m3", "e5m2", "f32", {"instruction": "wgmma"}, FLOATS),
    ("e4m3", "e4m3", "f16", {"instruction": "mma"}, FLOATS),
    ("s8", "s8", "s32", {}, INTEGERS),
    ("u8", "s8", "s32", {}, INTEGERS),
    ("s4", "u4", "s32", {}, INTEGERS),
    ("b1", "b1", "s32", {}, ("uniform",)),
    ("f64", "f64", "f64", {}, FLOATS),
)
# elements, format of the scales and their block
SCALED = (("e4m3", "ue8m0", 32), ("e2m1", "ue8m0", 32), ("e2m1", "ue8m0", 16), ("e2m1", "ue4m3", 16))

def scaled_digest(name, scale, block):
    h, formats = hashlib.sha256(), (FORMATS[name], FORMATS[name], FORMATS[scale])
    for m, n, k in ((66, 70, 128), (33, 65, 200)):
        x = draw(np.random.default_rng(5), (m, n, k), formats, -(-k // block))
        scales = {"scale_a": from_bits(x.xs, scale), "scale_b": from_bits(x.ys, scale)}
        d = nbtc.matmul(
            from_bits(x.a, name), from_bits(x.b, name), x.c.view(np.float32), arch="sm_120", threads=2, **scales
        )
        h.update(d.tobytes())
    return h.hexdigest()

def digest(a, b, acc, how, strategies):
    h = hashlib.sha256()
    formats = [FORMATS[f] for f in (a, b, acc)]
    for strategy in strategies:
        for shape in ((66, 70, 80), (33, 65, 40)):
            bits = operands(np.random.default_rng(5), strategy, shape, *formats)
            x, y, c = (from_bits(v.astype(f.bits_dtype), f) for v, f in zip(bits, formats))
            h.update(to_bits(nbtc.matmul(x, y, c, a_format=a, b_format=b, acc=acc, threads=2, **how)).tobytes())
    return h.hexdigest()

if __name__ == "__main__":
    print("avx512f" in features(), flush=True)
    for product in PRODUCTS:
        print(digest(*product), flush=True)
    warnings.simplefilter("ignore", UnvalidatedModelWarning)
    for product in SCALED:
        print(scaled_digest(*product), flush=True)
"""


def start(target: dict[str, str]) -> subprocess.Popen[str]:
    """A process that computes the digests as that processor would; code in the cache is told apart by processor."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_CPU")}
    root = str(Path(nbtc.__file__).parents[1])
    environment |= {"PYTHONPATH": root, **target}
    command = [sys.executable, "-W", "error", "-c", RUN]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def expected() -> list[str]:
    """The digests by one compiled chain an output, which the oracle tests check."""
    import dataclasses

    from nbtc.gemm import run
    from nbtc.gemm.plan import Options, prepare

    def by_chain(a: np.ndarray, b: np.ndarray, c: np.ndarray, **how: Any) -> np.ndarray:
        p = prepare(a, b, c, Options(**how))
        p.plan = dataclasses.replace(p.plan, engine="chain")
        return run._execute(p, None, False)

    scope: dict[str, Any] = {"__name__": "digests"}
    exec(RUN, scope)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", UnvalidatedModelWarning)
        patch.setattr(block_scaled, "SMALL", 1 << 60)  # small products are chains
        scaled = [scope["scaled_digest"](*product) for product in scope["SCALED"]]
    scope["nbtc"] = type("ByChain", (), {"matmul": staticmethod(by_chain)})
    return [scope["digest"](*product) for product in scope["PRODUCTS"]] + scaled


@pytest.fixture(scope="module")
def want() -> list[str]:
    """Computed once for all targets."""
    found = expected()
    assert len(set(found)) == len(found) == 15 and all(len(x) == hashlib.sha256().digest_size * 2 for x in found)
    return found


@pytest.mark.parametrize("name", [n for n in HOSTS if n != "host"])  # other tests judge this processor
def test_target(name: str, want: list[str]) -> None:
    """Every kind of product on hard inputs: no process dies, the bits are those of the chain."""
    process = start(HOSTS[name])
    out, error = process.communicate(timeout=600)
    assert process.returncode == 0, f"exit code {process.returncode}: {error[-2000:]}"
    wide, *digests = out.split()
    assert wide == "False"
    assert digests == want
