"""Tensor memory: 128 lanes of 512 words, its allocation, and which operations on it are complete.

Results are in the array when a call returns; what the program may rely on is tracked beside it, so that a missing wait
or fence raises as it would corrupt results on the hardware.  (PTX ISA, "Tensor Memory", "tcgen05 Memory Consistency".)
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nbtc.errors import BoundsError, HazardError, OptionError, shown, whole_number

LANES, COLUMNS, LEAST = 128, 512, 32
Region = tuple[int, int]  # columns first..last


@dataclass
class PendingOperations:
    """An asynchronous operation: its name, what it writes and reads, bytes of shared memory that must not change."""

    name: str
    writes: Region
    reads: tuple[Region, ...] = ()
    source: tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint8]] | None = None
    committed: bool = False


def tensor_address(given: object) -> int:
    """An address of tensor memory; OptionError for what is none."""
    found = whole_number(given)
    if found is None or not 0 <= found < 1 << 32:
        raise OptionError(f"address {shown(given)}: pass a 32-bit number, lane << 16 | column, such as `alloc` returns")
    return found


@dataclass(eq=False)
class TensorMemory:
    """The tensor memory of one CTA: `words` is a uint32 array of 128 lanes x 512 columns.

    check: "raise" (a broken ordering rule raises HazardError), or False.

    >>> t = TensorMemory()
    >>> t.words.shape, hex(t.alloc(64)), hex(t.alloc(32))
    ((128, 512), '0x0', '0x40')
    """

    words: NDArray[np.uint32] = field(default_factory=lambda: np.zeros((LANES, COLUMNS), np.uint32))
    check: str | bool = "raise"
    allocated: dict[int, int] = field(default_factory=dict)
    pending: list[PendingOperations] = field(default_factory=list)
    needs_fence: bool = False
    relinquished: bool = False

    def alloc(self, columns: int) -> int:
        """The address (lane 0) of newly allocated columns: a power of two, 32 to 512."""
        if whole_number(columns) not in (32, 64, 128, 256, 512):
            raise OptionError(f"alloc({shown(columns)}): columns are a power of two from 32 to 512; try 64")
        if self.relinquished:
            raise HazardError("alloc after relinquish_alloc_permit: a CTA that gave up the permit allocates no more")
        if self.allocated and columns > max(self.allocated.values()):
            raise OptionError(
                f"alloc({columns}): not larger than an earlier allocation ({max(self.allocated.values())})"
            )
        for first in range(0, COLUMNS, columns):
            if all(first + columns <= a or a + n <= first for a, n in self.allocated.items()):
                self.allocated[first] = columns
                return first
        raise HazardError(f"alloc({columns}) would block for ever: allocated are {self.allocated}; dealloc some first")

    def dealloc(self, address: int, columns: int) -> None:
        """Free what `alloc` gave."""
        first, count = tensor_address(address) & 0xFFFF, whole_number(columns)
        if count is None or self.allocated.get(first) != count:
            raise OptionError(
                f"dealloc({shown(address)}, {shown(columns)}): allocated are {self.allocated}; pass one of these"
            )
        self.uses("dealloc", [(first, first + count)])
        del self.allocated[first]

    def region(self, address: int, columns: int, what: str) -> Region:
        """Columns of an access, inside of the allocations (of the whole memory while nothing is allocated)."""
        first = tensor_address(address) & 0xFFFF
        inside = any(a <= first and first + columns <= a + n for a, n in self.allocated.items())
        if first + columns > COLUMNS or (self.allocated and not inside):
            raise BoundsError(
                f"{what} at {address:#x} reaches columns {first} to {first + columns - 1}; allocated are "
                f"{self.allocated or '512 columns'}: allocate them first"
            )
        return first, first + columns

    def uses(self, what: str, regions: list[Region], ordered: tuple[str, ...] = ()) -> None:
        """Raise where an operation meets columns of an incomplete one that it is not ordered after."""
        if not self.check:
            return
        for p in self.pending:
            touched = [r for r in regions for other in (p.writes, *p.reads) if r[0] < other[1] and other[0] < r[1]]
            if touched and p.name not in ordered:
                wait = "wait_st" if p.name == "st" else "commit, wait on its barrier"
                raise HazardError(
                    f"{what} touches columns {touched[0]} of a {p.name} that is not complete: {wait} first"
                )
        if self.needs_fence and what in ("ld", "st"):
            raise HazardError(f"{what} after a wait on a commit needs fence_after_thread_sync between the two")

    def commit(self) -> None:
        """tcgen05.commit: the barrier will tell when all products and copies so far are complete."""
        for p in self.pending:
            p.committed |= p.name in ("mma", "cp")

    def wait(self) -> None:
        """The wait on a commit's barrier."""
        if not any(p.committed for p in self.pending) and self.check:
            raise HazardError("a wait without a commit before it never ends: call commit first")
        for p in (p for p in self.pending if p.committed and p.source is not None and self.check):
            if p.source is not None and not np.array_equal(p.source[0][p.source[1]], p.source[2]):
                raise HazardError(f"shared memory that a {p.name} reads was changed before it was complete")
        self.pending = [p for p in self.pending if not p.committed]
        self.needs_fence = True

    def wait_st(self) -> None:
        """tcgen05.wait::st: the thread's stores to tensor memory are complete."""
        self.pending = [p for p in self.pending if p.name != "st"]

    def fence(self) -> None:
        """tcgen05.fence::after_thread_sync."""
        self.needs_fence = False
