"""The implementations of the libraries' functions, by the functions' names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Implementation = Callable[..., Any]
DRIVER: dict[str, Implementation] = {}
RUNTIME: dict[str, Implementation] = {}
# A thread's default stream has the same name with these ends; streams are in order anyway.
VARIANTS = ("_ptsz", "_ptds")


def driver(function: Implementation) -> Implementation:
    """A function of the driver, by its own name."""
    DRIVER[function.__name__] = function
    return function


def runtime(function: Implementation) -> Implementation:
    """A function of the runtime, by its own name."""
    RUNTIME[function.__name__] = function
    return function


def driver_as(*names: str) -> Callable[[Implementation], Implementation]:
    """A function of the driver under several names."""

    def named(function: Implementation) -> Implementation:
        DRIVER.update(dict.fromkeys(names, function))
        return function

    return named


def runtime_as(*names: str) -> Callable[[Implementation], Implementation]:
    """A function of the runtime under several names."""

    def named(function: Implementation) -> Implementation:
        RUNTIME.update(dict.fromkeys(names, function))
        return function

    return named


def implementation(table: dict[str, Implementation], name: str) -> Implementation | None:
    """What does a function's work, or None."""
    found = table.get(name)
    for end in VARIANTS:
        found = found or (table.get(name.removesuffix(end)) if name.endswith(end) else None)
    return found
