"""Which element of a matrix each lane's register slots hold: every fragment layout, as data.

All layouts of tensor core operands are *bit-linear*: each bit of the lane number and each bit of the element index adds
a fixed step to (row, column).  So a layout is two short tuples of steps, and everything else (coordinates, gathers,
pictures, the inverse) is derived from them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nbtc.errors import ShapeError

Step = tuple[int, int]
Steps = tuple[Step, ...]
STAY: Step = (0, 0)


@dataclass(frozen=True)
class Layout:
    """A bit-linear map from (lane, element) to (row, column).

    lane: the step of each bit of the lane number, lowest first (5 bits for a warp, 7 for a warpgroup).  element: the
    step of each bit of the element index.  A step of (0, 0) means that the bit only makes copies.  group: for
    instructions that hold several products, what each lane bit adds to the product's number.
    """

    lane: Steps
    element: Steps
    group: tuple[int, ...] = ()

    @property
    def lanes(self) -> int:
        """Threads that take part: 32, or 128 for a warpgroup."""
        return 1 << len(self.lane)

    @property
    def groups(self) -> int:
        """Independent products held side by side (4 for f16 m8n8k4, else 1)."""
        return 1 + sum(self.group)

    @property
    def transposed(self) -> Layout:
        """The same map with rows and columns exchanged."""
        return Layout(_swap(self.lane), _swap(self.element), self.group)

    def repeated(self, elements: int) -> Layout:
        """The layout with copies appended until it has `elements` elements."""
        extra = elements.bit_length() - 1 - len(self.element)
        return Layout(self.lane, self.element + (STAY,) * extra, self.group)

    def coords(self, elements: int) -> NDArray[np.int64]:
        """Row and column of the first `elements` elements of each lane: int64 (lanes, elements, 2)."""
        if not 0 < elements <= 1 << len(self.element):
            raise ShapeError(f"a layout with {len(self.element)} element bits cannot place {elements} elements a lane")
        return _span(self.lane, self.lanes)[:, None, :] + _span(self.element, elements)[None, :, :]

    def products(self) -> NDArray[np.int64]:
        """The product that each lane works on: int64 (lanes,), all zero for most layouts."""
        lanes = np.arange(self.lanes)
        total = np.zeros(self.lanes, np.int64)
        for bit, step in enumerate(self.group):
            total += (lanes >> bit & 1) * step
        return total


def _swap(steps: Steps) -> Steps:
    return tuple((c, r) for r, c in steps)


def _span(steps: Steps, count: int) -> NDArray[np.int64]:
    """(row, col) offset of the numbers 0 .. count-1 whose bits have these steps."""
    numbers = np.arange(count)[:, None]
    bits = numbers >> np.arange(len(steps))[None, :] & 1
    return bits @ np.array(steps, np.int64).reshape(-1, 2)


def _down(first: int, limit: int) -> Steps:
    """Row steps first, 2*first, ... below limit."""
    return tuple((first << i, 0) for i in range(limit.bit_length()) if first << i < limit)


def _across(first: int, limit: int) -> Steps:
    return _swap(_down(first, limit))


def a_layout(rows: int, cols: int, per_word: int) -> Layout:
    """Operand A of mma, mma.sp (stored columns), wmma and wgmma: the one formula of the ISA.

    A lane's t = lane % 4 picks `per_word` adjacent columns and g = lane / 4 a row; further elements step to row + 8,
    then through K, then to row + 16 (tiles of 32 rows); the warps of a warpgroup are 16 rows apart.
    """
    element = _across(1, per_word) + _down(8, min(rows, 16)) + _across(4 * per_word, cols)
    if rows == 32:
        element += ((16, 0),)
    return Layout(_across(per_word, 4 * per_word) + _down(1, 8) + _warps(rows), element)


def b_layout(rows: int, cols: int, per_word: int) -> Layout:
    """Operand B (K x N) of mma, mma.sp and wmma: k runs over t and the elements, n = g, then n + 8."""
    element = _down(1, per_word) + _down(4 * per_word, rows) + _across(8, min(cols, 16))
    return Layout(_down(per_word, 4 * per_word) + _across(1, 8), element)


def c_layout(rows: int, cols: int) -> Layout:
    """Operands C and D: pairs of columns, then row + 8, then the columns in steps of 8, then row + 16."""
    element = _across(1, 2) + _down(8, min(rows, 16)) + _across(8, cols)
    if rows == 32:
        element += ((16, 0),)
    return Layout(_across(2, 8) + _down(1, 8) + _warps(rows), element)


def _warps(rows: int) -> Steps:
    """Lane bits 5 and 6: the four warps of a warpgroup hold 16 rows each."""
    return _down(16, 64) if rows == 64 else ()


_PAIRS = (0, 0, 1, 2, 0)  # quad pair = lane bits 2 and 3
_ROWS4: Steps = ((1, 0), (2, 0))
_COLS4: Steps = ((0, 1), (0, 2))

# f16 m8n8k4: lanes 4q..4q+3 and 16+4q..16+4q+3 work on product q; lane bit 4 picks the second half of M or N
QUAD_PAIR: dict[str, Layout] = {
    "a row": Layout((*_ROWS4, STAY, STAY, (4, 0)), _COLS4, _PAIRS),
    "a col": Layout((*_COLS4, STAY, STAY, (4, 0)), _ROWS4, _PAIRS),
    "b row": Layout((*_ROWS4, STAY, STAY, (0, 4)), _COLS4, _PAIRS),
    "b col": Layout((*_COLS4, STAY, STAY, (0, 4)), _ROWS4, _PAIRS),
    "c f16": Layout((*_ROWS4, STAY, STAY, (4, 0)), (*_COLS4, (0, 4)), _PAIRS),
    "c f32": Layout(((1, 0), (0, 2), STAY, STAY, (4, 0)), ((0, 1), (2, 0), (0, 4)), _PAIRS),
}

# wmma m16n16k16 with f16 on sm_70: two lanes hold each element of A (lane bit 3) and of B (lane bit 2)
VOLTA: dict[str, Layout] = {
    "a row": Layout((*_ROWS4, (8, 0), STAY, (4, 0)), (*_COLS4, (0, 4), (0, 8))),
    "a col": Layout((*_COLS4, (8, 0), STAY, (4, 0)), (*_ROWS4, (0, 4), (0, 8))),
    "b row": Layout((*_ROWS4, STAY, (0, 8), (0, 4)), (*_COLS4, (4, 0), (8, 0))),
    "b col": Layout((*_COLS4, STAY, (0, 8), (0, 4)), (*_ROWS4, (4, 0), (8, 0))),
    "c f16": Layout((*_ROWS4, (8, 0), (0, 8), (4, 0)), (*_COLS4, (0, 4))),
    "c f32": Layout(((1, 0), (0, 2), (8, 0), (0, 8), (4, 0)), ((0, 1), (2, 0), (0, 4))),
}


def ldmatrix_layout(shape: str, trans: bool, number: int) -> Layout:
    """ldmatrix and stmatrix: the memory row (of all matrices stacked) and element that each register slot holds."""
    stack = _down(STACK[shape], STACK[shape] * number)
    if shape == "m8n8":
        one = Layout(_across(2, 8) + _down(1, 8), _across(1, 2))
        one = one.transposed if trans else one
    elif shape == "m16n16":
        one = Layout(_down(4, 16) + _across(1, 8), (*_down(1, 4), (0, 8)))
    elif shape == "m8n16":
        one = Layout(_across(4, 16) + _down(1, 8), _across(1, 4))
    else:  # stmatrix m16n8, stored transposed: 8 memory rows of 16 bytes
        one = Layout(_down(2, 8) + _across(1, 8), ((1, 0), (0, 8)))
    return Layout(one.lane, one.element + stack)


STACK = {"m8n8": 8, "m16n16": 16, "m8n16": 8, "m16n8": 8}  # memory rows, one lane address each, of one matrix
