"""Floats as bits: views, classes and the canonical NaN, for one lane or many."""

from __future__ import annotations

from typing import Any, NamedTuple

from nbtc.compiler.builder import F32, F64, I32, I64, VectorBuilder
from nbtc.compiler.cpu.lowering import lowering
from nbtc.executor.emit.values import const, like, resize, width
from nbtc.formats.table import FORMATS


class FloatKind(NamedTuple):
    """A float format: its bits, fraction bits, the NaN that arithmetic gives (the greatest number where there is none),
    bits of the greatest finite number, and whether it has infinities."""

    bits: int
    fraction: int
    nan: int
    greatest: int
    infinite: bool

    @property
    def sign(self) -> int:
        """The sign bit."""
        return 1 << self.bits - 1

    @property
    def infinity(self) -> int:
        """Bits of +infinity; also the mask of the exponent."""
        return self.sign - (1 << self.fraction)

    @property
    def last_number(self) -> int:
        """Bits of the greatest magnitude that is no NaN."""
        return self.infinity if self.infinite else self.greatest

    @property
    def quiet(self) -> int:
        """The bit that tells a quiet NaN."""
        return 1 << self.fraction - 1

    @property
    def one(self) -> int:
        """Bits of 1.0."""
        return (1 << self.bits - 2) - (1 << self.fraction)

    @property
    def bias(self) -> int:
        """What is added to the exponent in its field."""
        return (1 << self.bits - 2 - self.fraction) - 1

    @property
    def least_normal(self) -> int:
        """Bits of the least positive normal number."""
        return 1 << self.fraction


def _kind(name: str) -> FloatKind:
    fmt = FORMATS[name]
    bits = 1 + fmt.exponent + fmt.mantissa  # tf32 without the bits of its register that it ignores
    nan = 0xFFF8 << 48 if name == "f64" else (1 << bits - 1) - 1
    return FloatKind(bits, fmt.mantissa, nan, fmt.special - 1, fmt.infinite)


SMALL = ("e4m3", "e2m3", "e3m2", "e2m1")  # without infinities
KINDS = {name: _kind(name) for name in ("f16", "bf16", "f32", "f64", "tf32", "e5m2", *SMALL)}
PACKED = {"f16x2": "f16", "bf16x2": "bf16"}


def magnitude_bits(v: VectorBuilder, kind: FloatKind, x: Any) -> Any:
    """x without its sign."""
    return v.b.and_(x, const(v, x, kind.sign - 1))


def is_nan(v: VectorBuilder, kind: FloatKind, x: Any) -> Any:
    """Whether bits are a NaN."""
    if kind.bits >= 32 and kind.infinite and width(x) == kind.bits:  # one comparison of LLVM's own types
        number = as_float(v, x)
        return v.b.fcmp_unordered("uno", number, number)
    return v.b.icmp_unsigned(">", magnitude_bits(v, kind, x), const(v, x, kind.last_number))


def flush(v: VectorBuilder, kind: FloatKind, x: Any) -> Any:
    """Subnormal bits become a zero of their sign (.ftz)."""
    exponent = kind.sign - kind.least_normal  # its field; a test of it is one instruction, a comparison two
    tiny = v.b.icmp_unsigned("==", v.b.and_(x, const(v, x, exponent)), const(v, x, 0))
    return v.b.select(tiny, v.b.and_(x, const(v, x, kind.sign)), x)


def as_float(v: VectorBuilder, x: Any) -> Any:
    """i32 or i64 bits as float or double."""
    return v.b.bitcast(x, like(x, F32 if width(x) == 32 else F64))


def float_bits(v: VectorBuilder, x: Any) -> Any:
    """The bits of a float."""
    return v.b.bitcast(x, like(x, I32))


def double_bits(v: VectorBuilder, x: Any) -> Any:
    """The bits of a double."""
    return v.b.bitcast(x, like(x, I64))


def to_number(v: VectorBuilder, name: str, x: Any) -> Any:
    """Bits of a format as the LLVM float of the same value: float for the formats of 16 bits."""
    if name == "bf16":
        wide = resize(v, x, 32)
        return as_float(v, v.b.shl(wide, const(v, wide, 16)))
    return lowering(v).from_f16(x) if name == "f16" else as_float(v, x)
