"""A and B of a sparse m16n8 product, decoded by vector code: as dense ones of the stored depth, but rows j and j + 8 of
A have their own B, which their metadata chooses.

So B is decoded for each row pair, where it is needed.  A is what is brought back among normal numbers, as it is decoded
once.
"""

from __future__ import annotations

from typing import Any

from nbtc.compiler.builder import I32, VectorBuilder, vector
from nbtc.compiler.cpu.plain_lowering import EVERY_BIT
from nbtc.kernels.warps.float_code import W16, FloatCode, Label
from nbtc.kernels.warps.warp_elements import B64
from nbtc.kernels.warps.warp_operands import WarpOperands
from nbtc.kernels.warps.warp_select import Selection


class SparseOperands(WarpOperands):
    """Decoded A (on the stack) of one warp, and B for each row pair."""

    def __init__(self, shape: FloatCode, v: VectorBuilder) -> None:
        super().__init__(shape, v)
        self.chosen: dict[tuple[int, int], Any] = {}
        self.fields_b: dict[tuple[int, int], Any] = {}
        self.values_b: dict[tuple[int, int], list[Any]] = {}
        self.controls: dict[int, Any] = {}

    def read_b(self, p: Any, a: Any, meta: Any) -> None:
        """Take B and its selection from memory; p, a and meta are the images' addresses."""
        self.a, self.selection = a, Selection(self.v, p, meta, self.s.registers, 2)

    def for_a(self, x: Any) -> Any:
        return self.scaled(x)

    def words_b(self, j: int, q: int) -> Any:
        """What word q of rows j and j + 8 meets, in the order of C's image."""
        if j not in self.controls:
            self.controls[j] = self.selection.controls(16 * j)
        if (j, q) not in self.chosen:
            self.chosen[j, q] = self.selection.chosen(self.controls[j], q)
        return self.chosen[j, q]

    def words_a(self, j: int) -> list[Any]:
        """Words of rows j and j + 8 in the same order."""
        v, n = self.v, self.s.registers
        x = v.load(self.a, vector(I32, 4 * n), 4, 16 * n * j)
        places = [[q % 4 * n + row + 2 * (q // 4) for row in (0, 0, 1, 1)] * 4 for q in range(2 * n)]
        return [v.shuffle(x, x, lanes) for lanes in places]

    def field_b(self, j: int, g: int) -> Any:
        v, s, group = self.v, self.s, self.s.groups[g]
        words = list(dict.fromkeys(_word(label) for label in group))
        for q in words:
            if (j, q) not in self.fields_b:
                x = self.words_b(j, q)
                self.fields_b[j, q] = v.bits(self.biased(x, self.masks(x)[1], self.more[1]), B64)
        lanes = [
            byte
            for n in range(16)
            for byte in self._bytes([16 * s.per_word * words.index(_word(x)) + s.per_word * n + x[2] for x in group])
        ]
        first, last = (self.fields_b[j, words[n]] for n in (0, -1))
        return v.bits(v.shuffle(first, last, lanes), s.exponents)

    def value_b(self, j: int, row: int, label: Label) -> Any:
        v, s, key = self.v, self.s, (j, _word(label))
        if key not in self.values_b:
            x = v.bits(self.words_b(*key), s.element)
            if s.per_word == 2:  # of two columns the first elements, then the second ones
                x = v.shuffle(x, x, [n & -4 | (0, 2, 1, 3)[n & 3] for n in range(32)])
            self.values_b[key] = self.doubles(x)
        return self.values_b[key][s.per_word * row + label[2]]

    def plus_negatives(self, total: Any, j: int, block: int) -> Any:
        v, b, s, t = self.v, self.b, self.s, self.s.element
        left, signs, none = self.words_a(j), v.const(t, 0), v.const(t, 0)
        kept, sign = v.const(t, self.elements.kept), v.const(t, 1 << (t.element.width - 1))
        for q in dict.fromkeys(_word(label) for label in s.labels if s.block(label) == block):
            x, y = v.bits(left[q], t), v.bits(self.words_b(j, q), t)
            nonzero = b.icmp_unsigned("!=", v.umin(b.and_(x, kept), b.and_(y, kept)), none)
            found = b.select(nonzero, b.and_(b.xor(x, y), sign), none)
            signs = b.or_(signs, b.lshr(found, v.const(t, q)))
        return self.m.plus_bits(total, v.bits(signs, W16), EVERY_BIT)


def _word(label: Label) -> int:
    """The word of a row of stored elements that a product belongs to."""
    return 4 * label[0] + label[1]
