"""Locks that are free in a forked child, which has only the thread that forked.

A child would wait for ever for a lock that another thread held.  So a fork takes each of them first, in one order, in
which every thread that takes two takes them too: hooks of their own, as each module could have, would depend on which
module was imported first.
"""

from __future__ import annotations

import os
from threading import RLock

TYPE_CHECKING = False  # see nbtc/__init__.py
if TYPE_CHECKING:
    from collections.abc import Callable

# The order.  Whoever compiles may import; imports call llvmlite; the last two take no other lock.
ORDER = ("threads", "compiler", "imports", "llvm", "emission", "llvmlite", "garbage")
IMPORTS = RLock()  # around imports on first use
_LOCKS: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {}


def taken_by_forks(name: str, acquire: Callable[[], object], release: Callable[[], object]) -> None:
    """Take a lock around each fork of this process; its name says when (`ORDER`)."""
    if not _LOCKS and hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_take, after_in_parent=_free, after_in_child=_free)
    _LOCKS[name] = acquire, release


def _take() -> None:
    for name in ORDER:
        if name in _LOCKS:
            _LOCKS[name][0]()


def _free() -> None:
    for name in reversed(ORDER):
        if name in _LOCKS:
            _LOCKS[name][1]()


taken_by_forks("imports", IMPORTS.acquire, IMPORTS.release)
