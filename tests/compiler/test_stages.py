"""Shares in a queue: each once, after what it needs, and nobody waits for ever."""

from __future__ import annotations

import threading
import time
from itertools import chain
from typing import Any

import pytest

from nbtc.compiler.stages import Queue, Stage, one_stage
from nbtc.compiler.threads import ThreadTeam


def team(threads: int, progress: object = False, total: int = 0) -> ThreadTeam:
    return ThreadTeam(threads, progress, total)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_stages_begin_when_what_they_need_is_done(threads: int) -> None:
    """Pairs of stages of which the second follows share by share; the third pair needs all of the first."""
    done: list[tuple[int, int]] = []
    seen: list[int] = []

    def task(number: int, i: int) -> None:
        if number % 2:
            assert (number - 1, i) in done
        if number >= 4:
            assert {(0, n) for n in range(7)} <= set(done)
        time.sleep(0.001 * (i % 3))
        done.append((number, i))

    stages: list[Stage] = []
    for number in range(6):
        follows = stages[-1] if number % 2 else None
        needs = stages[:1] if number >= 4 else ()
        stages.append(Stage(task, (number,), [(i,) for i in range(7)], 1, needs, follows))
    team(threads, lambda now, _: seen.append(now), 42).run_in_order(chain(*map(one_stage, stages)))
    assert sorted(done) == [(number, i) for number in range(6) for i in range(7)]
    assert seen == sorted(seen) and seen[-1] == 42
    assert all(stage.over and stage.follows is None for stage in stages) or threads == 1


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_who_waits_for_a_share_that_fails_waits_no_more(error: type[BaseException]) -> None:
    begun, after = threading.Event(), list[int]()

    def fails() -> None:
        begun.wait(10)
        time.sleep(0.05)  # until the others wait
        raise error("no")

    first = Stage(fails, (), [()])
    second = Stage(after.append, (), [(i,) for i in range(5)], needs=[first])

    def order() -> Any:
        yield from one_stage(first)
        begun.set()
        yield from one_stage(second)

    with pytest.raises(error, match="no"):
        team(3).run_in_order(order())
    assert not after
    team(3).run(after.append, (), [(1,), (2,)])  # the pool's threads are there for others
    assert sorted(after) == [1, 2]


def test_a_queue_that_waits_for_what_comes_behind_is_refused() -> None:
    late = Stage(print, (), [()])
    early = Stage(print, (), [()], needs=[late])
    with pytest.raises(RuntimeError, match="comes after it"):
        Queue(chain(one_stage(early), one_stage(late))).work()


def test_an_order_that_fails_ends_the_work() -> None:
    def order() -> Any:
        yield from one_stage(Stage(time.sleep, (), [(0.001,)] * 3))
        raise MemoryError("no more")

    with pytest.raises(MemoryError):
        team(3).run_in_order(order())
