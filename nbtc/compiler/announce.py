"""Says on standard error that something is being compiled, when that has taken two seconds: it would look like a hang.
NBTC_QUIET=1 hides it; on a terminal, and where tqdm is installed, it counts functions.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib.util import find_spec
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
PATIENCE = 2.0  # seconds of compilation before anything is said
IDLE = 1.0  # seconds without compilation, after which they are counted from zero again


class _Announcer:
    """One for the process: several threads may compile at once, and compilations are nested."""

    def __init__(self, write: Callable[[str], Any] | None = None) -> None:
        self.lock, self.depth, self.spent, self.said = threading.RLock(), 0, 0.0, False
        self.began = self.ended = float("-inf")
        self.timer: threading.Timer | None = None
        self.bar: Any = None
        self.write = write

    def begin(self) -> None:
        """A compilation begins."""
        with self.lock:
            self.depth += 1
            if self.depth > 1:
                return
            self.began = time.monotonic()
            if self.began - self.ended > IDLE:
                self.spent = 0.0
            self._after(max(0.0, PATIENCE - self.spent), self.say)

    def end(self) -> None:
        """It has ended."""
        with self.lock:
            self.depth = max(0, self.depth - 1)
            if self.bar is not None:
                self.bar.update()
            if self.depth:
                return
            self.ended = time.monotonic()
            self.spent += self.ended - self.began
            self._after(IDLE, self.close) if self.bar is not None else self._cancel()

    def say(self) -> None:
        """Once a process, or a bar for as long as this goes on."""
        with self.lock:
            if os.environ.get("NBTC_QUIET", "0") not in ("", "0") or not self.depth:
                return
            if self.write is None and find_spec("tqdm") is not None and sys.stderr is not None and sys.stderr.isatty():
                if self.bar is None:
                    from tqdm import tqdm

                    form = "{desc}: {n_fmt} functions, {elapsed}"
                    self.bar = tqdm(desc="nbtc: compiling, once", bar_format=form, leave=False, file=sys.stderr)
            elif not self.said:
                self.said = True
                (self.write or _to_stderr)(message())

    def close(self) -> None:
        """Nothing has been compiled for a while: the bar goes."""
        with self.lock:
            if self.bar is not None and not self.depth:
                self.bar.close()
                self.bar = None

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        self._cancel()
        if self.said:
            return
        self.timer = threading.Timer(seconds, call)
        self.timer.daemon = True
        try:
            self.timer.start()
        except RuntimeError:  # no thread to be had: nothing is said
            self.timer = None

    def _cancel(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def message() -> str:
    """What is said where no bar is shown."""
    from nbtc.compiler.machine_code.native import cache_folder

    kept = "is kept for later processes" if cache_folder() is not None else "is not kept, as NBTC_CACHE_DIR is empty"
    return (
        f"nbtc: compiling for a first use; the result {kept} (`nbtc warmup` does it ahead, NBTC_QUIET=1 hides this)\n"
    )


def _to_stderr(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(text)
        sys.stderr.flush()


ANNOUNCER = _Announcer()


def announced(function: F) -> F:
    """A function that compiles, and may take long."""

    @wraps(function)
    def inside(*args: Any, **options: Any) -> Any:
        ANNOUNCER.begin()
        try:
            return function(*args, **options)
        finally:
            ANNOUNCER.end()

    return cast(F, inside)


@contextmanager
def expected() -> Iterator[None]:
    """Nothing is said of compilations inside: the caller asked for them and tells of them itself."""
    before, ANNOUNCER.said = ANNOUNCER.said, True
    try:
        yield
    finally:
        ANNOUNCER.said = before


def _in_child() -> None:
    """After a fork only the thread that forked is left, and it doesn't compile."""
    global ANNOUNCER
    ANNOUNCER = _Announcer()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
