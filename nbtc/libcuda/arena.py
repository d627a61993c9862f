"""Address space of the device's own: what is freed there is never Python's, so a stale pointer can't reach that.

A range is reserved once, which takes no memory until it is touched.  Blocks are given by first fit; what is given back
joins its neighbours, and its whole pages return to the system.  What other processes may be let into lies in a file in
memory (`shared`); a forked child doesn't inherit that, where it would write to its parent's.
"""

from __future__ import annotations

import ctypes
import os
import threading
from bisect import bisect_left, insort
from typing import Any

from nbtc.libcuda.errors import OUT_OF_MEMORY, CudaError

READ_WRITE, SHARED, PRIVATE, ANONYMOUS, NO_RESERVE = 3, 1, 2, 32, 0x4000  # PROT_*, MAP_*
DONT_NEED, DONT_FORK = 4, 10  # MADV_*
KEEP_SIZE, PUNCH_HOLE = 1, 2  # FALLOC_FL_*
PAGE = 4096
LEAST = 1 << 24  # bytes: a smaller reservation would be no device
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
_FAILED = ctypes.c_void_p(-1).value


def reserve(size: int, file: int = -1, offset: int = 0) -> tuple[int, int]:
    """Address space of that size, or of as much as the system gives: of a file, or of memory alone."""
    flags = NO_RESERVE | (PRIVATE | ANONYMOUS if file < 0 else SHARED)
    while size >= LEAST:
        found: Any = _libc.mmap(None, size, READ_WRITE, flags, file, offset)
        if found not in (None, _FAILED):
            return int(found), size
        size //= 2
    raise CudaError(OUT_OF_MEMORY)


def file_in_memory(name: str, size: int) -> int:
    """The descriptor of a file of zeros that has no place on disk, for programs that are not executed later on."""
    file = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        os.ftruncate(file, size)
    except OSError:
        os.close(file)
        raise
    return file


class Arena:
    """Reserved address space, from which blocks are taken; with a name, that of a file in memory, after its header."""

    def __init__(self, size: int, name: str = "", header: int = 0) -> None:
        self.header, self._process = header, os.getpid()
        try:
            self.file = file_in_memory(name, header + size) if name else -1
        except OSError:  # a system without such files: nobody else is let in
            self.file = -1
        self.low, length = reserve(size, self.file, header if self.file >= 0 else 0)
        self.high = self.low + length
        if self.file >= 0:
            _libc.madvise(self.low, length, DONT_FORK)
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

    def _empty(self, first: int, size: int) -> None:
        if self.file < 0:
            _libc.madvise(first, size, DONT_NEED)
        elif os.getpid() == self._process:
            _libc.fallocate(self.file, PUNCH_HOLE | KEEP_SIZE, self.header + first - self.low, size)

    def give(self, at: int) -> None:
        """Take a block back."""
        with self._lock:
            size = self._sizes.pop(at)
            first, last = -(-at // PAGE) * PAGE, (at + size) // PAGE * PAGE
            if last > first:
                self._empty(first, last - first)
            i = bisect_left(self._free, (at, 0))
            if i < len(self._free) and self._free[i][0] == at + size:
                size += self._free.pop(i)[1]
            if i and sum(self._free[i - 1]) == at:
                before, length = self._free.pop(i - 1)
                at, size = before, length + size
            insort(self._free, (at, size))
