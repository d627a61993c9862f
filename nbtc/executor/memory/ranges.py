"""Memory that a program may touch, as the caller knows it."""

from __future__ import annotations

from typing import Any, NamedTuple


class Memory(NamedTuple):
    """A range of memory: what it is called, first byte, bytes, whether it may be written; `keeps` keeps it alive."""

    name: str
    first: int
    bytes: int
    writable: bool
    keeps: Any
