"""Sums of products in registers, sixteen at a time: what starts and rounds them, whichever way the products come.

Each product is one multiply-add that rounds down.  In f64 a sum that starts at 1.5 * 2**(52 + E - F) has 2**(E - F) as
its last place, so rounding down cuts a product there; a positive product is cut to its truncation, a negative one ends
one too low, and the count of negative products, added at the start, corrects that.  What counts of the sum is its low
word: an int32 in units of 2**(E - F).  The accumulator joins it as such an integer.  Alignment exponents E are exponent
fields of f32, kept shifted into place.

Panels have starts of their own (`alignment_and_rounding`): their accumulators stay in the tile, scaled.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import F32, I16, I32, VectorBuilder, vector
from nbtc.compiler.cpu.lowering import lowering

BIAS = 127
INFINITE = 0x7F800000  # the exponent field of f32
HALF_LEAST = BIAS - 14  # field of a subnormal f16
V16, W16 = vector(F32, 16), vector(I32, 16)


class RegisterSums:
    """Starts and results of sixteen sums.

    f16_acc: whether results are f16.  fraction: F.  floor: the field of a sum of zeros, as f16 accumulators have it.
    place: the high word of a start in f64, but for E.  All but the first are vectors of i32.
    """

    f16_acc: bool
    fraction: Any
    floor: Any
    place: Any

    def __init__(self, v: VectorBuilder) -> None:
        self.v, self.b, self.m = v, v.b, lowering(v)
        self.largest = v.const(V16, 0.0)

    def c(self, value: int) -> Any:
        """An integer in every lane."""
        return self.v.const(W16, value)

    def alignment(self, e: Any, acc: Any) -> Any:
        """E of the greatest product exponents e and of accumulators (f32)."""
        v, b = self.v, self.b
        bits = v.bits(acc, W16)
        own = b.and_(bits, self.c(INFINITE))
        if self.f16_acc:
            nonzero = b.icmp_unsigned("!=", b.shl(bits, self.c(1)), self.c(0))
            own = b.select(nonzero, v.umax(own, self.c(HALF_LEAST << 23)), b.shl(self.floor, self.c(23)))
        return v.umax(e, own)

    def in_units(self, acc: Any, e: Any) -> Any:
        """Accumulators as integers in units of the last place kept."""
        up = self.b.sub(self.b.shl(self.b.add(self.fraction, self.c(2 * BIAS)), self.c(23)), e)
        return self.m.to_integer(self.b.fmul(acc, self.v.bits(up, V16)))

    def high_words(self, e: Any) -> Any:
        """The other words of starts in f64."""
        return self.b.add(self.b.lshr(e, self.c(3)), self.place)

    def integers(self, sums: list[Any]) -> Any:
        """The low words of sixteen sums in two vectors of f64."""
        lanes = [4 * u + n for u in range(4) for n in (0, 2, 16, 18)]
        first, second = (self.v.bits(x, W16) for x in sums)
        return self.v.shuffle(first, second, lanes)

    def single(self, n: Any, watched: bool) -> Any:
        """Integers as f32, toward zero; odd in the last place where inexact and another rounding follows.

        watched: they may leave 32 bits, as sixteen products of almost 4 and c do.
        """
        v, b = self.v, self.b
        x = self.m.to_float(n)
        if watched:
            self.largest = self.m.opt_barrier(self.m.larger(self.largest, x))
        if self.f16_acc:
            inexact = b.zext(b.icmp_signed("!=", self.m.to_integer(x), n), W16)
            x = v.bits(b.or_(v.bits(x, W16), inexact), V16)
        return x

    def unit(self, e: Any) -> Any:
        """The last place kept, 2**(E - F), as f32."""
        return self.v.bits(self.b.sub(e, self.b.shl(self.fraction, self.c(23))), V16)

    def wrapped(self) -> Any:
        """Lanes (i1) in which a sum may have left 32 bits."""
        return self.b.fcmp_ordered(">=", self.largest, self.v.const(V16, 2.0**31 - 2.0**27))

    def any_lane(self, flags: Any) -> Any:
        """i1: whether one of sixteen is set."""
        return self.b.icmp_unsigned("!=", self.b.bitcast(flags, I16), ir.Constant(I16, 0))
