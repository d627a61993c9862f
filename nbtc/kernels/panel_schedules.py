"""Two orders of a fused sum's pieces over a panel: 64 columns, up to 64 rows, blocks of products one after the other.

A step is four rows and one block of products; rows run fastest, so that B stays in the first-level cache.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from numba.core import cgutils

from nbtc.compiler.builder import VectorBuilder
from nbtc.compiler.lowering import lowering
from nbtc.kernels.alignment_and_rounding import BIAS, SIGN, Shape
from nbtc.kernels.fused_sum import PANEL, ROWS, Chunk, Exponents, FusedSum, Tile

FLAG_WORD = 3072  # where in the scratch memory the flags of `FusedSum` are
NUMBERS = ("floor", "least", "scale", "reference")
# emits what else is done at every step: (builder, shape, arguments, block of products, row tile)
Beside = Callable[[VectorBuilder, Shape, dict[str, Any], Any, Any], None]


class Schedule(ABC):
    """What both schedules share: where the operands of a step are."""

    def __init__(self, v: VectorBuilder, shape: Shape, args: dict[str, Any], beside: Beside) -> None:
        self.v, self.b, self.s, self.args, self.beside = v, v.b, shape, args, beside
        self.scratch = args["scratch"]
        self.sums = FusedSum(v, shape, {x: args[x] for x in NUMBERS}, v.at(self.scratch, 4 * FLAG_WORD))
        self.columns = self.sums.lanes * self.sums.chunks  # of a register tile
        self.passes = PANEL // self.columns

    def at(self, group: Any, block: Any, column: Any, maxima: Any) -> Tile:
        """A register tile, from a column on."""
        v, b, a, s, size = self.v, self.b, self.args, self.s, self.sums.size
        step = b.add(b.mul(group, a["blocks"]), block)
        deep, words = b.mul(group, v.int(PANEL)), b.mul(column, v.int(4))
        return Tile(
            v.at(a["a"], b.mul(step, v.int(ROWS * s.block * size))),
            v.at(a["sa"], b.mul(step, v.int(4 * ROWS))),
            v.at(a["b"], b.mul(deep, v.int(size * s.block)), b.mul(column, v.int(size))),
            v.at(a["sb"], b.mul(deep, v.int(4)), words),
            v.at(a["tile"], b.mul(block, v.int(4 * PANEL * ROWS)), words),
            v.at(maxima, b.mul(column, v.int(s.exponent_bytes))),
        )

    def exponents(self, group: Any, block: Any, to: Any) -> Exponents:
        """All exponents of a step."""
        v, b, a, s = self.v, self.b, self.args, self.s
        step = b.add(b.mul(group, a["blocks"]), block)
        row = self.sums.exponent_row
        return Exponents(
            ROWS,
            row // self.sums.width,
            v.at(a["ea"], b.mul(step, v.int(4 * ROWS * s.block))),
            v.at(a["eb"], b.mul(group, v.int(row * s.block))),
            to,
        )

    def all_maxima(self, which: Exponents) -> None:
        """Exponent maxima of a step, made and kept."""
        best = self.sums.no_maxima(which)
        for k in range(self.s.block):
            best = self.sums.fold_exponents(best, which, k)
        self.sums.keep_maxima(best, which)

    @abstractmethod
    def emit(self) -> None:
        """The whole kernel."""


class Plain(Schedule):
    """One register tile after the other, for processors of sixteen registers: the sums fill them.

    Exponent maxima come first, for all columns of a step.
    """

    def emit(self) -> None:
        v, b, args = self.v, self.b, self.args
        with cgutils.for_range(b, args["groups"]) as group, cgutils.for_range(b, args["blocks"]) as block:
            self.beside(v, self.s, args, group.index, block.index)
            parts = max(1, 8 // ROWS)  # of a row's exponents: eight registers of maxima at once
            whole = self.exponents(group.index, block.index, self.scratch)
            for h in range(0, whole.parts, parts):
                places = (v.at(p, self.sums.width * h) for p in (whole.b, whole.to))
                b_at, to = places
                self.all_maxima(Exponents(ROWS, min(parts, whole.parts), whole.a, b_at, to))
            with cgutils.for_range(b, v.int(self.passes)) as inner:
                column = b.mul(inner.index, v.int(self.columns))
                self.one(self.at(group.index, block.index, column, self.scratch))

    def one(self, at: Tile) -> None:
        """A register tile from its accumulators to its results."""
        sums, begun, e, outside = self.sums, {}, {}, None
        for chunk in sums.tile:
            e[chunk], low = sums.begin(at, chunk)
            begun[chunk] = sums.starts(e[chunk], low)
        for k in range(self.s.block):
            sums.multiply(begun, at, k)
        for chunk in sums.tile:
            raw = sums.total(begun[chunk])
            if self.s.long_block:
                outside = sums.outside(outside, begun[chunk])
            sums.finish(at, chunk, e[chunk], raw)
        if self.s.long_block:
            sums.notice(outside)


class Mixed(Schedule):
    """A stream of multiply-adds with the bookkeeping of neighbours mixed in, for processors of many registers.

    While register tile t is summed, exponent maxima of the step after next, the start values of tile t + 1 and (of f64
    elements) the rounding of tile t - 1 are computed between its multiply-adds; one after the other they cost a tenth
    more.  All register tiles of a step are unrolled.
    """

    def __init__(self, v: VectorBuilder, shape: Shape, args: dict[str, Any], beside: Beside) -> None:
        super().__init__(v, shape, args, beside)
        n = self.sums.width * len(self.sums.tile)
        self.steps = v.b.mul(args["groups"], args["blocks"])
        self.o_start = 2 * ROWS * self.sums.exponent_row
        self.o_saved = self.o_start + n
        self.o_raw = self.o_saved + 2 * n
        self.o_dump = self.o_raw + n

    @property
    def deferred(self) -> bool:
        """True where a sum waits in memory: f32 tiles rounded to f32 at once save a store, others lack registers."""
        return self.s.wide or self.s.half

    def clamp(self, step: Any) -> Any:
        """The last step stands in for those after it (its values are not used)."""
        b = self.b
        return b.select(b.icmp_unsigned("<", step, self.steps), step, b.sub(self.steps, self.v.int(1)))

    def split(self, step: Any) -> tuple[Any, Any]:
        """(block of products, row tile) of a step."""
        b, blocks = self.b, self.args["blocks"]
        group = b.udiv(step, blocks)
        return group, b.sub(step, b.mul(group, blocks))

    def maxima(self, step: Any) -> Any:
        """Where the exponent maxima of a step are kept (two buffers)."""
        b, v = self.b, self.v
        return v.at(self.scratch, b.mul(b.and_(step, v.int(1)), v.int(ROWS * self.sums.exponent_row)))

    def saved(self, step: Any, part: int) -> Any:
        """Where the alignment exponents of a register tile wait for its rounding."""
        b, v, n = self.b, self.v, self.sums.width * len(self.sums.tile)
        if self.passes % 2 == 0:
            return v.at(self.scratch, self.o_saved + n * (part & 1))
        return v.at(self.scratch, self.o_saved, b.mul(b.and_(step, v.int(1)), v.int(n)))

    def tile(self, step: Any, part: int, maxima: Any = None) -> Tile:
        """Register tile `part` of a step."""
        place = self.maxima(step) if maxima is None else maxima
        return self.at(*self.split(step), self.v.int(part * self.columns), place)

    def begin(self, at: Tile, saved: Any, chunk: Chunk) -> None:
        """Start values of a chunk, put aside."""
        t = self.sums.width * self.sums.tile.index(chunk)
        e, low = self.sums.begin(at, chunk)
        self.sums.store(e, saved, t)
        self.sums.store(low, self.scratch, self.o_start + t)

    def finish(self, at: Tile, saved: Any, chunk: Chunk) -> None:
        """Round a chunk's sum that was put aside."""
        t = self.sums.width * self.sums.tile.index(chunk)
        raw = self.sums.load(self.scratch, self.o_raw + t)
        self.sums.finish(at, chunk, self.sums.load(saved, t), raw)

    def warm_up(self) -> None:
        """Maxima of two steps, start values of the first tile; and before it a tile to be rounded for nothing."""
        v, sums, zero = self.v, self.sums, self.v.int(0)
        for i in (0, 1):
            step = self.clamp(v.int(i))
            self.all_maxima(self.exponents(*self.split(step), self.maxima(v.int(i))))
        start = sums.ends.c(BIAS if self.s.full_range else BIAS << 23)
        idle = sums.ends.magic(start) if not self.s.wide else sums.ends.c(SIGN if self.s.long_block else 0)
        n = sums.width * len(sums.tile)
        for t in range(0, n, sums.width):
            for i in (0, 1):
                sums.store(start, self.scratch, self.o_saved + i * n + t)
            sums.store(idle, self.scratch, self.o_raw + t)
        for chunk in sums.tile:
            self.begin(self.tile(zero, 0), self.saved(zero, 0), chunk)

    def body(self, step: Any) -> None:
        """All register tiles of one step."""
        v, b, s, sums = self.v, self.b, self.s, self.sums
        one = v.int(1)
        first, last = b.icmp_unsigned("==", step, v.int(0)), b.sub(step, one)
        before = self.tile(b.select(first, step, last), self.passes - 1)
        before = before._replace(acc=b.select(first, v.at(self.scratch, self.o_dump), before.acc))
        following = b.add(step, one)
        after = self.tile(self.clamp(following), 0, self.maxima(following))
        tiles = [before, *(self.tile(step, part) for part in range(self.passes)), after]
        saved = [self.saved(last, self.passes - 1), *(self.saved(step, p) for p in range(self.passes))]
        saved.append(self.saved(following, 0))
        ahead = self.exponents(*self.split(self.clamp(b.add(step, v.int(2)))), self.maxima(step))
        best, folded, done = sums.no_maxima(ahead), 0, 0
        for part in range(1, self.passes + 1):
            work, queued = self.neighbours(tiles, saved, part), 0
            current = self.starts(saved[part])
            for k in range(s.block):
                sums.multiply(current, tiles[part], k)
                done += 1
                while queued < len(work) * (k + 1) // s.block:
                    work[queued]()
                    queued += 1
                if folded < s.block * done // (self.passes * s.block):
                    best, folded = self.in_order(sums.fold_exponents(best, ahead, folded)), folded + 1
            self.put_aside(current, tiles[part], saved[part])
        sums.keep_maxima(best, ahead)

    def in_order(self, best: list[list[Any]]) -> list[list[Any]]:
        """Maxima, where registers are scarce made here: the compiler would take a step's at its end, and spill terms.

        Of 32 products it stored and loaded 113 registers a step, which cost a fifth; of 16 with the rounding to f16 62.
        Others stay in registers, and are better left to its order.
        """
        if not (self.s.long_block or (self.s.wide and self.s.half)):
            return best
        flat = lowering(self.v).in_order([x for parts in best for x in parts])
        return [[flat.pop(0) for _ in parts] for parts in best]

    def neighbours(self, tiles: list[Tile], saved: list[Any], part: int) -> list[Any]:
        """Rounding of the tile before and start values of the tile after, chunk by chunk."""

        def one(chunk: Chunk) -> Any:
            def run() -> None:
                if self.deferred:
                    self.finish(tiles[part - 1], saved[part - 1], chunk)
                self.begin(tiles[part + 1], saved[part + 1], chunk)

            return run

        return [one(chunk) for chunk in self.sums.tile]

    def starts(self, saved: Any) -> dict[Chunk, list[Any]]:
        """Accumulators of a tile.  M is made here, not stored: a 64-byte store costs more than making it."""
        sums, out = self.sums, {}
        for i, chunk in enumerate(sums.tile):
            t = sums.width * i
            out[chunk] = sums.starts(sums.load(saved, t), sums.load(self.scratch, self.o_start + t))
        return out

    def put_aside(self, current: dict[Chunk, list[Any]], at: Tile, saved: Any) -> None:
        """A register tile's sums, to be rounded in the course of the next (or at once)."""
        sums, outside = self.sums, None
        for i, chunk in enumerate(sums.tile):
            raw, t = sums.total(current[chunk]), sums.width * i
            if self.s.long_block:
                outside = sums.outside(outside, current[chunk])
            if self.deferred:
                sums.store(raw, self.scratch, self.o_raw + t)
            else:
                sums.finish(at, chunk, sums.load(saved, t), raw)
        if self.s.long_block:
            sums.notice(outside)

    def emit(self) -> None:
        v, b, args = self.v, self.b, self.args
        self.warm_up()
        with cgutils.for_range(b, self.steps) as loop:
            self.beside(v, self.s, args, *self.split(loop.index))
            self.body(loop.index)
        if not self.deferred:
            return
        last = b.sub(self.steps, v.int(1))
        for chunk in self.sums.tile:
            self.finish(self.tile(last, self.passes - 1), self.saved(last, self.passes - 1), chunk)
