"""Whether launches run or become steps of a graph that is being captured."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Step = Callable[[], object]


class _Thread(threading.local):
    steps: list[Step] | None = None


_THREAD = _Thread()


def steps() -> list[Step] | None:
    """The steps of the graph that this thread captures, if it captures one."""
    return _THREAD.steps


@contextmanager
def into(found: list[Step] | None) -> Iterator[None]:
    """Inside, launches of this thread become steps of a list; None: they run."""
    before, _THREAD.steps = _THREAD.steps, found
    try:
        yield
    finally:
        _THREAD.steps = before


def run(step: Step) -> None:
    """Run a launch, or keep it for the replays."""
    if _THREAD.steps is None:
        step()
    else:
        _THREAD.steps.append(step)
