"""ldmatrix, stmatrix and movmatrix inside functions compiled by Numba: one warp, options known when it is compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numba.core import types
from numpy.typing import NDArray

from nbtc.compiler.callees import overload
from nbtc.compiler.jit import jit
from nbtc.errors import AlignmentError, BoundsError, CompilerError, ShapeError
from nbtc.numba_door.constants import constant_of
from nbtc.ops.memory.matrix_move import PACKED, ROW, form, sources, transposition


class Move(NamedTuple):
    """A form: its registers a lane, lanes whose addresses count, and of each register byte its lane and place there."""

    registers: int
    lanes: int
    lane: NDArray[np.int64]
    byte: NDArray[np.int64]


@jit
def checked(addr, lanes, size):
    """Byte offsets of the rows as they are, or an error where one is misaligned or outside of memory."""
    if addr.size != 32:
        raise ShapeError("ldmatrix and stmatrix take 32 byte offsets, one a lane, for example 16 * np.arange(32)")
    for n in range(lanes):
        at = np.int64(addr[n])
        if at % ROW != 0:
            raise AlignmentError("ldmatrix and stmatrix: the offset of a row is not a multiple of 16 bytes")
        if at < 0 or at + ROW > size:
            raise BoundsError("ldmatrix and stmatrix: a row of 16 bytes leaves the shared memory")


@jit
def gathered(smem, addr, lane, byte, out):
    for n in range(lane.size):
        out[n] = smem[np.int64(addr[lane[n]]) + byte[n]]


@jit
def scattered(smem, addr, lane, byte, data):
    for n in range(lane.size):
        smem[np.int64(addr[lane[n]]) + byte[n]] = data[n]


def _move(family: str, options: tuple[Any, ...]) -> Move:
    num, trans, shape, kind = (constant_of(x) for x in options)
    if kind in PACKED:
        raise CompilerError(
            f"{family}: elements of 6 and 4 bits ({kind}) work from Python; compiled code takes b16 and b8"
        )
    row = form(family, num, trans, shape, kind)
    operand = row.d if family == "ldmatrix" else row.a
    if operand is None:
        raise CompilerError(f"{row.mnemonic} moves no registers; ldmatrix and stmatrix forms do")
    return Move(operand.registers, operand.rows, *sources(row))


def _check(smem: Any, addr: Any, name: str) -> None:
    if not (isinstance(smem, types.Array) and smem.dtype == types.uint8 and smem.ndim == 1):
        raise CompilerError(f"{name}: shared memory is a 1-D uint8 array in compiled functions, not {smem}")
    if not (isinstance(addr, types.Array) and addr.ndim == 1 and isinstance(addr.dtype, types.Integer)):
        raise CompilerError(f"{name}: addr is an array of 32 integers, one byte offset a lane, not {addr}")


def _load(smem, addr, num=1, trans=False, shape="m8n8", type="b16", threads=None):
    _check(smem, addr, "ldmatrix")
    registers, lanes, lane, byte = _move("ldmatrix", (num, trans, shape, type))

    def load(smem, addr, num=1, trans=False, shape="m8n8", type="b16", threads=None):
        checked(addr, lanes, smem.size)
        out = np.empty((32, registers), np.uint32)
        gathered(smem, addr, lane, byte, out.reshape(-1).view(np.uint8))
        return out

    return load


def _store(smem, addr, regs, num=1, trans=False, shape="m8n8", type="b16", threads=None):
    _check(smem, addr, "stmatrix")
    if not (isinstance(regs, types.Array) and regs.dtype == types.uint32 and regs.ndim == 2):
        raise CompilerError(f"stmatrix: regs is a uint32 array (32, registers), not {regs}")
    registers, lanes, lane, byte = _move("stmatrix", (num, trans, shape, type))

    def store(smem, addr, regs, num=1, trans=False, shape="m8n8", type="b16", threads=None):
        if regs.shape != (32, registers):
            raise ShapeError("stmatrix: regs is not (32, registers) with as many registers as this form has")
        checked(addr, lanes, smem.size)
        scattered(smem, addr, lane, byte, np.ascontiguousarray(regs).reshape(-1).view(np.uint8))

    return store


def _transpose(regs, threads=None):
    if not (isinstance(regs, types.Array) and regs.dtype == types.uint32 and regs.ndim == 1):
        raise CompilerError(f"movmatrix takes a uint32 array of 32 registers, one a lane, not {regs}")
    order = transposition()

    def transpose(regs, threads=None):
        if regs.size != 32:
            raise ShapeError("movmatrix takes 32 registers, one a lane")
        halves = np.ascontiguousarray(regs).view(np.uint16)
        out = np.empty(32, np.uint32)
        moved = out.view(np.uint16)
        for n in range(64):
            moved[n] = halves[order[n]]
        return out

    return transpose


def register(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Teach Numba `ldmatrix`, `stmatrix` and `movmatrix`."""
    overload(functions["ldmatrix"], prefer_literal=True)(_load)
    overload(functions["stmatrix"], prefer_literal=True)(_store)
    overload(functions["movmatrix"])(_transpose)
