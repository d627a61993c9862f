"""Shares of work in a queue: threads take them in order, and each begins when what it needs is done.

Nobody waits for a last thread between two kinds of work: who finds nothing left of one begins the next.  What a share
needs comes before it in the queue, so that a thread is at it already, and no two can wait for each other.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from threading import Condition, Lock
from typing import Any

Task = Callable[..., Any]
Share = tuple[Any, ...]
AT_ONCE = 64  # shares that are made ready together
PATIENCE = 0.25  # seconds after which who waits looks again: not every system ends a wait for Ctrl-C


class Stage:
    """Shares of one kind of work, each of which is `task(*fixed, *share)`.

    units: of progress, of each.  needs: stages that are done before any of its shares begins.  follows: one whose share
    of the same number is done before.
    """

    def __init__(
        self, task: Task, fixed: Share, shares: Sequence[Share], units: int = 0, needs: Sequence[Stage] = (),
        follows: Stage | None = None,
    ) -> None:  # fmt: skip
        self.task, self.fixed, self.shares, self.units = task, fixed, shares, units
        self.needs, self.follows = needs, follows
        self.over, self.done, self._ends = not shares, bytearray(len(shares)), list[int]()

    def do(self, i: int) -> None:
        """Share i, which may begin."""
        self.task(*self.fixed, *self.shares[i])

    def may_begin(self, i: int) -> bool:
        """Whether what share i needs is done."""
        follows = self.follows
        return (follows is None or bool(follows.done[i])) and all(stage.over for stage in self.needs)

    def finish(self, i: int) -> None:
        """Share i is done.  Threads come here at once: each step is one operation of Python's."""
        self.done[i] = 1
        self._ends.append(i)
        if len(self._ends) == len(self.shares):
            self.over = True
            self.needs, self.follows = (), None  # a queue may be long, and nobody asks for what came before its end


Order = Iterator[tuple[Stage, int]]  # of shares, by stage and number


class Queue:
    """Shares that are left, in their order, and what is known of those that threads are at.

    Of short shares thousands begin and end in a second, on many threads: what is done for each takes no lock, unless
    somebody waits.
    """

    def __init__(self, order: Order) -> None:
        self.ended: list[int] = []  # units of each share that is done
        self.more = True  # shares are left
        self._order, self._next, self._given = order, deque[tuple[Stage, int]](), 0
        self._lock, self._stopped = Lock(), False
        self._news, self._waiting = Condition(self._lock), list[tuple[Stage, int]]()

    def stop(self) -> None:
        """No share begins any more."""
        with self._news:
            self._stopped, self.more = True, False
            self._next.clear()
            self._news.notify_all()

    def work(self, most: int = sys.maxsize) -> None:
        """Take shares from the front until there are none; a failure leaves none."""
        for _ in range(most):
            try:
                found = self._take()
                if found is None or not (found[0].may_begin(found[1]) or self._wait(found)):
                    return
                stage, i = found
                stage.do(i)
                stage.finish(i)
                self.ended.append(stage.units)
                if self._waiting:
                    with self._news:
                        self._news.notify_all()
            except BaseException:
                self.stop()
                raise

    def _take(self) -> tuple[Stage, int] | None:
        """The first share that is left; None where there is none."""
        while self.more:
            with suppress(IndexError):
                return self._next.popleft()
            with self._lock:
                if self.more and not self._next:
                    some = list(islice(self._order, AT_ONCE))
                    self._given += len(some)
                    self._next.extend(some)
                    self.more = bool(some)
        return None

    def _wait(self, found: tuple[Stage, int]) -> bool:
        """Until the share may begin; False where none does any more."""
        with self._news:
            self._waiting.append(found)  # before it looks again: who finishes what it needs looks here afterwards
            while not self._stopped and not found[0].may_begin(found[1]):
                begun = self._given - len(self._next) - len(self.ended)
                if len(self._waiting) == begun and not any(stage.may_begin(i) for stage, i in self._waiting):
                    raise RuntimeError("all shares that were begun wait for others: what one needs comes after it")
                self._news.wait(PATIENCE)
            self._waiting.remove(found)
            return not self._stopped


def one_stage(stage: Stage) -> Order:
    """The shares of a stage."""
    return ((stage, i) for i in range(len(stage.shares)))
