"""A and B of a warp's slice, decoded by vector code into memory: values, exponents by fours, signs.

A comes as a warp's register image or as 16-byte units at given addresses, B as such units.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.builder import F64, I8, I16, I64, VectorBuilder, vector
from nbtc.kernels.float_elements import NUDGE, bias_difference
from nbtc.kernels.slices.slice_elements import OCTETS, V16, VECTOR, W16, SliceElements
from nbtc.kernels.slices.slice_shape import COLUMNS, ROWS, STEPS, UNITS, WORDS, SliceShape

HALF = VECTOR // 2  # bytes of half a register of a warp's image
REGISTER = 2 * VECTOR


def turned(v: VectorBuilder, x: list[Any]) -> list[Any]:
    """Four vectors as four others: word n of each 128-bit lane of x[i] becomes word i of that lane of the n-th."""
    out = []
    pairs = [[v.shuffle(x[n], x[n + 1], _unpacked(part, 1)) for part in (0, 1)] for n in (0, 2)]
    for part in (0, 1):
        out += [v.shuffle(pairs[0][part], pairs[1][part], _unpacked(half, 2)) for half in (0, 1)]
    return out


def _unpacked(part: int, size: int) -> list[int]:
    """Lower or upper halves of the 128-bit lanes of two vectors, words or pairs of words in turn."""
    units = range(2 // size)
    starts = [4 * u + 2 * part + size * n + side for u in range(4) for n in units for side in (0, 16)]
    return [at + i for at in starts for i in range(size)]


def image_parts(v: VectorBuilder, p: Any, registers: tuple[int, int]) -> list[Any]:
    """Halves of two registers of an image (rows g, then g + 8), `turned`: row q of a lane u of a vector is u + 4q."""
    return turned(v, [v.load(p, W16, VECTOR, REGISTER * r + VECTOR * n) for r in registers for n in (0, 1)])


class DecodedLayout(NamedTuple):
    """Where the parts of a line of a decoded operand begin, and its bytes.

    A: values by product, exponents by pairs of products, a word of signs; a vector of rows each.  B, eight columns: for
    each two columns values, a word of exponents for each pair of products, two words of signs.
    """

    values: int
    exponents: int
    signs: int
    size: int

    @classmethod
    def of(cls, *sizes: int) -> DecodedLayout:
        """Parts one after the other."""
        return cls(*(sum(sizes[:n]) for n in range(len(sizes) + 1)))


def memory_a(shape: SliceShape) -> DecodedLayout:
    """Of A."""
    return DecodedLayout.of(VECTOR * shape.parts * shape.depth, VECTOR * shape.depth // 2, VECTOR)


def memory_b(shape: SliceShape) -> DecodedLayout:
    """Of a tile of B."""
    values = COLUMNS * shape.depth * 4 * shape.parts
    return DecodedLayout.of(values, STEPS * 2 * shape.depth, VECTOR)


def bytes_of_b(shape: SliceShape, tiles: int) -> int:
    """What B takes decoded: its tiles, and one more, which is prepared beside the last one and never used."""
    return memory_b(shape).size * shape.lines * (tiles + 1)


class SliceOperands:
    """Decodes A, and B tile by tile, into memory of the function."""

    def __init__(self, v: VectorBuilder, shape: SliceShape) -> None:
        self.v, self.b, self.s = v, v.b, shape
        self.a, self.of_b = (SliceElements(v, f, o) for f, o in zip((shape.a, shape.b), shape.offsets, strict=True))

    # --- A ------------------------------------------------------------------------------------------------------------
    def read_a(self, source: Any) -> list[Any]:
        """Words of the rows of A, of a register image or from addresses (i64) of 32 units: eight rows a register."""
        v = self.v
        if not self.s.a_rows:
            return [x for unit in (0, 2) for x in image_parts(v, source, (unit, unit + 1))]
        units = [self._unit(source, n) for n in range(2 * ROWS)]
        fours = [v.bits(v.joined(units[n : n + 4]), W16) for n in range(0, 32, 4)]
        words = [x for n in (0, 4) for x in turned(v, fours[n : n + 4])]
        if self.s.minus_a:
            signs = sum(1 << n for n in range(self.s.a.bits - 1, 32, self.s.a.bits))
            words = [self.b.xor(x, v.const(W16, signs)) for x in words]
        return words

    def _unit(self, places: Any, n: int) -> Any:
        """The 16 bytes at an address that stands at `places`."""
        v = self.v
        return v.load(self.b.inttoptr(v.load(places, I64, 8, 8 * n), I8.as_pointer()), vector(I8, 16), 1)

    def decode_a(self, words: list[Any], to: Any) -> None:
        """A line of A to memory."""
        v, s, at = self.v, self.s, memory_a(self.s)
        fields = []
        for n, x in enumerate(words):
            elements = v.bits(x, self.a.of(VECTOR))
            self.a.note(elements)
            fields.append(v.bits(self.a.exponents(elements, False), OCTETS))
            for i, values in enumerate(self.a.word_values(x)):
                self._store_a(values, v.at(to, at.values + VECTOR * s.parts * self._place_a(n, i)))
        for n in range(s.depth // 2):  # element n of a row's first unit twice, then of its second unit
            word, i = divmod(n, s.a.per_word)
            lanes = [4 * row + i * s.a.bits // 8 + side for row in range(ROWS) for side in (0, 0, VECTOR, VECTOR)]
            x = v.shuffle(fields[word], fields[WORDS // 2 + word], lanes)
            v.store(x, to, VECTOR, at.exponents + VECTOR * n)
        v.store(self._signs_a(words), to, VECTOR, at.signs)

    def _place_a(self, word: int, i: int) -> int:
        """Where element i of a word of A stands, in vectors: of fp8 the same words of both units side by side."""
        if self.s.in_f64:
            return 2 * word + i
        unit, step = divmod(word, 4)
        return 8 * step + 4 * unit + i

    def _store_a(self, values: Any, to: Any) -> None:
        """Sixteen values, nudged; f64 in two vectors: words 0 and 1, and words 2 and 3 of each 128-bit lane."""
        v, b, s = self.v, self.b, self.s
        factor = NUDGE[s.in_f64] * 2.0 ** (bias_difference(s.a) + bias_difference(s.b))
        if not s.in_f64:
            v.store(b.fmul(values, v.const(V16, factor)), to, VECTOR)
            return
        for part in (0, 1):
            lanes = [4 * u + 2 * part + i for u in range(4) for i in (0, 1)]
            x = b.fpext(v.shuffle(values, values, lanes), vector(F64, 8))
            v.store(b.fmul(x, v.const(x.type, factor)), to, VECTOR, VECTOR * part)

    def _signs_a(self, words: list[Any]) -> Any:
        """A bit for each element of the rows: of 16 bits in the order of memory, of fp8 byte i holds those of bytes i.

        Signs of fp8 move four at a time.  Those of f16 could, by twos, if B's were put in that order: sixteen
        operations fewer for A, one more for every two columns of B, of which there are more.
        """
        v, b, bits, per_word = self.v, self.b, self.s.a.bits, self.s.a.per_word
        total = v.const(W16, 0)
        for n, x in enumerate(words):
            if bits == 8:
                moved = b.lshr(x, v.const(W16, WORDS - 1 - n))
                total = b.or_(total, b.and_(moved, v.const(W16, 0x01010101 << n)))
                continue
            for i in range(per_word):
                shift = bits * (i + 1) - 1 - (per_word * n + i)
                moved = b.lshr(x, v.const(W16, shift)) if shift >= 0 else b.shl(x, v.const(W16, -shift))
                total = b.or_(total, b.and_(moved, v.const(W16, 1 << (per_word * n + i))))
        return total

    # --- B ------------------------------------------------------------------------------------------------------------
    def read_b(self, places: Any, to: Any) -> None:
        """A line's bytes of eight columns, two a vector, from the units whose addresses (i64) stand at `places`."""
        v, b, s = self.v, self.b, self.s
        units = [self._unit(places, n) for n in range(UNITS)]
        if s.by_rows:
            columns = self._from_rows(units)
        else:
            columns = [v.joined([units[n], units[n + 8], units[n + 1], units[n + 9]]) for n in range(0, COLUMNS, 2)]
        if s.minus_b:
            sign = v.const(self.of_b.of(VECTOR), 1 << (s.b.bits - 1))
            columns = [v.bits(b.xor(v.bits(x, sign.type), sign), x.type) for x in columns]
        for n, x in enumerate(columns):
            v.store(x, to, VECTOR, VECTOR * n)

    def _from_rows(self, units: list[Any]) -> list[Any]:
        """Sixteen rows of eight elements of two bytes: columns, two a vector."""
        v = self.v
        fours = [v.bits(v.joined(units[n : n + 4]), vector(I16, 32)) for n in range(0, 16, 4)]
        halves = [
            [v.shuffle(fours[n], fours[n + 1], [8 * k + 4 * h + c for c in range(4) for k in range(8)]) for h in (0, 1)]
            for n in (0, 2)
        ]
        out = []
        for c in range(0, COLUMNS, 2):
            first = 8 * (c % 4)
            order = [first + 8 * i + side + k for i in (0, 1) for side in (0, 32) for k in range(8)]
            out.append(v.shuffle(halves[0][c // 4], halves[1][c // 4], order))
        return out

    def decode_b(self, step: Any, raw: Any, to: Any) -> Iterator[None]:
        """A line of two columns of a tile, those of a step (i64), from their bytes to memory, piece by piece."""
        v, b, s, at = self.v, self.b, self.s, memory_b(self.s)
        x = v.load(v.at(raw, b.mul(step, v.int(VECTOR))), self.of_b.of(VECTOR), VECTOR)
        fields = self.of_b.exponents(x, True)
        fields = fields if s.b.bits == 8 else b.trunc(fields, vector(I8, 2 * s.depth))
        yield
        half = s.depth // 2  # element n of the first column, of the second, and half a column further
        words = [n + side for n in range(half) for side in (0, s.depth, half, s.depth + half)]
        v.store(v.shuffle(fields, fields, words), v.at(to, b.mul(step, v.int(2 * s.depth))), HALF, at.exponents)
        yield
        v.store(self._signs_b(x), v.at(to, b.mul(step, v.int(8))), 8, at.signs)
        yield
        yield from self._store_b(x, v.at(to, b.mul(step, v.int(at.exponents // STEPS))))

    def _signs_b(self, x: Any) -> Any:
        """The sign bits of two columns, a word each (i64), in the order of `_signs_a`."""
        b, v, depth, per_word = self.b, self.v, self.s.depth, self.s.a.per_word
        if depth == 32:
            x = v.shuffle(x, x, [c + n for c in (0, depth) for i in range(per_word) for n in range(i, depth, per_word)])
        mask = b.bitcast(b.icmp_signed("<", x, v.const(x.type, 0)), ir.IntType(2 * depth))
        if depth == 32:
            return mask
        both = b.zext(mask, I64)
        return b.or_(b.and_(both, v.int((1 << depth) - 1)), b.shl(b.lshr(both, v.int(depth)), v.int(32)))

    def _store_b(self, x: Any, to: Any) -> Iterator[None]:
        """Values of two columns: of fp8 as `line_values` has them, of 16 bits one after the other."""
        v, s = self.v, self.s
        if not s.in_f64:
            for n, values in enumerate(self.of_b.line_values(x)):
                v.store(values, to, VECTOR, VECTOR * n)
                yield
            return
        for n in range(0, 32, ROWS):
            y = v.shuffle(x, x, list(range(n, n + ROWS)))
            values = self.of_b.with_tiny_zeros(y, self.of_b.values(y))
            for i in range(0, ROWS, 8):
                part = v.shuffle(values, values, list(range(i, i + 8)))
                v.store(self.b.fpext(part, vector(F64, 8)), to, VECTOR, 8 * (n + i))
                yield

    @property
    def step_b(self) -> int:
        """Bytes from a value of B to that of the next step."""
        return 8 * self.s.depth // 4 if self.s.in_f64 else VECTOR

    def place_b(self, column: int, k: int) -> int:
        """Where value k of a column's first step lies: of fp8 those of the first words of both units."""
        if self.s.in_f64:
            return 8 * (self.s.depth * column + k)
        pair, side = divmod(column, 2)
        return 4 * VECTOR * pair + 16 * (2 * side + k // 4) + 4 * (k % 4)
