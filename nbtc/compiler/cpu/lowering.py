"""What processors do in different ways, for hand-written vector code: one class a kind of processor, one row each.

Emitters write vectors of 512 bits, which LLVM cuts to a processor's registers.  The few operations that LLVM would not
find, or that depend on the rounding mode, are methods: `Lowering` says them in plain IR that is right everywhere, its
subclasses here in a processor's own instructions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, reduce
from typing import Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.builder import F16, F32, I8, I16, I32, VectorBuilder, like, vector
from nbtc.compiler.cpu.host import architecture, features
from nbtc.compiler.cpu.plain_lowering import Lowering, width_of
from nbtc.compiler.cpu.processors import (
    AVX2,
    AVX_512,
    AVX_512_BITALG,
    AVX_512_FP16,
    AVX_512_VNNI,
    AVX_512_ZEN,
    NEON,
    SSE2,
    Processor,
    processor,
)

NEAREST = 8  # embedded rounding: to nearest, exceptions suppressed


class X86(Lowering):
    """SSE2."""

    row = SSE2
    constraint = "x"

    def by_registers(self, names: dict[int, str], result: ir.Type, *args: Any) -> Any:
        """An instruction by the bits of its registers, on all of the arguments; result: type of an element."""
        bits = max(n for n in names if n <= self.row.bits)

        def one(*parts: Any) -> Any:
            return self.v.call(names[bits], vector(result, bits // width_of(result)), *parts)

        return self.by_parts(bits // width_of(args[0].type.element), one, *args)

    def every_fourth_bit(self, x: Any) -> Any:
        if "bmi2" not in self.has:
            return super().every_fourth_bit(x)
        return self.v.call("llvm.x86.bmi.pext.64", x.type, x, self.v.int(0x1111111111111111))

    @property
    def multiplies_octet_pairs(self) -> bool:  # type: ignore[override]
        return "ssse3" in self.has

    def octet_pairs(self, unsigned: Any, signed: Any) -> Any:
        t = vector(I8, 4 * unsigned.type.count)
        return self.by_registers(_PMADDUBSW, I16, self.v.bits(unsigned, t), self.v.bits(signed, t))

    def pairs(self, x: Any, y: Any) -> Any:
        return self.by_registers(_PMADDWD, I32, x, y)

    @classmethod
    def shuffles_bytes(cls, has: frozenset[str]) -> bool:
        return "ssse3" in has

    def byte_shuffle(self, x: Any, places: Any) -> Any:
        return self.by_registers(_PSHUFB, I8, x, places)


def _narrowed(own: Lowering, x: Any) -> Any:
    """LLVM's conversion to f16, as bits."""
    return own.v.bits(own.b.fptrunc(x, like(x, F16)), like(x, I16))


_PMADDWD = {128: "llvm.x86.sse2.pmadd.wd", 256: "llvm.x86.avx2.pmadd.wd", 512: "llvm.x86.avx512.pmaddw.d.512"}
_PMADDUBSW = {
    128: "llvm.x86.ssse3.pmadd.ub.sw.128", 256: "llvm.x86.avx2.pmadd.ub.sw", 512: "llvm.x86.avx512.pmaddubs.w.512",
}  # fmt: skip
_PSHUFB = {
    128: "llvm.x86.ssse3.pshuf.b.128", 256: "llvm.x86.avx2.pshuf.b", 512: "llvm.x86.avx512.pshuf.b.512",
}  # fmt: skip


class Avx2(X86):
    """AVX2 with FMA and F16C."""

    row = AVX2

    def from_f16(self, bits: Any) -> Any:
        return self.b.fpext(self.v.bits(bits, like(bits, F16)), like(bits, F32))

    def nearest_f16(self, x: Any) -> Any:
        return _narrowed(self, x)

    def plus_bits(self, total: Any, x: Any, possible: int) -> Any:
        if not self.shuffles_bytes(self.has):
            return super().plus_bits(total, x, possible)
        # a table's counts of nibbles, added up by two products with ones, where LLVM has five operations
        t = vector(I8, 4 * x.type.count)
        counts = reduce(self.b.add, (self._looked_up_bits(n) for n in self._nibbles(x, possible)))
        halves = self.octet_pairs(self.v.bits(counts, x.type), self.v.bits(self.v.const(t, 1), x.type))
        return self.b.add(total, self.pairs(halves, self.v.const(halves.type, 1)))

    def _nibbles(self, x: Any, possible: int) -> list[Any]:
        """Bytes with the lower, and with the upper, halves of x's, those that are possible."""
        b, v, t, pairs = self.b, self.v, vector(I8, 4 * x.type.count), vector(I16, 2 * x.type.count)
        low, high, found = possible & 0x0F0F0F0F, possible & 0xF0F0F0F0, []
        if high:
            upper = v.bits(b.lshr(v.bits(x, pairs), v.const(pairs, 4)), x.type)
            found.append(b.and_(upper, v.const(x.type, 0x0F0F0F0F)) if low else upper)
        if low:
            found.append(b.and_(x, v.const(x.type, 0x0F0F0F0F)) if high else x)
        return [v.bits(n, t) for n in found]

    def _looked_up_bits(self, nibbles: Any) -> Any:
        """How many bits of each are set."""
        table = ir.Constant(nibbles.type, [n.bit_count() for n in range(16)] * (nibbles.type.count // 16))
        return self.byte_shuffle(table, nibbles)

    def picked(self, x: Any, places: Any) -> Any | None:
        b, v, t = self.b, self.v, vector(I32, 8)
        quarters = [v.shuffle(x, x, list(range(n, n + 8))) for n in range(0, 32, 8)]

        def one(at: Any) -> Any:  # a place's low three bits pick in each quarter, its upper two the quarter
            found = [v.call("llvm.x86.avx2.permd", t, q, at) for q in quarters]
            odd, upper = (b.icmp_signed("<", b.shl(at, v.const(t, n)), v.const(t, 0)) for n in (28, 27))
            pairs = [b.select(odd, found[n + 1], found[n]) for n in (0, 2)]
            return b.select(upper, pairs[1], pairs[0])

        return self.by_parts(8, one, places)

    def to_f16(self, x: Any) -> Any:
        name = "llvm.x86.vcvtps2ph.256"
        return self.by_parts(8, lambda y: self.v.call(name, vector(I16, 8), y, ir.Constant(I32, 0)), x)


class Avx512(Avx2):
    """AVX-512, whose instructions name their rounding."""

    row = AVX_512
    constraint = "v"

    def to_float(self, n: Any) -> Any:
        return self.v.to_float_rz(n)

    def powers(self, e: Any) -> tuple[Any, Any]:
        up = self.b.sitofp(e, vector(F32, e.type.count))
        return up, self.b.fneg(up)

    def scaled(self, x: Any, e: Any) -> Any:
        return self.v.scale_rz(x, e)

    def positive_zero(self, x: Any) -> Any:
        zero, mode = self.v.const(x.type, 0.0), ir.Constant(I32, NEAREST)
        return self.v.call("llvm.x86.avx512.add.ps.512", x.type, x, zero, mode)

    def larger(self, x: Any, y: Any) -> Any:
        magnitude = ir.Constant(I32, 11)
        args = magnitude, x, ir.Constant(I16, -1), ir.Constant(I32, NEAREST)
        return self.v.call("llvm.x86.avx512.mask.range.ps.512", x.type, x, y, *args)

    def to_f16(self, x: Any) -> Any:
        t, mask, mode = vector(I16, 16), ir.Constant(I16, -1), ir.Constant(I32, NEAREST)
        name, none = "llvm.x86.avx512.mask.vcvtps2ph.512", self.v.const(t, 0)
        return self.by_parts(16, lambda y: self.v.call(name, t, y, mode, none, mask), x)

    @property
    def multiplies_octets(self) -> bool:  # type: ignore[override]
        return "avx512vnni" in self.has

    @property
    def counts_words(self) -> bool:  # type: ignore[override]
        return "avx512vpopcntdq" in self.has

    def plus_bits(self, total: Any, x: Any, possible: int) -> Any:
        if self.counts_words:
            return Lowering.plus_bits(self, total, x, possible)
        if not self.multiplies_octets:
            return super().plus_bits(total, x, possible)
        # a table's counts of nibbles, added up by a product with ones: LLVM adds the bytes up by five operations more
        v, ones = self.v, self.v.const(vector(I8, 4 * x.type.count), 1)
        for nibbles in self._nibbles(x, possible):
            total = self.octets(total, v.bits(self._looked_up_bits(nibbles), x.type), v.bits(ones, x.type))
        return total

    def octets(self, total: Any, unsigned: Any, signed: Any) -> Any:
        # words, as the instruction's first name had them: every LLVM knows that one
        return self.by_registers({512: "llvm.x86.avx512.vpdpbusd.512"}, I32, total, unsigned, signed)

    @property
    def takes_octets(self) -> bool:  # type: ignore[override]
        return {"avx512vbmi", "avx512vnni"} <= self.has

    def octets_from(self, words: Any, starts: Sequence[int]) -> Any:
        t = vector(I8, 4 * words.type.count)  # an instruction's places count the bits of two words
        places = ir.Constant(t, [n + 32 * (word % 2) for word in range(words.type.count) for n in starts])
        name = {512: "llvm.x86.avx512.pmultishift.qb.512"}
        return self.v.bits(self.by_registers(name, I8, places, self.v.bits(words, t)), words.type)

    def picked(self, x: Any, places: Any) -> Any | None:
        low, high = (self.v.shuffle(x, x, list(range(n, n + 16))) for n in (0, 16))
        name = "llvm.x86.avx512.vpermi2var.d.512"  # the fifth bit of a place tells which of the two registers
        return self.by_parts(16, lambda at: self.v.call(name, low.type, low, at, high), places)

    def looked_up(self, columns: Sequence[list[int]], index: Any) -> list[Any]:
        if not isinstance(index.type, ir.VectorType) or len(columns[0]) > 128:
            return super().looked_up(columns, index)
        return [self.by_parts(16, lambda at, c=column: self._words_of(c, at), index) for column in columns]

    def _words_of(self, column: list[int], at: Any) -> Any:
        """Words of a column by sixteen places: 32 at a time from two registers, of which higher bits pick one."""
        b, v, t = self.b, self.v, vector(I32, 16)
        words = column + [0] * (-len(column) % 32)
        found = []
        for n in range(0, len(words), 32):
            low, high = (ir.Constant(t, words[k : k + 16]) for k in (n, n + 16))
            found.append(v.call("llvm.x86.avx512.vpermi2var.d.512", t, low, at, high))
        for bit in (5, 6):
            if len(found) > 1:
                upper = b.icmp_unsigned("!=", b.and_(at, v.const(t, 1 << bit)), v.const(t, 0))
                found = [b.select(upper, y, x) for x, y in zip(found[::2], found[1::2], strict=True)]
        return found[0]

    def byte_table(self, table: list[int], x: Any) -> Any | None:
        if "avx512vbmi" not in self.has:
            return None
        t = vector(I8, 64)
        low, *high = (ir.Constant(t, table[n : n + 64]) for n in range(0, len(table), 64))
        if high:
            return self.v.call("llvm.x86.avx512.vpermi2var.qi.512", t, low, x, *high)
        return self.v.call("llvm.x86.avx512.permvar.qi.512", t, low, x)


class Avx512Vnni(Avx512):
    """AVX-512 of Cascade Lake."""

    row = AVX_512_VNNI


class Avx512Bitalg(Avx512):
    """AVX-512 of Ice Lake."""

    row = AVX_512_BITALG


class Avx512Fp16(Avx512):
    """AVX-512 of Intel from Sapphire Rapids on."""

    row = AVX_512_FP16


class Avx512Zen(Avx512):
    """AVX-512 of Zen 4 and 5."""

    row = AVX_512_ZEN


class Neon(Lowering):
    """AArch64."""

    row = NEON
    constraint = "w"

    def from_f16(self, bits: Any) -> Any:
        return self.b.fpext(self.v.bits(bits, like(bits, F16)), like(bits, F32))

    def nearest_f16(self, x: Any) -> Any:
        return _narrowed(self, x)

    @classmethod
    def shuffles_bytes(cls, has: frozenset[str]) -> bool:
        return True

    def byte_shuffle(self, x: Any, places: Any) -> Any:
        name = "llvm.aarch64.neon.tbl1.v16i8"
        return self.by_parts(16, lambda y, n: self.v.call(name, y.type, y, n), x, places)


_KINDS: tuple[type[Lowering], ...] = (Avx512Fp16, Avx512Zen, Avx512Bitalg, Avx512Vnni, Avx512, Avx2, X86, Neon)
LOWERINGS: dict[Processor, type[Lowering]] = {kind.row: kind for kind in _KINDS}


class LoweringTarget(NamedTuple):
    """A processor that code is written for: its lowering and its features."""

    lowering: type[Lowering]
    has: frozenset[str]

    def __str__(self) -> str:
        """The same in every process."""
        return " ".join([self.lowering.__name__, *sorted(self.has)])

    @property
    def shuffles_bytes(self) -> bool:
        """Whether bytes can be moved by computed places."""
        return self.lowering.shuffles_bytes(self.has)


def target(architecture: str, has: frozenset[str]) -> LoweringTarget | None:
    """The target of an architecture's name (as LLVM's triples begin) and features, or None where nbtc has none."""
    row = processor(architecture, has)
    return None if row is None else LoweringTarget(LOWERINGS[row], has)


@cache
def host() -> LoweringTarget | None:
    """The processor which Numba compiles for."""
    return target(architecture(), features())


def lowering(v: VectorBuilder) -> Lowering:
    """That of the processor which a builder's code is for."""
    found = v.target or host() or LoweringTarget(Lowering, frozenset())
    return found.lowering(v, found.has)
