"""Where a caller wants the result: an array, a file mapped to memory, anything with a shape, a dtype and items to set.

A result that goes to `out` is made in blocks of rows, so that no second buffer of its size exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.errors import FormatError, OptionError, ShapeError
from nbtc.formats.arrays import as_array, is_tensor
from nbtc.formats.table import Format
from nbtc.gemm.problem import Shape

BLOCK_BYTES = 64 << 20  # of a block of the result
BLOCK_ROWS = 512  # at least: packing B again for each block then costs less than a hundredth of the arithmetic
Block = tuple[slice, slice]  # of the first batch axis, of rows


def destination(out: Any) -> Any:
    """A torch tensor as the array that shares its memory, anything else as it is."""
    return as_array(out) if is_tensor(out) else out


def check_out(out: Any, shape: Shape, acc: Format) -> None:
    """out must be a writeable array that holds the result."""
    works = f"pass np.empty({shape}, {str(acc.dtype)!r})"
    if not (hasattr(out, "__setitem__") and hasattr(out, "shape") and hasattr(out, "dtype")):
        raise FormatError(
            f"out is a {type(out).__name__}, neither a NumPy array nor one that has shape, dtype and items: {works}"
        )
    if tuple(out.shape) != shape:
        raise ShapeError(f"out has shape {tuple(out.shape)}, the result has {shape}: {works}")
    if out.dtype != acc.dtype:
        raise FormatError(f"out is {out.dtype}, the accumulator is {acc.name}: {works}")
    if isinstance(out, np.ma.MaskedArray):
        raise FormatError(
            f"out is a masked array of shape {out.shape}, and nbtc has no rule for elements that are masked: pass "
            "out.data, which the result fills whole"
        )
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise OptionError(f"out of shape {out.shape} is read-only: pass a writeable array such as np.empty_like(out)")
    if isinstance(out, np.ndarray) and _overlaps_itself(out):
        raise OptionError(
            f"out of shape {out.shape} and strides {out.strides} has elements that share memory, where a result would "
            f"overwrite another one: {works}"
        )


def _overlaps_itself(x: NDArray[Any]) -> bool:
    """Whether a step along an axis stays within what the axes of smaller strides cover.

    An array of such strides may still have no two elements in one place, as (3, 2) bytes with strides (2, 3)
    do; no slice or transposition makes one, so they are not looked for.
    """
    covered = x.itemsize
    for stride, count in sorted((abs(s), n) for s, n in zip(x.strides, x.shape, strict=True) if n > 1):
        if stride < covered:
            return x.size > 0
        covered = stride * (count - 1) + covered
    return False


def rows_at_once(out: Any, operands: tuple[NDArray[Any] | None, ...], c: NDArray[Any] | None) -> int | None:
    """Rows that blocks of the result are multiples of; None where the result must be whole before `out` is written."""
    if out is None:
        return None
    if isinstance(out, np.ndarray):
        same = c is not None and c.shape == out.shape and c.strides == out.strides and c.ctypes.data == out.ctypes.data
        if any(x is not None and np.may_share_memory(out, x) for x in (*operands, None if same else c)):
            return None
    chunks = getattr(out, "chunks", None)
    return int(chunks[-2]) if isinstance(chunks, tuple) and len(chunks) > 1 else 1


def block_shape(shape: Shape, itemsize: int, rows: int | None) -> Shape:
    """The shape (batch..., rows, N) of the largest block of a result (batch..., M, N)."""
    *batch, m, n = shape
    if rows is None or prod(shape) * itemsize <= BLOCK_BYTES:
        return shape
    one = prod(batch[1:]) * m * n * itemsize
    if batch and one <= BLOCK_BYTES:
        return (min(batch[0], BLOCK_BYTES // one), *shape[1:])
    inner = max(1, prod(batch[1:]) * n * itemsize)
    least = max(BLOCK_ROWS, BLOCK_BYTES // inner)
    return (*(1 for _ in batch[:1]), *batch[1:], min(m, -(-least // rows) * rows), n)


def blocks(shape: Shape, block: Shape) -> Iterator[Block]:
    """Slices of the first batch axis (of everything where there is none) and of the rows."""
    batched = len(shape) > 2
    items, per = (shape[0], block[0]) if batched else (1, 1)
    for i in range(0, items, max(1, per)):
        for j in range(0, shape[-2], max(1, block[-2])):
            yield slice(i, min(items, i + per)), slice(j, min(shape[-2], j + block[-2]))


def cut(x: NDArray[Any], at: Block, rank: int, *, rows: bool) -> NDArray[Any]:
    """The part of an operand that broadcasts to `rank` axes which a block of the result needs."""
    if rank > 2 and x.ndim == rank and x.shape[0] > 1:
        x = x[at[0]]
    return x[..., at[1], :] if rows and x.ndim > 1 and x.shape[-2] > 1 else x
