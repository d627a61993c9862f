"""What the launches of a process found, for `nbtc run --sarif` and `--junit`: lines of JSON in a file of the whole run.

Processes of a run add to one file, each line by one write at its end, which the system keeps whole.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from nbtc.errors import NbtcError, ProgramError
from nbtc.executor.text.names import signature

_START = time.monotonic()
_kernels: set[str] = set()


def _program() -> str:
    """The process's command line."""
    try:
        with open("/proc/self/cmdline", encoding="utf-8", errors="replace") as file:
            return " ".join(file.read().split("\0")).strip()
    except OSError:
        return " ".join(sys.argv)


def _add(what: str, **facts: Any) -> None:
    path = os.environ.get("NBTC_FINDINGS")
    if not path:
        return
    line = json.dumps({"what": what, "process": os.getpid(), "program": _program(), **facts}) + "\n"
    target = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(target, line.encode())
    finally:
        os.close(target)


def launched(kernel: str) -> None:
    """A kernel is launched; told once of each."""
    if kernel not in _kernels:
        _kernels.add(kernel)
        _add("kernel", kernel=signature(kernel), seconds=round(time.monotonic() - _START, 3))


def found(kernel: str, error: NbtcError) -> None:
    """A launch failed."""
    launched(kernel)
    title, places = (error.title, error.places) if isinstance(error, ProgramError) else ("", ())
    title = title or type(error).__name__
    _add("finding", kernel=signature(kernel), title=title, message=str(error), places=places)
