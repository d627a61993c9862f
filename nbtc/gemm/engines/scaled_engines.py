"""The engines of products with block scales: rows of the protocol of `engines`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.cpu.processors import host_processor
from nbtc.compiler.threads import ThreadTeam
from nbtc.formats.block_scales import scale_table
from nbtc.formats.table import Format
from nbtc.gemm.cost import OVERHEAD, Size, packed_bytes
from nbtc.gemm.engines import block_engine, scaled_panel_engine, scaled_rows_engine
from nbtc.gemm.engines.engines import Engine, each_item
from nbtc.gemm.item import Cut
from nbtc.gemm.problem import Plan
from nbtc.kernels.block_scaled import group_pack, scaled_rows
from nbtc.numerics.scaled import StepScales, scaled_outputs
from nbtc.ops.mma.scaled import flattened

LEAST_BLOCK = 16  # elements of K of a scale
CHAIN_COST = 3  # nanoseconds of a multiply-add in the chain of one output
_ALL = np.zeros(0, np.int64)


class BlockScales(NamedTuple):
    """Codes of the scales of A (..., M, S) and B (..., S, N), their format, and the elements of a block."""

    a: NDArray[np.uint8]
    b: NDArray[np.uint8]
    format: Format
    block: int


@dataclass
class ScaledProblem:
    """Validated operands: element codes a (..., M, K), b (..., K, N), accumulator bits c or None, scales."""

    a: NDArray[np.uint8]
    b: NDArray[np.uint8]
    c: NDArray[np.uint32] | None
    formats: tuple[Format, Format]
    scales: BlockScales
    chunks: int
    batch: tuple[int, ...]
    plan: Plan

    @property
    def step_scales(self) -> StepScales:
        """Of a step: how many a row or column has, and what their codes mean."""
        return StepScales(self.chunks, scale_table(self.scales.format))


class Codes(NamedTuple):
    """Of elements a (..., M, K), b (..., K, N) and their scales xs (..., M, S), ys (..., S, N), between two k."""

    a: NDArray[np.uint8]
    b: NDArray[np.uint8]
    xs: NDArray[np.uint8]
    ys: NDArray[np.uint8]


def codes_between(problem: ScaledProblem, cut: Cut) -> Codes:
    """The operands between two k, the first of which begins a step; scales are those of whole steps."""
    s, (start, stop) = problem.scales, cut
    blocks = slice(start // s.block, -(-stop // s.block))
    missing = -(blocks.stop - blocks.start) % problem.chunks  # blocks of the last step
    xs, ys = _padded(s.a[..., blocks], s.format, -1, missing), _padded(s.b[..., blocks, :], s.format, -2, missing)
    return Codes(problem.a[..., start:stop], problem.b[..., start:stop, :], xs, ys)


def _padded(codes: NDArray[np.uint8], fmt: Format, axis: int, count: int) -> NDArray[np.uint8]:
    """Scales with ones appended for blocks that only padding fills."""
    if not count:
        return codes
    shape = list(codes.shape)
    shape[axis] = count
    return np.concatenate([codes, np.full(shape, fmt.bias << fmt.mantissa, np.uint8)], axis)


def _results_bytes(size: Size) -> int:
    """Upper bound of the memory of results and of copied operands with their scales."""
    *batch, m, n, k = size.shape
    copies = m * k + k * n + (m + n) * (-(-k // LEAST_BLOCK))
    return prod(batch) * (2 * m * n * 4 + copies) + OVERHEAD


class ScaledChainEngine:
    """Outputs one at a time: serves everything, and repairs what the others leave."""

    name, rate, worth, complete = "chain", 0.15, 50_000, True

    def serves(self, params: NDArray[np.int64]) -> bool:
        return True

    def peak_bytes(self, size: Size) -> int:
        return _results_bytes(size)

    def run(self, problem: ScaledProblem, c: NDArray[Any] | None, d: NDArray[Any], cut: Cut, team: ThreadTeam) -> None:
        if c is not None:
            d[...] = c
        self.some(problem, codes_between(problem, cut), d, team, _ALL)

    def some(
        self, problem: ScaledProblem, codes: Codes, d: NDArray[Any], team: ThreadTeam, chosen: NDArray[np.int64]
    ) -> None:
        """d = chain from what it holds: at chosen positions, or all where none are given."""
        (m, n), k = d.shape[-2:], codes.a.shape[-1]
        operands = flattened([codes.a, codes.b, d, codes.xs, codes.ys], d.shape[:-2])
        sizes = np.array([m, n, k, codes.xs.shape[-1]])
        count = chosen.size or d.size
        per = max(1, min(-(-count // team.threads), 20_000_000 // (CHAIN_COST * max(1, k))))
        shares = [(first, min(count, first + per)) for first in range(0, count, per)]
        fixed = (operands, d.reshape(-1), chosen, sizes, problem.step_scales, problem.plan.params)
        team.run(scaled_outputs, fixed, shares, per * k if chosen.size == 0 else 0)


CHAIN = ScaledChainEngine()


class _ScaledByItem(ABC):
    """Computes one item of a batch after the other.  served: the numbers of the models whose sums it has."""

    served: Mapping[int, int]
    complete = True

    def serves(self, params: NDArray[np.int64]) -> bool:
        return all(params[at] == number for at, number in self.served.items())

    @abstractmethod
    def product(self, problem: ScaledProblem, codes: Codes, d: NDArray[Any], team: ThreadTeam, has_c: bool) -> None:
        """d (M, N) = chain from what it holds: c, or else zeros."""

    def run(self, problem: ScaledProblem, c: NDArray[Any] | None, d: NDArray[Any], cut: Cut, team: ThreadTeam) -> None:
        if c is not None:
            d[...] = c
        parts = [np.broadcast_to(x, (*problem.batch, *x.shape[-2:])) for x in codes_between(problem, cut)]
        indices = list(np.ndindex(*problem.batch))

        def one(workers: ThreadTeam, i: int) -> None:
            self.product(problem, Codes(*(x[indices[i]] for x in parts)), d[indices[i]], workers, c is not None)

        each_item(one, len(indices), prod(d.shape[-2:]) * (cut[1] - cut[0]), team)


class ScaledBlocksEngine(_ScaledByItem):
    """e2m1 in groups: dot products of bytes, scaled in f64."""

    name, rate, worth, served = "blocks", 36.0, 15_000_000, group_pack.SERVED

    def peak_bytes(self, size: Size) -> int:
        return _results_bytes(size) + block_engine.packed_bytes(*size.shape[-3:])

    def product(self, problem: ScaledProblem, codes: Codes, d: NDArray[Any], team: ThreadTeam, has_c: bool) -> None:
        how: dict[str, Any] = {"scales": problem.step_scales, "params": problem.plan.params, "team": team}
        block_engine.GroupedProduct(*codes, scale=problem.scales.format.name, **how).run(d)


class ScaledRowsEngine(_ScaledByItem):
    """Elements of 8, 6 and 4 bits, a row and a panel at a time in code that compilers vectorise."""

    name, rate, worth, served = "rows", 1.8, 1_000_000, scaled_rows.SERVED

    def peak_bytes(self, size: Size) -> int:
        return _results_bytes(size) + scaled_rows_engine.decoded_bytes(*size.shape[-3:])

    def product(self, problem: ScaledProblem, codes: Codes, d: NDArray[Any], team: ThreadTeam, has_c: bool) -> None:
        how: dict[str, Any] = {"scales": problem.step_scales, "params": problem.plan.params, "team": team}
        scaled_rows_engine.ScaledRowsProduct(*codes, formats=problem.formats, **how).run(d)


class ScaledPanelEngine(ScaledRowsEngine):
    """The same on the micro-kernel of fused sums; items whose exponents leave its range go by rows."""

    name, rate, worth, complete = "panel", 12.0, 6_000_000, False

    def serves(self, params: NDArray[np.int64]) -> bool:
        return super().serves(params) and host_processor() is not None

    def peak_bytes(self, size: Size) -> int:
        panels = packed_bytes(size._replace(shape=size.shape[-3:], block=size.block[-2:], merged=False), 0)
        return max(super().peak_bytes(size), _results_bytes(size) + panels)

    def product(self, problem: ScaledProblem, codes: Codes, d: NDArray[Any], team: ThreadTeam, has_c: bool) -> None:
        product = scaled_panel_engine.ScaledPanelProduct(
            *codes, formats=problem.formats, params=problem.plan.params, team=team
        )
        if not product.serves:
            super().product(problem, codes, d, team, has_c)
            return
        start = d.reshape(-1).copy() if has_c else None
        for marked in product.run(d, has_c):
            d.reshape(-1)[marked] = 0 if start is None else start[marked]
            CHAIN.some(problem, codes, d, team, marked)


# Of those that serve, the first is the fastest.
ENGINES: list[Engine[ScaledProblem]] = [ScaledBlocksEngine(), ScaledPanelEngine(), ScaledRowsEngine(), CHAIN]
