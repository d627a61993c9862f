"""Python's thresholds of garbage collection during a compilation, and after it."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator

import pytest

from nbtc.compiler.garbage import BETWEEN, rarely_collected
from nbtc.compiler.jit import jit


@pytest.fixture(autouse=True)
def _thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 7, 5)
    yield
    gc.set_threshold(*before)


@rarely_collected
def seen() -> tuple[int, ...]:
    return gc.get_threshold()


def test_thresholds_are_raised_and_come_back() -> None:
    before = gc.get_threshold()
    nested = rarely_collected(lambda: (seen(), gc.get_threshold()))
    assert seen() == (BETWEEN, *before[1:]) and gc.get_threshold() == before
    assert nested() == (seen(), seen()) and gc.get_threshold() == before
    with pytest.raises(ZeroDivisionError):
        rarely_collected(lambda: 1 // 0)()
    assert gc.get_threshold() == before


@pytest.mark.parametrize("own", [0, 2 * BETWEEN])
def test_rarer_collections_are_left_alone(own: int) -> None:
    gc.set_threshold(own)
    assert seen()[0] == own and gc.get_threshold()[0] == own


def test_what_is_set_meanwhile_stays() -> None:
    rarely_collected(lambda: gc.set_threshold(123))()
    assert gc.get_threshold()[0] == 123


def test_the_last_thread_restores() -> None:
    first, second, before = threading.Event(), threading.Event(), gc.get_threshold()

    @rarely_collected
    def work() -> None:
        first.set()
        second.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    first.wait(60)
    assert seen()[0] == gc.get_threshold()[0] == BETWEEN
    second.set()
    thread.join(60)
    assert gc.get_threshold() == before


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes fork")
def test_a_child_has_the_usual_thresholds() -> None:
    before = gc.get_threshold()

    @rarely_collected
    def child() -> bool:
        if (process := os.fork()) == 0:
            os._exit(gc.get_threshold() != before or seen()[0] != BETWEEN or gc.get_threshold() != before)
        return os.waitpid(process, 0)[1] == 0

    assert child()


def test_kernels_are_compiled_so() -> None:
    collections = []
    gc.set_threshold(10, 10, 10)
    gc.callbacks.append(lambda phase, about: collections.append(about["generation"]))
    try:
        jit(lambda x: x + 1, cached=False)(1)
    finally:
        gc.callbacks.pop()
    assert len(collections) < 1000  # 10 objects are nothing to a compiler
