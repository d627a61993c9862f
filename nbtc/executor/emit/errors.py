"""Kinds of errors that a running program records, and the words for them."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class ErrorKind(IntEnum):
    """What went wrong; the numbers are what compiled code stores in the launch's `error_kind`."""

    NONE = 0
    TRAP = 1
    LOAD_BOUNDS = 2
    STORE_BOUNDS = 3
    MISALIGNED = 4
    READ_ONLY = 5
    SHARED_BOUNDS = 6
    LOCAL_BOUNDS = 7
    BRANCH_INDEX = 8
    DEADLOCK = 9
    STACK_OVERFLOW = 10
    BAD_CALL = 11
    ASSERT = 12
    FREE = 13
    TENSOR_COPY = 14
    TIME_LIMIT = 15
    WHOLE_WARP = 16
    BARRIER_NUMBER = 17
    NO_OBJECT = 18
    SURFACE_BOUNDS = 19
    SURFACE_ALIGN = 20
    HAZARD = 32  # of the checked mode; which one, its own words tell


class Stop(IntEnum):
    """Why every warp is to end as soon as it looks: the launch's `stop`."""

    NO = 0
    ENDED = 1  # by an error or an interrupt
    TIME_LIMIT = 2  # whoever looks notes where it was


class Failure(NamedTuple):
    """What the program recorded when it failed."""

    kind: int
    site: int | None  # None: at no instruction
    block: int
    thread: int
    address: int
    waiting: tuple[tuple[int, int, int], ...] = ()  # in a deadlock: (block, warp, site) of each warp that waits
