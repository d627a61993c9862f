"""Integer arithmetic in Python integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nbtc.executor.emit.form import WIDTHS, Op


def signed(bits: int, width: int) -> int:
    """Two's complement."""
    return bits - (1 << width) if bits >> width - 1 & 1 else bits


def value(bits: int, kind: str) -> int:
    """The number that bits of a PTX integer type stand for."""
    return signed(bits, WIDTHS[kind]) if kind.startswith("s") else bits


def wrapped(number: int, width: int) -> int:
    """number modulo 2**width."""
    return number % (1 << width)


def clamped(number: int, width: int) -> int:
    """number in the range of a signed integer, as bits."""
    return wrapped(max(-(1 << width - 1), min((1 << width - 1) - 1, number)), width)


def split(x: int, width: int, count: int) -> list[int]:
    """`count` fields of `width` bits, the lowest first."""
    return [x >> width * i & (1 << width) - 1 for i in range(count)]


def join(fields: list[int], width: int) -> int:
    """The inverse of `split`."""
    return sum(x << width * i for i, x in enumerate(fields))


def _kind(op: Op) -> str:
    return op.types[-1]


def _part(op: Op, a: int, b: int) -> tuple[int, int]:
    """The part of a product that the modifiers name, and its width."""
    kind = _kind(op)
    width = WIDTHS[kind]
    full = value(a, kind) * value(b, kind)
    if op.has("wide"):
        return full, 2 * width
    return (full >> width if op.has("hi") else signed(wrapped(full, width), width)), width


def _finish(op: Op, number: int, width: int) -> int:
    if op.has("sat") and _kind(op).startswith("u"):
        return max(0, min((1 << width) - 1, number))
    return clamped(number, width) if op.has("sat") else wrapped(number, width)


def _packed(op: Op, *words: int) -> int:
    kind, _, count = _kind(op).partition("x")
    one, width = Op(op.opcode, (*(m for m in op.modifiers if m in ("relu", "sat")), kind)), WIDTHS[kind]
    parts = zip(*(split(word, width, int(count)) for word in words), strict=True)
    return join([int(REFERENCE[op.opcode](one, *part)) for part in parts], width)


def add(op: Op, a: int, b: int, carry: int = 0) -> Any:
    """add, addc; with .cc also the carry."""
    kind = _kind(op)
    if "x" in kind:
        return _packed(op, a, b)
    width = WIDTHS[kind]
    if op.has("cc"):
        return wrapped(a + b + carry, width), (a + b + carry) >> width
    return _finish(op, value(a, kind) + value(b, kind) + carry, width)


def sub(op: Op, a: int, b: int, carry: int = 1) -> Any:
    """sub, subc; with .cc also the carry, which is set when nothing is borrowed."""
    kind = _kind(op)
    if "x" in kind:
        return _packed(op, a, b)
    width = WIDTHS[kind]
    if op.has("cc"):
        return wrapped(a - b - 1 + carry, width), int(a - b - 1 + carry >= 0)
    return _finish(op, value(a, kind) - value(b, kind) - 1 + carry, width)


def mul(op: Op, a: int, b: int) -> int:
    """mul."""
    part, width = _part(op, a, b)
    return wrapped(part, width)


def mad(op: Op, a: int, b: int, c: int, carry: int = 0) -> Any:
    """mad, madc; with .cc also the carry."""
    part, width = _part(op, a, b)
    if op.has("cc"):
        total = wrapped(part, width) + c + carry
        return wrapped(total, width), total >> width
    signed_c = signed(c, width) if _kind(op).startswith("s") else c
    return _finish(op, part + signed_c + carry, width)


def minmax(op: Op, a: int, b: int) -> int:
    """min, max."""
    kind = _kind(op)
    if "x" in kind:
        return _packed(op, a, b)
    found = (min if op.opcode == "min" else max)(value(a, kind), value(b, kind))
    return wrapped(max(found, 0) if op.has("relu") else found, WIDTHS[kind])


def div(op: Op, a: int, b: int) -> int:
    """div; all ones for a divisor of zero."""
    kind = _kind(op)
    x, y = value(a, kind), value(b, kind)
    if y == 0:
        return (1 << WIDTHS[kind]) - 1
    quotient = abs(x) // abs(y)
    return wrapped(-quotient if (x < 0) != (y < 0) else quotient, WIDTHS[kind])


def rem(op: Op, a: int, b: int) -> int:
    """rem; all ones for a divisor of zero."""
    kind = _kind(op)
    x, y = value(a, kind), value(b, kind)
    if y == 0:
        return (1 << WIDTHS[kind]) - 1
    left = abs(x) % abs(y)
    return wrapped(-left if x < 0 else left, WIDTHS[kind])


def neg(op: Op, a: int) -> int:
    """neg."""
    if "x" in _kind(op):
        return _packed(op, a)
    return wrapped(-a, WIDTHS[_kind(op)])


def absolute(op: Op, a: int) -> int:
    """abs."""
    return wrapped(abs(value(a, _kind(op))), WIDTHS[_kind(op)])


def sad(op: Op, a: int, b: int, c: int) -> int:
    """sad."""
    kind = _kind(op)
    return wrapped(c + abs(value(a, kind) - value(b, kind)), WIDTHS[kind])


def mul24(op: Op, a: int, b: int, c: int = 0) -> int:
    """mul24, mad24."""
    kind = _kind(op)
    x, y = (n % (1 << 24) for n in (a, b))
    full = signed(x, 24) * signed(y, 24) if kind == "s32" else x * y
    part = wrapped(full >> 16 if op.has("hi") else full, 32)
    return _finish(op, (signed(part, 32) + signed(c, 32)) if op.has("sat") else part + c, 32)


def dot(op: Op, a: int, b: int, c: int) -> int:
    """dp4a, dp2a."""
    wide, narrow = op.types
    count = 4 if op.opcode == "dp4a" else 2
    left = split(a, 32 // count, count)
    right = split(b, 8, 4)[2 if op.has("hi") else 0 :][:count]
    x = [signed(n, 32 // count) if wide == "s32" else n for n in left]
    y = [signed(n, 8) if narrow == "s32" else n for n in right]
    return wrapped(c + sum(p * q for p, q in zip(x, y, strict=True)), 32)


REFERENCE: dict[str, Callable[..., Any]] = {
    "add": add,
    "addc": add,
    "sub": sub,
    "subc": sub,
    "mul": mul,
    "mad": mad,
    "madc": mad,
    "min": minmax,
    "max": minmax,
    "div": div,
    "rem": rem,
    "neg": neg,
    "abs": absolute,
    "sad": sad,
    "mul24": mul24,
    "mad24": mul24,
    "dp4a": dot,
    "dp2a": dot,
}
