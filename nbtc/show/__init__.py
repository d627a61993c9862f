"""Pictures of instructions: which lane and register holds which element of each operand, as SVG and as text.

A is on the left, B on top, C and D in the corner between them.  A box is what one register of one lane holds, coloured
by lane; `T5 a2` is lane 5, register a2 (a 32-bit word of the register image).  Where architectures lay fragments out
differently, each range of them has its own picture, the newest first.  Below are a sparse form's metadata and the
scale registers of a block-scaled one (those of byte 0 and thread 0).
"""

from __future__ import annotations

from html import escape
from typing import NamedTuple

from nbtc.fragments import sparse
from nbtc.fragments.boxes import DrawnOperand, metadata_panel, panel, scale_panel
from nbtc.fragments.svg_text import FAINT, FONT, INK, label
from nbtc.isa import lines
from nbtc.isa.archs import arch as arch_row
from nbtc.isa.parse import as_row, immediate
from nbtc.isa.spec import Row
from nbtc.show.picture import GAP, MARGIN, Drawing, caption, draw, side_by_side

ADDRESSES = ("ldmatrix", "stmatrix")  # each memory row has the address that one lane gives


class View(NamedTuple):
    """A row as some architectures have it; row None: nobody knows how they lay it out."""

    archs: tuple[str, ...]
    row: Row | None

    @property
    def where(self) -> str:
        """Names of the architectures."""
        if not self.archs:
            return "no architecture"
        return self.archs[0] + (f" to {self.archs[-1]}" if len(self.archs) > 1 else " only")


def text(instruction: object, arch: object = None, selector: object = None) -> str:
    """The picture as plain text: one table an operand, a column for each box.

    instruction: a mnemonic, PTX line, `Instruction` or row.  arch: only as that architecture lays operands out.
    selector: of sparse forms, whose metadata lanes to draw (default: the line's, else the first legal one).  Errors as
    `nbtc.instruction`, and MetadataError for a selector that is not legal.

    >>> print(text("movmatrix.sync.aligned.m8n8.trans.b16").splitlines()[6])
      0  T0 a0     T1 a0     T2 a0     T3 a0
    """
    row, chosen = as_row(instruction), _selector(instruction, selector)
    parts = [row.mnemonic]
    for view in _views(row, arch):
        parts += [*([""] if len(parts) > 1 else []), *_text_of(view, chosen)]
    return "\n".join(parts)


def svg(instruction: object, arch: object = None, selector: object = None) -> str:
    """The picture as an SVG document; arguments and errors as `text`.

    >>> svg("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32").startswith("<svg")
    True
    """
    row, chosen = as_row(instruction), _selector(instruction, selector)
    shapes, width, y = (
        [label(MARGIN, MARGIN + 8, row.mnemonic, 13, INK, "start", True)],
        8.0 * len(row.mnemonic),
        MARGIN,
    )
    for view in _views(row, arch):
        heads = _heading(view)
        shapes += [label(MARGIN, y + 26 + 15 * i, h, 11, FAINT, "start") for i, h in enumerate(heads)]
        y += 32 + 15 * len(heads)
        drawing = _picture(view.row, chosen, y) if view.row is not None else Drawing([], 0, y)
        shapes += drawing.shapes
        width, y = max(width, drawing.right, *(MARGIN + 6.8 * len(h) for h in heads)), drawing.bottom + GAP
    width, height = width + 2 * MARGIN, y - GAP + MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="{FONT}" role="img">'
        f"<title>{escape(row.mnemonic)}</title>"
        f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join(shapes)}</svg>'
    )


def _views(row: Row, arch: object) -> list[View]:
    if arch is not None:
        return [View((arch_row(arch).name,), row.on(arch_row(arch)))]
    return [View(*r) for r in row.ranges] or [View((), row)]


def _selector(instruction: object, given: object) -> int | None:
    """The selector to draw; None for dense forms."""
    row = as_row(instruction)
    if not row.sparse or row.meta is None:
        return None
    found = immediate(instruction, "selector", given, row.selectors[0])
    sparse.check_selector(row, found)
    return int(found)


def _text_of(view: View, selector: int | None) -> list[str]:
    row, result = view.row, _heading(view)
    if row is None:
        return result
    for product in range(_products(row)):
        for p in _panels(row, product):
            result += ["", *_table(p, f" of quad pair {product}" if _products(row) > 1 else "")]
    for p in _beside_products(row, selector):
        result += ["", *_table(p, "")]
    return result


def _picture(row: Row, selector: int | None, top: float) -> Drawing:
    """All operands of a row, below `top`."""
    x, y, shapes = MARGIN, top, list[str]()
    width, bottom = 0.0, top
    for product in range(_products(row)):
        if _products(row) > 1:
            shapes.append(label(x, y + 2, f"product of quad pair {product}", 12, INK, "start", True))
        drawing = draw(_panels(row, product), x, y + (16 if _products(row) > 1 else 0), _is_product(row))
        shapes += drawing.shapes
        width, bottom = max(width, drawing.right), max(bottom, drawing.bottom)
        x, y = (MARGIN, bottom + GAP) if product % 2 else (drawing.right + 2 * GAP, y)
    further = _beside_products(row, selector)
    if further:
        drawing = side_by_side(further, MARGIN, bottom + GAP)
        shapes += drawing.shapes
        width, bottom = max(width, drawing.right), drawing.bottom
    return Drawing(shapes, width, bottom)


def _beside_products(row: Row, selector: int | None) -> list[DrawnOperand]:
    """What a product reads beside its matrices: metadata of a sparse form, block scales that lanes hold."""
    found = [metadata_panel(row, row.meta, selector)] if selector is not None and row.meta is not None else []
    if row.chunks and row.a is not None and row.a.layout is not None:
        found += [scale_panel(row, side) for side in "ab"]
    return found


def _products(row: Row) -> int:
    return 1 if row.a is None else row.a.products


def _is_product(row: Row) -> bool:
    return row.a is not None and row.b is not None


def _heading(view: View) -> list[str]:
    """Where the form exists, what the labels mean, its operands in a line."""
    row = view.row
    if row is None:
        return [f"on {view.where}: exists, but nobody has published how its fragments lie in registers"]
    size = "m={} n={} k={}, ".format(*row.shape) if row.shape else ""
    held = any(getattr(row, n) is not None for n in "abcd")
    if not held and not row.executable:
        return [
            f"on {view.where}; only a name: nbtc reads and lists it, but knows neither its registers nor arithmetic"
        ]
    found = [f"{size}on {view.where}" + ("; T5 a2: lane 5, register a2" if held else "")]
    operands = lines.example(row).partition(" ")[2]
    found += [f"operands {operands}"] if operands else []
    return found + _legend(row)


def _legend(row: Row) -> list[str]:
    """What the labels of this row mean beyond lane and register."""
    found = []
    boxes = [b for p in _panels(row, 0) for b in p.boxes]
    several = next((b for b in boxes if "·" in b.registers), None)
    if several is not None:
        lane, registers = several.lanes.split("+")[0], several.registers
        found.append(f"{registers}: each of these registers of {lane} holds a copy of the same elements")
    shared = next((b for b in boxes if "+" in b.lanes), None)
    if shared is not None:
        found.append(f"{shared.lanes}: each of these lanes holds a copy")
    if row.family in ADDRESSES:
        found.append("row 3 @T3: lane 3 gives the shared-memory address of row 3")
    return found


def _panels(row: Row, product: int) -> list[DrawnOperand]:
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
        found.append(panel(name, letter, operand, product, addressed=row.family in ADDRESSES))
    return found


def _alike(row: Row) -> bool:
    """C and D lie in the same places of as many registers: one panel shows both."""
    return row.c is not None and row.d is not None and (row.c.layout, row.c.width) == (row.d.layout, row.d.width)


def _table(p: DrawnOperand, suffix: str) -> list[str]:
    """Text rows of one operand."""
    result = [caption(p) + suffix]
    if not p.boxes:
        return [*result, f"     {p.note}"]
    starts = sorted({b.col for b in p.boxes})
    cells = {(b.row, b.col): b.label for b in p.boxes}
    names = {r: p.row_name(r) for r in sorted({b.row for b in p.boxes})}
    width, margin = p.widest_label + 4, max(3, *map(len, names.values()))
    result.append(" " * (margin + 2) + "".join(f"{c:<{width}}" for c in starts).rstrip())
    for r, name in names.items():
        line = "".join(f"{cells.get((r, c), ''):<{width}}" for c in starts)
        result.append(f"{name:>{margin}}  {line}".rstrip())
    return [*result, f"     {p.note}"] if p.note else result
