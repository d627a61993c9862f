"""Small floats as f16 bits of the same fields: exact, and as many binades too small as the exponents' biases differ."""

from __future__ import annotations

from typing import Any

from nbtc.compiler.builder import I16, VectorBuilder, vector
from nbtc.formats.table import Format


def half_bits(v: VectorBuilder, f: Format, x: Any, magnitude: Any) -> Any:
    """f16 bits of elements x of a format with at most f16's exponent bits; magnitude: x without its sign."""
    if f.bits == 16:
        return x
    b, t = v.b, vector(I16, x.type.count)
    moved = b.shl(b.zext(magnitude, t), v.const(t, 10 - f.mantissa))  # f16 has 10 mantissa bits
    return b.or_(moved, b.and_(b.sext(x, t), v.const(t, -(1 << 15))))
