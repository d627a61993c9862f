"""Literals as bits of a type."""

from __future__ import annotations

import struct

import numpy as np

from nbtc.executor.text.data import WIDTHS, Immediate

_FLOAT = {"f16": 16, "f32": 32, "f64": 64}


def bits_of(literal: Immediate, kind: str) -> int:
    """The bits of a literal used as an operand of a type: floats are converted between f32 and f64, whole numbers cut.

    >>> hex(bits_of(Immediate(0x3FF8000000000000, 64), "f32")), hex(bits_of(Immediate(-1), "u16"))
    ('0x3fc00000', '0xffff')
    """
    width = WIDTHS[kind]
    if not literal.float_bits:
        return literal.value & ((1 << width) - 1)
    if literal.float_bits == width or kind not in _FLOAT:
        return literal.value & ((1 << width) - 1)
    if literal.float_bits == 32:
        value = struct.unpack("<f", struct.pack("<I", literal.value))[0]
    else:
        value = struct.unpack("<d", struct.pack("<Q", literal.value))[0]
    with np.errstate(over="ignore"):
        return int(np.array(value, f"<f{width // 8}").view(f"<u{width // 8}"))
