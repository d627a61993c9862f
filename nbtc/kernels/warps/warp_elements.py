"""Multiplicands of an m16n8 product as vector code reads them, whatever order their vectors have.

A multiplicand becomes an f64 by moving bits: sign, exponent and mantissa go to their places, and the value that stands
there is the number times a fixed power of two (`FloatCode.deficit`); a subnormal becomes a subnormal f64 and needs no
care.  B is multiplied by a power of two that brings it back among the normal numbers, A is left where it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.builder import F64, I8, VectorBuilder, vector
from nbtc.compiler.cpu.lowering import lowering
from nbtc.kernels.float_elements import NUDGE, FloatElements
from nbtc.kernels.warps.float_code import W16, FloatCode, Label

NO_EXPONENT = -4096  # what a zero counts as before the floor
# B is multiplied by 2**NEAR, which makes start values normal numbers: those of f16 have the least exponents, E = -28,
# and with F = 25 the field 1023 + 52 - 25 - 28 + NEAR - 2 * 1008, that is 6.  The largest, of bf16, stay below 400.
NEAR = 1000
B64, D8 = vector(I8, 64), vector(F64, 8)


class ElementPlace(NamedTuple):
    """An element of B: its column, and what `Label` has."""

    column: int
    register: int
    lane: int
    part: int


class WarpElements(ABC):
    """Elements of A and B in vectors; notes whether one of them was Inf or NaN.

    Sums number the vectors of sixteen results (j) as their operands do.  columns: the order of B's columns in a decoded
    vector.  empties: whether the exponent of a sum of nothing but zeros may be wrong, so that such sums are to be told
    from others.
    """

    columns = tuple(range(8))
    empties = True

    def __init__(self, shape: FloatCode, v: VectorBuilder) -> None:
        self.s, self.v, self.b, self.m, self.elements = shape, v, v.b, lowering(v), FloatElements(v, shape.fmt)
        self.special = v.const(shape.element, 0)

    @abstractmethod
    def peaks(self, j: int) -> list[Any]:
        """By block: the largest product exponents of sixteen results; of a narrow range in the upper byte of words."""

    @abstractmethod
    def value_a(self, j: int, part: int, label: Label) -> Any:
        """The elements of A that a product of half of sixteen results has."""

    @abstractmethod
    def value_b(self, j: int, part: int, label: Label) -> Any:
        """Those of B."""

    @abstractmethod
    def plus_negatives(self, total: Any, j: int, block: int) -> Any:
        """Numbers, and to each added how many products of one of sixteen results of a block are negative."""

    @property
    def least(self) -> int:
        """The least exponent of a product that is not zero; of a narrow range, zeros have smaller ones."""
        return 127 + 2 - 2 * self.s.fmt.bias

    @property
    def more(self) -> tuple[int, int]:
        """What is added to exponent fields of A and of B, so that sums are biased exponents of f32."""
        bias = 127 - 2 * self.s.fmt.bias
        return ((bias + 1) // 2, bias // 2) if self.s.limited_range else (0, 0)

    def masks(self, words: Any) -> tuple[Any, Any]:
        """(sign bits, nonzero bits) of sixteen words of elements, as vectors of i1."""
        x = self.v.bits(words, self.s.element)
        return self.elements.negative(x), self.elements.nonzero(x)

    # --- exponents ----------------------------------------------------------------------------------------------------
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

    def needs_fallback(self) -> Any:
        """Whether the largest byte or field noted is that of Inf and NaN, as i1."""
        v, b, t, largest = self.v, self.b, self.s.element, (1 << self.s.fmt.exponent) - 1
        if self.s.limited_range:
            t, largest = B64, 255
        flags = b.icmp_unsigned("==", v.bits(self.special, t), v.const(t, largest))
        bits = ir.IntType(t.count)
        return b.icmp_unsigned("!=", b.bitcast(flags, bits), ir.Constant(bits, 0))

    def larger_sum(self, x: Any, y: Any) -> Any:
        """The maximum of exponents of products."""
        return (self.v.umax if self.s.limited_range else self.v.smax)(x, y)

    def largest(self, xs: list[Any]) -> Any:
        """The maximum of several, by halves."""
        half = len(xs) // 2
        return self.larger_sum(self.largest(xs[:half]), self.largest(xs[half:])) if half else xs[0]

    # --- values -------------------------------------------------------------------------------------------------------
    def high_words(self, words: Any) -> list[Any]:
        """The upper words of the values of sixteen words of elements; of two an element, from the lower and the upper
        halves of 128-bit lanes."""
        v, b, t = self.v, self.b, self.s.element
        width, shift, drop = t.element.width, 11 - self.s.fmt.exponent, self.elements.drop
        x = v.bits(words, t)
        keep = 1 << (width - 1) | self.elements.kept >> shift & -(1 << max(0, drop - shift))
        high = b.and_(b.ashr(x, v.const(t, shift)), v.const(t, keep))
        if self.s.per_word == 1:
            return [high]
        low = b.shl(x, v.const(t, 16 - shift))
        return [v.bits(self.woven(low, high, part), W16) for part in (0, 1)]

    def doubles(self, words: Any) -> list[Any]:
        """Values of sixteen words of elements: vector i holds elements 2i and 2i + 1 of each 128-bit lane."""
        zero = self.v.const(W16, 0)
        return [self.v.bits(self.woven(zero, h, part), D8) for h in self.high_words(words) for part in (0, 1)]

    def woven(self, x: Any, y: Any, part: int) -> Any:
        """Elements of x and y in turn, from the lower or upper half of each 128-bit lane."""
        count = x.type.count
        lane, half = count // 4, count // 8
        lanes = [lane * u + half * part + n + side for u in range(4) for n in range(half) for side in (0, count)]
        return self.v.shuffle(x, y, lanes)

    def scaled(self, x: Any) -> Any:
        """x brought back among normal numbers, and a little larger than it is: what one side of all products needs."""
        return self.b.fmul(x, self.v.const(D8, NUDGE[True] * 2.0**NEAR))

    # --- B ------------------------------------------------------------------------------------------------------------
    def slots(self) -> list[list[Label]]:
        """Products of each vector of B: eight columns of each."""
        s = self.s
        lanes = [[t] for t in range(4)] if s.registers == 4 else [[0, 1], [2, 3]]
        return [[(r, t, h) for r in range(s.registers // 2) for t in ts for h in range(s.per_word)] for ts in lanes]

    def transposed(self, raw: list[tuple[Any, list[ElementPlace]]]) -> list[Any]:
        """Sixteen words of elements for each of `slots`: slot by slot, two of `columns` in each 128-bit lane.

        raw: vectors of sixteen words of elements, and where those are.
        """
        v, s = self.v, self.s
        pairs = [self.columns[2 * u : 2 * u + 2] for u in range(4)]
        wanted = [
            [ElementPlace(c, *label) for pair in pairs for label in slots for c in pair] for slots in self.slots()
        ]
        pool = [(v.bits(x, s.element), places) for x, places in raw]
        if len(pool) == 4:  # first, halves of the lanes of four columns
            halves = []
            for ts in ((0, 1), (2, 3)):
                for left, right in (pool[:2], pool[2:]):
                    chosen = [x for x in left[1] + right[1] if x.lane in ts]
                    halves.append((self._pick(left, right, chosen), chosen))
            sides = [halves[:2], halves[:2], halves[2:], halves[2:]]
        else:
            sides = [pool, pool]
        return [self._pick(left, right, want) for (left, right), want in zip(sides, wanted, strict=True)]

    def _pick(
        self, left: tuple[Any, list[ElementPlace]], right: tuple[Any, list[ElementPlace]], wanted: list[ElementPlace]
    ) -> Any:
        known = left[1] + right[1]
        return self.v.shuffle(left[0], right[0], [known.index(x) for x in wanted])
