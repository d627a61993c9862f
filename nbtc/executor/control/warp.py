"""Rows of what the lanes of a warp tell each other.

(PTX ISA, "Parallel Synchronization and Communication Instructions": shfl.sync, vote.sync, match.sync, redux.sync,
activemask, elect.sync, bar.warp.sync.)  A lane that names others in its mask waits until all of them that have not
ended are at the same instruction.  shfl and vote without .sync, of targets before sm_70, are among the lanes at hand.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I32, vector
from nbtc.executor.control import shuffles
from nbtc.executor.emit.action import Action
from nbtc.executor.emit.form import slots
from nbtc.executor.emit.lanes import WARP, Lanes, is_vector
from nbtc.executor.text.data import Immediate, Instruction, Operand, Pair, Sink

L32 = vector(I32, WARP)


def gather_lanes(lanes: Lanes, mask: Operand) -> Any:
    """Wait until the lanes of everybody's mask are here; the i32 of those that take part with each lane (a vector if
    masks vary).  Lanes whose partners are here go on, the others stay."""
    varying = not lanes.uniform(mask)
    if lanes.full and not varying:
        return lanes.read(mask, "b32")
    b, live = lanes.b, lanes.get("warp", "live") if lanes.machine.suspends else ir.Constant(I32, -1)
    wanted = b.and_(lanes.read(mask, "b32"), lanes.spread(live) if varying else live)
    missing = b.and_(wanted, b.not_(lanes.spread(lanes.active) if varying else lanes.active))
    complete = b.icmp_unsigned("==", missing, ir.Constant(missing.type, None if varying else 0))
    ready = b.and_(lanes.active, lanes.mask(complete)) if varying else None
    if lanes.guarded:
        whole = complete if ready is None else b.icmp_unsigned("==", ready, lanes.active)
        lanes.retry_unless(whole)
    elif ready is None:
        lanes.retry_unless(complete)
    else:
        lanes.go_on_with(ready)
        lanes.active = ready
    return wanted


def members(lanes: Lanes, mask: Operand) -> Any:
    """As `gather_lanes`, but one i32: where masks vary, lanes of several groups are here, and all count as present."""
    wanted = gather_lanes(lanes, mask)
    if lanes.full and not is_vector(wanted):
        return wanted
    return lanes.active if is_vector(wanted) else lanes.b.and_(wanted, lanes.active)


def write_both(lanes: Lanes, target: Operand, first: Any, second: Any) -> None:
    """`d|p`, of which p may be missing."""
    pair = target if isinstance(target, Pair) else Pair(target, Sink())
    lanes.write(pair.first, first)
    lanes.write(pair.second, second)


def _shuffle(lanes: Lanes) -> None:
    target, value, b, c, *mask = lanes.operands
    present = members(lanes, mask[0]) if mask else lanes.active
    mode = lanes.op.among(("up", "down", "bfly", "idx"))
    x, source, clamp = (lanes.read(o, "b32", lanes=True) for o in (value, b, c))
    found = shuffles.shuffled(lanes.v, mode, (x, source, clamp), present)
    write_both(lanes, target, *found)


def _vote(lanes: Lanes) -> None:
    target, predicate, *mask = lanes.operands
    wanted = gather_lanes(lanes, mask[0]) if mask else lanes.active
    found = lanes.mask(lanes.read(predicate, "pred", lanes=True))
    mode = lanes.op.among(("all", "any", "uni", "ballot"))
    lanes.write(target, _votes(lanes, mode, found, wanted))


def _votes(lanes: Lanes, mode: str, found: Any, wanted: Any) -> Any:
    """The vote of `found` among the lanes wanted: for one group, or for each lane's."""
    b = lanes.b
    found = b.and_(lanes.spread(found) if is_vector(wanted) else found, wanted)
    if mode == "ballot":
        return found
    some = b.icmp_unsigned("!=", found, ir.Constant(found.type, None if is_vector(found) else 0))
    whole = b.icmp_unsigned("==", found, wanted)
    return {"any": some, "all": whole, "uni": b.or_(whole, b.not_(some))}[mode]


def _match(lanes: Lanes) -> None:
    target, value, mask = lanes.operands
    wanted, b = gather_lanes(lanes, mask), lanes.b
    mode, x = lanes.op.among(("any", "all")), lanes.read(value, lanes.op.types[-1], lanes=True)
    if not is_vector(wanted):
        write_both(lanes, target, *shuffles.matched(lanes.v, mode, x, b.and_(wanted, lanes.active)))
        return
    same = b.and_(shuffles.matched(lanes.v, "any", x, lanes.active)[0], wanted)
    alike = b.icmp_unsigned("==", same, wanted)
    write_both(lanes, target, same if mode == "any" else b.select(alike, wanted, ir.Constant(L32, None)), alike)


def _reduce(lanes: Lanes) -> None:
    target, value, mask = lanes.operands
    wanted = gather_lanes(lanes, mask)
    operation, kind = lanes.op.among(("add", "min", "max", "and", "or", "xor")), lanes.op.types[-1]
    name = (("s" if kind == "s32" else "u") + operation) if operation in ("min", "max") else operation
    x = lanes.read(value, "b32", lanes=True)

    def reduced(among: Any) -> Any:
        if kind == "f32":
            return shuffles.reduced_floats(lanes.v, lanes.op._replace(opcode=operation), x, among)
        return shuffles.reduced(lanes.v, name, x, among)

    if not is_vector(wanted):
        lanes.write(target, reduced(wanted))
        return
    out = ir.Constant(L32, None)
    for lane in range(WARP):  # masks vary: a reduction for each lane's group
        own = lanes.b.extract_element(wanted, ir.Constant(I32, lane))
        out = lanes.b.insert_element(out, reduced(own), ir.Constant(I32, lane))
    lanes.write(target, out)


def _active(lanes: Lanes) -> None:
    lanes.write(lanes.operands[0], lanes.active)


def _elect(lanes: Lanes) -> None:
    target, mask = lanes.operands
    wanted, v = gather_lanes(lanes, mask), lanes.v
    name = f"llvm.cttz.v{WARP}i32" if is_vector(wanted) else "llvm.cttz.i32"
    leader = v.call(name, wanted.type, wanted, ir.Constant(ir.IntType(1), 0))
    chosen = lanes.b.icmp_unsigned("==", lanes.lane_ids(), lanes.spread(leader))
    write_both(lanes, target, leader, chosen)


def _meet(lanes: Lanes) -> None:
    gather_lanes(lanes, lanes.operands[0])


def _always(instruction: Instruction) -> bool:
    return True


def _own(instruction: Instruction) -> bool:
    """Whether masks may vary from lane to lane: each lane then has the result of its own group."""
    return not isinstance(instruction.operands[-1], Immediate)


ACTIONS = (
    Action("shfl", slots("sync", "up|down|bfly|idx", "b32"), _shuffle, 1, varying=_always, waits=_always),
    Action("shfl", slots("up|down|bfly|idx", "b32"), _shuffle, 1, varying=_always),
    Action("vote", slots("all|any|uni", "pred"), _vote, 1, varying=_always),
    Action("vote", slots("ballot", "b32"), _vote, 1, varying=_always),
    Action("vote", slots("sync", "all|any|uni", "pred"), _vote, 1, varying=_own, waits=_always),
    Action("vote", slots("sync", "ballot", "b32"), _vote, 1, varying=_own, waits=_always),
    Action("match", slots("sync", "any|all", "b32|b64"), _match, 1, varying=_always, waits=_always),
    Action("match", slots("any|all", "sync", "b32|b64"), _match, 1, varying=_always, waits=_always),
    Action("redux", slots("sync", "add|min|max", "u32|s32"), _reduce, 1, varying=_own, waits=_always),
    Action("redux", slots("sync", "and|or|xor", "b32"), _reduce, 1, varying=_own, waits=_always),
    Action("redux", slots("sync", "min|max", "abs?", "NaN?", "f32"), _reduce, 1, varying=_own, waits=_always),
    Action("activemask", slots("b32"), _active, 1, varying=_always),
    Action("elect", slots("sync"), _elect, 1, varying=_always, waits=_always),
    Action("bar", slots("warp", "sync"), _meet, waits=_always),
)
