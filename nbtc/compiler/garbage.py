"""Cycles of garbage are looked for rarely while something is compiled.

A compilation makes hundreds of thousands of objects, and most die with their references.  Python looks for cycles at
every 700th new one, and through all of them at some: a tenth of the time that a first product takes (measured).
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Any, TypeVar, cast

from nbtc.forks import taken_by_forks

F = TypeVar("F", bound=Callable[..., Any])
BETWEEN = 200_000  # new objects between two looks: a first product takes 20 of 240 MB more


class _Rarely:
    """A context, of several threads at once too: Python's thresholds come back when the last one leaves it."""

    def __init__(self) -> None:
        self.lock, self.inside, self.before = RLock(), 0, gc.get_threshold()  # a finalizer may compile something

    def __enter__(self) -> None:
        with self.lock:
            if not self.inside:
                self.before = gc.get_threshold()
                if 0 < self.before[0] < BETWEEN:  # 0: never
                    gc.set_threshold(BETWEEN, *self.before[1:])
            self.inside += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside = max(0, self.inside - 1)
            if not self.inside:
                self._restore()

    def _restore(self) -> None:
        if gc.get_threshold()[0] == BETWEEN:  # otherwise somebody has set others meanwhile
            gc.set_threshold(*self.before)

    def in_child(self) -> None:
        """After a fork only the thread that forked is left."""
        if self.inside:
            self.inside = 0
            self._restore()


_RARELY = _Rarely()
taken_by_forks("garbage", _RARELY.lock.acquire, _RARELY.lock.release)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_RARELY.in_child)


def rarely_collected(function: F) -> F:
    """A function that compiles, during which garbage is looked for rarely."""

    @wraps(function)
    def inside(*args: Any, **options: Any) -> Any:
        with _RARELY:
            return function(*args, **options)

    return cast(F, inside)
