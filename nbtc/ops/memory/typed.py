"""Typed arrays as the memory of WMMA tiles: flat, or a matrix whose lines lie a fixed stride apart.

All lengths here count elements, as the callers of CUDA C++'s functions do.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.errors import BoundsError, FormatError, ShapeError
from nbtc.formats.arrays import as_array, pack
from nbtc.formats.table import Format
from nbtc.isa.spec import Operand
from nbtc.ops.images import Bytes
from nbtc.ops.memory.wmma import ELEMENTS, POINTER, check_leading, check_place, extent, integer


class TileInMemory(NamedTuple):
    """Where a tile lies: memory (*batch, bytes), its first byte, and elements from one line to the next."""

    memory: Bytes
    start: int
    ldm: int


class MemoryLines(NamedTuple):
    """A matrix in memory: as flat items, and the elements between lines, of a line, and the number of lines."""

    flat: NDArray[Any]
    step: int
    length: int
    number: int


def place(
    mem: Any, operand: Operand, batch: tuple[int, ...], layout: str, ldm: Any, offset: Any, label: str, write: bool
) -> TileInMemory:
    """The tile of `operand` at `offset` in typed memory; a view of it when it is to be written.

    mem: (*batch, elements), or (*batch, lines, elements of a line) with any stride between lines, which `ldm` then
    repeats; to be read also (elements,) for all warps.  Raises FormatError, ShapeError, RangeError, AlignmentError and
    BoundsError.
    """
    fmt = operand.format
    lead, offset = check_leading(operand, layout, ldm, label), integer(offset, f"{label}: offset")
    typed = _checked(mem, fmt, label, write)
    if offset * fmt.bits % 8:
        step = 8 // fmt.bits
        raise BoundsError(f"{label}: offset={offset} is inside a byte; nearest: {offset // step * step}")
    if typed.ndim == len(batch) + 2 and typed.shape[:-2] == batch:
        lines = _lines(typed, fmt, label)
        if lines.length != lines.step:
            _inside(lines, operand, layout, lead, offset, label)
        typed = lines.flat
    elif typed.ndim < 1 or (typed.shape[:-1] != batch and (write or typed.ndim != 1)):
        want = ", ".join([*map(str, batch), "elements"])
        raise ShapeError(
            f"{label}: memory has shape {typed.shape}; it must be ({want}), each warp's memory flat, or a matrix a "
            "warp whose line stride is ldm: pass the whole array, with offset= and ldm= in elements"
        )
    elif typed.shape[-1] and typed.strides[-1] != typed.itemsize:
        if write:
            raise ShapeError(
                f"{label}: consecutive elements of the memory are {typed.strides[-1] // typed.itemsize} apart; CUDA's "
                "are neighbours: pass the array that it is a view of, with offset= and ldm= in elements"
            )
        typed = np.ascontiguousarray(typed)
    memory = typed.view(np.uint8)
    start = check_place(offset * fmt.bits // 8, POINTER, operand, layout, lead, memory.shape[-1], label, ELEMENTS)
    return TileInMemory(memory, start, lead)


def _checked(mem: Any, fmt: Format, label: str, write: bool) -> NDArray[Any]:
    """`mem` as an array of the format's dtype, or of packed words."""
    masked = isinstance(mem, np.ma.MaskedArray)
    if write and (masked or not isinstance(mem, np.ndarray) or not mem.flags.writeable):
        raise FormatError(f"{label} writes mem in place: pass a writable NumPy array of {fmt.dtype}, and no masked one")
    typed = mem if write else np.asarray(as_array(mem))
    if fmt.packed and typed.dtype == fmt.dtype and not write and typed.ndim:
        typed = pack(typed, fmt)
    legal = [np.dtype(np.uint32), np.dtype(np.int32)] if fmt.packed else [fmt.dtype]
    if typed.dtype not in legal:
        raise FormatError(
            f"{label}: memory has dtype {typed.dtype}, the fragment holds {fmt.name}: pass "
            + ("packed words, nbtc.pack(x, fmt)" if fmt.packed else f"memory of {fmt.dtype}")
        )
    return typed


def _lines(typed: NDArray[Any], fmt: Format, label: str) -> MemoryLines:
    """A matrix a warp, seen as flat memory: lines run along whichever of the last two axes is contiguous."""
    (rows, cols), (down, across), item = typed.shape[-2:], typed.strides[-2:], typed.itemsize
    if across != item and down == item:
        (rows, cols), (down, across) = (cols, rows), (across, down)
    if (across != item and cols > 1) or down % item or down < 0 or not typed[..., :1, :1].size:
        raise ShapeError(
            f"{label}: memory of shape {typed.shape} and strides {tuple(s // item for s in typed.strides)} in elements "
            "has no lines of neighbouring elements: pass the array that it is a view of, with offset= and ldm="
        )
    items = down // item if rows > 1 else cols
    flat = np.lib.stride_tricks.as_strided(
        typed, (*typed.shape[:-2], (rows - 1) * items + cols), (*typed.strides[:-2], item)
    )
    held = fmt.per_word if fmt.packed else 1  # elements of an item
    return MemoryLines(flat, items * held, cols * held, rows)


def _inside(lines: MemoryLines, operand: Operand, layout: str, ldm: int, offset: int, label: str) -> None:
    """Raise unless the tile lies in the lines: between them is memory that belongs to others."""
    if ldm != lines.step:
        raise ShapeError(
            f"{label}: lines of this memory are {lines.step} elements apart, but ldm={ldm}: pass ldm={lines.step}"
        )
    length = extent(operand, layout)
    number = operand.rows * operand.cols // length
    first, at = divmod(offset, lines.step)
    if offset < 0 or at + length > lines.length or first + number > lines.number:
        raise BoundsError(
            f"{label}: {number} lines of {length} elements from line {first}, element {at} on leave this memory of "
            f"{lines.number} lines of {lines.length}: pass another offset, or a larger part of the array"
        )
