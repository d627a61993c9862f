"""Accumulators between a warpgroup's registers and the turned tile of a fused micro-kernel.

The tile is D transposed: one row for each of the N columns, 64 places for the rows of D, sixteen a warp in the order
`gather.LANE`.  In that order one shuffle of two vectors turns four threads' registers into two tile rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from nbtc.compiler.builder import F32, I16, I32, I64, VectorBuilder, vector
from nbtc.compiler.cpu.lowering import lowering
from nbtc.compiler.machine_code.emitted import Named
from nbtc.ops.wgmma.gather import LANE, PANEL, ROW
from nbtc.ops.wgmma.parts import part

OF_F32, OF_F16, OF_S32 = 0, 1, 2  # accumulators; s32 are moved as they are
LINE = 4 * PANEL  # bytes of a tile row
UNIT = 16  # bytes of a thread's registers that move together
# Words of a batch's results that are written past the caches: fewer stay there for who reads them.  Of m64n256, 16
# warpgroups, that takes s8 24 instead of 17 microseconds each (Zen 3).
PAST_CACHES = 1 << 18
IV, FV, HALVES = vector(I32, 16), vector(F32, 16), vector(I16, 32)
# Two f32 columns (p) of eight columns: a unit is [h][p], the places of sixteen rows are [q][a][h] of thread 4 a + q.
SPLIT = [[16 * (n // 2 % 2) + 4 * (n // 4) + 2 * (n % 2) + p for n in range(16)] for p in (0, 1)]
JOIN = [[16 * (n % 2) + 4 * (n // 4) + 2 * a + n // 2 % 2 for n in range(16)] for a in (0, 1)]
# f16: a unit is [s][h][p] of sixteen columns, s their halves; both columns of a half move as one vector.
F16_SPLIT = [[8 * (ROW[n] % 8) + 4 * s + 2 * (ROW[n] // 8) + p for p in (0, 1) for n in range(16)] for s in (0, 1)]
F16_JOIN = [
    [32 * s + 16 * p + LANE[8 * h + 4 * a + q] for q in range(4) for s in (0, 1) for h in (0, 1) for p in (0, 1)]
    for a in (0, 1)
]


def fetch(v: VectorBuilder, p: Any, block: Any, f16: bool) -> None:
    """Ask for the memory that a block of four columns takes of the accumulators at p, to be read soon."""
    lines = 8 if f16 else 16
    first = v.at(p, v.b.mul(block, v.int(64 * lines)))
    for n in range(lines):
        v.prefetch(first, 64 * n)


class _Mover(ABC):
    """Walks over the eight threads (`g`) that hold two neighbouring columns of every eight, of one warp."""

    def __init__(self, v: VectorBuilder, kind: int, words: Any, tile: Any, n: Any, scale: Any) -> None:
        self.v, self.b, self.f16, self.plain, self.tile = v, v.b, kind == OF_F16, kind == OF_S32, tile
        self.m = lowering(v)
        self.words, self.n, self.scale = words, n, v.splat(scale, 16)
        self.row = v.b.mul(n, v.int(1 if self.f16 else 2))  # bytes of a thread's registers
        self.columns = 16 if self.f16 else 8  # of the tile, those that a unit takes part in

    def thread(self, w: Any, t: Any, g: int, unit: Any) -> Any:
        """A unit of one thread of a warp."""
        b, v = self.b, self.v
        index = b.add(b.add(b.mul(w, v.int(32)), t), v.int(4 * g))
        return v.at(self.words, b.mul(index, self.row), b.mul(unit, v.int(UNIT)))

    def place(self, w: Any, t: Any, unit: Any) -> Any:
        """Sixteen places of the first tile row of a unit."""
        b, v = self.b, self.v
        row = b.add(b.mul(unit, v.int(self.columns)), b.mul(t, v.int(2)))
        return v.at(self.tile, b.mul(row, v.int(LINE)), b.mul(w, v.int(64)))

    def repeat(self, count: Any, body: Any) -> None:
        """body(w, t, i) for all warps, thread columns, and i below `count`."""
        v, b = self.v, self.b
        with cgutils.for_range(b, v.int(16)) as outer, cgutils.for_range(b, count) as inner:
            body(b.lshr(outer.index, v.int(2)), b.and_(outer.index, v.int(3)), inner.index)

    @abstractmethod
    def emit(self, lines: Any) -> Any:
        """Move everything."""

    def units(self) -> Any:
        """Whole units of a thread."""
        return self.b.udiv(self.n, self.v.int(self.columns))

    def last(self, body: Any) -> None:
        """body(w, t, unit) for the half a unit that an odd number of eight f16 columns leaves."""
        v, b = self.v, self.b
        if self.f16:
            odd = b.icmp_unsigned("!=", b.and_(self.n, v.int(8)), v.int(0))
            with b.if_then(odd), cgutils.for_range(b, v.int(16)) as outer:
                body(b.lshr(outer.index, v.int(2)), b.and_(outer.index, v.int(3)), self.units())


class _Loader(_Mover):
    def emit(self, lines: Any) -> Any:
        """Smallest magnitude but zero (less one), and the largest, of f32 bits without their sign, in 64 bits."""
        v, b = self.v, self.b
        self.least, self.most = (cgutils.alloca_once(b, IV) for _ in range(2))
        b.store(v.const(IV, -1), self.least)
        b.store(v.const(IV, 0), self.most)
        self.repeat(self.units(), self.whole)
        self.last(self.part)
        low = v.call("llvm.vector.reduce.umin.v16i32", I32, b.load(self.least))
        high = v.call("llvm.vector.reduce.umax.v16i32", I32, b.load(self.most))
        return b.or_(b.zext(low, I64), b.shl(b.zext(high, I64), v.int(32)))

    def put(self, to: Any, x: Any) -> None:
        """Sixteen f32 (or integers) into the tile."""
        v, b = self.v, self.b
        if self.plain:
            v.store(x, to, 64)
            return
        size = b.shl(v.bits(x, IV), v.const(IV, 1))
        b.store(v.umin(b.load(self.least), b.sub(size, v.const(IV, 1))), self.least)
        b.store(v.umax(b.load(self.most), size), self.most)
        v.store(b.fmul(x, self.scale), to, 64)

    def joined(self, w: Any, t: Any, unit: Any, threads: range, piece: ir.Type) -> Any:
        """The units of some threads, one after the other."""
        return self.v.joined([self.v.load(self.thread(w, t, g, unit), piece) for g in threads])

    def whole(self, w: Any, t: Any, unit: Any) -> None:
        v, to = self.v, self.place(w, t, unit)
        piece = vector(I16, 8) if self.f16 else vector(F32, 4)
        low, high = (self.joined(w, t, unit, r, piece) for r in (range(4), range(4, 8)))
        if self.f16:
            for s in (0, 1):
                self.widened(v.at(to, 8 * s * LINE), v.shuffle(low, high, F16_SPLIT[s]))
        else:
            for p in (0, 1):
                self.put(v.at(to, p * LINE), v.shuffle(low, high, SPLIT[p]))

    def widened(self, to: Any, both: Any) -> None:
        """Two columns of f16."""
        v = self.v
        x = self.m.from_f16(v.bits(both, HALVES))
        for p in (0, 1):
            self.put(v.at(to, p * LINE), v.shuffle(x, x, list(range(16 * p, 16 * p + 16))))

    def part(self, w: Any, t: Any, unit: Any) -> None:
        x = self.joined(w, t, unit, range(8), vector(I16, 4))
        lanes = [n // 8 * 4 + n % 4 for n in F16_SPLIT[0]]
        self.widened(self.place(w, t, unit), self.v.shuffle(x, x, lanes))


class _Storer(_Mover):
    def emit(self, lines: Any) -> None:
        """lines: registers lie on 64-byte boundaries, so that whole cache lines can be written past the caches."""
        v, b = self.v, self.b
        with b.if_else(lines) as (then, otherwise):
            with then:
                self.repeat(b.udiv(self.n, v.int(4 * self.columns)), self.lines)
            with otherwise:
                self.repeat(self.units(), self.whole)
                self.last(self.part)

    def take(self, p: Any) -> Any:
        """Sixteen f32 (or integers) of the tile."""
        x = self.v.load(p, FV, 64)
        return x if self.plain else self.b.fmul(x, self.scale)

    def narrowed(self, p: Any) -> Any:
        """Two columns as f16."""
        v = self.v
        x = v.shuffle(self.take(p), self.take(v.at(p, LINE)), list(range(32)))
        return self.m.to_f16(x)

    def joined(self, w: Any, t: Any, unit: Any) -> list[Any]:
        """A unit of threads 0..3 and one of threads 4..7, as words."""
        v, at = self.v, self.place(w, t, unit)
        if self.f16:
            low, high = self.narrowed(at), self.narrowed(v.at(at, 8 * LINE))
            return [v.bits(v.shuffle(low, high, lanes), IV) for lanes in F16_JOIN]
        low, high = self.take(at), self.take(v.at(at, LINE))
        return [v.bits(v.shuffle(low, high, lanes), IV) for lanes in JOIN]

    def whole(self, w: Any, t: Any, unit: Any) -> None:
        for a, x in enumerate(self.joined(w, t, unit)):
            for q in range(4):
                part = self.v.shuffle(x, x, list(range(4 * q, 4 * q + 4)))
                self.v.store(part, self.thread(w, t, 4 * a + q, unit))

    def part(self, w: Any, t: Any, unit: Any) -> None:
        v, b = self.v, self.b
        low = self.narrowed(self.place(w, t, unit))
        for a, lanes in enumerate(F16_JOIN):
            x = v.bits(v.shuffle(low, low, lanes), vector(I64, 8))
            for q in range(4):
                v.store(b.extract_element(x, v.const(I32, 2 * q)), self.thread(w, t, 4 * a + q, unit))

    def lines(self, w: Any, t: Any, four: Any) -> None:
        """Four units of eight threads: four by four pieces, turned."""
        v, b = self.v, self.b
        first = b.mul(four, v.int(4))
        steps = [self.joined(w, t, b.add(first, v.int(n))) for n in range(4)]
        for a in (0, 1):
            x = [s[a] for s in steps]
            turned = [self.pieces(x[low], x[low + 1], (q, q + 2)) for low in (0, 2) for q in (0, 1)]
            for q in range(4):
                y = self.pieces(turned[q % 2], turned[2 + q % 2], (q // 2, q // 2 + 2))
                self.past_caches(y, self.thread(w, t, 4 * a + q, first))

    def pieces(self, x: Any, y: Any, which: tuple[int, int]) -> Any:
        """Two quarters of x, then the same two of y."""
        return self.v.shuffle(x, y, [16 * side + 4 * q + i for side in (0, 1) for q in which for i in range(4)])

    def past_caches(self, x: Any, p: Any) -> None:
        """A cache line that nobody reads soon."""
        to = self.b.store(x, self.b.bitcast(p, x.type.as_pointer()))
        to.align = 64
        to.set_metadata("nontemporal", self.b.module.add_metadata([ir.Constant(I32, 1)]))


class Moving(NamedTuple):
    """A register image from words[first] on, and a tile with n rows; `scale` multiplies what is moved.

    lines: not 0 if registers lie on 64-byte boundaries (of storing).
    """

    words: Any
    first: int
    tile: Any
    n: int
    scale: np.float32
    lines: int


@cache
def _mover(kind: type[_Mover], accumulator: int) -> int:
    def write(v: VectorBuilder, given: Named) -> Any:
        b, image = v.b, v.at(given["words"], v.b.mul(given["first"], v.int(4)))
        mover = kind(v, accumulator, image, given["tile"], given["n"], b.fptrunc(given["scale"], F32))
        return mover.emit(b.icmp_unsigned("!=", given["lines"], v.int(0)))

    return part(__file__, Moving, write, kind.__name__, accumulator)


def loader(accumulator: int) -> int:
    """The address of what loads a tile, a `Moving`; it gives magnitudes as `_Loader.emit` says."""
    return _mover(_Loader, accumulator)


def storer(accumulator: int) -> int:
    """The address of what stores a tile, a `Moving`."""
    return _mover(_Storer, accumulator)
