"""ldmatrix, stmatrix and movmatrix: 8x8 and 16x16 matrices between shared memory and the lanes of a warp.

(PTX ISA, "Warp-level matrix load instruction: ldmatrix", "... store instruction: stmatrix", "movmatrix".)  A row of the
tables says which memory row (one lane's address) and element each register slot holds; here that becomes one gather.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc.compiler.threads import thread_count
from nbtc.errors import AlignmentError, BoundsError, FormatError, OptionError, ShapeError, shown
from nbtc.formats.arrays import as_array, as_flag
from nbtc.isa import move
from nbtc.isa.spec import Operand, Row
from nbtc.ops.images import Bytes, Words, byte_memory

ROW = 16  # bytes of a memory row
PACKED = {"b8x16.b4x16_p64": 4, "b8x16.b6x16_p32": 6}  # bits of an element in memory; a register slot has 8


@cache
def _rows(family: str) -> dict[tuple[str, bool, str, int], Row]:
    """The forms of ldmatrix or stmatrix by (shape, transposed, type, number of matrices)."""
    table = {}
    for row in move.loads() if family == "ldmatrix" else move.stores():
        _, _, _, shape, number, *rest = row.mnemonic.split(".")
        trans = rest[0] == "trans"
        table[shape, trans, ".".join(rest[trans:]), int(number[1:])] = row
    return table


def form(family: str, num: Any, trans: Any, shape: Any, type: Any) -> Row:
    """The instruction row of these options; OptionError names the legal ones."""
    table = _rows(family)
    plain = isinstance(shape, str) and isinstance(type, str)
    plain = plain and isinstance(num, int | np.integer) and not isinstance(num, bool)
    found = table.get((shape, as_flag(trans, "trans"), type, num)) if plain else None
    if found is None:
        ends = sorted({f'shape="{s}", type="{t}", trans={b}, num={n}' for s, b, t, n in table})
        near = [e for e in ends if f'"{shape}"' in e] or ends
        raise OptionError(
            f"{family} has no form with shape={shown(shape)}, type={shown(type)}, trans={shown(trans)}, "
            f"num={shown(num)}; nearest: "
            f"{'; '.join(near[:3])}"
        )
    return found


@cache
def sources(row: Row) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(lane whose address counts, byte in its row) of every register byte: int64 (32 * registers * 4,) both."""
    operand = row.d if row.d is not None else row.a
    if operand is None:
        raise OptionError(f"{row.mnemonic} moves no registers; ldmatrix and stmatrix forms do")
    coords = operand.coords()
    size = operand.format.bits // 8
    lane = np.repeat(coords[..., 0], size, axis=1).ravel()
    byte = (coords[..., 1:] * size + np.arange(size)).ravel()
    return lane, byte


def _memory(smem: Any, writable: bool) -> Bytes:
    memory = byte_memory(smem, "shared memory")
    if writable and not (isinstance(smem, np.ndarray) and memory.flags.writeable):
        raise FormatError("stmatrix writes its memory in place: pass a writable NumPy array, for example smem.copy()")
    return memory


def _addresses(addr: Any, used: int, size: int, name: str) -> NDArray[np.int64]:
    """Byte offsets (..., 32), of which the first `used` lanes' are checked and returned."""
    array = as_array(addr)
    if array.dtype.kind not in "iu":
        raise FormatError(
            f"addresses of {name} have dtype {array.dtype}; they are integer byte offsets: pass addr.astype(np.int64)"
        )
    if array.ndim < 1 or array.shape[-1] != 32:
        raise ShapeError(
            f"addresses of {name} have shape {array.shape}; there is one a lane, (..., 32), also for lanes that are "
            "not read: "
            "for example 16 * np.arange(32)"
        )
    at = array[..., :used].astype(np.int64)
    if (at % ROW).any():
        bad = int(at[at % ROW != 0][0])
        raise AlignmentError(
            f"{name} was given the row address {bad}, which is not a multiple of {ROW} bytes; nearest: "
            f"{bad // ROW * ROW}. "
            f"Rows are {ROW} bytes, so align them as in addr = base + {ROW} * np.arange(32)"
        )
    if at.size and (int(at.min()) < 0 or int(at.max()) + ROW > size):
        bad = int(at.min()) if int(at.min()) < 0 else int(at.max())
        raise BoundsError(
            f"{name} was given the row address {bad}, whose {ROW} bytes leave the shared memory of {size} bytes; "
            f"legal are 0 to {max(size - ROW, 0)}: pass a larger smem or smaller offsets"
        )
    return at


def _lead(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(
            f"leading axes of {name}'s operands do not broadcast: {', '.join(map(str, shapes))}; they count warps, so "
            "give "
            "every operand the same ones, or none"
        ) from None


def ldmatrix(
    smem: ArrayLike, addr: ArrayLike, num: int = 1, trans: bool = False, shape: str = "m8n8", type: str = "b16",
    threads: int | None = None,
) -> Words:  # fmt: skip
    """Load `num` matrices from shared memory into registers (PTX ISA, "ldmatrix").

    smem: uint8 (..., bytes).  addr: integer byte offsets (..., 32); lane 8 * j + r (16 * j + r for m16n16) gives row r
    of matrix j, the other lanes' are ignored.  Returns uint32 (..., 32, registers): num of them, 2 * num for m16n16.
    shape, type: "m8n8" with "b16"; or of sm_100a and later "m16n16" (trans) with "b8", "m16n16" and "m8n16" with
    "b8x16.b6x16_p32" and "b8x16.b4x16_p64", which expand 6- and 4-bit elements to bytes.  Raises AlignmentError,
    BoundsError, OptionError, ShapeError, FormatError.

    >>> import numpy as np
    >>> smem = np.arange(128, dtype=np.uint8)
    >>> ldmatrix(smem, 16 * np.arange(32) % 128)[:2, 0].tolist()     # lane 0: bytes 0..3 of row 0
    [50462976, 117835012]
    """
    row = form("ldmatrix", num, trans, shape, type)
    if threads is not None:
        thread_count(threads)
    operand = _registers(row.d)
    memory = _memory(smem, False)
    at = _addresses(addr, operand.rows, memory.shape[-1], "ldmatrix")
    lead = _lead("ldmatrix", memory.shape[:-1], at.shape[:-1])
    lane, byte = sources(row)
    memory = np.broadcast_to(memory, (*lead, memory.shape[-1]))
    at = np.broadcast_to(at, (*lead, at.shape[-1]))[..., lane]
    bits = PACKED.get(type)
    if bits is None:
        data = np.take_along_axis(memory, at + byte, -1)
    else:
        first = byte * bits // 8
        low, high = (np.take_along_axis(memory, at + first + n, -1).astype(np.uint16) for n in (0, 1))
        pair = low | high << 8
        data = (pair >> (byte * bits % 8).astype(np.uint16) & np.uint16((1 << bits) - 1)).astype(np.uint8)
    return np.ascontiguousarray(data).view("<u4").astype(np.uint32, copy=False).reshape(*lead, 32, operand.registers)


def stmatrix(
    smem: Bytes, addr: ArrayLike, regs: ArrayLike, num: int = 1, trans: bool = False, shape: str = "m8n8",
    type: str = "b16", threads: int | None = None,
) -> None:  # fmt: skip
    """Store `num` matrices from registers to shared memory, in place (PTX ISA, "stmatrix").

    smem: writable uint8 (..., bytes); its leading axes are the batch.  addr: as of `ldmatrix`.  regs: uint32
    (..., 32, num).  shape, type: "m8n8" with "b16", or of sm_100a and later "m16n8" (trans) with "b8".  Where rows
    overlap, which write wins is undefined.  Raises as `ldmatrix`; smem is then untouched.

    >>> import numpy as np
    >>> smem = np.zeros(128, np.uint8)
    >>> stmatrix(smem, 16 * np.arange(32) % 128, np.arange(32, dtype=np.uint32)[:, None])
    >>> smem[:8].tolist()
    [0, 0, 0, 0, 1, 0, 0, 0]
    """
    row = form("stmatrix", num, trans, shape, type)
    if threads is not None:
        thread_count(threads)
    operand = _registers(row.a)
    memory = _memory(smem, True)
    words = as_array(regs)
    if words.dtype != np.uint32:
        raise FormatError(
            f"registers of stmatrix have dtype {words.dtype}; they are uint32 words: pass regs.view(np.uint32)"
        )
    if words.ndim < 2 or words.shape[-2:] != (32, operand.registers):
        raise ShapeError(
            f"registers of {row.mnemonic} have shape {words.shape}; they must be (..., 32, {operand.registers}), for "
            "example "
            f"np.zeros((32, {operand.registers}), np.uint32)"
        )
    at = _addresses(addr, operand.rows, memory.shape[-1], "stmatrix")
    lead = _lead("stmatrix", memory.shape[:-1], at.shape[:-1], words.shape[:-2])
    if lead != memory.shape[:-1]:
        raise ShapeError(
            f"stmatrix of a batch {lead} cannot write to one memory of shape {memory.shape}: give smem the same "
            "leading axes, "
            f"for example np.zeros({(*lead, memory.shape[-1])}, np.uint8)"
        )
    lane, byte = sources(row)
    index = np.broadcast_to(at, (*lead, at.shape[-1]))[..., lane] + byte
    data = np.ascontiguousarray(words, "<u4").view(np.uint8).reshape(*words.shape[:-2], -1)
    np.put_along_axis(memory, index, np.broadcast_to(data, index.shape), -1)


def _registers(operand: Operand | None) -> Operand:
    if operand is None:
        raise OptionError("the form moves no registers; ldmatrix and stmatrix forms do, for example ldmatrix m8n8 x4")
    return operand


@cache
def transposition() -> NDArray[np.int64]:
    """For each half register of the result of movmatrix, the half register it comes from."""
    (row,) = move.transposes()
    source, result = (_registers(o).coords().reshape(-1, 2) for o in (row.a, row.d))
    holder = np.zeros((8, 8), np.int64)
    holder[source[:, 0], source[:, 1]] = np.arange(64)
    return holder[result[:, 0], result[:, 1]]


def movmatrix(regs: ArrayLike, threads: int | None = None) -> Words:
    """Transpose an 8x8 matrix of 16-bit elements across the lanes of a warp (PTX ISA, "movmatrix").

    regs: uint32 (..., 32), one register a lane.  Returns uint32 (..., 32): lane 4 * g + t gets elements [2t][g] and
    [2t + 1][g] of the source.  Raises ShapeError and FormatError.

    >>> import numpy as np
    >>> m = np.arange(32, dtype=np.uint32)
    >>> bool((movmatrix(movmatrix(m)) == m).all())
    True
    """
    if threads is not None:
        thread_count(threads)
    words = as_array(regs)
    if words.dtype != np.uint32:
        raise FormatError(f"the register of movmatrix has dtype {words.dtype}; it is uint32: pass regs.view(np.uint32)")
    if words.ndim < 1 or words.shape[-1] != 32:
        raise ShapeError(
            f"movmatrix takes one register a lane, (..., 32), not {words.shape}: for example np.zeros(32, np.uint32)"
        )
    halves = np.ascontiguousarray(words, "<u4").view("<u2")
    return np.ascontiguousarray(halves[..., transposition()]).view("<u4").astype(np.uint32, copy=False)
