"""Rows of memory taken from a thread's stack while it runs: alloca, stacksave, stackrestore (PTX ISA, "Stack
Manipulation Instructions").

Functions that take some have their variables on the stack, as recursive ones do: what they took goes when they return.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I1, I32, I64, vector
from nbtc.executor.emit.action import Action, yes
from nbtc.executor.emit.errors import ErrorKind
from nbtc.executor.emit.form import slots
from nbtc.executor.emit.lanes import WARP, Lanes
from nbtc.executor.emit.values import resize
from nbtc.executor.text.data import Immediate

L1, L32, L64 = vector(I1, WARP), vector(I32, WARP), vector(I64, WARP)
ALIGN = 8  # bytes, where the instruction names none (PTX ISA, "alloca")


def _move_top(lanes: Lanes, top: Any) -> None:
    """Where the active lanes' stacks end from now on."""
    b, slot = lanes.b, lanes.frame.code.stack_top()
    b.store(b.select(lanes.active_lanes, top, b.load(slot)), slot)


def _take(lanes: Lanes) -> None:
    target, size, *align = lanes.operands
    if align and not isinstance(align[0], Immediate):
        lanes.refuse("the alignment is a constant")
    step = align[0].value if align and isinstance(align[0], Immediate) else ALIGN
    b, v = lanes.b, lanes.v
    top = b.load(lanes.frame.code.stack_top())
    start = b.and_(b.add(top, v.const(L32, step - 1)), v.const(L32, -step))
    wanted = lanes.read(size, lanes.op.modifiers[-1], lanes=True)
    end = b.add(b.zext(start, L64), resize(v, wanted, 64))
    limit = b.zext(v.splat(lanes.get("launch", "local_bytes"), WARP), L64)
    over = b.and_(lanes.mask(b.icmp_unsigned(">", end, limit)), lanes.active)
    with b.if_then(b.icmp_unsigned("!=", over, ir.Constant(I32, 0)), likely=False):
        lanes.fail(ErrorKind.STACK_OVERFLOW, over)
    _move_top(lanes, b.trunc(end, L32))
    lanes.write(target, start)


def _save(lanes: Lanes) -> None:
    lanes.write(lanes.operands[0], lanes.b.load(lanes.frame.code.stack_top()))


def _restore(lanes: Lanes) -> None:
    _move_top(lanes, resize(lanes.v, lanes.read(lanes.operands[0], lanes.op.modifiers[-1], lanes=True), 32))


TYPES = "u32|u64"
ACTIONS = (
    Action("alloca", slots(TYPES), _take, 1, varying=yes),
    Action("stacksave", slots(TYPES), _save, 1, varying=yes),
    Action("stackrestore", slots(TYPES), _restore),
)
