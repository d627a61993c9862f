"""Bookkeeping of a fused sum: alignment exponents and start values before the multiply-adds, rounding after them.

Two ways, the same bits.  `Narrow` is for operands whose exponents span few binades (every f16 and fp8, and most bf16
and tf32 data): accumulators live in the tile scaled by 2**-x, so that every exponent field stays in range and alignment
is an integer addition to the field.  `Wide` takes every exponent, at twice the operations: 16-bit exponents, VSCALEF
with its subnormal and overflow handling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nbtc.compiler.builder import F16, F32, I8, I16, I32, VectorBuilder, vector

CHUNK = 16  # columns that share one 32-bit vector
IV, FV = vector(I32, CHUNK), vector(F32, CHUNK)
BIAS = 127
# how far a wrapped 32-bit sum can lie from the end of its range (F = 25, 16 products and c)
WRAP_MARGIN = 1 << 26
FLOOR_FIELD = 50  # narrow: exponent field of a sum of zeros; far below every real one, far above what 2**-126 can reach


@dataclass(frozen=True)
class Shape:
    """Compile-time parameters of a micro-kernel.

    wide: f64 elements (else f32).  block: products a sum.  fraction: F.  out: rounding.  far: any exponent (`Wide`).
    checked: a sum that could leave 32 bits flags its tile.  from_zero: the accumulator starts at zero, not in the tile.
    add: the result is added to a second tile by one IEEE addition.  each: results that overflow are noted one by one;
    else the caller looks at the last ones, since an Inf in the tile stays one (`Narrow`: 2**128 times anything).
    """

    wide: bool
    block: int
    fraction: int
    out: str
    far: bool
    checked: bool
    from_zero: bool = False
    add: bool = False
    each: bool = True

    @property
    def chunks(self) -> int:
        """Chunks of a register tile: its accumulators fill 16 of the 32 vector registers."""
        return 2 if self.wide else 4

    @property
    def passes(self) -> int:
        """Register tiles that cover a panel of 64 columns."""
        return 4 // self.chunks

    @property
    def many(self) -> bool:
        """True where sums of ordinary significands can leave 32 bits, so that each is looked at."""
        return self.wide and self.block > 16

    @property
    def deferred(self) -> bool:
        """True where a sum waits in memory: f32 tiles rounded to f32 at once save a store, others lack registers."""
        return self.wide or self.out == "rne11"

    @property
    def exponent_bytes(self) -> int:
        """Size of a stored exponent."""
        return 2 if self.far else 1

    @property
    def watched(self) -> bool:
        """True where a result can overflow within the kernel."""
        return self.far or (self.each and self.out == "rne11")

    @property
    def magic_shift(self) -> int:
        """Field of M minus field of the alignment exponent, in the units of the high half (f64) or of the word."""
        return 1023 - BIAS + 52 - self.fraction if self.wide else 23 - self.fraction


class Books:
    """What both ways share.  Alignment exponents are f32 exponent fields, kept shifted into place (`far`: not)."""

    def __init__(self, v: VectorBuilder, shape: Shape, splats: dict[str, Any]) -> None:
        self.v, self.b, self.s = v, v.b, shape
        self.floor, self.least, self.scale, self.reference = (
            splats[k] for k in ("floor", "least", "scale", "reference")
        )

    def c(self, value: int) -> Any:
        """An integer constant in every lane."""
        return self.v.const(IV, value)

    def to_half(self, x: Any) -> Any:
        """x rounded to f16 when the accumulator is f16."""
        if self.s.out != "rne11":
            return x
        return self.b.fpext(self.b.fptrunc(x, vector(F16, CHUNK)), FV)

    def odd(self, n: Any) -> Any:
        """The sum as f32: toward zero, or (before a rounding to f16) odd in the last place when inexact."""
        v, b = self.v, self.b
        f = v.to_float_rz(n)
        if self.s.out != "rne11":
            return f
        inexact = b.zext(b.icmp_signed("!=", b.fptosi(f, IV), n), IV)
        return v.bits(b.or_(v.bits(f, IV), inexact), FV)

    def fourteen(self, x: Any) -> Any:
        """The upper 14 significand bits when the unit keeps no more."""
        if self.s.out != "rz14":
            return x
        return self.v.bits(self.b.and_(self.v.bits(x, IV), self.c(0xFFFFFC00)), FV)

    def watch(self, flag: Any, x: Any) -> None:
        """Keep the largest magnitude where a result can overflow: at the top of the range its tile must be redone.

        Narrow f32 accumulators cannot: operands and initial accumulators were checked while packing.
        """
        if not self.s.watched:
            return
        v, b = self.v, self.b
        magnitude = b.and_(v.bits(x, IV), self.c(0x7FFFFFFF))
        v.store(v.umax(v.load(flag, IV, 64), magnitude), flag, 64)


class Narrow(Books):
    """Exponents in bytes; a byte is the field of a product's exponent."""

    def settle(self, best: list[Any]) -> list[Any]:
        """Byte maxima of a row: columns without a product that counts get the floor."""
        v, b = self.v, self.b
        t = best[0].type
        real = b.icmp_unsigned(
            ">=", best[0], v.splat(b.trunc(b.extract_element(self.reference, self.v.const(I32, 0)), I8), 64)
        )
        return [b.select(real, best[0], v.const(t, FLOOR_FIELD))]

    def alignment(self, maxima: Any, acc: Any) -> Any:
        v, b = self.v, self.b
        e = b.shl(b.zext(v.load(maxima, vector(I8, CHUNK), 16), IV), self.c(23))
        half = self.s.out == "rne11"
        if half:
            e = v.umax(e, b.shl(self.floor, self.c(23)))
        if self.s.from_zero:
            return e
        own = b.and_(acc, self.c(0x7F800000))
        if half:
            own = v.umax(own, b.shl(self.least, self.c(23)))
            own = b.select(b.icmp_unsigned("!=", b.shl(acc, self.c(1)), self.c(0)), own, self.c(0))  # -0 too
        return v.umax(e, own)

    def truncated(self, acc: Any, e: Any) -> Any:
        v, b = self.v, self.b
        up = b.sub(self.c((self.s.fraction + BIAS) << 23), e)
        return b.fptosi(v.bits(b.add(acc, up), FV), IV)

    def magic(self, e: Any) -> Any:
        b, s = self.b, self.s
        if s.wide:
            return b.add(b.lshr(e, self.c(3)), self.c((s.magic_shift << 20) + (1 << 19)))
        return b.add(e, self.c((s.magic_shift << 23) + (1 << 22)))

    def round(self, n: Any, e: Any) -> Any:
        v, b = self.v, self.b
        if self.s.out == "rne11":  # at the true scale
            down = b.add(e, b.shl(b.sub(self.scale, self.c(self.s.fraction)), self.c(23)))
            return self.half_to_tile(b.fmul(self.odd(n), v.bits(down, FV)))
        down = b.sub(e, self.c(self.s.fraction << 23))
        return self.fourteen(b.fmul(self.odd(n), v.bits(down, FV)))

    def half_to_tile(self, x: Any) -> Any:
        """Round to f16, back to the tile's scale; the sum with zero makes an underflowed -0 a +0."""
        v, b = self.v, self.b
        back = v.bits(b.shl(b.sub(self.c(BIAS), self.scale), self.c(23)), FV)
        return v.fma(self.to_half(x), back, v.const(FV, 0.0))

    def sum(self, d: Any, x: Any) -> Any:
        v, b = self.v, self.b
        y = b.fadd(d, x)
        if self.s.out != "rne11":
            return y
        up = v.bits(b.shl(b.add(self.scale, self.c(BIAS)), self.c(23)), FV)
        return self.half_to_tile(b.fmul(y, up))


class Wide(Books):
    """Exponents in 16 bits, biased so that a sum with a zero operand stays below 0x4000; true scale in the tile."""

    def settle(self, best: list[Any]) -> list[Any]:
        return best

    def alignment(self, maxima: Any, acc: Any) -> Any:
        v, b = self.v, self.b
        raw = b.zext(v.load(maxima, vector(I16, CHUNK), 16), IV)
        real = b.icmp_unsigned(">=", raw, self.c(0x4000))
        e = v.smax(b.select(real, b.add(raw, self.reference), self.floor), self.floor)
        if self.s.from_zero:
            return e
        field = v.umax(b.and_(b.lshr(acc, self.c(23)), self.c(255)), self.least)
        zero = b.icmp_unsigned("==", b.shl(acc, self.c(1)), self.c(0))
        return v.smax(e, b.select(zero, self.floor, field))

    def truncated(self, acc: Any, e: Any) -> Any:
        v, b = self.v, self.b
        up = b.sitofp(b.sub(self.c(self.s.fraction + BIAS), e), FV)
        return b.fptosi(v.scale_rz(v.bits(acc, FV), up), IV)

    def magic(self, e: Any) -> Any:
        b, field = self.b, 20 if self.s.wide else 23
        return b.add(b.shl(e, self.c(field)), self.c((self.s.magic_shift << field) + (1 << (field - 1))))

    def round(self, n: Any, e: Any) -> Any:
        v, b = self.v, self.b
        down = b.sitofp(b.sub(e, self.c(self.s.fraction + BIAS)), FV)
        x = self.fourteen(v.scale_rz(self.odd(n), down))
        return b.fadd(self.to_half(x), v.const(FV, 0.0))  # -0 becomes +0

    def sum(self, d: Any, x: Any) -> Any:
        return self.to_half(self.b.fadd(d, x))
