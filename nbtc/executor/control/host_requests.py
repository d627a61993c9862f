"""How compiled code asks the host: what for, with which words of each lane, and where an answer goes."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I8, I64
from nbtc.executor.emit.lanes import Lanes
from nbtc.executor.emit.values import resize
from nbtc.executor.memory.resolve import ADDRESSES
from nbtc.executor.memory.stack import WORDS, Stack
from nbtc.executor.text.data import Immediate, Operand, Register, Symbol


class Ask(IntEnum):
    """What the callback is asked for."""

    PRINT = 1
    ASSERT = 2
    MALLOC = 3
    FREE = 4
    TENSOR = 5  # tensor memory and block scales, by a text that says what
    PARAMETERS = 6  # a buffer for the parameters of a kernel that a kernel launches
    LAUNCH = 7
    COPY = 8  # within device memory, in the order of launches
    FILL = 9
    ERROR = 10  # the text or the name of an error code


def text(lanes: Lanes, words: str) -> Any:
    """A constant text of the module that begins with the instruction's line, as an address (i64)."""
    octets = bytearray(f"{lanes.instruction.line} {words}\0".encode())
    kind, module = ir.ArrayType(I8, len(octets)), lanes.machine.module
    found = ir.GlobalVariable(module, kind, module.get_unique_name("text"))
    found.global_constant, found.linkage = True, "internal"
    found.initializer = ir.Constant(kind, octets)
    return lanes.b.ptrtoint(found, I64)


def argument(lanes: Lanes, operand: Operand) -> Any:
    """An argument's 64 bits in each lane."""
    if isinstance(operand, Symbol):
        return Stack(lanes.frame).pop(lanes.active, lanes.frame.local_offsets(operand.name), ir.Constant(WORDS, None))
    if isinstance(operand, Register | Immediate):
        return lanes.spread(resize(lanes.v, lanes.read(operand), 64))
    return lanes.refuse("an argument is a variable, a register or a number")


def answer(lanes: Lanes) -> Any:
    """The first word of each lane's answer."""
    return lanes.v.load(lanes.field("warp", "scratch"), ADDRESSES, 8)


def result(lanes: Lanes, operand: Operand, words: Any) -> None:
    """Words as what a call gives back."""
    if isinstance(operand, Symbol):
        place = lanes.machine.linked.place(lanes.frame.function.name, operand.name)
        size = place.bytes if place is not None else WORDS.element.width // 8
        Stack(lanes.frame).push(lanes.active, lanes.frame.local_offsets(operand.name), words, size)
    elif isinstance(operand, Register):
        lanes.write(operand, resize(lanes.v, words, operand.bits))
