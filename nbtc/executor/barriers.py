"""Barriers of a thread block (PTX ISA 9.7.13, "bar, barrier").

A barrier is four words in the block: how many threads have arrived, its phase, how many it waits for (0: all threads
that have not ended).  A thread that arrives notes the phase's parity in its warp and is released when the phase moves
on; the last to arrive moves it.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I8, I32, I64, VectorBuilder
from nbtc.executor.action import Action, yes
from nbtc.executor.data import Immediate
from nbtc.executor.form import slots
from nbtc.executor.lanes import Lanes
from nbtc.executor.resolve import place_of
from nbtc.executor.state import BARRIERS, LAYOUTS

ARRIVED, PHASE, EXPECTED = 0, 4, 8  # bytes of a barrier's words
BARRIER_BYTES = 16
POINTER = I8.as_pointer()
ZERO = ir.Constant(I32, 0)


def _barrier(lanes: Lanes) -> Any:
    """Pointer to the words of the barrier that the first operand names."""
    operand = lanes.operands[0]
    if isinstance(operand, Immediate) and not 0 <= operand.value < BARRIERS:
        lanes.refuse(f"barrier {operand.value}: there are barriers 0 to {BARRIERS - 1}")
    if not lanes.uniform(operand):
        lanes.refuse("the barrier's number must be the same in all threads of a warp")
    number = lanes.b.zext(lanes.b.and_(lanes.read(operand, "u32"), ir.Constant(I32, BARRIERS - 1)), I64)
    return lanes.field("block", "barriers", lanes.b.mul(number, lanes.v.int(BARRIER_BYTES)))


def sync(lanes: Lanes) -> None:
    """bar.sync, barrier.sync: arrive, and go on when all have."""
    b, v = lanes.b, lanes.v
    barrier = _barrier(lanes)
    count = ZERO
    if len(lanes.operands) > 1:
        if not lanes.uniform(lanes.operands[1]):
            lanes.refuse("the number of threads must be the same in all threads of a warp")
        count = lanes.read(lanes.operands[1], "u32")
    waiting = lanes.get("warp", "waiting")
    new = b.and_(lanes.active, b.not_(waiting))
    helper = lanes.helper("barrier_arrive", ir.VoidType(), (POINTER, POINTER, POINTER, I32, I32), _arrive)
    b.call(helper, [barrier, lanes.block, lanes.warp, new, count])
    phase = v.load(barrier, I32, 4, PHASE)
    parity = b.sub(ZERO, b.and_(phase, ir.Constant(I32, 1)))
    released = b.and_(lanes.active, b.xor(lanes.get("warp", "parity"), parity))
    lanes.wait_on(v.at(barrier, PHASE), phase)
    lanes.put("warp", "wait_site", ir.Constant(I32, lanes.machine.site(lanes)))
    lanes.go_on_with(released)
    lanes.put("warp", "wait_address", v.int(0))
    lanes.put("warp", "waiting", b.and_(lanes.get("warp", "waiting"), b.not_(released)))


def _arrive(v: VectorBuilder, args: Any) -> None:
    """New lanes of a warp arrive; the barrier's phase moves on if they were the last."""
    b = v.b
    barrier, block, warp, new, count = args
    some = b.icmp_unsigned("!=", new, ZERO)
    with b.if_then(some):
        waiting, parity = (v.at(warp, LAYOUTS["warp"].offset(n)) for n in ("waiting", "parity"))
        v.store(b.or_(v.load(waiting, I32, 4), new), waiting, 4)
        phase = v.load(barrier, I32, 4, PHASE)
        odd = b.sub(ZERO, b.and_(phase, ir.Constant(I32, 1)))
        old = b.and_(v.load(parity, I32, 4), b.not_(new))
        v.store(b.or_(old, b.and_(odd, new)), parity, 4)
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
        v.store(ZERO, barrier, 4, ARRIVED)
        v.store(b.add(v.load(barrier, I32, 4, PHASE), ir.Constant(I32, 1)), barrier, 4, PHASE)


def threads_ended(v: VectorBuilder, args: Any) -> None:
    """After threads of a block have ended: barriers that waited for them alone let the others go."""
    b = v.b
    (block,) = args
    barriers = v.at(block, LAYOUTS["block"].offset("barriers"))
    before = b.block
    head, inside, behind = (b.append_basic_block(n) for n in ("barrier", "barrier.one", "barrier.end"))
    b.branch(head)
    b.position_at_end(head)
    i = b.phi(I64)
    i.add_incoming(v.int(0), before)
    b.cbranch(b.icmp_unsigned("<", i, v.int(BARRIERS)), inside, behind)
    b.position_at_end(inside)
    _complete(v, v.at(barriers, b.mul(i, v.int(BARRIER_BYTES))), block)
    i.add_incoming(b.add(i, v.int(1)), b.block)
    b.branch(head)
    b.position_at_end(behind)
    b.ret_void()


ACTIONS = (
    Action("bar", slots("cta?", "sync"), sync, waits=yes),
    Action("barrier", slots("cta?", "sync", "aligned?"), sync, waits=yes),
)
