"""The checked mode as functions that programs call: 64-bit words in, nothing out."""

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from nbtc.compiler.jit import c_function
from nbtc.executor.watch import events, touch

I = types.int64  # noqa: E741
ACCESS_WORDS, EVENT_WORDS, ARRIVE_WORDS = 8, 6, 7


@cache
def access() -> Any:
    """`touch`."""

    @c_function(types.void(*[I] * ACCESS_WORDS))
    def entry(block, warp, addresses, mask, what, size, site, values):
        touch.touch(block, warp, addresses, mask, what, size, site, values)

    return entry


@cache
def event() -> Any:
    """`events.event`."""

    @c_function(types.void(*[I] * EVENT_WORDS))
    def entry(what, block, warp, a, b, site):
        events.event(what, block, warp, a, b, site)

    return entry


@cache
def arrive() -> Any:
    """`events.arrive`."""

    @c_function(types.void(*[I] * ARRIVE_WORDS))
    def entry(block, warp, barrier, new, count, site, aligned):
        events.arrive(block, warp, barrier, new, count, site, aligned)

    return entry
