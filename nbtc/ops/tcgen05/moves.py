"""tcgen05.ld, st and cp: between tensor memory and the registers of a warpgroup, or shared memory.

(PTX ISA, "tcgen05.ld", "tcgen05.st", "tcgen05.cp".)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.errors import (
    BoundsError,
    FormatError,
    OptionError,
    ShapeError,
    UnsupportedInstructionError,
    shown,
    whole_number,
)
from nbtc.formats.arrays import as_array
from nbtc.fragments.tensor_descriptors import Descriptor
from nbtc.ops.tcgen05.memory import PendingOperations, TensorMemory, tensor_address

Index = NDArray[np.int64]
SHAPES = {"32x32b": (1, 128, 32), "16x64b": (1, 128, 16), "16x128b": (2, 64, 16), "16x256b": (4, 32, 16),
          "16x32bx2": (1, 128, 16)}  # fmt: skip  # registers a step of .num, largest .num, lanes
# rows, units of 16 bytes a row, and the lanes that row r of a copy goes to
COPIES: dict[str, tuple[int, int, Any]] = {
    "128x256b": (128, 2, lambda r: [r]),
    "128x128b": (128, 1, lambda r: [r]),
    "4x256b": (4, 2, lambda r: [32 * r]),
    "64x128b.warpx2::02_13": (64, 1, lambda r: [r, r + 64]),
    "64x128b.warpx2::01_23": (64, 1, lambda r: [64 * (r // 32) + r % 32, 64 * (r // 32) + r % 32 + 32]),
    "32x128b.warpx4": (32, 1, lambda r: [r, r + 32, r + 64, r + 96]),
}


def places(shape: str, num: int, split: int = 0) -> tuple[Index, Index]:
    """Lane (inside of a warp's quarter) and column of each register of each thread: two int64 arrays (32, registers).

    >>> lane, column = places("16x256b", 1)
    >>> lane[5].tolist(), column[5].tolist()
    ([1, 1, 9, 9], [2, 3, 2, 3])
    """
    if not isinstance(shape, str) or shape not in SHAPES:
        raise OptionError(f"shape={shown(shape)} is none of tcgen05.ld: {', '.join(SHAPES)}")
    registers, most, _ = SHAPES[shape]
    if whole_number(num) not in [1 << i for i in range(8)] or num > most:
        raise OptionError(f"num={shown(num)}: {shape} takes powers of two up to {most}; try num=1")
    lane, r = np.arange(32)[:, None], np.arange(registers * num)[None, :]
    found = {
        "32x32b": (lane + 0 * r, r + 0 * lane),
        "16x64b": (lane // 4 + 8 * (lane % 2) + 0 * r, 2 * r + lane // 2 % 2),
        "16x128b": (lane // 4 + 8 * (r % 2), 4 * (r // 2) + lane % 4),
        "16x256b": (lane // 4 + 8 * (r // 2 % 2), 8 * (r // 4) + 2 * (lane % 4) + r % 2),
        "16x32bx2": (lane % 16 + 0 * r, r + split * (lane // 16)),
    }
    return found[shape]


def _reached(
    t: TensorMemory, address: int, shape: str, num: int, split: int, packed: bool, what: str
) -> tuple[Index, Index]:
    """Lanes and (first) columns of all registers of a warpgroup, (128, registers)."""
    lane, column = places(shape, num, split)
    column = 2 * column if packed else column
    base = tensor_address(address) >> 16
    if base not in ((0,) if SHAPES[shape][2] == 32 else (0, 16)):
        raise OptionError(
            f"{what} at lane {base}: {shape} starts at lane 0{' or 16' if SHAPES[shape][2] == 16 else ''}"
        )
    region = t.region(address, int(column.max()) + 1 + packed, what)
    t.uses(what, [region], ("st",) if what == "st" else ())
    quarter = 32 * np.arange(4)[:, None, None]
    lanes = np.broadcast_to(quarter + base + lane, (4, *lane.shape)).reshape(128, -1)
    return lanes, region[0] + np.tile(column, (4, 1))


def ld(t: TensorMemory, address: int, shape: str = "32x32b", num: int = 1, split: int = 0, pack: bool = False) -> Any:
    """tcgen05.ld.SHAPE.xNUM of a warpgroup: uint32 (128, registers), warp w from lanes 32 w to 32 w + 31.

    address: lane (0, or 16 for the 16-lane shapes) << 16 | column.  split: immHalfSplitoff of 16x32bx2.  pack:
    .pack::16b, the low halves of two columns a register.  Raises HazardError while a product or copy that writes the
    columns is not complete.

    >>> t = TensorMemory()
    >>> t.words[:] = np.arange(512)
    >>> ld(t, 4, num=2)[33].tolist()
    [4, 5]
    """
    lanes, columns = _reached(t, address, shape, num, split, pack, "ld")
    if pack:
        return t.words[lanes, columns] & np.uint32(0xFFFF) | t.words[lanes, columns + 1] << np.uint32(16)
    return t.words[lanes, columns]


def st(
    t: TensorMemory, address: int, registers: Any, shape: str = "32x32b", num: int = 1, split: int = 0,
    unpack: bool = False,
) -> None:  # fmt: skip
    """tcgen05.st: the reverse of `ld`; not complete before `wait_st`.

    >>> t = TensorMemory()
    >>> st(t, 0, np.ones((128, 1), np.uint32))
    >>> int(t.words.sum())
    128
    """
    lanes, columns = _reached(t, address, shape, num, split, unpack, "st")
    x = as_array(registers)
    if x.dtype != np.uint32 or x.shape != lanes.shape:
        error = FormatError if x.dtype != np.uint32 else ShapeError
        raise error(f"registers are {x.dtype} of shape {x.shape}: {shape}.x{num} stores uint32 {lanes.shape}")
    if unpack:
        t.words[lanes, columns], t.words[lanes, columns + 1] = x & np.uint32(0xFFFF), x >> np.uint32(16)
    else:
        t.words[lanes, columns] = x
    t.pending.append(PendingOperations("st", (address & 0xFFFF, int(columns.max()) + 1)))


def cp(t: TensorMemory, address: int, descriptor: Any, smem: Any, shape: str, expand: str = "") -> None:
    """tcgen05.cp.SHAPE: rows of shared memory (K-major descriptor, uint8 bytes) to lanes of tensor memory.

    shape: "128x256b", "128x128b", "4x256b", "64x128b.warpx2::02_13", "64x128b.warpx2::01_23" or "32x128b.warpx4".
    Complete after a commit; products after it are ordered after it.  expand (fp4 and fp6 to bytes) raises: where the
    elements land is not verified.  Raises OptionError for another shape, BoundsError beyond either memory.  (PTX ISA,
    "tcgen05.cp".)

    >>> import numpy as np
    >>> from nbtc import tcgen05
    >>> from nbtc.wgmma import tile_to_smem
    >>> smem, plain = tile_to_smem(np.arange(64, dtype=np.uint8).reshape(4, 16).repeat(8, axis=0), "u8")
    >>> tmem = tcgen05.TensorMemory()
    >>> tcgen05.cp(tmem, 0, tcgen05.Descriptor(0, plain.leading, plain.stride), smem, "32x128b.warpx4")
    >>> [hex(x) for x in tmem.words[[0, 31, 127], 0]]  # rows 0 and 31, and row 31 for the fourth warp
    ['0x3020100', '0x33323130', '0x33323130']
    """
    if expand:
        raise UnsupportedInstructionError(f"tcgen05.cp ...{expand}: where expanded elements land is not verified")
    if not isinstance(shape, str) or shape not in COPIES:
        raise OptionError(f"shape={shown(shape)} is none of tcgen05.cp: {', '.join(COPIES)}")
    rows, units, lanes = COPIES[shape]
    d = descriptor if isinstance(descriptor, Descriptor) else Descriptor.decode(descriptor)
    memory = np.asarray(smem)
    at = d.address(np.arange(rows)[:, None], 16 * np.arange(units)[None, :], "u8")[..., None] + np.arange(16)
    if memory.dtype != np.uint8 or memory.ndim != 1 or int(at.max()) >= memory.size:
        raise BoundsError(f"cp reads bytes up to {int(at.max())}; shared memory is {memory.dtype} of {memory.shape}")
    region = t.region(address, 4 * units, "cp")
    t.uses("cp", [region], ("cp", "mma"))
    words = memory[at].reshape(rows, 16 * units).view("<u4")
    for r in range(rows):
        t.words[lanes(r), region[0] : region[1]] = words[r]
    t.pending.append(PendingOperations("cp", region, (), (memory, at.ravel(), memory[at].ravel())))
