"""Rows of mbarrier objects.

(PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".)  NVIDIA keeps the 64 bits secret; here
they are, from the low end, the expected arrivals (20 bits), the pending ones (20), the bytes that transactions still
owe (22, signed) and the phase (1).  A block, and a cluster of blocks, runs on one thread of the host, so plain loads
and stores are enough.  Lanes act one after the other, in ascending order.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I1, I32, I64, VectorBuilder, vector
from nbtc.compiler.loops import for_lanes
from nbtc.executor.emit import access_kinds as kinds
from nbtc.executor.emit.action import Action
from nbtc.executor.emit.form import Slot, slots
from nbtc.executor.emit.lanes import WARP, Lanes
from nbtc.executor.memory import reach
from nbtc.executor.text.data import Instruction, Operand

L32, L64, L1 = vector(I32, WARP), vector(I64, WARP), vector(I1, WARP)
COUNT_BITS, OWED_BITS = 20, 22  # PTX ISA: counts up to 2**20 - 1, transactions within 2**20 - 1 of zero
PENDING, OWED, PHASE = COUNT_BITS, 2 * COUNT_BITS, 2 * COUNT_BITS + OWED_BITS
COUNT_MASK, OWED_MASK = (1 << COUNT_BITS) - 1, (1 << OWED_BITS) - 1
# What `mbarrier.inval` leaves, no state of an mbarrier: its test succeeds.  A thread may invalidate an mbarrier when
# its phase ends and others have yet to look again: on a GPU they see the end long before, but here a warp may run on
# without a turn of theirs.  Zero instead would be a phase that never ends.
INVALID = 1 << (PHASE + 1)
BYTES = 8


def _c(value: int) -> Any:
    return ir.Constant(I64, value)


def field(v: VectorBuilder, state: Any, shift: int, mask: int) -> Any:
    """A field of an i64 state."""
    return v.b.and_(v.b.lshr(state, _c(shift)), _c(mask))


def packed(v: VectorBuilder, expected: Any, pending: Any, owed: Any, phase: Any) -> Any:
    """A state of its fields."""
    b = v.b
    parts = ((expected, 0, COUNT_MASK), (pending, PENDING, COUNT_MASK), (owed, OWED, OWED_MASK), (phase, PHASE, 1))
    out = _c(0)
    for value, shift, mask in parts:
        out = b.or_(out, b.shl(b.and_(value, _c(mask)), _c(shift)))
    return out


def updated(v: VectorBuilder, state: Any, arrivals: Any, owed: Any, dropped: Any) -> Any:
    """The state after some arrivals and more bytes owed (i64, perhaps negative); a phase that is complete ends."""
    b = v.b
    expected = b.sub(field(v, state, 0, COUNT_MASK), dropped)
    pending = b.sub(field(v, state, PENDING, COUNT_MASK), arrivals)
    bytes_owed = b.and_(b.add(field(v, state, OWED, OWED_MASK), owed), _c(OWED_MASK))
    nothing = b.and_(b.icmp_unsigned("==", b.and_(pending, _c(COUNT_MASK)), _c(0)),
                     b.icmp_unsigned("==", bytes_owed, _c(0)))  # fmt: skip
    phase = b.xor(field(v, state, PHASE, 1), b.zext(nothing, I64))
    return packed(v, expected, b.select(nothing, expected, pending), bytes_owed, phase)


def _stored(v: VectorBuilder, x: Any) -> Any:
    """A vector on the stack, as a pointer to its first element."""
    buffer = v.b.alloca(x.type)
    v.b.store(x, buffer)
    return v.b.bitcast(buffer, x.type.element.as_pointer())


def _update(v: VectorBuilder, arguments: Any) -> None:
    """Helper: addresses, mask, arrivals, bytes owed, arrivals dropped (<32 x i64> each); the states before."""
    addresses, mask, *numbers = arguments
    b = v.b
    at, arrivals, owed, dropped = (_stored(v, x) for x in (addresses, *numbers))
    out = _stored(v, ir.Constant(L64, None))

    def one(lane: Any) -> None:
        index = [b.zext(lane, I64)]
        p = b.inttoptr(b.load(b.gep(at, index)), I64.as_pointer())
        state = b.load(p)
        values = [b.load(b.gep(x, index)) for x in (arrivals, owed, dropped)]
        b.store(updated(v, state, *values), p)
        b.store(state, b.gep(out, index))

    for_lanes(v, mask, one)
    b.ret(b.load(b.bitcast(out, L64.as_pointer())))


def _read(v: VectorBuilder, arguments: Any) -> None:
    """Helper: addresses and mask; the states there, which stay as they are."""
    addresses, mask = arguments
    b = v.b
    at, out = _stored(v, addresses), _stored(v, ir.Constant(L64, None))

    def one(lane: Any) -> None:
        index = [b.zext(lane, I64)]
        b.store(b.load(b.inttoptr(b.load(b.gep(at, index)), I64.as_pointer())), b.gep(out, index))

    for_lanes(v, mask, one)
    b.ret(b.load(b.bitcast(out, L64.as_pointer())))


def update(lanes: Lanes, found: reach.Places, arrivals: Any, owed: Any, dropped: Any) -> Any:
    """Arrive and owe at mbarriers, lane by lane; the states before."""
    f = lanes.helper("nbtc_mbarrier_update", L64, (L64, I32, L64, L64, L64), _update)
    before = lanes.b.call(f, [found.words, found.good, arrivals, owed, dropped])
    lanes.machine.instrument.mbarrier(lanes, kinds.UPDATED, found, [before], [arrivals, owed])
    return before


def _states(lanes: Lanes, found: reach.Places) -> Any:
    """The states as they are.

    A test must not go by way of `update` with no arrivals: where nobody is expected any more (arrive_drop), that would
    end a phase with every test.
    """
    return lanes.b.call(lanes.helper("nbtc_mbarrier_read", L64, (L64, I32), _read), [found.words, found.good])


def _places(lanes: Lanes, address: Operand) -> Any:
    space = lanes.op.among(("shared", "shared::cta", "shared::cluster"))
    return reach.places(lanes, space or "generic", address, BYTES, writes=True)


def _in_64_bits(lanes: Lanes, x: Any) -> Any:
    return lanes.b.zext(lanes.spread(x), L64)


def _put(v: VectorBuilder, arguments: Any) -> None:
    """Helper: addresses, mask, states to be stored."""
    addresses, mask, states = arguments
    b = v.b
    at, new = _stored(v, addresses), _stored(v, states)

    def one(lane: Any) -> None:
        index = [b.zext(lane, I64)]
        b.store(b.load(b.gep(new, index)), b.inttoptr(b.load(b.gep(at, index)), I64.as_pointer()))

    for_lanes(v, mask, one)
    b.ret_void()


def _set(lanes: Lanes, address: Operand, states: Any, count: Any = None) -> None:
    found = _places(lanes, address)
    what = kinds.INVALIDATED if count is None else kinds.MADE
    lanes.machine.instrument.mbarrier(lanes, what, found, None if count is None else [count])
    f = lanes.helper("nbtc_mbarrier_put", ir.VoidType(), (L64, I32, L64), _put)
    lanes.b.call(f, [found.words, found.good, states])


def _init(lanes: Lanes) -> None:
    address, count = lanes.operands
    x = _in_64_bits(lanes, lanes.read(count, "u32"))
    _set(lanes, address, lanes.b.or_(x, lanes.b.shl(x, lanes.v.const(L64, PENDING))), x)


def _invalidate(lanes: Lanes) -> None:
    _set(lanes, lanes.operands[0], lanes.v.const(L64, INVALID))


def _arrive(lanes: Lanes) -> None:
    state, address, *rest = lanes.operands
    op, v = lanes.op, lanes.v
    transactions = op.has("expect_tx")
    number = _in_64_bits(lanes, lanes.read(rest[0], "u32")) if rest else v.const(L64, 1)
    one, none = v.const(L64, 1), v.const(L64, 0)
    arrivals = one if transactions else number
    dropped = arrivals if op.opcode == "mbarrier" and op.has("arrive_drop") else none
    found = update(lanes, _places(lanes, address), arrivals, number if transactions else none, dropped)
    lanes.write(state, found)


def _owe(lanes: Lanes) -> None:
    address, number = lanes.operands
    v, x = lanes.v, _in_64_bits(lanes, lanes.read(number, "u32"))
    none = v.const(L64, 0)
    owed = x if lanes.op.has("expect_tx") else lanes.b.sub(none, x)
    update(lanes, _places(lanes, address), none, owed, none)


def _test(lanes: Lanes) -> None:
    target, address, asked, *_ = lanes.operands
    b, v = lanes.b, lanes.v
    found = _places(lanes, address)
    now = b.lshr(_states(lanes, found), v.const(L64, PHASE))
    if lanes.op.has("parity"):
        phase = b.and_(_in_64_bits(lanes, lanes.read(asked, "u32")), v.const(L64, 1))
    else:
        phase = b.lshr(lanes.read(asked, "b64", lanes=True), v.const(L64, PHASE))
    differ = b.and_(b.xor(now, phase), v.const(L64, 1))
    lanes.machine.instrument.mbarrier(lanes, kinds.TESTED, found, [differ], int(not lanes.op.has("relaxed")))
    done = b.or_(differ, b.lshr(now, v.const(L64, 1)))  # INVALID, shifted
    reach.write(lanes, target, b.icmp_unsigned("!=", done, v.const(L64, 0)))


def _pending(lanes: Lanes) -> None:
    target, state = lanes.operands
    x = lanes.read(state, "b64", lanes=True)
    b, v = lanes.b, lanes.v
    reach.write(lanes, target, b.trunc(b.and_(b.lshr(x, v.const(L64, PENDING)), v.const(L64, COUNT_MASK)), L32))


def _always(instruction: Instruction) -> bool:
    return True


OWN = "shared|shared::cta?"
ANY = "shared|shared::cta|shared::cluster?"
SCOPE = "cta|cluster?"
# ptxas 13.5 makes the same machine code with these words as without them for sm_90a, sm_100a, sm_103a and sm_120a;
# `.layout::v1` makes other code, and what it changes is not known.
PHASE_TYPE, LAYOUT = "phase_type::primary|phase_type::conditional?", "layout::v0?"


def _arrivals(name: str) -> tuple[tuple[Slot, ...], ...]:
    return (
        slots(name, "release|relaxed?", SCOPE, ANY, "b64"),
        slots(name, "expect_tx", "release|relaxed?", SCOPE, ANY, "b64"),
        slots(name, "noComplete", "release|relaxed?", SCOPE, OWN, "b64"),
    )


_WAITS = tuple(
    spelled
    for name in ("test_wait", "try_wait")
    for spelled in (
        slots(name, PHASE_TYPE, "acquire|relaxed?", SCOPE, OWN, "b64"),
        slots(name, "parity", PHASE_TYPE, "acquire|relaxed?", SCOPE, OWN, "b64"),
    )
)
ACTIONS = (
    Action("mbarrier", slots("init", LAYOUT, OWN, "b64"), _init),
    Action("mbarrier", slots("inval", OWN, "b64"), _invalidate),
    *(
        Action("mbarrier", spelled, _arrive, 1, varying=_always)
        for name in ("arrive", "arrive_drop")
        for spelled in _arrivals(name)
    ),
    Action("mbarrier", slots("expect_tx|complete_tx", "relaxed?", SCOPE, ANY, "b64"), _owe),
    *(Action("mbarrier", spelled, _test, 1, remote=_always) for spelled in _WAITS),
    Action("mbarrier", slots("pending_count", "b64"), _pending, 1),
)
