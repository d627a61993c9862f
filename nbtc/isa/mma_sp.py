"""Rows of mma.sp.sync: A is 50 % structured sparse (PTX ISA, "mma.sp" and "Sparse matrix storage").

Operand A has k / 2 stored columns; `meta` says which of the k logical columns they are, one nibble a chunk.
"""

from __future__ import annotations

from collections.abc import Iterator

from nbtc.formats.table import Format
from nbtc.isa import build
from nbtc.isa.build import FLOATS_8_TO_4, FP8, fragment_a, fragment_b, fragment_c, metadata
from nbtc.isa.mma import SCALES, operands
from nbtc.isa.spec import Row, named

PLAIN, ORDERED = "mma.sp", "mma.sp::ordered_metadata"

# shape, formats of A and B (every pair), accumulators, legal selectors, first target; both spellings.  (The assembler
# also lets selectors 2 and 3 of f16 m16n8k32 with f32 pass; the ISA calls them undefined.)
SPARSE = (
    ("m16n8k16", "f16", "f16 f32", (0, 1, 2, 3), "sm_80"),
    ("m16n8k32", "f16", "f16 f32", (0, 1), "sm_80"),
    ("m16n8k16", "bf16", "f32", (0, 1, 2, 3), "sm_80"),
    ("m16n8k32", "bf16", "f32", (0, 1), "sm_80"),
    ("m16n8k8", "tf32", "f32", (0, 1, 2, 3), "sm_80"),
    ("m16n8k16", "tf32", "f32", (0, 1), "sm_80"),
    ("m16n8k32", "s8 u8", "s32", (0, 1), "sm_80"),
    ("m16n8k64", "s8 u8", "s32", (0,), "sm_80"),
    ("m16n8k64", "s4 u4", "s32", (0, 1), "sm_80"),
    ("m16n8k128", "s4 u4", "s32", (0,), "sm_80"),
    ("m16n8k64", FP8, "f32", (0,), "sm_89"),
)

# ordered metadata only, selector 0; arithmetic not recorded
SCALED = (
    ("m16n8k64", "", FP8, "f16", ""),
    ("m16n8k64", "kind::f8f6f4", FLOATS_8_TO_4, "f16 f32", ""),
    ("m16n8k64", "kind::mxf8f6f4.block_scale", FLOATS_8_TO_4, "f32", "ue8m0"),
    ("m16n8k64", "kind::mxf8f6f4.block_scale.scale_vec::1X", FLOATS_8_TO_4, "f32", "ue8m0"),
    ("m16n8k128", "kind::mxf4.block_scale", "e2m1", "f32", "ue8m0"),
    ("m16n8k128", "kind::mxf4.block_scale.scale_vec::2X", "e2m1", "f32", "ue8m0"),
    ("m16n8k128", "kind::mxf4nvf4.block_scale.scale_vec::2X", "e2m1", "f32", "ue8m0"),
    ("m16n8k128", "kind::mxf4nvf4.block_scale.scale_vec::4X", "e2m1", "f32", "ue4m3"),
)


def chunk_columns(fmt: Format, kind: str = "") -> int:
    """Logical columns that one metadata nibble describes: 2 for 32-bit, 8 for 4-bit slots, else 4."""
    width, _ = build.slot(fmt, kind)
    return {32: 2, 4: 8}.get(width, 4)


def rows() -> Iterator[Row]:
    """All rows of the family."""
    for head in (PLAIN, ORDERED):
        for text, names, accumulators, selectors, target in SPARSE:
            for a, b in build.pairs(names):
                for acc in accumulators.split():
                    yield _row(head, text, "", a, b, named(acc), "", selectors, target)
                    if a.kind == "int":
                        yield _row(head, text, ".satfinite", a, b, named(acc), "", selectors, target)
    for text, kind, names, accumulators, scale in SCALED:
        for a, b in build.pairs(names):
            for acc in accumulators.split():
                known = kind == "kind::f8f6f4" and a.bits == b.bits == 8 and acc == "f32"
                target = "sm_100a" if known else "sm_120a"
                yield _row(ORDERED, text, f".{kind}" if kind else "", a, b, named(acc), scale, (0,), target, False)


def _row(
    head: str, text: str, modifier: str, a: Format, b: Format, acc: Format, scale: str,
    selectors: tuple[int, ...], target: str, executable: bool = True,
) -> Row:  # fmt: skip
    m, n, k = build.shape(text)
    oa, ob, oc = fragment_a(a, m, k // 2, modifier), fragment_b(b, k, n, modifier), fragment_c(acc, m, n)
    legal = ",".join(str(s) for s in selectors)
    lists = f"{operands(oa, ob, oc)} e selector={legal}"
    return Row(
        f"{head}.sync.aligned.{text}.row.col{modifier}.{acc}.{a}.{b}.{acc}" + (f".{scale}" if scale else ""),
        "mma.sp", target, (m, n, k), oa, ob, oc, oc, metadata(m, k // chunk_columns(a, modifier)),
        unit="mma", a_layout="row", b_layout="col", saturate=modifier == ".satfinite", sparse=True,
        ordered=head == ORDERED, selectors=selectors, executable=executable, scale=scale,
        family_target="kind::mxf4.block" not in modifier and "mxf4nvf4" not in modifier,
        syntax=(lists + (SCALES if scale else ""),),
    )  # fmt: skip
