"""A small builder of explicit vector IR for Numba intrinsics.

Autovectorised loops were five to ten times slower than these kernels: the register tile, the broadcasts and the
rounding mode of each multiply-add have to be said.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from llvmlite import ir
from llvmlite.ir.instructions import Instruction, StoreInstr
from numba.core import cgutils, types

I1, I8, I16, I32, I64 = (ir.IntType(n) for n in (1, 8, 16, 32, 64))
_INTEGERS = {t.width: t for t in (I1, I8, I16, I32, I64)}
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()
LINE = 64  # bytes of a cache line and of the widest vectors
TO_NEAREST, ROUND_DOWN, ROUND_TOWARD_ZERO, AS_THE_MODE = 8, 9, 11, 4  # embedded rounding, no exceptions

_FLOATS = {ir.HalfType: "f16", ir.FloatType: "f32", ir.DoubleType: "f64"}  # by class: types take long to hash
Number = int  # inside `VectorBuilder`, `int` is its method


class Splat(ir.Constant):  # type: ignore[misc]
    """One number in every lane, written as LLVM does from 19 on (Language Reference, "Vector Constants").

    llvmlite writes every lane: that was 60 % of a Triton program's text, which was written, searched and read for it.

    >>> str(Splat(vector(ir.IntType(8), 4), 7))
    '<4 x i8> splat (i8 7)'
    """

    def __init__(self, t: ir.VectorType, value: Any) -> None:
        self.type, self.element = t, ir.Constant(t.element, value)
        self.constant = [self.element] * t.count

    def _get_reference(self) -> str:
        return f"splat ({self.element})"


class Undefined(ir.Constant):  # type: ignore[misc]
    """A vector without a value, in one word: llvmlite writes one for every lane."""

    def __init__(self, t: ir.VectorType) -> None:
        self.type, self.constant = t, ir.Undefined

    def _get_reference(self) -> str:
        return "undef"


# A program's code names few types and numbers often.  llvmlite takes long to make them, and each object of them writes
# its text anew.
@lru_cache(maxsize=1 << 12)
def _splat(width: int, count: int, value: int) -> Splat:
    return Splat(_integers(width, count), value)


@lru_cache(maxsize=1 << 12, typed=True)  # True is not written as 1 is
def _number(width: int, value: int) -> ir.Constant:
    return ir.Constant(_INTEGERS.get(width) or ir.IntType(width), value)


@lru_cache(maxsize=1 << 8)
def _integers(width: int, count: int) -> ir.VectorType:
    return ir.VectorType(_INTEGERS.get(width) or ir.IntType(width), count)


@lru_cache(maxsize=1 << 8)
def _floats(name: str, count: int) -> ir.VectorType:
    return ir.VectorType({"f16": F16, "f32": F32, "f64": F64}[name], count)


@lru_cache(maxsize=1 << 12)
def _lanes(lanes: tuple[int, ...]) -> ir.Constant:
    return ir.Constant(_integers(32, len(lanes)), lanes)


def vector(element: ir.Type, count: int) -> ir.VectorType:
    """<count x element>"""
    if isinstance(element, ir.IntType):
        return _integers(element.width, count)
    name = _FLOATS.get(type(element))
    return ir.VectorType(element, count) if name is None else _floats(name, count)


def like(x: Any, element: ir.Type) -> ir.Type:
    """`element` in as many lanes as x has."""
    return vector(element, x.type.count) if isinstance(x.type, ir.VectorType) else element


def suffix(t: ir.Type) -> str:
    """The overload suffix of an LLVM intrinsic's name."""
    if isinstance(t, ir.VectorType):
        return f"v{t.count}{suffix(t.element)}"
    return f"i{t.width}" if isinstance(t, ir.IntType) else _FLOATS[type(t)]


def stack_array(b: Any, size: int) -> Any:
    """Zeroed memory of the function's frame, `size` bytes aligned to 64, as a pointer to bytes.

    Zeroed by vectors: LLVM takes the store of an array apart into its elements, and then spends most of a kernel's
    compilation on them (0.5 of 0.9 seconds for 2 KiB).
    """
    with b.goto_entry_block():
        buffer = b.alloca(ir.ArrayType(I8, size))
        buffer.align = LINE
        for at in range(0, size, LINE):
            zeros = ir.Constant(vector(I8, min(LINE, size - at)), None)
            place = b.gep(buffer, [ir.Constant(I32, 0), ir.Constant(I32, at)])
            b.store(zeros, b.bitcast(place, zeros.type.as_pointer()), align=LINE)
        return b.bitcast(buffer, I8.as_pointer())


class VectorBuilder:
    """A Numba code generator's builder with vector words.

    context: Numba's, or None where no array arguments are taken apart.  target: the class of `compiler.lowering` that
    code is for, or None for the processor which Numba compiles for.
    """

    def __init__(self, context: Any, builder: Any, target: Any = None) -> None:
        self.context, self.b, self.target = context, builder, target

    def pointer(self, array_type: Any, array: Any) -> Any:
        """The data pointer of an array argument."""
        return self.b.bitcast(self.context.make_array(array_type)(self.context, self.b, array).data, I8.as_pointer())

    def fields(self, kind: Any, value: Any) -> dict[str, Any]:
        """The parts of a NamedTuple argument by name: of arrays the data pointers, whole numbers as they are."""
        parts = {name: self.b.extract_value(value, i) for i, name in enumerate(kind.fields)}
        return {
            name: self.pointer(t, x) if isinstance(t, types.Array) else x
            for (name, x), t in zip(parts.items(), kind.types, strict=True)
        }

    def const(self, t: ir.Type, value: Any) -> Any:
        """A constant; the same in every lane of a vector type."""
        if not isinstance(t, ir.VectorType):
            known = isinstance(t, ir.IntType) and isinstance(value, Number)
            return _number(t.width, value) if known else ir.Constant(t, value)
        if isinstance(t.element, ir.IntType) and isinstance(value, Number):
            return _splat(t.element.width, t.count, value)
        return ir.Constant(t, value) if value is ir.Undefined else Splat(t, value)

    def int(self, value: int) -> Any:
        """An i64 constant."""
        return _number(64, value)

    def at(self, p: Any, *offsets: Any) -> Any:
        """p moved by byte offsets (numbers or i64 values)."""
        for o in offsets:
            if isinstance(o, int) and o == 0:
                continue
            p = self.b.gep(p, [self.int(o) if isinstance(o, int) else o], source_etype=I8)
        return p

    def load(self, p: Any, t: ir.Type, align: Number = 1, offset: Any = 0) -> Any:
        """A value of type t at p + offset bytes."""
        return self.b.load(self.at(p, offset), align=align, typ=t)

    def store(self, value: Any, p: Any, align: Number = 1, offset: Any = 0) -> None:
        """Store value at p + offset bytes."""
        # the builder's own wants a pointer of the value's type, though LLVM's pointers have none
        stored = StoreInstr(self.b.block, value, self.at(p, offset))
        stored.align = align
        self.b._insert(stored)

    def prefetch(self, p: Any, offset: Any = 0, *, level: Number = 1, write: bool = False) -> None:
        """Ask for the cache line at p + offset bytes, into the first or second level, to be read or written."""
        at = self.at(p, offset)
        kind = ir.FunctionType(ir.VoidType(), [at.type, I32, I32, I32])
        locality, data = 4 - level, 1  # LLVM counts from 3, the nearest
        flags = [self.const(I32, n) for n in (int(write), locality, data)]
        self.b.call(cgutils.get_or_insert_function(self.b.module, kind, "llvm.prefetch.p0"), [at, *flags])

    def splat(self, x: Any, count: Number) -> Any:
        """x in every lane."""
        nothing = Undefined(vector(x.type, count))
        one = self.b.insert_element(nothing, x, ir.Constant(I32, 0))
        return self.b.shuffle_vector(one, nothing, _splat(32, count, 0))

    def shuffle(self, x: Any, y: Any, lanes: list[Number]) -> Any:
        """Lanes picked from x then y."""
        return self.b.shuffle_vector(x, y, _lanes(tuple(lanes)))

    def joined(self, parts: list[Any]) -> Any:
        """Vectors of equal length end to end, a power of two of them."""
        while len(parts) > 1:
            lanes = list(range(2 * parts[0].type.count))
            parts = [self.shuffle(x, y, lanes) for x, y in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    def bits(self, x: Any, t: ir.Type) -> Any:
        """x's bits as type t."""
        return self.b.bitcast(x, t)

    def call(self, name: str, result: ir.Type, *args: Any) -> Any:
        """Call an LLVM intrinsic."""
        kind = ir.FunctionType(result, [a.type for a in args])
        return self.b.call(cgutils.get_or_insert_function(self.b.module, kind, name), args)

    def over(self, name: str, *args: Any) -> Any:
        """Call llvm.NAME overloaded on its first argument's type, which is also the result's."""
        return self.call(f"llvm.{name}.{suffix(args[0].type)}", args[0].type, *args)

    def umax(self, a: Any, b: Any) -> Any:
        """Unsigned maximum."""
        return self.over("umax", a, b)

    def smax(self, a: Any, b: Any) -> Any:
        """Signed maximum."""
        return self.over("smax", a, b)

    def umin(self, a: Any, b: Any) -> Any:
        """Unsigned minimum."""
        return self.over("umin", a, b)

    def smin(self, a: Any, b: Any) -> Any:
        """Signed minimum."""
        return self.over("smin", a, b)

    def freeze(self, x: Any) -> Any:
        """x, or some fixed value where LLVM says that x has none (poison), as the integer of an Inf."""
        frozen = Instruction(self.b.block, x.type, "freeze", [x])  # llvmlite has none of its own
        self.b._insert(frozen)
        return frozen

    def popcount(self, a: Any) -> Any:
        """Bits set in each lane."""
        return self.over("ctpop", a)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """a * b + c with one rounding to nearest."""
        return self.over("fma", a, b, c)

    def truncated(self, x: Any) -> Any:
        """x to 32-bit integers, toward zero in every mode; any integer where it is Inf, NaN or too large."""
        # without it, LLVM may take it for anything each time
        return self.freeze(self.b.fptosi(x, like(x, I32)))

    def byte_counts(self, x: Any) -> Any:
        """Bits set in each byte of eight 32-bit lanes (AVX2)."""
        b, octets, pairs = self.b, vector(I8, 32), vector(I16, 16)
        table = ir.Constant(octets, [n.bit_count() for n in range(16)] * 2)
        high = b.lshr(self.bits(x, pairs), self.const(pairs, 4))
        nibbles = (b.and_(self.bits(y, octets), self.const(octets, 15)) for y in (x, high))
        return b.add(*(self.call("llvm.x86.avx2.pshuf.b", octets, table, y) for y in nibbles))

    def byte_sums(self, x: Any, low: Number = 32) -> Any:
        """The sum of the four unsigned bytes of each of eight lanes (AVX2); low: higher bits are known to be zero."""
        octets, pairs = vector(I8, 32), vector(I16, 16)
        sums = self.call("llvm.x86.avx2.pmadd.ub.sw", pairs, self.bits(x, octets), self.const(octets, 1))
        if low > 16:
            return self.call("llvm.x86.avx2.pmadd.wd", vector(I32, 8), sums, self.const(pairs, 1))
        return self.bits(sums, vector(I32, 8))

    def round_to_f16(self, x: Any, *, native: bool) -> Any:
        """f32 rounded to nearest even to f16, as f32, in every mode; native: with F16C or AVX-512; else for x >= 0."""
        b, n = self.b, x.type.count
        if not native:
            return self._round_to_f16(x)
        nearest = ir.Constant(I32, 0)
        if n == 16:
            blank, mask = self.const(vector(I16, n), 0), ir.Constant(I16, -1)
            bits = self.call("llvm.x86.avx512.mask.vcvtps2ph.512", blank.type, x, nearest, blank, mask)
        else:
            bits = self.call("llvm.x86.vcvtps2ph.256", vector(I16, n), x, nearest)
        return b.fpext(self.bits(bits, vector(F16, n)), x.type)

    def _round_to_f16(self, x: Any) -> Any:
        """The same with integer operations."""
        b, t = self.b, vector(I32, x.type.count)
        y = self.bits(x, t)
        tie = b.and_(b.lshr(y, self.const(t, 13)), self.const(t, 1))
        normal = b.and_(b.add(b.add(y, self.const(t, 0xFFF)), tie), self.const(t, -1 << 13))
        infinite = b.icmp_signed(">=", normal, self.const(t, 143 << 23))
        normal = b.select(infinite, self.const(t, 255 << 23), normal)
        fixed = b.fmul(x, self.const(x.type, 2.0**32))  # units of 2**-32, rounded to units of 2**-24
        n = self.truncated(fixed)
        n = b.or_(n, b.zext(b.fcmp_unordered("!=", b.sitofp(n, x.type), fixed), t))
        tie = b.and_(b.lshr(n, self.const(t, 8)), self.const(t, 1))
        n = b.lshr(b.add(b.add(n, self.const(t, 0x7F)), tie), self.const(t, 8))
        small = b.fmul(b.sitofp(n, x.type), self.const(x.type, 2.0**-24))
        subnormal = b.icmp_signed("<", y, self.const(t, 113 << 23))
        return b.select(subnormal, small, self.bits(normal, x.type))

    # --- AVX-512 only -------------------------------------------------------------------------------------------------
    def fma512(self, a: Any, b: Any, c: Any, rounding: Number) -> Any:
        """a * b + c in 512-bit registers with the rounding embedded in the instruction."""
        name = "pd" if a.type.element == F64 else "ps"
        return self.call(f"llvm.x86.avx512.vfmadd.{name}.512", a.type, a, b, c, ir.Constant(I32, rounding))

    def broadcast512(self, p: Any, element: Any) -> Any:
        """The f64 or f32 at p in all lanes of 512 bits, loaded as an integer.

        LLVM's vbroadcastsd and vbroadcastss take a shuffle unit of Zen 4 beside the load, which one a cycle can do;
        vpbroadcastq and vpbroadcastd take the load alone, two a cycle.
        """
        name, count = ("vpbroadcastq", 8) if element == F64 else ("vpbroadcastd", 16)
        t, at = vector(element, count), self.b.bitcast(p, element.as_pointer())
        asm = ir.InlineAsm(ir.FunctionType(t, [at.type]), f"{name} $1, $0", "=v,*m")
        return self.b.call(asm, [at], attrs=("readonly", "nounwind"), arg_attrs={0: ("elementtype",)})

    def unknown_mask(self, bits: Number, count: Number) -> Any:
        """A vector of conditions that LLVM knows nothing of."""
        t = ir.IntType(count)
        asm = ir.InlineAsm(ir.FunctionType(t, []), f"mov $${bits:#x}, $0", "=r", side_effect=True)
        return self.bits(self.b.call(asm, []), vector(I1, count))

    def or_where(self, mask: Any, x: Any, y: Any) -> Any:
        """x | y of sixteen words where a mask says so, else x: of y = 1 LLVM would make four operations."""
        kind = ir.FunctionType(x.type, [x.type, mask.type, y.type])
        return self.b.call(ir.InlineAsm(kind, "vpord $3, $0, $0 {$2}", "=v,0,^Yk,v"), [x, mask, y])

    def averages_where(self, mask: Any, x: Any, y: Any) -> Any:
        """(x + y + 1) >> 1 of unsigned halves where a mask says so, else 0."""
        kind = ir.FunctionType(x.type, [mask.type, x.type, y.type])
        return self.b.call(ir.InlineAsm(kind, "vpavgw $3, $2, $0 {$1} {z}", "=v,^Yk,v,v"), [mask, x, y])

    def difference(self, a: Any, b: Any) -> Any:
        """a - b of <16 x float> to nearest: +0 of equal ones."""
        return self.call("llvm.x86.avx512.sub.ps.512", a.type, a, b, ir.Constant(I32, TO_NEAREST))

    def add_octets(self, total: Any, unsigned: Any, signed: Any) -> Any:
        """The sum of four products of bytes in each of sixteen words, added to a total (VNNI)."""
        return self.call("llvm.x86.avx512.vpdpbusd.512", total.type, total, unsigned, signed)

    def add_halves(self, total: Any, x: Any, y: Any) -> Any:
        """The same of two products of signed halves."""
        return self.call("llvm.x86.avx512.vpdpwssd.512", total.type, total, x, y)

    def to_float_rz(self, x: Any) -> Any:
        """<16 x i32> to <16 x float>, toward zero."""
        name = "llvm.x86.avx512.sitofp.round.v16f32.v16i32"
        return self.call(name, vector(F32, 16), x, ir.Constant(I32, ROUND_TOWARD_ZERO))

    def narrowed_rz(self, x: Any) -> Any:
        """<8 x double> to <8 x float>, toward zero."""
        name, t, every = "llvm.x86.avx512.mask.cvtpd2ps.512", vector(F32, 8), ir.Constant(I8, -1)
        return self.call(name, t, x, self.const(t, 0.0), every, ir.Constant(I32, ROUND_TOWARD_ZERO))

    def scalef512(self, x: Any, e: Any) -> Any:
        """x * 2**floor(e) for <16 x float>, rounded as the mode says, subnormal results and operands kept."""
        args = x, e, x, ir.Constant(I16, -1), ir.Constant(I32, AS_THE_MODE)
        return self.call("llvm.x86.avx512.mask.scalef.ps.512", x.type, *args)

    def scale_rz(self, x: Any, e: Any) -> Any:
        """x * 2**floor(e) for <16 x float>, toward zero, subnormal results and operands kept."""
        mask = ir.Constant(I16, -1)
        return self.call(
            "llvm.x86.avx512.mask.scalef.ps.512", x.type, x, e, x, mask, ir.Constant(I32, ROUND_TOWARD_ZERO)
        )
