"""The SVG of operands: boxes coloured by lane, A left, B on top, C and D in the corner."""

from __future__ import annotations

import colorsys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from html import escape

from nbtc.fragments.boxes import Box, DrawnOperand
from nbtc.fragments.svg_text import FAINT, INK, label

HEIGHT, MARGIN, GAP = 20.0, 14.0, 34.0  # of a box, around the picture, between operands
CHARACTER, CAPTION = 6.1, 7.2  # width of a letter in a box and in a caption


@dataclass(frozen=True)
class Drawing:
    """Shapes of a picture and how far they reach."""

    shapes: list[str]
    right: float
    bottom: float


def caption(p: DrawnOperand) -> str:
    """What stands above an operand."""
    o = p.operand
    if p.letter == "e":
        return f"{p.name}: {o.rows} rows x {o.cols} chunks, a nibble each"
    if p.letter == "s":
        return f"{p.name}: {o.rows} x {o.cols} {o.format.name}"
    each = "register" if o.registers == 1 else "registers"
    held = f", {o.registers} {each} a lane" if o.layout is not None else ""
    return f"{p.name}: {o.rows} x {o.cols} {o.format.name}{held}"


def draw(panels: list[DrawnOperand], x: float, y: float, product: bool) -> Drawing:
    """A left, B top, the rest in the corner and below it; or all panels side by side."""
    if not panels:
        return Drawing([], x, y)
    if not product:
        return side_by_side(panels, x, y)
    a, b, *corner = panels
    unit_a, unit_n = _unit_width(a), max(_unit_width(p) for p in (b, *corner) if p.boxes)
    unit_k = HEIGHT / b.box_rows
    left = x + 22 + max(a.cols * unit_a, CAPTION * len(caption(a))) + GAP
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
        shapes.append(label(x, bottom, note, 11, FAINT, "start"))
        right = max(right, x + CAPTION * len(note))
    return Drawing(shapes, right, bottom)


def side_by_side(panels: list[DrawnOperand], x: float, y: float) -> Drawing:
    """Panels side by side."""
    shapes: list[str] = []
    bottom = y
    for p in panels:
        unit, height = _unit_width(p), max(HEIGHT / p.box_rows, 8.0)
        margin = 8 + CHARACTER * max(len(p.row_name(b.row)) for b in p.boxes)
        shapes += _panel_shapes(p, x + margin, y + 24, unit, height)
        x += margin + max(p.cols * unit, CAPTION * len(caption(p))) + GAP
        bottom = max(bottom, y + 24 + p.rows * height)
    return Drawing(shapes, x - GAP, bottom)


def _unit_width(p: DrawnOperand) -> float:
    """Width of one element such that every label fits its box."""
    return (p.widest_label * CHARACTER + 8) / p.box_cols


def _absent(p: DrawnOperand, x: float, y: float, width: float) -> list[str]:
    """An operand that no lane holds: a plain box that says where it is."""
    where = ["in shared memory,", "through a descriptor"] if width < CAPTION * len(p.note) else [p.note]
    frame = (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{2 * HEIGHT:.1f}" fill="#eef0f4" stroke="#9aa1ad"/>'
    )
    words = [label(x + 6, y + 17 + 14 * i, w, 10, INK, "start") for i, w in enumerate(where)]
    return [label(x, y - 18, caption(p), 11, INK, "start", True), frame, *words]


def _panel_shapes(p: DrawnOperand, x: float, y: float, unit: float, height: float) -> list[str]:
    """Boxes, axes and caption of an operand whose first element is at (x, y)."""
    shapes = [label(x, y - 18, caption(p), 11, INK, "start", True)]
    for b in p.boxes:
        bx, by, bw, bh = x + b.col * unit, y + b.row * height, b.cols * unit, b.rows * height
        shapes.append(
            f'<g><title>{escape(_tooltip(p, b))}</title><rect x="{bx:.1f}" y="{by:.1f}" '
            f'width="{bw:.1f}" height="{bh:.1f}" fill="{_colour(b.lane % 32)}" stroke="#ffffff" stroke-width="1"/>'
            + label(bx + bw / 2, by + bh / 2 + 3.5, b.label, 10, INK)
            + "</g>"
        )
        shapes += _ticks(bx, by, bw, bh, b.rows, b.cols)
    shapes += [label(x + c * unit + 2, y - 4, str(c), 9, FAINT, "start") for c in sorted({b.col for b in p.boxes})]
    rows = sorted({b.row for b in p.boxes})
    shapes += [label(x - 4, y + r * height + 13, p.row_name(r), 9, FAINT, "end") for r in rows]
    return shapes


def _ticks(x: float, y: float, width: float, height: float, rows: int, cols: int) -> Iterable[str]:
    """Short marks between the elements of a box."""
    style = 'stroke="#16181d" stroke-opacity="0.35" stroke-width="0.7"'
    for i in range(1, cols if width / cols >= 2 else 0):
        yield f'<path d="M{x + width * i / cols:.1f} {y + height - 3:.1f}v3" {style}/>'
    for i in range(1, rows if height / rows >= 2 else 0):
        yield f'<path d="M{x:.1f} {y + height * i / rows:.1f}h3" {style}/>'


def _tooltip(p: DrawnOperand, box: Box) -> str:
    def part(first: int, count: int) -> str:
        return str(first) if count == 1 else f"{first}..{first + count - 1}"

    return f"{p.name}[{part(box.row, box.rows)}, {part(box.col, box.cols)}]: {box.label}"


@cache
def _colour(lane: int) -> str:
    """Hue by group of four lanes, lightness by the lane in it."""
    r, g, b = colorsys.hls_to_rgb((lane >> 2) / 8 + 0.02, (0.90, 0.85, 0.80, 0.75)[lane & 3], 0.62)
    return f"#{round(r * 255):02x}{round(g * 255):02x}{round(b * 255):02x}"
