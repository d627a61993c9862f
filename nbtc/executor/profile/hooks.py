"""Counting in a program's code.

The model of memory is the documented one (CUDA C++ Programming Guide, "Compute Capability 5.x" to "9.0", "Shared
Memory" and "Global Memory"): 32 banks of 4 bytes, of which a pass reads or writes one word each, and global memory in
sectors of 32 bytes.  Lanes that move 8 or 16 bytes each do so in groups whose data fill one pass.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I8, I32, I64, VectorBuilder, vector
from nbtc.compiler.loops import for_lanes
from nbtc.executor.emit import access_kinds as kinds
from nbtc.executor.emit.action import FormRow
from nbtc.executor.emit.instrument import Instrument, Touch
from nbtc.executor.emit.lanes import Lanes
from nbtc.executor.emit.state import SHARED_WINDOW
from nbtc.executor.memory.resolve import ADDRESSES, POINTER, RANK_SHIFT, TAG

LANES = 32
BANKS, BANK_BYTES = 32, 4
PASS_BYTES = BANKS * BANK_BYTES
SECTOR_SHIFT = 5  # sectors of 32 bytes
COUNTERS = (
    "executed",  # times a warp executed the instruction with at least one lane
    "threads",  # lanes that did
    "splits",  # times a branch sent the lanes of a group two ways
    "shared_requests",  # times lanes accessed shared memory
    "passes",  # that the banks needed for them
    "least_passes",  # that they would have needed without conflicts
    "global_requests",  # times lanes accessed global memory
    "sectors",  # that these accesses touched
    "global_bytes",  # that their lanes moved
)
EXECUTED, THREADS, SPLITS, SHARED_REQUESTS, PASSES, LEAST, GLOBAL_REQUESTS, SECTORS, BYTES = range(len(COUNTERS))
ROW = 8 * len(COUNTERS)  # bytes of one place's counters
VOID = ir.VoidType()
ONE, ZERO = ir.Constant(I32, 1), ir.Constant(I32, 0)
COUNTED = (
    kinds.READ,
    kinds.WRITE,
    kinds.STRONG_READ,
    kinds.STRONG_WRITE,
    kinds.ATOMIC,
    kinds.COPY,
)
ELSEWHERE = {"param", "const"}  # memory that has caches of its own
JUMPS = ("bra", "brx")


class ProfileInstrument(Instrument):
    """Counts instructions and accesses, each place of the program for itself."""

    observes = True

    def instruction(self, lanes: Lanes, row: FormRow) -> None:
        """Count it, unless its lanes may have to come again: then after it."""
        if row.action is None or not row.action.waits(lanes.instruction):
            self._count(lanes)

    def done(self, lanes: Lanes, row: FormRow) -> None:
        """Count what may have waited."""
        if row.action is not None and row.action.waits(lanes.instruction):
            self._count(lanes)

    def _count(self, lanes: Lanes) -> None:
        b, active = lanes.b, lanes.active
        site = lanes.machine.site(lanes)
        some = b.zext(b.icmp_unsigned("!=", active, ZERO), I64)
        _add(lanes, site, EXECUTED, some)
        _add(lanes, site, THREADS, b.zext(lanes.v.popcount(active), I64))
        guard = lanes.instruction.guard
        if lanes.op.opcode in JUMPS and guard is not None and not lanes.uniform(guard.register):
            taken = b.and_(lanes.frame.guard(guard), active)
            both = b.and_(b.icmp_unsigned("!=", taken, ZERO), b.icmp_unsigned("!=", taken, active))
            _add(lanes, site, SPLITS, b.zext(both, I64))

    def access(self, lanes: Lanes, touch: Touch, addresses: Any, site: int, values: Any = None) -> None:
        """Count its sectors, or the passes of the banks."""
        if touch.kind not in COUNTED or ELSEWHERE & set(lanes.op.modifiers):
            return
        v, b = lanes.v, lanes.b
        spread = lanes.spread(addresses)
        here = {touch.space: lanes.active}
        if touch.space == "generic":
            tags = b.lshr(spread, v.const(ADDRESSES, TAG))
            for name, tag in (("shared", SHARED_WINDOW >> TAG), ("global", 0)):
                mine = lanes.mask(b.icmp_unsigned("==", tags, v.const(ADDRESSES, tag)))
                here[name] = b.and_(mine, lanes.active)
        unit = max(BANK_BYTES, touch.bytes)
        buffer = lanes.frame.code.scratch(ADDRESSES)
        b.store(spread, buffer)
        if "shared" in here:
            build = _shared(unit)
            helper = lanes.helper(f"profile_shared_{unit}", VOID, (ADDRESSES.as_pointer(), I32, POINTER), build)
            b.call(helper, [buffer, here["shared"], _place(lanes, site, 0)])
        if "global" in here:
            helper = lanes.helper(
                f"profile_global_{touch.bytes}", VOID, (ADDRESSES.as_pointer(), I32, POINTER), _global(touch.bytes)
            )
            b.call(helper, [buffer, here["global"], _place(lanes, site, 0)])


def _place(lanes: Lanes, site: int, counter: int) -> Any:
    """Pointer to a counter of a place."""
    return lanes.v.at(lanes.b.inttoptr(lanes.get("launch", "profile"), POINTER), ROW * site + 8 * counter)


def _add(lanes: Lanes, site: int, counter: int, amount: Any) -> None:
    _bump(lanes.v, _place(lanes, site, counter), amount)


def _bump(v: VectorBuilder, place: Any, amount: Any) -> None:
    """Add to a counter that all workers share."""
    v.b.atomic_rmw("add", v.b.bitcast(place, I64.as_pointer()), amount, "monotonic")


def _groups(v: VectorBuilder, numbers: Any, mask: Any, body: Any) -> None:
    """body(lane) for the first lane of each different number among the lanes of a mask."""
    b = v.b
    rest = b.alloca(I32)
    b.store(mask, rest)
    buffer = b.alloca(ADDRESSES)
    b.store(numbers, buffer)
    elements = b.bitcast(buffer, I64.as_pointer())

    def lane(number: Any) -> None:
        bit = b.shl(ONE, number)
        with b.if_then(b.icmp_unsigned("!=", b.and_(b.load(rest), bit), ZERO)):
            same = b.icmp_unsigned("==", numbers, v.splat(b.load(b.gep(elements, [number])), LANES))
            b.store(b.and_(b.load(rest), b.not_(b.bitcast(same, I32))), rest)
            body(b.load(b.gep(elements, [number])))

    for_lanes(v, mask, lane)


def _global(size: int) -> Any:
    """The function (addresses, mask, counters) of an access of `size` bytes a lane to global memory."""

    def build(v: VectorBuilder, args: Any) -> None:
        b = v.b
        addresses, mask, counters = args
        given = b.load(addresses)
        with b.if_then(b.icmp_unsigned("!=", mask, ZERO)):
            sectors = b.alloca(I64)
            b.store(v.int(0), sectors)
            shift = v.const(ADDRESSES, SECTOR_SHIFT)
            each = v.int(max(1, size >> SECTOR_SHIFT))

            def one(_: Any) -> None:
                b.store(b.add(b.load(sectors), each), sectors)

            _groups(v, b.lshr(given, shift), mask, one)
            moved = b.mul(b.zext(v.popcount(mask), I64), v.int(size))
            for counter, amount in ((GLOBAL_REQUESTS, v.int(1)), (SECTORS, b.load(sectors)), (BYTES, moved)):
                _bump(v, v.at(counters, 8 * counter), amount)
        b.ret_void()

    return build


def _shared(unit: int) -> Any:
    """The function (addresses, mask, counters) of an access to shared memory, `unit` bytes a lane, at least a word."""
    group = max(1, PASS_BYTES // unit)  # lanes whose data fill a pass, and units side by side in the banks

    def build(v: VectorBuilder, args: Any) -> None:
        b = v.b
        addresses, mask, counters = args
        inside = b.and_(b.load(addresses), v.const(ADDRESSES, (1 << RANK_SHIFT) - 1))
        units = b.lshr(inside, v.const(ADDRESSES, unit.bit_length() - 1))
        banks = b.alloca(vector(I8, LANES))  # different units that each place in the banks has to move
        passes, least = b.alloca(I64), b.alloca(I64)
        for slot in (passes, least):
            b.store(v.int(0), slot)
        for first in range(0, LANES, group):
            lanes = ((1 << group) - 1) << first
            part = b.and_(mask, ir.Constant(I32, lanes))
            with b.if_then(b.icmp_unsigned("!=", part, ZERO)):
                b.store(ir.Constant(vector(I8, LANES), None), banks)

                def one(number: Any) -> None:
                    counter = v.at(b.bitcast(banks, POINTER), b.and_(number, v.int(group - 1)))
                    v.store(b.add(v.load(counter, I8), ir.Constant(I8, 1)), counter)

                _groups(v, units, part, one)
                most = v.call(f"llvm.vector.reduce.umax.v{LANES}i8", I8, b.load(banks))
                b.store(b.add(b.load(passes), b.zext(most, I64)), passes)
                b.store(b.add(b.load(least), v.int(1)), least)
        with b.if_then(b.icmp_unsigned("!=", mask, ZERO)):
            for counter, amount in ((SHARED_REQUESTS, v.int(1)), (PASSES, b.load(passes)), (LEAST, b.load(least))):
                _bump(v, v.at(counters, 8 * counter), amount)
        b.ret_void()

    return build
