"""f32 and f64 arithmetic in every rounding (PTX ISA, "Floating Point Instructions").

Rounding to nearest is what LLVM's own operations do; the other directions come from `rounding`.  Every NaN that f32
arithmetic gives is the canonical one; f64 keeps the payload of an operand (both recorded on an H200,
golden/scalar_rows_h200.npz).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nbtc.compiler.builder import F32, F64, VectorBuilder
from nbtc.executor.emit.form import Form, Op, slots
from nbtc.executor.emit.values import const, is_zero, like, resize
from nbtc.executor.scalar import rounding
from nbtc.executor.scalar.float_values import (
    KINDS,
    FloatKind,
    as_float,
    double_bits,
    float_bits,
    flush,
    is_nan,
    magnitude_bits,
)
from nbtc.executor.scalar.rounding import DIRECTIONS, DOUBLE, Exact, clamp, exact, pack, scaled, with_exponent

SUMS = ("add", "sub", "fma", "mad")
RAISED_BY = 32  # exponents from the least normal f32 to where a result and what its rounding left are both normal
WIDEST_GAP = 200  # exponents so far apart that the smaller addend is only more or less than nothing


def nearest(v: VectorBuilder, opcode: str, x: Sequence[Any]) -> Any:
    """An operation on LLVM floats, rounded to nearest even."""
    operations: dict[str, Callable[..., Any]] = {
        "add": v.b.fadd,
        "sub": v.b.fsub,
        "mul": v.b.fmul,
        "div": v.b.fdiv,
        "fma": v.fma,
        "mad": v.fma,
        "sqrt": lambda a: v.over("sqrt", a),
        "rcp": lambda a: v.b.fdiv(v.const(a.type, 1.0), a),
    }
    return operations[opcode](*x)


def _in_doubles(v: VectorBuilder, opcode: str, x: Sequence[Any]) -> tuple[Any, Any]:
    """An operation on doubles that neither over- nor underflow: rounded to nearest, and what is left."""
    if opcode in ("add", "sub"):
        return rounding.two_sum(v, x[0], x[1] if opcode == "add" else v.b.fneg(x[1]))
    if opcode in ("fma", "mad"):
        return rounding.sum_of_product(v, *x)
    if opcode == "mul":
        found = v.b.fmul(*x)
        return found, v.fma(x[0], x[1], v.b.fneg(found))
    if opcode == "sqrt":
        return rounding.square_root(v, *x)
    return rounding.quotient(v, *(x if opcode == "div" else (v.const(x[0].type, 1.0), *x)))


def _single(v: VectorBuilder, opcode: str, x: Sequence[Any]) -> Exact:
    """The exact result for f32 bits: doubles hold every f32, and every product of two."""
    return exact(v, *_in_doubles(v, opcode, [v.b.fpext(as_float(v, n), like(n, F64)) for n in x]))


def _double(v: VectorBuilder, opcode: str, x: Sequence[Any]) -> Exact:
    """The exact result for f64 bits: operands scaled to the middle of the range, the result scaled back."""
    m, e = zip(*(scaled(v, n) for n in x), strict=True)
    if opcode in SUMS:
        operands, unit = _aligned(v, x, m, e)
    elif opcode == "mul":
        operands, unit = m, v.b.add(*e)
    elif opcode == "div":
        operands, unit = m, v.b.sub(*e)
    elif opcode == "rcp":
        operands, unit = m, v.b.neg(e[0])
    else:
        odd = v.b.and_(e[0], const(v, e[0], 1))
        operands, unit = (with_exponent(v, m[0], odd),), v.b.ashr(v.b.sub(e[0], odd), const(v, odd, 1))
    found, left = _in_doubles(v, opcode, operands)
    parts = exact(v, found, left)
    return parts._replace(exponent=v.b.add(parts.exponent, unit))


def _aligned(v: VectorBuilder, x: Sequence[Any], m: Sequence[Any], e: Sequence[Any]) -> tuple[tuple[Any, ...], Any]:
    """Operands of a sum scaled by one power of two, which is also given; the last one is held near the others."""
    first = v.b.add(e[0], e[1]) if len(x) == 3 else e[0]
    gap = v.b.sub(e[-1], first)
    held = clamp(v, gap, -WIDEST_GAP, WIDEST_GAP)
    none = is_zero(v, magnitude_bits(v, DOUBLE, x[-1]))
    held = v.b.select(none, const(v, held, -WIDEST_GAP), held)
    last = v.b.select(none, v.const(m[-1].type, 0.0), with_exponent(v, m[-1], held))
    ahead = v.b.and_(v.b.icmp_signed(">", gap, const(v, gap, WIDEST_GAP)), v.b.not_(none))
    unit = v.b.select(ahead, v.b.sub(e[-1], const(v, held, WIDEST_GAP)), first)
    return (*m[:-1], last), unit


def _directed(v: VectorBuilder, opcode: str, name: str, direction: str, x: Sequence[Any], ftz: bool) -> Any:
    """An operation rounded in a direction; infinities, NaNs and exact zeros are those of rounding to nearest."""
    kind = KINDS[name]
    plain = _bits(v, name, nearest(v, opcode, [as_float(v, n) for n in x]))
    if direction == "rm" and opcode in SUMS:  # a sum of zero is -0: as the opposite of the sum of the opposites
        mirrored = [n if i == 1 and len(x) == 3 else v.b.xor(n, const(v, n, kind.sign)) for i, n in enumerate(x)]
        plain = _bits(v, name, v.b.fneg(nearest(v, opcode, [as_float(v, n) for n in mirrored])))
    parts = (_single if name == "f32" else _double)(v, opcode, x)
    found = resize(v, pack(v, kind, direction, parts), kind.bits)
    if ftz:
        found = _without_tiny(v, kind, found, _raised_parts(v, kind, direction, parts))
    keep = v.b.or_(is_zero(v, parts.significand), is_nan(v, kind, plain))
    tests = [v.b.icmp_unsigned(">=", magnitude_bits(v, kind, n), const(v, n, kind.infinity)) for n in x]
    zeros = x if opcode not in SUMS else x[:-1]
    tests += [is_zero(v, magnitude_bits(v, kind, n)) for n in zeros]
    for test in tests:
        keep = v.b.or_(keep, test)
    return v.b.select(keep, plain, found)


def _bits(v: VectorBuilder, name: str, x: Any) -> Any:
    return float_bits(v, x) if name == "f32" else double_bits(v, x)


def _without_tiny(v: VectorBuilder, kind: FloatKind, found: Any, raised: Any) -> Any:
    """found with zero in place of a result that is below the least normal number once it is rounded.

    raised: the same result times 2**RAISED_BY, far from the subnormal range: what rounds up to the least normal number
    only because a subnormal has fewer digits is tiny all the same.
    """
    least = const(v, raised, kind.least_normal + (RAISED_BY << kind.fraction))
    tiny = v.b.icmp_unsigned("<", magnitude_bits(v, kind, raised), least)
    return v.b.select(tiny, v.b.and_(found, const(v, found, kind.sign)), found)


def _raised_parts(v: VectorBuilder, kind: FloatKind, direction: str, parts: Exact) -> Any:
    raised = parts._replace(exponent=v.b.add(parts.exponent, const(v, parts.exponent, RAISED_BY)))
    return resize(v, pack(v, kind, direction, raised), kind.bits)


def _flushed_nearest(v: VectorBuilder, opcode: str, x: Sequence[Any]) -> Any:
    """An operation on f32 without subnormals, rounded to nearest even, without a subnormal result."""
    kind = KINDS["f32"]
    found = float_bits(v, nearest(v, opcode, x))
    if opcode in ("add", "sub", "sqrt"):  # a tiny sum is exact, and no root is tiny
        return flush(v, kind, found)
    unit = v.const(x[0].type, 2.0**RAISED_BY)
    # an operand that this makes infinite is so large that the result is not tiny
    raised = [unit, *x] if opcode == "rcp" else [v.b.fmul(n, unit) if i != 1 else n for i, n in enumerate(x)]
    raised = nearest(v, "div" if opcode == "rcp" else opcode, raised)
    return _without_tiny(v, kind, found, float_bits(v, raised))


def saturate(v: VectorBuilder, name: str, x: Any) -> Any:
    """.sat: into [0, 1]; a NaN becomes +0."""
    kind = KINDS[name]
    low = v.b.select(v.b.icmp_signed(">", x, const(v, x, 0)), x, const(v, x, 0))
    held = v.b.select(v.b.icmp_signed(">", low, const(v, x, kind.one)), const(v, x, kind.one), low)
    return v.b.select(is_nan(v, kind, x), const(v, x, 0), held)


def canonical(v: VectorBuilder, name: str, x: Any) -> Any:
    """x with the format's canonical NaN in place of every NaN."""
    if name == "f32":  # found by one comparison, by bits it takes two steps
        number = as_float(v, x)
        nan = v.b.fcmp_unordered("uno", number, number)
    else:
        nan = is_nan(v, KINDS[name], x)
    return v.b.select(nan, const(v, x, KINDS[name].nan), x)


def propagated(v: VectorBuilder, found: Any, operands: Sequence[Any]) -> Any:
    """f64 results keep the payload of a NaN among the operands, made quiet; a new NaN is the default one.

    operands: the one whose payload goes first comes last (an H200's order is a, c, b; only a division puts a first).
    """
    nan = const(v, found, DOUBLE.nan)
    for x in operands:
        nan = v.b.select(is_nan(v, DOUBLE, x), v.b.or_(x, const(v, x, DOUBLE.quiet)), nan)
    return v.b.select(is_nan(v, DOUBLE, found), nan, found)


def arithmetic(v: VectorBuilder, op: Op, *x: Any) -> Any:
    """add, sub, mul, fma, mad, div, rcp, sqrt."""
    name = op.types[-1]
    kind = KINDS[name]
    direction = op.among(DIRECTIONS, "rn")
    given = [flush(v, kind, n) for n in x] if op.has("ftz") else list(x)
    if direction != "rn":
        found = _directed(v, op.opcode, name, direction, given, op.has("ftz"))
    elif op.has("ftz"):
        found = _flushed_nearest(v, op.opcode, [as_float(v, n) for n in given])
    else:
        found = _bits(v, name, nearest(v, op.opcode, [as_float(v, n) for n in given]))
    if op.has("sat"):
        return saturate(v, name, found)
    if name == "f32":
        return canonical(v, name, found)
    return propagated(v, found, given[::-1] if op.opcode == "div" else [given[0], *given[:0:-1]])


def scaled_product(v: VectorBuilder, op: Op, x: Any, y: Any, power: Any) -> Any:
    """A product of f32 times a power of two, rounded once: doubles hold what is rounded."""
    kind = KINDS["f32"]
    given = [flush(v, kind, n) for n in (x, y)] if op.has("ftz") else [x, y]
    a, b, c = (v.b.fpext(as_float(v, n), like(n, F64)) for n in (*given, power))
    exactly = v.b.fmul(v.b.fmul(a, b), c)

    def rounded(unit: float) -> Any:
        return float_bits(v, v.b.fptrunc(v.b.fmul(exactly, v.const(exactly.type, unit)), like(x, F32)))

    found = rounded(1.0)
    if op.has("ftz"):
        found = _without_tiny(v, kind, found, rounded(2.0**RAISED_BY))
    return saturate(v, "f32", found) if op.has("sat") else canonical(v, "f32", found)


def _rows(opcode: str, count: int, direction: str, saturates: bool) -> tuple[Form, ...]:
    sat = ("sat?",) if saturates else ()
    return (
        Form(opcode, slots(direction, "ftz?", *sat, "f32"), ("f32",) * count, ("f32",), arithmetic),
        Form(opcode, slots(direction, "f64"), ("f64",) * count, ("f64",), arithmetic),
    )


ANY, CHOSEN = "rn|rz|rm|rp?", "rn|rz|rm|rp"
FORMS = (
    *(row for opcode in ("add", "sub", "mul") for row in _rows(opcode, 2, ANY, True)),
    *(row for opcode in ("fma", "mad") for row in _rows(opcode, 3, CHOSEN, True)),
    *_rows("div", 2, CHOSEN, False),
    *(row for opcode in ("rcp", "sqrt") for row in _rows(opcode, 1, CHOSEN, False)),
)
# What `kernel.powers` makes of a product and a power of two; no text can spell it.
SCALED = Form("mul%scaled", slots("ftz?", "sat?", "f32"), ("f32",) * 3, ("f32",), scaled_product)
