"""The checked mode as functions that programs call: 64-bit words in, nothing out."""

from __future__ import annotations

from functools import cache
from types import FunctionType
from typing import Any

from numba import types

from nbtc.compiler.jit import c_function
from nbtc.executor.watch import events, mbarriers, products, touch

KERNELS = (
    touch.touch_lanes,
    events.event,
    events.arrive,
    touch.touch_line,
    mbarriers.mbarriers,
    products.product,
)


def words(kernel: Any) -> int:
    """How many words a kernel takes."""
    return int(kernel.py_func.__code__.co_argcount)


@cache
def entry(kernel: Any) -> Any:
    """A kernel for callers that know nothing but its address; under a name of its own, for kernels call it too."""
    body = kernel.py_func
    named = FunctionType(body.__code__, body.__globals__, body.__name__)
    named.__module__, named.__qualname__ = body.__module__, f"entry_{body.__qualname__}"
    return c_function(types.void(*[types.int64] * words(kernel)))(named)
