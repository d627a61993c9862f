"""Video instructions in Python integers, as the PTX ISA's pseudo-code has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nbtc.executor.emit.form import Op
from tests.reference.compare import ORDERS
from tests.reference.integers import join, signed, split, value, wrapped

OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "vadd": lambda x, y: x + y,
    "vsub": lambda x, y: x - y,
    "vabsdiff": lambda x, y: abs(x - y),
    "vavrg": lambda x, y: (x + y + (x + y >= 0)) >> 1,
    "vmin": min,
    "vmax": max,
}


def _number(x: int, width: int, kind: str) -> int:
    return signed(x, width) if kind.startswith("s") else x


def _held(x: int, width: int, with_sign: bool) -> int:
    least, most = (-(1 << width - 1), (1 << width - 1) - 1) if with_sign else (0, (1 << width) - 1)
    return max(least, min(most, x))


def _pick(op: Op, operand: int, x: int, kind: str) -> int:
    text = op.selectors[operand].lstrip("-")
    width = {"b": 8, "h": 16, "": 32}[text[:1]]
    number = _number(split(x, width, 32 // width)[int(text[1:] or 0)], width, kind)
    return -number if op.selectors[operand].startswith("-") else number


def scalar(op: Op, a: int, b: int, c: int = 0) -> int:
    """The scalar instructions but vmad."""
    kinds = op.types
    with_sign = len(kinds) == 3 and kinds[0] == "s32"
    x, y = _pick(op, 1, a, kinds[-2]), _pick(op, 2, b, kinds[-1])
    if op.opcode == "vset":
        found = int(ORDERS[next(m for m in op.modifiers if m in ORDERS)](x, y))
    elif op.opcode in ("vshl", "vshr"):
        places = y % 32 if op.has("wrap") else min(y, 32)
        found = x << places if op.opcode == "vshl" else x >> places
    else:
        found = OPERATIONS[op.opcode](x, y)
    found = wrapped(_held(found, 32, with_sign) if op.has("sat") else found, 32)
    part = op.selectors[0]
    if part:
        parts = split(c, {"b": 8, "h": 16}[part[0]], 4 if part[0] == "b" else 2)
        parts[int(part[1])] = found >> 16 if part == "h1" else found % (1 << 32 // len(parts))
        return join(parts, 32 // len(parts))
    if op.modifiers[-1] in ("min", "max"):
        return sorted((found, c), key=lambda n: _number(n, 32, kinds[0]))[op.modifiers[-1] == "max"]
    return wrapped(found + c, 32)


def vmad(op: Op, a: int, b: int, c: int) -> int:
    """vmad."""
    left, right = op.types[1:3]
    minus = [s.startswith("-") for s in op.selectors]
    with_sign = "s32" in (left, right) or minus[1] != minus[2] or minus[3]
    left, right = (k if op.selectors[n].lstrip("-") else "s32" for n, k in ((1, left), (2, right)))
    total = _pick(op, 1, a, left) * _pick(op, 2, b, right)
    addend = value(c, "s32")
    total += (-addend if minus[3] else addend) + op.has("po")
    if op.modifiers[-1].startswith("shr"):
        total = (total if with_sign else total % (1 << 64)) >> int(op.modifiers[-1][3:])
    return wrapped(_held(total, 32, with_sign) if op.has("sat") else total, 32)


def packed(op: Op, a: int, b: int, c: int) -> int:
    """The instructions on 2 halves or 4 bytes."""
    count = int(op.opcode[-1])
    width = 32 // count
    pool = split(a, width, count) + split(b, width, count)
    kinds = op.types
    chosen = []
    for operand, kind in ((1, kinds[-2]), (2, kinds[-1])):
        text = op.selectors[operand][1:]
        places = [int(n) for n in reversed(text)] or [i + count * (operand - 1) for i in range(count)]
        chosen.append([_number(pool[i], width, kind) for i in places])
    found = []
    for x, y in zip(*chosen, strict=True):
        if op.opcode.startswith("vset"):
            found.append(int(ORDERS[next(m for m in op.modifiers if m in ORDERS)](x, y)))
        else:
            z = OPERATIONS[op.opcode[:-1]](x, y)
            found.append(_held(z, width, kinds[0] == "s32") if op.has("sat") else z)
    mask = [int(n) for n in op.selectors[0][1:]] or list(range(count))
    if op.modifiers[-1] == "add":
        return wrapped(c + sum(found[i] for i in mask), 32)
    return join([wrapped(found[i], width) if i in mask else x for i, x in enumerate(split(c, width, count))], width)


REFERENCE: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vset", "vshl", "vshr"), scalar),
    "vmad": vmad,
    **{f"{n}{count}": packed for n in (*OPERATIONS, "vset") for count in (2, 4)},
}
