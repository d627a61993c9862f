"""f32, f64, f16 and bf16 arithmetic in exact fractions."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from nbtc.executor.emit.form import Op
from nbtc.formats.table import Format
from tests.reference.integers import join, split
from tests.reference.rounding import FORMATS, LARGE, flushed, nan, number, root, rounded

ROUNDINGS = ("rn", "rz", "rm", "rp")
Exact = Callable[..., Fraction | None]


def _negative(bits: int, fmt: Format) -> bool:
    return bool(bits >> fmt.bits - 1)


def _each_half(op: Op, operands: tuple[int, ...]) -> int:
    one = Op(op.opcode, tuple(m.removesuffix("x2") for m in op.modifiers))
    bits = FORMATS[one.types[-1]].bits
    lanes = zip(*(split(x, bits, 2) for x in operands), strict=True)
    return join([int(REFERENCE[op.opcode](one, *x)) for x in lanes], bits)


def _widened(a: int, fmt: Format) -> int:
    """The same value in f32; a NaN is some NaN."""
    x = number(a, fmt)
    return nan(FORMATS["f32"]) if x is None else rounded(x, FORMATS["f32"], "rn", _negative(a, fmt))


def _finish(op: Op, fmt: Format, bits: int) -> int:
    """.sat and .relu."""
    x = number(bits, fmt)
    if op.has("sat"):
        return rounded(min(max(x or Fraction(0), Fraction(0)), Fraction(1)), fmt)
    return 0 if op.has("relu") and x is not None and _negative(bits, fmt) else bits


def _nan(op: Op, fmt: Format, operands: list[int]) -> int:
    if op.has("sat"):
        return 0
    if fmt.name == "f64":
        first = operands if op.opcode == "div" else [*operands[1:], *operands[:1]]
        for x in first:
            if number(x, fmt) is None:
                return x | 1 << fmt.mantissa - 1
    return nan(fmt)


def _product(x: Fraction, y: Fraction) -> Fraction | None:
    if LARGE in (abs(x), abs(y)):
        return None if 0 in (x, y) else (LARGE if (x > 0) == (y > 0) else -LARGE)
    return x * y


def _sum(x: Fraction | None, y: Fraction) -> Fraction | None:
    if x is None or (abs(x) == LARGE and y == -x):
        return None
    return x if abs(x) == LARGE else y if abs(y) == LARGE else x + y


def _quotient(x: Fraction, y: Fraction, negative: bool) -> Fraction | None:
    if (x == 0 and y == 0) or (abs(x) == LARGE and abs(y) == LARGE):
        return None
    if abs(x) == LARGE or y == 0:
        return -LARGE if negative else LARGE
    return Fraction(0) if abs(y) == LARGE else x / y


def arithmetic(op: Op, *operands: int) -> int:
    """add, sub, mul, fma, mad, div, rcp, sqrt."""
    kind = op.types[-1]
    if kind.endswith("x2"):
        return _each_half(op, operands)
    if len(op.types) == 2:  # f32 with factors or a first operand of 16 bits
        wide = (_widened(x, FORMATS[kind]) for x in operands[:-1])
        return arithmetic(op._replace(modifiers=op.modifiers[:-1]), *wide, operands[-1])
    fmt = FORMATS[kind]
    given = [flushed(x, fmt) if op.has("ftz") else x for x in operands]
    values = [number(x, fmt) for x in given]
    mode = op.among(ROUNDINGS, "rn")
    if op.has("oob") and 0x7FF7 in (operands[0] % 0x8000, operands[1] % 0x8000):
        return 0
    if None in values:
        return _nan(op, fmt, given)
    exact, negative = _exact(op.opcode, given, values, fmt, mode)
    if exact is None:
        return _nan(op, fmt, [])
    return _finish(op, fmt, rounded(exact, fmt, mode, negative, op.has("ftz")))


def _exact(opcode: str, bits: list[int], x: list[Any], fmt: Format, mode: str) -> tuple[Fraction | None, bool]:
    """The exact result (None: a NaN) and the sign a zero takes."""
    signs = [_negative(n, fmt) for n in bits]
    if opcode in ("add", "sub", "fma", "mad"):
        if opcode in ("fma", "mad"):
            product, minus = _product(x[0], x[1]), signs[0] != signs[1]
        else:
            product, minus = x[0], signs[0]
        addend, other = (-x[-1], not signs[-1]) if opcode == "sub" else (x[-1], signs[-1])
        return _sum(product, addend), minus if minus == other else mode == "rm"
    if opcode == "sqrt":
        if x[0] < 0:
            return None, False
        return (x[0] if x[0] in (0, LARGE) else root(x[0])), signs[0]
    if opcode in ("mul", "mul%scaled"):  # by a power of two, too
        found = _product(x[0], x[1])
        return (_product(found, x[2]) if found is not None and x[2:] else found), sum(signs) % 2 == 1
    top, bottom = (x[0], x[1]) if opcode == "div" else (Fraction(1), x[0])
    negative = signs[0] != signs[1] if opcode == "div" else signs[0]
    return _quotient(top, bottom, negative), negative


def _place(bits: int, fmt: Format) -> tuple[Fraction, int]:
    """Orders numbers, -0 below +0."""
    x = number(bits, fmt)
    return (x if x is not None else Fraction(0)), -_negative(bits, fmt)


def minmax(op: Op, *operands: int) -> int:
    """min, max."""
    kind = op.types[-1]
    if kind.endswith("x2"):
        return _each_half(op, operands)
    fmt = FORMATS[kind]
    given = [flushed(x, fmt) if op.has("ftz") else x for x in operands]
    top = 1 << fmt.bits - 1
    sign = (given[0] ^ given[1]) & top if op.has("xorsign") else 0
    if op.has("abs"):
        given = [x % top for x in given]
    numbers = [x for x in given if number(x, fmt) is not None]
    if not numbers or (op.has("NaN") and len(numbers) < len(given)):
        return _nan(op, fmt, given)
    return (min if op.opcode == "min" else max)(numbers, key=lambda x: _place(x, fmt)) | sign


def sign_only(op: Op, a: int) -> int:
    """abs, neg."""
    kind = op.types[-1]
    if kind.endswith("x2"):
        return _each_half(op, (a,))
    fmt = FORMATS[kind]
    x = flushed(a, fmt) if op.has("ftz") else a
    if number(x, fmt) is None:
        return _nan(op, fmt, [x])
    top = 1 << fmt.bits - 1
    return x % top if op.opcode == "abs" else x ^ top


def copysign(op: Op, a: int, b: int) -> int:
    """copysign."""
    top = 1 << FORMATS[op.types[-1]].bits - 1
    return b % top | a & top


REFERENCE: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("add", "sub", "mul", "mul%scaled", "fma", "mad", "div", "rcp", "sqrt"), arithmetic),
    **dict.fromkeys(("min", "max"), minmax),
    **dict.fromkeys(("abs", "neg"), sign_only),
    "copysign": copysign,
}
