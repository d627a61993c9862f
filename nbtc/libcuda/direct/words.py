"""The shared memory itself, and what others say when something that compiled calls take for granted has changed."""

from __future__ import annotations

import ctypes
from typing import Any

from nbtc.libcuda.arena import LEAST, reserve
from nbtc.libcuda.direct import layout

WIPE_ON_FORK = 18  # MADV_WIPEONFORK, from Linux 4.14 on
TABLE_AT = layout.HEADER + layout.THREADS * layout.SLOT  # after the slots: the table of allocations
MOST_BLOCKS = 1 << 16  # allocations that it holds

_libc = ctypes.CDLL(None)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Words:
    """The memory by words; `address` is 0 where a forked child would see it, so that nothing may be in it."""

    def __init__(self) -> None:
        count = TABLE_AT + 2 * MOST_BLOCKS
        first, size = reserve(max(LEAST, layout.WORD * count))
        self.at: Any = memoryview((ctypes.c_uint64 * count).from_address(first)).cast("B").cast("Q")
        self.address = 0 if _libc.madvise(first, size, WIPE_ON_FORK) else first
        self.at[layout.EPOCH] = 1
        self.at[layout.TABLE] = first + layout.WORD * TABLE_AT
        self.at[layout.TABLE_VERSION] = (1 << 64) - 1  # of no memory


words = Words()


def changed() -> None:
    """A context, module, stream or capture is another than it was: compiled calls ask Python again."""
    words.at[layout.EPOCH] += 1


def memory_changed(version: int) -> None:
    """The device's allocations are others."""
    words.at[layout.VERSION] = version


def errors_waiting(count: int) -> None:
    """So many threads have an error of the runtime that nobody has asked for."""
    words.at[layout.ERRORS] = count


def guard(low: int, high: int) -> bool:
    """Addresses that are no memory of the host's; False where there is no place for more."""
    for i in range(layout.MOST_GUARDS):
        at = layout.GUARDS + 2 * i
        if not words.at[at + 1]:
            words.at[at], words.at[at + 1] = low, high
            return True
    return False
