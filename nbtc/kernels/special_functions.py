"""The special function unit on bits: f32 words in, f32 words out, one lane or many (numerics/special_functions).

One interpolator serves all functions.  Its sums have up to 43 bits, so they are made in doubles, where every product
and sum is exact: no rounding mode and no order changes a bit, and the conversion to f32 normalises what it cuts.
64-bit integers were rejected: AVX-512 multiplies them in three steps, AVX2 not at all, and normalising them takes a
count of zeros and a shift more.

The unit takes subnormals for zeros.  What PTX adds around it (scaling for subnormals, divisions) is the executor's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import F32, F64, I16, I32, I64, VectorBuilder, like
from nbtc.compiler.cpu.lowering import lowering
from nbtc.numerics.special_functions import FRACTION, Interpolation, Segmented, interpolation

SIGN, ONE_ULP_OF_EXPONENT = 1 << 31, 1 << FRACTION  # an exponent field starts above the fraction
BIAS, INFINITE = 127, 0xFF
INFINITY, NAN = INFINITE << FRACTION, 0x7FFFFFFF
MASK = ONE_ULP_OF_EXPONENT - 1
CUT = -1 << 53 - 24  # a double's bits that f32 keeps


class SpecialFunctions:
    """Emits the functions; x is an i32 or a vector of them."""

    def __init__(self, v: VectorBuilder, x: Any) -> None:
        self.v, self.b, self.x = v, v.b, x
        self.words, self.doubles, self.longs = like(x, I32), like(x, F64), like(x, I64)
        self.sign = self.b.and_(x, self.c(SIGN))
        self.size = self.b.and_(x, self.c(SIGN - 1))
        self.exponent = self.b.lshr(self.size, self.c(FRACTION))
        self.fraction = self.b.and_(x, self.c(MASK))

    def c(self, n: int) -> Any:
        """A word, the same in every lane."""
        return self.v.const(self.words, n - (1 << 32) if n >= 1 << 31 else n)

    def field(self, n: Any) -> Any:
        """An exponent in its place."""
        return self.b.shl(n, self.c(FRACTION))

    # --- the interpolator ---------------------------------------------------------------------------------------------
    def square(self, x: Any) -> Any:
        """Half of the square of 17 bits in units of 2**18, without the partial products below 2**18.

        With x = 2**9 h + l those of h are all there, those of l alone are not, and of h times l those whose bits have a
        place of 9 or more together.  A product's upper half cuts them: 2**p (2**7 l) in units of 2**16.
        """
        b, v = self.b, self.v
        if isinstance(x.type, ir.VectorType) and x.type.count % 16 == 0 and lowering(v).takes_octets:
            return self._square_of_octets(x)
        t = like(x, I16)
        high, low = b.trunc(b.lshr(x, self.c(9)), t), b.shl(b.trunc(x, t), v.const(t, 7))
        found = b.lshr(b.mul(high, high), v.const(t, 1))
        for place in range(1, 8):
            found = b.add(found, self._upper_product(low, b.and_(high, v.const(t, 1 << place))))
        return b.zext(found, self.words)

    def _square_of_octets(self, x: Any) -> Any:
        """As `square`: where bit p of h is set, l >> 9 - p is added, by dot products of four bytes with four bits."""
        b, own = self.b, lowering(self.v)
        low, high = b.and_(x, self.c((1 << 9) - 1)), b.lshr(x, self.c(9))
        found = b.lshr(b.mul(high, high), self.c(1))
        for places in (range(1, 5), range(5, 9)):  # h has no bit 8: the last one adds nothing
            parts = own.octets_from(low, [9 - p for p in places])
            bits = b.and_(own.octets_from(x, [9 + p for p in places]), self.c(0x01010101))
            found = own.octets(found, parts, bits)
        return found

    def _upper_product(self, x: Any, y: Any) -> Any:
        """The upper halves of products of unsigned 16-bit words: one instruction where LLVM sees it."""
        b, wide = self.b, self.words
        product = b.mul(b.zext(x, wide), b.zext(y, wide))
        return b.trunc(b.lshr(product, self.v.const(wide, 16)), x.type)

    def sum(self, row: Interpolation, segment: Any, low: Any) -> Any:
        """C0 + C1 v + C2 sq(v) as a double, exact."""
        c0, c1, c2 = (self.double(x) for x in lowering(self.v).looked_up(row.columns, segment))
        squared = low if row.low == 17 else self.b.shl(low, self.c(17 - row.low))
        found = self._sum(c0, self.v.const(self.doubles, 2.0**row.shift), self.v.const(self.doubles, float(row.start)))
        found = self._sum(c1, self.double(low), found)
        return self._sum(c2, self.double(self.square(squared)), found)

    def double(self, x: Any) -> Any:
        """A signed word as a double."""
        return self.b.sitofp(x, self.doubles)

    def _sum(self, a: Any, b: Any, c: Any) -> Any:
        """a b + c, of which nothing needs rounding: two operations are as good where one would be a call."""
        if lowering(self.v).row.fma:
            return self.v.fma(a, b, c)
        return self.b.fadd(self.b.fmul(a, b), c)

    def cut(self, x: Any) -> Any:
        """A double toward zero to 24 bits, as the word of an f32."""
        b, v = self.b, self.v
        kept = b.and_(v.bits(x, self.longs), v.const(self.longs, CUT))
        return v.bits(b.fptrunc(v.bits(kept, self.doubles), like(x, F32)), self.words)

    def interpolated(self, row: Interpolation, fraction: Any, exponent: Any) -> Any:
        """The value at a fraction times 2**exponent, as a word without regard to where exponents end."""
        b = self.b
        segment, low = b.lshr(fraction, self.c(row.low)), b.and_(fraction, self.c((1 << row.low) - 1))
        return self.raised(self.cut(self.sum(row, segment, low)), b.sub(exponent, self.c(row.point)))

    def raised(self, word: Any, exponent: Any) -> Any:
        """A word's exponent raised."""
        return self.b.add(word, self.field(exponent))

    # --- what is no ordinary number -----------------------------------------------------------------------------------
    def where(self, test: Any, x: Any, otherwise: Any) -> Any:
        """x where a test holds; x may be a number."""
        return self.b.select(test, self.c(x) if isinstance(x, int) else x, otherwise)

    def signed(self, x: Any) -> Any:
        """x with the argument's sign; x may be a number."""
        return self.b.or_(self.sign, self.c(x) if isinstance(x, int) else x)

    @property
    def is_zero(self) -> Any:
        """Zeros, and subnormals, which count as zeros."""
        return self.b.icmp_unsigned("<", self.size, self.c(ONE_ULP_OF_EXPONENT))

    @property
    def is_infinite(self) -> Any:
        return self.b.icmp_unsigned("==", self.size, self.c(INFINITY))

    @property
    def is_nan(self) -> Any:
        return self.b.icmp_unsigned(">", self.size, self.c(INFINITY))

    @property
    def is_negative(self) -> Any:
        return self.b.icmp_signed("<", self.x, self.c(0))

    def normal(self, word: Any) -> Any:
        """+0 for what is too small for a normal number: a word below the least one, or a negative one."""
        tiny = self.b.icmp_signed("<", word, self.c(ONE_ULP_OF_EXPONENT))
        return self.where(tiny, 0, word)

    # --- functions ----------------------------------------------------------------------------------------------------
    def rcp(self) -> Any:
        """1 / x."""
        exponent = self.b.sub(self.c(BIAS), self.exponent)
        found = self.interpolated(interpolation("rcp"), self.fraction, exponent)
        found = self.signed(self.normal(found))
        found = self.where(self.is_infinite, self.sign, found)
        found = self.where(self.is_zero, self.signed(INFINITY), found)
        return self.where(self.is_nan, NAN, found)

    def _root(self, name: str, direction: int) -> Any:
        """A root of x or its inverse: the exponent's lowest bit is the fraction's highest."""
        b = self.b
        half = b.ashr(b.sub(self.exponent, self.c(BIAS)), self.c(1))
        lowest = self.c(ONE_ULP_OF_EXPONENT)  # of a field; it is 0 where e - 127 is odd
        fraction = b.xor(b.and_(self.x, self.c(2 * ONE_ULP_OF_EXPONENT - 1)), lowest)
        found = self.interpolated(interpolation(name), fraction, b.mul(half, self.c(direction)))
        if direction < 0:  # of 4**n it is exact, where the table is not
            power = self.field(b.sub(self.c(BIAS), half))
            found = self.where(b.icmp_unsigned("==", fraction, self.c(0)), power, found)
        return found

    def rsqrt(self) -> Any:
        """1 / sqrt(x)."""
        found = self.where(self.is_infinite, 0, self._root("rsqrt", -1))
        found = self.where(self.is_negative, NAN, found)
        found = self.where(self.is_zero, self.signed(INFINITY), found)
        return self.where(self.is_nan, NAN, found)

    def sqrt(self) -> Any:
        """sqrt(x)."""
        found = self.where(self.is_infinite, INFINITY, self._root("sqrt", 1))
        found = self.where(self.is_negative, NAN, found)
        found = self.where(self.is_zero, self.sign, found)
        return self.where(self.is_nan, NAN, found)

    def ex2(self) -> Any:
        """2**x: x is cut to 23 bits after the point; below zero its fraction is the complement's."""
        b, v = self.b, self.v
        x = v.bits(self.x, like(self.x, F32))
        fixed = v.truncated(b.fmul(x, v.const(x.type, 2.0**FRACTION)))
        whole = b.icmp_unsigned("==", b.and_(fixed, self.c(MASK)), self.c(0))
        below = b.and_(self.is_negative, b.not_(whole))
        fixed = b.add(fixed, self.where(below, -1, self.c(0)))
        exponent = b.ashr(fixed, self.c(FRACTION))
        found = self.interpolated(interpolation("ex2"), b.and_(fixed, self.c(MASK)), exponent)
        found = self.normal(found)
        # beyond these a word of 32 bits would not hold the exponent: 2**128 is infinite, 2**-150 is zero
        found = self.where(b.fcmp_ordered(">=", x, v.const(x.type, 128.0)), INFINITY, found)
        found = self.where(b.fcmp_ordered("<", x, v.const(x.type, -150.0)), 0, found)
        return self.where(self.is_nan, NAN, found)

    def lg2(self) -> Any:
        """log2(x): the fraction of the result plus the exponent; below zero its complement, 2**-36 less."""
        b, v, t = self.b, self.v, self.doubles
        row = interpolation("lg2")
        segment, low = b.lshr(self.fraction, self.c(row.low)), b.and_(self.fraction, self.c((1 << row.low) - 1))
        whole = self.double(b.sub(self.exponent, self.c(BIAS)))
        found = self._sum(whole, v.const(t, 2.0**row.point), self.sum(row, segment, low))
        # a sum has two bits below the 36 that count: floor(y / 4), and if negative -1 - floor(y / 4), cut to 24 bits
        negative = b.fcmp_ordered("<", found, v.const(t, 0.0))
        quarter = b.fmul(found, v.const(t, 0.25))
        size = v.over("fabs", quarter)
        # -1 - floor(-s) is the greatest integer below s
        size = b.fsub(size, b.select(negative, v.const(t, 0.125), v.const(t, 0.0)))
        word = self.cut(v.over("floor", size))
        nothing = b.icmp_unsigned("==", word, self.c(0))
        word = self.where(nothing, 0, self.raised(word, self.c(2 - row.point)))
        found = b.select(negative, b.or_(word, self.c(SIGN)), word)
        found = self.where(b.icmp_unsigned("==", self.x, self.c(BIAS << FRACTION)), 0, found)
        found = self.where(self.is_infinite, INFINITY, found)
        found = self.where(self.is_negative, NAN, found)
        found = self.where(self.is_zero, SIGN | INFINITY, found)
        return self.where(self.is_nan, NAN, found)

    def sin(self) -> Any:
        """sin(x)."""
        return self._circular(0)

    def cos(self) -> Any:
        """cos(x)."""
        return self._circular(1)

    def _circular(self, turn: int) -> Any:
        """sin(x + turn pi / 2): x in quarters of a turn, cut to 23 bits after the point."""
        b, row = self.b, interpolation("sin")
        quarters = self._quarters()
        quadrant = b.add(b.lshr(quarters, self.c(FRACTION)), self.c(turn))
        odd = b.sub(self.c(0), b.and_(quadrant, self.c(1)))
        fraction = b.and_(b.xor(quarters, odd), self.c(MASK))
        sign = b.and_(b.shl(quadrant, self.c(30)), self.c(SIGN))
        if not turn:
            sign = b.xor(sign, self.sign)
        segment, low = b.lshr(fraction, self.c(row.low)), b.and_(fraction, self.c((1 << row.low) - 1))
        word = self.cut(self.sum(row, segment, low))
        nothing = b.icmp_signed("<=", word, self.c(0))  # a sum of zero or below
        found = b.or_(sign, self.where(nothing, 0, self.raised(word, self.c(-row.point))))
        return self.where(b.icmp_unsigned(">=", self.size, self.c(INFINITY)), NAN, found)

    def _quarters(self) -> Any:
        """|x| / (2 pi), toward zero in f32, as quarters of a turn with 23 bits after the point; upper bits are lost."""
        b, v = self.b, self.v
        x = b.fpext(v.bits(self.size, like(self.x, F32)), self.doubles)
        factor = float.fromhex("0x1.45f306p-3")
        turns = self.cut(b.fmul(x, v.const(self.doubles, factor)))  # a double holds the product
        field = b.lshr(turns, self.c(FRACTION))
        fraction = b.or_(b.and_(turns, self.c(MASK)), self.c(ONE_ULP_OF_EXPONENT))
        up = b.sub(field, self.c(BIAS - 2))  # the fraction is in units of 2**-23: times 4 is two places up
        left = b.shl(fraction, v.umin(up, self.c(31)))
        left = self.where(b.icmp_signed(">", up, self.c(31)), 0, left)
        right = b.lshr(fraction, v.umin(b.neg(up), self.c(31)))
        return b.select(b.icmp_signed("<", up, self.c(0)), right, left)

    def tanh(self) -> Any:
        """tanh(x): segments by binade; below 2**-8 x itself, from 8 on 1."""
        b, row = self.b, interpolation("tanh")
        if not isinstance(row, Segmented):
            raise TypeError(f"the segments of {row.table} are one a binade")
        binade = b.sub(self.exponent, self.c(BIAS + row.first))
        place = self.v.umin(binade, self.c(len(row.binades) - 1))
        bits, start = lowering(self.v).looked_up((list(row.binades), list(row.starts)), place)
        moved = b.shl(self.fraction, bits)
        segment = b.add(start, b.lshr(moved, self.c(FRACTION)))
        low = b.lshr(b.and_(moved, self.c(MASK)), self.c(FRACTION - row.low))
        one = self.c(BIAS << FRACTION)
        found = self.v.umin(self.raised(self.cut(self.sum(row, segment, low)), self.c(-row.point)), one)
        found = self.where(b.icmp_signed(">=", binade, self.c(len(row.binades))), one, found)
        found = self.where(b.icmp_signed("<", binade, self.c(0)), self.size, found)
        return self.where(self.is_nan, NAN, self.signed(found))


FUNCTIONS: dict[str, Callable[[SpecialFunctions], Any]] = {
    "rcp": SpecialFunctions.rcp,
    "rsqrt": SpecialFunctions.rsqrt,
    "sqrt": SpecialFunctions.sqrt,
    "ex2": SpecialFunctions.ex2,
    "lg2": SpecialFunctions.lg2,
    "sin": SpecialFunctions.sin,
    "cos": SpecialFunctions.cos,
    "tanh": SpecialFunctions.tanh,
}


def special_function(v: VectorBuilder, name: str, x: Any) -> Any:
    """A function of f32 words x, an i32 or a vector of them; subnormals are zeros, every NaN is 0x7fffffff."""
    return FUNCTIONS[name](SpecialFunctions(v, x))
