"""Sums of a warp's slice, a vector the sixteen rows of one column: alignment before the multiply-adds, rounding after.

Each product is one multiply-add that rounds down (`fused_sum` has the argument); alignment exponents are f32 exponent
fields, kept shifted into place.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.builder import F32, F64, I16, I32, VectorBuilder, vector
from nbtc.compiler.lowering import lowering
from nbtc.kernels.slice_elements import OCTETS, V16, VECTOR, W16
from nbtc.kernels.slice_operands import SliceOperands, memory_a, memory_b
from nbtc.kernels.slice_shape import BIAS, ROWS, STEPS

INFINITE = 0x7F800000  # the exponent field of f32
HALF_LEAST = BIAS - 14  # field of a subnormal f16


class Begun(NamedTuple):
    """What finishes a sum: alignment exponents, and the high words (f64) or words (f32) of M."""

    e: Any
    high: Any


class SliceSums:
    """Emits the sums of a tile's columns for decoded operands, B's in one of two places of memory."""

    def __init__(self, v: VectorBuilder, operands: SliceOperands, a: Any) -> None:
        self.v, self.b, self.s, self.m, self.operands, self.memory = v, v.b, operands.s, lowering(v), operands, a
        self.a, self.of_b = memory_a(self.s), memory_b(self.s)
        self.highest, self.lowest = self.c(0), self.c(-1)  # alignment exponents
        self.largest = v.const(V16, 0.0)

    def c(self, value: int) -> Any:
        """An integer in every lane."""
        return self.v.const(W16, value)

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
        e = b.and_(e, self.c(INFINITE))
        bits = v.bits(acc, W16)
        own = b.and_(bits, self.c(INFINITE))
        if s.f16_acc:
            nonzero = b.icmp_unsigned("!=", b.shl(bits, self.c(1)), self.c(0))
            own = b.select(nonzero, v.umax(own, self.c(HALF_LEAST << 23)), self.c(s.floor + BIAS << 23))
        e = v.umax(e, own)
        self.highest, self.lowest = v.umax(self.highest, e), v.umin(self.lowest, e)
        up = b.sub(self.c(s.fraction + 2 * BIAS << 23), e)
        low = b.add(self.m.to_integer(b.fmul(acc, v.bits(up, V16))), self._negatives(at_b, column))
        if not s.in_f64:
            high = b.add(e, self.c((23 - s.fraction << 23) + (1 << 22)))
            return [v.bits(b.add(high, low), V16)], Begun(e, high)
        high = b.add(b.lshr(e, self.c(3)), self.c((1023 - BIAS + 52 - s.fraction << 20) + (1 << 19)))
        return [self._woven(low, high, part) for part in (0, 1)], Begun(e, high)

    def _negatives(self, at_b: Any, column: int) -> Any:
        """How many products are negative."""
        v, b, total = self.v, self.b, self.c(0)
        for line in range(self.s.lines):
            mine = v.load(self.memory, W16, VECTOR, self.a.size * line + self.a.signs)
            other = v.splat(v.load(at_b, I32, 4, self.of_b.size * line + self.of_b.signs + 4 * column), ROWS)
            total = b.add(total, v.popcount(b.xor(mine, other)))
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
        n = self._integers(sums, begun)
        x = self._single(n)
        x = b.fmul(x, v.bits(b.sub(begun.e, self.c(s.fraction << 23)), V16))
        if s.f16_acc:
            bits = self.m.to_f16(x)
            negative_zero = b.icmp_unsigned("==", bits, v.const(bits.type, 1 << 15))
            return b.select(negative_zero, v.const(bits.type, 0), bits)
        if s.short:
            x = v.bits(b.and_(v.bits(x, W16), self.c(-1 << 10)), V16)
        return x

    def _integers(self, sums: list[Any], begun: Begun) -> Any:
        """Sums in units of the last place kept."""
        v, b = self.v, self.b
        if not self.s.in_f64:
            return b.sub(v.bits(sums[0], W16), begun.high)
        lanes = [4 * u + n for u in range(4) for n in (0, 2, 16, 18)]
        return v.shuffle(v.bits(sums[0], W16), v.bits(sums[1], W16), lanes)

    def _single(self, n: Any) -> Any:
        """Integers as f32, toward zero; odd in the last place where inexact and another rounding follows."""
        v, b = self.v, self.b
        if not self.s.in_f64:  # of at most 32 products that are not zero, and as many or twice as many units: exact
            return b.sitofp(n, V16)
        x = self.m.to_float(n)
        self.largest = self.m.larger(self.largest, x)
        if self.s.f16_acc:
            inexact = b.zext(b.icmp_signed("!=", self.m.to_integer(x), n), W16)
            x = v.bits(b.or_(v.bits(x, W16), inexact), V16)
        return x

    def out_of_range(self) -> Any:
        """i1: some row met Inf or NaN, or may have left its range."""
        b = self.b
        bad = b.icmp_unsigned(">", self.highest, self.c(self.s.top << 23))
        if self.s.in_f64:  # sixteen products of almost 4 and c take more than 32 bits
            bad = b.or_(bad, b.fcmp_ordered(">=", self.largest, self.v.const(V16, 2.0**31 - 2.0**27)))
        return self._any(bad)

    def empty(self) -> Any:
        """i1: some sum has no product but zeros, whose exponents count for nothing, and a c below any product."""
        return self._any(self.b.icmp_unsigned("<", self.lowest, self.c(self.s.least << 23)))

    def tiny(self, accumulators: list[Any]) -> Any:
        """i1: some accumulator is not zero, but below any product: no sum without products may have such a c."""
        v, b = self.v, self.b
        low = self.c(-1)
        for x in accumulators:  # a zero less one is the greatest
            low = v.umin(low, b.sub(b.shl(v.bits(x, W16), self.c(1)), self.c(1)))
        return self._any(b.icmp_unsigned("<", low, self.c(self.s.least << 24)))

    def _any(self, flags: Any) -> Any:
        return self.b.icmp_unsigned("!=", self.b.bitcast(flags, I16), ir.Constant(I16, 0))
