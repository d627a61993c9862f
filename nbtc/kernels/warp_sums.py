"""Sixteen sums at a time of an m16n8 product: rows j and j + 8 in the order of C's image, which is one vector.

Each product is one f64 multiply-add.  A sum that starts at 1.5 * 2**(52 + E - F) has 2**(E - F) as its last place, so
rounding down cuts a product there; a positive product is cut to its truncation, a negative one ends one too low, and
the count of negative products, added at the start, corrects that.  What counts of the sum is its low word: an int32 in
units of 2**(E - F).  The accumulator joins it as such an integer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import F32, I16, I32, VectorBuilder, vector
from nbtc.compiler.lowering import lowering
from nbtc.kernels.float_code import W16, FloatCode
from nbtc.kernels.warp_operands import D8, NEAR, Operands

BIAS = 127
# Alignment exponents above may overflow f32: 17 terms below 4 * 2**E each are below 2**(E + 6.1), and 2**128 is Inf.
TOP = 121 + BIAS
INFINITE = 0x7F800000  # the exponent field of f32
HALF_LEAST = BIAS - 14  # exponent of a subnormal f16
V16 = vector(F32, 16)


class Sums:
    """Start values and results of sums.  Alignment exponents are biased ones of f32.

    limit: the largest alignment exponent that is safe.
    """

    limit: Any

    def __init__(self, shape: FloatCode, v: VectorBuilder, operands: Operands, fraction: Any, floor: Any) -> None:
        self.s, self.v, self.b, self.operands, self.m = shape, v, v.b, operands, lowering(v)
        # the high word of the start, but for E in its exponent field: products are scaled as decoded
        bias = 1023 + 52 - BIAS + NEAR - 2 * shape.deficit
        place = self.b.shl(self.b.sub(v.const(I32, bias), fraction), v.const(I32, 20))
        self.place = v.splat(self.b.or_(place, v.const(I32, 0x80000)), 16)
        self.fraction = v.splat(fraction, 16)
        self.floor = v.splat(self.b.add(floor, v.const(I32, BIAS)), 16)
        self.largest, self.highest = v.const(V16, 0.0), self.c(0)

    def c(self, value: int) -> Any:
        """An integer in every lane."""
        return self.v.const(W16, value)

    def note(self, e: Any) -> None:
        """Remember the largest alignment exponent."""
        self.highest = self.m.opt_barrier(self.v.smax(self.highest, e))

    def peaks(self, j: int) -> list[Any]:
        """By block: the largest product exponents of a row pair, in the upper part of each word."""
        v, b, s, o = self.v, self.b, self.s, self.operands
        shared = s.shared
        tops: list[Any] = []
        for block in range(1 if shared else s.blocks):
            top = None
            for g, group in enumerate(s.groups):
                if shared or s.block(group[0]) == block:
                    x = self._product(o.field_a(j, g), o.field_b(j, g))
                    top = x if top is None else (v.umax if s.limited_range else v.smax)(top, x)
            tops.append(top)
        count = len(s.groups[0])
        if count == 4 or (count == 2 and not (shared and s.blocks == 2)):
            tops = [self._fold(x, 16) for x in tops]
        if shared and s.blocks == 2:
            size = 8 if count == 4 else 16
            return [b.shl(v.bits(tops[0], W16), self.c(size)), v.bits(tops[0], W16)]
        return [v.bits(self._fold(x, 8) if count == 4 else x, W16) for x in tops]

    def _product(self, x: Any, y: Any) -> Any:
        """Exponents of products."""
        return self.v.over("uadd.sat", x, y) if self.s.limited_range else self.b.add(x, y)

    def _fold(self, x: Any, shift: int) -> Any:
        """The maximum with what lies `shift` bits below."""
        moved = self.v.bits(self.b.shl(self.v.bits(x, W16), self.c(shift)), x.type)
        return (self.v.umax if self.s.limited_range else self.v.smax)(x, moved)

    def multiply(self, pairs: range, block: int, starts: list[list[Any]]) -> Iterator[list[list[Any]]]:
        """The sums of several row pairs so far, after each product."""
        o, sums = self.operands, [list(x) for x in starts]
        for label in self.s.labels:
            if self.s.block(label) == block:
                for j, both in zip(pairs, sums, strict=True):
                    for row in (0, 1):
                        both[row] = self.m.multiply_add(o.value_a(j, row, label), o.value_b(j, row, label), both[row])
                yield sums

    def joined(self, low: Any, high: Any) -> list[Any]:
        """Starts of two rows from their low and high words."""
        return [self.v.bits(self.operands.woven(low, high, row), D8) for row in (0, 1)]

    def integers(self, sums: list[Any]) -> Any:
        """The low words of two rows' sums."""
        lanes = [4 * u + n for u in range(4) for n in (0, 2, 16, 18)]
        first, second = (self.v.bits(x, W16) for x in sums)
        return self.v.shuffle(first, second, lanes)

    def single(self, n: Any) -> Any:
        """Integers as f32, toward zero; odd in the last place where inexact and another rounding follows."""
        v, b = self.v, self.b
        x = self.m.to_float(n)
        if len(self.s.labels) // self.s.blocks > 8:  # sixteen products of almost 4 and c take more than 32 bits
            self.largest = self.m.opt_barrier(self.m.larger(self.largest, x))
        if self.s.f16_acc:
            inexact = b.zext(b.icmp_signed("!=", self.m.to_integer(x), n), W16)
            x = v.bits(b.or_(v.bits(x, W16), inexact), V16)
        return x

    def rounded(self, x: Any) -> Any:
        """x in the accumulator's format; every zero is +0."""
        if self.s.f16_acc:
            x = self.m.from_f16(self.m.to_f16(x))
        return self.m.positive_zero(x)

    def own(self, acc: Any) -> Any:
        """Exponent fields of accumulators, where f32 has them."""
        return self.b.and_(self.v.bits(acc, W16), self.c(INFINITE))

    def needs_fallback(self) -> Any:
        """Whether a sum met Inf or NaN, or may have left its range."""
        b = self.b
        too_large = b.icmp_signed(">", self.highest, self.limit)
        wrapped = b.fcmp_ordered(">=", self.largest, self.v.const(V16, 2.0**31 - 2.0**27))
        return b.icmp_unsigned("!=", b.bitcast(b.or_(too_large, wrapped), I16), ir.Constant(I16, 0))


class LimitedRange(Sums):
    """Multiplicands of few binades: every scale is a normal f32, and exponents stay where f32 has them."""

    limit = ir.Constant(W16, [TOP << 23] * 16)

    def start(self, j: int, block: int, peak: Any, acc: Any) -> tuple[list[Any], list[Any]]:
        """(two rows' starts, what `finish` needs) for accumulators acc."""
        v, b, s = self.v, self.b, self.s
        e = b.and_(b.lshr(peak, self.c(1)), self.c(INFINITE))
        least = BIAS + 2 - 2 * s.fmt.bias
        empty = b.icmp_unsigned("<", e, self.c(least << 23))  # no product but zeros: the sum is the accumulator
        own = self.own(acc)
        if s.f16_acc:
            nonzero = b.icmp_unsigned("!=", b.shl(v.bits(acc, W16), self.c(1)), self.c(0))
            own = b.select(nonzero, v.umax(own, self.c(HALF_LEAST << 23)), b.shl(self.floor, self.c(23)))
        e = v.umax(e, own)
        self.note(e)
        up = b.sub(b.shl(b.add(self.fraction, self.c(2 * BIAS)), self.c(23)), e)
        cut = self.m.to_integer(b.fmul(acc, v.bits(up, V16)))
        low = b.add(cut, self.operands.negatives(j, block))
        return self.joined(low, b.add(b.lshr(e, self.c(3)), self.place)), [e, empty, acc]

    def finish(self, sums: list[Any], start: list[Any]) -> Any:
        """Accumulators after the sums."""
        b, (e, empty, acc) = self.b, start
        down = self.v.bits(b.sub(e, b.shl(self.fraction, self.c(23))), V16)
        x = b.fmul(self.single(self.integers(sums)), down)
        if self.s.f16_acc:
            return self.rounded(b.select(empty, acc, x))
        return b.select(empty, self.rounded(acc), x)


class FullRange(Sums):
    """Multiplicands with the exponents of f32: alignment exponents are signed and scaling is an instruction."""

    limit = ir.Constant(W16, [TOP] * 16)

    def start(self, j: int, block: int, peak: Any, acc: Any) -> tuple[list[Any], list[Any]]:
        """(two rows' starts, what `finish` needs) for accumulators acc."""
        v, b, s = self.v, self.b, self.s
        if len(s.groups[0]) > 1:
            peak = b.ashr(peak, self.c(16))
        field = v.umax(b.lshr(self.own(acc), self.c(23)), self.c(1))
        zero = b.icmp_unsigned("==", b.shl(v.bits(acc, W16), self.c(1)), self.c(0))
        e = v.smax(v.smax(b.add(peak, self.c(BIAS - 2 * s.fmt.bias)), self.floor), b.select(zero, self.floor, field))
        self.note(e)
        up, down = self.m.powers(b.sub(b.add(self.fraction, self.c(BIAS)), e))
        low = b.add(self.m.to_integer(self.m.scaled(acc, up)), self.operands.negatives(j, block))
        return self.joined(low, b.add(b.shl(e, self.c(20)), self.place)), [down]

    def finish(self, sums: list[Any], start: list[Any]) -> Any:
        """Accumulators after the sums."""
        return self.rounded(self.m.scaled(self.single(self.integers(sums)), start[0]))
