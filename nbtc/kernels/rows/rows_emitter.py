"""One row of a tile of fused dot products, as generic vector IR: 64 columns a step, exact where it says it is."""

from __future__ import annotations

from typing import Any, NamedTuple

from numba.core import cgutils, types
from numba.extending import intrinsic

from nbtc.compiler.builder import F32, F64, I8, I16, I32, I64, VectorBuilder, vector
from nbtc.compiler.callees import overload
from nbtc.compiler.jit import jit
from nbtc.numerics.models import OUTS

LOW, HIGH = -101, 122  # alignment exponents whose results are normal f32 numbers whatever the sum
MARGIN = (1 << 31) - (1 << 26)  # a wrapped int32 sum can only lie beyond this
COLUMNS, CHUNK = 64, 16  # columns a step, and those that share one 32-bit vector
IV, FV = vector(I32, CHUNK), vector(F32, CHUNK)
# Exponents that mark a zero (f32 and f64 elements): with any other exponent they stay below every sum of two real ones,
# and two of them do not overflow the int8 or int16 they are stored in.
F32_ZERO, F64_ZERO = -60, -4000
_RZ14, _RNE11 = OUTS["rz14"], OUTS["rne11"]


class RowEmitter:
    """Writes the sum of one block of products for one row and all columns, 64 columns at a time, as vector IR.

    It is generic IR, legal on every target; on 512-bit hosts a chunk of 16 columns is one register.  Loops over k are
    real loops, so one kernel serves every block size.
    """

    def __init__(self, v: VectorBuilder, in_f64: bool, out: str, args: dict[str, Any]) -> None:
        self.v, self.b, self.in_f64, self.out, self.args = v, v.b, in_f64, out, args
        self.f16_acc = out == "rne11"
        self.value, self.size = (F64, 8) if in_f64 else (F32, 4)
        self.exponents = vector(I16 if in_f64 else I8, COLUMNS)
        self.mark = (
            F64_ZERO if in_f64 else F32_ZERO
        ) >> 1  # between the sums of real exponents and those with a zero's
        self.fraction, self.floor = (v.splat(self.b.trunc(args[x], I32), CHUNK) for x in ("fraction", "floor"))

    def c(self, value: int) -> Any:
        return self.v.const(IV, value)

    def slot(self, value: Any) -> Any:
        """A variable of a loop (LLVM turns it into a register)."""
        p = cgutils.alloca_once(self.b, value.type)
        self.b.store(value, p)
        return p

    def emit(self) -> Any:
        """All columns; the result is not zero when some column must be recomputed."""
        b, v = self.b, self.v
        worst = self.slot(self.c(0))
        with cgutils.for_range(b, b.udiv(self.args["columns"], v.int(COLUMNS))) as loop:
            column = b.mul(loop.index, v.int(COLUMNS))
            top = self.largest(column)
            starts = [self.start(top, q, column) for q in range(COLUMNS // CHUNK)]
            sums = self.products(column, [s[2] for s in starts], [s[1] for s in starts])
            for q, (aligned, _, _, bad) in enumerate(starts):
                flags = self.finish(sums[q], aligned, bad, q, column)
                b.store(b.or_(b.load(worst), flags), worst)
        return v.call("llvm.vector.reduce.or.v16i32", I32, b.load(worst))

    def place(self, array: str, size: int, row: Any, column: Any) -> Any:
        """Address of an element of a matrix with rows of `columns`."""
        b = self.b
        at = b.add(b.mul(row, self.args["columns"]), column)
        return self.v.at(self.args[array], b.mul(at, self.v.int(size)))

    def picked(self, k: Any) -> Any:
        return self.v.load(self.v.at(self.args["pick"], self.b.mul(k, self.v.int(8))), I64, 8)

    def largest(self, column: Any) -> Any:
        """Largest exponent of the products of 64 columns; a zero product counts as the floor."""
        v, b, t = self.v, self.b, self.exponents
        bits = t.element.width
        best, least = self.slot(v.const(t, -(1 << (bits - 1)))), self.slot(v.const(t, 0))
        with cgutils.for_range_slice(b, self.args["start"], self.args["stop"], v.int(1), I64) as (k, _):
            ea = v.load(v.at(self.args["a_exponents"], b.mul(k, v.int(bits // 8))), t.element, bits // 8)
            eb = v.load(self.place("b_exponents", bits // 8, self.picked(k), column), t, bits // 8)
            e = b.add(v.splat(ea, COLUMNS), eb)
            b.store(v.smax(b.load(best), e), best)
            if self.in_f64 or self.f16_acc:
                b.store(v.over("smin", b.load(least), e), least)
        top = b.load(best)
        if self.in_f64 or self.f16_acc:  # elsewhere the floor lies below every real exponent: seen only without one
            floor = v.splat(b.trunc(self.args["floor"], t.element), COLUMNS)
            some = b.icmp_signed("<", b.load(least), v.const(t, self.mark))
            top = b.select(some, v.smax(top, floor), top)
        return top

    def accumulator(self, q: int, column: Any) -> Any:
        """A chunk of the accumulator as f32."""
        v, b = self.v, self.b
        x = v.load(self.place("c", 4, v.int(0), column), IV, 4, 4 * CHUNK * q)
        if not self.f16_acc:
            return x
        scaled = b.fmul(v.bits(b.shl(b.and_(x, self.c(0x7FFF)), self.c(13)), FV), v.const(FV, 2.0**112))
        return b.or_(v.bits(scaled, IV), b.shl(b.and_(x, self.c(0x8000)), self.c(16)))

    def start(self, top: Any, q: int, column: Any) -> tuple[Any, Any, Any, Any]:
        """Let the accumulator take part: (alignment exponent, its power of two, truncated start value, bad lanes)."""
        v, b = self.v, self.b
        x = self.accumulator(q, column)
        product = b.sext(v.shuffle(top, top, list(range(CHUNK * q, CHUNK * (q + 1)))), IV)
        product = b.select(b.icmp_signed("<", product, self.c(self.mark)), self.floor, product)
        field = b.and_(b.lshr(x, self.c(23)), self.c(255))
        own = v.smax(b.sub(field, self.c(127)), self.c(-14 if self.f16_acc else -126))
        own = b.select(b.icmp_signed("==", b.shl(x, self.c(1)), self.c(0)), self.floor, own)
        e = v.smax(product, own)
        kept = v.over("smin", v.smax(e, self.c(LOW)), self.c(HIGH))
        special = b.icmp_signed(">", field, self.c(142 if self.f16_acc else 254))
        bad = b.or_(special, b.icmp_signed("!=", e, kept))
        up = v.bits(b.shl(b.sub(b.add(self.fraction, self.c(127)), kept), self.c(23)), FV)
        return kept, up, v.truncated(b.fmul(v.bits(x, FV), up)), bad

    def products(self, column: Any, starts: list[Any], ups: list[Any]) -> list[Any]:
        """The start values plus every product, truncated to the common unit."""
        v, b, t = self.v, self.b, vector(self.value, CHUNK)
        sums = [self.slot(s) for s in starts]
        scales = [b.fpext(u, t) for u in ups] if self.in_f64 else ups
        with cgutils.for_range_slice(b, self.args["start"], self.args["stop"], v.int(1), I64) as (k, _):
            a = v.splat(v.load(v.at(self.args["a"], b.mul(k, v.int(self.size))), self.value, self.size), CHUNK)
            row = self.place("b", self.size, self.picked(k), column)
            for q, total in enumerate(sums):
                p = b.fmul(b.fmul(a, v.load(row, t, self.size, self.size * CHUNK * q)), scales[q])
                b.store(b.add(b.load(total), v.truncated(p)), total)
        return [b.load(p) for p in sums]

    def finish(self, x: Any, aligned: Any, bad: Any, q: int, column: Any) -> Any:
        """Round a chunk's sums once and store them; the lanes to recompute, as -1."""
        v, b = self.v, self.b
        sign = b.ashr(x, self.c(31))
        magnitude = b.sub(b.xor(x, sign), sign)
        y = self.rounded(magnitude, aligned)
        signed = b.or_(y, b.and_(sign, self.c(0x8000 if self.f16_acc else -(1 << 31))))
        y = b.select(b.icmp_signed("==", y, self.c(0)), y, signed)  # every zero is +0
        at = self.place("c", 4, v.int(0), column)
        v.store(y, at, 4, 4 * CHUNK * q)
        wrapped = b.icmp_unsigned(">=", magnitude, self.c(MARGIN))
        flags = b.sext(b.or_(bad, wrapped), IV)
        v.store(b.trunc(flags, vector(I8, CHUNK)), v.at(self.args["bad"], column), 1, CHUNK * q)
        return flags

    def rounded(self, magnitude: Any, aligned: Any) -> Any:
        """magnitude * 2**(E - F) rounded as the unit rounds, without sign."""
        v, b = self.v, self.b
        near = b.sitofp(magnitude, FV)
        over = b.icmp_signed(">", v.truncated(near), magnitude)
        bits = b.add(v.bits(near, IV), b.sext(over, IV))  # toward zero
        down = v.bits(b.shl(b.sub(b.add(aligned, self.c(127)), self.fraction), self.c(23)), FV)
        if not self.f16_acc:
            y = v.bits(b.fmul(v.bits(bits, FV), down), IV)
            return b.and_(y, self.c(-1024)) if self.out == "rz14" else y
        inexact = b.zext(b.icmp_signed("!=", v.truncated(v.bits(bits, FV)), magnitude), IV)
        value = b.fmul(v.bits(b.or_(bits, inexact), FV), down)  # odd in the last place: the next rounding sees the tail
        y = v.bits(value, IV)
        even = b.add(b.add(y, self.c(0xFFF)), b.and_(b.lshr(y, self.c(13)), self.c(1)))
        normal = v.over("smin", b.sub(b.lshr(even, self.c(13)), self.c(112 << 10)), self.c(0x7C00))
        small = b.sub(v.bits(b.fadd(value, v.const(FV, 0.5)), IV), self.c(0x3F000000))
        return b.select(b.icmp_signed("<", y, self.c(113 << 23)), small, normal)


class RowBlock(NamedTuple):
    """A block of products of one row: of products start..stop, the element t of the row is a[at + t], its row of B
    pick[pick_at + t]; its accumulators and marks begin at c_at.  columns: of B and of the accumulators.
    """

    a: Any
    a_exponents: Any
    at: int
    b: Any
    b_exponents: Any
    pick: Any
    pick_at: int
    start: int
    stop: int
    columns: int
    c: Any
    bad: Any
    c_at: int
    fraction: int
    floor: int


def _row_kernel(in_f64: bool, out: str) -> Any:
    """The intrinsic that sums a block of a row; not zero when it leaves elements undone."""

    @intrinsic  # type: ignore[untyped-decorator, unused-ignore]
    def kernel(typing, row):
        def codegen(context, builder, sig, values):
            v = VectorBuilder(context, builder)
            args = v.fields(row, values[0])
            _locate(v, args, 8 if in_f64 else 4, 2 if in_f64 else 1)
            return RowEmitter(v, in_f64, out, args).emit()

        return types.int32(row), codegen

    return kernel


def _locate(v: VectorBuilder, args: dict[str, Any], size: int, exponent_size: int) -> None:
    """Move the pointers of a row to its beginning."""
    steps = {
        "a": ("at", size),
        "a_exponents": ("at", exponent_size),
        "pick": ("pick_at", 8),
        "c": ("c_at", 4),
        "bad": ("c_at", 1),
    }
    for name, (index, width) in steps.items():
        args[name] = v.at(args[name], v.b.mul(args[index], v.int(width)))


_F32_RZ24, _F32_RZ14, _F32_RNE11 = (_row_kernel(False, out) for out in OUTS)
_F64_RZ24, _F64_RNE11 = _row_kernel(True, "rz24"), _row_kernel(True, "rne11")


@jit(inline=True)
def _sum_f32(row, out):
    if out == _RNE11:
        return _F32_RNE11(row)
    if out == _RZ14:
        return _F32_RZ14(row)
    return _F32_RZ24(row)


@jit(inline=True)
def _sum_f64(row, out):
    if out == _RNE11:
        return _F64_RNE11(row)
    return _F64_RZ24(row)


def sum_row(row, out):
    """One block of one row; the element type says which kernel."""


@overload(sum_row)
def _sum_row(row, out):
    kernel = _sum_f64 if row.types[row.fields.index("a")].dtype == types.float64 else _sum_f32

    def implementation(row, out):
        return kernel(row, out)

    return implementation
