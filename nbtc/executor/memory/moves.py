"""Moves and addresses (PTX ISA 9.7.9): mov, cvta, isspacep, and what only tells a cache something."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I32, I64
from nbtc.executor.emit.action import Action
from nbtc.executor.emit.form import slots
from nbtc.executor.emit.lanes import Lanes, is_vector
from nbtc.executor.emit.state import LOCAL_WINDOW, SHARED_WINDOW
from nbtc.executor.emit.values import const, resize
from nbtc.executor.memory.resolve import FIRST_RANK, RANK_SHIFT
from nbtc.executor.text.data import WIDTHS, Instruction, Operand, Sink, Special, Vector

TYPES = "pred|b16|b32|b64|b128|u16|u32|u64|s16|s32|s64|f32|f64"
SPACES = "global|shared|shared::cta|shared::cluster|local|const|param|param::entry|param::func"
WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}
TAG = 56  # of a generic address: bits from here on tell its space


def _move_elements(lanes: Lanes) -> None:
    """mov.v2, mov.v4: element by element, also of vectors such as %tid."""
    target, source = lanes.operands
    kind, count = lanes.op.modifiers[-1], int(lanes.op.modifiers[0][1:])
    if isinstance(source, Special):
        parts: tuple[Operand, ...] = tuple(Special(f"{source.name}.{axis}") for axis in "xyzw")
    else:
        parts = lanes.elements(source)
    targets = lanes.elements(target)
    if not len(targets) == len(parts) == count:
        lanes.refuse(f"moves {count} elements, from {len(parts)} to {len(targets)} registers")
    for register, value in zip(targets, [lanes.read(x, kind) for x in parts], strict=True):
        lanes.write(register, value)


def mov(lanes: Lanes) -> None:
    """mov, also from and to vectors of narrower registers."""
    target, source = lanes.operands
    kind = lanes.op.modifiers[-1]
    if isinstance(source, Vector):
        lanes.write(target, _joined(lanes, source, kind))
    elif isinstance(target, Vector):
        _divide(lanes, target, lanes.read(source, kind))
    else:
        lanes.write(target, lanes.read(source, kind))


def _joined(lanes: Lanes, source: Vector, kind: str) -> Any:
    """The elements side by side, the first in the low bits."""
    width = WIDTHS[kind]
    part = width // len(source.elements)
    values = [lanes.read(element, f"b{part}") for element in source.elements]
    if any(is_vector(x) for x in values):
        values = [lanes.spread(x) for x in values]
    whole = None
    for i, value in enumerate(values):
        wide = resize(lanes.v, value, width)
        wide = lanes.b.shl(wide, const(lanes.v, wide, i * part)) if i else wide
        whole = wide if whole is None else lanes.b.or_(whole, wide)
    return whole


def _divide(lanes: Lanes, target: Vector, value: Any) -> None:
    width = (value.type.element if is_vector(value) else value.type).width
    part = width // len(target.elements)
    for i, element in enumerate(target.elements):
        if not isinstance(element, Sink):
            moved = lanes.b.lshr(value, const(lanes.v, value, i * part)) if i else value
            lanes.write(element, resize(lanes.v, moved, part))


def _space(lanes: Lanes) -> str:
    return next(m for m in lanes.op.modifiers if m in SPACES.split("|")).split("::")[0]


def host_base(lanes: Lanes, space: str) -> Any | None:
    """Where a space begins in the host's memory: its addresses are offsets, as compilers keep them in 32 bits."""
    if space == "const":
        return lanes.get("launch", "variables")
    if space.split("::")[0] == "param" and lanes.frame.function.entry:  # a function's lie in the thread's local memory
        return lanes.get("launch", "parameters")
    return None


def in_host(lanes: Lanes, address: Any, space: str) -> Any:
    """The host's address of an address in a space."""
    base = host_base(lanes, space)
    if base is None:
        return address
    return lanes.b.add(address, lanes.spread(base) if is_vector(address) else base)


def cvta(lanes: Lanes) -> None:
    """cvta: an address in its space to a generic one, or back (.to): the window is set or cleared."""
    target, source = lanes.operands
    kind = lanes.op.modifiers[-1]
    value = resize(lanes.v, lanes.read(source, kind), 64)
    space, back = _space(lanes), lanes.op.has("to")
    base = host_base(lanes, space)
    window = WINDOWS.get("local" if space == "param" else space, 0)
    if base is not None:
        base = lanes.spread(base) if is_vector(value) else base
        value = lanes.b.sub(value, base) if back else lanes.b.add(value, base)
    elif window and back:
        value = lanes.b.and_(value, const(lanes.v, value, (1 << TAG) - 1))
    elif window:
        value = lanes.b.or_(value, const(lanes.v, value, window))
    lanes.write(target, value)


def _own_place(instruction: Instruction) -> bool:
    """A generic address of local memory is one number, but a place of its own for each lane."""
    return "local" in instruction.modifiers and "to" not in instruction.modifiers


def _own_block(lanes: Lanes, address: Any) -> Any:
    """Whether a shared address, as another block of the cluster may have made it, is this block's."""
    b, v = lanes.b, lanes.v
    rank = b.and_(b.lshr(address, const(v, address, RANK_SHIFT)), const(v, address, 0xFF))
    own = b.zext(b.add(lanes.get("block", "cluster_rank"), ir.Constant(I32, FIRST_RANK)), I64)
    own = lanes.spread(own) if is_vector(rank) else own
    return b.or_(b.icmp_unsigned("==", rank, const(v, rank, 0)), b.icmp_unsigned("==", rank, own))


def isspacep(lanes: Lanes) -> None:
    """isspacep: whether a generic address lies in a space."""
    target, source = lanes.operands
    value = lanes.read(source, "u64")
    space = _space(lanes)
    tag = lanes.b.lshr(value, const(lanes.v, value, TAG))
    if space in WINDOWS:
        inside = lanes.b.icmp_unsigned("==", tag, const(lanes.v, tag, WINDOWS[space] >> TAG))
        if lanes.op.has("shared::cta"):
            inside = lanes.b.and_(inside, _own_block(lanes, value))
    else:
        inside = lanes.b.icmp_unsigned("==", tag, const(lanes.v, tag, 0))
        known = lanes.machine.within(lanes, value, space)
        inside = lanes.b.and_(inside, known)
    lanes.write(target, inside)


def nothing(lanes: Lanes) -> None:
    """Hints about caches: what a program computes does not depend on them."""


def createpolicy(lanes: Lanes) -> None:
    """createpolicy: a word that only hints take."""
    lanes.write(lanes.operands[0], ir.Constant(I64, 0))


LEVELS = "L1|L2|L2::evict_last|L2::evict_normal"
EVICT = ["evict_last", "evict_normal", "evict_first", "evict_unchanged"]
POLICY = "|".join((*EVICT, *(f"L2::{e}" for e in EVICT)))
ACTIONS = (
    Action("mov", slots(TYPES), mov, results=1),
    Action("mov", slots("v2|v4", "b16|b32|u16|u32|s16|s32|f32"), _move_elements, results=1),
    Action("mov", slots("v2", "b64|u64|s64|f64"), _move_elements, results=1),
    Action("cvta", slots("to?", SPACES, "u32|u64"), cvta, results=1, varying=_own_place),
    Action("isspacep", slots(SPACES), isspacep, results=1),
    Action("prefetch", slots("global|local|const|param?", f"{LEVELS}|tensormap"), nothing),
    Action("prefetch", slots("global?", "L1::32B", "valid_addr"), nothing),
    Action("prefetchu", slots("L1"), nothing),
    Action("discard", slots("global?", "L2"), nothing),
    Action("applypriority", slots("global?", "L2::evict_normal"), nothing),
    Action("createpolicy", slots("fractional", POLICY, f"{POLICY}?", "b64"), createpolicy, results=1),
    Action("createpolicy", slots("range", "global?", POLICY, f"{POLICY}?", "b64"), createpolicy, results=1),
    Action("createpolicy", slots("cvt", "L2", "b64"), createpolicy, results=1),
)
