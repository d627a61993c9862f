"""What every launch of a process does besides its work: look for hazards, or count for a profile.

Tools that launch kernels themselves, such as Triton and numba-cuda, have no place for `k.checked` and `k.profile`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from nbtc.errors import OptionError, shown
from nbtc.executor.profile.result import Profile

CHECK_ALL = os.environ.get("NBTC_CHECKED", "0") not in ("", "0")


class Wanted(NamedTuple):
    """What a context wants of the launches in it."""

    checked: bool
    profiles: list[Profile] | None


_LOCK = threading.Lock()
_contexts: list[Wanted] = []  # that have not ended, in any thread; the last one counts


@contextmanager
def launches(checked: bool, profiles: list[Profile] | None) -> Iterator[None]:
    """Inside, launches that would look at bounds alone are checked, or append their profiles to a list."""
    if not isinstance(checked, bool):
        raise OptionError(f"checked={shown(checked)}: pass True, to look for hazards at every launch, or False")
    if profiles is not None and not isinstance(profiles, list):
        raise OptionError(f"profiles={shown(profiles)}: pass a list, which gets a Profile of each launch")
    if checked and profiles is not None:
        raise OptionError("a launch is checked or counted: pass checked=True or profiles=[], not both")
    wanted = Wanted(checked, profiles)
    if wanted == Wanted(False, None):  # another context's wish, or the environment's, goes on
        yield
        return
    with _LOCK:
        _contexts.append(wanted)
    try:
        yield
    finally:
        with _LOCK:
            _contexts[:] = [c for c in _contexts if c is not wanted]


def instrument(checked: bool | str) -> str:
    """The instrument of a launch that names none itself; checked: what it says."""
    wanted = _contexts[-1] if _contexts else None
    if wanted is not None and wanted.profiles is not None:
        return "profile"
    return "watch" if (CHECK_ALL or (wanted is not None and wanted.checked)) and checked != "off" else ""


def is_plain() -> bool:
    """Whether launches do nothing besides."""
    return not (CHECK_ALL or _contexts)


def noted(found: Profile | None) -> Profile | None:
    """What a launch returns, kept for the context that wants it."""
    wanted = _contexts[-1] if _contexts else None
    if found is not None and wanted is not None and wanted.profiles is not None:
        wanted.profiles.append(found)
    return found
