"""Memory of fused products: operands as flat elements, and what packed ones take."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.pools.workspace_pool import Key
from nbtc.kernels.panels import panel as micro
from nbtc.kernels.panels.fused_sum import PANEL, ROWS
from nbtc.kernels.panels.panel_operands import Packing
from nbtc.kernels.panels.panel_pack import sign_size

ROW_BLOCK = ROWS * micro.BLOCKS
SPACE = (micro.SCRATCH // 4, "<u4"), (2 * ROW_BLOCK * PANEL, "<f4")  # scratch and tiles of the micro-kernel


def storage(packing: Packing, n: int, exponent: int, sign: int) -> Key:
    """Values, exponents and sign words of n elements, in words of eight bytes; bytes of each of the two."""
    sizes = n * (8 if packing.in_f64 else 4), n * exponent, n // packing.block * sign
    return tuple((size // 8, "<u8") for size in sizes)


def columns_storage(packing: Packing, panels: int, places: int) -> Key:
    """What panels of B take."""
    return storage(packing, panels * PANEL * places, 2 if packing.full_range else 1, sign_size(packing))


def rows_storage(packing: Packing, places: int, size: int) -> Key:
    """What a thread needs for 64 rows of A, of elements of `size` bytes: a `Workspace`."""
    return *storage(packing, ROW_BLOCK * places, 4, 4), *SPACE, (ROW_BLOCK * places * size, "|u1")


def contiguous(x: NDArray[Any]) -> NDArray[Any]:
    """A C-order writeable array of the same elements: compiled code has one specialisation, whatever came in."""
    x = np.ascontiguousarray(x)
    return x if x.flags.writeable else x.copy()


def flat(x: NDArray[Any], i: int, rows: int, j: int, columns: int) -> tuple[NDArray[Any], int, int]:
    """A block of a matrix as flat elements: (array, the block's first element, elements from row to row).

    Without a copy where x lies in C order; a transposed or read-only operand is copied a block at a time.
    """
    if x.flags.c_contiguous and x.flags.writeable:
        return x.reshape(-1), i * x.shape[1] + j, x.shape[1]
    return contiguous(x[i : i + rows, j : j + columns]).reshape(-1), 0, columns
