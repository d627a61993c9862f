"""wmma.load and wmma.store: fragments of a tile to and from row- or column-major memory.

(PTX ISA, "wmma.load", "wmma.store".)  Every register byte has one place in memory, a function of the fragment's layout
and the leading dimension; loading is one gather of bytes and storing one scatter.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.errors import (
    AlignmentError,
    BoundsError,
    FormatError,
    RangeError,
    ShapeError,
    UnsupportedInstructionError,
    shown,
    whole_number,
)
from nbtc.fragments.pack import image
from nbtc.fragments.placed import check_layout, placed
from nbtc.isa.archs import arch as arch_row
from nbtc.isa.spec import Operand, Row
from nbtc.ops.images import Bytes, Words, byte_memory

POINTER = 32  # bytes that the C++ functions want a tile's address to be a multiple of
BYTES, ELEMENTS = "byte", "element"  # what a caller counts offsets in
LEADING = 16  # bytes that a leading dimension is a multiple of, where the tile is that wide


def extent(operand: Operand, layout: str) -> int:
    """Elements of a tile that lie side by side in memory."""
    return operand.cols if layout == "row" else operand.rows


@lru_cache(maxsize=512)
def byte_places(operand: Operand, layout: str, ldm: int) -> NDArray[np.int64]:
    """Offset from the tile's first byte of every register byte: (lanes * registers * 4,)."""
    coords = operand.coords()
    row, col = coords[..., 0], coords[..., 1]
    at = row * ldm + col if layout == "row" else col * ldm + row
    bits = operand.format.bits
    if bits < 8:  # the elements of a byte lie side by side in memory, too: those layouts are row.col only
        return (at[:, :: 8 // bits] * bits // 8).ravel()
    size = bits // 8
    return (at[..., None] * size + np.arange(size)).ravel()


def span(operand: Operand, layout: str, ldm: int) -> int:
    """Bytes from a tile's first to its last one."""
    lines = operand.rows if layout == "row" else operand.cols
    return ((lines - 1) * ldm + extent(operand, layout)) * operand.format.bits // 8


def integer(value: Any, name: str) -> int:
    """`value` as a Python integer: small NumPy ones would wrap around in the arithmetic to come."""
    found = whole_number(value)
    if found is None:
        raise FormatError(f"{name} {shown(value)} is not an integer: pass a whole number, for example 0")
    return found


def check_leading(operand: Operand, layout: str, given: Any, name: str) -> int:
    """The leading dimension as an int, or an error: it must reach over the tile, and keep its lines aligned."""
    ldm = integer(given, f"{name}: leading dimension")
    length, bits = extent(operand, layout), operand.format.bits
    if ldm < length:
        raise RangeError(
            f"{name}: leading dimension {shown(ldm)} is less than the {length} elements of a line of the "
            f"{operand.rows}x{operand.cols} tile ({layout}-major); nearest: {length}"
        )
    rule = min(8 * LEADING, length * bits)
    if ldm * bits % rule:
        step = rule // bits
        raise AlignmentError(
            f"{name}: leading dimension {shown(ldm)} is not a multiple of {step} elements ({rule // 8} bytes of "
            f"{operand.format.name}); nearest: {shown(-(-ldm // step) * step)}"
        )
    return ldm


def check_place(
    given: Any, aligned: int, operand: Operand, layout: str, ldm: int, size: int, name: str, unit: str = BYTES
) -> int:
    """The start (in bytes) as an int, or an error: it must be aligned, and the tile inside of `size` bytes.

    unit: what messages count in, BYTES or ELEMENTS.
    """
    start = integer(given, f"{name}: offset")
    end, bits = start + span(operand, layout, ldm), operand.format.bits

    def counted(count: int) -> str:
        return shown(count if unit == BYTES else count * 8 // bits)

    if start % aligned:
        raise AlignmentError(
            f"{name}: the tile starts at {unit} {counted(start)}, not a multiple of {counted(aligned)} {unit}s; "
            f"nearest: offset={counted(start // aligned * aligned)}"
        )
    if start < 0 or end > size:
        raise BoundsError(
            f"{name}: the {operand.rows}x{operand.cols} tile of {operand.format.name} at offset {counted(start)} with "
            f"leading dimension {shown(ldm)} covers {counted(end - start)} {unit}s, which leave the memory's "
            f"{counted(size)}: pass at least {counted(max(end, 0))} {unit}s or a smaller offset"
        )
    return start


def gather(memory: Bytes, start: int, operand: Operand, layout: str, ldm: int) -> Words:
    """Register images (..., 32, registers) of the tile at byte `start` of memory (..., bytes); nothing is checked."""
    data = memory[..., byte_places(operand, layout, ldm) + start]
    words = np.ascontiguousarray(data).view("<u4").astype(np.uint32, copy=False)
    return words.reshape(*memory.shape[:-1], operand.lanes, operand.registers)


def scatter(memory: Bytes, start: int, operand: Operand, layout: str, ldm: int, words: Words) -> None:
    """The inverse of `gather`, in place."""
    data = np.ascontiguousarray(words, "<u4").view(np.uint8)
    memory[..., byte_places(operand, layout, ldm) + start] = data.reshape(*words.shape[:-2], -1)


def _form(row: Row, family: str) -> tuple[Operand, str]:
    """Fragment and memory layout of a wmma.load or wmma.store row."""
    operand = row.a or row.b or row.c or row.d
    if row.family != family or operand is None:
        raise UnsupportedInstructionError(
            f"{row.mnemonic} is no {family}; such forms are spelled like "
            + {"wmma.load": "wmma.load.a.sync.aligned.row.m16n16k16.f16"}.get(
                family, "wmma.store.d.sync.aligned.row.m16n16k16.f32"
            )
        )
    return operand, "col" if "col" in row.mnemonic.split(".") else "row"


def _place(row: Row, operand: Operand, layout: str, memory: Bytes, offset: Any, stride: Any) -> tuple[int, int]:
    ldm = check_leading(operand, layout, extent(operand, layout) if stride is None else stride, row.mnemonic)
    aligned = min(POINTER, 4 * operand.registers)
    return check_place(offset, aligned, operand, layout, ldm, memory.shape[-1], row.mnemonic), ldm


def load(row: Row, mem: Any, offset: Any = 0, stride: Any = None, arch: object = "sm_90") -> Words:
    """wmma.load: uint32 images (..., 32, registers) of the tile at byte `offset` of uint8 memory (..., bytes)."""
    declared, _ = _form(row, "wmma.load")
    target = arch_row(arch)
    operand, layout = _form(row.on(target), "wmma.load")
    memory = byte_memory(mem, f"{row.mnemonic}: memory")
    start, ldm = _place(row, operand, layout, memory, offset, stride)
    return placed(gather(memory, start, operand, layout, ldm), declared, target)


def store(row: Row, mem: Any, regs: Any, offset: Any = 0, stride: Any = None, arch: object = "sm_90") -> None:
    """wmma.store: write the tile of register images to uint8 memory (..., bytes), in place."""
    declared, _ = _form(row, "wmma.store")
    target = arch_row(arch)
    operand, layout = _form(row.on(target), "wmma.store")
    check_layout(regs, declared, target, "regs")
    memory = byte_memory(mem, f"{row.mnemonic}: memory")
    if memory is not mem or not memory.flags.writeable:
        raise FormatError(
            f"{row.mnemonic} writes its memory in place: pass a writable uint8 NumPy array, for example mem.copy()"
        )
    words = image(operand, regs, "regs")
    start, ldm = _place(row, operand, layout, memory, offset, stride)
    lead = memory.shape[:-1]
    try:
        fits = np.broadcast_shapes(lead, words.shape[:-2]) == lead
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"{row.mnemonic} of a batch {words.shape[:-2]} does not fit memory of shape {memory.shape}: their leading "
            "axes count "
            f"warps; give memory the shape {(*words.shape[:-2], memory.shape[-1])}"
        )
    scatter(memory, start, operand, layout, ldm, words)
