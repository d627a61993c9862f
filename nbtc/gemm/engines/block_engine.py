"""Large block-scaled products of e2m1: what is packed, how it is cut, and what is done one at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.machine_code.emitted import as_words, run_in_words
from nbtc.compiler.pools.workspace_pool import aligned
from nbtc.compiler.threads import ThreadTeam
from nbtc.gemm.engines.packed_memory import contiguous
from nbtc.kernels.block_scaled import group_dot, group_pack
from nbtc.kernels.block_scaled.group_dot import (
    HEAD,
    LANES,
    ROWS,
    STEP,
    WORDS,
    GroupedBlockArguments,
    PackedColumns,
    PackedRows,
)
from nbtc.kernels.block_scaled.group_pack import GroupedOperand
from nbtc.numerics.scaled import ScaledOperands, StepScales

STEPS = 8  # steps of a block: 8 KiB of a panel of B stay in the first-level cache
BLOCK = 64 * ROWS  # rows of a block, whose bytes stay in the second-level cache
NAN = np.uint32(0x7FFFFFFF)


def packed_bytes(m: int, n: int, k: int) -> int:
    """Upper bound of the memory of packed operands and the padded result."""
    places = -(-k // STEP) * STEP
    return (m + ROWS + n + LANES) * places * 2 + (m + ROWS) * (n + LANES) * 4


class GroupedProduct:
    """One product of element codes a (M, K), b (K, N) with scale codes xs (M, S), ys (S, N)."""

    def __init__(
        self, a: NDArray[Any], b: NDArray[Any], xs: NDArray[Any], ys: NDArray[Any], *, scale: str, scales: StepScales,
        params: NDArray[np.int64], team: ThreadTeam,
    ) -> None:  # fmt: skip
        self.shape = m, n, k = a.shape[0], b.shape[1], a.shape[1]
        self.scales, self.params, self.team, self.chunks = scales, params, team, scales.chunks
        self.steps = steps = -(-k // STEP)
        flat = [contiguous(x).reshape(-1) for x in (a, b, xs, ys)]
        none = np.zeros(0, np.uint32)
        self.codes = ScaledOperands(flat[0], flat[1], none, flat[2], flat[3], np.zeros((5, 1), np.int64))
        self.rows, self.panels = -(-m // ROWS) * ROWS, -(-n // LANES)
        line, panel = self.rows * steps, self.panels * steps
        c = self.chunks
        self.left = PackedRows(
            aligned(line * STEP, np.int8), aligned(line * c, np.float64), aligned(line * (HEAD + c), np.int32)
        )
        self.right = PackedColumns(
            aligned(panel * WORDS * LANES * 4, np.uint8), aligned(panel * c * LANES, np.float64),
            aligned(panel * 2 * LANES, np.int32),
        )  # fmt: skip
        self.special = np.zeros(m, np.bool_), np.zeros(n, np.bool_)
        self.pack, self.table = group_pack.packers(scale, c), group_pack.table(scale)
        self.block = group_dot.block_code(c)

    def run(self, d: NDArray[np.uint32]) -> None:
        """d (M, N): f32 bits of c in, of the result out."""
        m, n, k = self.shape
        codes, steps = self.codes, self.steps
        rows = GroupedOperand(codes.a, codes.xs, k, m, steps)
        self._pack(self.pack[0], group_pack.GroupedRowsArguments, self.rows, ROWS, (rows, self.left, self.special[0]))
        columns = GroupedOperand(codes.b, codes.ys, k, n, steps)
        self._pack(
            self.pack[1], group_pack.GroupedColumnsArguments, self.panels, 1, (columns, self.right, self.special[1])
        )
        width = self.panels * LANES
        padded = np.zeros((self.rows, width), np.uint32)
        padded[:m, :n] = d
        self._multiply(padded.reshape(-1), width)
        d[...] = padded[:m, :n]
        d[self.special[0]] = NAN
        d[:, self.special[1]] = NAN

    def _pack(
        self, pack: int, kind: Any, count: int, least: int, operand: tuple[GroupedOperand, Any, NDArray[np.bool_]]
    ) -> None:
        """All `count` rows, or panels, of an operand, by several threads; operand: with where it is packed to."""
        source, packed, special = operand
        size = max(least, -(-count // (4 * self.team.threads)))
        shares = [(first, min(count, first + size)) for first in range(0, count, size)]

        def task(first: int, last: int) -> None:
            run_in_words(pack, kind(source, self.table, packed, special, first, last))

        self.team.run(task, (), shares)

    def _multiply(self, d: NDArray[np.uint32], width: int) -> None:
        m, n, k = self.shape
        sizes = np.array([k, width, n, self.steps * self.chunks, m])
        fixed = (self, d, sizes)
        across = 1 if self.rows >= BLOCK * self.team.threads else self.team.threads
        size = -(-self.panels // across)
        work = [
            (i, min(self.rows, i + BLOCK), p, min(self.panels, p + size))
            for i in range(0, self.rows, BLOCK)
            for p in range(0, self.panels, size)
        ]
        self.team.run(_block, fixed, work, m * n * k // max(1, len(work)))


def _block(p: GroupedProduct, d: Any, sizes: Any, i: int, rows: int, panel: int, panels: int) -> None:
    """All steps of some rows and panels."""
    width = int(sizes[1])
    for first in range(0, p.steps, STEPS):
        last = min(p.steps, first + STEPS)
        own = group_dot.BlockWorkspace.new(panel, i)
        arguments = GroupedBlockArguments(
            p.left, p.right, d, width, p.steps, first, last, i, rows, panels, own.doubt, own.place
        )  # fmt: skip
        if not run_in_words(p.block, arguments):
            words = as_words(arguments)
            group_dot.finish(p.block, words, d, p.codes, p.scales, p.params, sizes, own)
