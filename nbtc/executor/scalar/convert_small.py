"""Conversions to and from floats of 8 bits and fewer, two in a register (PTX ISA, "cvt").

Where elements lie: fp8 and scales in a byte, fp6 in the lower bits of one, fp4 in a nibble.  No recording backs fp6,
fp4 and scales here: they follow the ISA and what CUDA's headers compute on the CPU.
"""

from __future__ import annotations

from typing import Any

from nbtc.compiler.builder import VectorBuilder
from nbtc.executor.emit.form import WIDTHS, Form, Op, slots
from nbtc.executor.emit.values import const, halves, joined, resize
from nbtc.executor.scalar.float_values import KINDS, PACKED, is_nan, magnitude_bits
from nbtc.executor.scalar.narrow import narrowed, relu, widened
from nbtc.executor.scalar.rounding import DIRECTIONS

SMALL = {f"{name}x2": name for name in ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")}
SINGLE = KINDS["f32"]
HALF_LEAST_NORMAL = SINGLE.least_normal >> 1  # 2**-127, the least scale, as f32 bits
SCALE_NAN, MOST_SCALE = 0xFF, 0xFE
BF16_LEAST, BF16_NAN = 0x0040, 0x7FFF  # as bf16: the least scale, a subnormal; a NaN


def narrow_one(v: VectorBuilder, op: Op, source: str, target: str, x: Any) -> Any:
    """One float rounded to a format, in the direction and with the saturation that the instruction names."""
    found = narrowed(v, source, target, op.among(DIRECTIONS), x, op.has("satfinite"))
    return relu(v, KINDS[target], found) if op.has("relu") else found


def _packed(v: VectorBuilder, op: Op, source: str, words: tuple[Any, Any]) -> Any:
    target = op.types[0]
    half = WIDTHS[target] // 2
    return joined(v, *(resize(v, narrow_one(v, op, source, SMALL[target], x), half) for x in words))


def singles_to_small(v: VectorBuilder, op: Op, a: Any, b: Any) -> Any:
    """Two f32, a in the upper half."""
    return _packed(v, op, "f32", (b, a))


def packed_to_small(v: VectorBuilder, op: Op, a: Any) -> Any:
    """Two packed f16 or bf16."""
    return _packed(v, op, PACKED[op.types[1]], halves(v, a))


def small_to_packed(v: VectorBuilder, op: Op, a: Any) -> Any:
    """Two packed f16 or bf16 of the same values."""
    target, source = PACKED[op.types[0]], SMALL[op.types[1]]
    return joined(v, *(_widen_one(v, op, source, target, x) for x in halves(v, a)))


def _widen_one(v: VectorBuilder, op: Op, source: str, target: str, x: Any) -> Any:
    kind = KINDS[target]
    found = widened(v, source, target, x)
    found = v.b.select(is_nan(v, KINDS[source], x), const(v, found, kind.nan), found)
    return relu(v, kind, found) if op.has("relu") else found


# --- scales: powers of two ------------------------------------------------------------------------------------------
def _scale(v: VectorBuilder, op: Op, x: Any) -> Any:
    """The power of two next to the magnitude of f32 bits: at or below it (.rz), or at or above (.rp)."""
    m = magnitude_bits(v, SINGLE, x)
    field = v.b.lshr(m, const(v, m, SINGLE.fraction))
    if op.has("rp"):
        subnormal = v.b.icmp_unsigned("<", m, const(v, m, SINGLE.least_normal))
        rest = v.b.and_(m, const(v, m, SINGLE.least_normal - 1))
        low = v.b.select(subnormal, const(v, m, HALF_LEAST_NORMAL), const(v, m, 0))
        above = v.b.icmp_unsigned(">", rest, low)
        field = v.umin(v.b.add(field, resize(v, above, 32)), const(v, m, SCALE_NAN))
    if op.has("satfinite"):
        field = v.umin(field, const(v, m, MOST_SCALE))
    return resize(v, v.b.select(is_nan(v, SINGLE, x), const(v, m, SCALE_NAN), field), 8)


def singles_to_scales(v: VectorBuilder, op: Op, a: Any, b: Any) -> Any:
    """Two f32 as scales."""
    return joined(v, _scale(v, op, b), _scale(v, op, a))


def bf16_to_ue8m0(v: VectorBuilder, op: Op, a: Any) -> Any:
    """Two packed bf16 as scales."""
    return joined(v, *(_scale(v, op, widened(v, "bf16", "f32", x)) for x in halves(v, a)))


def ue8m0_to_bf16(v: VectorBuilder, op: Op, a: Any) -> Any:
    """Two scales as packed bf16."""
    return joined(v, *(_bf16_of_scale(v, x) for x in halves(v, a)))


def _bf16_of_scale(v: VectorBuilder, x: Any) -> Any:
    word = resize(v, x, 16)
    found = v.b.shl(word, const(v, word, KINDS["bf16"].fraction))
    found = v.b.select(v.b.icmp_unsigned("==", word, const(v, word, 0)), const(v, word, BF16_LEAST), found)
    nan = v.b.icmp_unsigned("==", word, const(v, word, SCALE_NAN))
    return v.b.select(nan, const(v, word, BF16_NAN), found)


def _rows() -> list[Form]:
    rows = []
    for small in SMALL:
        head = ("rn", "satfinite", "relu?", small)
        rows.append(Form("cvt", slots(*head, "f32"), ("f32", "f32"), (small,), singles_to_small))
        rows += [Form("cvt", slots(*head, p), (p,), (small,), packed_to_small) for p in PACKED]
        rows += [Form("cvt", slots("rn", "relu?", p, small), (small,), (p,), small_to_packed) for p in PACKED]
    scales = ("rz|rp", "satfinite?", "ue8m0x2")
    rows.append(Form("cvt", slots(*scales, "f32"), ("f32", "f32"), ("ue8m0x2",), singles_to_scales))
    rows.append(Form("cvt", slots(*scales, "bf16x2"), ("bf16x2",), ("ue8m0x2",), bf16_to_ue8m0))
    rows.append(Form("cvt", slots("rn", "bf16x2", "ue8m0x2"), ("ue8m0x2",), ("bf16x2",), ue8m0_to_bf16))
    return rows


FORMS = tuple(_rows())
