"""What is remembered between products must not show: options that compare equal, nested products, new table rows."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import nbtc
from nbtc.compiler.pools.workspace_pool import KEPT, MOST, WorkspacePool
from nbtc.errors import ArchError, FormatError, NbtcError, OptionError, UnvalidatedModelWarning
from nbtc.gemm.engines import engines
from nbtc.isa.archs import arch
from nbtc.numerics import models
from nbtc.testing import assert_bits_equal

RNG = np.random.default_rng(5)
A, B = RNG.standard_normal((2, 130, 130)).astype(np.float16)


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ({"saturate": False}, {"saturate": 0.0}),
        ({"k_split": 1}, {"k_split": True}),
        ({"arch": 90}, {"arch": 90.0}),
    ],
)
def test_equal_is_not_the_same(good: dict[str, Any], bad: dict[str, Any]) -> None:
    """0.0 == False and 1 == True: a remembered decision for one must not let the other in."""
    nbtc.matmul(A, B, **good)
    with pytest.raises((OptionError, ArchError)):
        nbtc.matmul(A, B, **bad)


@pytest.mark.parametrize("bad", [{"arch": ["sm_90"]}, {"acc": {}}, {"op": []}, {"k_split": np.zeros(2)}])
def test_what_cannot_be_a_key_raises_as_ever(bad: dict[str, Any]) -> None:
    with pytest.raises(NbtcError):
        nbtc.matmul(A, B, **bad)


def test_the_same_error_twice() -> None:
    for _ in range(2):
        with pytest.raises(FormatError, match="uint32"):
            nbtc.matmul(A.astype(np.uint32), B.astype(np.uint32))


@pytest.mark.parametrize("kind", ["f16", "s8", "f64"])
def test_a_progress_callback_may_multiply(kind: str) -> None:
    """A nested product of the same shape takes other workspaces than the one that is running."""
    dtype = {"f16": np.float16, "s8": np.int8, "f64": np.float64}[kind]
    x, y, u, w = (RNG.standard_normal((4, 900, 130)) * 20).astype(dtype)
    alone, inner = nbtc.matmul(x, y.T, threads=1), nbtc.matmul(u, w.T, threads=1)
    seen: list[bool] = []

    def nested(done: int, total: int) -> None:
        seen.append(nbtc.matmul(u, w.T, threads=1).tobytes() == inner.tobytes())

    assert_bits_equal(nbtc.matmul(x, y.T, threads=1, progress=nested), alone)
    assert len(seen) > 1 and all(seen)


def test_a_changed_row_is_seen() -> None:
    """A model registered after a product counts for the next one."""
    fmt = nbtc.f16
    old = models.model("sm_90", "mma", fmt)
    before = nbtc.plan(A, B, instruction="mma").model
    try:
        models.register("sm_90", "mma", "f16", replace(old, id="other"))
        assert nbtc.plan(A, B, instruction="mma").model.id == "other" != before.id
    finally:
        models.register("sm_90", "mma", "f16", old)
    assert nbtc.plan(A, B, instruction="mma").model == before
    assert arch("sm_90").numerics == "sm_90"


def test_workspace_pool() -> None:
    """Arrays are aligned, handed out once, and neither many nor large ones are kept."""
    pool = WorkspacePool()
    key = ((100, "<f4"), (7, "<i4"))
    first = pool.take(key)
    assert all(x.ctypes.data % 64 == 0 for x in first) and [x.size for x in first] == [100, 7]
    pool.give(key, first)
    assert pool.take(key)[0] is first[0] and pool.take(key)[0] is not first[0]
    big = ((MOST + 1, "|u1"),)
    pool.give(big, pool.take(big))
    assert big not in pool.free
    for n in range(2 * KEPT):
        pool.give(((n + 1, "|u1"),), pool.take(((n + 1, "|u1"),)))
    assert len(pool.free) == KEPT


class Named:
    """An engine that serves every product, of which nothing but its place in the list is asked."""

    name, rate, worth, complete = "named", 1.0, 1, True

    def serves(self, params: Any) -> bool:
        return True

    def peak_bytes(self, size: Any) -> int:
        return 0

    def run(self, problem: Any, c: Any, d: Any, cut: Any, team: Any) -> None:
        raise NotImplementedError


def test_engines_that_come_and_go_are_seen() -> None:
    before = nbtc.plan(A, B).engine
    engines.ENGINES.insert(0, Named())
    try:
        assert nbtc.plan(A, B).engine == "named"
    finally:
        engines.ENGINES.pop(0)
    assert nbtc.plan(A, B).engine == before


def test_a_warning_that_is_an_error_is_one_every_time() -> None:
    a = np.ones((16, 16), np.float16)
    models._WARNED.clear()
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(UnvalidatedModelWarning):
                nbtc.matmul(a, a, arch="sm_72", instruction="wmma")
