"""Work on threads: each share owns its outputs, so results cannot depend on how many there are.

Python threads around compiled code that releases the GIL, instead of Numba's parallel loops: any threading layer would
do arithmetic as fast, but the workqueue layer aborts the process on concurrent calls, a parallel loop can't be
interrupted, and it doubles compile time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import Any

from nbtc.errors import OptionError

Task = Callable[..., Any]
Share = tuple[Any, ...]
Call = tuple[Task, Share]  # what to call, and its first arguments


def thread_count(threads: int | None) -> int:
    """`threads`, or as many as NUMBA_NUM_THREADS says, or one a processor this process may use."""
    if threads is None:
        set_by_user = os.environ.get("NUMBA_NUM_THREADS", "")
        return int(set_by_user) if set_by_user.isdigit() and int(set_by_user) > 0 else available()
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise OptionError(
            f"threads={threads!r} is no number of threads: pass a whole number from 1 up, or None for all"
        )
    return threads


def available() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "nbtc")


if hasattr(os, "register_at_fork"):  # a forked child inherits the pools, but not their threads
    os.register_at_fork(after_in_child=_pool.cache_clear)


def _work(call: Call, left: list[Share], finished: list[None], most: int = sys.maxsize) -> None:
    """Take shares from the end of `left` until there are none, noting each that is done; a failure empties it."""
    task, fixed = call
    for _ in range(most):
        try:
            share = left.pop()
        except IndexError:  # another thread was quicker
            return
        try:
            task(*fixed, *share)
        except BaseException:
            left.clear()
            raise
        finished.append(None)


class ThreadTeam:
    """Shares work out, one list of shares after the other, and reports progress in units the caller chose."""

    def __init__(self, threads: int, progress: object, total: int) -> None:
        self.threads, self.total, self.done = threads, total, 0
        self._report, self._close = _reporter(progress, total)

    def run(self, task: Task, fixed: Share, work: Sequence[Share], units: int = 0) -> None:
        """task(*fixed, *share) for every share of the work, `units` of progress each.

        An interrupt stops within the running shares' time.  The calling thread works too, and reports what all have
        done: a pool that it only waits for would wake it for every share.
        """
        if self.threads == 1 or len(work) < 2:
            for share in work:
                task(*fixed, *share)
                self._step(units)
            return
        left, finished, told, call = list(reversed(work)), list[None](), 0, (task, fixed)
        pool, others = _pool(self.threads - 1), min(self.threads, len(work)) - 1
        helpers = [pool.submit(_work, call, left, finished) for _ in range(others)]
        try:
            while left:
                _work(call, left, finished, 1)
                told = self._tell(len(finished), told, units)
            helpers = [f for f in helpers if not f.cancel()]  # the pool may be busy with another product
            while helpers:
                done, waiting = wait(helpers, timeout=0.25)
                for f in done:
                    f.result()
                helpers = list(waiting)
                told = self._tell(len(finished), told, units)
        except BaseException:
            left.clear()
            wait([f for f in helpers if not f.cancel()])
            raise

    def _tell(self, finished: int, told: int, units: int) -> int:
        """Report tasks finished since the last time."""
        if finished > told:
            self._step(units * (finished - told))
        return finished

    def _step(self, units: int) -> None:
        if units:
            self.done = min(self.total, self.done + units)
            self._report(self.done, self.total)

    def finish(self) -> None:
        """Everything is done: progress ends at its total, whatever rounding the units had."""
        if self.done != self.total or not self.total:
            self.done = self.total
            self._report(self.done, self.total)

    def close(self) -> None:
        """End the progress display."""
        self._close()


def _silent(*_: int) -> None:
    """Report nothing."""


def _reporter(progress: object, total: int) -> tuple[Callable[[int, int], object], Callable[[], object]]:
    """How to show progress, and how to stop showing it."""
    if callable(progress):
        return progress, _silent
    if not progress:
        return _silent, _silent
    try:
        from tqdm import tqdm
    except ImportError:

        def show(done: int, total: int) -> None:
            print(f"\rnbtc: {100 * done // max(1, total):3d} %", end="", file=sys.stderr, flush=True)

        return show, lambda: print(file=sys.stderr)
    bar = tqdm(total=total, unit="MAC", unit_scale=True)
    return lambda done, total: bar.update(done - bar.n), bar.close
