"""Bytes picked from two words (PTX ISA, "Logic and Shift Instructions: prmt")."""

from __future__ import annotations

from typing import Any

from nbtc.compiler.builder import I8, VectorBuilder
from nbtc.executor.emit.form import Form, Op, slots
from nbtc.executor.emit.values import const, number, pieces, resize

# The selector of the plain form that each special mode stands for, by the value of the control's two low bits.
MODES = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}


def prmt(v: VectorBuilder, op: Op, a: Any, b: Any, control: Any) -> Any:
    """prmt: four bytes of b:a, or copies of their signs."""
    mode = op.among(tuple(MODES))
    fixed = number(control)
    if fixed is not None:
        return _fixed(v, a, b, MODES[mode][fixed & 3] if mode else fixed)
    return _by_register(v, a, b, _selector(v, MODES[mode], control) if mode else control)


def _selector(v: VectorBuilder, table: tuple[int, ...], control: Any) -> Any:
    low = v.b.and_(control, const(v, control, 3))
    found = const(v, control, table[0])
    for i, entry in enumerate(table[1:], 1):
        found = v.b.select(v.b.icmp_unsigned("==", low, const(v, low, i)), const(v, control, entry), found)
    return found


def _fixed(v: VectorBuilder, a: Any, b: Any, selector: int) -> Any:
    """One shuffle of bytes, and one of their signs where the selector asks for signs."""
    x, y = pieces(v, a, 8), pieces(v, b, 8)
    picks = [selector >> 4 * i & 15 for i in range(4)]
    # a byte number counts the four of a lane's first word, then the four of its second
    lanes = [
        4 * (i // 4) + (p & 3) + (x.type.count if p & 4 else 0) for i in range(x.type.count) for p in [picks[i % 4]]
    ]
    found = v.shuffle(x, y, lanes)
    if any(p & 8 for p in picks):
        signs = v.b.ashr(found, v.const(found.type, 7))
        count = x.type.count
        found = v.shuffle(found, signs, [i + (count if picks[i % 4] & 8 else 0) for i in range(count)])
    return v.b.bitcast(found, a.type)


def _by_register(v: VectorBuilder, a: Any, b: Any, selector: Any) -> Any:
    both = v.b.or_(resize(v, a, 64), v.b.shl(resize(v, b, 64), const(v, resize(v, b, 64), 32)))
    wide = resize(v, selector, 64)
    result = const(v, a, 0)
    for i in range(4):
        pick = v.b.lshr(wide, const(v, wide, 4 * i))
        places = v.b.shl(v.b.and_(pick, const(v, pick, 7)), const(v, pick, 3))
        byte = resize(v, v.b.lshr(both, places), 8)
        copies = v.b.icmp_unsigned("!=", v.b.and_(pick, const(v, pick, 8)), const(v, pick, 0))
        byte = v.b.select(copies, v.b.ashr(byte, const(v, byte, I8.width - 1)), byte)
        result = v.b.or_(result, v.b.shl(resize(v, byte, 32), const(v, a, 8 * i)))
    return result


FORMS = (
    Form("prmt", slots("b32"), ("b32",) * 3, ("b32",), prmt),
    Form("prmt", slots("b32", "|".join(MODES)), ("b32",) * 3, ("b32",), prmt),
)
