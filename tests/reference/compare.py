"""Comparison and selection in Python integers and exact fractions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from nbtc.executor.emit.form import WIDTHS, Op
from nbtc.formats.table import FORMATS, Format
from nbtc.numerics.exact_float import INF, NAN, decode
from tests.reference.bits import BOOLEANS
from tests.reference.integers import join, split, value

FLOATS = ("f16", "bf16", "f32", "f64")
ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "lo": operator.lt,
    "ls": operator.le,
    "hi": operator.gt,
    "hs": operator.ge,
}
LARGE = Fraction(1 << 20000)  # beyond every float


def number(bits: int, fmt: Format) -> Fraction | None:
    """The exact value of a float; None for a NaN, +-LARGE for infinities."""
    s, e = decode(bits, fmt)
    if e == NAN:
        return None
    return LARGE * s if e == INF else Fraction(s) * Fraction(2) ** (e - fmt.mantissa)


def is_subnormal(bits: int, fmt: Format) -> bool:
    """A float other than zero below the least normal."""
    m = bits & (1 << fmt.bits - 1) - 1
    return 0 < m < 1 << fmt.mantissa


def flushed(bits: int, fmt: Format) -> int:
    """Zero of the same sign for a subnormal."""
    return bits & 1 << fmt.bits - 1 if is_subnormal(bits, fmt) else bits


def _holds(op: Op, kind: str, a: int, b: int) -> bool:
    name = op.modifiers[0]
    if kind not in FLOATS:
        return ORDERS[name](value(a, kind), value(b, kind))
    fmt = FORMATS[kind]
    x, y = (number(flushed(n, fmt) if op.has("ftz") else n, fmt) for n in (a, b))
    if x is None or y is None:
        return name == "nan" or (name.endswith("u") and name != "num")
    return name != "nan" and (name == "num" or ORDERS[name.removesuffix("u")](x, y))


def _with(op: Op, found: bool, c: int | None) -> int:
    names = [m for m in op.modifiers if m in BOOLEANS]
    return int(found) if c is None else BOOLEANS[names[0]](int(found), c)


def setp(op: Op, a: int, b: int, c: int | None = None) -> tuple[int, int]:
    """setp."""
    kind = op.types[-1]
    if kind.endswith("x2"):
        pairs = zip(split(a, 16, 2), split(b, 16, 2), strict=True)
        low, high = (_with(op, _holds(op, kind.removesuffix("x2"), x, y), c) for x, y in pairs)
        return low, high
    found = _holds(op, kind, a, b)
    return _with(op, found, c), _with(op, not found, c)


ONES = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000}


def set_word(op: Op, a: int, b: int, c: int | None = None) -> int:
    """set."""
    target, source = op.types
    if source.endswith("x2"):
        yes = ONES.get(target.removesuffix("x2"), 0xFFFF)
        pairs = zip(split(a, 16, 2), split(b, 16, 2), strict=True)
        return join([yes * _with(op, _holds(op, source.removesuffix("x2"), x, y), c) for x, y in pairs], 16)
    return _with(op, _holds(op, source, a, b), c) * ONES.get(target, (1 << WIDTHS[target]) - 1)


def selp(op: Op, a: int, b: int, p: int) -> int:
    """selp."""
    return a if p else b


def slct(op: Op, a: int, b: int, c: int) -> int:
    """slct."""
    if op.types[-1] == "s32":
        return a if value(c, "s32") >= 0 else b
    fmt = FORMATS["f32"]
    x = number(flushed(c, fmt) if op.has("ftz") else c, fmt)
    return a if x is not None and x >= 0 else b


def testp(op: Op, a: int) -> int:
    """testp."""
    fmt = FORMATS[op.types[-1]]
    x = number(a, fmt)
    finite = x is not None and abs(x) < LARGE
    tests = {
        "finite": finite,
        "infinite": x is not None and not finite,
        "number": x is not None,
        "notanumber": x is None,
        "normal": finite and not is_subnormal(a, fmt),
        "subnormal": is_subnormal(a, fmt),
    }
    return int(tests[op.modifiers[0]])


REFERENCE: dict[str, Callable[..., Any]] = {
    "setp": setp,
    "set": set_word,
    "selp": selp,
    "slct": slct,
    "testp": testp,
}
