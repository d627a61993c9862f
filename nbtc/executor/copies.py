"""Rows of cp.async: a few bytes a lane from global to shared memory, with zeros for what is left out.

(PTX ISA, "cp.async", "cp.async.commit_group", "cp.async.wait_group", "cp.async.mbarrier.arrive".)  A copy is done when
it is issued, so groups have nothing to wait for.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I8, I32, I64, VectorBuilder, vector
from nbtc.executor import reach
from nbtc.executor.action import Action
from nbtc.executor.data import Immediate, Register
from nbtc.executor.form import slots
from nbtc.executor.lanes import WARP, Lanes
from nbtc.executor.mbarrier import update
from nbtc.executor.resolve import for_lanes
from nbtc.executor.watch import words

L32, L64 = vector(I32, WARP), vector(I64, WARP)
POINTER = I8.as_pointer()
HINTS = ("L2::cache_hint?", "L2::64B|L2::128B|L2::256B?")


def _copy(lanes: Lanes) -> None:
    target, source, size, *rest = lanes.operands
    if not isinstance(size, Immediate) or size.value not in (4, 8, 16):
        lanes.refuse("cp.async copies 4, 8 or 16 bytes")
        return
    b, v, count = lanes.b, lanes.v, int(size.value)
    wanted = v.const(L32, count)
    if (rest and not lanes.op.has("L2::cache_hint")) or len(rest) > 1:
        wanted = _source_bytes(lanes, rest[0], count)
    some = lanes.mask(b.icmp_unsigned("!=", wanted, ir.Constant(L32, None)))
    whole = lanes.mask(b.icmp_unsigned("==", wanted, v.const(L32, count)))
    to = reach.places(lanes, "shared", target, count, writes=True, seen=reach.Seen(words.COPY))
    addresses = reach.address(lanes, source)
    full = reach.places_at(lanes, "global", addresses, count, among=whole, seen=reach.READ)
    part = b.and_(some, b.not_(whole))  # the rest is zeros; only the first byte is looked up
    ends = reach.places_at(lanes, "global", addresses, 1, among=part, seen=reach.READ)
    sources = b.select(b.bitcast(whole, vector(ir.IntType(1), WARP)), full.words, ends.words)
    helper = lanes.helper(f"nbtc_cp_async_{count}", ir.VoidType(), (L64, L64, L32, I32), _copier(count))
    fine = b.and_(to.good, b.or_(b.or_(full.good, ends.good), b.not_(some)))
    b.call(helper, [to.words, sources, wanted, fine])


def _source_bytes(lanes: Lanes, operand: Any, count: int) -> Any:
    """How many bytes each lane copies: a number, or all unless a predicate says to ignore the source."""
    if isinstance(operand, Register) and operand.type == "pred":
        ignored = lanes.read(operand, "pred", lanes=True)
        return lanes.b.select(ignored, ir.Constant(L32, None), lanes.v.const(L32, count))
    return lanes.v.umin(lanes.read(operand, "u32", lanes=True), lanes.v.const(L32, count))


def _copier(count: int) -> Any:
    """The body of a helper: places in shared memory, places of the sources, bytes of them, lanes."""

    def build(v: VectorBuilder, arguments: Any) -> None:
        b = v.b
        to, source, sizes, mask = arguments
        _all_at_once(v, count, arguments)
        rooms = []
        for x in (to, source, sizes):
            room = b.alloca(x.type)
            b.store(x, room)
            rooms.append(b.bitcast(room, x.type.element.as_pointer()))
        whole = ir.IntType(8 * count)
        buffer = b.alloca(whole)

        def lane(number: Any) -> None:
            at, where, size = (b.load(b.gep(room, [number])) for room in rooms)
            b.store(ir.Constant(whole, 0), buffer)
            part = b.bitcast(buffer, POINTER)
            origin = b.inttoptr(where, POINTER)
            everything = b.icmp_unsigned("==", size, ir.Constant(I32, count))
            with b.if_else(everything, likely=True) as (then, otherwise):
                with then:
                    v.store(v.load(origin, whole), part)
                with otherwise, b.if_then(b.icmp_unsigned("!=", size, ir.Constant(I32, 0))):
                    kind = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, I64, ir.IntType(1)])
                    memcpy = b.module.globals.get("llvm.memcpy.p0.p0.i64") or ir.Function(
                        b.module, kind, "llvm.memcpy.p0.p0.i64"
                    )
                    b.call(memcpy, [part, origin, b.zext(size, I64), ir.Constant(ir.IntType(1), 0)])
            v.store(b.load(buffer), b.inttoptr(at, POINTER))

        for_lanes(v, mask, lane)
        b.ret_void()

    return build


def _all_at_once(v: VectorBuilder, count: int, arguments: Any) -> None:
    """Where all lanes copy everything: no loop, no sizes; then return."""
    b = v.b
    to, source, sizes, mask = arguments
    every = b.bitcast(b.icmp_unsigned("==", sizes, v.const(L32, count)), I32)
    kind = ir.IntType(8 * count)
    with b.if_then(b.icmp_unsigned("==", b.and_(every, mask), ir.Constant(I32, -1)), likely=True):
        places = [[b.extract_element(x, ir.Constant(I32, lane)) for x in (source, to)] for lane in range(WARP)]
        for origin, target in places:
            v.store(v.load(b.inttoptr(origin, POINTER), kind, 1), b.inttoptr(target, POINTER), 1)
        b.ret_void()


def _nothing(lanes: Lanes) -> None:
    """The copies are done."""


def _arrive(lanes: Lanes) -> None:
    """cp.async.mbarrier.arrive.noinc: the thread's copies, which are done, arrive at an mbarrier."""
    none, one = lanes.v.const(L64, 0), lanes.v.const(L64, 1)
    found = reach.places(lanes, "shared", lanes.operands[0], 8, writes=True)
    lanes.machine.instrument.copies_done(lanes)
    update(lanes, found, one, none, none)


def _expect_and_arrive(lanes: Lanes) -> None:
    """cp.async.mbarrier.arrive: the arrival is first added to those that the phase waits for, so the count stays."""
    reach.places(lanes, "shared", lanes.operands[0], 8, writes=True)
    lanes.machine.instrument.copies_done(lanes)


ACTIONS = (
    Action("cp", slots("async", "mbarrier", "arrive", "noinc", "shared|shared::cta?", "b64"), _arrive),
    Action("cp", slots("async", "mbarrier", "arrive", "shared|shared::cta?", "b64"), _expect_and_arrive),
    Action("cp", slots("async", "ca|cg", "shared|shared::cta", "global", *HINTS), _copy),
    Action("cp", slots("async", "commit_group|wait_group|wait_all"), _nothing),
)
