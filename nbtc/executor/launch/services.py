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
from nbtc.executor.emit.slots import TEXTURE_TABLE, WATCH_WORDS, WORD_BYTES
from nbtc.executor.texture.objects import objects

POLL_SECONDS = 0.05  # how often a caller that waits for a compilation looks for Ctrl-C


class Service(NamedTuple):
    """One function: how many pointers or 64-bit words it takes, and what compiles it (its result has `.address`).

    What few programs need is imported when it is compiled.
    """

    pointers: int
    compile: Callable[[], Any]


def _product(size: int) -> Any:
    from nbtc.executor.matrix.product_general import function

    return function(size)


def _tile_copy() -> Any:
    from nbtc.executor.transfer.tma_service import tile

    return tile()


def _elements_reduced() -> Any:
    from nbtc.executor.transfer.tma_service import elements

    return elements()


def _texture() -> Any:
    from nbtc.executor.texture.service import warp

    return warp()


def _watch(index: int) -> Any:
    from nbtc.executor.watch.service import KERNELS, entry

    return entry(KERNELS[index])


SERVICES: tuple[Service, ...] = (  # in the order of `emit.slots`
    *(Service(6, partial(_product, size)) for size in WORD_BYTES),
    Service(1, _tile_copy),
    Service(1, _elements_reduced),
    Service(1, _texture),
    *(Service(words, partial(_watch, n)) for n, words in enumerate(WATCH_WORDS)),
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
