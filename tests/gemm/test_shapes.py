"""Any shape, stride, batch and packing, and any engine or number of threads: the same bits."""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nbtc
from nbtc.formats.arrays import from_bits, to_bits
from nbtc.formats.table import FORMATS
from nbtc.gemm import gemm, run
from nbtc.gemm.plan import prepare
from nbtc.testing import assert_bits_equal
from nbtc.testing.strategies import operands, strategies

pytestmark = pytest.mark.filterwarnings("ignore::nbtc.errors.UnvalidatedModelWarning")
# a, b, accumulator, options: one of each arithmetic
KINDS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "f16": ("f16", "f16", "f32", {}),
    "f16-sm_80": ("f16", "f16", "f32", {"arch": "sm_80"}),
    "f16-sm_70": ("f16", "f16", "f32", {"arch": "sm_70"}),
    "f16-half": ("f16", "f16", "f16", {}),
    "f16-half-sm_80": ("f16", "f16", "f16", {"arch": "sm_80"}),
    "bf16": ("bf16", "bf16", "f32", {}),
    "tf32": ("tf32", "tf32", "f32", {}),
    "tf32-sm_80": ("tf32", "tf32", "f32", {"arch": "sm_80"}),
    "e4m3": ("e4m3", "e4m3", "f32", {}),
    "e5m2-e4m3": ("e5m2", "e4m3", "f32", {}),
    "e5m2-half": ("e5m2", "e5m2", "f16", {}),
    "e4m3-sm_89": ("e4m3", "e4m3", "f32", {"arch": "sm_89"}),
    "e4m3-mma": ("e4m3", "e4m3", "f32", {"instruction": "mma"}),
    "e5m2-half-mma": ("e5m2", "e5m2", "f16", {"instruction": "mma"}),
    "e4m3-sm_120": ("e4m3", "e4m3", "f32", {"arch": "sm_120"}),
    "f64": ("f64", "f64", "f64", {}),
    "s8": ("s8", "s8", "s32", {}),
    "u8-s8": ("u8", "s8", "s32", {"instruction": "mma"}),
    "s8-saturate": ("s8", "u8", "s32", {"instruction": "mma", "saturate": True}),
    "s4-u4": ("s4", "u4", "s32", {}),
    "s4-saturate": ("s4", "s4", "s32", {"saturate": True}),
    "b1": ("b1", "b1", "s32", {}),
    "b1-and": ("b1", "b1", "s32", {"op": "and"}),
}
PLAIN = ("f16", "f16-half", "bf16", "e4m3", "e4m3-mma", "f64", "s8", "s4-u4", "b1")
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


def problem(kind: str, shape: tuple[int, int, int], strategy: str | None = None) -> tuple[Arrays, dict[str, Any]]:
    """A, B and C of one strategy (default: the first of the format), and matmul's options."""
    a, b, acc, options = KINDS[kind]
    formats = [FORMATS[f] for f in (a, b, acc)]
    strategy = strategy or strategies(formats[0])[0]
    rng = np.random.default_rng(zlib.crc32(f"{kind} {shape} {strategy}".encode()))
    bits = operands(rng, strategy, shape, *formats)
    x, y, c = (from_bits(v.astype(f.bits_dtype), f) for v, f in zip(bits, formats, strict=True))
    return (x, y, c), options | {"acc": acc}


def forced(engine: str, a: Any, b: Any, c: Any, threads: int = 2, **options: Any) -> np.ndarray:
    """The product by an engine of our choice."""
    p = prepare(a, b, c, threads=threads, **options)
    p.plan = dataclasses.replace(p.plan, engine=engine)
    return run._execute(p, None, False)


def engines(a: Any, b: Any, c: Any, options: dict[str, Any]) -> list[str]:
    """Engines that can compute this product, whatever its size, the slow one last."""
    from nbtc.gemm.choose import engine_for
    from nbtc.numerics.models import BLOCK, FRACTION, KIND, Kind

    p = prepare(a, b, c, **options).plan.params
    kind = Kind(int(p[KIND]))
    found = {engine_for(kind.name, int(p[BLOCK]), int(p[FRACTION])), "chain"}
    return sorted(found | ({"portable"} if kind == Kind.FUSED else set()), key=["avx512", "words", "portable", "chain"].index)


def same(got: np.ndarray, want: np.ndarray, what: str) -> None:
    """Equal bits, shape and dtype."""
    assert_bits_equal(got, want, None, what)


@pytest.mark.parametrize("kind", KINDS)
def test_engines_agree(kind: str) -> None:
    """Every engine, on every strategy, with edges in all directions and a zero or absent c."""
    for strategy in strategies(FORMATS[KINDS[kind][0]]):
        for shape in ((5, 70, 33), (67, 66, 97), (66, 3, 200)):
            (a, b, c), options = problem(kind, shape, strategy)
            for start in (c, None):
                names = engines(a, b, start, options)
                want = forced(names[-1], a, b, start, **options)
                for name in names[:-1]:
                    same(forced(name, a, b, start, **options), want, f"{kind} {strategy} {shape} {name} c={start is c}")
