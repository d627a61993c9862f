"""Accumulators between a warpgroup's registers and the turned tile of a fused micro-kernel.

The tile is D transposed: one row for each of the N columns, 64 places for the rows of D, sixteen a warp in the order
`warpgroup_gather.LANE`.  In that order one shuffle of two vectors turns four threads' registers into two tile rows.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from nbtc._vir import F16, F32, I16, I32, I64, Vir, vector
from nbtc.ops.warpgroup_gather import PANEL, ROW

LINE = 4 * PANEL  # bytes of a tile row
IV, FV, HV = vector(I32, 16), vector(F32, 16), vector(F16, 16)
SPLIT = [[16 * (n // 2 % 2) + 4 * (n // 4) + 2 * (n % 2) + p for n in range(16)] for p in (0, 1)]
JOIN = [[16 * (n % 2) + 4 * (n // 4) + 2 * a + n // 2 % 2 for n in range(16)] for a in (0, 1)]
HALF_SPLIT = [[4 * (ROW[n] % 8) + 2 * (ROW[n] // 8) + p for n in range(16)] for p in (0, 1)]
HALF_JOIN = [HALF_SPLIT[n % 2].index(n) + 16 * (n % 2) for n in range(32)]


class _Mover:
    """Walks over the eight threads (`g`) that hold two neighbouring columns of a warp, eight columns a step (`j`)."""

    def __init__(self, v: Vir, half: bool, words: Any, tile: Any, n: Any, scale: Any) -> None:
        self.v, self.b, self.half, self.tile = v, v.b, half, tile
        self.words, self.n, self.scale = words, n, v.splat(scale, 16)
        self.row = v.b.mul(n, v.int(1 if half else 2))  # bytes of a thread's registers
        self.step = 8 if half else 16  # of them, those of a step

    def thread(self, w: Any, t: Any, g: int, j: Any) -> Any:
        """Registers of one thread of a warp that hold columns 8 j .. 8 j + 7."""
        b, v = self.b, self.v
        index = b.add(b.add(b.mul(w, v.int(32)), t), v.int(4 * g))
        return v.at(self.words, b.mul(index, self.row), b.mul(j, v.int(self.step)))

    def place(self, w: Any, t: Any, j: Any) -> Any:
        """Sixteen places of the first of the two tile rows."""
        b, v = self.b, self.v
        row = b.add(b.mul(j, v.int(8)), b.mul(t, v.int(2)))
        return v.at(self.tile, b.mul(row, v.int(LINE)), b.mul(w, v.int(64)))

    def each(self, count: Any, body: Any) -> None:
        """body(w, t, j) for all warps, thread columns, and `count` steps."""
        v, b = self.v, self.b
        with cgutils.for_range(b, v.int(16)) as outer, cgutils.for_range(b, count) as inner:
            body(b.lshr(outer.index, v.int(2)), b.and_(outer.index, v.int(3)), inner.index)


class _Loader(_Mover):
    def emit(self) -> Any:
        """Smallest magnitude but zero (less one), and the largest, of f32 bits without their sign, in 64 bits."""
        v, b = self.v, self.b
        least, most = (cgutils.alloca_once(b, IV) for _ in range(2))
        b.store(v.const(IV, -1), least)
        b.store(v.const(IV, 0), most)

        def body(w: Any, t: Any, j: Any) -> None:
            to = self.place(w, t, j)
            for p, x in enumerate(self.halves(w, t, j) if self.half else self.floats(w, t, j)):
                size = b.shl(v.bits(x, IV), v.const(IV, 1))
                b.store(v.umin(b.load(least), b.sub(size, v.const(IV, 1))), least)
                b.store(v.umax(b.load(most), size), most)
                v.store(b.fmul(x, self.scale), to, 64, LINE * p)

        self.each(b.lshr(self.n, v.int(3)), body)
        low = v.call("llvm.vector.reduce.umin.v16i32", I32, b.load(least))
        high = v.call("llvm.vector.reduce.umax.v16i32", I32, b.load(most))
        return b.or_(b.zext(low, I64), b.shl(b.zext(high, I64), v.int(32)))

    def joined(self, w: Any, t: Any, j: Any, threads: range, piece: ir.Type) -> Any:
        v = self.v
        parts = [v.load(self.thread(w, t, g, j), piece) for g in threads]
        while len(parts) > 1:
            size = 2 * parts[0].type.count
            parts = [v.shuffle(x, y, list(range(size))) for x, y in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    def floats(self, w: Any, t: Any, j: Any) -> list[Any]:
        low, high = (self.joined(w, t, j, r, vector(F32, 4)) for r in (range(4), range(4, 8)))
        return [self.v.shuffle(low, high, lanes) for lanes in SPLIT]

    def halves(self, w: Any, t: Any, j: Any) -> list[Any]:
        x = self.joined(w, t, j, range(8), vector(I16, 4))
        return [self.b.fpext(self.v.bits(self.v.shuffle(x, x, lanes), HV), FV) for lanes in HALF_SPLIT]


class _Storer(_Mover):
    def emit(self, lines: Any) -> None:
        """lines: registers lie on 64-byte boundaries, so that whole cache lines can be written past the caches."""
        v, b = self.v, self.b
        if self.half:
            self.each(b.lshr(self.n, v.int(3)), self.halves)
            return
        with b.if_else(lines) as (then, otherwise):
            with then:
                self.each(b.lshr(self.n, v.int(5)), self.lines)
            with otherwise:
                self.each(b.lshr(self.n, v.int(3)), self.floats)

    def pair(self, w: Any, t: Any, j: Any) -> list[Any]:
        at = self.place(w, t, j)
        return [self.b.fmul(self.v.load(at, FV, 64, LINE * p), self.scale) for p in (0, 1)]

    def joined(self, w: Any, t: Any, j: Any) -> list[Any]:
        """Registers of threads 0..3 and 4..7, four each."""
        low, high = self.pair(w, t, j)
        return [self.v.shuffle(low, high, lanes) for lanes in JOIN]

    def floats(self, w: Any, t: Any, j: Any) -> None:
        for a, x in enumerate(self.joined(w, t, j)):
            for q in range(4):
                self.v.store(self.v.shuffle(x, x, list(range(4 * q, 4 * q + 4))), self.thread(w, t, 4 * a + q, j), 4)

    def halves(self, w: Any, t: Any, j: Any) -> None:
        v, b = self.v, self.b
        low, high = (v.bits(b.fptrunc(x, HV), vector(I16, 16)) for x in self.pair(w, t, j))
        x = v.bits(v.shuffle(low, high, HALF_JOIN), vector(I64, 8))
        for g in range(8):
            v.store(b.extract_element(x, v.const(I32, g)), self.thread(w, t, g, j), 2)

    def lines(self, w: Any, t: Any, four: Any) -> None:
        """Sixteen registers of eight threads: four by four pieces of four, turned."""
        v, b = self.v, self.b
        first = b.mul(four, v.int(4))
        steps = [self.joined(w, t, b.add(first, v.int(n))) for n in range(4)]
        for a in (0, 1):
            x = [s[a] for s in steps]
            turned = [self.pieces(x[low], x[low + 1], (q, q + 2)) for low in (0, 2) for q in (0, 1)]
            for q in range(4):
                y = self.pieces(turned[q % 2], turned[2 + q % 2], (q // 2, q // 2 + 2))
                self.whole(y, self.thread(w, t, 4 * a + q, first))

    def pieces(self, x: Any, y: Any, which: tuple[int, int]) -> Any:
        """Two quarters of x, then the same two of y."""
        return self.v.shuffle(x, y, [16 * side + 4 * q + i for side in (0, 1) for q in which for i in range(4)])

    def whole(self, x: Any, p: Any) -> None:
        """A cache line that nobody reads soon."""
        to = self.b.store(x, self.b.bitcast(p, x.type.as_pointer()))
        to.align = 64
        to.set_metadata("nontemporal", self.b.module.add_metadata([ir.Constant(I32, 1)]))


def _mover(kind: type[_Mover], result: Any) -> Any:
    @intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator, unused-ignore]
    def move(typing, half, words, first, tile, n, scale, lines):
        """Register image from words[first] on, and a tile with n rows; `scale` multiplies what is moved."""
        if not isinstance(half, types.IntegerLiteral):
            return None

        def codegen(context, builder, sig, args):
            v = Vir(context, builder)
            image = v.at(v.pointer(words, args[1]), builder.mul(args[2], v.int(4)))
            mover = kind(v, bool(half.literal_value), image, v.pointer(tile, args[3]), args[4], args[5])
            if kind is _Loader:
                return mover.emit()
            mover.emit(args[6])
            return context.get_dummy_value()

        i = types.int64
        return result(half, words, i, tile, i, types.float32, types.boolean), codegen

    return move


load, store = _mover(_Loader, types.int64), _mover(_Storer, types.void)
