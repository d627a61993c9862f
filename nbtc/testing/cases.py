"""Every arithmetic as a case to test: each row of the models with each format, accumulator and step it serves."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.threads import ThreadTeam
from nbtc.errors import UnvalidatedModelWarning
from nbtc.formats.arrays import from_bits, to_bits
from nbtc.formats.table import FORMATS, Format
from nbtc.gemm import matmul
from nbtc.gemm.engines import chain_engine
from nbtc.instructions import instructions
from nbtc.numerics import models
from nbtc.numerics.exact import Oracle
from nbtc.testing.strategies import operands, words

FP8, INT8, INT4 = ("e4m3", "e5m2"), ("s8", "u8"), ("s4", "u4")
# K of the largest form of a family, by multiplicand format
LARGEST = {
    "wmma": {"f16": 16, "bf16": 16, "tf32": 8, "f64": 4, "s8": 16, "u8": 16, "s4": 32, "u4": 32, "b1": 128},
    "wgmma": {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32},
}
STEPS: dict[str, tuple[int, ...]] = {
    "f16": (8, 16),
    "bf16": (8, 16),
    "tf32": (4, 8),
    "fp8": (16, 32),
    "fp6": (32,),
    "fp4": (32,),
}
NARROW: dict[str, tuple[str, ...]] = {"fp8": FP8, "fp6": ("e2m3", "e3m2"), "fp4": ("e2m1",)}
UNITS = ("mma", "quad", "wgmma", "wmma")  # block scales have cases of their own, tcgen05 the rows of others


def chains(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any], params: NDArray[np.int64]) -> NDArray[Any]:
    """Accumulator bits, in words of c's size, by the compiled core: one chain an output, as in `matmul`'s repairs."""
    d, first = np.empty_like(c, order="C"), np.zeros(1, np.int64)
    chain_engine.run(a, b, c, d, (first, first, first), params, ThreadTeam(1, False, 0))
    return d


@contextmanager
def large_engines() -> Iterator[None]:
    """Inside, `matmul` takes no product for small: its engines compute what one chain an output would, untested."""
    plan = import_module("nbtc.gemm.planning")
    small = plan.SMALL
    plan.SMALL = 0  # type: ignore[attr-defined]
    plan._decided.cache_clear()
    try:
        yield
    finally:
        plan.SMALL = small  # type: ignore[attr-defined]
        plan._decided.cache_clear()


@dataclass(frozen=True)
class Case:
    """One arithmetic: the row of (arch, unit, a) for an accumulator and an instruction's K, with its modifiers."""

    arch: str
    unit: str
    a: str
    b: str
    acc: str
    step: int
    saturate: bool = False
    rounding: str = "rn"
    op: str = "xor"

    def __str__(self) -> str:
        how = ["sat"] * self.saturate + [self.rounding] * (self.rounding != "rn") + ["and"] * (self.op == "and")
        return "-".join((self.arch, self.unit, self.a, self.b, self.acc, f"k{self.step}", *how))

    @property
    def formats(self) -> tuple[Format, Format, Format]:
        """Rows of a, b and the accumulator."""
        return FORMATS[self.a], FORMATS[self.b], FORMATS[self.acc]

    @property
    def row(self) -> models.Model:
        """The model; rows without evidence do not warn here."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnvalidatedModelWarning)
            return models.model(self.arch, self.unit, FORMATS[self.a])

    def oracle(self) -> Oracle:
        """The exact oracle of the case."""
        how = {"saturate": self.saturate, "rounding": self.rounding, "op": self.op}
        return Oracle(self.row, *self.formats, self.step, **how)  # type: ignore[arg-type]

    def params(self) -> NDArray[np.int64]:
        """The parameter vector of compiled kernels."""
        how: dict[str, Any] = {"saturate": self.saturate, "rounding": self.rounding, "op": self.op}
        return models.params(self.row, *self.formats, self.step, **how)

    def instruction(self) -> str | None:
        """What to ask `nbtc.matmul` for, so that it computes the case; None when no single instruction does."""
        if self.unit in LARGEST:
            return self.unit if LARGEST[self.unit].get(self.a) == self.step else None
        return _mnemonic(self)

    def operands(self, rng: np.random.Generator, strategy: str, m: int, n: int) -> tuple[NDArray[Any], ...]:
        """Bits of A, B and C of one strategy, in words of their own sizes; K is drawn: one step, less, or up to 40 and
        more."""
        longest = 3 * self.step // 2 if self.step > 32 else 40
        k = self.step if rng.random() < 0.4 else int(rng.integers(1, longest + 1))
        if strategy in ("floor", "tie"):  # a few products that belong together
            k = max(k, self.step)
        drawn = operands(rng, strategy, (m, n, k), *self.formats)
        return tuple(np.ascontiguousarray(words(f, x)) for f, x in zip(self.formats, drawn, strict=True))

    def core(self, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]) -> NDArray[Any]:
        """Bits of the case by the compiled core; words of the formats' sizes, as `operands` gives them."""
        return chains(a, b, c.astype(FORMATS[self.acc].bits_dtype), self.params()).astype(c.dtype)

    def options(self) -> dict[str, Any]:
        """What `matmul` has to be told besides the operands."""
        how: dict[str, Any] = {"arch": self.arch, "acc": self.acc, "instruction": self.instruction()}
        return how | ({"saturate": True} if self.saturate else {}) | ({"op": self.op} if self.a == "b1" else {})

    def matmul(self, *bits: NDArray[Any], **more: Any) -> NDArray[Any]:
        """Bits of the case by `nbtc.matmul`, where `instruction` names one; without warnings of missing evidence."""
        a, b, c = (from_bits(x, f) for x, f in zip(bits, self.formats, strict=True))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnvalidatedModelWarning)
            return to_bits(matmul(a, b, c, **self.options(), **more))


@cache
def _mnemonic(case: Case) -> str | None:
    """The mma.sync form of a case, when its architecture has one."""
    for i in instructions(family="mma", arch=case.arch):
        matrices = [o for o in (i.a, i.b, i.c, i.d) if o is not None]
        if not i.executable or i.row.scale or i.shape is None or len(matrices) < 4:
            continue
        same = [o.format.name for o in matrices] == [case.a, case.b, case.acc, case.acc] and i.shape[2] == case.step
        how = (i.row.rounding or "rn", i.row.op or "xor", i.row.saturate) == (case.rounding, case.op, case.saturate)
        if same and how and (matrices[0].products == 4) == (case.unit == "quad"):
            return str(i.mnemonic)
    return None


def _floats() -> list[Case]:
    found = []
    for arch, unit, family in sorted(key for key in models._ROWS if key[1] in UNITS):
        kinds = NARROW.get(family, (family,))
        steps = (4,) if unit == "quad" else (32,) if (unit, family) == ("wgmma", "fp8") else STEPS[family]
        accumulators = ("f32", "f16") if family in ("f16", *NARROW) else ("f32",)
        choices = product(kinds, kinds, accumulators, steps)
        found += [Case(arch, unit, a, b, acc, step) for a, b, acc, step in choices]
    return found


@cache
def cases() -> tuple[Case, ...]:
    """All of them, in a fixed order.

    >>> len(cases()) > 150, str(cases()[0])
    (True, 'sm_100-mma-bf16-bf16-f32-k8')
    """
    found = _floats()
    found += [Case("sm_90", "mma", "f64", "f64", "f64", k, rounding=r) for k in (4, 8, 16) for r in models.ROUNDINGS]
    for kinds, steps in ((INT8, (16, 32)), (INT4, (32, 64))):
        choices = product(kinds, kinds, steps, (False, True))
        found += [Case("sm_90", "mma", a, b, "s32", step, saturate) for a, b, step, saturate in choices]
    found += [Case("sm_90", "mma", "b1", "b1", "s32", step, op=op) for step in (128, 256) for op in models.BIT_OPS]
    return tuple(found)
