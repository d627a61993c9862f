"""Work on threads: each share owns its outputs, so results cannot depend on how many there are.

Python threads around compiled code that releases the GIL, instead of Numba's parallel loops: any threading layer would
do arithmetic as fast, but the workqueue layer aborts the process on concurrent calls, a parallel loop can't be
interrupted, and it doubles compile time.  There is one pool, whatever counts are asked for, and one rule of how many.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache
from threading import get_ident
from typing import Any

import numba

from nbtc.compiler.jit import in_default_float_mode
from nbtc.errors import OptionError, shown

Task = Callable[..., Any]
Share = tuple[Any, ...]
Call = tuple[Task, Share]  # what to call, and its first arguments
FEWEST_ALLOWED = 16  # any machine takes this many, so that counts can be compared on small ones
WORTH = 300_000  # nanoseconds of work below which a second thread costs more than it saves
PATIENCE = 50_000_000  # nanoseconds of a share at most: Ctrl-C takes effect between two


def thread_count(threads: int | None) -> int:
    """How many threads `threads` means: None what Numba would use, and never more than `most_threads`.

    Numba's number is that of `numba.set_num_threads`, or NUMBA_NUM_THREADS, or one a processor this process may use.
    """
    if threads is None:
        parallel = sys.modules.get("numba.np.ufunc.parallel")
        # before the first parallel loop (or set_num_threads) asking would start Numba's own threads
        started = getattr(parallel, "_is_initialized", False)
        return int(numba.get_num_threads() if started else numba.config.NUMBA_NUM_THREADS)
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise OptionError(
            f"threads={shown(threads)} is not a number of threads: pass a whole number from 1 up, or None for all"
        )
    return min(threads, most_threads())


@cache
def most_threads() -> int:
    """Threads that work at once at most: as many as there are processors, or Numba was given, but some in any case."""
    return int(max(numba.config.NUMBA_NUM_THREADS, os.cpu_count() or 1, FEWEST_ALLOWED))


@cache
def _pool() -> ThreadPoolExecutor:
    """All threads but the callers'; each is started when work finds the others busy."""
    return ThreadPoolExecutor(most_threads() - 1, "nbtc")


def in_background(work: Callable[..., Any], *args: Any) -> Future[Any]:
    """work(*args) on a thread of the pool."""
    return _pool().submit(work, *args)


@cache
def _processor_asked() -> Callable[[], int] | None:
    """What tells the processor that the calling thread is on; None where threads can't be moved."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    return getattr(ctypes.CDLL(None), "sched_getcpu", None)


class Processors:
    """Which processors the threads of one piece of work began on: no two on one while another is free.

    Linux wakes threads where the one that woke them runs, and where all processors have work it leaves them there: two
    threads then share one processor's time for the tens of milliseconds that their work takes.
    """

    def __init__(self) -> None:
        self._taken: dict[int, int] = {}

    def begin(self, moves: bool = True) -> None:
        """The calling thread takes part; it moves if another is on its processor."""
        asked = _processor_asked()
        if asked is None:
            return
        here, others = asked(), set(self._taken.values())
        if moves and here in others:
            with suppress(OSError):  # the move is all that is wanted: where the thread may run stays as it was
                allowed = os.sched_getaffinity(0)
                free = sorted(allowed - others)
                if free:
                    here = free[0]
                    os.sched_setaffinity(0, {here})
                    os.sched_setaffinity(0, allowed)
        self._taken[get_ident()] = here

    def run(self, work: Callable[..., Any], *args: Any) -> Any:
        """work(*args) on the calling thread, which moves first if need be."""
        self.begin()
        try:
            return work(*args)
        finally:
            self._taken.pop(get_ident(), None)


if hasattr(os, "register_at_fork"):  # a forked child inherits the pool, but not its threads
    os.register_at_fork(after_in_child=_pool.cache_clear)


def shares(first: int, last: int, nanoseconds: int, threads: int = 1) -> Iterator[tuple[int, int]]:
    """first..last in pieces, one a thread or more, none of which takes long; nanoseconds: of one unit.

    >>> list(shares(0, 10, 10, threads=2))
    [(0, 5), (5, 10)]
    """
    step = max(1, min(-(-(last - first) // threads), PATIENCE // max(1, nanoseconds)))
    return ((n, min(n + step, last)) for n in range(first, last, step))


def parallel_for(count: int, nanoseconds: int, threads: int | None, work: Callable[[int, int], object]) -> None:
    """work(first, last) over 0..count, on several threads when `count` units of `nanoseconds` each are worth it."""
    wanted = 1 if threads is None and count * nanoseconds < WORTH else min(thread_count(threads), max(1, count))
    pieces = list(shares(0, count, nanoseconds, wanted))
    if len(pieces) == 1:
        work(*pieces[0])
        return
    ThreadTeam(wanted, False, 0).run(work, (), pieces)


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


_work_in_pool = in_default_float_mode(_work)  # a thread has the mode of the one that started it, long ago


def _helpers(count: int, arguments: tuple[Any, ...]) -> list[Future[None]]:
    """Threads of the pool that work too; fewer, or none, where the system has no more to give."""
    helpers: list[Future[None]] = []
    processors = Processors()
    processors.begin(moves=False)
    for _ in range(count):
        try:
            helpers.append(_pool().submit(processors.run, _work_in_pool, *arguments))
        except RuntimeError:
            break
    return helpers


class ThreadTeam:
    """Shares work out, one list of shares after the other, and reports progress in units the caller chose."""

    def __init__(self, threads: int, progress: object, total: int) -> None:
        self.threads, self.total, self.done = threads, total, 0
        self.reports = progress is not False  # to someone, as it goes
        self._report, self._close = reporter(progress, total)

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
        helpers = _helpers(min(self.threads, len(work)) - 1, (call, left, finished))
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


def check_progress(progress: object) -> None:
    """Refuse what is no progress= argument."""
    if not (callable(progress) or isinstance(progress, bool)):
        raise OptionError(f"progress={shown(progress)} is neither True, False nor a callable that takes (done, total)")


def reporter(
    progress: object, total: int, unit: str = "MAC"
) -> tuple[Callable[[int, int], object], Callable[[], object]]:
    """How to show progress in units, and how to stop showing it."""
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
    bar = tqdm(total=total, unit=unit, unit_scale=True)
    return lambda done, total: bar.update(done - bar.n), bar.close
