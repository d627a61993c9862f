"""What atomic operations make of memory x and an operand y: op(type, whether the memory is global, x, y)."""

from __future__ import annotations

from typing import Any

from nbtc.executor.emit.form import WIDTHS, Op
from tests.reference import REFERENCE
from tests.reference.integers import signed
from tests.reference.rounding import FORMATS, flushed

SPECIAL, QUIET, INVALID = 0x7FF << 52, 1 << 51, 0xFFF8 << 48  # of doubles: Inf, a quiet NaN's bit, the NaN of Inf - Inf


def _add(kind: str, in_global: bool, x: int, y: int) -> int:
    if kind[0] in "us":
        return (x + y) % (1 << WIDTHS[kind])
    op = Op("add", ("rn", kind))
    if kind == "f32" and in_global:
        fmt = FORMATS["f32"]
        return flushed(int(REFERENCE["add"](op, flushed(x, fmt), flushed(y, fmt))), fmt)
    if kind == "f64":
        return _add_doubles(op, in_global, x, y)
    return int(REFERENCE["add"](op, x, y))


def _add_doubles(op: Op, in_global: bool, x: int, y: int) -> int:
    """A NaN stays as it is in global memory, the operand's first; in shared memory its own goes first, quiet."""
    for n in (y, x) if in_global else (x, y):
        if _is_nan(n):
            return n if in_global else n | QUIET
    found = int(REFERENCE["add"](op, x, y))
    return INVALID if _is_nan(found) else found


def _is_nan(x: int) -> bool:
    return x & (1 << 63) - 1 > SPECIAL


def _extreme(choose: Any, kind: str, x: int, y: int) -> int:
    return int(choose((x, y), key=lambda n: signed(n, WIDTHS[kind]) if kind[0] == "s" else n))


ATOMIC: dict[str, Any] = {
    "add": _add,
    "min": lambda kind, _, x, y: _extreme(min, kind, x, y),
    "max": lambda kind, _, x, y: _extreme(max, kind, x, y),
    "and": lambda kind, _, x, y: x & y,
    "or": lambda kind, _, x, y: x | y,
    "xor": lambda kind, _, x, y: x ^ y,
    "exch": lambda kind, _, x, y: y,
    "cas": lambda kind, _, x, y, z: z if x == y else x,
    "inc": lambda kind, _, x, y: 0 if x >= y else x + 1,
    "dec": lambda kind, _, x, y: y if x == 0 or x > y else x - 1,
}
