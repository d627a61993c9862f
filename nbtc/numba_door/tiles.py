"""Tiles between memory and fragments inside compiled functions: load_matrix_sync and store_matrix_sync of one warp."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.core import types

from nbtc.compiler.jit import jit
from nbtc.errors import AlignmentError, BoundsError, CompilerError, RangeError
from nbtc.isa.spec import Operand
from nbtc.numba_door.fragment import FragmentKind
from nbtc.numba_door.images import check_matrix
from nbtc.ops.memory.wmma import LEADING, POINTER


class TileItems(NamedTuple):
    """The items that a tile consists of, elements or bytes of packed ones, in the order of the image.

    dtype: of an item.  line, place: of each item, its line in memory and the items before it there.  length: elements
    of a line; lines: of the tile.  rule: elements that ldm is a multiple of; aligned: that offsets are.
    """

    dtype: np.dtype[Any]
    line: Any
    place: Any
    length: int
    lines: int
    rule: int
    aligned: int


def memory_of(operand: Operand, layout: str) -> TileItems:
    """Where the elements of a fragment lie."""
    fmt, coords = operand.format, operand.coords()
    major, minor = (0, 1) if layout == "row" else (1, 0)
    per_item = max(1, 8 // fmt.bits)
    line, place = coords[:, ::per_item, major].ravel(), coords[:, ::per_item, minor].ravel() // per_item
    length = operand.cols if layout == "row" else operand.rows
    lines = operand.rows * operand.cols // length
    rule = min(8 * LEADING, length * fmt.bits) // fmt.bits
    return TileItems(np.dtype(f"u{max(8, fmt.bits) // 8}"), line, place, length, lines, rule, 8 * POINTER // fmt.bits)


@jit
def gather(memory, start, ldm, line, place, items):
    """Items of a tile into a flat image."""
    for n in range(line.size):
        items[n] = memory[start + line[n] * ldm + place[n]]


@jit
def scatter(memory, start, ldm, line, place, items):
    """Items of a flat image to their places in memory."""
    for n in range(line.size):
        memory[start + line[n] * ldm + place[n]] = items[n]


@jit
def check_tile(size, ldm, offset, length, lines, rule, aligned):
    """Raise unless the tile is aligned and lies inside of `size` elements."""
    if ldm < length:
        raise RangeError("wmma: the leading dimension is less than a line of the tile; ldm counts elements")
    if ldm % rule != 0:
        raise AlignmentError(
            "wmma: the leading dimension must be a multiple of 16 bytes, or of a line of the tile where that is less"
        )
    if offset % aligned != 0:
        raise AlignmentError("wmma: a tile starts at a multiple of 32 bytes; offset counts elements")
    if offset < 0 or offset + (lines - 1) * ldm + length > size:
        raise BoundsError("wmma: the tile leaves its memory: pass more of it, another offset or ldm, in elements")


def mover(tile: FragmentKind, layout: str, move: Any) -> Callable[..., Any]:
    """moved(image, mem, ldm, offset): what load (move=gather) and store (scatter) are."""
    dtype, line, place, *numbers = memory_of(tile.operand, layout)
    length, lines, rule, aligned = numbers
    held = tile.format.per_word if tile.format.packed else 1  # elements of an array's item
    per_item = max(1, 8 // tile.format.bits)  # elements of an item that is moved
    word = dtype.type

    def moved(image, mem, ldm, offset):
        check_tile(mem.size * held, ldm, offset, length, lines, rule, aligned)
        items = image.view(word).reshape(-1)
        move(mem.reshape(-1).view(word), offset // per_item, ldm // per_item, line, place, items)

    found: Callable[..., Any] = jit(moved, expanded=True)
    return found


def check_memory(mem: Any, tile: FragmentKind, name: str) -> None:
    """Memory of elements, or packed words."""
    if tile.format.packed:
        if isinstance(mem, types.Array) and mem.layout == "C" and mem.dtype in (types.uint32, types.int32):
            return
        raise CompilerError(f"{name}({tile}): memory is packed words, nbtc.pack(x, nbtc.{tile.format.name}), not {mem}")
    check_matrix(mem, tile.format, None, f"{name}({tile}): memory")
