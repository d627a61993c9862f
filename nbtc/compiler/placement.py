"""Where threads run: each on a processor of its own while there are free ones, and on a core of its own at first."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock, get_ident
from typing import Any

TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"  # of Linux, for each processor


@cache
def _processor_asked() -> Callable[[], int] | None:
    """What tells the processor that the calling thread is on; None where threads can't be moved."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    return getattr(ctypes.CDLL(None), "sched_getcpu", None)


def listed(text: str) -> frozenset[int]:
    """The numbers of one of Linux' lists.

    >>> sorted(listed("0-2,8\\n"))
    [0, 1, 2, 8]
    """
    ends = [part.split("-") for part in text.split(",")]
    return frozenset(n for first, *last in ends for n in range(int(first), int(last[0] if last else first) + 1))


@cache
def siblings(processor: int) -> frozenset[int]:
    """The processors of one core, this one included: two threads there share its arithmetic.

    It is alone where the system says nothing, as in some containers.
    """
    try:
        return listed(Path(TOPOLOGY.format(processor)).read_text()) | {processor}
    except (OSError, ValueError):
        return frozenset({processor})


def allowed_processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def place(here: int, allowed: set[int], taken: set[int]) -> int:
    """Where a thread that is here should be: on a core where nobody works if there is one, else on a free processor."""

    def disturbs(processor: int) -> tuple[bool, int, bool, int]:
        return processor in taken, len(siblings(processor) & taken), processor != here, processor

    return min(allowed | {here}, key=disturbs)


class Processors:
    """Which processors the threads of one piece of work began on.

    Linux wakes threads where the one that woke them runs, and where all processors have work it leaves them there: two
    threads then share one processor's time for the tens of milliseconds that their work takes.
    """

    def __init__(self) -> None:
        self._taken: dict[int, int] = {}
        self._lock = Lock()  # of two threads that begin at once, the second sees where the first one goes

    def begin(self, moves: bool = True) -> None:
        """The calling thread takes part; it moves if another is on its core and there is a better place."""
        asked = _processor_asked()
        if asked is None:
            return
        here, goal, allowed = asked(), None, set[int]()
        with self._lock:
            taken = set(self._taken.values())
            if moves and siblings(here) & taken:
                with suppress(OSError):
                    allowed = os.sched_getaffinity(0)
                    goal = place(here, allowed, taken)
            self._taken[get_ident()] = here if goal is None else goal
        if goal is not None and goal != here:
            with suppress(OSError):  # the move is all that is wanted: where the thread may run stays as it was
                os.sched_setaffinity(0, {goal})
                os.sched_setaffinity(0, allowed)

    def run(self, work: Callable[..., Any], *args: Any) -> Any:
        """work(*args) on the calling thread, which moves first if need be."""
        self.begin()
        try:
            return work(*args)
        finally:
            self._taken.pop(get_ident(), None)
