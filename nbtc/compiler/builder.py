"""A small builder of explicit vector IR for Numba intrinsics.

Autovectorised loops were five to ten times slower than these kernels: the register tile, the broadcasts and the
rounding mode of each multiply-add have to be said.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

I1, I8, I16, I32, I64 = (ir.IntType(n) for n in (1, 8, 16, 32, 64))
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()
ROUND_DOWN, ROUND_TOWARD_ZERO = 9, 11  # embedded rounding, exceptions suppressed

Number = int  # inside `VectorBuilder`, `int` is its method


def vector(element: ir.Type, count: int) -> ir.VectorType:
    """<count x element>"""
    return ir.VectorType(element, count)


def suffix(t: ir.Type) -> str:
    """The overload suffix of an LLVM intrinsic's name."""
    if isinstance(t, ir.VectorType):
        return f"v{t.count}{suffix(t.element)}"
    return f"i{t.width}" if isinstance(t, ir.IntType) else {F16: "f16", F32: "f32", F64: "f64"}[t]


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

    def const(self, t: ir.Type, value: Any) -> Any:
        """A constant; the same in every lane of a vector type."""
        return ir.Constant(t, [value] * t.count if isinstance(t, ir.VectorType) else value)

    def int(self, value: int) -> Any:
        """An i64 constant."""
        return ir.Constant(I64, value)

    def at(self, p: Any, *offsets: Any) -> Any:
        """p moved by byte offsets (numbers or i64 values)."""
        for o in offsets:
            p = self.b.gep(p, [self.int(o) if isinstance(o, int) else o])
        return p

    def load(self, p: Any, t: ir.Type, align: Number = 1, offset: Any = 0) -> Any:
        """A value of type t at p + offset bytes."""
        x = self.b.load(self.b.bitcast(self.at(p, offset), t.as_pointer()))
        x.align = align
        return x

    def store(self, value: Any, p: Any, align: Number = 1, offset: Any = 0) -> None:
        """Store value at p + offset bytes."""
        self.b.store(value, self.b.bitcast(self.at(p, offset), value.type.as_pointer())).align = align

    def splat(self, x: Any, count: Number) -> Any:
        """x in every lane."""
        t = vector(x.type, count)
        one = self.b.insert_element(ir.Constant(t, ir.Undefined), x, ir.Constant(I32, 0))
        return self.b.shuffle_vector(one, ir.Constant(t, ir.Undefined), ir.Constant(vector(I32, count), None))

    def shuffle(self, x: Any, y: Any, lanes: list[Number]) -> Any:
        """Lanes picked from x then y."""
        return self.b.shuffle_vector(x, y, ir.Constant(vector(I32, len(lanes)), lanes))

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
        frozen = self.b.fneg(x)  # llvmlite has no freeze, which is spelled like any instruction of one operand
        frozen.opname = "freeze"
        return frozen

    def popcount(self, a: Any) -> Any:
        """Bits set in each lane."""
        return self.over("ctpop", a)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """a * b + c with one rounding to nearest."""
        return self.over("fma", a, b, c)

    # --- AVX-512 only -------------------------------------------------------------------------------------------------
    def fma512(self, a: Any, b: Any, c: Any, rounding: Number) -> Any:
        """a * b + c in 512-bit registers with the rounding embedded in the instruction."""
        name = "pd" if a.type.element == F64 else "ps"
        return self.call(f"llvm.x86.avx512.vfmadd.{name}.512", a.type, a, b, c, ir.Constant(I32, rounding))

    def to_float_rz(self, x: Any) -> Any:
        """<16 x i32> to <16 x float>, toward zero."""
        name = "llvm.x86.avx512.sitofp.round.v16f32.v16i32"
        return self.call(name, vector(F32, 16), x, ir.Constant(I32, ROUND_TOWARD_ZERO))

    def scale_rz(self, x: Any, e: Any) -> Any:
        """x * 2**floor(e) for <16 x float>, toward zero, subnormal results and operands kept."""
        mask = ir.Constant(I16, -1)
        return self.call(
            "llvm.x86.avx512.mask.scalef.ps.512", x.type, x, e, x, mask, ir.Constant(I32, ROUND_TOWARD_ZERO)
        )
