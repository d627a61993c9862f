"""Barriers of a thread block (PTX ISA 9.7.13, "bar, barrier").

A barrier is a few words in the block: how many threads have arrived, its phase, how many it waits for (0: all threads
that have not ended), how many of those that arrived brought a true predicate, and of the phase that ended last how many
did and whether all did.  A thread that arrives notes the phase's parity in its warp and is released when the phase
moves on; the last to arrive moves it.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from nbtc.compiler.builder import I8, I32, I64, VectorBuilder
from nbtc.executor.emit.action import Action, no, yes
from nbtc.executor.emit.errors import Kind
from nbtc.executor.emit.form import slots
from nbtc.executor.emit.lanes import WARP, Lanes
from nbtc.executor.emit.state import BARRIERS, LAYOUTS
from nbtc.executor.memory.reach import first_lane
from nbtc.executor.memory.resolve import place_of
from nbtc.executor.text.data import Immediate, Operand

ARRIVED, PHASE, EXPECTED, TRUE, COUNTED, ALL = 0, 4, 8, 12, 16, 20  # bytes of a barrier's words
BARRIER_BYTES = 32
POINTER = I8.as_pointer()
ZERO = ir.Constant(I32, 0)


def _barrier(lanes: Lanes, operand: Operand) -> Any:
    """Pointer to the words of the barrier that an operand names."""
    if isinstance(operand, Immediate) and not 0 <= operand.value < BARRIERS:
        lanes.refuse(f"barrier {operand.value}: there are barriers 0 to {BARRIERS - 1}")
    found = first_lane(lanes, lanes.read(operand, "u32"))  # PTX wants the same number in all threads of a warp
    if not isinstance(operand, Immediate):
        with lanes.b.if_then(lanes.b.icmp_unsigned(">=", found, ir.Constant(I32, BARRIERS)), likely=False):
            lanes.fail(Kind.BARRIER_NUMBER, lanes.active)
    number = lanes.b.zext(lanes.b.and_(found, ir.Constant(I32, BARRIERS - 1)), I64)
    return lanes.field("block", "barriers", lanes.b.mul(number, lanes.v.int(BARRIER_BYTES)))


def _count(lanes: Lanes, operands: tuple[Operand, ...]) -> Any:
    """The number of threads behind a barrier's number, 0 where there is none."""
    if len(operands) < 2:
        return ZERO
    if isinstance(operands[1], Immediate) and operands[1].value % WARP:
        lanes.refuse(f"{operands[1].value} threads: a barrier counts whole warps, a multiple of {WARP} threads")
    return first_lane(lanes, lanes.read(operands[1], "u32"))


def _note(lanes: Lanes, barrier: Any, new: Any, count: Any, true: Any, waits: bool) -> None:
    """New lanes arrive; those that wait note the phase."""
    helper = lanes.helper(
        f"barrier_arrive_{int(waits)}", ir.VoidType(), (POINTER, POINTER, POINTER, I32, I32, I32),
        lambda v, args: _arrive(v, args, waits),
    )  # fmt: skip
    lanes.b.call(helper, [barrier, lanes.block, lanes.warp, new, count, true])


def _wait(lanes: Lanes, operands: tuple[Operand, ...], true: Any) -> Any:
    """Arrive, and go on when all have; returns the barrier."""
    b, v = lanes.b, lanes.v
    barrier, count = _barrier(lanes, operands[0]), _count(lanes, operands)
    waiting = lanes.get("warp", "waiting")
    new = b.and_(lanes.active, b.not_(waiting))
    lanes.machine.instrument.arrives(lanes, barrier, new, count)
    _note(lanes, barrier, new, count, true, True)
    phase = v.load(barrier, I32, 4, PHASE)
    parity = b.sub(ZERO, b.and_(phase, ir.Constant(I32, 1)))
    released = b.and_(lanes.active, b.xor(lanes.get("warp", "parity"), parity))
    lanes.wait_on(v.at(barrier, PHASE), phase)
    lanes.go_on_with(released)
    lanes.put("warp", "wait_address", v.int(0))
    lanes.put("warp", "waiting", b.and_(lanes.get("warp", "waiting"), b.not_(released)))
    lanes.active = released
    lanes.machine.instrument.leaves(lanes, barrier, released)
    return barrier


def sync(lanes: Lanes) -> None:
    """bar.sync, barrier.sync: arrive, and go on when all have."""
    _wait(lanes, lanes.operands, ZERO)


def arrive(lanes: Lanes) -> None:
    """bar.arrive, barrier.arrive: arrive, and go on at once."""
    barrier = _barrier(lanes, lanes.operands[0])
    count = _count(lanes, lanes.operands)
    lanes.machine.instrument.arrives(lanes, barrier, lanes.active, count)
    _note(lanes, barrier, lanes.active, count, ZERO, False)


def reduce(lanes: Lanes) -> None:
    """bar.red, barrier.red: a barrier that tells how many predicates were true, or whether all or any were."""
    target, *operands, predicate = lanes.operands
    true = lanes.mask(lanes.read(predicate, "pred", lanes=True))
    barrier = _wait(lanes, tuple(operands), true)
    counted, everyone = (lanes.v.load(barrier, I32, 4, n) for n in (COUNTED, ALL))
    if lanes.op.has("popc"):
        lanes.write(target, counted)
    else:
        lanes.write(target, lanes.b.icmp_unsigned("!=", everyone if lanes.op.has("and") else counted, ZERO))


def _arrive(v: VectorBuilder, args: Any, waits: bool) -> None:
    """New lanes of a warp arrive; the barrier's phase moves on if they were the last."""
    b = v.b
    barrier, block, warp, new, count, true = args
    some = b.icmp_unsigned("!=", new, ZERO)
    with b.if_then(some):
        if waits:
            waiting, parity = (v.at(warp, LAYOUTS["warp"].offset(n)) for n in ("waiting", "parity"))
            v.store(b.or_(v.load(waiting, I32, 4), new), waiting, 4)
            phase = v.load(barrier, I32, 4, PHASE)
            odd = b.sub(ZERO, b.and_(phase, ir.Constant(I32, 1)))
            old = b.and_(v.load(parity, I32, 4), b.not_(new))
            v.store(b.or_(old, b.and_(odd, new)), parity, 4)
        v.store(b.add(v.load(barrier, I32, 4, TRUE), v.popcount(b.and_(true, new))), barrier, 4, TRUE)
        arrived = b.add(v.load(barrier, I32, 4, ARRIVED), v.popcount(new))
        v.store(arrived, barrier, 4, ARRIVED)
        v.store(count, barrier, 4, EXPECTED)
        _complete(v, barrier, block)
    b.ret_void()


def _complete(v: VectorBuilder, barrier: Any, block: Any) -> None:
    """Move the phase on if all have arrived."""
    b = v.b
    arrived, expected = v.load(barrier, I32, 4, ARRIVED), v.load(barrier, I32, 4, EXPECTED)
    everyone = place_of(v, "block", block, "live_threads")
    needed = b.select(b.icmp_unsigned("==", expected, ZERO), everyone, expected)
    full = b.and_(b.icmp_unsigned("!=", arrived, ZERO), b.icmp_unsigned(">=", arrived, needed))
    with b.if_then(full):
        true = v.load(barrier, I32, 4, TRUE)
        v.store(true, barrier, 4, COUNTED)
        v.store(b.zext(b.icmp_unsigned("==", true, arrived), I32), barrier, 4, ALL)
        v.store(ZERO, barrier, 4, TRUE)
        v.store(ZERO, barrier, 4, ARRIVED)
        v.store(b.add(v.load(barrier, I32, 4, PHASE), ir.Constant(I32, 1)), barrier, 4, PHASE)


def threads_ended(v: VectorBuilder, args: Any) -> None:
    """After threads of a block have ended: barriers that waited for them alone let the others go."""
    b = v.b
    (block,) = args
    barriers = v.at(block, LAYOUTS["block"].offset("barriers"))
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
