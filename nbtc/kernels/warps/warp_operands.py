"""A and B of an m16n8 product, decoded from a warp's register image by vector code.

A multiplicand becomes an f64 by moving bits: sign, exponent and mantissa go to their places, and the value that stands
there is the number times a fixed power of two (`FloatCode.deficit`); a subnormal becomes a subnormal f64 and needs no
care.  B is multiplied by a power of two that brings it back among the normal numbers, A is left where it is.

Vectors of B are made to need no permutation later: a 128-bit lane u of every vector belongs to columns 2u and 2u + 1,
as in the image of C.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import F64, I8, I32, VectorBuilder, stack_array, vector
from nbtc.compiler.cpu.lowering import lowering
from nbtc.kernels.float_elements import NUDGE, FloatElements
from nbtc.kernels.warps.float_code import W16, FloatCode, Label

NO_EXPONENT = -4096  # what a zero counts as before the floor
# B is multiplied by 2**NEAR, which makes start values normal numbers: those of f16 have the least exponents, E = -28,
# and with F = 25 the field 1023 + 52 - 25 - 28 + NEAR - 2 * 1008, that is 6.  The largest, of bf16, stay below 400.
NEAR = 1000
B64, D8 = vector(I8, 64), vector(F64, 8)


@dataclass(frozen=True)
class OpaqueBuffer:
    """Memory to be stored to at one address and loaded from at another, which the compiler takes for a different one.

    Else it would see what lies there and replace loads that broadcast, which are free, by permutations, which are not.
    """

    inner: Any
    outer: Any


def take(v: VectorBuilder, by_register: bool, p: Any, registers: int, lane: int, lanes: int) -> Any:
    """The registers of some neighbouring lanes, lane by lane: <lanes * registers x i32>."""
    if not by_register:
        return v.load(p, vector(I32, lanes * registers), 4, 4 * registers * lane)
    whole = v.joined([v.load(p, vector(I32, lanes), 4, 128 * r + 4 * lane) for r in range(registers)])
    return v.shuffle(whole, whole, [r * lanes + n for n in range(lanes) for r in range(registers)])


def put(v: VectorBuilder, by_register: bool, p: Any, registers: int, lane: int, words: Any) -> None:
    """The inverse of `take`."""
    if not by_register:
        v.store(words, p, 4, 4 * registers * lane)
        return
    count = words.type.count
    for r in range(registers):
        v.store(v.shuffle(words, words, list(range(r, count, registers))), p, 4, 128 * r + 4 * lane)


class WarpOperands:
    """Decoded A (on the stack) and B (in vectors) of one warp."""

    def __init__(self, shape: FloatCode, v: VectorBuilder) -> None:
        self.s, self.v, self.b, self.m, self.elements = shape, v, v.b, lowering(v), FloatElements(v, shape.fmt)
        self.variants = len(shape.groups) // shape.registers
        self.vectors = 64 * 2 * shape.per_word  # bytes of decoded values of an image of sixteen words
        images = 2 * shape.registers
        self.values, self.fields = self.buffer(images * self.vectors), self.buffer(images * 64 * self.variants)
        self.signs, self.nonzero = self.buffer(64), self.buffer(64)
        self.special = v.const(shape.element, 0)

    @property
    def more(self) -> tuple[int, int]:
        """What is added to exponent fields of A and of B, so that sums are biased exponents of f32."""
        bias = 127 - 2 * self.s.fmt.bias
        return ((bias + 1) // 2, bias // 2) if self.s.limited_range else (0, 0)

    def buffer(self, size: int) -> OpaqueBuffer:
        """Stack memory of `size` bytes."""
        p = stack_array(self.b, size)
        same = ir.InlineAsm(ir.FunctionType(p.type, [p.type]), "", "=r,0")
        return OpaqueBuffer(p, self.v.at(self.b.call(same, [self.v.at(p, size // 2)]), -(size // 2)))

    # --- elements -----------------------------------------------------------------------------------------------------
    def masks(self, words: Any) -> tuple[Any, Any]:
        """(sign bits, nonzero bits) of sixteen words of elements, as vectors of i1."""
        x = self.v.bits(words, self.s.element)
        return self.elements.negative(x), self.elements.nonzero(x)

    def biased(self, words: Any, nonzero: Any, more: int) -> Any:
        """Exponents of sixteen words of elements in the form in which those of A and of B are added.

        Narrow range: bytes plus `more`, and 0 for zero, so that the sum with a zero is less than any other; Inf and NaN
        have the largest byte.  Full range: halves, far below 0 for zero.  The largest is noted: sums with an Inf or NaN
        mean nothing.
        """
        v, b, f, t = self.v, self.b, self.s.fmt, self.s.element
        x = b.lshr(v.bits(words, t), v.const(t, self.elements.shift))
        top = (1 << f.exponent) - 1
        if self.s.limited_range:
            table = [255 if n == top else max(n, 1) + more for n in range(top + 1)] * (64 // (top + 1))
            found = self.m.byte_table(table, v.bits(x, B64))
            if found is not None:
                return self.noted(b.select(nonzero, v.bits(found, t), v.const(t, 0)))
        field = b.and_(x, v.const(t, top))
        exponent = v.umax(field, v.const(t, 1))
        if self.s.limited_range:
            special = b.icmp_unsigned("==", field, v.const(t, top))
            exponent = b.select(special, v.const(t, 255), b.add(exponent, v.const(t, more)))
            return self.noted(b.select(nonzero, exponent, v.const(t, 0)))
        self.noted(field)
        return b.select(nonzero, exponent, v.const(t, NO_EXPONENT))

    def noted(self, x: Any) -> Any:
        """x; the largest bytes (narrow range) or fields are remembered, which tell of Inf and NaN."""
        self.special = self.m.opt_barrier(self.larger(self.special, x))
        return x

    def larger(self, x: Any, y: Any) -> Any:
        """The larger bytes (narrow range) or fields."""
        v, kind = self.v, B64 if self.s.limited_range else x.type
        return v.bits(v.umax(v.bits(x, kind), v.bits(y, kind)), x.type)

    def doubles(self, words: Any) -> list[Any]:
        """Values of sixteen words of elements: vector i holds elements 2i and 2i + 1 of each 128-bit lane."""
        v, b, t = self.v, self.b, self.s.element
        width, shift, drop = t.element.width, 11 - self.s.fmt.exponent, self.elements.drop
        x = v.bits(words, t)
        keep = 1 << (width - 1) | self.elements.kept >> shift & -(1 << max(0, drop - shift))
        high = [b.and_(b.ashr(x, v.const(t, shift)), v.const(t, keep))]
        if self.s.per_word == 2:
            low = b.shl(x, v.const(t, 16 - shift))
            high = [v.bits(self.woven(low, high[0], part), W16) for part in (0, 1)]
        zero = v.const(W16, 0)
        return [v.bits(self.woven(zero, h, part), D8) for h in high for part in (0, 1)]

    def woven(self, x: Any, y: Any, part: int) -> Any:
        """Elements of x and y in turn, from the lower or upper half of each 128-bit lane."""
        count = x.type.count
        lane, half = count // 4, count // 8
        lanes = [lane * u + half * part + n + side for u in range(4) for n in range(half) for side in (0, count)]
        return self.v.shuffle(x, y, lanes)

    def scaled(self, x: Any) -> Any:
        """x brought back among normal numbers, and a little larger than it is: what one side of all products needs."""
        return self.b.fmul(x, self.v.const(D8, NUDGE[True] * 2.0**NEAR))

    def for_a(self, x: Any) -> Any:
        """A decoded vector of A as products need it."""
        return x

    # --- A ------------------------------------------------------------------------------------------------------------
    def decode_a(self, p: Any, pairs: range) -> Iterator[None]:
        """Values, exponents and bit masks of some row pairs of A to the stack, piece by piece."""
        v, b, s = self.v, self.b, self.s
        lanes, size = 16 // s.registers, 2 * s.per_word
        for n in dict.fromkeys(self._image(j)[0] for j in pairs):
            words = take(v, s.by_register, p, s.registers, n * lanes, lanes)
            negative, nonzero = self.masks(words)
            for buffer, mask in ((self.signs, negative), (self.nonzero, nonzero)):
                v.store(b.bitcast(mask, ir.IntType(16 * s.per_word)), buffer.inner, 1, n * size)
            fields = v.bits(self.biased(words, nonzero, self.more[0]), B64)
            for variant, sources in enumerate(self._arrangements()):
                at = 64 * (self.variants * n + variant)
                v.store(v.shuffle(fields, fields, sources), self.fields.inner, 64, at)
            yield
            for i, x in enumerate(self.doubles(words)):
                v.store(self.for_a(x), self.values.inner, 64, self.vectors * n + 64 * i)
            yield

    def _element_a(self, pair: int, row: int, label: Label) -> int:
        """Index of an element in the image of its row pair (or of both row pairs of the image)."""
        r, t, h = label
        return ((4 * pair + t) * self.s.registers + 2 * r + row) * self.s.per_word + h

    def _bytes(self, elements: list[int]) -> list[int]:
        """The bytes of a word of exponents, from a vector of fields."""
        size = 4 // self.s.per_word
        return [size * e + n for e in elements for n in range(4 // len(elements))]

    def _arrangements(self) -> list[list[int]]:
        """Bytes of A's stored exponents: a 128-bit lane is a group's word of row j twice, then of row j + 8 twice."""
        out: list[list[int]] = [[-1] * 64 for _ in range(self.variants)]
        for pair in range(4 // self.s.registers):
            for g, group in enumerate(self.s.groups):
                variant, at = divmod(self._place(pair, g), 64)
                rows = [self._bytes([self._element_a(pair, row, x) for x in group]) for row in (0, 1)]
                out[variant][at : at + 16] = 2 * rows[0] + 2 * rows[1]
        return out

    def _place(self, pair: int, g: int) -> int:
        """Where the exponents of a group are, in bytes from the first of an image: in the lane that they come from."""
        if self.s.registers == 4:
            return 64 * (g // 4) + 16 * (g % 4)
        return 64 * (g % self.variants) + 16 * (2 * pair + g // self.variants)

    def _image(self, j: int) -> tuple[int, int]:
        """(image that holds row pair j, which one of the image's row pairs it is)."""
        return divmod(j, 4 // self.s.registers)

    def field_a(self, j: int, g: int) -> Any:
        """Exponents of group g in rows j and j + 8, for the columns of C's image."""
        v = self.v
        image, within = self._image(j)
        x = v.load(self.fields.outer, vector(I32, 4), 16, image * 64 * self.variants + self._place(within, g))
        return v.bits(v.shuffle(x, x, 4 * list(range(4))), self.s.exponents)

    def value_a(self, j: int, row: int, label: Label) -> Any:
        """An element of row j + 8 * row, in every lane."""
        image, within = self._image(j)
        u, at = divmod(self._element_a(within, row, label), 4 * self.s.per_word)
        x = self.v.load(self.values.outer, F64, 8, image * self.vectors + 64 * (at // 2) + 8 * (2 * u + at % 2))
        return self.v.splat(x, 8)

    # --- B ------------------------------------------------------------------------------------------------------------
    def decode_b(self, p: Any) -> None:
        """Values, exponents and bit masks of B, for the columns of C's image."""
        v, s = self.v, self.s
        count = s.registers // 2
        raw = [take(v, s.by_register, p, count, n * 16 // count, 16 // count) for n in range(2 * count)]
        masks = [self.masks(x) for x in raw]
        self.b_signs, self.b_nonzero = (self._columns([m[i] for m in masks]) for i in (0, 1))
        self.b_values: dict[Label, Any] = {}
        self.b_fields: dict[int, Any] = {}
        for slots, words in zip(self._slots(), self._transposed(raw), strict=True):
            fields = v.bits(self.biased(words, self.masks(words)[1], self.more[1]), B64)
            for g, group in enumerate(s.groups):
                if group[0] in slots:
                    self.b_fields[g] = v.bits(v.shuffle(fields, fields, self._word_b(slots, group)), s.exponents)
            for label, x in zip(slots, self.doubles(words), strict=True):
                self.b_values[label] = self.scaled(x)

    def field_b(self, j: int, g: int) -> Any:
        """Exponents of group g, for rows j and j + 8 and the columns of C's image."""
        return self.b_fields[g]

    def value_b(self, j: int, row: int, label: Label) -> Any:
        """An element of each column, for row j + 8 * row."""
        return self.b_values[label]

    def _word_b(self, slots: list[Label], group: list[Label]) -> list[int]:
        """Bytes of a group's exponents of B: those of columns 2u and 2u + 1 twice, as each meets two rows."""
        return [
            byte
            for u in range(4)
            for column in (0, 1, 0, 1)
            for byte in self._bytes([4 * self.s.per_word * u + 2 * slots.index(label) + column for label in group])
        ]

    def _slots(self) -> list[list[Label]]:
        """Products of each vector of B: eight columns of each."""
        s = self.s
        lanes = [[t] for t in range(4)] if s.registers == 4 else [[0, 1], [2, 3]]
        return [[(r, t, h) for r in range(s.registers // 2) for t in ts for h in range(s.per_word)] for ts in lanes]

    def _transposed(self, raw: list[Any]) -> list[Any]:
        """Sixteen words of elements for each of `_slots`: slot by slot, columns 2u and 2u + 1 in 128-bit lane u."""
        v, s = self.v, self.s
        count = s.registers // 2
        wanted = [[(2 * u + c, *label) for u in range(4) for label in slots for c in (0, 1)] for slots in self._slots()]
        columns = 8 // len(raw)
        pool = [
            (
                v.bits(x, s.element),
                [(columns * n + c, r, t, h) for c in range(columns) for t in range(4)
                 for r in range(count) for h in range(s.per_word)],
            )
            for n, x in enumerate(raw)
        ]  # fmt: skip
        if len(pool) == 4:  # first, halves of the lanes of four columns
            halves = []
            for ts in ((0, 1), (2, 3)):
                for left, right in (pool[:2], pool[2:]):
                    chosen = [x for x in left[1] + right[1] if x[2] in ts]
                    halves.append((self._pick(left, right, chosen), chosen))
            sides = [halves[:2], halves[:2], halves[2:], halves[2:]]
        else:
            sides = [pool, pool]
        return [self._pick(left, right, want) for (left, right), want in zip(sides, wanted, strict=True)]

    def _pick(self, left: tuple[Any, list[Any]], right: tuple[Any, list[Any]], wanted: list[Any]) -> Any:
        known = left[1] + right[1]
        return self.v.shuffle(left[0], right[0], [known.index(x) for x in wanted])

    def _columns(self, masks: list[Any]) -> Any:
        """Bit masks of the image of B as one word a column of C's image, bits in the order of A's masks, both rows."""
        v, b, per_word = self.v, self.b, self.s.per_word
        per_mask, width = 16 * per_word, self.s.registers * 2 * per_word
        t = vector(I32, len(masks))
        x = ir.Constant(t, ir.Undefined)
        for n, mask in enumerate(masks):
            m = b.bitcast(mask, ir.IntType(per_mask))
            x = b.insert_element(x, m if per_mask == 32 else b.zext(m, I32), ir.Constant(I32, n))
        columns = [2 * u + c for u in range(4) for c in (0, 1, 0, 1)]
        x = v.shuffle(x, x, [n * width // per_mask for n in columns])
        x = b.lshr(x, ir.Constant(W16, [n * width % per_mask for n in columns]))
        x = b.and_(x, v.const(W16, (1 << width) - 1))
        for groups in (4, 2, 1):  # spread groups of `per_word` bits to twice the distance
            if groups * per_word >= width:
                continue
            keep = sum(((1 << groups * per_word) - 1) << at for at in range(0, 32, 2 * groups * per_word))
            x = b.and_(b.or_(x, b.shl(x, v.const(W16, groups * per_word))), v.const(W16, keep & 0xFFFFFFFF))
        return b.or_(x, b.shl(x, v.const(W16, per_word)))

    def plus_negatives(self, total: Any, j: int, block: int) -> Any:
        """Numbers, and to each added how many products of one of sixteen results of a block are negative."""
        v, b, s = self.v, self.b, self.s
        bits = ir.IntType(4 * s.registers * s.per_word)
        at = j * bits.width // 8

        def across(buffer: Any) -> Any:
            m = v.load(buffer.outer, bits, 1, at)
            return v.splat(m if bits.width == 32 else b.zext(m, I32), 16)

        row_mask = [0, 0]
        for row in (0, 1):
            for label in s.labels:
                if s.block(label) == block:
                    row_mask[row] |= 1 << self._element_a(0, row, label)
        mask = ir.Constant(W16, 4 * [row_mask[0], row_mask[0], row_mask[1], row_mask[1]])
        differ = b.and_(b.xor(across(self.signs), self.b_signs), across(self.nonzero))
        found = b.and_(differ, b.and_(self.b_nonzero, mask))
        return self.m.plus_bits(total, found, row_mask[0] | row_mask[1])

    def needs_fallback(self) -> Any:
        """Whether the largest byte or field noted is that of Inf and NaN, as i1."""
        v, b, t, largest = self.v, self.b, self.s.element, (1 << self.s.fmt.exponent) - 1
        if self.s.limited_range:
            t, largest = B64, 255
        flags = b.icmp_unsigned("==", v.bits(self.special, t), v.const(t, largest))
        bits = ir.IntType(t.count)
        return b.icmp_unsigned("!=", b.bitcast(flags, bits), ir.Constant(bits, 0))
