"""Splitting a batch of independent warps over threads.

Compiled code releases the GIL, so plain Python threads run it side by side: no threading layer to choose, none that
aborts when two callers meet, and no second (parallel) compilation of each kernel.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from nbtc.errors import OptionError

_WORTH = 300_000  # nanoseconds of work below which a second thread costs more than it saves


def thread_count(threads: int | None) -> int:
    """`threads`, checked, or Numba's number of threads."""
    if threads is None:
        from numba import get_num_threads

        return int(get_num_threads())
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise OptionError(
            f"threads={threads!r} is no positive count of threads; nearest: threads=1, or threads=None for all"
        )
    return threads


def parallel_for(count: int, nanoseconds: int, threads: int | None, work: Callable[[int, int], object]) -> None:
    """work(first, last) over 0..count, split over threads when `count` units of `nanoseconds` each are worth it."""
    wanted = 1 if threads is None and count * nanoseconds < _WORTH else min(thread_count(threads), count)
    if wanted <= 1:
        work(0, count)
        return
    errors: list[BaseException] = []

    def part(first: int, last: int) -> None:
        try:
            work(first, last)
        except BaseException as error:  # raised again in the caller's thread
            errors.append(error)

    edges = [count * n // wanted for n in range(wanted + 1)]
    others = [threading.Thread(target=part, args=(edges[n], edges[n + 1])) for n in range(1, wanted)]
    for thread in others:
        thread.start()
    part(edges[0], edges[1])
    for thread in others:
        thread.join()
    if errors:
        raise errors[0]
