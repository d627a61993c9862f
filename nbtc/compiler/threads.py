"""Work on threads: each share owns its outputs, so results cannot depend on how many there are.

Python threads around compiled code that releases the GIL, instead of Numba's parallel loops: any threading layer would
do arithmetic as fast, but the workqueue layer aborts the process on concurrent calls, a parallel loop can't be
interrupted, and it doubles compile time.  There is one pool, whatever counts are asked for, and one rule of how many.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache
from typing import Any

import numba
from numba import config

from nbtc.compiler.jit import in_default_float_mode
from nbtc.compiler.placement import Processors, allowed_processors
from nbtc.compiler.stages import Order, Queue, Share, Stage, Task, one_stage
from nbtc.errors import OptionError, shown

_MODULES, _PARALLEL = sys.modules, "numba.np.ufunc.parallel"
FEWEST_ALLOWED = 16  # any machine takes this many, so that counts can be compared on small ones
WORTH = 300_000  # nanoseconds of work below which a second thread costs more than it saves
PATIENCE = 50_000_000  # nanoseconds of a share at most: Ctrl-C takes effect between two


def thread_count(threads: int | None) -> int:
    """How many threads `threads` means: None what Numba would use, and never more than `most_threads`.

    Numba's number is that of `numba.set_num_threads`, or NUMBA_NUM_THREADS, or one a processor this process may use.
    """
    if threads is None:
        # before the first parallel loop (or set_num_threads) asking would start Numba's own threads
        if not getattr(_MODULES.get(_PARALLEL), "_is_initialized", False):
            number: int = config.NUMBA_NUM_THREADS  # small products wait for this: no call, and names of this module
            return number
        return int(numba.get_num_threads())
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise OptionError(
            f"threads={shown(threads)} is not a number of threads: pass a whole number from 1 up, or None for all"
        )
    return min(threads, most_threads())


@cache
def most_threads() -> int:
    """Threads that work at once at most: as many as there are processors, or Numba was given, but some in any case."""
    return int(max(config.NUMBA_NUM_THREADS, os.cpu_count() or 1, FEWEST_ALLOWED))


@cache
def _pool() -> ThreadPoolExecutor:
    """All threads but the callers'; each is started when work finds the others busy."""
    return ThreadPoolExecutor(most_threads() - 1, "nbtc")


def in_background(work: Callable[..., Any], *args: Any) -> Future[Any]:
    """work(*args) on a thread of the pool."""
    return _pool().submit(work, *args)


@cache
def _one_more() -> ThreadPoolExecutor:
    """The thread of `Beside`."""
    return ThreadPoolExecutor(1, "nbtc beside")


class Beside:
    """Work on one more thread while its caller goes on with something else.

    The caller does it itself, when it wants what the work gives, where nbtc has one thread or one processor, where the
    system has no thread to give, and where that thread has not come to it by then.  Two more would take the caller's
    processor where there are two: a first product waited 0.1 s longer.
    """

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._future: Future[Any] | None = None
        if thread_count(None) > 1 and allowed_processors() > 1:
            with suppress(RuntimeError):
                self._future = _one_more().submit(work)

    def result(self) -> Any:
        """What the work gives, or raises."""
        if self._future is None or self._future.cancel():
            return self._work()
        return self._future.result()

    def leave(self) -> None:
        """No thread does it any more when this returns."""
        if self._future is not None and not self._future.cancel():
            wait([self._future])


if hasattr(os, "register_at_fork"):  # a forked child inherits the pool, but not its threads
    os.register_at_fork(after_in_child=_pool.cache_clear)
    os.register_at_fork(after_in_child=_one_more.cache_clear)


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
    if wanted == 1 and 0 < count <= PATIENCE // max(1, nanoseconds):  # one share, at once: small calls wait for this
        work(0, count)
        return
    ThreadTeam(wanted, False, 0).run(work, (), list(shares(0, count, nanoseconds, wanted)))


_work_in_pool = in_default_float_mode(Queue.work)  # a thread has the mode of the one that started it, long ago


def _helpers(count: int, queue: Queue) -> list[Future[None]]:
    """Threads of the pool that work too; fewer, or none, where the system has no more to give."""
    helpers: list[Future[None]] = []
    processors = Processors()
    processors.begin(moves=False)
    for _ in range(count):
        try:
            helpers.append(_pool().submit(processors.run, _work_in_pool, queue))
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
        """task(*fixed, *share) for every share of the work, `units` of progress each."""
        self.run_in_order(one_stage(Stage(task, fixed, work, units)), len(work))

    def run_in_order(self, order: Order, most: int = sys.maxsize) -> None:
        """All shares of a queue, by `most` threads at most.

        An interrupt stops within the running shares' time.  The calling thread works too, and reports what all have
        done: a pool that it only waits for would wake it for every share.
        """
        if self.threads == 1 or most < 2:
            for stage, i in order:
                stage.do(i)
                self._step(stage.units)
            return
        queue, told = Queue(order), 0
        helpers = _helpers(min(self.threads, most) - 1, queue)
        try:
            while queue.more:
                queue.work(1)
                told = self._tell(queue.ended, told)
            helpers = [f for f in helpers if not f.cancel()]  # the pool may be busy with another product
            while helpers:
                done, waiting = wait(helpers, timeout=0.25)
                for f in done:
                    f.result()
                helpers = list(waiting)
                told = self._tell(queue.ended, told)
        except BaseException:
            queue.stop()
            wait([f for f in helpers if not f.cancel()])
            raise

    def _tell(self, ended: list[int], told: int) -> int:
        """Report what was finished since the last time."""
        now = len(ended)
        self._step(sum(ended[told:now]))
        return now

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
