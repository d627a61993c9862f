"""Memory for large results: an array's own while anything uses it, free for another one afterwards.

The system clears fresh pages: for a large batch that costs a third of the arithmetic.  Allocators keep freed blocks up
to 32 MiB (glibc); this keeps one block somewhat larger.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAST, MOST = 1 << 20, 1 << 27  # bytes; below, an allocator keeps them itself
LINE = 64


class _Owner:
    """What an array of the pool and all views of it hold on to."""

    def __init__(self, pages: NDArray[np.uint8], free: list[NDArray[np.uint8]]) -> None:
        self.pages, self.free = pages, free
        self.__array_interface__ = pages.__array_interface__

    def __del__(self) -> None:
        self.free[:] = [self.pages]  # one block: the newest


_FREE: list[NDArray[np.uint8]] = []


def _pages(size: int) -> NDArray[np.uint8]:
    """The block kept, if it fits and is not twice too large, or a new one."""
    try:
        found = _FREE.pop()
    except IndexError:  # nothing kept, or another thread was quicker
        return np.empty(size, np.uint8)
    return found if size <= found.size <= 2 * size else np.empty(size, np.uint8)


def empty(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An uninitialised array on a cache line.

    >>> empty((2, 3), np.uint32).ctypes.data % 64
    0
    """
    size = prod(shape) * np.dtype(dtype).itemsize
    large = LEAST <= size <= MOST
    raw = np.asarray(_Owner(_pages(size + LINE), _FREE)) if large else np.empty(size + LINE, np.uint8)
    first = -raw.ctypes.data % LINE
    out: NDArray[Any] = raw[first : first + size].view(dtype).reshape(shape)
    return out
