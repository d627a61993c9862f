"""Workspaces kept from product to product: fresh pages cost 3 % of a large product, a fifth of a small one."""

from __future__ import annotations

from threading import local
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST, KEPT = 1 << 17, 6  # elements of the largest array that is kept (1 MiB); how many workspaces a thread keeps
Key = tuple[tuple[int, str], ...]  # (elements, dtype) of each array of a workspace
Arrays = tuple[NDArray[Any], ...]


def aligned(count: int, dtype: Any) -> NDArray[Any]:
    """An uninitialised array on a 64-byte boundary."""
    size = np.dtype(dtype).itemsize
    raw = np.empty(count * size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + count * size].view(dtype)


class WorkspacePool(local):
    """Each thread's own.  What is taken is gone until it is given back, so a progress callback may multiply too."""

    def __init__(self) -> None:
        self.free: dict[Key, Arrays] = {}

    def take(self, key: Key) -> Arrays:
        """Aligned arrays with any contents."""
        return self.free.pop(key, None) or tuple(aligned(*x) for x in key)

    def give(self, key: Key, arrays: Arrays) -> None:
        """Keep them for the next product, in place of the oldest if need be."""
        if max(key)[0] <= MOST:
            if len(self.free) >= KEPT:
                del self.free[next(iter(self.free))]
            self.free[key] = arrays


WORKSPACE_POOL = WorkspacePool()
