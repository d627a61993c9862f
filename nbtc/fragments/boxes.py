"""What a picture of an operand shows: its matrix cut into boxes, one for each stretch that a lane's register holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from nbtc.formats.table import FORMATS
from nbtc.fragments import scales, sparse
from nbtc.isa.spec import Operand, Row

WARP_ROWS, WIDEST = 16, 16  # of a warpgroup's operand: rows of its first warp, and columns, that are drawn


@dataclass(frozen=True)
class Box:
    """A rectangle of matrix elements in one register (the same one, or the same copies, for all of them)."""

    row: int
    col: int
    rows: int
    cols: int
    lane: int
    lanes: str
    registers: str

    @property
    def label(self) -> str:
        """Lane and register, such as "T5 a2"; several lanes or registers hold copies."""
        return f"{self.lanes} {self.registers}"


@dataclass(frozen=True)
class DrawnOperand:
    """One operand as drawn: boxes of the part shown, its size there, and what was left out."""

    name: str
    operand: Operand
    letter: str
    rows: int
    cols: int
    boxes: tuple[Box, ...]
    note: str = ""
    addressed: bool = False  # memory rows: lane r gives the address of row r

    def row_name(self, row: int) -> str:
        """How a row of the picture is labelled."""
        if not self.addressed:
            return str(row)
        every = range(row, row + self.box_rows)
        return f"{'+'.join(map(str, every))} @{'+'.join(f'T{r}' for r in every)}"

    @property
    def box_cols(self) -> int:
        """Columns of the narrowest box."""
        return min((b.cols for b in self.boxes), default=1)

    @property
    def box_rows(self) -> int:
        """Rows of the lowest box."""
        return min((b.rows for b in self.boxes), default=1)

    @property
    def widest_label(self) -> int:
        """Characters of the longest label."""
        return max((len(b.label) for b in self.boxes), default=1)


def panel(name: str, letter: str, operand: Operand, product: int = 0, addressed: bool = False) -> DrawnOperand:
    """The panel of an operand (of one of its products); wgmma operands are cut to one warp and 16 columns."""
    if operand.layout is None:
        text = f"K x N = {operand.rows} x {operand.cols} {operand.format.name} in shared memory, through a descriptor"
        return DrawnOperand(name, operand, letter, operand.rows, operand.cols, (), text)
    rows, cols, notes = operand.rows, operand.cols, []
    if operand.lanes > 32:
        rows = WARP_ROWS
        notes.append("rows 16w to 16w+15 are those of warp w: lane T becomes T + 32w")
        if cols > WIDEST and letter in "cd":
            step = operand.registers * 8 // operand.cols
            notes.append(f"columns {WIDEST} to {cols - 1} go on alike: every 8 columns the register grows by {step}")
            cols = WIDEST
    boxes = _boxes(operand, letter, rows, cols, product)
    return DrawnOperand(name, operand, letter, rows, cols, boxes, "; ".join(notes), addressed)


def metadata_panel(row: Row, operand: Operand, selector: int) -> DrawnOperand:
    """The panel of a sparse form's metadata: which lane's bits describe which chunks of which row."""
    lanes, shifts = sparse.places(row, selector)
    rows, boxes = min(operand.rows, WARP_ROWS), []
    for r in range(rows):
        col = 0
        while col < operand.cols:
            width = _run(lanes[r, col:])
            lane, first = int(lanes[r, col]), int(shifts[r, col])
            boxes.append(Box(r, col, 1, width, lane, f"T{lane}", f"bits {first}..{first + 4 * width - 1}"))
            col += width
    note = "rows 16w to 16w+15 are those of warp w: lane T becomes T + 32w" if operand.rows > rows else ""
    return DrawnOperand(f"metadata, selector {selector}", operand, "e", rows, operand.cols, tuple(boxes), note)


def scale_panel(row: Row, side: str, byte: int = 0, thread: int = 0) -> DrawnOperand:
    """The panel of the scales of side "a" (rows by chunks of K) or "b" (chunks by columns) of a block-scaled form."""
    lanes, octets = scales.places(row, side, byte, thread)
    first, count = int(octets[0]), len(octets)
    held = f"byte {first}" if count == 1 else f"bytes {first}..{first + count - 1}"
    operand = Operand(FORMATS[row.scale], *((len(lanes), count) if side == "a" else (count, len(lanes))), 1, 4, None, 8)
    boxes = []
    for line, lane in enumerate(lanes.tolist()):
        at, size = ((line, 0), (1, count)) if side == "a" else ((0, line), (count, 1))
        boxes.append(Box(*at, *size, lane, f"T{lane}", held))
    name = f"scales of {side.upper()}, byte {byte}, thread {thread}"
    return DrawnOperand(name, operand, "s", operand.rows, operand.cols, tuple(boxes))


@lru_cache(32)  # who draws several forms draws the same operands
def _boxes(operand: Operand, letter: str, rows: int, cols: int, product: int) -> tuple[Box, ...]:
    keys, lanes, registers = _holders(operand, product)
    down, across = _step(operand)
    found = []
    done = np.zeros((rows, cols), bool)
    for row in range(rows):
        for col in range(cols):
            if done[row, col]:
                continue
            height = _run(keys[row:rows, col]) if down else 1
            width = _run(keys[row, col:cols]) if across else 1
            done[row : row + height, col : col + width] = True
            holders = tuple(dict.fromkeys(int(v) for v in lanes[row, col]))
            found.append(
                Box(
                    row, col, height, width, holders[0], "+".join(f"T{v}" for v in holders),
                    _name(letter, operand, registers[row, col]),
                )
            )  # fmt: skip
    return tuple(found)


def _holders(operand: Operand, product: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """For each place of the matrix: a number equal for places of the same registers, and all lanes and registers."""
    flat = operand.gather.T.ravel()  # element-major
    order = np.argsort(flat, kind="stable").reshape(operand.products, operand.rows, operand.cols, -1)[product]
    element, lane = np.divmod(order, operand.lanes)
    register = operand.slots()[0][element]
    code = lane * operand.registers + register
    _, key = np.unique(code.reshape(-1, code.shape[-1]), axis=0, return_inverse=True)
    return key.reshape(operand.rows, operand.cols), lane, register


def _step(operand: Operand) -> tuple[bool, bool]:
    """Whether neighbouring slots of a register run down a column or along a row."""
    layout = operand.layout
    first = layout.element[0] if layout is not None and layout.element else (0, 0)
    return first[0] > 0, first[1] > 0


def _run(keys: NDArray[np.int64]) -> int:
    other = np.flatnonzero(keys != keys[0])
    return int(other[0]) if other.size else len(keys)


def _name(letter: str, operand: Operand, registers: NDArray[np.int64]) -> str:
    unique = list(dict.fromkeys(int(v) for v in registers))
    if operand.width == 64:  # two words, low first
        return f"{letter}{unique[0]}:{unique[0] + 1}"
    return letter + "·".join(str(v) for v in unique)
