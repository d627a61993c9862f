"""A fused sum, but for its multiply-adds: alignment exponents and start values before them, rounding after them.

Two ways, the same bits.  `LimitedRange` is for operands whose exponents span few binades (every f16 and fp8, and most
bf16 and tf32 data): accumulators live in the tile scaled by 2**-x, so that every exponent field stays in range and
alignment is an integer addition to the field.  `FullRange` takes every exponent, at twice the operations: 16-bit
exponents, and scalings with subnormal and overflow handling.

All of it runs where sums round down (`rounding`): in that mode or, since no sum falls below zero while M is in it, in
the one that rounds toward zero (`SumShape.mode`).  What has to be rounded toward zero is a magnitude in the first, and
has its sign in the second; scalings are exact; conversions to integers truncate in every mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nbtc.compiler.builder import F32, I1, I8, I16, I32, TO_NEAREST, VectorBuilder, vector
from nbtc.compiler.cpu.float_mode import DOWN, TOWARD_ZERO
from nbtc.compiler.cpu.lowering import lowering
from nbtc.compiler.cpu.processors import Processor

BIAS = 127
HALF = 1 << 22  # below an exponent field of f32: the half of M = 1.5 * 2**p * q
SIGN = -(1 << 31)
FOURTEEN = -(1 << 10)  # the bits of an f32 with 14 significand bits
# how far a wrapped 32-bit sum can lie from the end of its range: 16 products below 4 * 2**25 and c below 2 * 2**25 sum
# to less than 2**31 + 2**26
WRAP_MARGIN = 1 << 26
# narrow: exponent field of a sum of zeros.  Operands span 37 binades each, and the field of the largest product is
# F + 127: the least real one is 127 + 13 - 74 = 66.  A sum of zeros and c = 0 must still be scaled up by a normal
# 2**(F - E) and down again: any field from F + 1 on does.
FLOOR_FIELD = 50


def sign_bytes(block: int, target: Processor | None = None) -> int:
    """Size of a column's sign word, a bit for each product: a byte where they fit in one, else 32 bits.

    target: the processor, where exponents lie by turns or signs in planes.  Where no instruction counts bits, a table
    does: four of a column have a byte.  Else two chunks of columns share a 32-bit word where two fit.  A row's word
    always has 32 bits: a smaller word stands there several times.
    """
    if target is not None and target.nibbles:
        return block // 4
    if target is not None and target.counts and 8 < block <= 16:
        return 2
    return 1 if block <= 8 else 4


@dataclass(frozen=True)
class SumShape:
    """Compile-time parameters of a micro-kernel.

    in_f64: f64 elements (else f32).  block: products a sum.  fraction: F.  out: rounding.  full_range: any exponent
    (`FullRange`).  checked: a sum that could leave 32 bits flags its tile.  from_zero: the accumulator starts at zero,
    not in the tile.  each_watched: results that overflow are noted one by one; else the caller looks at the last ones,
    since an Inf in the tile stays one (`LimitedRange`: 2**128 times anything).  by_turns: exponents of B lie as
    `ByTurns` takes them.  emulated: tiles are added to others.  planes: signs of B lie as bytes of four products of a
    column, where exponents don't lie by turns.
    """

    target: Processor
    in_f64: bool
    block: int
    fraction: int
    out: str
    full_range: bool
    checked: bool
    from_zero: bool = False
    each_watched: bool = True
    by_turns: bool = False
    emulated: bool = False
    planes: bool = False

    @property
    def key(self) -> str:
        """Tells functions of different shapes apart."""
        parts = (self.target.name, self.in_f64, self.block, self.fraction, self.out, self.full_range, self.checked,
                 self.from_zero, self.each_watched, self.by_turns, self.emulated, self.planes)  # fmt: skip
        return "_".join(str(int(x) if isinstance(x, bool) else x) for x in parts)

    @property
    def parts(self) -> int:
        """Vectors of elements that hold as many columns as a vector of 32-bit words (a chunk)."""
        return 2 if self.in_f64 else 1

    @property
    def long_block(self) -> bool:
        """True where sums of ordinary significands can leave 32 bits, so that each is looked at."""
        return self.in_f64 and self.block > 16

    @property
    def f16_acc(self) -> bool:
        """True where results are f16."""
        return self.out == "rne11"

    @property
    def kept(self) -> int:
        """The bits of an f32 that results have, as the unit keeps no more."""
        return FOURTEEN if self.out == "rz14" else -1

    @property
    def exact(self) -> bool:
        """True where a sum in f32 less the M that it tells is the result, but for bits that are cut."""
        return self.target.toward_zero and not self.in_f64 and not self.full_range

    @property
    def mode(self) -> str:
        """How sums are rounded."""
        return TOWARD_ZERO if self.target.toward_zero else DOWN

    @property
    def signed(self) -> bool:
        """True where sums are rounded with their signs; else their magnitudes are."""
        return self.target.rounds or self.target.toward_zero

    @property
    def exponent_bytes(self) -> int:
        """Size of a stored exponent."""
        return 2 if self.full_range else 1

    @property
    def sign_bytes(self) -> int:
        """Size of a column's sign word."""
        return sign_bytes(self.block, self.target if self.by_turns or self.planes else None)

    @property
    def signs_by_turns(self) -> bool:
        """True where a word has sign words, or the counts made of them, of several columns."""
        return self.by_turns and (self.target.dots or self.sign_bytes == 2)

    @property
    def tiny_zeros(self) -> bool:
        """True where zeros of the tile are a tiny number (`ByDots`)."""
        return self.by_turns and self.target.dots and self.in_f64 and not self.emulated

    @property
    def nibbles(self) -> bool:
        """True where signs of four products of a column make a byte, which a table counts."""
        return (self.signs_by_turns or self.planes) and self.target.nibbles

    @property
    def counted(self) -> bool:
        """True where negative products are counted in bytes, all columns of a row together."""
        return self.sign_bytes == 1 or self.nibbles

    @property
    def watched(self) -> bool:
        """True where a result can overflow within the kernel."""
        return self.full_range or (self.each_watched and self.f16_acc)

    @property
    def magic_shift(self) -> int:
        """Field of M minus field of the alignment exponent, in the units of the high half (f64) or of the word."""
        return 1023 - BIAS + 52 - self.fraction if self.in_f64 else 23 - self.fraction


class AlignmentAndRounding:
    """What both ways share.  Alignment exponents are f32 exponent fields, kept shifted into place (full range: not).

    start_fraction: the bits of M's fraction, in f64.
    """

    start_fraction = 1 << 51

    def __init__(self, v: VectorBuilder, shape: SumShape, splats: dict[str, Any]) -> None:
        self.v, self.b, self.s = v, v.b, shape
        self.integers, self.floats = vector(I32, shape.target.lanes), vector(F32, shape.target.lanes)
        self.floor, self.least, self.scale, self.reference = (
            splats[k] for k in ("floor", "least", "scale", "reference")
        )
        self.one = self.c(1)
        if shape.f16_acc and shape.target.rounds and not shape.target.two_ports:
            # LLVM would make comparisons of operations with a 1 that it knows, which take a multiplier on Zen
            self.one = lowering(v).in_order([self.one])[0]

    def c(self, value: int) -> Any:
        """An integer constant in every lane."""
        return self.v.const(self.integers, value)

    def power(self, n: Any) -> Any:
        """2**n as a normal f32."""
        b = self.b
        return self.v.bits(b.shl(b.add(n, self.c(BIAS)), self.c(23)), self.floats)

    def magnitude(self, n: Any) -> Any:
        """The sum's magnitude as f32: toward zero, or (before a rounding to f16) odd in the last place when inexact."""
        v, b = self.v, self.b
        size = v.over("abs", n, v.const(I1, 0))
        f = b.sitofp(size, self.floats)
        if not self.s.f16_acc:
            return f
        inexact = b.zext(b.icmp_signed("!=", v.truncated(f), size), self.integers)
        return v.bits(b.or_(v.bits(f, self.integers), inexact), self.floats)

    def odd(self, n: Any) -> Any:
        """The sum as f32 with its sign, odd in the last place when inexact."""
        v, b = self.v, self.b
        f = self.single(n)
        bits = v.bits(f, self.integers)
        if self.s.target.two_ports:
            inexact = b.icmp_signed("!=", v.truncated(f), n)
            return v.bits(v.or_where(inexact, bits, self.c(1)), self.floats)
        return v.bits(b.or_(bits, v.umin(b.xor(v.truncated(f), n), self.one)), self.floats)

    def single(self, n: Any) -> Any:
        """The sum as f32 toward zero, where an instruction or the mode says so."""
        return self.v.to_float_rz(n) if self.s.target.rounds else self.b.sitofp(n, self.floats)

    def signed(self, x: Any, n: Any) -> Any:
        """A result's magnitude with the sign of the sum n: +0 where n is 0, or where an f16 underflows."""
        v, b = self.v, self.b
        sign = b.and_(n, self.c(SIGN))
        bits = v.bits(x, self.integers)
        if self.s.f16_acc or self.s.full_range:
            sign = b.select(b.icmp_signed("!=", bits, self.c(0)), sign, self.c(0))
        return v.bits(b.or_(bits, sign), self.floats)

    def to_f16(self, x: Any) -> Any:
        """A magnitude rounded to f16, as f32."""
        return self.v.round_to_f16(x, native=self.s.target.to_f16)

    def fourteen(self, x: Any) -> Any:
        """The bits that results have."""
        if self.s.kept == -1:
            return x
        return self.v.bits(self.b.and_(self.v.bits(x, self.integers), self.c(self.s.kept)), self.floats)

    def added(self, c: Any, x: Any) -> Any:
        """c + x of the tile by one IEEE addition, in the mode that rounds to nearest."""
        b = self.b
        y = b.fadd(c, x)
        if not self.s.f16_acc:
            return y
        bits = self.v.bits(y, self.integers)
        size = self.v.bits(b.and_(bits, self.c(0x7FFFFFFF)), self.floats)
        size = self.to_f16(b.fmul(size, self.power(self.scale)))
        return self.signed(b.fmul(size, self.power(b.neg(self.scale))), bits)

    def watch(self, flag: Any, x: Any) -> None:
        """Keep the largest magnitude where a result can overflow: at the top of the range its tile must be redone.

        Narrow f32 accumulators cannot: operands and initial accumulators were checked while packing.
        """
        if not self.s.watched:
            return
        v, b = self.v, self.b
        magnitude = b.and_(v.bits(x, self.integers), self.c(0x7FFFFFFF))
        v.store(v.umax(v.load(flag, self.integers, 4), magnitude), flag, 4)


class LimitedRange(AlignmentAndRounding):
    """Exponents in bytes; a byte is the field of a product's exponent.

    below: what an alignment exponent has below its field.
    """

    below = 0

    def finish_maxima(self, best: Any) -> Any:
        """Byte maxima: columns without a product that counts get the floor."""
        v, b = self.v, self.b
        least = b.trunc(b.extract_element(self.reference, v.const(I32, 0)), I8)
        real = b.icmp_unsigned(">=", best, v.splat(least, best.type.count))
        return b.select(real, best, v.const(best.type, FLOOR_FIELD))

    def alignment(self, maxima: Any, acc: Any) -> Any:
        v, b, lanes = self.v, self.b, self.s.target.lanes
        e = b.shl(b.zext(v.load(maxima, vector(I8, lanes), lanes), self.integers), self.c(23))
        if self.s.f16_acc:
            e = v.umax(e, b.shl(self.floor, self.c(23)))
        if self.s.from_zero:
            return e
        own = b.and_(acc, self.c(0x7F800000))
        # subnormals of f16 have fields 103 - x to 112 - x: twice as much is at least 113 - x, `least`, where x <= 93;
        # narrow ranges have x <= 60 - F, since exponents of their largest products are at most 60
        if self.s.f16_acc:
            own = v.umax(own, v.umin(b.add(own, own), b.shl(self.least, self.c(23))))
        return v.umax(e, own)

    def truncated(self, acc: Any, e: Any) -> Any:
        v, b = self.v, self.b
        up = b.sub(self.c(((self.s.fraction + BIAS) << 23) + self.below), e)
        return v.truncated(v.bits(b.add(acc, up), self.floats))

    def magic(self, e: Any) -> Any:
        b, s = self.b, self.s
        if s.in_f64:
            return b.add(b.lshr(e, self.c(3)), self.c((s.magic_shift << 20) + (1 << 19)))
        return b.add(e, self.c((s.magic_shift << 23) + HALF))

    def round(self, n: Any, e: Any) -> Any:
        v, b = self.v, self.b
        if self.s.f16_acc:  # at the true scale, then back to the tile's
            less = b.sub(b.shl(b.sub(self.scale, self.c(self.s.fraction)), self.c(23)), self.c(self.below))
            down = v.bits(b.add(e, less), self.floats)
            if self.s.signed:
                return self.f16_of_the_tile(b.fmul(self.odd(n), down))
            back = self.power(b.neg(self.scale))
            return self.signed(b.fmul(self.to_f16(b.fmul(self.magnitude(n), down)), back), n)
        down = b.sub(e, self.c((self.s.fraction << 23) + self.below))
        if self.s.signed:
            return self.fourteen(b.fmul(self.single(n), v.bits(down, self.floats)))
        return self.signed(self.fourteen(b.fmul(self.magnitude(n), v.bits(down, self.floats))), n)

    def start_of(self, n: Any) -> Any:
        """M of a sum in f32, which lies less than `HALF` from it and so has its exponent field."""
        b = self.b
        return b.or_(b.and_(n, self.c(~0 << 23)), self.c(HALF))

    def round_exact(self, x: Any) -> Any:
        """A sum that f32 holds, scaled as the tile is."""
        if not self.s.f16_acc:
            return x
        return self.f16_of_the_tile(self.b.fmul(x, self.power(self.scale)))

    def f16_of_the_tile(self, x: Any, sign: int = 1) -> Any:
        """sign * x rounded to f16 and scaled as the tile is; the sum with +0 makes -0 to +0, not rounded down."""
        back = self.power(self.b.neg(self.scale))
        back = back if sign > 0 else self.b.fneg(back)
        if not self.s.target.rounds:
            return self.v.fma(self.to_f16(x), back, self.zero)
        return self.v.fma512(self.to_f16(x), back, self.zero, TO_NEAREST)

    @property
    def zero(self) -> Any:
        """What the tile has for it."""
        return self.v.const(self.floats, 0.0)


class FullRange(AlignmentAndRounding):
    """Exponents in 16 bits, biased so that a sum with a zero operand stays below 0x4000; true scale in the tile."""

    def finish_maxima(self, best: Any) -> Any:
        return best

    def scaled(self, x: Any, n: Any) -> Any:
        """x * 2**n rounded down, also where that is subnormal or too large."""
        v, b = self.v, self.b
        if self.s.target.scale:
            return v.scalef512(x, b.sitofp(n, self.floats))
        part = b.ashr(n, self.c(1))  # |n| <= 254: two normal factors, of which one at most rounds
        return b.fmul(b.fmul(x, self.power(part)), self.power(b.sub(n, part)))

    def alignment(self, maxima: Any, acc: Any) -> Any:
        v, b, lanes = self.v, self.b, self.s.target.lanes
        raw = b.zext(v.load(maxima, vector(I16, lanes), lanes), self.integers)
        real = b.icmp_unsigned(">=", raw, self.c(0x4000))
        e = v.smax(b.select(real, b.add(raw, self.reference), self.floor), self.floor)
        if self.s.from_zero:
            return e
        field = v.umax(b.and_(b.lshr(acc, self.c(23)), self.c(255)), self.least)
        zero = b.icmp_unsigned("==", b.shl(acc, self.c(1)), self.c(0))
        return v.smax(e, b.select(zero, self.floor, field))

    def truncated(self, acc: Any, e: Any) -> Any:
        up = self.b.sub(self.c(self.s.fraction + BIAS), e)
        return self.v.truncated(self.scaled(self.v.bits(acc, self.floats), up))

    def magic(self, e: Any) -> Any:
        b, field = self.b, 20 if self.s.in_f64 else 23
        return b.add(b.shl(e, self.c(field)), self.c((self.s.magic_shift << field) + (1 << (field - 1))))

    def round(self, n: Any, e: Any) -> Any:
        down = self.b.sub(e, self.c(self.s.fraction + BIAS))
        x = self.fourteen(self.scaled(self.magnitude(n), down))
        return self.signed(self.to_f16(x) if self.s.f16_acc else x, n)
