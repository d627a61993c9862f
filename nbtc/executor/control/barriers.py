"""Barriers of a thread block (PTX ISA 9.7.13, "bar, barrier").

A barrier is a few words in the block: how many threads have arrived, its phase, how many it waits for (0: all threads
that have not ended) and how many of those that arrived brought a true predicate.  A thread that waits is noted in its
warp; the last to arrive moves the phase on, releases all that wait and tells each what the predicates were.  A barrier
may be used again, by other threads, before one that it released runs: comparing phases later would miss its own.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from nbtc.compiler.builder import I8, I32, I64, VectorBuilder, vector
from nbtc.executor.emit.action import Action, no, yes
from nbtc.executor.emit.errors import ErrorKind
from nbtc.executor.emit.fields import field_at, load_field, store_field
from nbtc.executor.emit.form import slots
from nbtc.executor.emit.lanes import WARP, Lanes
from nbtc.executor.emit.state import BARRIERS, BLOCK
from nbtc.executor.emit.state import WARP as WARP_STATE
from nbtc.executor.memory.reach import first_lane
from nbtc.executor.memory.side_by_side import store_among
from nbtc.executor.text.data import Immediate, Operand

ARRIVED, PHASE, EXPECTED, TRUE = 0, 4, 8, 12  # bytes of a barrier's words
BARRIER_BYTES = 32
L32 = vector(I32, WARP)
POINTER, VOID = I8.as_pointer(), ir.VoidType()
ZERO = ir.Constant(I32, 0)


def _barrier(lanes: Lanes, operand: Operand) -> Any:
    """Pointer to the words of the barrier that an operand names."""
    found = first_lane(lanes, lanes.read(operand, "u32"))  # PTX wants the same number in all threads of a warp
    if not isinstance(operand, Immediate):
        with lanes.b.if_then(lanes.b.icmp_unsigned(">=", found, ir.Constant(I32, BARRIERS)), likely=False):
            lanes.fail(ErrorKind.BARRIER_NUMBER, lanes.active)
    number = lanes.b.zext(lanes.b.and_(found, ir.Constant(I32, BARRIERS - 1)), I64)
    return lanes.field("block", "barriers", lanes.b.mul(number, lanes.v.int(BARRIER_BYTES)))


def _count(lanes: Lanes, operands: tuple[Operand, ...]) -> Any:
    """The number of threads after a barrier's number, 0 where there is none."""
    if len(operands) < 2:
        return ZERO
    return first_lane(lanes, lanes.read(operands[1], "u32"))


def _wait(lanes: Lanes, operands: tuple[Operand, ...], true: Any) -> None:
    """Arrive, and go on when all have."""
    barrier, count = _barrier(lanes, operands[0]), _count(lanes, operands)
    instrument = lanes.machine.instrument
    if instrument.observes:
        new = lanes.b.and_(lanes.active, lanes.b.not_(lanes.get("warp", "waiting")))
        instrument.arrives(lanes, barrier, new, count)
    helper = lanes.helper("barrier_wait", I32, (POINTER, POINTER, POINTER, I32, I32, I32), _arrive_and_look)
    released = lanes.b.call(helper, [barrier, lanes.block, lanes.warp, lanes.active, count, true])
    lanes.go_on_with(released)
    lanes.active = released
    instrument.leaves(lanes, barrier, released)


def sync(lanes: Lanes) -> None:
    """bar.sync, barrier.sync: arrive, and go on when all have."""
    _wait(lanes, lanes.operands, ZERO)


def arrive(lanes: Lanes) -> None:
    """bar.arrive, barrier.arrive: arrive, and go on at once."""
    barrier = _barrier(lanes, lanes.operands[0])
    count = _count(lanes, lanes.operands)
    lanes.machine.instrument.arrives(lanes, barrier, lanes.active, count)
    kinds = (POINTER, POINTER, POINTER, I32, I32, I32)
    helper = lanes.helper("barrier_arrive", VOID, kinds, _arrive)
    lanes.b.call(helper, [barrier, lanes.block, lanes.warp, lanes.active, count, ZERO])


def reduce(lanes: Lanes) -> None:
    """bar.red, barrier.red: a barrier that tells how many predicates were true, or whether all or any were."""
    target, *operands, predicate = lanes.operands
    true = lanes.mask(lanes.read(predicate, "pred", lanes=True))
    _wait(lanes, tuple(operands), true)
    told = lanes.v.load(lanes.field("warp", "told"), L32, 64)
    counted = lanes.b.lshr(told, lanes.v.const(L32, 1))
    if lanes.op.has("popc"):
        lanes.write(target, counted)
    else:
        found = lanes.b.and_(told, lanes.v.const(L32, 1)) if lanes.op.has("and") else counted
        lanes.write(target, lanes.b.icmp_unsigned("!=", found, lanes.v.const(L32, 0)))


def _arrive_and_look(v: VectorBuilder, args: Any) -> None:
    """Active lanes of a warp arrive that don't wait yet; the i32 of those that are released, and wait no longer.

    Where none is, the warp is to sleep until the phase moves on.
    """
    b = v.b
    barrier, block, warp, active, count, true = args
    places = {name: field_at(v, "warp", warp, name) for name in ("waiting", "released")}
    new = b.and_(active, b.not_(v.load(places["waiting"], I32, 4)))
    with b.if_then(b.icmp_unsigned("!=", new, ZERO)):
        _note(v, (barrier, block, warp, new, count, true), True)
    released = b.and_(active, v.load(places["released"], I32, 4))
    some = b.icmp_unsigned("!=", released, ZERO)
    phase = b.ptrtoint(v.at(barrier, PHASE), I64)
    store_field(v, "warp", warp, "wait_address", b.select(some, v.int(0), phase))
    store_field(v, "warp", warp, "wait_value", v.load(barrier, I32, 4, PHASE))
    for place in places.values():
        v.store(b.and_(v.load(place, I32, 4), b.not_(released)), place, 4)
    b.ret(released)


def _arrive(v: VectorBuilder, args: Any) -> None:
    """New lanes of a warp arrive, and don't wait."""
    with v.b.if_then(v.b.icmp_unsigned("!=", args[3], ZERO)):
        _note(v, args, False)
    v.b.ret_void()


def _note(v: VectorBuilder, args: Any, waits: bool) -> None:
    """Lanes arrive, at least one; the barrier's phase moves on if they were the last."""
    b = v.b
    barrier, block, warp, new, count, true = args
    if waits:
        number = _number(v, barrier, block)
        for place in (field_at(v, "warp", warp, "waiting"), _waiters(v, warp, number)):
            v.store(b.or_(v.load(place, I32, 4), new), place, 4)
    v.store(b.add(v.load(barrier, I32, 4, TRUE), v.popcount(b.and_(true, new))), barrier, 4, TRUE)
    arrived = b.add(v.load(barrier, I32, 4, ARRIVED), v.popcount(new))
    v.store(arrived, barrier, 4, ARRIVED)
    v.store(count, barrier, 4, EXPECTED)
    _complete(v, barrier, block)


def _complete(v: VectorBuilder, barrier: Any, block: Any) -> None:
    """Move the phase on if all have arrived."""
    b = v.b
    arrived, expected = v.load(barrier, I32, 4, ARRIVED), v.load(barrier, I32, 4, EXPECTED)
    everyone = load_field(v, "block", block, "live_threads")
    needed = b.select(b.icmp_unsigned("==", expected, ZERO), everyone, expected)
    full = b.and_(b.icmp_unsigned("!=", arrived, ZERO), b.icmp_unsigned(">=", arrived, needed))
    with b.if_then(full):
        true = v.load(barrier, I32, 4, TRUE)
        every = b.zext(b.icmp_unsigned("==", true, arrived), I32)
        phase = v.load(barrier, I32, 4, PHASE)
        _release(v, barrier, block, b.or_(b.shl(true, ir.Constant(I32, 1)), every), phase)
        v.store(ZERO, barrier, 4, TRUE)
        v.store(ZERO, barrier, 4, ARRIVED)
        v.store(b.add(phase, ir.Constant(I32, 1)), barrier, 4, PHASE)


def _number(v: VectorBuilder, barrier: Any, block: Any) -> Any:
    """Which of a block's barriers one is (i64)."""
    b = v.b
    first = b.ptrtoint(field_at(v, "block", block, "barriers"), I64)
    return b.udiv(b.sub(b.ptrtoint(barrier, I64), first), v.int(BARRIER_BYTES))


def _waiters(v: VectorBuilder, warp: Any, number: Any) -> Any:
    """Where a warp notes which of its lanes wait at a barrier."""
    return field_at(v, "warp", warp, "barrier_waiters", v.b.shl(number, v.int(2)))


def _release(v: VectorBuilder, barrier: Any, block: Any, told: Any, phase: Any) -> None:
    """Release all that wait at a barrier, and tell each of the predicates: twice how many were true, and 1 if all."""
    b = v.b
    number = _number(v, barrier, block)
    launch = b.inttoptr(load_field(v, "block", block, "launch"), POINTER)
    warps = b.zext(load_field(v, "launch", launch, "warps"), I64)
    with cgutils.for_range(b, warps) as loop:
        warp = v.at(block, BLOCK.size, b.mul(loop.index, v.int(WARP_STATE.size)))
        waiters = _waiters(v, warp, number)
        mask = v.load(waiters, I32, 4)
        with b.if_then(b.icmp_unsigned("!=", mask, ZERO)):
            v.store(ZERO, waiters, 4)
            released = field_at(v, "warp", warp, "released")
            v.store(b.or_(v.load(released, I32, 4), mask), released, 4)
            store_field(v, "warp", warp, "released_in", phase)
            place = field_at(v, "warp", warp, "told")
            store_among(v, v.splat(told, WARP), place, mask)


def threads_ended(v: VectorBuilder, args: Any) -> None:
    """After threads of a block have ended: barriers that waited for them alone let the others go."""
    b = v.b
    (block,) = args
    barriers = field_at(v, "block", block, "barriers")
    with cgutils.for_range(b, v.int(BARRIERS)) as loop:
        _complete(v, v.at(barriers, b.mul(loop.index, v.int(BARRIER_BYTES))), block)
    b.ret_void()


ACTIONS = tuple(
    Action(opcode, slots("cta?", *name, *more, *kind), emit, results, waits=waits)
    for opcode, more in (("bar", ()), ("barrier", ("aligned?",)))
    for name, kind, emit, results, waits in (
        (("sync",), (), sync, 0, yes),
        (("arrive",), (), arrive, 0, no),
        (("red", "popc"), ("u32",), reduce, 1, yes),
        (("red", "and|or"), ("pred",), reduce, 1, yes),
    )
)
