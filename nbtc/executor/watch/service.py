"""The checked mode as functions that programs call: 64-bit words in, nothing out."""

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from nbtc.compiler.jit import c_function
from nbtc.executor.watch import events, mbarriers, products, touch

I = types.int64  # noqa: E741
ACCESS_WORDS, EVENT_WORDS, ARRIVE_WORDS, LINE_WORDS, MBARRIER_WORDS, PRODUCT_WORDS = 8, 6, 7, 8, 8, 8


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


@cache
def line() -> Any:
    """`touch.touch_line`."""

    @c_function(types.void(*[I] * LINE_WORDS))
    def entry(block, warp, lane, address, size, kind, site, noted):
        touch.touch_line(block, warp, lane, address, size, kind, site, noted)

    return entry


@cache
def mbarrier() -> Any:
    """`mbarriers.mbarriers`."""

    @c_function(types.void(*[I] * MBARRIER_WORDS))
    def entry(what, block, warp, addresses, mask, a, b, site):
        mbarriers.mbarriers(what, block, warp, addresses, mask, a, b, site)

    return entry


@cache
def product() -> Any:
    """`products.product`."""

    @c_function(types.void(*[I] * PRODUCT_WORDS))
    def entry(block, warp, a, b, columns, flags, sets, site):
        products.product(block, warp, a, b, columns, flags, sets, site)

    return entry
