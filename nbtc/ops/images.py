"""Batches of register images, uint32 (..., 32, registers): broadcast, and made flat for compiled code; their memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.errors import FormatError, ShapeError
from nbtc.formats.arrays import as_array

Words = NDArray[np.uint32]
Bytes = NDArray[np.uint8]


def byte_memory(x: Any, name: str) -> Bytes:
    """Memory as an array of bytes, uint8 (..., bytes); name: what it is, in messages."""
    memory = as_array(x)
    if memory.dtype != np.uint8:
        raise FormatError(
            f"{name} has dtype {memory.dtype}; it is bytes, uint8 (..., bytes): pass it as .view(np.uint8)"
        )
    if memory.ndim < 1:
        raise ShapeError(f"{name} is a scalar; it must be uint8 (..., bytes), for example np.zeros(1024, np.uint8)")
    return memory


def batch(operands: list[tuple[str, Words, int]], mnemonic: str) -> tuple[int, ...]:
    """The broadcast shape of the leading axes of (name, array, own axes)."""
    shapes = [x.shape[: x.ndim - own] for _, x, own in operands]
    first = shapes[0]
    if all(s == first for s in shapes):
        return first
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        given = ", ".join(f"{name} {x.shape}" for name, x, _ in operands)
        raise ShapeError(
            f"leading axes of the operands of {mnemonic} do not broadcast: {given}; they count warps, so give every "
            "operand "
            "the same ones, or none (one warp's registers are then used for all)"
        ) from None


def flat(x: Words, own: int, lead: tuple[int, ...]) -> tuple[Words, int]:
    """(contiguous 1-D words, words from one warp to the next: 0 when all warps share them)."""
    shape = x.shape[: x.ndim - own]
    size = 1
    for n in x.shape[x.ndim - own :]:
        size *= n
    if shape != lead:
        if all(n == 1 for n in shape):
            return np.ascontiguousarray(x).reshape(-1), 0
        x = np.broadcast_to(x, lead + x.shape[x.ndim - own :])
    return np.ascontiguousarray(x).reshape(-1), size
