"""Memory of checked launches, kept from one launch to the next.

Fresh pages cost more than what is written to them: the checked launch of a product of 256^3 took a millisecond of seven
for them, with NumPy's pages of 2 MiB as with the system's of 4 KiB.
"""

from __future__ import annotations

import mmap
import weakref
from threading import Lock

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.int64]
WORD = 8
MOST_KEPT = 1 << 27  # bytes in all, of which launches have touched a part
_LOCK = Lock()
_free: list[Words] = []  # the oldest first


class Pages:
    """The memory of one launch, which others get when this object is gone."""

    def __init__(self) -> None:
        self._taken: list[Words] = []
        weakref.finalize(self, _give_back, self._taken)

    def rows(self, count: int, each: int, zeros: bool) -> Words:
        """So many rows of words, of so many bytes each: of zeros, or of what an earlier launch left there."""
        size = count * each
        with _LOCK:
            fitting = [n for n, x in enumerate(_free) if size <= x.nbytes <= 2 * size]
            found = _free.pop(min(fitting, key=lambda n: _free[n].nbytes)) if fitting else None
        used = found is not None
        found = fresh(size) if found is None else found
        self._taken.append(found)
        rows = found[: size // WORD].reshape(count, each // WORD)
        if zeros and used:
            rows[:] = 0
        return rows


def _give_back(taken: list[Words]) -> None:
    with _LOCK:
        _free.extend(taken)
        while sum(x.nbytes for x in _free) > MOST_KEPT:
            del _free[0]


def fresh(size: int) -> Words:
    """Zeros that take memory once they are touched, in the system's small pages: launches touch few of them.

    They are not mapped without a reservation (Linux's MAP_NORESERVE): a launch that does touch 4 GiB would then end the
    process, or another, where the host has no 80 GiB.
    """
    if size == 0:
        return np.zeros(0, np.int64)
    try:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"{size} bytes") from error
    return np.frombuffer(pages, np.int64)
