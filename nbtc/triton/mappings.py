"""What memory of the process addresses lie in: the extent of what a kernel may reach by a table of pointers.

Linux lists the process's mappings.  A mapping is larger than the array in it, so an access from one array to another of
the same mapping is not noticed; one that leaves it is an error, and not the process's end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAPS = Path("/proc/self/maps")
KERNEL = 1 << 47  # addresses from here up are not the process's


def mappings() -> list[tuple[int, int, bool]] | None:
    """(first byte, end, whether it may be written) of readable memory, ascending; None where the host does not tell."""
    try:
        lines = MAPS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    out: list[tuple[int, int, bool]] = []
    for line in lines:
        extent, rights, *_ = line.split(maxsplit=2)
        first, end = (int(x, 16) for x in extent.split("-"))
        if rights[0] != "r" or end > KERNEL:
            continue
        writable = rights[1] == "w"
        if out and out[-1][1:] == (first, writable):
            first = out.pop()[0]
        out.append((first, end, writable))
    return out


def memory_at(addresses: NDArray[Any], owner: Any = None) -> list[NDArray[Any]] | None:
    """The mappings that some of these 64-bit words lie in, as bytes; None where the host does not tell."""
    known = mappings()
    if known is None:
        return None
    words = np.unique(addresses.reshape(-1).view(np.uint64))
    at = np.searchsorted(np.array([first for first, *_ in known], np.uint64), words, side="right").astype(np.int64) - 1
    ends = np.array([end for _, end, _ in known], np.uint64)
    found = sorted(set(at[(at >= 0) & (words < ends[np.maximum(at, 0)])].tolist()))
    return [np.asarray(Bytes(known[n][0], known[n][1] - known[n][0], owner, not known[n][2])) for n in found]


class Bytes:
    """Bytes at an address, which their owner keeps alive."""

    def __init__(self, first: int, count: int, owner: Any, read_only: bool = False) -> None:
        self.owner = owner
        self.__array_interface__ = {"data": (first, read_only), "shape": (count,), "typestr": "|u1", "version": 3}
