"""Two orders of a fused sum's pieces over a panel: 64 columns, up to 64 rows, blocks of products one after the other.

A step is four rows and one block of products; rows run fastest, so that B stays in the first-level cache.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from numba.core import cgutils

from nbtc.compiler.builder import LINE, VectorBuilder
from nbtc.compiler.cpu.lowering import lowering
from nbtc.kernels.panels.alignment_and_rounding import SumShape
from nbtc.kernels.panels.fused_sum import PANEL, ROWS, Chunk, Exponents, Signs, SumTile
from nbtc.kernels.panels.sum_by_turns import fused_sum

FLAG_WORD = 3072  # where in the scratch memory the flags of `FusedSum` are
NUMBERS = ("floor", "least", "scale", "reference")
# emits what else is done at every step: (builder, shape, arguments, block of products, row tile)
Interleaved = Callable[[VectorBuilder, SumShape, dict[str, Any], Any, Any], None]


class Schedule(ABC):
    """What both schedules share: where the operands of a step are."""

    def __init__(self, v: VectorBuilder, shape: SumShape, args: dict[str, Any], interleaved: Interleaved) -> None:
        self.v, self.b, self.s, self.args, self.interleaved = v, v.b, shape, args, interleaved
        self.scratch = args["scratch"]
        self.sums = fused_sum(v, shape, {x: args[x] for x in NUMBERS}, v.at(self.scratch, 4 * FLAG_WORD))
        self.columns = self.sums.lanes * self.sums.chunks  # of a register tile
        self.o_counts = ROWS * self.sums.exponent_row  # counts of negative products lie after a step's maxima
        self.kept = self.o_counts + (ROWS * PANEL if shape.counted else 0)
        self.passes = PANEL // self.columns

    def at(self, group: Any, block: Any, column: Any, maxima: Any, chunk: int = 0) -> SumTile:
        """A register tile, from a column on."""
        v, b, a, s, size = self.v, self.b, self.args, self.s, self.sums.size
        step = b.add(b.mul(group, a["blocks"]), block)
        deep, words = b.mul(group, v.int(PANEL)), b.mul(column, v.int(4))
        return SumTile(
            v.at(a["a"], b.mul(step, v.int(ROWS * s.block * size))),
            v.at(a["sa"], b.mul(step, v.int(4 * ROWS))),
            v.at(a["b"], b.mul(deep, v.int(size * s.block)), b.mul(column, v.int(size))),
            v.at(a["sb"], b.mul(deep, v.int(s.sign_bytes)), b.mul(column, v.int(s.sign_bytes))),
            v.at(a["tile"], b.mul(block, v.int(4 * PANEL * ROWS)), words),
            *self.sums.places(maxima, self.o_counts, column),
            chunk,
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

    def count(self, group: Any, block: Any, maxima: Any) -> None:
        """Negative products of a step, where they are counted together."""
        v, b, a = self.v, self.b, self.args
        if self.s.counted:
            step = b.add(b.mul(group, a["blocks"]), block)
            mine = v.at(a["sa"], b.mul(step, v.int(4 * ROWS)))
            theirs = v.at(a["sb"], b.mul(group, v.int(PANEL * self.s.sign_bytes)))
            self.sums.count(Signs(mine, theirs, v.at(maxima, self.o_counts)))

    def all_maxima(self, which: Exponents) -> None:
        """Exponent maxima of a step, made and kept."""
        best = self.sums.no_maxima(which)
        for k in range(self.s.block):
            best = self.sums.fold_exponents(best, which, k)
            if self.s.target.x86 and not self.s.target.mixed:
                best = self.in_order(best)
        self.sums.keep_maxima(best, which)

    def in_order(self, best: list[list[Any]]) -> list[list[Any]]:
        """Maxima made here: the compiler would take a step's at its end, and spill terms.

        Of 32 products it stored and loaded 113 registers a step, which cost a fifth; of 8 products 20.  With sixteen
        registers it stored 32 of 16 products.
        """
        flat = lowering(self.v).in_order([x for parts in best for x in parts])
        return [[flat.pop(0) for _ in parts] for parts in best]

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
            self.interleaved(v, self.s, args, group.index, block.index)
            parts = max(1, 8 // ROWS)  # of a row's exponents: eight registers of maxima at once
            whole = self.exponents(group.index, block.index, self.scratch)
            for h in range(0, whole.parts, parts):
                places = (v.at(p, self.sums.width * h) for p in (whole.b, whole.to))
                b_at, to = places
                self.all_maxima(Exponents(ROWS, min(parts, whole.parts), whole.a, b_at, to))
            self.count(group.index, block.index, self.scratch)
            with cgutils.for_range(b, v.int(self.passes)) as inner:
                column = b.mul(inner.index, v.int(self.columns))
                self.one(self.at(group.index, block.index, column, self.scratch))

    def one(self, at: SumTile) -> None:
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

    While register tile t is summed, exponent maxima of the step after next and the start values of tile t + 1 are
    computed between its multiply-adds; one after the other they cost a tenth more.  Its sums are rounded at its end:
    what waits in memory costs a store, and on Zen 4 stores of vectors and multiply-adds share a way to the registers (4
    stores beside 16 of them take 22 cycles instead of 16).  All register tiles of a step are unrolled.
    """

    def __init__(self, v: VectorBuilder, shape: SumShape, args: dict[str, Any], interleaved: Interleaved) -> None:
        super().__init__(v, shape, args, interleaved)
        n = self.sums.width * len(self.sums.tile)
        self.steps = v.b.mul(args["groups"], args["blocks"])
        self.o_start = LINE + 2 * self.kept  # loads of maxima may begin before them (`ByTurns`)
        self.o_saved = self.o_start + n

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
        return v.at(self.scratch, LINE, b.mul(b.and_(step, v.int(1)), v.int(self.kept)))

    def saved(self, step: Any, part: int) -> Any:
        """Where the alignment exponents of a register tile wait for its rounding (two buffers)."""
        b, v, n = self.b, self.v, self.sums.width * len(self.sums.tile)
        if self.passes % 2 == 0:
            return v.at(self.scratch, self.o_saved + n * (part & 1))
        return v.at(self.scratch, self.o_saved, b.mul(b.and_(step, v.int(1)), v.int(n)))

    def tile(self, step: Any, part: int, maxima: Any = None) -> SumTile:
        """Register tile `part` of a step."""
        place = self.maxima(step) if maxima is None else maxima
        return self.at(*self.split(step), self.v.int(part * self.columns), place, part * self.sums.chunks)

    def begin(self, at: SumTile, saved: Any, chunk: Chunk) -> None:
        """Start values of a chunk, put aside."""
        t = self.sums.width * self.sums.tile.index(chunk)
        e, low = self.sums.begin(at, chunk)
        if self.sums.keeps_units:
            self.sums.store(e, saved, t)
        self.sums.store(low, self.scratch, self.o_start + t)

    def warm_up(self) -> None:
        """Maxima of two steps, start values of the first tile."""
        v, zero = self.v, self.v.int(0)
        for i in (0, 1):
            step = self.clamp(v.int(i))
            places = *self.split(step), self.maxima(v.int(i))
            self.all_maxima(self.exponents(*places))
            self.count(*places)
        for chunk in self.sums.tile:
            self.begin(self.tile(zero, 0), self.saved(zero, 0), chunk)

    def body(self, step: Any) -> None:
        """All register tiles of one step."""
        v, b, s, sums = self.v, self.b, self.s, self.sums
        following = b.add(step, v.int(1))
        tiles = [self.tile(step, part) for part in range(self.passes)]
        tiles.append(self.tile(self.clamp(following), 0, self.maxima(following)))
        saved = [*(self.saved(step, part) for part in range(self.passes)), self.saved(following, 0)]
        places = *self.split(self.clamp(b.add(step, v.int(2)))), self.maxima(step)
        ahead = self.exponents(*places)
        best, folded, done = sums.no_maxima(ahead), 0, 0
        for part in range(self.passes):
            begun, current = 0, self.starts(saved[part])
            for k in range(s.block):
                sums.multiply(current, tiles[part], k)
                done += 1
                while begun < len(sums.tile) * (k + 1) // s.block:
                    self.begin(tiles[part + 1], saved[part + 1], sums.tile[begun])
                    begun += 1
                if folded < s.block * done // (self.passes * s.block):
                    best, folded = self.in_order(sums.fold_exponents(best, ahead, folded)), folded + 1
            self.finish(current, tiles[part], saved[part])
        sums.keep_maxima(best, ahead)
        self.count(*places)

    def starts(self, saved: Any) -> dict[Chunk, list[Any]]:
        """Accumulators of a tile.  M is made here, not stored: a 64-byte store costs more than making it."""
        sums, out = self.sums, {}
        for i, chunk in enumerate(sums.tile):
            t = sums.width * i
            out[chunk] = sums.starts(sums.load(saved, t), sums.load(self.scratch, self.o_start + t))
        return out

    def finish(self, current: dict[Chunk, list[Any]], at: SumTile, saved: Any) -> None:
        """Round a register tile's sums."""
        sums, outside = self.sums, None
        current = sums.together(current)
        for i, chunk in enumerate(sums.tile):
            if self.s.long_block:
                outside = sums.outside(outside, current[chunk])
            sums.finish(at, chunk, sums.load(saved, sums.width * i), sums.total(current[chunk]))
        if self.s.long_block:
            sums.notice(outside)

    def emit(self) -> None:
        v, b, args = self.v, self.b, self.args
        self.warm_up()
        with cgutils.for_range(b, self.steps) as loop:
            self.interleaved(v, self.s, args, *self.split(loop.index))
            self.body(loop.index)
