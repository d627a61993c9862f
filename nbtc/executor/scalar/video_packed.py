"""Video instructions on two halves or four bytes (PTX ISA, "SIMD Video Instructions")."""

from __future__ import annotations

from typing import Any

from nbtc.compiler.builder import VectorBuilder
from nbtc.executor.emit.form import Form, Op, slots
from nbtc.executor.emit.values import const, is_negative, magnitude, order, resize
from nbtc.executor.scalar.compare import ORDERS, compare_integers
from nbtc.executor.scalar.integers import field
from nbtc.executor.scalar.video import bounded

OPCODES = ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax")


def selected(op: Op, operand: int, count: int) -> list[int]:
    """Which parts of the pair b:a an operand takes, lowest first: by default a's own, or b's own."""
    text = op.selectors[operand].lstrip("-.") if operand < len(op.selectors) else ""
    if text:
        return [int(digit) for digit in reversed(text[1:])]
    return list(range(count)) if operand < 2 else list(range(count, 2 * count))


def parts(v: VectorBuilder, op: Op, operand: int, words: tuple[Any, Any], kind: str) -> list[Any]:
    """The selected parts of two words, extended to 32 bits."""
    count = int(op.opcode[-1])
    bits = 32 // count
    places = selected(op, operand, count)
    return [field(v, words[i // count], i % count * bits, bits, kind.startswith("s")) for i in places]


def _one(v: VectorBuilder, name: str, a: Any, b: Any) -> Any:
    if name in ("vmin", "vmax"):
        return order(v, name.removeprefix("v"), a, b, True)
    if name == "vadd":
        return v.b.add(a, b)
    if name == "vavrg":  # half of the sum, rounded away from zero where that is positive, else down
        total = v.b.add(a, b)
        up = v.b.select(is_negative(v, total), total, v.b.add(total, const(v, total, 1)))
        return v.b.ashr(up, const(v, total, 1))
    difference = v.b.sub(a, b)
    if name == "vsub":
        return difference
    return magnitude(v, difference)


def _combine(v: VectorBuilder, op: Op, found: list[Any], c: Any) -> Any:
    """The parts in the mask put into c, or with .add summed up with it."""
    count = len(found)
    bits = 32 // count
    text = op.selectors[0].lstrip(".") if op.selectors else ""
    mask = [int(digit) for digit in text[1:]] if text else list(range(count))
    for i in mask:
        if op.modifiers[-1] == "add":
            c = v.b.add(c, found[i])
            continue
        place = const(v, c, ((1 << bits) - 1) << i * bits)
        moved = v.b.and_(v.b.shl(found[i], const(v, c, i * bits)), place)
        c = v.b.or_(v.b.and_(c, v.b.not_(place)), moved)
    return c


def arithmetic(v: VectorBuilder, op: Op, a: Any, b: Any, c: Any) -> Any:
    """vadd, vsub, vavrg, vabsdiff, vmin, vmax of 2 or 4 parts."""
    target, left, right = op.types
    x, y = parts(v, op, 1, (a, b), left), parts(v, op, 2, (a, b), right)
    found = [_one(v, op.opcode[:-1], p, q) for p, q in zip(x, y, strict=True)]
    if op.has("sat"):
        found = [bounded(v, n, 32 // len(found), target.startswith("s")) for n in found]
    return _combine(v, op, found, c)


def vset(v: VectorBuilder, op: Op, a: Any, b: Any, c: Any) -> Any:
    """vset2, vset4: 1 in each part where the comparison holds."""
    left, right = op.types
    x, y = parts(v, op, 1, (a, b), left), parts(v, op, 2, (a, b), right)
    name = op.among(tuple(ORDERS))
    found = [resize(v, compare_integers(v, name, True, p, q), 32) for p, q in zip(x, y, strict=True)]
    return _combine(v, op, found, c)


def _rows() -> list[Form]:
    rows = []
    kind, words = "u32|s32", ("b32",) * 3
    for count in (2, 4):
        for opcode in OPCODES:
            head = slots(kind, kind, kind, "sat?", "add?")
            rows.append(Form(f"{opcode}{count}", head, words, ("b32",), arithmetic, selectors=True))
        head = slots(kind, kind, "|".join(ORDERS), "add?")
        rows.append(Form(f"vset{count}", head, words, ("b32",), vset, selectors=True))
    return rows


FORMS = tuple(_rows())
