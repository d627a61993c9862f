"""Memory for large results, lent to an array and taken back when nobody uses it any more.

The system clears fresh pages: for a large batch that costs a third of the arithmetic.  Allocators keep freed blocks up
to 32 MiB (glibc); this keeps one block somewhat larger.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAST, MOST = 1 << 20, 1 << 27  # bytes; below, an allocator keeps them itself
LINE = 64


class _Loan:
    """What a lent array and all views of it hold on to."""

    def __init__(self, pages: NDArray[np.uint8], shelf: list[NDArray[np.uint8]]) -> None:
        self.pages, self.shelf = pages, shelf
        self.__array_interface__ = pages.__array_interface__

    def __del__(self) -> None:
        self.shelf[:] = [self.pages]  # one block: the newest


_SHELF: list[NDArray[np.uint8]] = []


def _pages(size: int) -> NDArray[np.uint8]:
    """The block kept, if it fits and is not twice too large, or a new one."""
    try:
        found = _SHELF.pop()
    except IndexError:  # nothing kept, or another thread was quicker
        return np.empty(size, np.uint8)
    return found if size <= found.size <= 2 * size else np.empty(size, np.uint8)


def empty(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An uninitialised array on a cache line.

    >>> empty((2, 3), np.uint32).ctypes.data % 64
    0
    """
    count = int(np.prod(shape, dtype=np.int64))
    size = count * np.dtype(dtype).itemsize
    large = LEAST <= size <= MOST
    raw = np.asarray(_Loan(_pages(size + LINE), _SHELF)) if large else np.empty(size + LINE, np.uint8)
    first = -raw.ctypes.data % LINE
    out: NDArray[Any] = raw[first : first + size].view(dtype).reshape(shape)
    return out
