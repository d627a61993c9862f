"""What programs ask of the host (CUDA C++ Programming Guide: formatted output, assertion, dynamic memory allocation).

`vprintf`, `__assertfail`, `malloc` and `free` are functions without a body.  Compiled code hands their arguments,
checked, to the launch's callback.  `cudaGraphSetConditional` needs no callback: a handle is its condition's address.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I1, I8, I32, I64, vector
from nbtc.executor.emit.lanes import Lanes
from nbtc.executor.emit.values import resize
from nbtc.executor.memory import reach
from nbtc.executor.memory.gather import LaneElements
from nbtc.executor.memory.memory import store_lanes
from nbtc.executor.memory.resolve import ADDRESSES, Access, resolve
from nbtc.executor.memory.stack import WORDS, Stack
from nbtc.executor.text.data import Immediate, Operand, Register, Symbol

LANES = 32
CONDITION = LaneElements("global", 32, 1, False)  # 32 bits that a graph's conditional node looks at


class Ask(IntEnum):
    """What the callback is asked for."""

    PRINT = 1
    ASSERT = 2
    MALLOC = 3
    FREE = 4
    TENSOR = 5  # tensor memory and block scales, by a text that says what


def text(lanes: Lanes, words: str) -> Any:
    """A constant text of the module that begins with the instruction's line, as an address (i64)."""
    octets = bytearray(f"{lanes.instruction.line} {words}\0".encode())
    kind, module = ir.ArrayType(I8, len(octets)), lanes.machine.module
    found = ir.GlobalVariable(module, kind, module.get_unique_name("text"))
    found.global_constant, found.linkage = True, "internal"
    found.initializer = ir.Constant(kind, octets)
    return lanes.b.ptrtoint(found, I64)


def ask_once(lanes: Lanes, words: str, *values: Any) -> Any:
    """Ask the host for the warp as a whole, with i64 of the first active lane; the first word of the answer."""
    mine = copy.copy(lanes)
    lane = lanes.v.call("llvm.cttz.i32", I32, lanes.active, ir.Constant(I1, 0))
    mine.active = lanes.b.shl(ir.Constant(I32, 1), lane)
    mine.host(Ask.TENSOR, text(lanes, words), *(reach.first_lane(lanes, x) for x in values))
    at = lanes.field("warp", "scratch", lanes.b.shl(lanes.b.zext(lane, I64), lanes.v.int(3)))
    return lanes.v.load(at, I64, 8)


def _argument(lanes: Lanes, operand: Operand) -> Any:
    """An argument's 64 bits in each lane."""
    if isinstance(operand, Symbol):
        return Stack(lanes.frame).pop(lanes.active, lanes.frame.local_offsets(operand.name), ir.Constant(WORDS, None))
    if isinstance(operand, Register | Immediate):
        return lanes.spread(resize(lanes.v, lanes.read(operand), 64))
    return lanes.refuse("an argument is a variable, a register or a number")


def _host_addresses(lanes: Lanes, addresses: Any) -> Any:
    """Generic addresses as the host's."""
    out, good = resolve(lanes, Access("generic", 1, False), addresses, lanes.machine.site(lanes))
    lanes.active = good
    return lanes.b.load(out)


def _result(lanes: Lanes, operand: Operand, words: Any) -> None:
    if isinstance(operand, Symbol):
        Stack(lanes.frame).push(lanes.active, lanes.frame.local_offsets(operand.name), words)
    elif isinstance(operand, Register):
        lanes.write(operand, resize(lanes.v, words, operand.bits))


def _print(lanes: Lanes, arguments: tuple[Operand, ...]) -> Any:
    text, values = (_argument(lanes, a) for a in arguments)
    text = _host_addresses(lanes, text)
    lanes.host(Ask.PRINT, text, _optional_address(lanes, values))
    return lanes.v.load(lanes.field("warp", "scratch"), ADDRESSES, 8)


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
    message, file, line, function, *_ = (_argument(lanes, a) for a in arguments)
    texts = [_host_addresses(lanes, x) for x in (message, file, function)]
    site = lanes.spread(lanes.v.int(lanes.machine.site(lanes)))
    lanes.host(Ask.ASSERT, *texts, line, site)
    return None


def _malloc(lanes: Lanes, arguments: tuple[Operand, ...]) -> Any:
    site = lanes.spread(lanes.v.int(lanes.machine.site(lanes)))
    lanes.host(Ask.MALLOC, _argument(lanes, arguments[0]), site)
    return lanes.v.load(lanes.field("warp", "scratch"), ADDRESSES, 8)


def _free(lanes: Lanes, arguments: tuple[Operand, ...]) -> Any:
    site = lanes.spread(lanes.v.int(lanes.machine.site(lanes)))
    lanes.host(Ask.FREE, _argument(lanes, arguments[0]), site)
    return None


def _set_conditional(lanes: Lanes, arguments: tuple[Operand, ...]) -> Any:
    address, value = (_argument(lanes, a) for a in arguments)
    words = lanes.b.trunc(value, vector(I32, LANES))
    store_lanes(lanes, CONDITION, address, [words], lanes.machine.site(lanes))
    return None


FUNCTIONS: dict[str, tuple[int, Callable[[Lanes, tuple[Operand, ...]], Any]]] = {
    "vprintf": (2, _print),
    "__assertfail": (5, _assert),
    "malloc": (1, _malloc),
    "free": (1, _free),
    "cudaGraphSetConditional": (2, _set_conditional),
}


def call(lanes: Lanes, name: str, arguments: tuple[Operand, ...], results: tuple[Operand, ...]) -> None:
    """A call to a function without a body."""
    if name not in FUNCTIONS:
        lanes.refuse(f"{name} has no body and is nothing that the host provides ({', '.join(FUNCTIONS)})")
    count, emit = FUNCTIONS[name]
    if len(arguments) != count:
        lanes.refuse(f"{name} takes {count} arguments")
    words = emit(lanes, arguments)
    if results and words is not None:
        _result(lanes, results[0], words)
