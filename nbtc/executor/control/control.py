"""Control flow (PTX ISA 9.7.12): bra, brx.idx, ret, exit, trap."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I1, I32
from nbtc.executor.control import calls
from nbtc.executor.emit.action import Action
from nbtc.executor.emit.context import END
from nbtc.executor.emit.errors import ErrorKind
from nbtc.executor.emit.form import slots
from nbtc.executor.emit.lanes import Lanes, is_vector
from nbtc.executor.text.data import Register

ZERO = ir.Constant(I32, 0)


def _branch(lanes: Lanes, way: int) -> None:
    """Lanes whose guard holds go one way, the others fall through."""
    frame, b = lanes.frame, lanes.b
    guard = lanes.instruction.guard
    group = frame.group()
    if guard is None:
        frame.go(way, group)
        return
    value = frame.guard(guard)
    falls = END if frame.current.falls is None else frame.current.falls
    if value.type == I1:
        taken, not_taken = (frame.code.function.append_basic_block(n) for n in ("taken", "not_taken"))
        b.cbranch(value, taken, not_taken)
        b.position_at_end(taken)
        frame.go(way, group)
        b.position_at_end(not_taken)
        frame.go(falls, group)
        return
    taken = b.and_(value, group)
    frame.split(((way, taken), (falls, b.xor(taken, group))))


def bra(lanes: Lanes) -> None:
    """bra"""
    _branch(lanes, lanes.frame.current.jumps[0])


def leave(lanes: Lanes) -> None:
    """ret, exit"""
    if lanes.op.opcode == "ret" and not lanes.frame.function.entry:
        calls.ret(lanes)
    else:
        _branch(lanes, END)


def brx(lanes: Lanes) -> None:
    """brx.idx: the index of every lane picks its label."""
    index = lanes.operands[0]
    if not isinstance(index, Register):
        lanes.refuse("the index is a register")
    if lanes.instruction.guard is not None:
        lanes.refuse("with a guard it is not implemented")
    frame, b = lanes.frame, lanes.b
    value, jumps = lanes.read(index, "u32"), frame.current.jumps
    if not is_vector(value):
        group = frame.group()
        others = frame.code.function.append_basic_block("beyond")
        switch = b.switch(value, others)
        for i, way in enumerate(jumps):
            case = frame.code.function.append_basic_block(f"case{i}")
            switch.add_case(ir.Constant(I32, i), case)
            b.position_at_end(case)
            frame.go(way, group)
        b.position_at_end(others)
        lanes.fail(ErrorKind.BRANCH_INDEX, group)
        frame.end(group, True)
        return
    _choose(lanes, value, jumps)


def _choose(lanes: Lanes, value: Any, jumps: tuple[int, ...]) -> None:
    """Every lane goes the way its index says: one group after the other becomes pending, then the lowest runs."""
    frame, b = lanes.frame, lanes.b
    group = rest = frame.group()
    for way in dict.fromkeys(jumps):
        hits = None
        for i, other in enumerate(jumps):
            if other == way:
                hit = b.icmp_unsigned("==", value, lanes.spread(ir.Constant(I32, i)))
                hits = hit if hits is None else b.or_(hits, hit)
        mask = b.and_(lanes.mask(hits), rest)
        rest = b.xor(rest, mask)
        with b.if_then(b.icmp_unsigned("!=", mask, ZERO)):
            if way == END:
                frame.end(mask, False)
            else:
                frame.code.defer(frame.target(way), mask)
    with b.if_then(b.icmp_unsigned("!=", rest, ZERO)):
        lanes.fail(ErrorKind.BRANCH_INDEX, rest)
    frame.poll(group)
    b.branch(frame.code.dispatch)


def trap(lanes: Lanes) -> None:
    """trap, brkpt: the launch ends with an error."""
    lanes.fail(ErrorKind.TRAP, lanes.active)


def nothing(lanes: Lanes) -> None:
    """Instructions without an effect that a program could see."""


ACTIONS = (
    Action("bra", slots("uni?"), bra),
    Action("brx", slots("idx", "uni?"), brx),
    Action("ret", slots("uni?"), leave),
    Action("exit", (), leave),
    Action("trap", (), trap),
    Action("brkpt", (), trap),
    Action("pmevent", slots("mask?"), nothing),
    *calls.ACTIONS,
)
