"""Sums of a warp's slice, a vector the sixteen rows of one column: alignment before the multiply-adds, rounding after.

Each product is one multiply-add that rounds down (`register_sums` has the argument), in f64 or in f32.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from nbtc.compiler.builder import F32, F64, I32, VectorBuilder, vector
from nbtc.compiler.cpu.plain_lowering import EVERY_BIT
from nbtc.kernels.register_sums import BIAS, INFINITE, V16, W16, RegisterSums
from nbtc.kernels.slices.slice_elements import OCTETS, VECTOR
from nbtc.kernels.slices.slice_operands import SliceOperands, memory_a, memory_b
from nbtc.kernels.slices.slice_shape import ROWS, STEPS


class Begun(NamedTuple):
    """What finishes a sum: alignment exponents, and the high words (f64) or words (f32) of M."""

    e: Any
    high: Any


class SliceSums(RegisterSums):
    """Emits the sums of a tile's columns for decoded operands, B's in one of two places of memory."""

    def __init__(self, v: VectorBuilder, operands: SliceOperands, a: Any) -> None:
        super().__init__(v)
        self.s, self.operands, self.memory = operands.s, operands, a
        self.f16_acc, self.fraction, self.floor = self.s.f16_acc, self.c(self.s.fraction), self.c(self.s.floor + BIAS)
        self.place = self.c((1023 - BIAS + 52 - self.s.fraction << 20) + (1 << 19))
        self.a, self.of_b = memory_a(self.s), memory_b(self.s)
        self.highest, self.lowest = self.c(0), self.c(-1)  # alignment exponents

    def peaks(self, at_b: Any, step: Any, to: Any) -> Iterator[None]:
        """Store the largest exponents of the products of a step's two columns, in the upper two bytes of each word."""
        v, b, s, top = self.v, self.b, self.s, None
        words = v.at(at_b, b.mul(step, v.int(2 * s.depth)))
        for line, n in product(range(s.lines), range(s.depth // 2)):
            left = v.load(self.memory, W16, VECTOR, self.a.size * line + self.a.exponents + VECTOR * n)
            right = v.load(words, I32, 4, self.of_b.size * line + self.of_b.exponents + 4 * n)
            x = v.bits(b.add(left, v.splat(right, ROWS)), OCTETS)  # no carry crosses: sums stay below 256
            top = x if top is None else v.umax(top, x)
            yield
        moved = b.shl(v.bits(top, W16), self.c(16))
        v.store(v.umax(top, v.bits(moved, OCTETS)), to, VECTOR)

    def start(self, at_b: Any, column: int, peaks: Any, acc: Any) -> tuple[list[Any], Begun]:
        """Starts of a column's sums for accumulators (f32); peaks: of its step."""
        v, b, s = self.v, self.b, self.s
        e = b.lshr(peaks, self.c(1)) if column % 2 else b.shl(peaks, self.c(7))
        e = self.alignment(b.and_(e, self.c(INFINITE)), acc)
        self.highest, self.lowest = v.umax(self.highest, e), v.umin(self.lowest, e)
        low = self._plus_negatives(self.in_units(acc, e), at_b, column)
        if not s.in_f64:
            high = b.add(e, self.c((23 - s.fraction << 23) + (1 << 22)))
            return [v.bits(b.add(high, low), V16)], Begun(e, high)
        high = self.high_words(e)
        return [self._woven(low, high, part) for part in (0, 1)], Begun(e, high)

    def _plus_negatives(self, total: Any, at_b: Any, column: int) -> Any:
        """Numbers, and to each added how many products are negative."""
        v, b = self.v, self.b
        for line in range(self.s.lines):
            mine = v.load(self.memory, W16, VECTOR, self.a.size * line + self.a.signs)
            other = v.splat(v.load(at_b, I32, 4, self.of_b.size * line + self.of_b.signs + 4 * column), ROWS)
            total = self.m.plus_bits(total, b.xor(mine, other), EVERY_BIT)
        return total

    def _woven(self, low: Any, high: Any, part: int) -> Any:
        """f64 of low and high words: words 0 and 1, or 2 and 3 of each 128-bit lane."""
        lanes = [4 * u + 2 * part + i + side for u in range(4) for i in (0, 1) for side in (0, 16)]
        return self.v.bits(self.v.shuffle(low, high, lanes), vector(F64, 8))

    def multiply(self, at_b: Any, step: Any, sums: dict[int, list[Any]]) -> Iterator[None]:
        """Add the products of a step to columns' sums, piece by piece."""
        v, b, s, o = self.v, self.b, self.s, self.operands
        element, size = (F64, 8) if s.in_f64 else (F32, 4)
        kind = vector(element, VECTOR // size)
        right_at = v.at(at_b, b.mul(step, v.int(o.step_b)))
        left_at = v.at(self.memory, b.mul(step, v.int(VECTOR * s.parts * s.depth // STEPS)))
        for line, k in product(range(s.lines), range(s.depth // STEPS)):
            mine, other = self.a.size * line, self.of_b.size * line
            left = [v.load(left_at, kind, VECTOR, mine + VECTOR * (s.parts * k + part)) for part in range(s.parts)]
            for column, total in sums.items():
                right = v.splat(v.load(right_at, element, size, other + o.place_b(column, k)), kind.count)
                for part, x in enumerate(left):
                    total[part] = self.m.multiply_add(x, right, total[part])
                yield

    def finish(self, sums: list[Any], begun: Begun) -> Any:
        """Results of a column: f32, or f16 bits."""
        v, b, s = self.v, self.b, self.s
        if s.in_f64:
            x = self.single(self.integers(sums), True)
        else:  # sums of at most 32 products that are not zero, and as many or twice as many units: exact
            x = b.sitofp(b.sub(v.bits(sums[0], W16), begun.high), V16)
        x = b.fmul(x, self.unit(begun.e))
        if s.f16_acc:
            bits = self.m.to_f16(x)
            negative_zero = b.icmp_unsigned("==", bits, v.const(bits.type, 1 << 15))
            return b.select(negative_zero, v.const(bits.type, 0), bits)
        if s.short:
            x = v.bits(b.and_(v.bits(x, W16), self.c(-1 << 10)), V16)
        return x

    def out_of_range(self) -> Any:
        """i1: some row met Inf or NaN, or may have left its range."""
        b = self.b
        bad = b.icmp_unsigned(">", self.highest, self.c(self.s.top << 23))
        if self.s.in_f64:
            bad = b.or_(bad, self.wrapped())
        return self.any_lane(bad)

    def empty(self) -> Any:
        """i1: some sum has no product but zeros, whose exponents count for nothing, and a c below any product."""
        return self.any_lane(self.b.icmp_unsigned("<", self.lowest, self.c(self.s.least << 23)))

    def tiny(self, accumulators: list[Any]) -> Any:
        """i1: some accumulator is not zero, but below any product: no sum without products may have such a c."""
        v, b = self.v, self.b
        low = self.c(-1)
        for x in accumulators:  # a zero less one is the greatest
            low = v.umin(low, b.sub(b.shl(v.bits(x, W16), self.c(1)), self.c(1)))
        return self.any_lane(b.icmp_unsigned("<", low, self.c(self.s.least << 24)))
