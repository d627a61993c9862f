"""A product as data: its plan, and its validated operands as bits."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.formats.arrays import to_bits, unpack
from nbtc.formats.table import FORMATS, Format
from nbtc.gemm.orders import Chain, Order
from nbtc.gemm.orders import order as order_row
from nbtc.gemm.scales import Scales
from nbtc.isa.spec import Row
from nbtc.numerics.models import BLOCK, Kind, Model

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """What `matmul` would do with these operands.

    instruction: PTX mnemonic of a step.  model: the numerics row.  steps: instruction steps in one output's chain(s).
    shape: (batch..., M, N, K).  engine: which kernels compute it on this host.  peak_bytes: memory needed besides the
    operands and what importing nbtc takes, with the result (or one block of it, if it goes to `out` in blocks).  order:
    how K is summed.  block: the shape of a block of the result.  operand_bytes: sizes of a and b.  rate: roughly, G
    multiply-adds a second on one thread.  simple: whether it is one product of two matrices on one thread, in one
    chain.
    """

    instruction: str
    model: Model
    steps: int
    shape: tuple[int, ...]
    formats: tuple[str, str, str]
    arch: str
    engine: str
    threads: int
    peak_bytes: int
    k_split: int | None = None
    order: Order = field(default_factory=lambda: order_row("seq"))
    block: Shape = ()
    operand_bytes: tuple[int, ...] = ()
    rate: float = field(default=12.0, repr=False, compare=False)
    simple: bool = field(default=False, repr=False, compare=False)
    row: Row = field(repr=False, compare=False, kw_only=True)
    params: NDArray[np.int64] = field(repr=False, compare=False, kw_only=True)

    def __str__(self) -> str:
        a, b, acc = self.formats
        return (
            f"{'x'.join(map(str, self.shape))} ({'batch, ' * (len(self.shape) > 3)}M, N, K) {a} x {b} -> {acc} on "
            f"{self.arch}: {self.steps} steps "
            f"of {self.instruction}, {self.engine} engine, {self.threads} threads, "
            f"at most {self.peak_bytes / 2**20:.1f} MiB beyond the operands"
        )

    @cached_property
    def chains(self) -> tuple[Chain, ...]:
        """The segments of K that each chain of an output takes."""
        return self.order.chains(self.shape[-1])

    @property
    def seconds(self) -> float:
        """A rough estimate of how long the product takes on this host."""
        return prod(self.shape) / (self.rate * 1e9) / self.threads

    def _cost(self) -> str:
        """Sizes and time, in words."""
        sizes = [f"{name} {n / 2**20:.1f} MiB" for name, n in zip("ab", self.operand_bytes, strict=False)]
        result = prod(self.block or self.shape[:-1]) * FORMATS[self.formats[2]].dtype.itemsize
        part = "" if self.block in ((), self.shape[:-1]) else " (a block of it)"
        sizes += [
            f"result{part} {result / 2**20:.1f} MiB",
            f"work {(self.peak_bytes - result) / 2**20:.1f} MiB at most",
        ]
        return f"memory: {', '.join(sizes)}; time: about {self.seconds:.2g} s"

    def explain(self) -> str:
        """The arithmetic of one output, in words."""
        m, lines = self.model, [str(self), self._cost(), f"numerics: {self.model.id} ({self.model.evidence})"]
        if m.kind in (Kind.FUSED, Kind.EMULATED_FP8):
            lines.append(
                f"each step sums blocks of {self.params[BLOCK]} products and the accumulator: aligned to the largest "
                f"exponent, truncated to {m.fraction} bits below it, summed exactly, rounded once"
            )
        if m.kind == Kind.EMULATED_FP8:
            lines.append(
                "fp8 operands are widened to f16; two such sums a step start from zero, one IEEE addition adds c"
            )
        if m.kind == Kind.FMA64:
            lines.append("each step is a chain of IEEE fused multiply-adds in ascending k")
        if m.kind in (Kind.INTEGER, Kind.BITS):
            lines.append("each step is exact, then wraps to 32 bits (or clamps, with saturate)")
        if self.k_split:
            lines.append(
                f"a new chain starts every {self.k_split} elements of K; the parts are added in ascending order"
            )
        elif self.order.evidence or not self.order.sequential:
            step = (self.row.shape or (0, 0, 1))[2]
            lines.append(f"order of summation ({self.order.evidence or 'as asked'}):")
            lines.append(self.order.tree(self.shape[-1], step))
        return "\n".join(lines)


@dataclass
class Problem:
    """Validated operands as bits: a (batch_a..., M, K), b (..., K, N), c (..., M, N) or None."""

    a: NDArray[Any]
    b: NDArray[Any]
    c: NDArray[Any] | None
    a_format: Format
    b_format: Format
    acc: Format
    batch: tuple[int, ...]
    packed: tuple[bool, bool]
    plan: Plan
    scales: Scales = (None, None)

    @property
    def merged(self) -> bool:
        """True where all items of the batch have the same B: their rows are rows of one product."""
        return merged(self.a.shape, self.b.shape, self.batch)


def merged(a: Shape, b: Shape, batch: Shape) -> bool:
    """Whether operands of these shapes are a batch of rows with one B."""
    return a[:-2] == batch and prod(b[:-2]) == 1


def matrix(x: NDArray[Any], fmt: Format, packed: bool, axis: int, k: int) -> NDArray[Any]:
    """Element bits of a 2-D operand, one element each (packed words are unpacked, trimmed to K)."""
    if not packed:
        return x
    return to_bits(unpack(x, fmt, axis=axis, count=k), fmt)
