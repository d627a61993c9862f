"""Sixteen sums at a time of an m16n8 product: rows j and j + 8 in the order of C's image, which is one vector.

Each product is one f64 multiply-add (`register_sums` has the argument).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I32, VectorBuilder
from nbtc.kernels.register_sums import BIAS, INFINITE, W16, RegisterSums
from nbtc.kernels.warps.float_code import FloatCode
from nbtc.kernels.warps.warp_elements import D8, NEAR, WarpElements

GROWTH = 7  # binades: 17 terms below 4 * 2**E each are below 2**(E + 6.1)
TOP = 128 - GROWTH + BIAS  # alignment exponents above may overflow f32, whose Inf is 2**128


class WarpSums(RegisterSums):
    """Start values and results of sums.  Alignment exponents are biased ones of f32.

    limit: the largest alignment exponent that is safe.
    """

    limit: Any

    def __init__(self, shape: FloatCode, v: VectorBuilder, operands: WarpElements, fraction: Any, floor: Any) -> None:
        super().__init__(v)
        self.s, self.operands, self.f16_acc = shape, operands, shape.f16_acc
        # the high word of the start, but for E in its exponent field: products are scaled as decoded
        bias = 1023 + 52 - BIAS + NEAR - 2 * shape.deficit
        place = self.b.shl(self.b.sub(v.const(I32, bias), fraction), v.const(I32, 20))
        self.place = v.splat(self.b.or_(place, v.const(I32, 0x80000)), 16)
        self.fraction = v.splat(fraction, 16)
        self.floor = v.splat(self.b.add(floor, v.const(I32, BIAS)), 16)
        self.watched = len(shape.labels) // shape.blocks > 8
        self.highest = self.c(0)

    def note(self, e: Any) -> None:
        """Remember the largest alignment exponent."""
        self.highest = self.m.opt_barrier(self.v.smax(self.highest, e), here=True)

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

    def rounded(self, x: Any) -> Any:
        """x in the accumulator's format; every zero is +0."""
        if self.f16_acc:
            x = self.m.from_f16(self.m.to_f16(x))
        return self.m.positive_zero(x)

    def needs_fallback(self) -> Any:
        """Whether a sum met Inf or NaN, or may have left its range."""
        b = self.b
        return self.any_lane(b.or_(b.icmp_signed(">", self.highest, self.limit), self.wrapped()))


class LimitedWarpSums(WarpSums):
    """Multiplicands of few binades: every scale is a normal f32, and exponents stay where f32 has them."""

    # Of the first block: with it, those of a second one are at most TOP, as products of f16 are below 2**33.  Only sums
    # that are f16 between the two may be Inf by then (test_every_mix_of_inputs has them on sm_80).
    limit = ir.Constant(W16, [(TOP - GROWTH) << 23] * 16)

    def start(self, j: int, block: int, peak: Any, acc: Any) -> tuple[list[Any], list[Any]]:
        """(two rows' starts, what `finish` needs) for accumulators acc."""
        b = self.b
        e = b.and_(b.lshr(peak, self.c(1)), self.c(INFINITE))
        empty = None
        if self.operands.empties:  # no product but zeros: the sum is the accumulator
            empty = b.icmp_unsigned("<", e, self.c(self.operands.least << 23))
        e = self.alignment(e, acc)
        if block == 0 or self.f16_acc:
            self.note(e)
        low = self.operands.plus_negatives(self.in_units(acc, e), j, block)
        return self.joined(low, self.high_words(e)), [e, empty, acc]

    def finish(self, sums: list[Any], start: list[Any]) -> Any:
        """Accumulators after the sums."""
        b, (e, empty, acc) = self.b, start
        down = self.unit(e)
        x = b.fmul(self.single(self.integers(sums), self.watched), down)
        if self.f16_acc:
            return self.rounded(x if empty is None else b.select(empty, acc, x))
        return x if empty is None else b.select(empty, self.rounded(acc), x)


class FullWarpSums(WarpSums):
    """Multiplicands with the exponents of f32: alignment exponents are signed and scaling is an instruction."""

    limit = ir.Constant(W16, [TOP] * 16)

    def start(self, j: int, block: int, peak: Any, acc: Any) -> tuple[list[Any], list[Any]]:
        """(two rows' starts, what `finish` needs) for accumulators acc."""
        v, b, s = self.v, self.b, self.s
        field = v.umax(b.and_(b.lshr(v.bits(acc, W16), self.c(23)), self.c(0xFF)), self.c(1))
        zero = b.icmp_unsigned("==", b.shl(v.bits(acc, W16), self.c(1)), self.c(0))
        e = v.smax(v.smax(b.add(peak, self.c(BIAS - 2 * s.fmt.bias)), self.floor), b.select(zero, self.floor, field))
        self.note(e)
        up, down = self.m.powers(b.sub(b.add(self.fraction, self.c(BIAS)), e))
        low = self.operands.plus_negatives(self.m.to_integer(self.m.scaled(acc, up)), j, block)
        return self.joined(low, b.add(b.shl(e, self.c(20)), self.place)), [down]

    def finish(self, sums: list[Any], start: list[Any]) -> Any:
        """Accumulators after the sums."""
        return self.rounded(self.m.scaled(self.single(self.integers(sums), self.watched), start[0]))
