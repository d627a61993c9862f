"""Elements of a float format in vectors, and their bits taken apart: what every schedule that knows its format uses.

Zeros become tiny numbers of their sign: below every last place that is kept, but cut as their signs say, so that counts
of negative products need not leave them out.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import F32, I16, I32, VectorBuilder, vector
from nbtc.compiler.cpu.lowering import lowering
from nbtc.formats.table import Format

TINY = 1 << 23  # the f32 bits of 2**-126, in place of zero
# By whether sums are of f64: factors of one side of all products that make negative ones end one unit below their
# truncation, and no positive one: 1 + 2**-s with s from F + 2 (27; 15 for the fp8 units' F = 13) and the bits of a
# product (22; 8), up to what leaves the multiplicand exact (53 - 11; 24 - 4).  docs/numerics.md has the proof.
NUDGE = {True: 1 + 2.0**-30, False: 1 + 2.0**-18}


def bias_difference(fmt: Format) -> int:
    """Binades by which `FloatElements.values` falls short of the true values."""
    return 15 - fmt.bias if fmt.exponent <= 5 else 0


class FloatElements:
    """Vector code that takes the bits of one format apart; x is always a vector of its elements."""

    def __init__(self, v: VectorBuilder, fmt: Format) -> None:
        self.v, self.b, self.f, self.m = v, v.b, fmt, lowering(v)
        self.drop = fmt.bits - 1 - fmt.exponent - fmt.mantissa  # ignored low bits (tf32)
        self.shift = fmt.mantissa + self.drop
        self.kept = (1 << (fmt.bits - 1)) - (1 << self.drop)  # the bits of a magnitude

    def of(self, size: int) -> Any:
        """The type of the elements in `size` bytes."""
        return vector(ir.IntType(self.f.bits), 8 * size // self.f.bits)

    def c(self, x: Any, value: int) -> Any:
        """A constant of x's type."""
        return self.v.const(x.type, value)

    def magnitude(self, x: Any) -> Any:
        """x without its sign and what is ignored."""
        return self.b.and_(x, self.c(x, self.kept))

    def zero(self, x: Any) -> Any:
        """Which elements are zeros."""
        return self.b.icmp_unsigned("==", self.magnitude(x), self.c(x, 0))

    def nonzero(self, x: Any) -> Any:
        """Which are not."""
        return self.b.icmp_unsigned("!=", self.magnitude(x), self.c(x, 0))

    def special(self, x: Any) -> Any:
        """Which elements, or magnitudes, are Inf or NaN."""
        return self.b.icmp_unsigned(">=", self.magnitude(x), self.c(x, self.f.special << self.drop))

    def negative(self, x: Any) -> Any:
        """Which elements have a sign."""
        return self.b.icmp_signed("<", x, self.c(x, 0))

    def field(self, x: Any) -> Any:
        """Exponent field; that of a subnormal is 1."""
        return self.v.umax(self.b.lshr(self.magnitude(x), self.c(x, self.shift)), self.c(x, 1))

    def significand(self, x: Any) -> Any:
        """Significand as an integer, hidden bit included."""
        b, one = self.b, self.c(x, 1 << self.shift)
        return b.sub(b.add(self.magnitude(x), one), b.shl(self.field(x), self.c(x, self.shift)))

    def f16_bits(self, x: Any) -> Any:
        """f16 bits of the same fields, 2**-bias_difference of the true values; for at most five exponent bits."""
        if self.f.bits == 16:
            return x
        b, v, t = self.b, self.v, vector(I16, x.type.count)
        moved = b.shl(b.zext(self.magnitude(x), t), v.const(t, 10 - self.f.mantissa))  # f16 has 10 mantissa bits
        return b.or_(moved, b.and_(b.sext(x, t), v.const(t, -(1 << 15))))

    def values(self, x: Any) -> Any:
        """Values as f32, 2**-bias_difference of the true ones."""
        b, v, n = self.b, self.v, x.type.count
        if self.f.exponent <= 5:
            return self.m.from_f16(self.f16_bits(x))
        words = vector(I32, n)
        kept = x if self.f.bits == 32 else b.shl(b.zext(x, words), v.const(words, 32 - self.f.bits))
        return v.bits(b.and_(kept, v.const(words, -(1 << (23 - self.f.mantissa)))), vector(F32, n))

    def with_tiny_zeros(self, x: Any, values: Any) -> Any:
        """The values of x, the zeros among them tiny."""
        b, v, words = self.b, self.v, vector(I32, x.type.count)
        marks = b.select(self.zero(x), v.const(words, TINY), v.const(words, 0))
        return v.bits(b.or_(v.bits(values, words), marks), values.type)
