"""Integers, bits and f64 into panels of words: int8 four to a word, 4-bit elements widened to bytes, the rest as is.

VPDPBUSD multiplies unsigned bytes of B by signed bytes of A.  With A' = A - x and B' = B + y (x, y = 128 where a sign
had to change): A B = A'B' - y sum(A') + x sum(B') - x y K; the sums are taken while packing.

What packs is emitted: as kernels of Numba's it took two seconds of a first product to compile.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils

from nbtc.compiler.builder import I8, I16, I32, I64, VectorBuilder, like, vector
from nbtc.compiler.cpu.lowering import lowering
from nbtc.compiler.loops import Values, repeated
from nbtc.compiler.machine_code.emitted import Named

# what operands hold: words, or elements to be made into words of four bytes, or into words of two 16-bit integers
WORDS, BYTES, NIBBLES, BYTE_PAIRS, NIBBLE_PAIRS = range(5)
GROUPS = 8  # of a row's units that are made into words at a time
LANES = 16  # of a vector of a row's sums
TOPS, LOWS, EIGHTS, LOW_NIBBLES, LOW_BYTES = 0x80808080, 0x01010101, 0x08080808, 0x0F0F0F0F, 0x00FF00FF


def per_unit(source: int) -> tuple[int, int]:
    """(words, units): so many words are made of so many units of an operand's storage along K."""
    return {WORDS: (1, 1), BYTES: (1, 4), NIBBLES: (2, 1), BYTE_PAIRS: (1, 2), NIBBLE_PAIRS: (4, 1)}[source]


class Part(NamedTuple):
    """A part of a matrix: flat bytes, the part's first element, and elements from row to row."""

    x: Any
    at: int
    ld: int


class Reading(NamedTuple):
    """How the elements of an operand are read: signed or not, xor of every byte; what A and what B are raised by."""

    signed: int
    flip: int
    xshift: int
    yshift: int


class Packer:
    """Writes what makes words of units.

    word: the integer type of a word.  reading: the values of a `Reading`.
    """

    def __init__(self, v: VectorBuilder, source: int, word: ir.Type, reading: Named) -> None:
        self.v, self.b, self.source = v, v.b, source
        self.made, self.of = per_unit(source)
        self.word, self.word_size = word, word.width // 8
        self.unit = {BYTES: I8, BYTE_PAIRS: I8, WORDS: word}.get(source, I32)
        self.size = self.unit.width // 8
        self.none = v.const(vector(I32, LANES), 0)
        self.signed = self.b.icmp_signed("!=", reading["signed"], v.int(0))
        self.flip = self.b.trunc(reading["flip"], I8)
        self.flips = self.b.mul(self.b.zext(self.flip, I32), v.const(I32, LOWS))
        self.xshift, self.yshift = (self.b.trunc(reading[name], I32) for name in ("xshift", "yshift"))

    @property
    def corrected(self) -> bool:
        """Whether operands may be raised, so that sums need what was added taken off."""
        return self.source in (BYTES, NIBBLES)

    # --- words ---
    def words_in_line(self, units: Any) -> Any:
        """How many words a packed line of so many units has."""
        return self.words_of(units)

    def words_of(self, units: Any) -> Any:
        """How many words are made of so many units."""
        whole = self.b.udiv(self.b.add(units, self.v.int(self.of - 1)), self.v.int(self.of))
        return self.b.mul(whole, self.v.int(self.made))

    def along(self, at: Any, n: int) -> list[Any]:
        """Vectors of n words, the first of each group of units, the second ...: of units that lie side by side."""
        v, b = self.v, self.b
        if self.source == BYTES:
            return [b.xor(v.load(at, vector(I32, n)), v.splat(self.flips, n))]
        if self.source == BYTE_PAIRS:
            return [v.bits(self.widened(v.load(at, vector(I8, 2 * n))), vector(I32, n))]
        return self.of_unit(v.load(at, vector(self.unit, n)), raised=False)

    def across(self, lines: list[Any]) -> list[Any]:
        """Words of units of as many lines as make one."""
        b, v = self.b, self.v
        if self.of == 1:
            return self.of_unit(lines[0], raised=True)
        if self.source == BYTE_PAIRS:
            lines = [self.widened(x) for x in lines]
        wide = [b.zext(x, like(x, I32)) for x in lines]
        step = 32 // self.of
        return [reduce(b.or_, (b.shl(x, v.const(x.type, step * q)) for q, x in enumerate(wide)))]

    def of_unit(self, x: Any, raised: bool) -> list[Any]:
        """Words of a unit that makes some by itself; raised: signed elements are to be unsigned."""
        if self.source == NIBBLES:
            return [self.four_bytes(self.shifted(x, n), raised) for n in (0, 16)]
        if self.source == NIBBLE_PAIRS:
            return [self.nibble_pair(self.shifted(x, n)) for n in (0, 8, 16, 24)]
        return [x]

    def shifted(self, x: Any, n: int) -> Any:
        return self.b.lshr(x, self.v.const(x.type, n)) if n else x

    def widened(self, x: Any) -> Any:
        """Bytes as 16-bit integers."""
        t = like(x, I16)
        return self.b.select(self.signed, self.b.sext(x, t), self.b.zext(x, t))

    def four_bytes(self, x: Any, raised: bool) -> Any:
        """The low four 4-bit elements as bytes; raised: add 8 to signed ones, which makes them unsigned."""
        b, v, t = self.b, self.v, x.type
        w = b.and_(x, v.const(t, 0xFFFF))
        for shift, mask in ((8, LOW_BYTES), (4, LOW_NIBBLES)):
            w = b.and_(b.or_(w, b.shl(w, v.const(t, shift))), v.const(t, mask))
        signed = b.xor(w, v.const(t, EIGHTS))
        if not raised:
            tops = v.const(t, TOPS)
            signed = b.xor(b.sub(b.or_(signed, tops), v.const(t, EIGHTS)), tops)
        return b.select(self.signed, signed, w)

    def nibble_pair(self, x: Any) -> Any:
        """The low two 4-bit elements as 16-bit integers of a word."""
        b, v, t = self.b, self.v, x.type
        low, high = b.and_(x, v.const(t, 15)), b.and_(x, v.const(t, 0xF0))
        w = b.or_(low, b.shl(high, v.const(t, 12)))
        sign = b.mul(b.and_(w, v.const(t, 0x00080008)), v.const(t, 0x1FFE))  # bit 3 of each half, in the bits above it
        return b.select(self.signed, b.or_(w, sign), w)

    # --- A ---
    def rows(self, source: Named, rows: Any, units: Any, lines: int, own: Named) -> None:
        """Rows of A into own["a"], [tile][k][lines], with zeros beyond them.

        own["down"][row] = -yshift times the sum of its elements, where words are of four bytes.
        """
        v, b = self.v, self.b
        words, stride = self.words_in_line(units), lines * self.word_size
        spare = cgutils.alloca_once(b, ir.ArrayType(I8, 4))
        spare = b.bitcast(spare, I8.as_pointer())
        tiles = b.udiv(b.add(rows, v.int(lines - 1)), v.int(lines))
        with cgutils.for_range(b, b.mul(tiles, v.int(lines))) as loop:
            i = loop.index
            tile, line = b.udiv(i, v.int(lines)), b.urem(i, v.int(lines))
            to = v.at(own["a"], b.mul(b.mul(tile, words), v.int(stride)), b.mul(line, v.int(self.word_size)))
            at = v.at(source["x"], b.mul(b.add(source["at"], b.mul(i, source["ld"])), v.int(self.size)))
            with b.if_else(b.icmp_signed("<", i, rows)) as (inside, beyond):
                with inside:
                    sums = self.row(at, units, to, stride, spare)
                    if self.corrected:
                        total = v.call(f"llvm.vector.reduce.add.v{LANES}i32", I32, sums)
                        v.store(b.neg(b.mul(self.yshift, total)), v.at(own["down"], b.mul(i, v.int(4))), 4)
                with beyond:
                    with cgutils.for_range(b, words) as word:
                        v.store(v.const(self.word, 0), v.at(to, b.mul(word.index, v.int(stride))), self.word_size)
                    if self.corrected:
                        v.store(v.const(I32, 0), v.at(own["down"], b.mul(i, v.int(4))), 4)

    def row(self, at: Any, units: Any, to: Any, stride: int, spare: Any) -> Any:
        """A row's words, `stride` bytes apart, and their sums; spare: memory for a group of units that is not whole."""
        v, b = self.v, self.b
        sums = cgutils.alloca_once_value(b, self.none)
        v.store(self.none, sums)
        groups = b.udiv(units, v.int(self.of))
        many = b.and_(groups, v.int(-GROUPS))
        for begin, end, n in ((v.int(0), many, GROUPS), (many, groups, 1)):
            with cgutils.for_range_slice(b, begin, end, v.int(n), I64) as (g, _):
                words = self.along(v.at(at, b.mul(g, v.int(self.of * self.size))), n)
                self.put(words, self.place(to, g, stride), stride, sums)
        if self.of > 1:
            rest = b.urem(units, v.int(self.of))
            with b.if_then(b.icmp_signed("!=", rest, v.int(0))):
                v.store(self.flips, spare)  # so that what is missing becomes 0
                begun = b.sub(units, rest)
                with cgutils.for_range(b, rest) as loop:
                    v.store(v.load(at, I8, offset=b.add(begun, loop.index)), spare, offset=loop.index)
                self.put(self.along(spare, 1), self.place(to, groups, stride), stride, sums)
        return b.load(sums)

    def place(self, to: Any, group: Any, stride: int) -> Any:
        return self.v.at(to, self.b.mul(group, self.v.int(self.made * stride)))

    def put(self, words: list[Any], to: Any, stride: int, sums: Any) -> None:
        """Words into every `stride`-th byte: those of the first group, of the second ...; their bytes are added up."""
        b, n = self.b, words[0].type.count
        for i in range(n):
            for q, x in enumerate(words):
                word = b.extract_element(x, ir.Constant(I32, i))
                self.v.store(word, to, self.word_size, offset=stride * (i * self.made + q))
        if self.corrected:
            for x in words:
                wide = self.v.shuffle(x, self.v.const(x.type, 0), [min(i, n) for i in range(LANES)])
                b.store(lowering(self.v).octets(b.load(sums), self.ones(LANES), wide), sums)

    def ones(self, lanes: int) -> ir.Constant:
        """What bytes are multiplied by where they are only added up."""
        return self.v.const(vector(I32, lanes), LOWS)

    # --- B ---
    def columns(self, source: Named, units: Any, columns: Any, width: int, out: Named) -> None:
        """Columns of B into out["words"], [panel][k][width], with zeros beyond them.

        out["across"][column] = xshift times the sum of its (raised) elements, less xshift * yshift * K, where words are
        of four bytes.
        """
        v, b = self.v, self.b
        words, line_size = self.words_in_line(units), width * self.word_size
        lines = b.udiv(self.words_of(units), v.int(self.made))
        begin = v.at(source["x"], b.mul(source["at"], v.int(self.size)))
        ld = b.mul(source["ld"], v.int(self.size))
        panels = b.udiv(b.add(columns, v.int(width - 1)), v.int(width))
        with cgutils.for_range(b, panels) as panel:
            first = b.mul(panel.index, v.int(width))
            have = v.smin(v.int(width), b.sub(columns, first))
            whole = b.icmp_signed("==", have, v.int(width))
            goal = v.at(out["words"], b.mul(b.mul(panel.index, words), v.int(line_size)))
            column = v.at(begin, b.mul(first, v.int(self.size)))
            with cgutils.for_range(b, lines) as line:
                k = b.mul(line.index, v.int(self.of))
                at, left = v.at(column, b.mul(k, ld)), b.sub(units, k)
                to = v.at(goal, b.mul(line.index, v.int(self.made * line_size)))
                full = b.and_(whole, b.icmp_signed(">=", left, v.int(self.of)))
                with b.if_else(full) as (at_once, one_by_one):
                    with at_once:
                        found = [v.load(at, vector(self.unit, width), offset=self.down(ld, q)) for q in range(self.of)]
                        if self.source == BYTES:
                            found = [b.xor(x, v.splat(self.flip, width)) for x in found]
                        self.put_line(self.across(found), to, line_size)
                    with one_by_one:
                        self.part_of_line(at, (ld, left, have), to, line_size)
            if self.corrected:
                self.column_sums(goal, words, units, width, v.at(out["across"], b.mul(first, v.int(4))))

    def down(self, ld: Any, lines: int) -> Any:
        return self.b.mul(ld, self.v.int(lines))

    def put_line(self, words: list[Any], to: Any, line_size: int) -> None:
        for q, x in enumerate(words):
            self.v.store(x, to, self.word_size, offset=q * line_size)

    def part_of_line(self, at: Any, sizes: tuple[Any, Any, Any], to: Any, line_size: int) -> None:
        """The words of some columns; sizes: bytes from row to row, units that are left, columns."""
        v, b = self.v, self.b
        ld, left, have = sizes
        for i in range(0, self.made * line_size, line_size):
            with cgutils.for_range(b, v.int(line_size // self.word_size)) as loop:
                v.store(v.const(self.word, 0), v.at(to, b.mul(loop.index, v.int(self.word_size))), self.word_size, i)
        with cgutils.for_range(b, have) as column:
            here, found = v.at(at, b.mul(column.index, v.int(self.size))), []
            for q in range(self.of):
                there = b.icmp_signed(">", left, v.int(q))
                x = v.load(here, self.unit, self.size, b.select(there, self.down(ld, q), v.int(0)))
                x = b.xor(x, self.flip) if self.source == BYTES else x
                found.append(b.select(there, x, v.const(self.unit, 0)))
            self.put_line(self.across(found), v.at(to, b.mul(column.index, v.int(self.word_size))), line_size)

    def column_sums(self, packed: Any, words: Any, units: Any, width: int, to: Any) -> None:
        """Corrections of a panel's columns."""
        v, b, t = self.v, self.b, vector(I32, width)
        v.store(v.const(t, 0), to, 4)
        with b.if_then(b.icmp_signed("!=", self.xshift, v.const(I32, 0))):

            def line(k: Any, sums: Values) -> Values:
                x = v.load(v.at(packed, b.mul(k, v.int(width * self.word_size))), t, self.word_size)
                return {"sum": lowering(v).octets(sums["sum"], x, self.ones(width))}

            total = repeated(v, v.int(0), words, 1, {"sum": v.const(t, 0)}, line)["sum"]
            raised = v.splat(b.mul(self.yshift, b.trunc(units, I32)), width)
            v.store(b.mul(v.splat(self.xshift, width), b.sub(total, raised)), to, 4)
