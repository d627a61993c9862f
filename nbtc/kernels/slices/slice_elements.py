"""Elements of a warp's slice: their exponents and values, by vector code, of fp8 by tables where there are such."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from llvmlite import ir

from nbtc.compiler.builder import F32, I8, I16, I32, VectorBuilder, vector
from nbtc.formats.table import Format
from nbtc.kernels.float_elements import TINY, FloatElements
from nbtc.kernels.slices.slice_shape import ROWS, SPECIAL, ZERO

W16, V16, OCTETS = vector(I32, ROWS), vector(F32, ROWS), vector(I8, 64)
VECTOR = 64  # bytes


class SliceElements(FloatElements):
    """Vector code that takes the bits of one format apart; offset: what is added to exponent fields."""

    def __init__(self, v: VectorBuilder, fmt: Format, offset: int) -> None:
        super().__init__(v, fmt)
        self.offset, self.largest = offset, v.const(self.of(VECTOR), 0)

    def note(self, x: Any) -> None:
        """Remember the largest magnitude."""
        self.largest = self.v.umax(self.largest, self.magnitude(x))

    def found(self) -> Any:
        """i1: an Inf or NaN was noted."""
        flags = self.special(self.largest)
        bits = ir.IntType(flags.type.count)
        return self.b.icmp_unsigned("!=", self.b.bitcast(flags, bits), ir.Constant(bits, 0))

    def exponents(self, x: Any, special: bool) -> Any:
        """Exponent fields with their offset as elements; zeros show `ZERO`, Inf and NaN may show `SPECIAL`."""
        b, v, f, t = self.b, self.v, self.f, x.type
        if f.bits == 8:
            fields = [max(n >> f.mantissa, 1) + self.offset if n else ZERO for n in range(128)]
            fields[f.special :] = [SPECIAL if special else n for n in fields[f.special :]]
            found = self.m.byte_table(fields, x)
            if found is not None:
                return found
        shown = b.select(self.zero(x), v.const(t, ZERO), b.add(self.field(x), v.const(t, self.offset)))
        return b.select(self.special(x), v.const(t, SPECIAL), shown) if special else shown

    def line_values(self, x: Any) -> Iterator[Any]:
        """Values of 64 bytes as f32 vectors: vector n holds elements 4n .. 4n + 3 of each 128-bit lane."""
        v, octets = self.v, self._looked_up(x)
        if octets is None:
            for n in range(4):
                y = v.shuffle(x, x, [16 * u + 4 * n + i for u in range(4) for i in range(4)])
                yield self.with_tiny_zeros(y, self.values(y))
            return
        low, high = octets
        for half in (0, 1):
            lanes = [16 * u + 8 * half + n + side for u in range(4) for n in range(8) for side in (0, 64)]
            words = v.bits(v.shuffle(low, high, lanes), vector(I16, 32))
            for part in (0, 1):
                lanes = [8 * u + 4 * part + n + side for u in range(4) for n in range(4) for side in (0, 32)]
                yield v.bits(v.shuffle(v.const(words.type, 0), words, lanes), V16)

    def word_values(self, words: Any) -> Iterator[Any]:
        """Values of sixteen words of elements as f32 vectors: one of the first element of each word, and so on."""
        b, v, bits = self.b, self.v, self.f.bits
        octets = self._looked_up(v.bits(words, OCTETS)) if bits == 8 else None
        if octets is None:
            for at in range(0, 32, bits):
                x = b.trunc(b.lshr(words, v.const(W16, at)) if at else words, vector(ir.IntType(bits), ROWS))
                yield self.with_tiny_zeros(x, self.values(x))
            return
        low, high = (v.bits(x, W16) for x in octets)
        upper = v.const(W16, -0x00FF0100)  # 0xFF00FF00

        def halves(x: Any, y: Any) -> Any:
            """Halves of words with the lower bytes of x's and the upper ones of y's."""
            return b.or_(b.and_(y, upper), b.and_(x, b.not_(upper)))

        even = halves(low, b.shl(high, v.const(W16, 8)))
        odd = halves(b.lshr(low, v.const(W16, 8)), high)
        for x in (even, odd):
            yield v.bits(b.shl(x, v.const(W16, 16)), V16)
        for x in (even, odd):
            yield v.bits(b.and_(x, v.const(W16, -1 << 16)), V16)

    def _looked_up(self, x: Any) -> tuple[Any, Any] | None:
        """The two upper bytes of the f32 values of bytes, which say all of an fp8 number, where tables know them."""
        b, v, halves = self.b, self.v, _upper_halves(self.f)
        low, high = (self.m.byte_table([n >> at & 255 for n in halves], x) for at in (0, 8))
        if low is None or high is None:
            return None
        return low, b.or_(high, b.and_(x, v.const(OCTETS, 0x80)))


def _upper_halves(fmt: Format) -> list[int]:
    """The upper halves of the f32 bits of values, zeros tiny, by magnitude."""
    codes = np.arange(128, dtype=np.uint16) << np.uint16(10 - fmt.mantissa)
    words = codes.view(np.float16).astype(np.float32).view(np.uint32)
    words[0] = TINY
    return [int(x) for x in words >> np.uint32(16)]
