"""System calls of programs: printf, assert, malloc, free (PTX Writer's Guide to Interoperability, "System Calls").

`vprintf`, `__assertfail`, `malloc`, `free` and the device's runtime are functions without a body.  Compiled code hands
their arguments, checked, to the launch's callback.  `cudaGraphSetConditional` needs no callback: a handle is its
condition's address.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I1, I32, I64, vector
from nbtc.executor.control import device_runtime
from nbtc.executor.control.host_requests import Ask, answer, argument, result, text
from nbtc.executor.emit.lanes import Lanes
from nbtc.executor.memory import reach
from nbtc.executor.memory.memory import store_lanes
from nbtc.executor.memory.resolve import ADDRESSES, Access, resolve
from nbtc.executor.memory.side_by_side import LaneElements
from nbtc.executor.text.data import Operand

LANES = 32
CONDITION = LaneElements("global", 32, 1, False)  # 32 bits that a graph's conditional node looks at


def ask_once(lanes: Lanes, words: str, *values: Any) -> Any:
    """Ask the host for the warp as a whole, with i64 of the first active lane; the first word of the answer."""
    mine = copy.copy(lanes)
    lane = lanes.v.call("llvm.cttz.i32", I32, lanes.active, ir.Constant(I1, 0))
    mine.active = lanes.b.shl(ir.Constant(I32, 1), lane)
    mine.host(Ask.TENSOR, text(lanes, words), *(reach.first_lane(lanes, x) for x in values))
    at = lanes.field("warp", "scratch", lanes.b.shl(lanes.b.zext(lane, I64), lanes.v.int(3)))
    return lanes.v.load(at, I64, 8)


def _host_addresses(lanes: Lanes, addresses: Any) -> Any:
    """Generic addresses as the host's."""
    out, good = resolve(lanes, Access("generic", 1, False), addresses, lanes.machine.site(lanes))
    lanes.active = good
    return lanes.b.load(out)


def _print(lanes: Lanes, arguments: tuple[Operand, ...]) -> Any:
    text, values = (argument(lanes, a) for a in arguments)
    text = _host_addresses(lanes, text)
    lanes.host(Ask.PRINT, text, _optional_address(lanes, values))
    return answer(lanes)


def _optional_address(lanes: Lanes, addresses: Any) -> Any:
    """Host addresses where there are any: a format without values comes with a null pointer."""
    b = lanes.b
    null = b.icmp_unsigned("==", addresses, ir.Constant(ADDRESSES, None))
    active = lanes.active
    lanes.active = b.and_(active, b.not_(lanes.mask(null)))
    out, good = resolve(lanes, Access("generic", 1, False), addresses, lanes.machine.site(lanes))
    lanes.active = b.or_(good, b.and_(active, lanes.mask(null)))
    return b.select(null, ir.Constant(ADDRESSES, None), b.load(out))


def _assert(lanes: Lanes, arguments: tuple[Operand, ...]) -> Any:
    message, file, line, function, *_ = (argument(lanes, a) for a in arguments)
    texts = [_host_addresses(lanes, x) for x in (message, file, function)]
    site = lanes.spread(lanes.v.int(lanes.machine.site(lanes)))
    lanes.host(Ask.ASSERT, *texts, line, site)
    return None


def _malloc(lanes: Lanes, arguments: tuple[Operand, ...]) -> Any:
    site = lanes.spread(lanes.v.int(lanes.machine.site(lanes)))
    lanes.host(Ask.MALLOC, argument(lanes, arguments[0]), site)
    return answer(lanes)


def _free(lanes: Lanes, arguments: tuple[Operand, ...]) -> Any:
    site = lanes.spread(lanes.v.int(lanes.machine.site(lanes)))
    lanes.host(Ask.FREE, argument(lanes, arguments[0]), site)
    return None


def _set_conditional(lanes: Lanes, arguments: tuple[Operand, ...]) -> Any:
    address, value = (argument(lanes, a) for a in arguments)
    words = lanes.b.trunc(value, vector(I32, LANES))
    store_lanes(lanes, CONDITION, address, [words], lanes.machine.site(lanes))
    return None


FUNCTIONS: dict[str, tuple[int, Callable[[Lanes, tuple[Operand, ...]], Any]]] = {
    "vprintf": (2, _print),
    "__assertfail": (5, _assert),
    "malloc": (1, _malloc),
    "free": (1, _free),
    "cudaGraphSetConditional": (2, _set_conditional),
    **device_runtime.FUNCTIONS,
}
PROVIDED = ", ".join(name for name in FUNCTIONS if name not in device_runtime.FUNCTIONS)


def missing(name: str) -> str:
    """Why a function without a body can't be called, or nothing."""
    if name in FUNCTIONS:
        return ""
    if name.startswith(device_runtime.PREFIXES):
        have = ", ".join(n.removeprefix(device_runtime.PREFIX) for n in device_runtime.FUNCTIONS)
        return f"{name}: of the device's CUDA runtime (dynamic parallelism as of CUDA 12) there are only {have}"
    return f"{name} has no body, and the host provides only {PROVIDED}"


def call(lanes: Lanes, name: str, arguments: tuple[Operand, ...], results: tuple[Operand, ...]) -> None:
    """A call to a function without a body."""
    if why := missing(name):
        lanes.refuse(why)
    count, emit = FUNCTIONS[name]
    if len(arguments) != count:
        lanes.refuse(f"{name} takes {count} arguments")
    words = emit(lanes, arguments)
    if results and words is not None:
        result(lanes, results[0], words)
