"""Where threads run: on processors of their own while there are free ones, one a core at first."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from nbtc.compiler import placement


@pytest.fixture
def topology(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for what Linux says of processors."""
    monkeypatch.setattr(placement, "TOPOLOGY", str(tmp_path / "cpu{}"))
    placement.siblings.cache_clear()
    yield tmp_path
    placement.siblings.cache_clear()


@pytest.mark.parametrize("text", [None, "", "\n", "0-", "two", "1,,2", "-3"])
def test_a_processor_is_alone_where_nothing_is_known_of_it(text: str | None, topology: Path) -> None:
    if text is not None:
        (topology / "cpu3").write_text(text)
    assert placement.siblings(3) == {3}


def test_siblings_are_read_as_linux_writes_them(topology: Path) -> None:
    for processor, text in enumerate(("0,4", "1-2", "1-2", "8,10-11", "0,4")):
        (topology / f"cpu{processor}").write_text(text + "\n")
    assert [sorted(placement.siblings(p)) for p in range(5)] == [[0, 4], [1, 2], [1, 2], [3, 8, 10, 11], [0, 4]]


@pytest.mark.parametrize("pairs", ["next to each other", "far apart"])
def test_threads_fill_cores_before_siblings(pairs: str, topology: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight processors of four cores: four threads have a core each, whichever processor all were woken on."""
    core = (lambda p: p // 2) if pairs == "next to each other" else (lambda p: p % 4)
    for processor in range(8):
        own = [p for p in range(8) if core(p) == core(processor)]
        (topology / f"cpu{processor}").write_text(",".join(map(str, own)))
    allowed = set(range(8))
    for woken in range(8):
        taken = {woken}
        for workers in range(2, 9):
            taken.add(placement.place(woken, allowed, taken))
            assert len(taken) == workers and len({core(p) for p in taken}) == min(4, workers)
        assert placement.place(woken, allowed, taken) == woken  # all are taken: nobody moves for nothing
    # of what a mask leaves, a core of its own is the first choice too, and what is not allowed is none
    assert core(placement.place(0, {0, 1, 4, 5}, {0})) != core(0)
    assert placement.place(0, {0}, {0}) == 0
    monkeypatch.setattr(placement, "_processor_asked", lambda: lambda: 5)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: allowed, raising=False)
    moved: list[set[int]] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, to: moved.append(set(to)), raising=False)
    processors = placement.Processors()
    processors.begin(moves=False)
    processors.run(lambda: None)  # another thread's place is this one's to give up
    assert all(to == allowed or core(next(iter(to))) != core(5) for to in moved)


def test_threads_begin_on_processors_of_their_own_while_there_are_free_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[set[int]] = []
    monkeypatch.setattr(placement, "_processor_asked", lambda: lambda: 2)
    monkeypatch.setattr(placement, "siblings", lambda processor: frozenset({processor}))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2, 5}, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, to: moved.append(set(to)), raising=False)
    processors, met = placement.Processors(), threading.Barrier(5)
    begun: SimpleQueue[list[set[int]]] = SimpleQueue()

    def work() -> None:
        begun.put(list(moved))
        met.wait(10)

    workers = [threading.Thread(target=processors.run, args=(work,)) for _ in range(4)]
    left = []
    for worker in workers:  # one after the other, and all are there until the last has begun
        worker.start()
        left.append(begun.get(timeout=10))
    met.wait(10)
    for worker in workers:
        worker.join()
    everywhere = {1, 2, 5}
    assert left == [[], [{1}, everywhere], [{1}, everywhere, {5}, everywhere], left[2]]
    processors.begin()
    assert moved == left[2]  # those who are gone are in nobody's way


def test_a_system_that_moves_no_threads_runs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: int, __: object = None) -> set[int]:
        raise PermissionError

    monkeypatch.setattr(placement, "_processor_asked", lambda: lambda: 0)
    monkeypatch.setattr(os, "sched_getaffinity", refused, raising=False)
    processors = placement.Processors()
    processors.begin(moves=False)
    assert processors.run(lambda: 7) == 7
    monkeypatch.setattr(placement, "_processor_asked", lambda: None)
    assert processors.run(lambda: 8) == 8
