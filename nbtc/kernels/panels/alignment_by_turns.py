"""Alignment and rounding in fewer operations: exponents of a 32-bit word's columns by turns.

For processors that choose bytes by masks (AVX-512), and in still fewer for those whose dot products cost as much as any
operation.  docs/numerics.md has why nothing changes but the count.
"""

from __future__ import annotations

from typing import Any

from nbtc.compiler.builder import I8, I16, VectorBuilder, vector
from nbtc.compiler.cpu.processors import Processor
from nbtc.kernels.panels.alignment_and_rounding import BIAS, FLOOR_FIELD, HALF, LimitedRange, SumShape

LEAST_FIELD = 128  # of all exponent fields but those of zeros, where they go into dot products (`ByDots`)
# There, zeros of a tile whose sums are in f64 are 2**-30: smaller than every last place of sums and of f32 results, and
# with an exponent that is F + 127 at most below every product's.
TINY = -30
TINY_BITS = (BIAS + TINY) << 23
SUBNORMALS = 10  # binades of f16's subnormals
# Binades by which tiles of f16 may be scaled.  Fields of normal numbers, 142 - x at most, are no Inf's.  Those of
# subnormals, 103 - x at least, are `least` or more when `SUBNORMALS` is added, and fit a byte; the floor of alignment
# exponents, 106 - x at least, is more than `SUBNORMALS`.  For `ByDots` they are `LEAST_FIELD` or more.
SCALES, SCALES_BY_DOTS = range(-112, 94), range(-112, -24)


def least_field(target: Processor | None) -> int:
    """The least exponent field of a processor whose exponents lie by turns; 0 where they don't."""
    if target is None or not target.masks:
        return 0
    return LEAST_FIELD if target.dots else FLOOR_FIELD


class ByTurns(LimitedRange):
    """Exponent fields of at least `least_field`, in bytes of which a 32-bit word has one of each chunk of columns.

    A load from three bytes before a chunk's has those on top.  There, twice an accumulator has its exponent field: one
    masked maximum of bytes gives the alignment, which has `HALF` below it, so that M needs no addition of its own.
    Elements in f64 are scaled so that M has the same field (`FusedProduct`).
    """

    below = HALF

    def __init__(self, v: VectorBuilder, shape: SumShape, splats: dict[str, Any]) -> None:
        super().__init__(v, shape, splats)
        self.octets = vector(I8, shape.target.bytes)
        # LLVM would make logic of a choice by a constant, which takes more operations
        self.tops = v.unknown_mask(sum(8 << 4 * i for i in range(shape.target.lanes)), shape.target.bytes)

    def finish_maxima(self, best: Any) -> Any:
        best = super().finish_maxima(best)
        return self.v.umax(best, self.least_maxima()) if self.s.f16_acc else best

    def least_maxima(self) -> Any:
        """Exponents of columns without a product that counts."""
        v = self.v
        if not self.s.f16_acc:
            return v.const(self.octets, least_field(self.s.target))
        floor = self.b.trunc(self.b.extract_element(self.floor, v.const(self.integers.element, 0)), I8)
        return v.splat(floor, self.octets.count)

    def on_top(self, maxima: Any, acc: Any, below: int) -> Any:
        """Alignment exponents in the top bytes of words, with these 24 bits; maxima: where a chunk's are on top."""
        v, b = self.v, self.b
        own = v.bits(self.c(0) if self.s.from_zero else self.twice(acc), self.octets)
        if self.s.f16_acc and not self.s.from_zero:
            own = self.as_normal(own)
        tops = v.umax(own, v.load(maxima, self.octets))
        return v.bits(b.select(self.tops, tops, v.bits(self.c(below), self.octets)), self.integers)

    def twice(self, acc: Any) -> Any:
        """Of accumulators, as integers: exponent fields are top bytes."""
        return self.b.add(acc, acc)

    def as_normal(self, own: Any) -> Any:
        """Fields of f16, subnormals with that of the least normal number; a zero's is no more than `SUBNORMALS`.

        A sum that doesn't saturate takes no multiplier of Zen's.
        """
        v = self.v
        return v.umax(own, v.umin(self.b.add(own, v.const(self.octets, SUBNORMALS)), self.least_normal))

    @property
    def least_normal(self) -> Any:
        """The field of 2**-14, in top bytes."""
        return self.v.bits(self.b.shl(self.least, self.c(24)), self.octets)

    def alignment(self, maxima: Any, acc: Any) -> Any:
        return self.b.lshr(self.on_top(maxima, acc, 2 * HALF), self.c(1))

    def magic(self, e: Any) -> Any:
        if self.s.in_f64:
            return self.b.lshr(e, self.c(3))
        return self.b.add(e, self.c(self.s.magic_shift << 23))


class ByDots(ByTurns):
    """The same where dot products of halves are as fast as additions.

    An alignment exponent stays on top of its word.  Its upper half, a negative number h = 256 E + 128 - 2**16, times
    -2**15 is 2**31 less E and `HALF` in their places in an f32; the lower half is a constant whose product makes the
    rest of what is added to an accumulator: one instruction aligns it.  The mean of a half and a constant is E,
    moved by some binades, in the upper half of an f32.
    """

    def __init__(self, v: VectorBuilder, shape: SumShape, splats: dict[str, Any]) -> None:
        super().__init__(v, shape, splats)
        self.start_fraction |= (self.rest >> 4) << 32
        self.halves = vector(I16, 2 * shape.target.lanes)
        self.uppers = v.unknown_mask(sum(2 << 2 * i for i in range(shape.target.lanes)), self.halves.count)

    def finish_maxima(self, best: Any) -> Any:
        """They start from the least field, and those of zeros are 0."""
        return best

    @property
    def rest(self) -> int:
        """The lower half of words."""
        return (1 << 16) - ((self.s.fraction + BIAS) << 8) - 128

    @property
    def zero(self) -> Any:
        return self.v.const(self.floats, 2.0**TINY if self.s.tiny_zeros else 0.0)

    def alignment(self, maxima: Any, acc: Any) -> Any:
        return self.on_top(maxima, acc, 2 * HALF + self.rest)

    def as_normal(self, own: Any) -> Any:
        """A zero's stays below `LEAST_FIELD`."""
        large = self.b.icmp_signed("<", own, self.v.const(self.octets, 0))
        return self.b.select(large, self.v.umax(own, self.least_normal), own)

    def truncated(self, acc: Any, e: Any) -> Any:
        v, b = self.v, self.b
        x = v.add_halves(acc, e, self.c(0x80008000))
        if not self.s.tiny_zeros:
            x = b.select(b.icmp_signed("!=", self.twice(acc), self.c(0)), x, self.c(0))
        return v.truncated(v.bits(x, self.floats))

    def moved(self, e: Any, twice: Any) -> Any:
        """The upper halves of (e + twice) / 2, as words; twice: a number, or words whose upper halves count."""
        v = self.v
        y = v.bits(self.c(twice << 16) if isinstance(twice, int) else twice, self.halves)
        return v.bits(v.averages_where(self.uppers, v.bits(e, self.halves), y), self.integers)

    def magic(self, e: Any) -> Any:
        if self.s.in_f64:
            return self.b.lshr(e, self.c(4))
        return self.moved(e, (self.s.magic_shift << 8) - 1)

    def round(self, n: Any, e: Any) -> Any:
        """By the unit with a minus: the mean can't take F binades away, but add the sign's place less F."""
        v, b = self.v, self.b
        less = (1 << 16) - (self.s.fraction << 8) - 129
        if self.s.f16_acc:
            unit = self.moved(e, b.shl(b.add(b.shl(self.scale, self.c(8)), self.c(less)), self.c(16)))
            return self.f16_of_the_tile(b.fmul(self.odd(n), v.bits(unit, self.floats)), -1)
        unit = v.bits(self.moved(e, less), self.floats)
        return self.fourteen(v.fma(b.fneg(v.to_float_rz(n)), unit, self.zero))
