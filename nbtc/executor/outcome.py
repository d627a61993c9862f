"""A launch of compiled code from its request to its result, or to the error that says what went wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nbtc.errors import ProgramError
from nbtc.executor.build import Built
from nbtc.executor.emit.errors import ErrorKind
from nbtc.executor.launch import report
from nbtc.executor.launch.launch import Request, run
from nbtc.executor.launch.system_calls import Answers
from nbtc.executor.memory.ranges import Memory
from nbtc.executor.profile.result import Profile
from nbtc.executor.text.names import full_name

if TYPE_CHECKING:
    from nbtc.executor.watch.memory import WatchedLaunch


def watched_memory(memory: Sequence[Memory]) -> WatchedLaunch:
    """What a checked launch knows of its memory; imported when there is one."""
    from nbtc.executor.watch.memory import WatchedLaunch

    return WatchedLaunch(memory)


def outcome(name: str, built: Built, request: Request, answers: Answers | None) -> Profile | None:
    """Launch the code of a kernel; raise what went wrong."""
    try:
        failure = run(built.code, request)
    finally:
        if answers:
            answers.end()
    if answers and answers.error is not None:
        raise answers.error
    hazardous = failure is not None and failure.kind == ErrorKind.HAZARD
    watched = request.watched
    if watched is not None and (hazardous or watched.suspected):
        from nbtc.executor.launch.hazards import hazard_error

        raise hazard_error(full_name(name), built.sites, request, watched.found())
    if failure is not None:
        said = answers.assertion if answers else ""
        raise report.failed(name, built.sites, request, failure, said, built.shared)
    if watched is not None:
        _look_for_leaks(name, built, request, watched, answers)
    return None if request.profile is None else Profile(name, built.sites, request.profile)


def _look_for_leaks(name: str, built: Built, request: Request, watched: WatchedLaunch, answers: Answers | None) -> None:
    """Raise where a checked launch has left memory that nobody can free."""
    from nbtc.executor.launch.hazards import kept, leak

    lost = watched.lost(request.memory)
    if lost is not None:
        text = leak(full_name(name), built.sites, request, lost)
        raise ProgramError(text, title="memory that nobody frees", places=report.places(built.sites, lost.site))
    columns = answers.kept() if answers is not None else None
    if columns is not None:
        text = kept(full_name(name), request, columns)
        raise ProgramError(text, title="tensor memory that nobody deallocates")
