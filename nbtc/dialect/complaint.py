"""What Numba and LLVM say of a kernel that they can't compile, as one sentence with the line."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from numba.core.ir import Loc

from nbtc.errors import KernelError, NbtcError

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
# Lines of Numba's messages that name no reason.
EMPTY = re.compile(
    r"^(Failed in |During: |File |- Resolution|- argument|There are \d+ candidate|Enable logging|"
    r"Overload |Invalid use of|No match|Rejected|Known signatures|raised from|<source|[=~^-]+$|$)"
)
MOST = 300  # characters of a reason


@contextmanager
def complaint(function: Callable[..., Any]) -> Iterator[None]:
    """Raise what goes wrong inside as a KernelError that names the kernel and the line."""
    try:
        yield
    except KernelError as error:
        where = _place(error, function)
        raise KernelError(f"{where}: {error}") from None
    except NbtcError:
        raise
    except Exception as error:
        raise KernelError(f"{_place(error, function)}: {_reason(error)}") from error


def _place(error: BaseException, function: Callable[..., Any]) -> str:
    """The kernel, and the innermost line that the compiler was at."""
    name = f"kernel {function.__name__}"
    loc = getattr(error, "loc", None) or _last_loc(error.__traceback__)
    if not isinstance(loc, Loc) or loc.line is None:
        return f"{name} ({function.__code__.co_filename}:{function.__code__.co_firstlineno})"
    said = linecache.getline(loc.filename, loc.line).strip()
    return f"{name} ({loc.filename}:{loc.line}): `{said}`" if said else f"{name} ({loc.filename}:{loc.line})"


def _last_loc(trace: TracebackType | None) -> Loc | None:
    """Numba's typing and lowering keep the place they are at: the last one on the way to the error."""
    found = None
    while trace is not None:
        loc = getattr(trace.tb_frame.f_locals.get("self"), "loc", None)
        if isinstance(loc, Loc):
            found = loc
        trace = trace.tb_next
    return found


def _reason(error: Exception) -> str:
    """The first line of a message that says something."""
    text = ESCAPES.sub("", str(getattr(error, "msg", None) or error))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    said = [line for line in lines if not EMPTY.match(line)]
    reason = " ".join(said[:2]) if said else (lines or ["an operation without device code"])[0]
    return reason if len(reason) <= MOST else reason[: MOST - 3] + "..."
