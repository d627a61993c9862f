"""Scalar video instructions (PTX ISA, "Video Instructions"): operands picked out of words, a saturated result, and a
sum with a third operand, or a part of it that the result takes the place of.

An H100 and an H200 give what the ISA's pseudo-code says, but for two things that these forms do as they do: what .h1 of
a destination takes is the upper half of the result, and vmad's whole words are signed whatever their types.  Forms in
which they differ in other ways are refused: .sat with a destination's selector, with a second operation or on vabsdiff
and vshl, and a second .min or .max of all but vset.

Everything between is formed in 64 bits (128 for vmad and shifts), where nothing of 33-bit operands is lost.
"""

from __future__ import annotations

from typing import Any

from nbtc.compiler.builder import VectorBuilder
from nbtc.errors import UnsupportedInstructionError
from nbtc.executor.emit.form import Emit, Form, Op, slots
from nbtc.executor.emit.values import const, magnitude, order, resize, width
from nbtc.executor.scalar.compare import ORDERS, compare_integers
from nbtc.executor.scalar.integers import field
from nbtc.executor.scalar.rounding import clamp

SELECTIONS = {**{f"b{i}": (8 * i, 8) for i in range(4)}, **{f"h{i}": (16 * i, 16) for i in range(2)}}
SCALES = {"shr7": 7, "shr15": 15}
WORDS = ("b32",) * 3
SECOND = ("add", "min", "max")


def selection(op: Op, operand: int) -> tuple[int, int]:
    """First bit and number of bits of an operand's selector; the whole word without one."""
    text = op.selectors[operand].lstrip("-.") if operand < len(op.selectors) else ""
    return SELECTIONS[text] if text else (0, 32)


def negated(op: Op, operand: int) -> bool:
    """Whether an operand is written with a minus sign."""
    return operand < len(op.selectors) and op.selectors[operand].startswith("-")


def picked(v: VectorBuilder, op: Op, operand: int, x: Any, kind: str, bits: int = 64) -> Any:
    """The selected part of a word, extended as its type says."""
    signed = kind.startswith("s")
    return resize(v, field(v, x, *selection(op, operand), signed), bits, signed)


def bounded(v: VectorBuilder, x: Any, bits: int, signed: bool) -> Any:
    """x between the bounds of an integer of `bits`."""
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return clamp(v, x, least, most)


def finish(v: VectorBuilder, op: Op, found: Any, signed: bool, c: Any) -> Any:
    """Saturation, and what becomes of c."""
    word = resize(v, bounded(v, found, 32, signed) if op.has("sat") else found, 32)
    part, second = (op.selectors[0].lstrip(".") if op.selectors else ""), op.among(SECOND)
    if (c is None) != (not part and not second) or (part and second):
        raise UnsupportedInstructionError(
            f"{op.text}: a third operand stands with a destination's selector or a second operation, and only there"
        )
    if part and op.has("sat"):
        raise UnsupportedInstructionError(
            f"{op.text} with .{part} on its destination: how the hardware saturates there is not what the ISA says, so "
            "this form is refused; write the whole register, clamp it, and use bfi"
        )
    if part:
        return merged(v, part, word, c)
    if second in ("min", "max"):
        return order(v, second, word, c, op.types[0].startswith("s"))
    return word if c is None else v.b.add(word, c)


def merged(v: VectorBuilder, part: str, word: Any, c: Any) -> Any:
    """c with the result in place of a part: its lowest bits, or in .h1 its own upper half."""
    first, bits = SELECTIONS[part]
    mask = (1 << bits) - 1 << first
    moved = word if part == "h1" else v.b.shl(word, const(v, word, first))
    return v.b.or_(v.b.and_(moved, const(v, word, mask)), v.b.and_(c, const(v, c, ~mask)))


def _plain(v: VectorBuilder, opcode: str, a: Any, b: Any) -> Any:
    if opcode in ("vmin", "vmax"):
        return order(v, opcode.removeprefix("v"), a, b, True)
    if opcode == "vadd":
        return v.b.add(a, b)
    difference = v.b.sub(a, b)
    return magnitude(v, difference) if opcode == "vabsdiff" else difference


def arithmetic(v: VectorBuilder, op: Op, a: Any, b: Any, c: Any = None) -> Any:
    """vadd, vsub, vabsdiff, vmin, vmax."""
    target, left, right = op.types
    found = _plain(v, op.opcode, picked(v, op, 1, a, left), picked(v, op, 2, b, right))
    return finish(v, op, found, target.startswith("s"), c)


def shift(v: VectorBuilder, op: Op, a: Any, b: Any, c: Any = None) -> Any:
    """vshl, vshr: by at most 32 (.clamp), or modulo 32 (.wrap)."""
    target, left, right = op.types
    x, places = picked(v, op, 1, a, left, 128), picked(v, op, 2, b, right, 128)
    places = v.b.and_(places, const(v, x, 31)) if op.has("wrap") else v.umin(places, const(v, x, 32))
    return finish(v, op, (v.b.shl if op.opcode == "vshl" else v.b.ashr)(x, places), target.startswith("s"), c)


def vmad(v: VectorBuilder, op: Op, a: Any, b: Any, c: Any) -> Any:
    """vmad: a * b + c, one more with .po, scaled down; saturated as the signs of the operands ask."""
    left, right = op.types[1:3]
    opposite = negated(op, 1) != negated(op, 2)
    with_sign = left.startswith("s") or right.startswith("s") or opposite or negated(op, 3)
    x, y = (
        picked(v, op, n, word, kind if selection(op, n)[1] < 32 else "s32", 128)
        for n, word, kind in ((1, a, left), (2, b, right))
    )
    product, addend = v.b.mul(x, y), resize(v, c, 128, True)
    total = v.b.add(v.b.neg(product) if opposite else product, v.b.neg(addend) if negated(op, 3) else addend)
    if op.has("po"):
        total = v.b.add(total, const(v, total, 1))
    scale = SCALES.get(op.among(tuple(SCALES)), 0)
    if scale and not with_sign:
        total = v.b.and_(total, const(v, total, (1 << 64) - 1))
    total = v.b.ashr(total, const(v, total, scale))
    if op.has("sat"):
        total = bounded(v, total, 32, with_sign)
    return resize(v, total, 32)


def vset(v: VectorBuilder, op: Op, a: Any, b: Any, c: Any = None) -> Any:
    """vset: 1 where the comparison holds."""
    left, right = op.types
    x, y = picked(v, op, 1, a, left), picked(v, op, 2, b, right)
    found = compare_integers(v, op.among(tuple(ORDERS)), True, x, y)
    return finish(v, op, resize(v, found, width(x)), False, c)


def _pair(opcode: str, head: tuple[str, ...], sat: tuple[str, ...], emit: Emit, tail: str = "add") -> tuple[Form, Form]:
    """The row of an operation, with a selector on the destination or without, and that with another operation after
    it, which takes no .sat here."""
    return (
        Form(opcode, slots(*head, *sat), WORDS, ("b32",), emit, optional=1, selectors=True),
        Form(opcode, slots(*head, tail), WORDS, ("b32",), emit, selectors=True),
    )


def _rows() -> list[Form]:
    rows: list[Form] = []
    kind = "u32|s32"
    for opcode in ("vadd", "vsub", "vmin", "vmax"):
        rows += _pair(opcode, (kind, kind, kind), ("sat?",), arithmetic)
    rows += _pair("vabsdiff", (kind, kind, kind), (), arithmetic)
    for opcode, sat in (("vshl", ()), ("vshr", ("sat?",))):
        amount = "clamp|wrap"
        plain = slots(kind, kind, "u32", *sat, amount)
        rows.append(Form(opcode, plain, WORDS, ("b32",), shift, optional=1, selectors=True))
        rows.append(Form(opcode, slots(kind, kind, "u32", amount, "add"), WORDS, ("b32",), shift, selectors=True))
    rows += _pair("vset", (kind, kind, "|".join(ORDERS)), (), vset, "|".join(SECOND))
    head = slots(kind, kind, kind, "po?", "sat?", "shr7|shr15?")
    return [*rows, Form("vmad", head, WORDS, ("b32",), vmad, selectors=True)]


FORMS = tuple(_rows())
