"""The checked mode as functions that programs call: 64-bit words in, nothing out."""

from __future__ import annotations

from functools import cache
from typing import Any

from nbtc.compiler.announce import announced
from nbtc.compiler.integers.integer_code import Entry, machine_code
from nbtc.compiler.integers.integer_expressions import Primitives, load, store
from nbtc.executor.watch import accesses, events, mbarriers, products, rows
from nbtc.executor.watch import words as w

KERNELS = (
    accesses.touch_lanes,
    events.event,
    events.arrive,
    accesses.touch_line,
    mbarriers.mbarriers,
    products.product,
    accesses.forget,
)
PRIMITIVES: Primitives = {
    w.word: load(64), w.put: store(64), w.int32_at: load(32), w.put_int32: store(32), w.octet: load(8, signed=False),
    **rows.PRIMITIVES,
}  # fmt: skip


def words(kernel: Any) -> int:
    """How many words a kernel takes."""
    return int(kernel.py_func.__code__.co_argcount)


@cache
def entry(kernel: Any) -> Entry:
    """A kernel for callers that know nothing but its address."""
    return announced(machine_code)(kernel.py_func, PRIMITIVES)
