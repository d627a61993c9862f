"""Rows of wmma.load, wmma.mma and wmma.store, and their fragments (PTX ISA, "wmma"; CUDA C++ Programming Guide, "Warp
Matrix Functions").

NVIDIA leaves the layout of these fragments open.  Those of sm_80 to sm_121 are recorded; sm_75 differs in one
accumulator; on sm_70 and sm_72 only that of f16 m16n16k16 is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from nbtc.errors import OptionError, shown
from nbtc.formats.table import Format
from nbtc.isa import build
from nbtc.isa.build import LAYOUT_PAIRS, later, vector
from nbtc.isa.layouts import VOLTA, Layout, a_layout, b_layout, c_layout
from nbtc.isa.mma import operands
from nbtc.isa.spec import Operand, Row, Variant, named

TILES_16 = "m16n16k16 m8n32k16 m32n8k16"
ROW_COL = (("row", "col"),)

# shapes, formats (A and B equal), accumulators (C and D independent where two are given), (A, B) layouts, first target
FORMS = (
    (TILES_16, "f16", "f16 f32", LAYOUT_PAIRS, "sm_70"),
    (TILES_16, "s8 u8", "s32", LAYOUT_PAIRS, "sm_72"),
    (TILES_16, "bf16", "f32", LAYOUT_PAIRS, "sm_80"),
    ("m16n16k8", "tf32", "f32", LAYOUT_PAIRS, "sm_80"),
    ("m8n8k4", "f64", "f64", LAYOUT_PAIRS, "sm_80"),
    ("m8n8k32", "s4 u4", "s32", ROW_COL, "sm_75"),
    ("m8n8k128", "b1", "s32", ROW_COL, "sm_75"),
)
NAMES = {"a": "matrix_a", "b": "matrix_b", "c": "accumulator"}
VOLTA_NUMBERS, TURING_NUMBERS = (70, 74), (75, 79)


@cache
def fragment(use: str, shape: tuple[int, int, int], fmt: Format, layout: str = "row") -> Operand:
    """The fragment "a", "b" or "c" (C and D alike) of a tile (m, n, k).

    layout: memory layout it is loaded from; it changes the fragment on sm_70 alone.  f16 multiplicands always have 16
    elements, the last ones copies where the tile needs fewer.  Raises OptionError for a combination there is not.
    """
    if (use, shape, fmt.name, layout) not in _uses():
        raise OptionError(_no_fragment(use, shape, fmt, layout))
    m, n, k = shape
    rows, cols = {"a": (m, k), "b": (k, n), "c": (m, n)}[use]
    unique = rows * cols // 32
    elements = 16 if use != "c" and fmt.name == "f16" else unique
    return Operand(
        fmt, rows, cols, build.registers(elements, fmt.bits), elements, _ampere(use, shape, fmt).repeated(elements),
        variants=_variants(use, shape, fmt, layout),
    )  # fmt: skip


def _ampere(use: str, shape: tuple[int, int, int], fmt: Format) -> Layout:
    """sm_75 and later: the mma formula; a tile of 8x32 is a 32x8 one transposed."""
    m, n, k = shape
    if use == "a":
        return a_layout(m, k, fmt.per_word)
    if use == "b":
        return a_layout(n, k, fmt.per_word).transposed if n == 32 else b_layout(k, n, fmt.per_word)
    return c_layout(n, m).transposed if n == 32 else c_layout(m, n)


def _variants(use: str, shape: tuple[int, int, int], fmt: Format, layout: str) -> tuple[Variant, ...]:
    found = []
    volta = VOLTA.get(f"c {fmt.name}" if use == "c" else f"{use} {layout}") if shape == (16, 16, 16) else None
    if use != "c" and fmt.name != "f16":
        volta = None
    if fmt.name in ("f16", "f32", "s8", "u8", "s32"):
        found.append(Variant(*VOLTA_NUMBERS, volta))
    if use == "c" and fmt.name == "s32" and shape == (8, 32, 16):
        found.append(Variant(*TURING_NUMBERS, c_layout(8, 32)))
    return tuple(found)


@cache
def _uses() -> frozenset[tuple[str, tuple[int, int, int], str, str]]:
    """(use, shape, format, layout) of every fragment there is."""
    return frozenset((use, build.shape(text), fmt.name, layout) for use, layout, text, fmt, _ in _memory_forms())


def _no_fragment(use: str, shape: tuple[int, int, int], fmt: Format, layout: str) -> str:
    """Why a fragment does not exist: its layout, its format or its shape."""
    name, of = NAMES.get(use, f"fragment {use!r}"), "m{}n{}k{}".format(*map(shown, shape))
    layouts = sorted(la for u, s, f, la in _uses() if (u, s, f) == (use, shape, fmt.name))
    formats = sorted({f for u, s, f, _ in _uses() if (u, s) == (use, shape)})
    shapes = sorted({s for u, s, f, _ in _uses() if (u, f) == (use, fmt.name)})
    if layouts:
        return (
            f"{name} of {of} with {fmt.name} elements is {layouts[0]}_major only, as all elements below a byte are "
            f"(A by rows, B by columns), not {layout}_major: pass wmma.{layouts[0]}_major"
        )
    near = [f"there it is of {', '.join(formats)}"] if formats else []
    known = ", ".join("m{}n{}k{}".format(*s) for s in shapes)
    near.append(f"{fmt.name} is in {known}" if shapes else f"{name} is never {fmt.name}")
    return f"there is no {name} fragment of shape {of} with {fmt.name} elements: {'; '.join(near)}"


def loads() -> Iterator[Row]:
    """Rows of wmma.load.{a,b,c}."""
    for use, layout, text, fmt, target in _memory_forms():
        operand = fragment(use, build.shape(text), fmt, layout)
        yield Row(
            f"wmma.load.{use}.sync.aligned.{layout}.{text}.{fmt}", "wmma.load", target, build.shape(text),
            unit="wmma", a_layout=layout if use == "a" else "", b_layout=layout if use == "b" else "",
            syntax=(f"{vector('r', operand)} p[] stride~?",), **{use: operand},  # type: ignore[arg-type]
        )  # fmt: skip


def stores() -> Iterator[Row]:
    """Rows of wmma.store.d."""
    for use, layout, text, fmt, target in _memory_forms():
        if use == "c":
            operand = fragment("c", build.shape(text), fmt, layout)
            yield Row(
                f"wmma.store.d.sync.aligned.{layout}.{text}.{fmt}", "wmma.store", target, build.shape(text),
                d=operand, unit="wmma", syntax=(f"p[] {vector('r', operand)} stride~?",),
            )  # fmt: skip


def _memory_forms() -> Iterator[tuple[str, str, str, Format, str]]:
    """(use, layout, shape, format, target) of every load; those of C are the stores of D too."""
    seen = set()
    for texts, names, accumulators, layouts, target in FORMS:
        for text in texts.split():
            multiplicands = [(u, la[u == "b"], text, f) for f in names.split() for u in "ab" for la in layouts]
            both = [("c", la, text, f) for f in accumulators.split() for la in ("row", "col")]
            for form in (*multiplicands, *both):
                if form not in seen:
                    seen.add(form)
                    yield form[0], form[1], text, named(form[3]), target


def products() -> Iterator[Row]:
    """Rows of wmma.mma."""
    for texts, names, accumulators, layouts, target in FORMS:
        for text in texts.split():
            for name in names.split():
                for pair in layouts:
                    for d in accumulators.split():
                        for c in accumulators.split():
                            yield from _product(text, named(name), named(c), named(d), pair, target)


def _product(text: str, fmt: Format, c: Format, d: Format, layouts: tuple[str, str], target: str) -> Iterator[Row]:
    size = build.shape(text)
    oa, ob = fragment("a", size, fmt, layouts[0]), fragment("b", size, fmt, layouts[1])
    oc, od = fragment("c", size, c), fragment("c", size, d)
    # f16 forms name D and C alone
    types = f".{d}.{c}" if fmt.name == "f16" else f".{d}.{fmt}.{fmt}.{c}"
    syntax = (operands(oa, ob, oc, od),)

    def row(head: str = "", before: str = "", after: str = "", since: str = target, **more: object) -> Row:
        la, lb = layouts
        return Row(
            f"wmma.mma{head}.sync.aligned.{la}.{lb}.{text}{before}{types}{after}", "wmma.mma", since, size,
            oa, ob, oc, od, unit="wmma", a_layout=la, b_layout=lb, syntax=syntax, **more,  # type: ignore[arg-type]
        )  # fmt: skip

    if fmt.kind == "bit":
        yield row(".xor.popc", op="xor")
        yield row(".and.popc", op="and", since=later(target, "sm_80"))
        return
    yield row()
    if fmt.kind == "int":
        yield row(after=".satfinite", saturate=True)
    if fmt.bits == 64:
        for rounding in ("rn", "rz", "rm", "rp"):
            yield row(before=f".{rounding}", rounding=rounding)
