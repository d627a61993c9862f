"""Floats and integers in another format, rounded in any direction: the arithmetic of `cvt`."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import F32, F64, I1, VectorBuilder, suffix
from nbtc.compiler.cpu.lowering import lowering
from nbtc.executor.emit.form import WIDTHS
from nbtc.executor.emit.values import const, is_negative, like, magnitude, resize
from nbtc.executor.scalar.float_values import (
    KINDS,
    SMALL,
    FloatKind,
    as_float,
    double_bits,
    float_bits,
    is_nan,
    magnitude_bits,
    to_number,
)
from nbtc.executor.scalar.floats import propagated
from nbtc.executor.scalar.rounding import Exact, exact, pack

ROUND_TO_INTEGER = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def number(v: VectorBuilder, name: str, x: Any) -> Any:
    """Bits of a format as an LLVM float of the same value: double for f64, else float."""
    if name == "e5m2":  # the upper byte of an f16
        half = resize(v, x, 16)
        return to_number(v, "f16", v.b.shl(half, const(v, half, 8)))
    if name in SMALL:  # its fields read as an f32's: the bias of f32 in place of its own
        kind, single = KINDS[name], KINDS["f32"]
        word = resize(v, x, 32)
        fields = v.b.shl(v.b.and_(word, const(v, word, kind.sign - 1)), const(v, word, single.fraction - kind.fraction))
        sign = v.b.shl(v.b.and_(word, const(v, word, kind.sign)), const(v, word, single.bits - kind.bits))
        scale = v.const(like(x, F32), 2.0 ** (single.bias - kind.bias))
        return v.b.fmul(as_float(v, v.b.or_(fields, sign)), scale)
    return to_number(v, name, x)


def widened(v: VectorBuilder, source: str, target: str, x: Any) -> Any:
    """Bits of a format in one that holds all its values; the payload of a NaN moves along, quiet in a double."""
    found = number(v, source, x)
    if target == "f64":
        return double_bits(v, found if source == "f64" else v.b.fpext(found, like(x, F64)))
    if target == "f16":
        return lowering(v).nearest_f16(found)
    if target == "bf16":
        word = float_bits(v, found)
        return resize(v, v.b.lshr(word, const(v, word, 16)), 16)
    return float_bits(v, found)


def narrowed(v: VectorBuilder, source: str, target: str, direction: str, x: Any, saturate: bool = False) -> Any:
    """Bits of a float rounded to another format; a NaN of a double keeps sign and payload, others become canonical.

    saturate: what is too large, infinities too, becomes the greatest finite number.
    """
    kind, own = KINDS[target], KINDS[source]
    if direction == "rn" and (source, target) == ("f64", "f32"):
        bits = float_bits(v, v.b.fptrunc(to_number(v, source, x), like(x, F32)))
    elif direction == "rn" and (source, target) == ("f32", "f16"):
        bits = lowering(v).nearest_f16(as_float(v, x))
    elif direction == "rn" and (source, target) == ("f32", "bf16"):
        bits = _upper_half(v, x)
    else:
        found = to_number(v, source, x)
        double = found if source == "f64" else v.b.fpext(found, like(x, F64))
        bits = resize(v, pack(v, kind, direction, exact(v, double), saturate), kind.bits)
        infinite = v.b.icmp_unsigned("==", magnitude_bits(v, own, x), const(v, x, own.infinity))
        sign = v.b.select(is_negative(v, x), const(v, bits, kind.sign), const(v, bits, 0))
        most = kind.greatest if saturate else kind.infinity
        bits = v.b.select(infinite, v.b.or_(sign, const(v, bits, most)), bits)
    if saturate:
        m = magnitude_bits(v, kind, bits)
        held = v.umin(m, const(v, m, kind.greatest))
        bits = v.b.or_(held, v.b.xor(bits, m))
    nan = cut_nan(v, own, kind, x) if source == "f64" else const(v, bits, kind.nan)
    return v.b.select(is_nan(v, own, x), nan, bits)


def cut_nan(v: VectorBuilder, own: FloatKind, kind: FloatKind, x: Any) -> Any:
    """The upper bits of a NaN as a quiet NaN of a smaller format."""
    payload = resize(v, v.b.lshr(x, const(v, x, own.fraction - kind.fraction)), kind.bits)
    payload = v.b.and_(payload, const(v, payload, kind.quiet - 1))
    sign = v.b.select(is_negative(v, x), const(v, payload, kind.sign), const(v, payload, 0))
    return v.b.or_(v.b.or_(payload, sign), const(v, payload, kind.infinity | kind.quiet))


def _upper_half(v: VectorBuilder, x: Any) -> Any:
    """The upper half of f32 bits, rounded to nearest even by a carry; infinities stay."""
    odd = v.b.and_(v.b.lshr(x, const(v, x, 16)), const(v, x, 1))
    return resize(v, v.b.lshr(v.b.add(v.b.add(x, const(v, x, 0x7FFF)), odd), const(v, x, 16)), 16)


def from_integer(v: VectorBuilder, signed: bool, target: str, direction: str, x: Any) -> Any:
    """An integer as bits of a float format."""
    if direction == "rn" and target in ("f32", "f64"):
        t = like(x, F32 if target == "f32" else F64)
        found = v.b.sitofp(x, t) if signed else v.b.uitofp(x, t)
        return float_bits(v, found) if target == "f32" else double_bits(v, found)
    kind = KINDS[target]
    return resize(v, pack(v, kind, direction, _exact_integer(v, signed, x)), kind.bits)


def _exact_integer(v: VectorBuilder, signed: bool, x: Any) -> Exact:
    m = resize(v, magnitude(v, x) if signed else x, 64)
    negative = is_negative(v, x) if signed else v.const(like(x, I1), 0)
    large = is_negative(v, m)  # bit 63 is one too many
    one = resize(v, large, 64)
    sticky = v.b.and_(large, v.b.trunc(m, like(m, I1)))
    return Exact(negative, v.b.lshr(m, one), one, sticky)


def round_to_integer(v: VectorBuilder, name: str, direction: str, x: Any) -> Any:
    """Bits of a float rounded to an integral value of the same format."""
    found = v.over(ROUND_TO_INTEGER[direction], to_number(v, name, x))
    if name == "f64":  # a library's floor, of processors without the instruction, may leave a signalling NaN as it is
        return propagated(v, double_bits(v, found), [x])
    return float_bits(v, found) if name == "f32" else narrowed(v, "f32", name, "rn", float_bits(v, found))


def to_integer(v: VectorBuilder, target: str, source: str, direction: str, x: Any) -> Any:
    """Bits of a float as the nearest integer of a type, in a direction, between its bounds.

    A NaN gives 0 up to 32 bits, but the least integer of as many bits from f64 or to 64 bits (both recorded
    on an H200, golden/scalar_rows_h200.npz).
    """
    found = v.over(ROUND_TO_INTEGER[direction], to_number(v, source, x))
    t = like(x, ir.IntType(WIDTHS[target]))
    kind = "fptosi" if target.startswith("s") else "fptoui"
    held = v.call(f"llvm.{kind}.sat.{suffix(t)}.{suffix(found.type)}", t, found)
    if source == "f64" or WIDTHS[target] == 64:
        return v.b.select(is_nan(v, KINDS[source], x), const(v, held, 1 << WIDTHS[target] - 1), held)
    return held


def relu(v: VectorBuilder, kind: FloatKind, x: Any) -> Any:
    """.relu: negative numbers and -0 become +0; a NaN stays."""
    below = v.b.and_(is_negative(v, x), v.b.not_(is_nan(v, kind, x)))
    return v.b.select(below, const(v, x, 0), x)
