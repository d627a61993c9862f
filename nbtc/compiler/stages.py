"""Shares of work in a queue: threads take them in order, and each begins when what it needs is done.

Nobody waits for a last thread between two kinds of work: who finds nothing left of one begins the next.  What a share
needs comes before it in the queue, so that a thread is at it already, and no two can wait for each other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from threading import Condition, Lock
from typing import Any

Task = Callable[..., Any]
Share = tuple[Any, ...]
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
        self.left, self.done = len(shares), bytearray(len(shares))

    def do(self, i: int) -> None:
        """Share i, which may begin."""
        self.task(*self.fixed, *self.shares[i])

    def may_begin(self, i: int) -> bool:
        """Whether what share i needs is done."""
        return (self.follows is None or bool(self.follows.done[i])) and not any(stage.left for stage in self.needs)

    def finish(self, i: int) -> None:
        """Share i is done."""
        self.done[i] = 1
        self.left -= 1
        if not self.left:  # a queue may be long, and nobody asks for what came before its end
            self.needs, self.follows = (), None


Order = Iterator[tuple[Stage, int]]  # of shares, by stage and number


class Queue:
    """Shares that are left, in their order, and what is known of those that threads are at."""

    def __init__(self, order: Order) -> None:
        self.finished = 0  # units
        self.more = True  # shares are left
        self._order, self._news = order, Condition(Lock())
        self._begun, self._stopped = 0, False  # shares that threads are at
        self._waiting: list[tuple[Stage, int]] = []

    def stop(self) -> None:
        """No share begins any more."""
        with self._news:
            self._stopped, self.more = True, False
            self._news.notify_all()

    def work(self, most: int = sys.maxsize) -> None:
        """Take shares from the front until there are none; a failure leaves none."""
        for _ in range(most):
            try:
                found = self._next()
                if found is None:
                    return
                stage, i = found
                stage.do(i)
                self._finish(stage, i)
            except BaseException:
                self.stop()
                raise

    def _next(self) -> tuple[Stage, int] | None:
        """The first share that is left, once it may begin; None where none does any more."""
        with self._news:
            found = next(self._order, None) if self.more else None
            if found is None:
                self.more = False
                return None
            self._begun += 1
            while not self._stopped and not found[0].may_begin(found[1]):
                self._waiting.append(found)
                if len(self._waiting) == self._begun and not any(stage.may_begin(i) for stage, i in self._waiting):
                    raise RuntimeError("all shares that were begun wait for others: what one needs comes after it")
                self._news.wait(PATIENCE)
                self._waiting.remove(found)
            return None if self._stopped else found

    def _finish(self, stage: Stage, i: int) -> None:
        with self._news:
            stage.finish(i)
            self._begun -= 1
            self.finished += stage.units
            if self._waiting:
                self._news.notify_all()


def one_stage(stage: Stage) -> Order:
    """The shares of a stage."""
    return ((stage, i) for i in range(len(stage.shares)))
