"""Functions of the host that programs call through pointers: compiled when a program first needs one.

A launch hands its program the address of a table of pointers (`Table.words`).  Until its function is compiled, a
pointer leads to a callback that compiles it, puts the real address in its place, and goes on there: nothing absolute
stands in a program's code, and a program that never needs a function never waits for it.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from nbtc.executor import product_general, tma_service
from nbtc.executor.watch import service as watch_service


class Service(NamedTuple):
    """One function: how many pointers or 64-bit words it takes, and what compiles it (its result has `.address`)."""

    pointers: int
    compile: Callable[[], Any]


SERVICES: tuple[Service, ...] = (
    *(Service(6, lambda size=size: product_general.function(size)) for size in product_general.SIZES),  # type: ignore[misc]
    Service(1, tma_service.tile),
    Service(1, tma_service.elements),
    *(Service(watch_service.words(k), partial(watch_service.entry, k)) for k in watch_service.KERNELS),
)
TILE_COPY = len(product_general.SIZES)  # the slots of the table
REDUCE_ELEMENTS = TILE_COPY + 1
WATCH = REDUCE_ELEMENTS + 1  # of its first kernel


class Table:
    """The pointers of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        kinds = [ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * s.pointers) for s in SERVICES]
        self._callbacks = [kind(self._first(n, kind)) for n, kind in enumerate(kinds)]
        self.words = np.array([ctypes.cast(c, ctypes.c_void_p).value for c in self._callbacks], np.uint64)

    def _first(self, slot: int, kind: Any) -> Any:
        def compile_and_go_on(*pointers: int) -> None:
            with self._lock:
                address = SERVICES[slot].compile().address
            self.words[slot] = address
            kind(address)(*pointers)

        return compile_and_go_on


@cache
def table() -> Table:
    """The table of this process."""
    return Table()
