"""One m16n8 floating-point mma as straight vector code on a warp's register image.

The image is read in place, [lane][register].  `warp_operands` decodes A and B, `warp_sums` adds their products up.
Everything finite is exact, subnormals included.  Inf, NaN and sums near the top of f32 or of 32 bits are reported as
needing the fallback: the caller gives them to the general path.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from nbtc.compiler.builder import I16, I32, VectorBuilder, vector
from nbtc.compiler.cpu.lowering import lowering
from nbtc.kernels.register_sums import V16
from nbtc.kernels.warps.float_code import W16, FloatCode
from nbtc.kernels.warps.warp_operands import WarpOperands, put, take
from nbtc.kernels.warps.warp_sparse import SparseOperands
from nbtc.kernels.warps.warp_sums import FullWarpSums, LimitedWarpSums

PAIRS = 2  # row pairs summed together: four chains of multiply-adds hide their latency
Stage = tuple[range, int]  # row pairs, and a block of products


class Codegen:
    """Emits the code of one `FloatCode`: a stream of multiply-adds, and between them the work that surrounds them.

    A stage is one block of products of some row pairs.  While it is summed, the stage before is rounded, and the next
    one decoded and started.
    """

    rate = 16  # pieces of other work that a stage has room for

    def __init__(self, shape: FloatCode, v: VectorBuilder, fraction: Any, floor: Any) -> None:
        self.s, self.v, self.b, self.m = shape, v, v.b, lowering(v)
        self.operands = (SparseOperands if shape.sparse else WarpOperands)(shape, v)
        self.sums = (LimitedWarpSums if shape.limited_range else FullWarpSums)(shape, v, self.operands, fraction, floor)
        self.peaks: dict[int, Any] = {}
        self.accs: dict[int, Any] = {}
        self.begun: dict[Stage, list[tuple[list[Any], list[Any]]]] = {}
        self.totals: dict[Stage, list[list[Any]]] = {}

    def emit(self, a: Any, p: Any, c: Any, *others: Any) -> Any:
        """The whole instruction, for addresses of the images, metadata and D last; returns i1: needs the fallback."""
        stages, d = self._stages(), others[-1]
        if isinstance(self.operands, SparseOperands):
            self.operands.read_b(p, a, others[0])
        else:
            self.operands.decode_b(p)
        _finish(self._start(stages[0], a, c))
        for n, stage in enumerate(stages):
            before = self._end(stages[n - 1], d) if n else iter(())
            after = self._start(stages[n + 1], a, c) if n + 1 < len(stages) else iter(())
            self._sum(stage, chain(before, after))
        _finish(self._end(stages[-1], d))
        return self.b.or_(self.operands.needs_fallback(), self.sums.needs_fallback())

    def _stages(self) -> list[Stage]:
        """In the order of their sums: two steps in turn, as a block waits for the one before."""
        steps, blocks = [range(j, j + PAIRS) for j in range(0, 8, PAIRS)], range(self.s.blocks)
        return [(steps[n + i], block) for n in range(0, len(steps), 2) for block in blocks for i in (0, 1)]

    def _sum(self, stage: Stage, others: Iterator[None]) -> None:
        """Sums of a stage, and between its multiply-adds pieces of other work, which they leave room for."""
        products, done = len(self.s.labels) // self.s.blocks, 0
        sums = self.sums.multiply(*stage, [starts for starts, _ in self.begun[stage]])
        for n, self.totals[stage] in enumerate(sums):
            while done < self.rate * (n + 1) // products:
                next(others, None)
                done += 1
        _finish(others)

    def _start(self, stage: Stage, a: Any, c: Any) -> Iterator[None]:
        """Starts of a stage's sums."""
        pairs, block = stage
        self.begun[stage] = []
        if block == 0:
            yield from self.operands.decode_a(a, pairs)
        for j in pairs:
            if block == 0:
                self.peaks[j] = self.sums.peaks(j)
                yield
                self.accs[j] = self.load_c(j, c)
            self.begun[stage].append(self.sums.start(j, block, self.peaks[j][block], self.accs[j]))
            yield

    def _end(self, stage: Stage, d: Any) -> Iterator[None]:
        """Accumulators from a stage's sums; stores the last ones."""
        pairs, block = stage
        for j, total, (_, begun) in zip(pairs, self.totals[stage], self.begun[stage], strict=True):
            self.accs[j] = self.sums.finish(total, begun)
            if block == self.s.blocks - 1:
                self.store_d(j, d, self.accs[j])
            yield

    def load_c(self, j: int, c: Any) -> Any:
        """Accumulators of rows j and j + 8 as f32, in the image's order."""
        v, f16_acc = self.v, self.s.f16_acc
        words = take(v, self.s.by_register, c, 2 if f16_acc else 4, 4 * j, 4)
        return self.m.from_f16(v.bits(words, vector(I16, 16))) if f16_acc else v.bits(words, V16)

    def store_d(self, j: int, d: Any, x: Any) -> None:
        """The inverse of `load_c`."""
        v, f16_acc = self.v, self.s.f16_acc
        words = v.bits(self.m.to_f16(x), vector(I32, 8)) if f16_acc else v.bits(x, W16)
        put(v, self.s.by_register, d, 2 if f16_acc else 4, 4 * j, words)


def _finish(work: Iterator[Any]) -> None:
    """Emit what is left of a piece of work."""
    for _ in work:
        pass
