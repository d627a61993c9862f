"""Processors without AVX-512, or without AVX2: the same bits from plainer kernels, and never an aborted process.

Every product runs on one of the two, and every format on both: f16, fp8 and block-scaled products come in several ways,
some of which are left to the slow tests on the one processor, the others on the other (`HALVES`).
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from nbtc.formats.arrays import from_bits
from nbtc.formats.table import FORMATS
from nbtc.gemm import block_scaled, run
from nbtc.gemm.planning import ProductOptions, prepare
from nbtc.kernels.words import words
from nbtc.testing.cases import large_engines
from nbtc.testing.hosts import HOSTS
from nbtc.testing.strategies import operands
from tests.processes import fresh, output

RUN = """
import hashlib
import sys
import warnings
import numpy as np
import nbtc
from nbtc.compiler.cpu.host import features
from nbtc.errors import UnvalidatedModelWarning
from nbtc.testing.scaled_cases import draw
from nbtc.testing.strategies import operands
from nbtc.formats.arrays import from_bits, to_bits
from nbtc.formats.table import FORMATS

FLOATS, INTEGERS = ("normal", "random_bits", "subnormal", "special"), ("uniform", "near_limit")
# multiplicands, accumulator, how, operands: every kernel and each of its ways to round
PRODUCTS = {
    "f16": ("f16", "f16", "f32", {}, FLOATS),
    "f16-half": ("f16", "f16", "f16", {"arch": "sm_80"}, FLOATS),
    "bf16": ("bf16", "bf16", "f32", {}, FLOATS),
    "tf32": ("tf32", "tf32", "f32", {}, FLOATS),
    "fp8-wgmma": ("e4m3", "e5m2", "f32", {"instruction": "wgmma"}, FLOATS),
    "fp8-half": ("e4m3", "e5m2", "f16", {"instruction": "mma"}, FLOATS),
    "s8": ("s8", "s8", "s32", {}, INTEGERS),
    "u8": ("u8", "s8", "s32", {}, INTEGERS),
    "s4": ("s4", "u4", "s32", {}, INTEGERS),
    "b1": ("b1", "b1", "s32", {}, ("uniform",)),
    "f64": ("f64", "f64", "f64", {}, FLOATS),
}
# elements, format of the scales and their block
SCALED = {
    "mxfp8": ("e4m3", "ue8m0", 32),
    "mxfp4": ("e2m1", "ue8m0", 32),
    "fp4-16": ("e2m1", "ue8m0", 16),
    "nvfp4": ("e2m1", "ue4m3", 16),
}

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

def digest_of(name):
    if name in PRODUCTS:
        return digest(*PRODUCTS[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnvalidatedModelWarning)
        return scaled_digest(*SCALED[name])

if __name__ == "__main__":
    print("avx512f" in features(), flush=True)
    for name in sys.argv[1:]:
        print(digest_of(name), flush=True)
"""


# what only this one of the two computes by default
HALVES = {"avx2": ("f16", "fp8-half", "mxfp8", "nvfp4"), "generic": ("f16-half", "fp8-wgmma", "mxfp4", "fp4-16")}


def cases() -> list[Any]:
    """(host, names of products) by default, then what is left."""
    scope = scripted()
    halves = {name for half in HALVES.values() for name in half}
    both = [name for name in (*scope["PRODUCTS"], *scope["SCALED"]) if name not in halves]
    rest = {host: tuple(sorted(halves - {*half})) for host, half in HALVES.items()}
    default = [pytest.param(host, (*both, *half), id=host) for host, half in HALVES.items()]
    return default + [pytest.param(h, r, id=f"{h}-rest", marks=pytest.mark.slow) for h, r in rest.items()]


def computed(target: dict[str, str], names: Sequence[str]) -> list[str]:
    """Whether a process has AVX-512, and its digests, as that processor computes them: the cache tells them apart."""
    return output(fresh(RUN, *names, **target), timeout=600).split()


def scripted() -> dict[str, Any]:
    """What the process runs, as names."""
    scope: dict[str, Any] = {"__name__": "digests"}
    exec(RUN, scope)
    return scope


@cache
def expected(name: str) -> str:
    """The digest of a product by one compiled chain an output, which the oracle tests check."""

    def by_chain(a: np.ndarray, b: np.ndarray, c: np.ndarray, **how: Any) -> np.ndarray:
        p = prepare(a, b, c, ProductOptions(**how))
        p.plan = dataclasses.replace(p.plan, engine="chain")
        return run._execute(p, None, False)

    scope = scripted()
    with pytest.MonkeyPatch.context() as patch:
        if name in scope["SCALED"]:
            patch.setattr(block_scaled, "SMALL", 1 << 60)  # small products are chains
        else:
            scope["nbtc"] = type("ByChain", (), {"matmul": staticmethod(by_chain)})
        return str(scope["digest_of"](name))


def test_every_format_runs_on_both() -> None:
    """Of the formats whose products are shared out, each processor has one."""
    scope = scripted()
    formats = {name: {*row[:2]} for name, row in scope["PRODUCTS"].items()}
    formats |= {name: {row[0]} for name, row in scope["SCALED"].items()}
    found = {host: set().union(*(formats[name] for name in half)) for host, half in HALVES.items()}
    assert found["avx2"] == found["generic"]


@pytest.mark.long
@pytest.mark.parametrize(("name", "products"), cases())
def test_target(name: str, products: tuple[str, ...]) -> None:
    """Every kind of product on hard inputs: no process dies, the bits are those of the chain."""
    wide, *digests = computed(HOSTS[name], products)
    assert wide == "False"
    assert digests == [expected(product) for product in products]
    assert len(set(digests)) == len(digests) and all(len(x) == hashlib.sha256().digest_size * 2 for x in digests)


@pytest.mark.parametrize("signs", [("u8", "u8"), ("u8", "s8"), ("s8", "u8"), ("s8", "s8"), ("s4", "u4"), ("s4", "s4")])
def test_words_of_four_bytes(signs: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As AVX-512's products of bytes take them, with sums that take back what elements were raised by.

    Here other processors multiply them with the instructions that they have.
    """
    monkeypatch.setattr(words, "dot_of_bytes", lambda: words.DOT)
    a, b = (FORMATS[name] for name in signs)
    for m, n, k in ((13, 70, 90), (96, 64, 1032), (7, 5, 1)):
        bits = operands(np.random.default_rng(m), "near_limit", (m, n, k), a, b, FORMATS["s32"])[:2]
        x, y = (from_bits(v.astype(f.bits_dtype), f) for v, f in zip(bits, (a, b), strict=True))
        with large_engines():
            found = run.matmul(x, y, a_format=a.name, b_format=b.name)
        assert (found == x.astype(np.int64) @ y.astype(np.int64)).all()
