"""Register-tiled products of words: int8 (four or two a word), bits (32 a word), f64; rows of A are packed on the way.

Some rows by some vectors of accumulators stay in registers while k runs; a word of A is broadcast against the vectors
of B.  A `Target` says how many fit, and an operation is the few instructions that add one product.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from nbtc.compiler.builder import F64, I32, VectorBuilder, vector
from nbtc.compiler.host import features
from nbtc.compiler.jit import jit
from nbtc.compiler.loops import Values, repeated
from nbtc.compiler.processors import GENERIC, Processor, host_processor
from nbtc.kernels.dot import Bits, ByteBits, Dot, Elements, Octets, Pairs
from nbtc.kernels.words_pack import per_unit, row_words

BLOCK = 96  # rows packed at a time: a multiple of the rows of every tile
# operations, as numbered in the literal argument of the intrinsic: bytes four to a word, in pairs of 16 bits, bits, f64
DOT, PAIRS, XOR, AND, FMA = range(5)
ROUND = {"rn": 0, "rz": 11, "rm": 9, "rp": 10}  # embedded rounding (AVX-512); 0: the ordinary fma


def target() -> Processor:
    """The row of this machine; generic vectors where none serves."""
    return host_processor() or GENERIC


def dot_of_bytes() -> int:
    """How this machine multiplies bytes: by VPDPBUSD, else as pairs of 16-bit integers, which never saturate."""
    return DOT if target().mixed and "avx512vnni" in features() else PAIRS


class Tile(NamedTuple):
    """A register tile: rows, vectors a row, and what the vectors hold."""

    rows: int
    vectors: int
    element: ir.Type
    lanes: int

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return 8 if self.element == F64 else 4

    @property
    def width(self) -> int:
        """Columns of a tile, which is what a panel has."""
        return self.vectors * self.lanes

    @property
    def type(self) -> ir.VectorType:
        """A vector."""
        return vector(self.element, self.lanes)


def tile_of(op: int) -> Tile:
    """The tile of an operation here: accumulators, vectors of B and a broadcast fill the registers.

    Counting bits by a table takes two more.
    """
    t = target()
    rows, vectors = 4 if op in (XOR, AND) and t.lookup else 6, 4 if t.sums > 8 else 2
    return Tile(rows, vectors, F64, t.lanes // 2) if op == FMA else Tile(rows, vectors, I32, t.lanes)


def _products(v: VectorBuilder, op: int) -> Dot:
    """How products of words are summed, of all operations but f64's."""
    way = {DOT: Octets, PAIRS: Pairs}.get(op) or (ByteBits if target().lookup else Bits)
    return way(v, Elements(1 if op in (XOR, AND) else 8, a_signed=True, both=op == AND))


class Flat(NamedTuple):
    """A place in flat memory: an array and an element of it."""

    x: Any
    at: Any


class Packed(NamedTuple):
    """Packed panels of B, [panel][k][width], and the columns' corrections."""

    words: Any
    across: Any


class RowBuffer(NamedTuple):
    """A thread's memory: for `BLOCK` packed rows of A, one register tile, and the rows' corrections."""

    a: Any
    tile: Any
    down: Any


class _Emitter:
    """Writes the loop over words of one tile."""

    def __init__(self, v: VectorBuilder, op: int, rounding: int, places: list[Any], ld: Any) -> None:
        self.v, self.b, self.op, self.rounding = v, v.b, op, rounding
        self.a, self.columns, self.d, self.down, self.across = places
        self.ld, self.tile = ld, tile_of(op)
        self.keys = [(r, j) for r in range(self.tile.rows) for j in range(self.tile.vectors)]
        self.bytes = target().bytes
        self.dot = _products(v, op) if op != FMA else None

    def place(self, key: tuple[int, int]) -> Any:
        """Where a vector of D is."""
        r, j = key
        return self.v.at(self.d, self.b.mul(self.ld, self.v.int(self.tile.size * r)), self.bytes * j)

    def correction(self, key: tuple[int, int]) -> Any:
        """A row's and a column's corrections."""
        v, (r, j), t = self.v, key, self.tile.type
        row = v.splat(v.load(self.down, I32, 4, 4 * r), self.tile.lanes)
        return self.b.add(row, v.load(self.across, t, 4, self.bytes * j))

    def words(self, first: Any, last: Any, start: Values) -> Values:
        """Sums from `start` over words first..last, at least one."""
        v, b, tile = self.v, self.b, self.tile

        def word(k: Any, sums: Values) -> Values:
            row = v.at(self.a, b.mul(k, v.int(tile.size * tile.rows)))
            column = v.at(self.columns, b.mul(k, v.int(self.bytes * tile.vectors)))
            bs = [v.load(column, tile.type, tile.size, self.bytes * j) for j in range(tile.vectors)]
            new = {}
            for r in range(tile.rows):
                x = v.splat(v.load(row, tile.element, tile.size, tile.size * r), tile.lanes)
                for j, y in enumerate(bs):
                    new[r, j] = self.step(sums[r, j], x, y)
            return new

        return repeated(v, first, last, 1, start, word)

    def step(self, total: Any, x: Any, y: Any) -> Any:
        """total + the product of words of A and B."""
        if self.dot is not None:
            return self.dot.step(total, x, y)
        return self.v.fma512(x, y, total, self.rounding) if self.rounding else self.v.fma(x, y, total)

    def emit(self, depth: Any) -> None:
        """D += A * B."""
        v, tile = self.v, self.tile
        start = {x: v.load(self.place(x), tile.type, tile.size) for x in self.keys}
        if self.op == DOT:
            start = {x: self.b.add(y, self.correction(x)) for x, y in start.items()}
        for x, y in self.words(v.int(0), depth, start).items():
            v.store(y, self.place(x), tile.size)

    def emit_counted(self, depth: Any, dot: ByteBits) -> None:
        """The same where bytes count bits: their counts are added up before they can overflow."""
        v, b, tile = self.v, self.b, self.tile
        none = dict.fromkeys(self.keys, dot.zero(tile.type))

        def stretch(k: Any, values: Values) -> Values:
            following = b.add(k, v.int(dot.steps))
            last = b.select(b.icmp_signed("<", following, depth), following, depth)
            for x, y in self.words(k, last, none).items():
                total = b.add(v.load(self.place(x), tile.type, tile.size), dot.total(y))
                v.store(total, self.place(x), tile.size)
            return values

        repeated(v, v.int(0), depth, dot.steps, {}, stretch)


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator, unused-ignore]
def _tile(typing, op, rounding, a, b, d, ld, depth, down, across):
    """A tile of d, rows ld apart, += A * B over `depth` words; a: [k][rows], b: [k][vectors], places in flat arrays.

    DOT: down[row] and across[column] are added too.
    """
    if not all(isinstance(x, types.IntegerLiteral) for x in (op, rounding)):
        return None
    kind, mode = op.literal_value, rounding.literal_value

    def codegen(context, builder, sig, args):
        v, size, places = VectorBuilder(context, builder), tile_of(kind).size, []
        for i, width in ((2, size), (3, size), (4, size), (7, 4), (8, 4)):
            x, at = (builder.extract_value(args[i], n) for n in (0, 1))
            places.append(v.at(v.pointer(sig.args[i].types[0], x), builder.mul(at, v.int(width))))
        emitter = _Emitter(v, kind, mode, places, args[5])
        if isinstance(emitter.dot, ByteBits):
            emitter.emit_counted(args[6], emitter.dot)
        else:
            emitter.emit(args[6])
        return context.get_dummy_value()

    return types.void(op, rounding, a, b, d, types.int64, types.int64, down, across), codegen


@cache
def rows_kernel(op: int, rounding: int, source: int) -> Any:
    """kernel(a, rows, units, reading, b, d, columns, buffer): d += A * B.

    a: the `Part` of A, in units; b: `Packed` panels with the columns' corrections; d: the `Part` of the accumulators.
    """
    lines, width = tile_of(op).rows, tile_of(op).width
    pack, (made, of) = row_words(source, lines), per_unit(source)

    @jit
    def edge(a, b, d, ldd, depth, rows, columns, tile, down, across):
        """A tile that is not whole, in a whole one."""
        for r in range(rows):
            for c in range(columns):
                tile[r * width + c] = d.x[d.at + r * ldd + c]
        _tile(op, rounding, a, b, Flat(tile, 0), width, depth, down, across)
        for r in range(rows):
            for c in range(columns):
                d.x[d.at + r * ldd + c] = tile[r * width + c]

    @jit
    def multiply(a, b, d, ldd, rows, columns, depth, tile, down, across):
        for panel in range((columns + width - 1) // width):
            have, j = min(width, columns - panel * width), panel * width
            right, over = Flat(b, j * depth), Flat(across, j)
            for i in range(0, rows, lines):
                left, goal, down_here = Flat(a, i * depth), Flat(d.x, d.at + i * ldd + j), Flat(down, i)
                if have == width and i + lines <= rows:
                    _tile(op, rounding, left, right, goal, ldd, depth, down_here, over)
                else:
                    edge(left, right, goal, ldd, depth, min(lines, rows - i), have, tile, down_here, over)

    @jit
    def run(a, rows, units, reading, b, d, columns, buffer):
        depth = (units + of - 1) // of * made
        for i in range(0, rows, BLOCK):
            count = min(BLOCK, rows - i)
            pack(
                a.x, a.at + i * a.ld, a.ld, count, units, buffer.a, buffer.down, reading.signed, reading.flip,
                reading.yshift,
            )  # fmt: skip
            goal = Flat(d.x, d.at + i * d.ld)
            multiply(buffer.a, b.words, goal, d.ld, count, columns, depth, buffer.tile, buffer.down, b.across)

    return run
