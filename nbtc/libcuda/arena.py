"""Address space of the device's own: what is freed there is never Python's, so a stale pointer can't reach that.

A range is reserved once, which takes no memory until it is touched.  Blocks are given by first fit; what is given back
joins its neighbours, and its whole pages return to the system.
"""

from __future__ import annotations

import ctypes
import threading
from bisect import bisect_left, insort
from typing import Any

from nbtc.libcuda.errors import OUT_OF_MEMORY, CudaError

READ_WRITE, PRIVATE, ANONYMOUS, NO_RESERVE = 3, 2, 32, 0x4000  # PROT_*, MAP_*
DONT_NEED = 4  # MADV_DONTNEED
PAGE = 4096
LEAST = 1 << 24  # bytes: a smaller reservation would be no device
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_FAILED = ctypes.c_void_p(-1).value


def reserve(size: int) -> tuple[int, int]:
    """Address space of that size, or of as much as the system gives."""
    while size >= LEAST:
        found: Any = _libc.mmap(None, size, READ_WRITE, PRIVATE | ANONYMOUS | NO_RESERVE, -1, 0)
        if found not in (None, _FAILED):
            return int(found), size
        size //= 2
    raise CudaError(OUT_OF_MEMORY)


class Arena:
    """Reserved address space, from which blocks are taken."""

    def __init__(self, size: int) -> None:
        self.low, length = reserve(size)
        self.high = self.low + length
        self._free = [(self.low, length)]  # sorted by address
        self._sizes: dict[int, int] = {}
        self._lock = threading.Lock()

    def take(self, size: int, align: int, after: int = 0) -> int:
        """The address of a block, `after` bytes after a multiple of `align`."""
        with self._lock:
            for i, (first, length) in enumerate(self._free):
                at = -((after - first) // align) * align + after
                if at + size <= first + length:
                    rest = [(first, at - first), (at + size, first + length - at - size)]
                    self._free[i : i + 1] = [piece for piece in rest if piece[1]]
                    self._sizes[at] = size
                    return at
        raise CudaError(OUT_OF_MEMORY)

    def give(self, at: int) -> None:
        """Take a block back."""
        with self._lock:
            size = self._sizes.pop(at)
            first, last = -(-at // PAGE) * PAGE, (at + size) // PAGE * PAGE
            if last > first:
                _libc.madvise(first, last - first, DONT_NEED)
            i = bisect_left(self._free, (at, 0))
            if i < len(self._free) and self._free[i][0] == at + size:
                size += self._free.pop(i)[1]
            if i and sum(self._free[i - 1]) == at:
                before, length = self._free.pop(i - 1)
                at, size = before, length + size
            insort(self._free, (at, size))
