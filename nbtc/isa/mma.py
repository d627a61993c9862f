"""Rows of mma.sync, the dense warp-level products (PTX ISA, "Warp Level Matrix Instructions: mma")."""

from __future__ import annotations

from collections.abc import Iterator

from nbtc.formats.table import Format
from nbtc.isa import build
from nbtc.isa.build import FLOATS_8_TO_4, FP8, LAYOUT_PAIRS, fragment_a, fragment_b, fragment_c, later, vector
from nbtc.isa.layouts import QUAD_PAIR
from nbtc.isa.spec import Operand, Row, named

# shape, formats of A and B (every pair of them), formats of C and D (equal), first target
DENSE = (
    ("m16n8k8", "f16", "f16 f32", "sm_75"),
    ("m16n8k16", "f16", "f16 f32", "sm_80"),
    ("m16n8k8", "bf16", "f32", "sm_80"),
    ("m16n8k16", "bf16", "f32", "sm_80"),
    ("m16n8k4", "tf32", "f32", "sm_80"),
    ("m16n8k8", "tf32", "f32", "sm_80"),
    ("m8n8k4", "f64", "f64", "sm_80"),
    ("m16n8k4", "f64", "f64", "sm_90"),
    ("m16n8k8", "f64", "f64", "sm_90"),
    ("m16n8k16", "f64", "f64", "sm_90"),
    ("m8n8k16", "s8 u8", "s32", "sm_75"),
    ("m16n8k16", "s8 u8", "s32", "sm_80"),
    ("m16n8k32", "s8 u8", "s32", "sm_80"),
    ("m8n8k32", "s4 u4", "s32", "sm_75"),
    ("m16n8k32", "s4 u4", "s32", "sm_80"),
    ("m16n8k64", "s4 u4", "s32", "sm_80"),
    ("m8n8k128", "b1", "s32", "sm_75"),
    ("m16n8k128", "b1", "s32", "sm_80"),
    ("m16n8k256", "b1", "s32", "sm_80"),
    ("m16n8k16", FP8, "f16 f32", "sm_89"),
    ("m16n8k32", FP8, "f16 f32", "sm_89"),
)

# shape, kind, block scaling, formats, accumulators, format of the scales and how many a row or column has.  mxf4nvf4
# with 4X and ue8m0 scales is of a later PTX version (9.1) than the assembler this table was checked with.
SCALED = (
    ("m16n8k32", "f8f6f4", "", FLOATS_8_TO_4, "f16 f32", "", 0),
    ("m16n8k32", "mxf8f6f4", ".block_scale", FLOATS_8_TO_4, "f32", "ue8m0", 1),
    ("m16n8k32", "mxf8f6f4", ".block_scale.scale_vec::1X", FLOATS_8_TO_4, "f32", "ue8m0", 1),
    ("m16n8k64", "mxf4", ".block_scale", "e2m1", "f32", "ue8m0", 2),
    ("m16n8k64", "mxf4", ".block_scale.scale_vec::2X", "e2m1", "f32", "ue8m0", 2),
    ("m16n8k64", "mxf4nvf4", ".block_scale.scale_vec::2X", "e2m1", "f32", "ue8m0", 2),
    ("m16n8k64", "mxf4nvf4", ".block_scale.scale_vec::4X", "e2m1", "f32", "ue4m3", 4),
)
NEWER = ("m16n8k64", "mxf4nvf4", ".block_scale.scale_vec::4X", "e2m1", "f32", "ue8m0", 4)
# whose arithmetic a kind has: the plain fused sum, the one with a scale a row and column, the one of scaled groups
UNITS = {"f8f6f4": "mma", "mxf8f6f4": "scaled", "mxf4": "grouped", "mxf4nvf4": "grouped"}

# D and C of f16 m8n8k4: f16 from f32 does not exist
QUAD_ACC = (("f16", "f16"), ("f32", "f16"), ("f32", "f32"))

# an operand list's tail: scale registers, each with {byte, thread} immediates
SCALES = " sa {byteA,threadA} sb {byteB,threadB}"


def rows() -> Iterator[Row]:
    """All rows of the family, in the order of the tables."""
    for a_layout, b_layout in LAYOUT_PAIRS:
        for d, c in QUAD_ACC:
            yield _quad(a_layout, b_layout, d, c)
    for text, names, accumulators, target in DENSE:
        for a, b in build.pairs(names):
            for acc in accumulators.split():
                yield from dense(text, a, b, named(acc), target)
    for text, kind, size, names, accumulators, scale, chunks in (*SCALED, NEWER):
        for a, b in build.pairs(names):
            for acc in accumulators.split():
                version = "9.1" if (kind, size, scale) == (NEWER[1], NEWER[2], NEWER[5]) else ""
                yield _scaled(text, (kind, size), a, b, named(acc), scale, chunks, version)


def dense(text: str, a: Format, b: Format, acc: Format, target: str) -> Iterator[Row]:
    """The forms of one shape and one choice of formats: with and without saturation, rounding or bit operation."""
    m, n, k = build.shape(text)
    oa, ob, oc = fragment_a(a, m, k), fragment_b(b, k, n), fragment_c(acc, m, n)
    head, types = f"mma.sync.aligned.{text}.row.col", f".{acc}.{a}.{b}.{acc}"
    syntax = (operands(oa, ob, oc),)

    def row(before: str = "", after: str = "", since: str = target, **more: object) -> Row:
        return Row(
            head + before + types + after, "mma", since, (m, n, k), oa, ob, oc, oc, unit="mma",
            a_layout="row", b_layout="col", syntax=syntax, **more,  # type: ignore[arg-type]
        )  # fmt: skip

    if a.kind == "bit":
        yield row(after=".xor.popc", op="xor")
        yield row(after=".and.popc", op="and", since=later(target, "sm_80"))
        return
    yield row()
    if a.kind == "int":
        yield row(".satfinite", saturate=True)
    if a.bits == 64:
        for rounding in ("rn", "rz", "rm", "rp"):
            yield row(after=f".{rounding}", rounding=rounding)


def operands(a: Operand, b: Operand, c: Operand, d: Operand | None = None) -> str:
    """The operand list d, a, b, c (D is like C unless given)."""
    return f"{vector('d', d or c)} {vector('a', a)} {vector('b', b)} {vector('c', c)}"


def _quad(a_layout: str, b_layout: str, d: str, c: str) -> Row:
    f16 = named("f16")
    oa = Operand(f16, 8, 4, 2, 4, QUAD_PAIR[f"a {a_layout}"])
    ob = Operand(f16, 4, 8, 2, 4, QUAD_PAIR[f"b {b_layout}"])
    oc, od = (Operand(named(t), 8, 8, 4 if t == "f16" else 8, 8, QUAD_PAIR[f"c {t}"]) for t in (c, d))
    return Row(
        f"mma.sync.aligned.m8n8k4.{a_layout}.{b_layout}.{d}.f16.f16.{c}", "mma", "sm_70", (8, 8, 4), oa, ob, oc, od,
        unit="quad", a_layout=a_layout, b_layout=b_layout,
        syntax=(operands(oa, ob, oc, od),),
    )  # fmt: skip


def _scaled(
    text: str, way: tuple[str, str], a: Format, b: Format, acc: Format, scale: str, chunks: int, version: str
) -> Row:
    kind, size = way
    m, n, k = build.shape(text)
    oa, ob, oc = fragment_a(a, m, k, kind), fragment_b(b, k, n, kind), fragment_c(acc, m, n)
    plain_fp8 = not scale and a.bits == b.bits == 8
    return Row(
        f"mma.sync.aligned.{text}.row.col.kind::{kind}{size}.{acc}.{a}.{b}.{acc}" + (f".{scale}" if scale else ""),
        "mma", "sm_100a" if plain_fp8 else "sm_120a", (m, n, k), oa, ob, oc, oc,
        unit=UNITS[kind], a_layout="row", b_layout="col", kind=kind, scale=scale, chunks=chunks, version=version,
        syntax=(operands(oa, ob, oc) + (SCALES if scale else ""),),
    )  # fmt: skip
