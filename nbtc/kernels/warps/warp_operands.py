"""A and B of an m16n8 product, decoded from a warp's [lane][register] image by vector code.

Vectors of B are made to need no permutation later: a 128-bit lane u of every vector belongs to columns 2u and 2u + 1,
as in the image of C.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import F64, I32, VectorBuilder, stack_array, vector
from nbtc.kernels.warps.float_code import W16, FloatCode, Label
from nbtc.kernels.warps.warp_elements import B64, ElementPlace, WarpElements


@dataclass(frozen=True)
class OpaqueBuffer:
    """Memory to be stored to at one address and loaded from at another, which the compiler takes for a different one.

    Else it would see what lies there and replace loads that broadcast, which are free, by permutations, which are not.
    """

    inner: Any
    outer: Any


class WarpOperands(WarpElements):
    """Decoded A (on the stack) and B (in vectors) of one warp."""

    def __init__(self, shape: FloatCode, v: VectorBuilder) -> None:
        super().__init__(shape, v)
        self.variants = len(shape.groups) // shape.registers
        self.vectors = 64 * 2 * shape.per_word  # bytes of decoded values of an image of sixteen words
        images = 2 * shape.registers
        self.values, self.fields = self.buffer(images * self.vectors), self.buffer(images * 64 * self.variants)
        self.signs, self.nonzero = self.buffer(64), self.buffer(64)

    def buffer(self, size: int) -> OpaqueBuffer:
        """Stack memory of `size` bytes."""
        p = stack_array(self.b, size)
        same = ir.InlineAsm(ir.FunctionType(p.type, [p.type]), "", "=r,0")
        return OpaqueBuffer(p, self.v.at(self.b.call(same, [self.v.at(p, size // 2)]), -(size // 2)))

    def for_a(self, x: Any) -> Any:
        """A decoded vector of A as products need it."""
        return x

    # --- A ------------------------------------------------------------------------------------------------------------
    def decode_a(self, p: Any, pairs: range) -> Iterator[None]:
        """Values, exponents and bit masks of some row pairs of A to the stack, piece by piece."""
        v, b, s = self.v, self.b, self.s
        size = 2 * s.per_word
        for n in dict.fromkeys(self._image(j)[0] for j in pairs):
            words = v.load(p, W16, 4, 64 * n)
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
        raw = [v.load(p, W16, 4, 64 * n) for n in range(2 * count)]
        masks = [self.masks(x) for x in raw]
        self.b_signs, self.b_nonzero = (self._columns([m[i] for m in masks]) for i in (0, 1))
        self.b_values: dict[Label, Any] = {}
        self.b_fields: dict[int, Any] = {}
        columns, registers = 4 // count, range(count)
        places = [
            [ElementPlace(columns * n + c, r, t, h) for c in range(columns) for t in range(4) for r in registers
             for h in range(s.per_word)]
            for n in range(2 * count)
        ]  # fmt: skip
        transposed = self.transposed(list(zip(raw, places, strict=True)))
        for slots, words in zip(self.slots(), transposed, strict=True):
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

    # --- products -----------------------------------------------------------------------------------------------------
    def peaks(self, j: int) -> list[Any]:
        """By block: the largest product exponents of a row pair; of a narrow range in the upper byte of each word."""
        v, b, s = self.v, self.b, self.s
        shared = s.shared
        tops: list[Any] = []
        for block in range(1 if shared else s.blocks):
            mine = [g for g, group in enumerate(s.groups) if shared or s.block(group[0]) == block]
            # no carry crosses, as bytes of finite numbers are 79 at most
            tops.append(self.largest([b.add(self.field_a(j, g), self.field_b(j, g)) for g in mine]))
        count = len(s.groups[0])
        if count == 4 or (count == 2 and not (shared and s.blocks == 2)):
            tops = [self._fold(x, 16) for x in tops]
        if shared and s.blocks == 2:
            size = 8 if count == 4 else 16
            found = [b.shl(v.bits(tops[0], W16), v.const(W16, size)), v.bits(tops[0], W16)]
        else:
            found = [v.bits(self._fold(x, 8) if count == 4 else x, W16) for x in tops]
        return found if s.limited_range or count == 1 else [b.ashr(x, v.const(W16, 16)) for x in found]

    def _fold(self, x: Any, shift: int) -> Any:
        """The maximum with what lies `shift` bits below."""
        moved = self.v.bits(self.b.shl(self.v.bits(x, W16), self.v.const(W16, shift)), x.type)
        return self.larger_sum(x, moved)
