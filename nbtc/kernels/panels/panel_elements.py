"""Elements of the panels of a fused product, decoded sixteen at a time: values, exponents and signs.

The element's magnitude, shifted so that its exponent field lies where f32 has its own, is the value times a power of
two; multiplications undo that, apply the caller's factor, and normalise subnormals on the way.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import F32, F64, I1, I8, I16, I32, I64, VectorBuilder, vector
from nbtc.kernels.float_fields import BASE, BIAS, FIELD_SHIFT, LEAST, MANTISSA, REFERENCE, SIGN_SHIFT, SPECIAL

CHUNK = 16  # elements of a vector
BIAS64, MANTISSA64 = 1023, 52  # of an f64's exponent field
MAGNITUDE = (1 << 31) - 1  # the bits of an f32 but its sign
FIRST_STEP = 2.0**64  # of the scaling of f32 elements
IV, FV = vector(I32, CHUNK), vector(F32, CHUNK)
_INTS = {1: I8, 2: I16, 4: I32}


class PanelElements:
    """Decodes vectors of elements of one width; the format is in run-time parameters, so formats share the code.

    widened: the elements are converted to a wider format first, in which their subnormals are normal.
    """

    def __init__(
        self, v: VectorBuilder, size: int, in_f64: bool, widened: bool, p: Any, factor: Any, tiny: Any
    ) -> None:
        self.v, self.b, self.in_f64, self.widened = v, v.b, in_f64, widened
        self.raw = vector(_INTS[size], CHUNK)
        b, bits = v.b, 8 * size

        def entry(i: int) -> Any:
            return v.load(p, I64, 8, 8 * i)

        def lanes(x: Any) -> Any:
            return v.splat(b.trunc(x, I32), CHUNK)

        mantissa, sign, field = entry(MANTISSA), entry(SIGN_SHIFT), entry(FIELD_SHIFT)
        kept = b.sub(b.shl(v.int(1), sign), b.shl(v.int(1), b.sub(field, mantissa)))  # tf32 drops its low bits
        self.kept, self.special = lanes(kept), lanes(entry(SPECIAL))
        self.least, self.width = lanes(entry(LEAST)), lanes(v.int(0) if not widened else b.sub(v.int(32), mantissa))
        self.fraction = lanes(b.and_(kept, b.sub(b.shl(v.int(1), field), v.int(1))))
        self.to_top, self.field = lanes(b.sub(v.int(bits), b.add(sign, v.int(1)))), lanes(field)
        self.up, self.left = lanes(b.sub(v.int(23), field)), lanes(b.sub(v.int(31), sign))
        self.rebase = lanes(b.sub(entry(BASE), b.add(entry(BIAS), entry(REFERENCE))))
        element, self.lanes = (F64, 8) if in_f64 else (F32, 16)
        self.vector = vector(element, self.lanes)
        cast = (lambda x: x) if in_f64 else (lambda x: b.fptrunc(x, F32))
        if not in_f64:  # factors may be too large for f32: in two steps
            factor = b.fmul(factor, ir.Constant(F64, 1 / FIRST_STEP))
        self.factor = v.splat(cast(factor), self.lanes)
        self.tiny = v.bits(v.splat(cast(tiny), self.lanes), vector(I64 if in_f64 else I32, self.lanes))

    def magnitude(self, x: Any) -> Any:
        """Sixteen widened elements without their signs."""
        return self.b.and_(x, self.kept)

    def finite(self, magnitude: Any) -> Any:
        """Inf and NaN count as zeros: whoever finds them does their rows and columns again."""
        b = self.b
        return b.select(b.icmp_unsigned("<", magnitude, self.special), magnitude, self.v.const(IV, 0))

    def load(self, p: Any, *offsets: Any) -> Any:
        """Sixteen elements in their own width, from byte offsets on."""
        return self.v.load(self.v.at(p, *offsets), self.raw, self.raw.element.width // 8)

    def note(self, buffer: Any, magnitude: Any) -> None:
        """Keep the largest magnitude, which tells whether there was an Inf or a NaN."""
        self.v.store(self.v.umax(self.v.load(buffer, IV, 64), magnitude), buffer, 64)

    def mark(self, buffer: Any, special: Any, lanes: int) -> None:
        """Set the bytes at `special` of the lanes (1: all lanes together) that noted an Inf or NaN."""
        v, b = self.v, self.b
        noted = b.icmp_unsigned(">=", v.load(buffer, IV, 64), self.special)
        mark = b.zext(noted, vector(I8, CHUNK))
        if lanes == 1:
            mark = v.call("llvm.vector.reduce.or.v16i8", I8, mark)
        v.store(b.or_(v.load(special, mark.type), mark), special)

    def sign(self, x: Any) -> Any:
        """The sign in the top bit."""
        return self.b.and_(self.b.shl(x, self.left), self.v.const(IV, 1 << 31))

    def values(self, magnitude: Any, sign: Any, orders: list[list[int]], scale: Any = None) -> list[Any]:
        """Decoded vectors, lanes in the orders wanted; zeros are +-tiny.  scale: times 2**scale, which f64 holds."""
        v, b = self.v, self.b
        every = [lane for lanes in orders for lane in lanes]  # once for all vectors: each cost four operations more
        scaled = b.or_(b.shl(magnitude, self.up), sign)
        scaled = v.shuffle(scaled, scaled, every)
        zero = b.icmp_unsigned("==", b.and_(scaled, v.const(IV, MAGNITUDE)), v.const(IV, 0))
        scaled, out = v.bits(scaled, FV), []
        for n, lanes in enumerate(orders):
            part = list(range(n * len(lanes), (n + 1) * len(lanes)))
            x = v.shuffle(scaled, scaled, part)
            x = b.fpext(x, self.vector) if self.in_f64 else b.fmul(x, v.const(self.vector, FIRST_STEP))
            x = b.fmul(x, self.factor)
            if scale is not None:
                field = b.zext(
                    b.add(v.shuffle(scale, scale, lanes), v.const(vector(I32, len(lanes)), BIAS64)), self.tiny.type
                )
                x = b.fmul(x, v.bits(b.shl(field, v.const(field.type, MANTISSA64)), self.vector))
            word = v.bits(x, self.tiny.type)
            none = v.shuffle(zero, zero, part)
            out.append(v.bits(b.or_(word, b.select(none, self.tiny, v.const(self.tiny.type, 0))), self.vector))
        return out

    def exponents(self, magnitude: Any, scale: Any = None) -> Any:
        """Stored exponents, 32 bits each; zeros have 0.  scale: what block scales add."""
        v, b = self.v, self.b
        field = b.lshr(magnitude, self.field)
        if self.widened:  # the leading bit of a subnormal tells; the field of a normal is above it
            leading = b.sub(self.width, v.call("llvm.ctlz.v16i32", IV, magnitude, v.const(I1, 0)))
            subnormal = b.icmp_unsigned("==", field, v.const(IV, 0))
            field = b.select(subnormal, leading, field)
        field = v.smax(field, self.least)
        zero = b.icmp_unsigned("==", magnitude, v.const(IV, 0))
        stored = b.add(field, self.rebase)
        return b.select(zero, v.const(IV, 0), stored if scale is None else b.add(stored, scale))
