"""Elements of a warp's slice: their exponents and values, by vector code.

Zeros are tiny and keep their signs: below every last place that is kept, but cut as their signs say, so that counts of
negative products need not leave them out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from llvmlite import ir

from nbtc.compiler.builder import F32, I8, I16, I32, VectorBuilder, vector
from nbtc.compiler.lowering import lowering
from nbtc.formats.table import Format
from nbtc.kernels.half_bits import half_bits
from nbtc.kernels.slice_shape import ROWS, SPECIAL, ZERO

W16, V16, OCTETS = vector(I32, ROWS), vector(F32, ROWS), vector(I8, 64)
VECTOR = 64  # bytes
TINY = 1 << 23  # the f32 bits of 2**-126, in place of zero


def lift(fmt: Format) -> int:
    """Binades by which `Elements.values` falls short of the true values."""
    return 15 - fmt.bias


class Elements:
    """Vector code that takes the bits of one format apart; x is a vector of its elements."""

    def __init__(self, v: VectorBuilder, fmt: Format, offset: int) -> None:
        self.v, self.b, self.f, self.m, self.offset = v, v.b, fmt, lowering(v), offset
        self.special = v.const(self.of(VECTOR), 0)

    def of(self, size: int) -> Any:
        """The type of the elements in `size` bytes."""
        return vector(ir.IntType(self.f.bits), 8 * size // self.f.bits)

    def _magnitude(self, x: Any) -> Any:
        return self.b.and_(x, self.v.const(x.type, (1 << (self.f.bits - 1)) - 1))

    def note(self, x: Any) -> None:
        """Remember the largest magnitude."""
        self.special = self.v.umax(self.special, self._magnitude(x))

    def found(self) -> Any:
        """i1: an Inf or NaN was noted."""
        flags = self.b.icmp_unsigned(">=", self.special, self.v.const(self.special.type, self.f.special))
        bits = ir.IntType(self.special.type.count)
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
        magnitude = self._magnitude(x)
        field = v.umax(b.lshr(magnitude, v.const(t, f.mantissa)), v.const(t, 1))
        zero = b.icmp_unsigned("==", magnitude, v.const(t, 0))
        shown = b.select(zero, v.const(t, ZERO), b.add(field, v.const(t, self.offset)))
        if not special:
            return shown
        return b.select(b.icmp_unsigned(">=", magnitude, v.const(t, f.special)), v.const(t, SPECIAL), shown)

    def values(self, x: Any) -> Any:
        """Values as f32, 2**-lift of the true ones; zeros are tiny."""
        b, v, n = self.b, self.v, x.type.count
        words = vector(I32, n)
        zero = b.icmp_unsigned("==", self._magnitude(x), v.const(x.type, 0))
        bits = v.bits(self.m.from_half(half_bits(v, self.f, x, self._magnitude(x))), words)
        return v.bits(b.or_(bits, b.select(zero, v.const(words, TINY), v.const(words, 0))), vector(F32, n))

    def line_values(self, x: Any) -> Iterator[Any]:
        """Values of 64 bytes as f32 vectors: vector n holds elements 4n .. 4n + 3 of each 128-bit lane.

        The upper two bytes of an f32 say all of an fp8 number, and a table knows them.
        """
        b, v = self.b, self.v
        pairs = [self.m.byte_table([n >> at & 255 for n in _upper_halves(self.f)], x) for at in (0, 8)]
        if None in pairs:
            for n in range(4):
                yield self.values(v.shuffle(x, x, [16 * u + 4 * n + i for u in range(4) for i in range(4)]))
            return
        low, high = pairs
        high = b.or_(high, b.and_(x, v.const(OCTETS, 0x80)))
        for half in (0, 1):
            lanes = [16 * u + 8 * half + n + side for u in range(4) for n in range(8) for side in (0, 64)]
            words = v.bits(v.shuffle(low, high, lanes), vector(I16, 32))
            for part in (0, 1):
                lanes = [8 * u + 4 * part + n + side for u in range(4) for n in range(4) for side in (0, 32)]
                yield v.bits(v.shuffle(v.const(words.type, 0), words, lanes), V16)


def _upper_halves(fmt: Format) -> list[int]:
    """The upper halves of the f32 bits of `Elements.values`, by magnitude."""
    codes = np.arange(128, dtype=np.uint16) << np.uint16(10 - fmt.mantissa)
    words = codes.view(np.float16).astype(np.float32).view(np.uint32)
    words[0] = TINY
    return [int(x) for x in words >> np.uint32(16)]
