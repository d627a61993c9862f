"""Approximate functions within the errors that the PTX ISA states (".approx" and ".full" forms).

The bits of the hardware come from tables inside the chip; these are deterministic polynomials in f32, the same on every
processor.  What a correctly rounded operation gives cheaply (rcp, sqrt, div) is correctly rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import factorial, log, pi
from typing import Any

from nbtc.compiler.builder import I32, VectorBuilder, suffix
from nbtc.executor.float_values import (
    KINDS,
    as_float,
    double_bits,
    float_bits,
    flush,
    is_nan,
    to_number,
)
from nbtc.executor.floats import canonical, nearest
from nbtc.executor.form import Form, Op, slots
from nbtc.executor.half_precision import packed, single
from nbtc.executor.narrow import narrowed
from nbtc.executor.values import const, is_negative, is_zero, like, resize

F32_KIND = KINDS["f32"]
BIAS = 127
# Taylor series, cut where the next term is below 2**-27 of the sum for the reduced arguments.
EXP2 = [log(2) ** k / factorial(k) for k in range(8)]  # 2**x, |x| <= 1/2
ATANH = [2 / log(2) / (2 * k + 1) for k in range(5)]  # log2((1 + s) / (1 - s)) / s in s**2, |s| <= 3 - 2 * sqrt(2)
SIN = [(-1) ** k / factorial(2 * k + 1) for k in range(5)]  # sin(x) / x in x**2, |x| <= pi / 4
COS = [(-1) ** k / factorial(2 * k) for k in range(6)]  # cos(x) in x**2, |x| <= pi / 4
TANH = [1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835]  # tanh(x) / x in x**2, |x| <= 1/4
SQRT_HALF = 0x3F3504F3  # sqrt(1/2) as f32 bits: log2's arguments are scaled to lie between it and twice it
LARGE_DIVISOR = 2.0**126  # div.approx gives zero for finite numbers divided by more


def polynomial(v: VectorBuilder, x: Any, coefficients: Sequence[float]) -> Any:
    """Horner's rule, lowest coefficient first."""
    found = v.const(x.type, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        found = v.fma(found, x, v.const(x.type, c))
    return found


def _power(v: VectorBuilder, n: Any) -> Any:
    """2.0**n for an i32 n from -126 to 127."""
    return as_float(v, v.b.shl(v.b.add(n, const(v, n, BIAS)), const(v, n, F32_KIND.fraction)))


def to_i32(v: VectorBuilder, x: Any) -> Any:
    """A float without a fraction as an i32; 0 for a NaN."""
    t = like(x, I32)
    return v.call(f"llvm.fptosi.sat.{suffix(t)}.{suffix(x.type)}", t, x)


def ex2(v: VectorBuilder, x: Any) -> Any:
    """2**x."""
    held = v.over("maxnum", v.over("minnum", x, v.const(x.type, 130.0)), v.const(x.type, -152.0))
    whole = v.over("roundeven", held)
    found = polynomial(v, v.b.fsub(held, whole), EXP2)
    n = to_i32(v, whole)
    half = v.b.ashr(n, const(v, n, 1))  # in two steps, since the result may be subnormal
    found = v.b.fmul(v.b.fmul(found, _power(v, half)), _power(v, v.b.sub(n, half)))
    return v.b.select(v.b.fcmp_unordered("uno", x, x), x, found)


def lg2(v: VectorBuilder, x: Any) -> Any:
    """log2(x): -inf for zeros, NaN below."""
    tiny = v.b.fcmp_ordered("<", x, v.const(x.type, 2.0**-126))
    bits = float_bits(v, v.b.select(tiny, v.b.fmul(x, v.const(x.type, 2.0**24)), x))
    offset = v.b.sub(bits, const(v, bits, SQRT_HALF))
    n = v.b.ashr(offset, const(v, bits, F32_KIND.fraction))
    fraction = v.b.and_(offset, const(v, bits, F32_KIND.least_normal - 1))
    m = as_float(v, v.b.add(fraction, const(v, bits, SQRT_HALF)))
    one = v.const(x.type, 1.0)
    s = v.b.fdiv(v.b.fsub(m, one), v.b.fadd(m, one))
    n = v.b.sub(n, v.b.select(tiny, const(v, n, 24), const(v, n, 0)))
    found = v.b.fadd(v.b.fmul(s, polynomial(v, v.b.fmul(s, s), ATANH)), v.b.sitofp(n, x.type))
    infinite = v.b.fcmp_ordered("==", x, v.const(x.type, float("inf")))
    found = v.b.select(infinite, x, found)
    found = v.b.select(v.b.fcmp_ordered("==", x, v.const(x.type, 0.0)), v.const(x.type, float("-inf")), found)
    return v.b.select(v.b.fcmp_unordered("<", x, v.const(x.type, 0.0)), v.const(x.type, float("nan")), found)


def _turns(v: VectorBuilder, x: Any) -> Any:
    """x / (2 pi) toward zero."""
    factor = v.const(x.type, 1 / (2 * pi))
    found = v.b.fmul(x, factor)
    bits = float_bits(v, found)
    left = v.fma(x, factor, v.b.fneg(found))
    other_sign = is_negative(v, v.b.xor(bits, float_bits(v, left)))
    back = v.b.and_(other_sign, v.b.fcmp_ordered("!=", left, v.const(x.type, 0.0)))
    return as_float(v, v.b.sub(bits, resize(v, back, 32)))


def _circular(v: VectorBuilder, x: Any, turn: int) -> Any:
    """sin(x + turn * pi / 2): the number of turns is an f32 rounded toward zero, as on the hardware, then cut exactly.

    That decides the result of large arguments: with it an H200's sines and cosines are met within 2**-21 up to 128.
    """
    quarters = v.b.fmul(_turns(v, x), v.const(x.type, 4.0))
    whole = v.over("roundeven", quarters)
    rest = v.b.fmul(v.b.fsub(quarters, whole), v.const(x.type, pi / 2))
    fours = v.over("floor", v.b.fmul(whole, v.const(x.type, 0.25)))
    n = to_i32(v, v.b.fsub(whole, v.b.fmul(fours, v.const(x.type, 4.0))))
    n = v.b.add(n, const(v, n, turn))
    square = v.b.fmul(rest, rest)
    sine = v.b.fmul(rest, polynomial(v, square, SIN))
    picked = v.b.select(is_zero(v, v.b.and_(n, const(v, n, 1))), sine, polynomial(v, square, COS))
    found = v.b.select(is_zero(v, v.b.and_(n, const(v, n, 2))), picked, v.b.fneg(picked))
    if not turn:  # sin(-0) is -0
        found = v.b.select(v.b.fcmp_ordered("==", x, v.const(x.type, 0.0)), x, found)
    return v.b.select(v.b.fcmp_ordered("==", v.over("fabs", x), v.const(x.type, float("inf"))), _nan(v, x), found)


def _nan(v: VectorBuilder, x: Any) -> Any:
    return v.const(x.type, float("nan"))


def sin(v: VectorBuilder, x: Any) -> Any:
    """sin(x)."""
    return _circular(v, x, 0)


def cos(v: VectorBuilder, x: Any) -> Any:
    """cos(x)."""
    return _circular(v, x, 1)


def tanh(v: VectorBuilder, x: Any) -> Any:
    """tanh(x): an odd polynomial near zero, 1 - 2 / (exp(2 |x|) + 1) beyond."""
    m = v.over("fabs", x)
    one = v.const(x.type, 1.0)
    power = ex2(v, v.b.fmul(m, v.const(x.type, 2 / log(2))))
    far = v.b.fsub(one, v.b.fdiv(v.const(x.type, 2.0), v.b.fadd(power, one)))
    near = v.b.fmul(x, polynomial(v, v.b.fmul(x, x), TANH))
    close = v.b.fcmp_ordered("<", m, v.const(x.type, 0.25))
    return v.b.select(close, near, v.over("copysign", far, x))


def rsqrt(v: VectorBuilder, x: Any) -> Any:
    """1 / sqrt(x)."""
    return v.b.fdiv(v.const(x.type, 1.0), v.over("sqrt", x))


def _plain(opcode: str) -> Callable[..., Any]:
    return lambda v, *x: nearest(v, opcode, x)


def div_approx(v: VectorBuilder, a: Any, b: Any) -> Any:
    """a / b; for |b| above 2**126 zero, or a NaN when a is infinite."""
    found = v.b.fdiv(a, b)
    m = v.over("fabs", b)
    inf = v.const(b.type, float("inf"))
    huge = v.b.and_(v.b.fcmp_ordered(">", m, v.const(b.type, LARGE_DIVISOR)), v.b.fcmp_ordered("<", m, inf))
    zero = v.b.fmul(a, v.over("copysign", v.const(b.type, 0.0), b))  # a NaN for an infinite a
    return v.b.select(huge, zero, found)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "rcp": _plain("rcp"),
    "sqrt": _plain("sqrt"),
    "rsqrt": rsqrt,
    "ex2": ex2,
    "lg2": lg2,
    "sin": sin,
    "cos": cos,
    "tanh": tanh,
}


def approximate(v: VectorBuilder, op: Op, *operands: Any) -> Any:
    """An f32 function; .ftz makes subnormal operands and results zero."""
    x = [as_float(v, flush(v, F32_KIND, n) if op.has("ftz") else n) for n in operands]
    if op.opcode == "div":
        found = (_plain("div") if op.has("full") else div_approx)(v, *x)
    else:
        found = FUNCTIONS[op.opcode](v, *x)
    bits = float_bits(v, found)
    return canonical(v, "f32", flush(v, F32_KIND, bits) if op.has("ftz") else bits)


def half_precision_function(v: VectorBuilder, op: Op, name: str, a: Any) -> Any:
    """ex2, tanh of f16 and bf16: the f32 function, cut (as an H200 was seen to do); an f16 overflows at 2**16."""
    x = to_number(v, name, flush(v, KINDS[name], a) if op.has("ftz") else a)
    word = FUNCTIONS[op.opcode](v, x)
    if name == "f16":
        over = v.b.fcmp_ordered(">=", word, v.const(word.type, 2.0**16))
        word = v.b.select(over, v.const(word.type, float("inf")), word)
    found = narrowed(v, "f32", name, "rz", float_bits(v, word))
    return flush(v, KINDS[name], found) if op.has("ftz") else found


def upper_word(v: VectorBuilder, op: Op, a: Any) -> Any:
    """rcp, rsqrt .approx.ftz.f64: from the upper word of a double to one whose lower word is zero, cut."""
    kind = KINDS["f64"]
    low = (1 << 32) - 1
    x = flush(v, kind, v.b.and_(a, const(v, a, ~low)))
    found = double_bits(v, FUNCTIONS[op.opcode](v, as_float(v, x)))
    bits = flush(v, kind, v.b.and_(found, const(v, a, ~low)))
    nan = const(v, a, F32_KIND.nan << 32)
    return v.b.select(is_nan(v, kind, found), nan, bits)


def _rows() -> list[Form]:
    error = "relative error 2**-23"
    bounds = {
        "rcp": error,
        "sqrt": error,
        "rsqrt": "relative error 2**-22.9",
        "ex2": "relative error 2**-22.5",
        "lg2": "absolute error 2**-22 from 1/2 to 2, else relative error 2**-22",
        "sin": "absolute error 2**-20.5 from -2 pi to 2 pi",
        "cos": "absolute error 2**-20.5 from -2 pi to 2 pi",
    }
    one, two = ("f32",), ("f32", "f32")
    rows = [Form(n, slots("approx", "ftz?", "f32"), one, one, approximate, approx=e) for n, e in bounds.items()]
    rows.append(Form("tanh", slots("approx", "f32"), one, one, approximate, approx="relative error 2**-11"))
    rows.append(Form("div", slots("approx|full", "ftz?", "f32"), two, one, approximate, approx="2 ulp"))
    double = ("f64",)
    gross = "relative error 2**-20"
    rows += [Form(n, slots("approx", "ftz", "f64"), double, double, upper_word, approx=gross) for n in ("rcp", "rsqrt")]
    rows.append(Form("rsqrt", slots("approx", "f64"), double, double, full_rsqrt, approx="relative error 2**-52"))
    return rows


def full_rsqrt(v: VectorBuilder, op: Op, a: Any) -> Any:
    """rsqrt.approx.f64, subnormals kept."""
    return canonical(v, "f64", double_bits(v, rsqrt(v, as_float(v, a))))


def _half_precision_rows() -> list[Form]:
    rows = []
    for opcode, name, ftz, error in (
        ("ex2", "f16", (), "relative error 2**-9.9"),
        ("ex2", "bf16", ("ftz",), "relative error 2**-7"),
        ("tanh", "f16", (), "absolute error 2**-10.987"),
        ("tanh", "bf16", (), "absolute error 2**-8"),
    ):
        for t, make in ((name, single), (f"{name}x2", packed)):
            emit = make(half_precision_function)
            rows.append(Form(opcode, slots("approx", *ftz, t), (t,), (t,), emit, approx=error))
    return rows


FORMS = (*_rows(), *_half_precision_rows())
