"""Integer and single-bit mma.sync, mma.sp and wmma as vector code: a vector holds sixteen accumulators of C's image.

Eight-bit products are VPDPBUSD, which multiplies unsigned by signed bytes: of equally signed operands A is moved by
128, and 128 times the sum of B's bytes undoes that.  Four-bit elements become bytes, even and odd ones apart.  Sums of
one instruction fit 32 bits, so that saturation is a clamp of one addition to C.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import cache
from typing import Any

from numba.core import types
from numba.extending import intrinsic

from nbtc.compiler.builder import I1, I32, VectorBuilder, vector
from nbtc.compiler.jit import jit
from nbtc.kernels.warp_loop import columns, each_warp, warps
from nbtc.kernels.warp_select import OCTETS, W16, Selection
from nbtc.numerics.models import BIT_OPS

FEATURE = {8: "avx512vnni", 4: "avx512vnni", 1: "avx512vpopcntdq"}
NIBBLES, EIGHTS, TOPS, ONES = 0x0F0F0F0F, 0x08080808, 0x80808080, 0x01010101


@dataclass(frozen=True)
class Integers:
    """What is compiled in.

    bits: of an element.  a_signed, b_signed: 0 or 1.  mode: of bits the number of the operation, else whether to
    saturate.  registers: of A; 1 in products of eight rows.  sparse: 0 or 1.
    """

    bits: int
    a_signed: int
    b_signed: int
    mode: int
    registers: int
    sparse: int = 0

    @property
    def images(self) -> tuple[int, ...]:
        """Registers of A, B, C, metadata if any, and D."""
        accumulators = 4 if self.registers > 1 else 2
        right = self.registers if self.sparse else max(1, self.registers // 2)
        return self.registers, right, accumulators, *[1] * self.sparse, accumulators

    @property
    def bias(self) -> int:
        """What A is moved by, times B, that a sum has too much."""
        if self.bits == 4:
            return 8 * self.a_signed
        return (128 if self.a_signed else -128) if self.bits == 8 and self.a_signed == self.b_signed else 0

    @property
    def words(self) -> int:
        """Words of a row of A."""
        return max(4, 2 * self.registers)

    def loop(self) -> Callable[..., Any]:
        """The compiled loop over warps."""
        return _kernel(*astuple(self))


class _Warp:
    """Writes the code of one warp."""

    def __init__(self, shape: Integers, v: VectorBuilder, pointers: list[Any]) -> None:
        self.s, self.v, self.b = shape, v, v.b
        self.a, b, self.c, *meta, self.d = pointers
        tall = shape.registers > 1
        self.row = [n // 2 % 2 if tall else n // 8 for n in range(16)]  # of the two rows of each accumulator
        column = [2 * (n // 4) + n % 2 if tall else n % 8 for n in range(16)]
        self.selection = None
        if meta:
            self.selection = Selection(v, b, meta[0], shape.registers, 1)
        else:
            right = shape.images[1]
            table = [[[(4 * n + q % 4) * right + q // 4 for n in column[u : u + 4]] for u in range(0, 16, 4)]
                     for q in range(shape.words)]  # fmt: skip
            self.shared = [self.planes_b(x) for x in columns(v, b, table)]
            self.surplus = self.moved([x for planes in self.shared for x in planes])

    def split(self, x: Any) -> list[Any]:
        """Words of bytes: even and odd elements apart, where they are nibbles."""
        if self.s.bits != 4:
            return [x]
        low = self.v.const(x.type, NIBBLES)
        return [self.b.and_(x, low), self.b.and_(self.b.lshr(x, self.v.const(x.type, 4)), low)]

    def planes_b(self, x: Any) -> list[Any]:
        """Words of B as `dot` wants them."""
        if self.s.bits != 4 or not self.s.b_signed:
            return self.split(x)
        eight = self.v.const(OCTETS, 8)
        flipped = self.split(self.b.xor(x, self.v.const(x.type, EIGHTS | EIGHTS << 4)))
        return [self.v.bits(self.b.sub(self.v.bits(y, OCTETS), eight), W16) for y in flipped]

    def planes_a(self, x: Any) -> list[Any]:
        """Words of A as `dot` wants them."""
        if self.s.bias:
            x = self.b.xor(x, self.v.const(x.type, TOPS if self.s.bits == 8 else EIGHTS | EIGHTS << 4))
        return self.split(x)

    def dot(self, total: Any, a: Any, b: Any) -> Any:
        """total and the products of words of A and of B."""
        v = self.v
        if self.s.bits == 1:
            both = self.b.and_(a, b) if self.s.mode == BIT_OPS["and"] else self.b.xor(a, b)
            return self.b.add(total, v.popcount(both))
        unsigned, signed = (b, a) if self.s.bits == 8 and not self.s.b_signed else (a, b)
        return v.call("llvm.x86.avx512.vpdpbusd.512", W16, total, v.bits(unsigned, OCTETS), v.bits(signed, OCTETS))

    def moved(self, words: list[Any]) -> Any:
        """What sums with these words of B have too much."""
        v, total = self.v, self.v.const(W16, 0)
        if not self.s.bias:
            return total
        for x in words:
            total = self.dot(total, v.const(W16, ONES), x)
        return self.b.mul(total, v.const(W16, self.s.bias))

    def emit(self) -> Any:
        """Everything; returns an i1: nothing is doubtful."""
        v, b, s = self.v, self.b, self.s
        own = 16 if s.registers == 4 else 8  # words of A for sixteen accumulators
        for j in range(8 if s.registers > 1 else 4):
            planes = self.planes_a(v.load(self.a, vector(I32, own), 4, 4 * own * j))
            right, surplus = self.right(j)
            c, total = v.load(self.c, W16, 4, 64 * j), v.const(W16, 0)
            for q, parts in enumerate(right):
                lanes = [self.place(r, q) for r in self.row]
                for x, y in zip(planes, parts, strict=True):
                    total = self.dot(total, v.shuffle(x, x, lanes), y)
            total = b.sub(total, surplus)
            clamped = s.bits > 1 and s.mode
            v.store(v.over("sadd.sat", c, total) if clamped else b.add(c, total), self.d, 4, 64 * j)
        return v.const(I1, 0)

    def right(self, j: int) -> tuple[list[list[Any]], Any]:
        """B's words for accumulators j, and what sums with them have too much."""
        if self.selection is None:
            return self.shared, self.surplus
        controls = self.selection.controls(j)
        found = [self.planes_b(self.selection.chosen(controls, q)) for q in range(self.s.words)]
        return found, self.moved([x for parts in found for x in parts])

    def place(self, row: int, q: int) -> int:
        """Where word q of the first or second row is, among the words of A loaded."""
        n = self.s.registers
        return (q % 4) * n + row + 2 * (q // 4) if n > 1 else 4 * row + q


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator, unused-ignore]
def _some_warps(typing, bits, a_signed, b_signed, mode, registers, sparse,
                a, b, c, meta, d, doubt, sa, sb, sc, sm, sd, first, last):  # fmt: skip
    """Warps first..last of uint32 arrays, w at word w * sa of a, and so on; the first six arguments are literals.

    Dense products read no metadata.
    """
    fixed = (bits, a_signed, b_signed, mode, registers, sparse)
    if not all(isinstance(x, types.IntegerLiteral) for x in fixed):
        return None
    shape = Integers(*(x.literal_value for x in fixed))

    def codegen(context, builder, sig, args):
        v, base = VectorBuilder(context, builder), len(fixed)
        arrays, strides, doubt, count, _ = warps(v, sig.args[base:], args[base:])
        if not shape.sparse:
            del arrays[3], strides[3]
        return each_warp(v, count, arrays, strides, shape.images, lambda p: _Warp(shape, v, p).emit(), doubt)

    return types.int64(*fixed, a, b, c, meta, d, doubt, *[types.int64] * 7), codegen


@cache
def _kernel(bits: int, a_signed: int, b_signed: int, mode: int, registers: int, sparse: int) -> Callable[..., Any]:
    def many(a, b, c, meta, d, sa, sb, sc, sm, sd, first, last, fraction, floor, doubt):
        return _some_warps(
            bits, a_signed, b_signed, mode, registers, sparse,
            a, b, c, meta, d, doubt, sa, sb, sc, sm, sd, first, last,
        )  # fmt: skip

    def dense(a, b, c, d, sa, sb, sc, sd, first, last, fraction, floor, doubt):
        return _some_warps(
            bits, a_signed, b_signed, mode, registers, 0,
            a, b, c, a, d, doubt, sa, sb, sc, 0, sd, first, last,
        )  # fmt: skip

    return jit(many if sparse else dense)  # type: ignore[no-any-return]
