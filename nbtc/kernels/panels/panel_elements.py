"""Elements of the panels of a fused product, decoded: values, exponents and signs.

What is a byte or two of each element is computed in lanes of the elements' own width.  Values become f32, as which they
are normal (but subnormals of bf16 and tf32); those of f64 are f32's fields in its place, times what that is short of.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import F32, F64, I8, I16, I32, I64, VectorBuilder, like, vector
from nbtc.compiler.cpu.lowering import lowering
from nbtc.formats.table import Format
from nbtc.kernels.float_fields import BASE, BIAS, LEAST, REFERENCE
from nbtc.kernels.panels.panel_operands import Packing

CHUNK = 16  # elements that are made values together
BIAS32, FIELD32, MANTISSA32 = 127, 8, 23  # of f32: exponent bias, bits of the exponent field and of the fraction
BIAS64, FIELD64, MANTISSA64 = 1023, 11, 52
BIAS16, FIELD16 = 15, 5
IV = vector(I32, CHUNK)


def element_bits(fmt: Format) -> int:
    """Bits that an element takes in memory."""
    return 1 << max(3, (fmt.bits - 1).bit_length())


class PanelElements:
    """Decodes vectors of elements of a format; x is always one, with its signs on top (`load`).

    p: `float_params`, of which what depends on the product is read.  factor: of elements as f32 that have their field
    at its top; tiny: what is stored for a zero.
    """

    def __init__(self, v: VectorBuilder, how: Packing, fmt: Format, p: Any, factor: Any, tiny: Any) -> None:
        self.v, self.b, self.f, self.m = v, v.b, fmt, lowering(v)
        self.in_f64, self.widened, self.scaled = bool(how.in_f64), bool(how.emulated), bool(how.scaled)
        self.width = element_bits(fmt)
        self.drop = self.width - 1 - fmt.exponent - fmt.mantissa  # low bits that don't count: tf32's, and of `load`
        self.element, self.size = ir.IntType(self.width), self.width // 8
        b, stored = v.b, I16 if how.full_range else I8
        self.stored = stored

        def entry(i: int) -> Any:
            return v.load(p, I64, 8, 8 * i)

        self.least = entry(LEAST)
        self.rebase = b.sub(entry(BASE), b.add(entry(BIAS), entry(REFERENCE)))
        self.masks = self.m.row.masks
        self.narrow = fmt.exponent <= FIELD16  # f16 has its numbers
        moved = BIAS16 - BIAS32 if self.narrow else 0
        self.lanes = CHUNK // 2 if self.in_f64 else CHUNK
        self.vector = vector(F64 if self.in_f64 else F32, self.lanes)
        moved += BIAS64 - BIAS32 if self.in_f64 else 0
        factor = b.fmul(factor, ir.Constant(F64, 2.0**moved))
        cast = (lambda x: x) if self.in_f64 else (lambda x: b.fptrunc(x, F32))
        self.factor, self.tiny = v.splat(cast(factor), self.lanes), v.splat(cast(tiny), self.lanes)

    def c(self, x: Any, value: int) -> Any:
        """A constant of x's type."""
        return self.v.const(x.type, value)

    def load(self, p: Any, count: int) -> Any:
        """Elements from p on."""
        x = self.v.load(p, vector(self.element, count), self.size)
        return x if self.width == self.f.bits else self.b.shl(x, self.c(x, self.width - self.f.bits))

    def store(self, x: Any, p: Any) -> None:
        """Write elements to memory as `load` reads them."""
        x = x if self.width == self.f.bits else self.b.lshr(x, self.c(x, self.width - self.f.bits))
        self.v.store(x, p, self.size)

    # --- bits ---------------------------------------------------------------------------------------------------------
    def magnitude(self, x: Any) -> Any:
        """x without its sign, and without the low bits that don't count."""
        return self.b.and_(x, self.c(x, (1 << (self.width - 1)) - (1 << self.drop)))

    def special(self, magnitude: Any) -> Any:
        """Lanes (i1) whose elements are Inf or NaN."""
        return self.b.icmp_unsigned(">=", magnitude, self.c(magnitude, self.f.special << self.drop))

    def finite(self, x: Any) -> Any:
        """Inf and NaN count as zeros: whoever finds them does their rows and columns again."""
        return self.b.select(self.special(self.magnitude(x)), self.c(x, 0), x)

    def none(self, magnitude: Any) -> Any:
        """Lanes (i1) whose elements are zeros."""
        return self.b.icmp_unsigned("==", magnitude, self.c(magnitude, 0))

    def negative(self, x: Any) -> Any:
        """Lanes (i1) whose elements are below zero: -0 is stored as a positive number."""
        if self.masks:
            return self.b.icmp_unsigned(">", x, self.c(x, (1 << (self.width - 1)) | ((1 << self.drop) - 1)))
        # by their top bytes, which an instruction has; of wider elements LLVM moves each bit by itself
        octets = self.v.bits(self.sign(x, self.none(self.magnitude(x))), vector(I8, self.size * x.type.count))
        tops = self.v.shuffle(octets, octets, list(range(self.size - 1, octets.type.count, self.size)))
        return self.b.icmp_signed("<", tops, self.c(tops, 0))

    def sign(self, x: Any, none: Any) -> Any:
        """Words whose top bits are set where x is below zero; their other bits mean nothing."""
        if self.width > 16:
            return self.b.select(none, self.c(x, 0), x)
        return self.v.over("usub.sat", x, self.c(x, 1 << self.drop))  # by which the top bit of -0 goes

    def fraction(self, magnitude: Any) -> Any:
        """The fraction fields, in units of the last place."""
        units = self.b.lshr(magnitude, self.c(magnitude, self.drop)) if self.drop else magnitude
        return self.b.and_(units, self.c(units, (1 << self.f.mantissa) - 1))

    # --- what is stored -----------------------------------------------------------------------------------------------
    def exponents(self, x: Any, magnitude: Any, none: Any, scale: Any = None) -> Any:
        """Stored exponents; zeros have 0.  scale: what block scales add."""
        v, b, t = self.v, self.b, vector(self.stored, x.type.count)
        field = self.wide_field(x) if self.widened else self._as(magnitude, self.f.mantissa + self.drop, t)
        kind = field.type
        least, rebase = (v.splat(b.trunc(n, kind.element), kind.count) for n in (self.least, self.rebase))
        field = b.add(v.over("smax" if self.widened else "umax", field, least), rebase)
        field = field if kind == t else b.trunc(field, t)
        if scale is not None:
            field = b.add(field, b.trunc(scale, t))
        return b.select(none, v.const(t, 0), field)

    def _as(self, magnitude: Any, shift: int, t: ir.VectorType) -> Any:
        """Exponent fields in lanes of another width; LLVM knows that they fit, which it would not of sums."""
        field = self.b.lshr(magnitude, self.c(magnitude, shift))
        if field.type == t:
            return field
        return (self.b.trunc if self.width > t.element.width else self.b.zext)(field, t)

    def wide_field(self, x: Any) -> Any:
        """Exponent fields, of subnormals as if there were more of them: what f32 has."""
        b, bits = self.b, self.v.bits(self.single(x), like(x, I32))
        field = b.lshr(b.and_(bits, self.c(bits, (1 << 31) - 1)), self.c(bits, MANTISSA32))
        return b.sub(field, self.c(field, BIAS32 - BIAS16))

    def placed(self, x: Any, width: int, field: int) -> Any:
        """Elements as words of `width` bits whose exponent fields have `field` bits."""
        v, b, f, t = self.v, self.b, self.f, like(x, ir.IntType(width))
        if width > self.width:
            x = b.shl(b.zext(x, t), v.const(t, width - self.width))
        if field > f.exponent:
            x = b.ashr(x, v.const(t, field - f.exponent))
        elif not self.drop or width > self.width:
            return x
        kept = ((1 << (f.exponent + f.mantissa)) - 1) << (width - 1 - field - f.mantissa)
        return b.and_(x, v.const(t, (1 << (width - 1)) | kept))

    def single(self, x: Any) -> Any:
        """Elements as f32, whose bias formats of f16's range have as 15, the others as 127."""
        if self.narrow:
            return self.m.from_f16(self.placed(x, 16, FIELD16))
        return self.v.bits(self.placed(x, 32, FIELD32), like(x, F32))

    def doubles(self, x: Any, orders: list[list[int]]) -> list[Any]:
        """The same bits below an exponent field of f64: 2**(127 - 1023) times as much, lanes in the orders wanted.

        Lower words are zeros, so these are two shuffles; conversions of f32 took an extraction and a permutation more,
        and two operations each on Intel's.
        """
        v, b = self.v, self.b
        if self.narrow:
            bits = v.bits(self.single(x), IV)
            high = b.and_(b.ashr(bits, v.const(IV, FIELD64 - FIELD32)), v.const(IV, ~(7 << 28)))
        else:
            high = self.placed(x, 32, FIELD64)
        zeros = v.const(IV, 0)
        words = ([n for lane in lanes for n in (lane, CHUNK + lane)] for lanes in orders)
        return [v.bits(v.shuffle(zeros, high, lanes), self.vector) for lanes in words]

    def values(self, x: Any, orders: list[list[int]], scale: Any = None) -> list[Any]:
        """Decoded vectors, lanes in the orders wanted; zeros are tiny.  scale: times 2**scale, which f64 holds."""
        v, b, out = self.v, self.b, []
        for y, lanes in zip(self.doubles(x, orders) if self.in_f64 else [self.single(x)], orders, strict=True):
            factor = self.factor
            if scale is not None:
                t = vector(I64, len(lanes))
                power = b.add(v.shuffle(scale, scale, lanes), v.const(vector(I32, len(lanes)), BIAS64))
                y = b.fmul(y, factor)
                factor = v.bits(b.shl(b.zext(power, t), v.const(t, MANTISSA64)), self.vector)
            # exact: what is added is below all last places
            done = v.fma(y, factor, self.tiny) if self.m.row.fma else b.fadd(b.fmul(y, factor), self.tiny)
            out.append(done)
        return out
