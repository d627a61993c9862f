"""Pictures of instructions: which lane and register holds which element of each operand, as SVG and as text.

A is on the left, B on top, C and D in the corner between them.  A box is what one register of one lane holds, coloured
by lane; `T5 a2` is lane 5, register a2 (a 32-bit word of the register image; copies are separated by a dot).
"""

from __future__ import annotations

import colorsys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from html import escape

from nbtc.fragments.boxes import Box, Panel, metadata_panel, panel
from nbtc.isa import lines
from nbtc.isa.archs import arch as arch_row
from nbtc.isa.parse import as_row
from nbtc.isa.spec import Row

HEIGHT, MARGIN, GAP = 20.0, 14.0, 34.0  # of a box, around the picture, between operands
CHARACTER, CAPTION = 6.1, 7.2  # width of a letter in a box and in a caption
FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
INK, FAINT = "#16181d", "#5d6470"


def text(instruction: object, arch: object = None) -> str:
    """The picture as plain text: one table an operand, a column for each box.

    instruction: a mnemonic, PTX line, `Instruction` or row.  arch: lay operands out as that architecture does.  Errors
    as `nbtc.instruction`.

    >>> print(text("movmatrix.sync.aligned.m8n8.trans.b16").splitlines()[6])
      0  T0 a0     T1 a0     T2 a0     T3 a0
    """
    row = _row(instruction, arch)
    parts = [_heading(row)]
    for product in range(_products(row)):
        for p in _panels(row, product):
            parts += ["", *_table(p, f" of quad pair {product}" if _products(row) > 1 else "")]
    if row.sparse and row.meta is not None:
        parts += ["", *_table(metadata_panel(row, row.meta), f", selector {row.selectors[0]}")]
    return "\n".join(parts)


def svg(instruction: object, arch: object = None) -> str:
    """The picture as an SVG document; arguments and errors as `text`.

    >>> svg("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32").startswith("<svg")
    True
    """
    row = _row(instruction, arch)
    x, y, shapes = MARGIN, MARGIN + 62, list[str]()
    width = bottom = 0.0
    for product in range(_products(row)):
        if _products(row) > 1:
            shapes.append(_label(x, y + 2, f"product of quad pair {product}", 12, INK, "start", True))
        drawing = _draw(_panels(row, product), x, y + (16 if _products(row) > 1 else 0), _is_product(row))
        shapes += drawing.shapes
        width, bottom = max(width, drawing.right), max(bottom, drawing.bottom)
        x, y = (MARGIN, bottom + GAP) if product % 2 else (drawing.right + 2 * GAP, y)
    if row.sparse and row.meta is not None:
        drawing = _beside([metadata_panel(row, row.meta)], MARGIN, bottom + GAP)
        shapes += drawing.shapes
        width, bottom = max(width, drawing.right), drawing.bottom
    head, *more = _heading(row).split("\n")
    width = max(width, MARGIN + 8.0 * len(head), *(MARGIN + 6.8 * len(h) for h in more)) + MARGIN
    body = [_label(MARGIN, MARGIN + 8, head, 13, INK, "start", True)]
    body += [_label(MARGIN, MARGIN + 26 + 15 * i, h, 11, FAINT, "start") for i, h in enumerate(more)]
    size = f'width="{width:.0f}" height="{bottom + MARGIN:.0f}" viewBox="0 0 {width:.0f} {bottom + MARGIN:.0f}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{FONT}" role="img">'
        f"<title>{escape(row.mnemonic)}</title>"
        f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join([*body, *shapes])}</svg>'
    )


@dataclass(frozen=True)
class Drawing:
    """Shapes of a picture and how far they reach."""

    shapes: list[str]
    right: float
    bottom: float


def _row(instruction: object, arch: object) -> Row:
    row = as_row(instruction)
    return row if arch is None else row.on(arch_row(arch))


def _products(row: Row) -> int:
    return 1 if row.a is None else row.a.products


def _is_product(row: Row) -> bool:
    return row.a is not None and row.b is not None


def _heading(row: Row) -> str:
    size = "m={} n={} k={}, ".format(*row.shape) if row.shape else ""
    where = ", ".join(row.archs[:1]) + (f" to {row.archs[-1]}" if len(row.archs) > 1 else " only")
    holds = "; T5 a2: lane 5, register a2" if any(getattr(row, n) is not None for n in "abcd") else ""
    operands = lines.example(row).partition(" ")[2]
    return f"{row.mnemonic}\n{size}on {where}{holds}" + (f"\noperands {operands}" if operands else "")


def _panels(row: Row, product: int) -> list[Panel]:
    found = []
    for name, letter in (("A", "a"), ("B", "b"), ("C", "c"), ("D", "d")):
        operand = getattr(row, letter)
        if operand is None:
            continue
        if letter in "cd" and _alike(row):
            if letter == "c":
                continue
            name = "C and D"
        if row.sparse and letter == "a":
            name = "A stored"
        found.append(panel(name, letter, operand, product))
    return found


def _alike(row: Row) -> bool:
    """C and D lie in the same places of as many registers: one panel shows both."""
    return row.c is not None and row.d is not None and (row.c.layout, row.c.width) == (row.d.layout, row.d.width)


def _caption(p: Panel) -> str:
    o = p.operand
    if p.letter == "e":
        return f"{p.name}: {o.rows} rows x {o.cols} chunks, a nibble each"
    each = "register" if o.registers == 1 else "registers"
    held = f", {o.registers} {each} a lane" if o.layout is not None else ""
    return f"{p.name}: {o.rows} x {o.cols} {o.format.name}{held}"


def _table(p: Panel, suffix: str) -> list[str]:
    """Text rows of one operand."""
    result = [_caption(p) + suffix]
    if not p.boxes:
        return [*result, f"     {p.note}"]
    starts = sorted({b.col for b in p.boxes})
    cells = {(b.row, b.col): b.label for b in p.boxes}
    width = p.widest_label + 4
    result.append("     " + "".join(f"{c:<{width}}" for c in starts).rstrip())
    for r in sorted({b.row for b in p.boxes}):
        line = "".join(f"{cells.get((r, c), ''):<{width}}" for c in starts)
        result.append(f"{r:>3}  {line}".rstrip())
    return [*result, f"     {p.note}"] if p.note else result


def _draw(panels: list[Panel], x: float, y: float, product: bool) -> Drawing:
    """A left, B top, the rest in the corner and below it; or all panels side by side."""
    if not panels:
        return Drawing([], x, y)
    if not product:
        return _beside(panels, x, y)
    a, b, *corner = panels
    unit_a, unit_n = _unit_width(a), max(_unit_width(p) for p in (b, *corner) if p.boxes)
    unit_k = HEIGHT / b.box_rows
    left = x + 22 + max(a.cols * unit_a, CAPTION * len(_caption(a))) + GAP
    right = left + max(p.cols for p in corner) * unit_n
    top = y + 24 + (b.rows * unit_k if b.boxes else 2 * HEIGHT) + GAP + 8
    shapes = _panel_shapes(a, x + 22, top, unit_a, HEIGHT)
    shapes += _panel_shapes(b, left, y + 24, unit_n, unit_k) if b.boxes else _absent(b, left, y + 24, right - left)
    bottom = top + a.rows * HEIGHT
    for p in corner:
        shapes += _panel_shapes(p, left, top, unit_n, HEIGHT)
        bottom = max(bottom, top + p.rows * HEIGHT)
        top += p.rows * HEIGHT + GAP
    for note in (f"{p.name}: {p.note}" for p in panels if p.note and p.boxes):
        bottom += 18
        shapes.append(_label(x, bottom, note, 11, FAINT, "start"))
        right = max(right, x + CAPTION * len(note))
    return Drawing(shapes, right, bottom)


def _beside(panels: list[Panel], x: float, y: float) -> Drawing:
    shapes: list[str] = []
    bottom = y
    for p in panels:
        unit, height = _unit_width(p), max(HEIGHT / p.box_rows, 8.0)
        shapes += _panel_shapes(p, x + 22, y + 24, unit, height)
        x += 22 + max(p.cols * unit, CAPTION * len(_caption(p))) + GAP
        bottom = max(bottom, y + 24 + p.rows * height)
    return Drawing(shapes, x - GAP, bottom)


def _unit_width(p: Panel) -> float:
    """Width of one element such that every label fits its box."""
    return (p.widest_label * CHARACTER + 8) / p.box_cols


def _absent(p: Panel, x: float, y: float, width: float) -> list[str]:
    """An operand that no lane holds: a plain box that says where it is."""
    where = ["in shared memory,", "through a descriptor"] if width < CAPTION * len(p.note) else [p.note]
    frame = (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{2 * HEIGHT:.1f}" fill="#eef0f4" stroke="#9aa1ad"/>'
    )
    words = [_label(x + 6, y + 17 + 14 * i, w, 10, INK, "start") for i, w in enumerate(where)]
    return [_label(x, y - 18, _caption(p), 11, INK, "start", True), frame, *words]


def _panel_shapes(p: Panel, x: float, y: float, unit: float, height: float) -> list[str]:
    """Boxes, axes and caption of an operand whose first element is at (x, y)."""
    shapes = [_label(x, y - 18, _caption(p), 11, INK, "start", True)]
    for b in p.boxes:
        bx, by, bw, bh = x + b.col * unit, y + b.row * height, b.cols * unit, b.rows * height
        shapes.append(
            f'<g><title>{escape(_tooltip(p, b))}</title><rect x="{bx:.1f}" y="{by:.1f}" '
            f'width="{bw:.1f}" height="{bh:.1f}" fill="{_colour(b.lane % 32)}" stroke="#ffffff" stroke-width="1"/>'
            + _label(bx + bw / 2, by + bh / 2 + 3.5, b.label, 10, INK)
            + "</g>"
        )
        shapes += _ticks(bx, by, bw, bh, b.rows, b.cols)
    shapes += [_label(x + c * unit + 2, y - 4, str(c), 9, FAINT, "start") for c in sorted({b.col for b in p.boxes})]
    shapes += [_label(x - 4, y + r * height + 13, str(r), 9, FAINT, "end") for r in sorted({b.row for b in p.boxes})]
    return shapes


def _ticks(x: float, y: float, width: float, height: float, rows: int, cols: int) -> Iterable[str]:
    """Short marks between the elements of a box."""
    style = 'stroke="#16181d" stroke-opacity="0.35" stroke-width="0.7"'
    for i in range(1, cols if width / cols >= 2 else 0):
        yield f'<path d="M{x + width * i / cols:.1f} {y + height - 3:.1f}v3" {style}/>'
    for i in range(1, rows if height / rows >= 2 else 0):
        yield f'<path d="M{x:.1f} {y + height * i / rows:.1f}h3" {style}/>'


def _tooltip(p: Panel, box: Box) -> str:
    def part(first: int, count: int) -> str:
        return str(first) if count == 1 else f"{first}..{first + count - 1}"

    return f"{p.name}[{part(box.row, box.rows)}, {part(box.col, box.cols)}]: {box.label}"


@cache
def _colour(lane: int) -> str:
    """Hue by group of four lanes, lightness by the lane in it."""
    r, g, b = colorsys.hls_to_rgb((lane >> 2) / 8 + 0.02, (0.90, 0.85, 0.80, 0.75)[lane & 3], 0.62)
    return f"#{round(r * 255):02x}{round(g * 255):02x}{round(b * 255):02x}"


def _label(x: float, y: float, words: str, size: int, fill: str, anchor: str = "middle", bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}"'
    return f"<text {place}{weight}>{escape(words)}</text>"
