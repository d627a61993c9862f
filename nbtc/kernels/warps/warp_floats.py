"""One m16n8 floating-point mma as straight vector code on a warp's register image.

The image is read in place, [lane][register].  `warp_operands` decodes A and B, `warp_sums` adds their products up.
Everything finite is exact, subnormals included.  Inf, NaN and sums near the top of f32 or of 32 bits are reported as
needing the fallback: the caller gives them to the general path.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from nbtc.compiler.builder import I16, VectorBuilder, vector
from nbtc.compiler.cpu.lowering import lowering
from nbtc.kernels.register_sums import V16
from nbtc.kernels.warps.float_code import FloatCode
from nbtc.kernels.warps.warp_elements import WarpElements
from nbtc.kernels.warps.warp_operands import WarpOperands
from nbtc.kernels.warps.warp_sparse import SparseOperands
from nbtc.kernels.warps.warp_sums import FullWarpSums, LimitedWarpSums

Stage = tuple[range, int]  # vectors, and a block of products


class ProductSchedule(ABC):
    """The stream of multiply-adds of one product, and between them the work that surrounds them.

    A stage is one block of products of some vectors of results.  While it is summed, the stage before is rounded, and
    the next one decoded and started.
    """

    rate: int  # pieces of other work that a stage has room for
    together = 2  # vectors of sixteen results of a stage: four chains of multiply-adds hide their latency

    def __init__(self, shape: FloatCode, v: VectorBuilder, operands: WarpElements, fraction: Any, floor: Any) -> None:
        self.s, self.v, self.b, self.m = shape, v, v.b, lowering(v)
        sums = LimitedWarpSums if shape.limited_range else FullWarpSums
        self.sums = sums(shape, v, operands, fraction, floor)
        self.peaks: dict[int, Any] = {}
        self.accs: dict[int, Any] = {}
        self.begun: dict[Stage, list[tuple[list[Any], list[Any]]]] = {}
        self.totals: dict[Stage, list[list[Any]]] = {}

    @abstractmethod
    def load_c(self, j: int) -> Any:
        """Vector j of accumulators, as f32."""

    @abstractmethod
    def store_d(self, j: int, x: Any) -> None:
        """The inverse of `load_c`."""

    def decode(self, vectors: range) -> Iterator[None]:
        """What of the operands is decoded before sums of some vectors, piece by piece."""
        return iter(())

    def emit(self) -> Any:
        """All sums; returns i1: needs the fallback."""
        self.run(self._stages())
        return self.flags()

    def flags(self) -> Any:
        """i1: the fallback is needed, after all sums."""
        return self.b.or_(self.sums.operands.needs_fallback(), self.sums.needs_fallback())

    def run(self, stages: list[Stage]) -> None:
        """The sums of some stages."""
        _finish(self._start(stages[0]))
        for n, stage in enumerate(stages):
            before = self._end(stages[n - 1]) if n else iter(())
            after = self._start(stages[n + 1]) if n + 1 < len(stages) else iter(())
            self.sum(stage, chain(before, after))
        _finish(self._end(stages[-1]))

    def _stages(self) -> list[Stage]:
        """In the order of their sums: two steps in turn, as a block waits for the one before."""
        steps, blocks = [range(j, j + self.together) for j in range(0, 8, self.together)], range(self.s.blocks)
        return [(steps[n + i], block) for n in range(0, len(steps), 2) for block in blocks for i in (0, 1)]

    def sum(self, stage: Stage, others: Iterator[None]) -> None:
        """Sums of a stage, and between its multiply-adds pieces of other work, which they leave room for."""
        products, done = len(self.s.labels) // self.s.blocks, 0
        sums = self.sums.multiply(*stage, [starts for starts, _ in self.begun[stage]])
        for n, self.totals[stage] in enumerate(sums):
            while done < self.rate * (n + 1) // products:
                next(others, None)
                done += 1
        _finish(others)

    def _start(self, stage: Stage) -> Iterator[None]:
        """Starts of a stage's sums."""
        vectors, block = stage
        self.begun[stage] = []
        if block == 0:
            yield from self.decode(vectors)
        for j in vectors:
            if block == 0:
                self.peaks[j] = self.sums.operands.peaks(j)
                yield
                self.accs[j] = self.load_c(j)
            self.begun[stage].append(self.sums.start(j, block, self.peaks[j][block], self.accs[j]))
            yield

    def _end(self, stage: Stage) -> Iterator[None]:
        """Accumulators from a stage's sums; stores the last ones."""
        vectors, block = stage
        for j, total, (_, begun) in zip(vectors, self.totals[stage], self.begun[stage], strict=True):
            self.accs[j] = self.sums.finish(total, begun)
            if block == self.s.blocks - 1:
                self.store_d(j, self.accs[j])
            yield


class WarpSchedule(ProductSchedule):
    """A product from images to images: addresses of A, B, C, metadata if any, and D."""

    rate = 16

    def __init__(self, shape: FloatCode, v: VectorBuilder, images: list[Any], numbers: Sequence[Any]) -> None:
        self.a, b, self.c, *others, self.d = images
        self.operands: WarpOperands = (SparseOperands if shape.sparse else WarpOperands)(shape, v)
        super().__init__(shape, v, self.operands, *numbers)
        if isinstance(self.operands, SparseOperands):
            self.operands.read_b(b, self.a, others[0])
        else:
            self.operands.decode_b(b)

    def decode(self, vectors: range) -> Iterator[None]:
        return self.operands.decode_a(self.a, vectors)

    def load_c(self, j: int) -> Any:
        if self.s.f16_acc:
            return self.m.from_f16(self.v.load(self.c, vector(I16, 16), 4, 32 * j))
        return self.v.load(self.c, V16, 4, 64 * j)

    def store_d(self, j: int, x: Any) -> None:
        if self.s.f16_acc:
            self.v.store(self.m.to_f16(x), self.d, 4, 32 * j)
        else:
            self.v.store(x, self.d, 4, 64 * j)


def _finish(work: Iterator[Any]) -> None:
    """Emit what is left of a piece of work."""
    for _ in work:
        pass
