"""The fused sum in fewer operations beside its multiply-adds, for processors that choose bytes by masks.

What has a byte or half for each column lies by turns: a 32-bit word has those of a column of each chunk, so that
sixteen columns' are taken from it at once, by a load that puts them on top of their words or by a dot product.
"""

from __future__ import annotations

from typing import Any

from nbtc.compiler.builder import I16, I32, VectorBuilder, vector
from nbtc.compiler.cpu.lowering import lowering
from nbtc.kernels.panels.alignment_and_rounding import FullRange, LimitedRange, SumShape
from nbtc.kernels.panels.alignment_by_turns import ByDots, ByTurns
from nbtc.kernels.panels.fused_sum import PANEL, Chunk, Exponents, FusedSum, SumTile

TOP = 3  # bytes of a word below its top one


class SumByTurns(FusedSum):
    """`FusedSum` with alignment exponents `ByTurns`; sums in f32 start from M at once, and end less it."""

    ends: ByTurns

    def __init__(self, v: VectorBuilder, shape: SumShape, numbers: dict[str, Any], flags: Any) -> None:
        super().__init__(v, shape, numbers, flags)
        self.counts: dict[int, Any] = {}  # of a row's negative products, in halves of two chunks

    @property
    def keeps_units(self) -> bool:
        """A sum in f32 tells the M that it started from; where a store costs more than an operation, M is not kept."""
        return self.s.in_f64 or self.s.target.two_ports

    def ends_of(self, shape: SumShape) -> type[FullRange] | type[LimitedRange]:
        return ByTurns

    def places(self, maxima: Any, counts: int, column: Any) -> tuple[Any, Any]:
        v = self.v
        return maxima, v.at(maxima, counts) if self.s.signs_by_turns else v.at(maxima, counts, column)

    def begin(self, at: SumTile, chunk: Chunk) -> tuple[Any, Any]:
        r, c = chunk
        acc = None if self.s.from_zero else self.load(at.acc, 4 * PANEL * r + self.width * c)
        maxima = self.v.at(at.maxima, self.exponent_row * r + at.chunk + c - TOP)
        e = self.ends.alignment(maxima, acc)
        low = self.with_negative(at, chunk, self.ends.c(0) if acc is None else self.ends.truncated(acc, e))
        if self.s.in_f64:
            return e, low
        m = self.ends.magic(e)
        return m, self.b.add(m, low)

    def with_negative(self, at: SumTile, chunk: Chunk, n: Any) -> Any:
        """n and how many products of each of a chunk's sums are negative."""
        v, b, (r, c) = self.v, self.b, chunk
        if self.s.counted and self.s.signs_by_turns:
            return v.add_octets(n, self.load(at.counts, PANEL * r), self.ends.c(1 << 8 * (at.chunk + c)))
        if not self.s.signs_by_turns or self.s.sign_bytes == 4:
            return b.add(n, self.negative(at, chunk))
        if c % 2 == 0:
            mine = v.splat(v.load(at.signs_a, I32, 4, 4 * r), self.lanes)
            signs = v.bits(b.xor(self.load(at.signs_b, self.width * (c // 2)), mine), vector(I16, 2 * self.lanes))
            self.counts[r] = v.bits(v.popcount(signs), self.integers)
        if self.s.target.dots:
            return v.add_halves(n, self.counts[r], self.ends.c(1 << 16 * (c % 2)))
        upper = b.lshr(self.counts[r], self.ends.c(16))
        return b.add(n, upper if c % 2 else b.and_(self.counts[r], self.ends.c((1 << 16) - 1)))

    def starts(self, e: Any, low: Any) -> list[Any]:
        if self.s.in_f64:
            return self.joined(low, self.ends.magic(e))
        return [self.v.bits(low, self.vector)]

    def together(self, sums: dict[Chunk, list[Any]]) -> dict[Chunk, list[Any]]:
        """All are made before the first is rounded: the compiler would mix both, and run out of registers.

        Of f32 elements it stored 91 registers a step.
        """
        flat = lowering(self.v).in_order([x for parts in sums.values() for x in parts])
        return {chunk: [flat.pop(0) for _ in parts] for chunk, parts in sums.items()}

    def finish(self, at: SumTile, chunk: Chunk, e: Any, n: Any) -> None:
        if self.s.in_f64:
            return super().finish(at, chunk, e, n)
        v, floats = self.v, self.ends.floats
        m = e if self.keeps_units else self.ends.start_of(n)
        return self.put(at, chunk, self.ends.round_exact(v.difference(v.bits(n, floats), v.bits(m, floats))))


class SumByDots(SumByTurns):
    """The same with alignment exponents `ByDots`, for processors whose vector operations all cost the same.

    On Zen a saturating subtraction of bytes takes a multiplier, and the broadcast that it can't have within it an
    operation more than an addition of words: 7 % of a product.
    """

    ends: ByDots

    def ends_of(self, shape: SumShape) -> type[FullRange] | type[LimitedRange]:
        return ByDots

    def no_maxima(self, which: Exponents) -> list[list[Any]]:
        return [[self.ends.least_maxima()] * which.parts for _ in range(which.rows)]

    def exponent_sum(self, a: Any, b: Any) -> Any:
        """Exponents of A less how far B's are below their greatest; of a zero, 0."""
        return self.v.over("usub.sat", *(self.v.bits(x, self.exponents) for x in (a, b)))


def fused_sum(v: VectorBuilder, shape: SumShape, numbers: dict[str, Any], flags: Any) -> FusedSum:
    """What emits a shape's sums."""
    by_turns = SumByDots if shape.target.dots else SumByTurns
    return (by_turns if shape.by_turns else FusedSum)(v, shape, numbers, flags)
