"""cvt in exact fractions."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil, floor
from typing import Any

from nbtc.executor.emit.form import WIDTHS, Op
from nbtc.formats.table import Format
from tests.reference.integers import join, signed, split, value, wrapped
from tests.reference.rounding import FORMATS, LARGE, flushed, greatest, infinity, nan, number, rounded

FLOATS = ("f16", "bf16", "f32", "f64")
ROUNDINGS = ("rn", "rz", "rm", "rp", "rna")
WHOLE: dict[str, Callable[[Fraction], int]] = {"rni": round, "rzi": int, "rmi": floor, "rpi": ceil}


def _bounded(x: int, kind: str, width: int) -> int:
    least, most = (-(1 << width - 1), (1 << width - 1) - 1) if kind.startswith("s") else (0, (1 << width) - 1)
    return wrapped(max(least, min(most, x)), width)


def _integral(op: Op, x: Fraction) -> Fraction:
    return x if abs(x) == LARGE else Fraction(WHOLE[op.among(tuple(WHOLE))](x))


def _to_integer(op: Op, a: int, target: str, source: str) -> int:
    if source not in FLOATS:
        x = value(a, source)
        return _bounded(x, target, WIDTHS[target]) if op.has("sat") else wrapped(x, WIDTHS[target])
    fmt = FORMATS[source]
    exact = number(flushed(a, fmt) if op.has("ftz") and source == "f32" else a, fmt)
    if exact is None:
        return 1 << WIDTHS[target] - 1 if source == "f64" or WIDTHS[target] == 64 else 0
    return _bounded(int(_integral(op, exact)), target, WIDTHS[target])


def _nan(op: Op, a: int, source: Format, target: Format) -> int:
    """A NaN in another format: its payload lives on to and from f64, from bf16 to f32, and in cvt.rna.tf32."""
    if op.has("sat"):
        return 0
    if source.name == target.name in ("f32", "f64") and not op.has("ftz") and not op.among(tuple(WHOLE)):
        return a  # a move
    flushed_first = op.has("ftz") and source.name == "f32"
    if op.has("ftz") and source.name == "bf16":
        return nan(target)
    if "f64" not in (source.name, target.name) and (source.name, target.name) != ("bf16", "f32"):
        return nan(target)
    bits = nan(source) if flushed_first else a
    payload = bits % (1 << source.mantissa)
    shift = target.mantissa - source.mantissa
    payload = payload << shift if shift > 0 else payload >> -shift
    if "f64" in (source.name, target.name):
        payload |= 1 << target.mantissa - 1
    sign = bits >> source.bits - 1
    return sign << target.exponent + target.mantissa | infinity(0, target) | payload


def _to_float(op: Op, x: Fraction, negative: bool, target: Format) -> int:
    """A number as a float, with what .satfinite, .relu, .sat and .ftz make of it."""
    top = 1 << target.exponent + target.mantissa
    bits = rounded(x, target, op.among(ROUNDINGS, "rn"), negative)
    if op.has("satfinite"):
        bits = min(bits % top, greatest(target)) | bits & top
    if op.has("ftz") and target.name == "f32":
        bits = flushed(bits, target)
    if op.has("relu") and bits & top:
        return 0
    if op.has("sat"):
        y = number(bits, target)
        return rounded(min(max(y or Fraction(0), Fraction(0)), Fraction(1)), target)
    return bits


def _float_to_float(op: Op, a: int, source: Format, target: Format) -> int:
    bits = flushed(a, source) if op.has("ftz") and source.name == "f32" and target.name != "f16" else a
    x = number(bits, source)
    if x is None:
        return _nan(op, bits, source, target)
    negative = bool(bits >> source.bits - 1)
    return _to_float(op, _integral(op, x) if op.among(tuple(WHOLE)) else x, negative, target)


def _pack(op: Op, a: int, b: int, c: int = 0) -> int:
    kind = op.modifiers[2]
    width = int(kind[1:])
    fields = [_bounded(signed(x, 32), kind, width) for x in (b, a)]
    return wrapped(join(fields, width) | c << 2 * width, 32)


def cvt(op: Op, *operands: int) -> int:
    """cvt, cvt.pack."""
    if op.has("pack"):
        return _pack(op, *operands)
    target, source = op.types
    if "ue8m0x2" in op.types:
        return _scales(op, *operands)
    if target.endswith("x2"):
        one = op._replace(modifiers=tuple(m.removesuffix("x2") for m in op.modifiers))
        own = WIDTHS[source] // 2
        values = operands[::-1] if len(operands) == 2 else split(operands[0], own, 2)
        names = (source.removesuffix("x2"), target.removesuffix("x2"))
        formats = [FORMATS[n] for n in names]
        found = [_float_to_float(one, x % (1 << formats[0].bits), *formats) for x in values]
        return join(found, WIDTHS[target] // 2)
    if target not in FLOATS and target != "tf32":
        return _to_integer(op, operands[0], target, source)
    if source not in FLOATS:
        return _to_float(op, Fraction(value(operands[0], source)), False, FORMATS[target])
    if target == "tf32":
        return _to_tf32(op, operands[0])
    return _float_to_float(op, operands[0], FORMATS[source], FORMATS[target])


def _scales(op: Op, *operands: int) -> int:
    """Two powers of two as exponents of eight bits, or back."""
    target, source = op.types
    values = operands[::-1] if len(operands) == 2 else split(operands[0], WIDTHS[source] // 2, 2)
    one = _power if source == "ue8m0x2" else _scale
    return join([one(op, x, source) for x in values], WIDTHS[target] // 2)


def _power(op: Op, a: int, source: str) -> int:
    return 0x7FFF if a == 0xFF else rounded(Fraction(2) ** (a - 127), FORMATS["bf16"])


def _scale(op: Op, a: int, source: str) -> int:
    x = number(a, FORMATS[source.removesuffix("x2")])
    if x is None:
        return 0xFF
    most = 0xFE if op.has("satfinite") else 0xFF
    if op.has("rp"):
        return next((n for n in range(most) if Fraction(2) ** (n - 127) >= abs(x)), most)
    return next(
        (n for n in range(most, -1, -1) if abs(x) == LARGE or (n < 255 and Fraction(2) ** (n - 127) <= abs(x))), 0
    )


def _to_tf32(op: Op, a: int) -> int:
    fmt = FORMATS["tf32"]
    x = number(a, FORMATS["f32"])
    if x is None:
        kept = (a >> 13) - op.has("satfinite")
        return (kept if op.has("rna") else (1 << fmt.exponent + fmt.mantissa) - 1) << 13
    return _to_float(op, x, bool(a >> 31), fmt) << 13


REFERENCE: dict[str, Callable[..., Any]] = {"cvt": cvt}
