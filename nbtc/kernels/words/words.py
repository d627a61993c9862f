"""Register-tiled products of words: int8 (four or two a word), bits (32 a word), f64; rows of A are packed on the way.

Some rows by some vectors of accumulators stay in registers while k runs; a word of A is broadcast against the vectors
of B.  A `Target` says how many fit, and an operation is the few instructions that add one product.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils

from nbtc.compiler.builder import F64, I32, I64, VectorBuilder, stack_array, vector
from nbtc.compiler.cache.sources import source_digest
from nbtc.compiler.cpu.host import AVX512, features
from nbtc.compiler.cpu.processors import GENERIC, Processor, host_processor
from nbtc.compiler.loops import Values, repeated
from nbtc.compiler.machine_code.emitted import Named, call_in_words, in_words, machine_code
from nbtc.kernels.words import words_amx
from nbtc.kernels.words.dot import Bits, ByteBits, Dot, DotElements, Octets, Pairs
from nbtc.kernels.words.words_pack import Packer, Part, Reading

BLOCK = 96  # rows packed at a time: a multiple of the rows of every tile
LEVEL = 1  # of LLVM's pipelines: what it would make vectors of is written as vectors
# operations: bytes four to a word, in pairs of 16 bits, bits, f64, bytes in tile registers
DOT, PAIRS, XOR, AND, FMA, AMX = range(6)
ROUND = {"rn": 0, "rz": 11, "rm": 9, "rp": 10}  # embedded rounding (AVX-512); 0: the ordinary fma


def target() -> Processor:
    """The row of this machine; generic vectors where none serves."""
    return host_processor() or GENERIC


# How bytes are multiplied and what that needs, the fastest first: in tile registers, by VPDPBUSD, or as pairs of 16-bit
# integers, which never saturate.
BYTES_BY = (
    (AMX, words_amx.NEEDS),
    (DOT, AVX512 | {"avx512vnni"}),
    (PAIRS, frozenset[str]()),
)


def dot_of_bytes() -> int:
    """How this machine multiplies bytes."""
    return next(op for op, needs in BYTES_BY if needs <= features())


class WordsTile(NamedTuple):
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
    def word(self) -> ir.Type:
        """An element's bits."""
        return ir.IntType(8 * self.size)

    @property
    def type(self) -> ir.VectorType:
        """A vector."""
        return vector(self.element, self.lanes)


def tile_of(op: int, processor: Processor | None = None) -> WordsTile:
    """The tile of an operation on a processor (default: this machine's).

    Accumulators, vectors of B and a broadcast fill the registers; counting bits by a table takes two more.
    """
    if op == AMX:
        return WordsTile(words_amx.LINES, words_amx.COLUMNS // words_amx.ROWS, I32, words_amx.ROWS)
    t = processor or target()
    rows, vectors = 4 if op in (XOR, AND) and _by_bytes(t) else 6, 4 if t.sums > 8 else 2
    return WordsTile(rows, vectors, F64, t.lanes // 2) if op == FMA else WordsTile(rows, vectors, I32, t.lanes)


def _by_bytes(t: Processor) -> bool:
    """Whether bits are counted byte by byte."""
    return t.lookup or (t.masks and not t.counts)


def _products(v: VectorBuilder, op: int, t: Processor) -> Dot:
    """How products of words are summed, of all operations but f64's."""
    way = {DOT: Octets, PAIRS: Pairs}.get(op) or (ByteBits if _by_bytes(t) else Bits)
    return way(v, DotElements(1 if op in (XOR, AND) else 8, a_signed=True, both=op == AND))


class PackedWords(NamedTuple):
    """Packed panels of B, [panel][k][width], and the columns' corrections."""

    words: Any
    across: Any


class RowBuffer(NamedTuple):
    """A thread's memory: for `BLOCK` packed rows of A, one register tile, and the rows' corrections."""

    a: Any
    tile: Any
    down: Any


class TileEmitter:
    """Writes the loop over words of one tile, for a processor.

    places: of packed rows of A, of a panel of B, of the tile in D, of the corrections of rows and of columns.
    """

    def __init__(
        self, v: VectorBuilder, op: int, rounding: int, places: list[Any], ld: Any, fresh: Any, processor: Processor
    ) -> None:
        self.v, self.b, self.op, self.rounding = v, v.b, op, rounding
        self.a, self.columns, self.d, self.down, self.across = places
        self.ld, self.fresh, self.tile = ld, fresh, tile_of(op, processor)
        self.keys = [(r, j) for r in range(self.tile.rows) for j in range(self.tile.vectors)]
        self.bytes = processor.bytes
        self.dot = _products(v, op, processor) if op != FMA else None

    def place(self, key: tuple[int, int]) -> Any:
        """Where a vector of D is."""
        return self.vector_of(self.d, self.ld, key)

    def vector_of(self, d: Any, ld: Any, key: tuple[int, int]) -> Any:
        r, j = key
        return self.v.at(d, self.b.mul(ld, self.v.int(self.tile.size * r)), self.bytes * j)

    def starts(self) -> Values:
        """Of sums: what D holds, zeros where it holds nothing yet.

        Zeros are read from one row of them: a D that is filled first is written twice, which takes an int8 product of
        1024^3 a twentieth of its time.
        """
        v, b, tile = self.v, self.b, self.tile
        zeros = stack_array(b, self.bytes * tile.vectors)
        d, ld = b.select(self.fresh, zeros, self.d), b.select(self.fresh, v.int(0), self.ld)
        return {key: v.load(self.vector_of(d, ld, key), tile.type, tile.size) for key in self.keys}

    def announce_next(self) -> None:
        """Fetch the lines of the tile below while this one is summed."""
        below = self.v.at(self.d, self.b.mul(self.ld, self.v.int(self.tile.size * self.tile.rows)))
        for key in self.keys:
            self.v.prefetch(self.vector_of(below, self.ld, key), write=True)

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

    def write(self, depth: Any) -> None:
        """D += A * B."""
        if isinstance(self.dot, ByteBits):
            self.write_counted(depth, self.dot)
            return
        v, tile = self.v, self.tile
        start = self.starts()
        self.announce_next()
        if self.op == DOT:
            start = {x: self.b.add(y, self.correction(x)) for x, y in start.items()}
        for x, y in self.words(v.int(0), depth, start).items():
            v.store(y, self.place(x), tile.size)

    def write_counted(self, depth: Any, dot: ByteBits) -> None:
        """The same where bytes count bits: their counts are added up before they can overflow."""
        v, b, tile = self.v, self.b, self.tile
        none = dict.fromkeys(self.keys, dot.zero(tile.type))
        with b.if_then(self.fresh):
            for x in self.keys:
                v.store(v.const(tile.type, 0), self.place(x), tile.size)

        def stretch(k: Any, values: Values) -> Values:
            following = b.add(k, v.int(dot.steps))
            last = b.select(b.icmp_signed("<", following, depth), following, depth)
            for x, y in self.words(k, last, none).items():
                total = b.add(v.load(self.place(x), tile.type, tile.size), dot.total(y))
                v.store(total, self.place(x), tile.size)
            return values

        repeated(v, v.int(0), depth, dot.steps, {}, stretch)


class WordRowsArguments(NamedTuple):
    """Of what multiplies: rows of A, in units, by panels of B with the columns' corrections, added to d.

    fresh: not 0 where d holds nothing yet, which counts as zeros.
    """

    a: Part
    rows: int
    units: int
    reading: Reading
    b: PackedWords
    d: Part
    columns: int
    buffer: RowBuffer
    fresh: int


class WordColumnsArguments(NamedTuple):
    """Of what packs columns of B."""

    b: Part
    units: int
    columns: int
    reading: Reading
    out: PackedWords


class ProductArguments(NamedTuple):
    """Of a product in one piece: columns are packed by the function at `pack`, rows multiplied by that at `multiply`.

    One call: two, and what Python does between them, take an int8 product of 64^3 four times as long as its arithmetic.
    """

    pack: int
    columns: WordColumnsArguments
    multiply: int
    rows: WordRowsArguments


@cache
def _stamp() -> str:
    """A digest of the sources that decide what the functions become."""
    return source_digest(Path(__file__).resolve())


def _packer(op: int) -> type[Packer]:
    """What makes words as an operation takes them."""
    return words_amx.AmxPacker if op == AMX else Packer


def pack_columns(v: VectorBuilder, op: int, source: int, x: Named) -> None:
    """Write the function of `WordColumnsArguments`."""
    tile = tile_of(op)
    _packer(op)(v, source, tile.word, x["reading"]).columns(x["b"], x["units"], x["columns"], tile.width, x["out"])


@cache
def packs_columns(op: int, source: int) -> int:
    """The address of what packs B for an operation: a function of `WordColumnsArguments`."""
    emitted = in_words(WordColumnsArguments, lambda v, x: pack_columns(v, op, source, x))
    key = "columns", repr((_packer(op).__name__, source, tile_of(op).word.width, tile_of(op).width))
    return machine_code({"columns": emitted}, _stamp(), *key, level=LEVEL).address("columns")


@cache
def multiplies_rows(op: int, rounding: int, source: int, signs: tuple[bool, bool]) -> int:
    """The address of what packs rows of A and multiplies: a function of `WordRowsArguments`.

    signs: of elements of A and B; only tile registers have an instruction for each.
    """
    variant = WordsVariant(rounding, signs)
    emitted = in_words(WordRowsArguments, lambda v, x: _WordRows(v, op, variant, source, x).emit())
    key = "rows", repr((op, rounding, signs, source, tile_of(op).width, target()))
    return machine_code({"rows": emitted}, _stamp(), *key, level=LEVEL).address("rows")


def _product(v: VectorBuilder, x: Named) -> None:
    """Write the function of `ProductArguments`."""
    call_in_words(v, x["pack"], WordColumnsArguments, x["columns"])
    call_in_words(v, x["multiply"], WordRowsArguments, x["rows"])


@cache
def multiplies_product() -> int:
    """The address of what packs and multiplies a product in one piece: a function of `ProductArguments`."""
    functions = {"product": in_words(ProductArguments, _product)}
    return machine_code(functions, _stamp(), "product", level=LEVEL).address("product")


class WordsVariant(NamedTuple):
    """What an operation leaves open: f64's rounding; signs of elements of A and of B in tile registers."""

    rounding: int = 0
    signs: tuple[bool, bool] = (True, True)


class _WordRows:
    """Writes the function of `WordRowsArguments`."""

    def __init__(self, v: VectorBuilder, op: int, variant: WordsVariant, source: int, x: Named) -> None:
        self.v, self.b, self.op, self.variant, self.x = v, v.b, op, variant, x
        self.tile = tile_of(op)
        self.packer = _packer(op)(v, source, self.tile.word, x["reading"])

    def emit(self) -> None:
        """`BLOCK` rows after the other."""
        with words_amx.tile_registers(self.v) if self.op == AMX else nullcontext():
            self.blocks()

    def blocks(self) -> None:
        v, b, x, size = self.v, self.b, self.x, self.tile.size
        with cgutils.for_range_slice(b, v.int(0), x["rows"], v.int(BLOCK), I64) as (i, _):
            count = v.smin(v.int(BLOCK), b.sub(x["rows"], i))
            part = x["a"] | {"at": b.add(x["a"]["at"], b.mul(i, x["a"]["ld"]))}
            self.packer.rows(part, count, x["units"], self.tile.rows, x["buffer"])
            self.multiply(v.at(x["d"]["x"], b.mul(b.add(x["d"]["at"], b.mul(i, x["d"]["ld"])), v.int(size))), count)

    def multiply(self, d: Any, rows: Any) -> None:
        """Packed rows by all panels."""
        v, b, x, tile = self.v, self.b, self.x, self.tile
        depth, columns, ld = self.packer.words_in_line(x["units"]), x["columns"], x["d"]["ld"]
        own, height, width = x["buffer"], v.int(tile.rows), v.int(tile.width)
        fresh = b.icmp_signed("!=", x["fresh"], v.int(0))
        with cgutils.for_range_slice(b, v.int(0), columns, width, I64) as (j, _):
            have = v.smin(width, b.sub(columns, j))
            right = v.at(x["b"]["words"], b.mul(b.mul(j, depth), v.int(tile.size)))
            over = v.at(x["b"]["across"], b.mul(j, v.int(4)))
            with cgutils.for_range_slice(b, v.int(0), rows, height, I64) as (i, _):
                left = v.at(own["a"], b.mul(b.mul(i, depth), v.int(tile.size)))
                goal = v.at(d, b.mul(b.add(b.mul(i, ld), j), v.int(tile.size)))
                count = v.smin(height, b.sub(rows, i))
                part = b.or_(b.icmp_signed("<", count, height), b.icmp_signed("<", have, width))
                with b.if_then(b.and_(part, b.not_(fresh))):
                    self.copy(goal, ld, own["tile"], width, (count, have))
                to, across = b.select(part, own["tile"], goal), b.select(part, width, ld)
                places = [left, right, to, v.at(own["down"], b.mul(i, v.int(4))), over]
                self.emitter(places, across, fresh).write(depth)
                with b.if_then(part):
                    self.copy(own["tile"], width, goal, ld, (count, have))

    def emitter(self, places: list[Any], ld: Any, fresh: Any) -> TileEmitter | words_amx.AmxEmitter:
        """What writes the loop of a tile."""
        if self.op == AMX:
            return words_amx.AmxEmitter(self.v, self.variant.signs, places, ld, fresh)
        return TileEmitter(self.v, self.op, self.variant.rounding, places, ld, fresh, target())

    def copy(self, from_: Any, from_ld: Any, to: Any, to_ld: Any, shape: tuple[Any, Any]) -> None:
        """Rows and columns of accumulators."""
        v, b, size = self.v, self.b, self.tile.size
        with cgutils.for_range(b, shape[0]) as row, cgutils.for_range(b, shape[1]) as column:
            here, there = (
                v.at(p, b.mul(b.add(b.mul(row.index, ld), column.index), v.int(size)))
                for p, ld in ((from_, from_ld), (to, to_ld))
            )
            v.store(v.load(here, self.tile.word, size), there, size)
