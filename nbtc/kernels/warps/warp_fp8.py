"""fp8 mma.sync and mma.sp of architectures without such a unit, as they do it: with f16 products, by vector code.

A word of four fp8 elements is two words of f16 ones, whose lanes and registers are those of an f16 form of half the
depth: elements of k mod 4 in {0, 1} make the first product, {2, 3} the second, and c is added in the end.  In sparse
forms that goes for stored elements: the first product has every other chunk of four elements of B, all of each, and
those chunks' nibbles of metadata.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import F32, I1, I8, I16, I32, VectorBuilder, stack_array, vector
from nbtc.compiler.cpu.float_mode import enter, leave, separate_function
from nbtc.formats.table import FORMATS, Format, f16
from nbtc.kernels.float_elements import FloatElements, bias_difference
from nbtc.kernels.warps.code import ProductCode
from nbtc.kernels.warps.float_code import W16, FloatCode
from nbtc.kernels.warps.warp_floats import WarpSchedule

LANES, WORD = 32, 4  # of a warp; bytes
NAN = 0x7FFF  # of f16
INFINITE = {True: (I16, 0x7C00), False: (I32, 0x7F800000)}  # accumulators' integers and exponents of Inf and NaN


@dataclass(frozen=True)
class Fp8Code(ProductCode):
    """What is compiled in: the codes of A's and B's formats, registers of A, f16 accumulators, sparsity (0 or 1)."""

    a: int
    b: int
    registers: int
    f16_acc: int
    sparse: int = 0

    kind = "fp8"

    @property
    def formats(self) -> list[Format]:
        """Of A and B."""
        return [next(f for f in FORMATS.values() if f.code == code) for code in (self.a, self.b)]

    @property
    def product(self) -> FloatCode:
        """Either f16 product."""
        return FloatCode(f16, self.registers, bool(self.f16_acc), 1, sparse=bool(self.sparse))

    @property
    def images(self) -> tuple[int, ...]:
        """Registers of A, B, C, metadata if any, and D."""
        return self.product.images


def halves(v: VectorBuilder, words: Any, fmt: Format) -> list[Any]:
    """The lower and the upper two fp8 elements of each word as f16: exact; NaN to NaN."""
    count, x = words.type.count, FloatElements(v, fmt)
    octets = v.bits(words, vector(I8, 4 * count))
    found = []
    for half in (0, 1):
        pairs = v.shuffle(octets, octets, [4 * n + 2 * half + i for n in range(count) for i in (0, 1)])
        bits = x.f16_bits(pairs)
        if bias_difference(fmt):
            value = v.b.fmul(x.values(pairs), v.const(vector(F32, 2 * count), 2.0 ** bias_difference(fmt)))
            bits = v.b.select(x.special(pairs), v.const(bits.type, NAN), x.m.to_f16(value))
        found.append(v.bits(bits, words.type))
    return found


def added(v: VectorBuilder, words: Any, others: Any, f16_acc: bool) -> tuple[Any, Any]:
    """Sums of words of accumulators, rounded once to nearest; i1: one is Inf or NaN, which may be of any origin."""
    b, m, (integer, infinite) = v.b, FloatElements(v, f16).m, INFINITE[f16_acc]
    count = words.type.count
    t = vector(integer, count * (2 if f16_acc else 1))
    x, y = (v.bits(z, t) for z in (words, others))
    if f16_acc:  # f32 holds the exact sum's bits that f16 needs
        total = m.to_f16(b.fadd(m.from_f16(x), m.from_f16(y)))
    else:
        total = v.bits(b.fadd(*(v.bits(z, vector(F32, count)) for z in (x, y))), t)
    flags = b.icmp_unsigned("==", b.and_(total, v.const(t, infinite)), v.const(t, infinite))
    bits = ir.IntType(t.count)
    return v.bits(total, words.type), b.icmp_unsigned("!=", b.bitcast(flags, bits), ir.Constant(bits, 0))


def _products(v: VectorBuilder, code: Fp8Code) -> Any:
    """The function of an f16 product: images, F and the floor to an i1, needs the fallback."""
    shape, module = code.product, v.b.module
    name = "nbtc_f16_" + "_".join(map(str, shape.key))
    if name in module.globals:
        return module.globals[name]
    f, own = separate_function(module, name, I1, [I8.as_pointer()] * len(shape.images) + [I32, I32], v.target)
    *images, fraction, floor = f.args
    old = enter(own, shape.mode)
    bad = WarpSchedule(shape, own, images, (fraction, floor)).emit()
    leave(own, old)
    own.b.ret(bad)
    return f


class Fp8Warp:
    """Writes the code of one warp; images are [lane][register]."""

    def __init__(self, code: Fp8Code, v: VectorBuilder, images: list[Any], numbers: Sequence[Any]) -> None:
        self.s, self.v, self.b, self.numbers = code, v, v.b, numbers
        self.a, self.right, self.c, *self.meta, self.d = images

    def emit(self) -> Any:
        """Everything; returns an i1: needs the fallback."""
        v, b, s = self.v, self.b, self.s
        registers = s.images[-1]
        f, zero, first, second = _products(v, s), *(stack_array(b, WORD * LANES * registers) for _ in range(3))
        left = self.widened(self.a, s.formats[0], s.images[0], False)
        right = self.widened(self.right, s.formats[1], s.images[1], bool(s.sparse))
        meta = self.chunks_apart(self.meta[0]) if self.meta else [[], []]
        bad = b.call(f, [left[0], right[0], zero, *meta[0], first, *self.numbers])
        bad = b.or_(bad, b.call(f, [left[1], right[1], first, *meta[1], second, *self.numbers]))
        for at in range(0, WORD * LANES * registers, 64):
            c, x = v.load(self.c, W16, WORD, at), v.load(second, W16, 64, at)
            total, special = added(v, c, x, bool(s.f16_acc))
            v.store(total, self.d, WORD, at)
            bad = b.or_(bad, special)
        return bad

    def widened(self, image: Any, fmt: Format, registers: int, chunks: bool) -> list[Any]:
        """Images of both f16 products.

        chunks: of four registers, the even lanes' words make the first, in two lanes each, the odd lanes' the second.
        """
        v, size = self.v, WORD * LANES * registers
        found = [stack_array(self.b, size) for _ in range(2)]
        for at in range(0, size, 64):
            both = halves(v, v.load(image, W16, WORD, at), fmt)
            if chunks:
                places = [[8 * u + 4 * odd + n + 16 * half for u in (0, 1) for half in (0, 1) for n in range(4)]
                          for odd in (0, 1)]  # fmt: skip
                low, high = both
                both = [v.shuffle(low, high, lanes) for lanes in places]
            for x, p in zip(both, found, strict=True):
                v.store(x, p, 64, at)
        return found

    def chunks_apart(self, meta: Any) -> list[list[Any]]:
        """Metadata of even and of odd chunks, where f16 has it: in two lanes of four, row g in the lower half."""
        v, b = self.v, self.b
        t = vector(I32, LANES)
        words, found = v.load(meta, t, WORD), []
        for odd in (0, 1):
            x = b.and_(b.lshr(words, v.const(t, 4 * odd)), v.const(t, 0x0F0F0F0F))  # nibbles, as sparse B has them
            for shift, mask in ((4, 0x00FF00FF), (8, 0xFFFF)):
                x = b.and_(b.or_(x, b.lshr(x, v.const(t, shift))), v.const(t, mask))
            lanes = [[n + (n & 1) + row if n & 2 == 0 else LANES for n in range(LANES)] for row in (0, 1)]
            rows = [v.shuffle(x, v.const(t, 0), places) for places in lanes]
            place = stack_array(b, WORD * LANES)
            v.store(b.or_(rows[0], b.shl(rows[1], v.const(t, 16))), place, 64)
            found.append([place])
        return found
