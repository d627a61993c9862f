"""Rows of cp.async: a few bytes a lane from global to shared memory, with zeros for what is left out.

(PTX ISA, "cp.async", "cp.async.commit_group", "cp.async.wait_group", "cp.async.mbarrier.arrive".)  A copy is done when
it is issued, so groups have nothing to wait for.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I1, I8, I32, I64, VectorBuilder, vector
from nbtc.compiler.loops import for_lanes, repeated
from nbtc.executor.emit import access_kinds
from nbtc.executor.emit.action import Action
from nbtc.executor.emit.form import slots
from nbtc.executor.emit.lanes import WARP, Lanes
from nbtc.executor.memory import reach, resolve
from nbtc.executor.memory.resolve import ADDRESSES, Access
from nbtc.executor.text.data import Immediate, Register
from nbtc.executor.transfer.mbarrier import update

L32, L64 = vector(I32, WARP), vector(I64, WARP)
POINTER = I8.as_pointer()
TURN = 4  # lanes that are copied in a turn of a loop
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
    to, origin = reach.address(lanes, target), reach.address(lanes, source)
    if lanes.machine.instrument.observes:
        whole, part = _whole_and_part(v, wanted, count)
        reach.tell(lanes, "shared", to, count, None, reach.AccessReport(access_kinds.COPY))
        reach.tell(lanes, "global", origin, count, whole, reach.AccessReport(access_kinds.COPY_SOURCE))
        reach.tell(lanes, "global", origin, 1, part, reach.AccessReport(access_kinds.COPY_SOURCE))
    helpers, site = lanes.machine.helpers, ir.Constant(I32, lanes.machine.site(lanes))
    kinds = (L64, L64, L32, I32, I32, POINTER, POINTER)
    helper = lanes.helper(
        f"nbtc_cp_async_{count}", ir.VoidType(), kinds, lambda v, args: _copier(v, helpers, count, args)
    )
    b.call(helper, [to, origin, wanted, lanes.active, site, lanes.block, lanes.warp])


def _whole_and_part(v: VectorBuilder, wanted: Any, count: int) -> tuple[Any, Any]:
    """i32 masks of the lanes that copy everything, and of those that copy less but something."""
    b = v.b
    whole = b.bitcast(b.icmp_unsigned("==", wanted, v.const(L32, count)), I32)
    some = b.bitcast(b.icmp_unsigned("!=", wanted, ir.Constant(L32, None)), I32)
    return whole, b.and_(some, b.not_(whole))  # of the part the rest is zeros; only the first byte is looked up


def _source_bytes(lanes: Lanes, operand: Any, count: int) -> Any:
    """How many bytes each lane copies: a number, or all unless a predicate says to ignore the source."""
    if isinstance(operand, Register) and operand.type == "pred":
        ignored = lanes.read(operand, "pred", lanes=True)
        return lanes.b.select(ignored, ir.Constant(L32, None), lanes.v.const(L32, count))
    return lanes.v.umin(lanes.read(operand, "u32", lanes=True), lanes.v.const(L32, count))


def _copier(v: VectorBuilder, helpers: Any, count: int, args: Any) -> None:
    """The body of a helper: addresses in shared memory, addresses of the sources, bytes of them, lanes, and where."""
    b = v.b
    to, source, sizes, active, *where = args
    whole, part = (b.and_(mask, active) for mask in _whole_and_part(v, sizes, count))
    _all_at_once(v, helpers, count, (to, source, whole), where)
    target = reach.places_in(v, helpers, Access("shared", count, True), to, active, where)
    full = reach.places_in(v, helpers, Access("global", count, False), source, whole, where)
    ends = reach.places_in(v, helpers, Access("global", 1, False), source, part, where)
    sources = b.select(b.bitcast(whole, vector(I1, WARP)), full.words, ends.words)
    some = b.or_(whole, part)
    fine = b.and_(target.good, b.or_(b.or_(full.good, ends.good), b.not_(some)))
    _each(v, count, (target.words, sources, sizes), fine)
    b.ret_void()


def _each(v: VectorBuilder, count: int, vectors: Any, mask: Any) -> None:
    """Lane by lane: to, from, bytes of each."""
    b, pointers = v.b, []
    whole = ir.IntType(8 * count)
    with b.goto_entry_block():
        buffer = b.alloca(whole)
        places = [b.alloca(x.type) for x in vectors]
    for x, slot in zip(vectors, places, strict=True):
        b.store(x, slot)
        pointers.append(b.bitcast(slot, x.type.element.as_pointer()))

    def lane(number: Any) -> None:
        at, where, size = (b.load(b.gep(slot, [number])) for slot in pointers)
        b.store(ir.Constant(whole, 0), buffer)
        part = b.bitcast(buffer, POINTER)
        origin = b.inttoptr(where, POINTER)
        everything = b.icmp_unsigned("==", size, ir.Constant(I32, count))
        with b.if_else(everything, likely=True) as (then, otherwise):
            with then:
                v.store(v.load(origin, whole), part)
            with otherwise, b.if_then(b.icmp_unsigned("!=", size, ir.Constant(I32, 0))):
                v.call("llvm.memcpy.p0.p0.i64", ir.VoidType(), part, origin, b.zext(size, I64), ir.Constant(I1, 0))
        v.store(b.load(buffer), b.inttoptr(at, POINTER))

    for_lanes(v, mask, lane)


def _all_at_once(v: VectorBuilder, helpers: Any, count: int, lanes: Any, where: Any) -> None:
    """Where all lanes copy everything, and may: no sizes, no bits of a mask; then return.

    A loop of a few lanes a turn: with all lanes' moves written out, copies took 1.3 to 1.8 times as long in Triton's
    products.  Whole lines at once where lanes' sources lie side by side, and prefetches of the sources, gained nothing
    more: what is left is waiting for the next levels of memory.
    """
    b, kind = v.b, ir.IntType(8 * count)
    to, source, whole = lanes
    places = []
    every = b.icmp_unsigned("==", whole, ir.Constant(I32, -1))
    for space, addresses in (("shared", to), ("global", source)):
        found, fine = resolve.at_once(v, helpers.checked, space, v.int(count), (addresses, whole, *where))
        every = b.and_(every, fine)
        places.append(found)
    with b.goto_entry_block():
        slots = [b.alloca(ADDRESSES) for _ in places]
    with b.if_then(every, likely=True):
        for slot, x in zip(slots, places, strict=True):
            b.store(x, slot)
        target, origin = (b.bitcast(slot, POINTER.as_pointer()) for slot in slots)

        def some(first: Any, _: Any) -> Any:
            for lane in range(TURN):
                at = b.add(first, ir.Constant(I32, lane))
                v.store(v.load(b.load(b.gep(origin, [at])), kind, 1), b.load(b.gep(target, [at])), 1)
            return {}

        repeated(v, ir.Constant(I32, 0), ir.Constant(I32, WARP), TURN, {}, some)
        b.ret_void()


def _nothing(lanes: Lanes) -> None:
    """The copies are done."""


def _arrive(lanes: Lanes) -> None:
    """cp.async.mbarrier.arrive.noinc: the thread's copies, which are done, arrive at an mbarrier."""
    none, one = lanes.v.const(L64, 0), lanes.v.const(L64, 1)
    found = reach.places(lanes, "shared", lanes.operands[0], 8, writes=True)
    lanes.machine.instrument.mbarrier(lanes, access_kinds.JOINED, found)
    update(lanes, found, one, none, none)


def _expect_and_arrive(lanes: Lanes) -> None:
    """cp.async.mbarrier.arrive: the arrival is first added to those that the phase waits for, so the count stays."""
    found = reach.places(lanes, "shared", lanes.operands[0], 8, writes=True)
    lanes.machine.instrument.mbarrier(lanes, access_kinds.JOINED, found)


ACTIONS = (
    Action("cp", slots("async", "mbarrier", "arrive", "noinc", "shared|shared::cta?", "b64"), _arrive),
    Action("cp", slots("async", "mbarrier", "arrive", "shared|shared::cta?", "b64"), _expect_and_arrive),
    Action("cp", slots("async", "ca|cg", "shared|shared::cta", "global", *HINTS), _copy),
    Action("cp", slots("async", "commit_group|wait_group|wait_all"), _nothing),
)
