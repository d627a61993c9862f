"""Conversions (PTX ISA, "Data Movement and Conversion Instructions: cvt, cvt.pack")."""

from __future__ import annotations

from itertools import product
from typing import Any

from nbtc.compiler.builder import VectorBuilder
from nbtc.executor.emit.form import WIDTHS, Form, Op, slots
from nbtc.executor.emit.values import const, joined, order, resize
from nbtc.executor.scalar.convert_small import narrow_one
from nbtc.executor.scalar.float_values import KINDS, PACKED, flush, is_nan
from nbtc.executor.scalar.floats import canonical, saturate
from nbtc.executor.scalar.narrow import (
    ROUND_TO_INTEGER,
    from_integer,
    narrowed,
    relu,
    round_to_integer,
    to_integer,
    widened,
)
from nbtc.executor.scalar.rounding import DIRECTIONS, clamp

INTEGERS = tuple(f"{kind}{bits}" for bits in (8, 16, 32, 64) for kind in "us")
FLOATS = ("f16", "bf16", "f32", "f64")
ORDERS = (("relu?", "satfinite?"), ("satfinite", "relu"))  # the ISA writes the first, ptxas takes both
PACK_BITS = {f"{kind}{bits}": bits for bits in (2, 4, 8, 16) for kind in "us"}


def bounds(kind: str, bits: int) -> tuple[int, int]:
    """The least and greatest value of an integer type."""
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if kind.startswith("s") else (0, (1 << bits) - 1)


def integer_to_integer(v: VectorBuilder, op: Op, a: Any) -> Any:
    """cut or extended; .sat holds the value between the bounds of the result."""
    target, source = op.types
    signed = source.startswith("s")
    if op.has("sat"):
        least, most = bounds(target, WIDTHS[target])
        lower, upper = bounds(source, WIDTHS[source])
        a = order(v, "max", a, const(v, a, max(least, lower)), signed)
        a = order(v, "min", a, const(v, a, min(most, upper)), signed)
    return resize(v, a, WIDTHS[target], signed)


def _widens(source: str, target: str) -> bool:
    """Whether a format holds all values of another, and more."""
    return KINDS[target].bits > KINDS[source].bits


def _flushed(v: VectorBuilder, op: Op, name: str, x: Any) -> Any:
    return flush(v, KINDS[name], x) if op.has("ftz") and name == "f32" else x


def float_to_integer(v: VectorBuilder, op: Op, a: Any) -> Any:
    """The nearest integer in a direction, held between the bounds of the type."""
    target, source = op.types
    x = _flushed(v, op, source, a)
    return to_integer(v, target, source, op.among(tuple(ROUND_TO_INTEGER)), x)


def integer_to_float(v: VectorBuilder, op: Op, a: Any) -> Any:
    """Rounded in a direction."""
    target, source = op.types
    found = from_integer(v, source.startswith("s"), target, op.among(DIRECTIONS), a)
    return saturate(v, target, found) if op.has("sat") else found


def float_to_float(v: VectorBuilder, op: Op, a: Any) -> Any:
    """Between float formats, or to an integral value of one.

    An H200 keeps the payload of a NaN to and from f64 and from bf16 to f32 (but .ftz makes an f32's canonical first).
    """
    target, source = op.types
    x = _flushed(v, op, source, a) if target != "f16" else a  # a subnormal f32 still rounds up to an f16
    x = canonical(v, source, x) if op.has("ftz") and source == "f32" else x
    whole = op.among(tuple(ROUND_TO_INTEGER))
    if target == source == "f32" and not whole and not op.has("ftz") and not op.has("sat"):
        return x  # a move, NaNs and all
    if whole:
        x = round_to_integer(v, source, whole, x)
    elif _widens(source, target):
        x = widened(v, source, target, x)
    elif target != source:
        x = narrowed(v, source, target, op.among(DIRECTIONS, "rn"), x, op.has("satfinite"))
    x = _flushed(v, op, target, x)
    if op.has("relu"):
        x = relu(v, KINDS[target], x)
    if op.has("sat"):
        return saturate(v, target, x)
    payload = "f64" in (target, source) or ((source, target) == ("bf16", "f32") and not op.has("ftz"))
    return x if payload else canonical(v, target, x)


def to_tf32(v: VectorBuilder, op: Op, a: Any) -> Any:
    """The upper 19 bits of an f32, rounded; .rna keeps those of a NaN, even if they are an infinity's."""
    found = narrowed(v, "f32", "tf32", op.among((*DIRECTIONS, "rna")), a, op.has("satfinite"))
    if op.has("rna"):
        kept = resize(v, v.b.lshr(a, const(v, a, 13)), 19)
        kept = v.b.sub(kept, const(v, kept, int(op.has("satfinite"))))  # one less, as on an H200
        found = v.b.select(is_nan(v, KINDS["f32"], a), kept, found)
    found = relu(v, KINDS["tf32"], found) if op.has("relu") else found
    wide = resize(v, found, 32)
    return v.b.shl(wide, const(v, wide, 13))


def two_to_packed(v: VectorBuilder, op: Op, a: Any, b: Any) -> Any:
    """Two f32 in one register, a in the upper half."""
    return joined(v, *(narrow_one(v, op, "f32", PACKED[op.types[0]], x) for x in (b, a)))


def saturating_pack(v: VectorBuilder, op: Op, a: Any, b: Any, c: Any = None) -> Any:
    """cvt.pack.sat: a and b held to a small type and packed, b lowest; c moves up above them."""
    kind = op.modifiers[2]
    bits = PACK_BITS[kind]
    least, most = bounds(kind, bits)
    mask = (1 << bits) - 1
    fields = [v.b.and_(clamp(v, x, least, most), const(v, x, mask)) for x in (a, b)]
    found = v.b.or_(v.b.shl(fields[0], const(v, a, bits)), fields[1])
    return found if c is None else v.b.or_(v.b.shl(c, const(v, c, 2 * bits)), found)


def _integer_rows() -> list[Form]:
    whole, any_direction = "|".join(ROUND_TO_INTEGER), "|".join(DIRECTIONS)
    rows = []
    for d, s in product(INTEGERS, INTEGERS):
        (least, most), (lower, upper) = bounds(d, WIDTHS[d]), bounds(s, WIDTHS[s])
        sat = ("sat?",) if lower < least or upper > most else ()  # where all values fit there is nothing to saturate
        rows.append(Form("cvt", slots(*sat, d, s), (s,), (d,), integer_to_integer))
    for i, f in product(INTEGERS, FLOATS):
        ftz = ("ftz?",) if f == "f32" else ()
        sat = ("sat?",) if f != "bf16" else ()
        rows.append(Form("cvt", slots(whole, *ftz, *sat, i, f), (f,), (i,), float_to_integer))
        rows.append(Form("cvt", slots(any_direction, *ftz, *sat, f, i), (i,), (f,), integer_to_float))
    return rows


def _float_rows() -> list[Form]:
    whole, any_direction = "|".join(ROUND_TO_INTEGER), "|".join(DIRECTIONS)
    rows = []
    for d, s in product(FLOATS, FLOATS):
        ftz = ("ftz?",) if "f32" in (d, s) else ()
        if d == s:
            rounding: tuple[str, ...] = (f"{whole}?",)
        else:
            # ptxas takes a direction that has nothing to do, and makes .rn of none between formats of 16 bits
            optional = (f"{any_direction}?",) if s == "bf16" or {d, s} == {"f16", "bf16"} else ()
            rounding = optional if _widens(s, d) or KINDS[d].bits == KINDS[s].bits else (any_direction,)
        sat = ("sat?",) if "bf16" not in (d, s) else ()
        rows.append(Form("cvt", slots(*rounding, *ftz, *sat, d, s), (s,), (d,), float_to_float))
    for d in ("f16", "bf16"):
        for modifiers in (("relu", "satfinite?"), ("satfinite", "relu?")):
            rows.append(Form("cvt", slots("rn|rz", *modifiers, d, "f32"), ("f32",), (d,), float_to_float))
    rows.append(Form("cvt", slots("rna", "satfinite?", "tf32", "f32"), ("f32",), ("tf32",), to_tf32))
    rows.append(Form("cvt", slots("rn|rz", "satfinite?", "relu?", "tf32", "f32"), ("f32",), ("tf32",), to_tf32))
    return rows


def _packed_rows() -> list[Form]:
    two = ("f32", "f32")
    rows = [Form("cvt", slots("rn|rz", *order, d, "f32"), two, (d,), two_to_packed) for d in PACKED for order in ORDERS]
    pair = ("s32", "s32")
    rows.append(Form("cvt", slots("pack", "sat", "u16|s16", "s32"), pair, ("b32",), saturating_pack))
    small = "|".join(t for t, bits in PACK_BITS.items() if bits < 16)
    rows.append(Form("cvt", slots("pack", "sat", small, "s32", "b32"), (*pair, "b32"), ("b32",), saturating_pack))
    return rows


FORMS = (*_integer_rows(), *_float_rows(), *_packed_rows())
