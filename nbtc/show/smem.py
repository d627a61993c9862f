"""Drawings of a wgmma tile in shared memory: which core matrices lie in which banks, as SVG and as text."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import numpy as np

from nbtc.formats.table import Format
from nbtc.fragments.smem_descriptors import CORE, UNIT, Descriptor, operand_format, tile_shape

LINES = 72  # memory lines and tile rows drawn before the rest is only counted
CELL = 15  # height of a cell in pixels
LANE = 112  # width of a stride's arrow and label
FONT = "font-family='DejaVu Sans Mono,Menlo,Consolas,monospace'"


@dataclass(frozen=True)
class Unit:
    """16 bytes of the tile: first element, extent, core matrix and address."""

    mn: int
    k: int
    core: tuple[int, int]
    address: int


@dataclass(frozen=True)
class SmemDrawing:
    """What `Descriptor.explain` returns: `str()` is the text form, notebooks show the SVG.

    fields: (name, bytes, 16-byte units) of each field.  layout: the tile as a CuTe layout, strides in elements.  notes:
    what is ignored, overlaps or looks wrong.  svg(): the drawing as SVG text.
    """

    descriptor: Descriptor
    shape: tuple[int, int]
    format: Format
    major: str
    layout: str
    notes: tuple[str, ...]

    @property
    def fields(self) -> tuple[tuple[str, int, int], ...]:
        """(name, bytes, 16-byte units) of start, LBO and SBO."""
        d = self.descriptor
        named = (("start", d.start), ("LBO", d.leading), ("SBO", d.stride))
        return tuple((n, v, v // UNIT) for n, v in named)

    def __str__(self) -> str:
        return _text(self)

    __repr__ = __str__

    def svg(self) -> str:
        """The drawing as an SVG document."""
        return _svg(self)

    _repr_svg_ = svg


def explain(descriptor: Descriptor, shape: tuple[int, int], format: object, major: str = "k") -> SmemDrawing:
    """The drawing of the tile (MN, K) that a descriptor names; errors as `Descriptor.address`."""
    fmt = operand_format(format, major)
    tile = tile_shape(shape)
    layout = cute_layout(descriptor, tile, fmt, major)
    return SmemDrawing(descriptor, tile, fmt, major, layout, descriptor.notes(tile, fmt, major))


def cute_layout(d: Descriptor, shape: tuple[int, int], fmt: Format, major: str) -> str:
    """The tile as a CuTe layout (MN, K) -> element offset; the swizzle functor is the one on byte addresses.

    >>> from nbtc.formats.table import f16
    >>> cute_layout(Descriptor(0, 16, 1024, swizzle="128B"), (64, 16), f16, "k")
    'Swizzle<3,4,3> on bytes o ((8,8),(8,2)):((64,512),(1,8))'
    """
    t, w = 128 // fmt.bits, d.mode.units
    rows, cols = shape
    leading, stride = d.leading * 8 // fmt.bits, d.stride * 8 // fmt.bits
    if major == "k":
        if w > 1 and cols > t * w:
            across, along = f"{t},{w},{-(-cols // (t * w))}", f"1,{t},{leading}"
        else:
            across, along = f"{t},{-(-cols // t)}", f"1,{t if w > 1 else leading}"
        text = f"((8,{-(-rows // 8)}),({across})):(({w * t},{stride}),({along}))"
    else:
        outer, inner = (leading, stride) if w > 1 else (stride, leading)
        text = f"(({t},{w},{-(-rows // (t * w))}),(8,{-(-cols // 8)})):((1,{t},{outer}),({w * t},{inner}))"
    return text if w == 1 else f"Swizzle<{d.mode.log2},4,3> on bytes o {text}"


def units(drawing: SmemDrawing) -> list[list[Unit]]:
    """The tile as a grid of 16-byte units, MN down and K across."""
    t, (rows, cols) = 128 // drawing.format.bits, drawing.shape
    down, across = (1, t) if drawing.major == "k" else (t, 1)
    mn, k = np.arange(0, rows, down), np.arange(0, cols, across)
    at = drawing.descriptor.unit_addresses(rows, cols, drawing.format, drawing.major)
    core = (8, t) if drawing.major == "k" else (t, 8)
    return [
        [Unit(int(m), int(c), (int(m) // core[0], int(c) // core[1]), int(at[i, j])) for j, c in enumerate(k)]
        for i, m in enumerate(mn)
    ]


def _lines(grid: list[list[Unit]]) -> dict[int, list[list[Unit]]]:
    """Memory lines of 128 bytes (all 32 banks): eight lists of the units that lie there."""
    out: dict[int, list[list[Unit]]] = {}
    for row in grid:
        for u in row:
            out.setdefault(u.address // CORE, [[] for _ in range(8)])[u.address % CORE // UNIT].append(u)
    return dict(sorted(out.items()))


def _name(drawing: SmemDrawing, cell: list[Unit]) -> str:
    if not cell:
        return "."
    u, t = cell[0], 128 // drawing.format.bits
    text = f"{u.mn}:k{u.k}-{u.k + t - 1}" if drawing.major == "k" else f"{u.mn}-{u.mn + t - 1}:k{u.k}"
    return f"{text} x{len(cell)}!" if len(cell) > 1 else text


def _title(drawing: SmemDrawing) -> str:
    rows, cols = drawing.shape
    d = drawing.descriptor
    kind = f"{drawing.format.name}, {drawing.major.upper()}-major"
    return f"{rows} x {cols} {kind}, swizzle {d.swizzle}, 0x{d.encode():016x}"


def _strides(drawing: SmemDrawing) -> list[tuple[str, int, str]]:
    """(name, bytes, meaning) of the two strides as this mode reads them; bytes 0 when the field is not read."""
    d, t, w = drawing.descriptor, 128 // drawing.format.bits, drawing.descriptor.mode.units
    rows, cols = drawing.shape
    if drawing.major == "k":
        read = cols > t * w
        return [
            ("LBO", d.leading if read else 0, f"next {t * w} elements of K" if read else "not read"),
            ("SBO", d.stride if rows > 8 else 0, "next 8 rows of MN"),
        ]
    if w == 1:
        return [
            ("LBO", d.leading if cols > 8 else 0, "next 8 of K"),
            ("SBO", d.stride if rows > t else 0, f"next {t} of MN"),
        ]
    return [
        ("LBO", d.leading if rows > t * w else 0, f"next {t * w} of MN"),
        ("SBO", d.stride if cols > 8 else 0, "next 8 of K"),
    ]


def _text(drawing: SmemDrawing) -> str:
    d = drawing.descriptor
    out = [_title(drawing), f"CuTe (elements): {drawing.layout}", "", f"{'field':<12}{'bytes':>8}{'16-byte units':>15}"]
    meaning = {n: m for n, _, m in _strides(drawing)}
    out += [f"{n:<12}{v:>8}{u:>15}  {meaning.get(n, '')}".rstrip() for n, v, u in drawing.fields]
    out += [f"{'base offset':<12}{d.base_offset:>8}", ""]
    lines = _lines(units(drawing))
    head = [f"{4 * i}-{4 * i + 3}" for i in range(8)]
    cells = {n: [_name(drawing, c) for c in row] for n, row in list(lines.items())[:LINES]}
    width = max(len(c) for row in [head, *cells.values()] for c in row) + 2
    out.append("   byte  bank " + "".join(f"{h:<{width}}" for h in head).rstrip())
    before = None
    for n, row in cells.items():
        if before is not None and n != before + 1:
            out.append(f"{'...':>7}       {n - before - 1} lines without elements")
        elif before is not None and n * CORE % max(CORE, d.mode.pattern_bytes) == 0 and d.mode.units > 1:
            out.append(f"{'':>7}       {'-' * (8 * width - 2)}")
        out.append(f"{n * CORE:>7}       " + "".join(f"{c:<{width}}" for c in row).rstrip())
        before = n
    if len(lines) > LINES:
        out.append(f"        ... {len(lines) - LINES} more lines of 128 bytes")
    out += [f"note: {n}" for n in drawing.notes]
    return "\n".join(out)


# --- SVG --------------------------------------------------------------------------------------------------------------
def _colour(core: tuple[int, int], cores: int) -> str:
    """Hue by the core matrix along MN, lightness by the one along K."""
    hue = (core[0] * 360 / max(cores, 6) * (1 if cores <= 12 else 5)) % 360 / 60
    top, low = (0.93, 0.72) if core[1] % 2 == 0 else (0.80, 0.54)
    x = low + (top - low) * (1 - abs(hue % 2 - 1))
    order = [(top, x, low), (x, top, low), (low, top, x), (low, x, top), (x, low, top), (top, low, x)][int(hue)]
    return "#" + "".join(f"{round(255 * c):02x}" for c in order)


def _rect(x: float, y: float, w: float, h: float, fill: str) -> str:
    box = f"x='{x:g}' y='{y:g}' width='{w:g}' height='{h:g}'"
    return f"<rect {box} fill='{fill}' stroke='#ffffff' stroke-width='0.5'/>"


def _label(
    x: float, y: float, text: str, size: float = 9, anchor: str = "start", fill: str = "#222222", bold: bool = False
) -> str:
    weight = " font-weight='bold'" if bold else ""
    place = f"x='{x:g}' y='{y:g}' font-size='{size:g}' text-anchor='{anchor}'"
    return f"<text {place} fill='{fill}'{weight}>{escape(text)}</text>"


def _svg(drawing: SmemDrawing) -> str:
    grid = units(drawing)
    lines = _lines(grid)
    header, top = _header(drawing)
    cores = max(u.core[0] for row in grid for u in row) + 1
    memory, memory_width, memory_bottom = _memory(drawing, lines, cores, top)
    tile, tile_width, tile_bottom = _tile(drawing, grid, cores, 20 + memory_width + 30, top)
    width = max(20 + memory_width + 30 + tile_width + 20, 760)
    height = max(memory_bottom, tile_bottom) + 16
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' width='{width:g}' height='{height:g}' "
            f"viewBox='0 0 {width:g} {height:g}' {FONT}>",
            "<defs><marker id='tip' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' markerHeight='7' orient='auto'>"
            "<path d='M0,0 L8,4 L0,8 z' fill='#111111'/></marker></defs>",
            _rect(0, 0, width, height, "#ffffff"),
            *header,
            *memory,
            *tile,
            "</svg>",
        ]
    )


def _header(drawing: SmemDrawing) -> tuple[list[str], float]:
    """Title, fields, layout and notes; the height they take."""
    d = drawing.descriptor
    meaning = {n: m for n, _, m in _strides(drawing)}
    out = [_label(20, 26, _title(drawing), 14, bold=True), _label(20, 46, f"CuTe (elements): {drawing.layout}", 11)]
    y = 68.0
    for name, value, count in drawing.fields:
        text = f"{name:<6}{value:>7} bytes ={count:>6} units of 16 bytes   {meaning.get(name, '')}"
        out.append(_label(20, y, text.replace(" ", "\u00a0"), 11))
        y += 15
    base = f"base offset {d.base_offset}; a core matrix is 8 rows of 16 bytes, one colour each"
    atom = f"; an atom is {d.mode.pattern_bytes} bytes (bold rules)" if d.mode.units > 1 else ""
    out.append(_label(20, y, base + atom, 11))
    for note in drawing.notes:
        y += 15
        out.append(_label(20, y, "note: " + note, 11, fill="#666666" if "not read" in note else "#b00020"))
    return out, y + 46


def _memory(
    drawing: SmemDrawing, lines: dict[int, list[list[Unit]]], cores: int, top: float
) -> tuple[list[str], float, float]:
    """Shared memory, a line of 128 bytes a row: units in their banks, atoms ruled, strides as arrows."""
    x0, cell = 20 + 52, 76
    out = [_label(20, top - 24, "shared memory (banks across)", 11, bold=True)]
    out += [_label(x0 + cell * (i + 0.5), top - 6, f"{4 * i}-{4 * i + 3}", 9, "middle") for i in range(8)]
    at: dict[int, float] = {}
    y, before = top, None
    pattern = max(CORE, drawing.descriptor.mode.pattern_bytes) // CORE
    for n, row in list(lines.items())[:LINES]:
        if before is not None and n != before + 1:
            out.append(_label(x0, y + 11, f"... {n - before - 1} lines without elements", 9, fill="#777777"))
            y += CELL
        at[n] = y
        out.append(_label(x0 - 6, y + 11, str(n * CORE), 9, "end"))
        for i, found in enumerate(row):
            fill = "#f1f1f1" if not found else "#ff3030" if len(found) > 1 else _colour(found[0].core, cores)
            out.append(_rect(x0 + cell * i, y, cell, CELL, fill))
            out.append(_label(x0 + cell * (i + 0.5), y + 11, _name(drawing, found), 8.5, "middle"))
        if drawing.descriptor.mode.units > 1 and n % pattern == 0:
            out.append(f"<path d='M{x0},{y:g} h{8 * cell}' stroke='#111111' stroke-width='1.6'/>")
        y, before = y + CELL, n
    if drawing.descriptor.mode.units > 1:
        out.append(f"<path d='M{x0},{y:g} h{8 * cell}' stroke='#111111' stroke-width='1.6'/>")
    if len(lines) > LINES:
        out.append(_label(x0, y + 12, f"... {len(lines) - LINES} more lines of 128 bytes", 9, fill="#777777"))
        y += CELL
    arrows, extra = _arrows(drawing, at, x0, cell)
    return out + arrows, 52 + 8 * cell + extra, y


def _arrows(drawing: SmemDrawing, at: dict[int, float], x0: float, cell: float) -> tuple[list[str], float]:
    """One arrow a stride, from the line of the first element to the line a stride further."""
    start, edge = drawing.descriptor.start, x0 + 8 * cell
    out, x = [], edge + 14
    y0 = at.get(start // CORE, min(at.values())) + CELL / 2
    for name, step, meaning in _strides(drawing):
        if not step:
            continue
        goal = (start + step) // CORE
        inside = goal in at
        y1 = at[goal] + CELL / 2 if inside else max(at.values()) + CELL
        column = x0 + cell * ((start + step) % CORE // UNIT + 0.5)
        if inside and goal == start // CORE:  # within one line: along the top of the cells
            path = f"M{x0 + cell * (start % CORE // UNIT + 0.5):g},{y0 - 4:g} H{column:g}"
        else:
            path = f"M{edge:g},{y0:g} H{x:g} V{y1:g} H{edge:g}"
        out.append(f"<path d='{path}' fill='none' stroke='#111111' stroke-width='1.3' marker-end='url(#tip)'/>")
        middle = max((y0 + y1) / 2, y0 + 10)
        out.append(_label(x + 5, middle, f"{name} {step} B{'' if inside else ' (below)'}", 10, bold=True))
        out.append(_label(x + 5, middle + 12, meaning, 8.5))
        x += LANE
    return out, x - edge


def _tile(
    drawing: SmemDrawing, grid: list[list[Unit]], cores: int, x0: float, top: float
) -> tuple[list[str], float, float]:
    """The logical tile, MN down and K across: the byte address of each unit."""
    cell = 76 if drawing.major == "k" else 46  # room for 'k240-255' or for an address
    t = 128 // drawing.format.bits
    out = [_label(x0, top - 24, "the tile: byte address of each unit", 11, bold=True)]
    x0 += 46
    shown, columns = grid[:LINES], min(len(grid[0]), 32)
    for j, u in enumerate(grid[0][:columns]):
        name = f"k{u.k}-{u.k + t - 1}" if drawing.major == "k" else f"k{u.k}"
        out.append(_label(x0 + cell * (j + 0.5), top - 6, name, 8.5, "middle"))
    lines_of: dict[int, int] = {}
    for row in grid:
        for u in row:
            lines_of[u.address] = lines_of.get(u.address, 0) + 1
    y = top
    for row in shown:
        name = str(row[0].mn) if drawing.major == "k" else f"{row[0].mn}-{row[0].mn + t - 1}"
        out.append(_label(x0 - 5, y + 11, name, 8.5, "end"))
        for j, u in enumerate(row[:columns]):
            fill = "#ff3030" if lines_of[u.address] > 1 else _colour(u.core, cores)
            out.append(_rect(x0 + cell * j, y, cell, CELL, fill))
            out.append(_label(x0 + cell * (j + 0.5), y + 11, str(u.address), 8.5, "middle"))
        y += CELL
    if len(grid) > LINES:
        out.append(_label(x0, y + 12, f"... {len(grid) - LINES} more rows", 9, fill="#777777"))
        y += CELL
    return out, max(46 + cell * columns, 330), y
