"""Functions of the host that programs call through pointers: compiled when a program first needs one.

A launch hands its program the address of a table of pointers (`ServiceTable.words`).  Until its function is compiled, a
pointer leads to a callback that compiles it, puts the real address in its place, and goes on there: nothing absolute
stands in a program's code, and a program that never needs a function never waits for it.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import wait
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from nbtc.compiler.threads import in_background
from nbtc.executor.emit.slots import TEXTURE_TABLE, WORD_BYTES
from nbtc.executor.matrix import product_general
from nbtc.executor.texture import service as texture_service
from nbtc.executor.texture.objects import objects
from nbtc.executor.transfer import tma_service
from nbtc.executor.watch import service as watch_service

POLL_SECONDS = 0.05  # how often a caller that waits for a compilation looks for Ctrl-C


class Service(NamedTuple):
    """One function: how many pointers or 64-bit words it takes, and what compiles it (its result has `.address`)."""

    pointers: int
    compile: Callable[[], Any]


SERVICES: tuple[Service, ...] = (  # in the order of `emit.slots`
    *(Service(6, lambda size=size: product_general.function(size)) for size in WORD_BYTES),  # type: ignore[misc]
    Service(1, tma_service.tile),
    Service(1, tma_service.elements),
    Service(1, texture_service.warp),
    *(Service(watch_service.words(k), partial(watch_service.entry, k)) for k in watch_service.KERNELS),
)


class ServiceTable:
    """The pointers of this process."""

    def __init__(self) -> None:
        self._lock, self._compiled = threading.Lock(), set[int]()
        kinds = [ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * s.pointers) for s in SERVICES]
        self._callbacks = [kind(self._first(n, kind)) for n, kind in enumerate(kinds)]
        pointers = [ctypes.cast(c, ctypes.c_void_p).value for c in self._callbacks]
        self.words = np.array([objects.address, *pointers], np.uint64)[-TEXTURE_TABLE:]

    def prepare(self, slots: Iterable[int]) -> None:
        """Compile functions that a launch is sure to need, while Ctrl-C still ends the call."""
        for slot in slots:
            if slot not in self._compiled:
                task = in_background(self._compile, slot)
                while not task.done():
                    wait({task}, timeout=POLL_SECONDS)
                task.result()

    def _compile(self, slot: int) -> int:
        with self._lock:
            address = int(SERVICES[slot].compile().address)
        self.words[slot] = address
        self._compiled.add(slot)
        return address

    def _first(self, slot: int, kind: Any) -> Any:
        def compile_and_go_on(*pointers: int) -> None:
            kind(self._compile(slot))(*pointers)

        return compile_and_go_on


@cache
def table() -> ServiceTable:
    """The table of this process."""
    return ServiceTable()
