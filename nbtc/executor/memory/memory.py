"""Loads and stores (PTX ISA 9.7.9): ld, ldu, st of every space, width and vector.

Three ways.  All lanes at one address: a scalar access.  Lanes side by side: whole vectors, one check for all.
Everything else: lane by lane in a function of its own, which also finds and reports what is wrong.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I1, I8, I32, I64
from nbtc.compiler.cpu.lowering import lowering
from nbtc.executor.emit import access_kinds as kinds
from nbtc.executor.emit.action import Action
from nbtc.executor.emit.form import slots
from nbtc.executor.emit.instrument import Touch
from nbtc.executor.emit.lanes import Lanes, is_vector
from nbtc.executor.emit.values import const, resize
from nbtc.executor.memory import moves
from nbtc.executor.memory import resolve as range_checks
from nbtc.executor.memory.gather import gather, scalar_load, scalar_store, scatter
from nbtc.executor.memory.resolve import Access, resolve, site_range
from nbtc.executor.memory.side_by_side import (
    OWN_SPACES,
    LaneElements,
    LaneRow,
    masked_load,
    masked_store,
    vector_of,
)
from nbtc.executor.memory.side_by_side import side_by_side as lie_side_by_side
from nbtc.executor.text.data import WIDTHS, Address, Instruction, Operand, Register, Sink, Symbol

LANES = 32
ADDRESS_BITS = 64
POINTER = I8.as_pointer()
VOID = ir.VoidType()
TYPES = "b8|b16|b32|b64|b128|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64"
SPACE = "global|shared|shared::cta|shared::cluster|local|const|param|param::entry|param::func"
STRONG = ("volatile", "relaxed", "acquire", "release", "mmio")
EVICT = "evict_normal|evict_unchanged|evict_first|evict_last|no_allocate"
# modifiers of the accesses that may be joined with their neighbours: of no order, and of memory that all lanes see
JOINABLE = frozenset({"weak", "global", "shared", "shared::cta", "ca", "cg", "cs", "nc", "wb", "wt"}) | (
    frozenset(TYPES.split("|")) - {"b128"}
)
HINTS = (
    "|".join(f"L1::{e}" for e in EVICT.split("|")) + "?",
    "|".join(f"L2::{e}" for e in EVICT.split("|")) + "?",
    "L2::cache_hint?",
    "L2::64B|L2::128B|L2::256B?",
)
LD = slots(
    "weak|volatile|relaxed|acquire|mmio?", "relaxed?", "cta|cluster|gpu|sys?", f"{SPACE}?", "ca|cg|cs|lu|cv?", "nc?",
    *HINTS, "unified?", "v2|v4|v8?", TYPES,
)  # fmt: skip
ST = slots(
    "weak|volatile|relaxed|release|mmio?", "relaxed?", "cta|cluster|gpu|sys?", f"{SPACE}?", "wb|cg|cs|wt?",
    *HINTS[:3], "v2|v4|v8?", TYPES,
)  # fmt: skip


def shape_of(lanes: Lanes, address: Operand) -> LaneElements:
    """What a load or store moves."""
    op = lanes.op
    space = next((m.split("::")[0] for m in op.modifiers if m in SPACE.split("|")), "generic")
    if space == "param":  # a kernel's are the host's; a function's lie in the thread's local memory
        base = getattr(address, "base", None)
        place = lanes.machine.linked.place(lanes.frame.function.name, base.name) if isinstance(base, Symbol) else None
        own = place.space if place else ("param" if lanes.frame.function.entry else "local")
        space = "local" if own == "local" else "global"
    count = int(next((m[1:] for m in op.modifiers if m in ("v2", "v4", "v8")), "1"))
    strong = any(m in STRONG for m in op.modifiers)
    return LaneElements("global" if space == "const" else space, WIDTHS[op.modifiers[-1]], count, strong)


def address_of(lanes: Lanes, operand: Operand) -> Any:
    """The address that a load or store names: i64, a vector if it varies."""
    base, offset = lanes.address(operand)
    register = getattr(operand, "base", None)
    if isinstance(register, Register):
        base = moves.in_host(lanes, base, next((m for m in lanes.op.modifiers if m in SPACE.split("|")), ""))
    if not offset:
        return base
    moved = lanes.b.add(base, const(lanes.v, base, offset))
    if isinstance(register, Register) and register.bits < ADDRESS_BITS and "local" in lanes.op.modifiers:
        # one before the memory, whose offset leads into it; those of shared memory are cut where they are used
        moved = lanes.b.and_(moved, const(lanes.v, moved, (1 << register.bits) - 1))
    return moved


def row_of(lanes: Lanes, shape: LaneElements, operand: Operand) -> LaneRow | None:
    """Where an access goes whose text tells that its lanes' elements lie side by side."""
    base, ramp = getattr(operand, "base", None), None
    if OWN_SPACES.isdisjoint(lanes.op.modifiers):
        ramp = lanes.frame.ramps.of(base)
    if ramp is None or ramp.step != shape.bytes or (shape.space != "shared" and ramp.bits < ADDRESS_BITS):
        return None
    first = resize(lanes.v, ramp.base, ADDRESS_BITS)
    offset = operand.offset  # type: ignore[union-attr]
    first = lanes.b.add(first, lanes.v.int(offset)) if offset else first
    return LaneRow(ramp.step, first, ramp.holds, lambda: lanes.spread(address_of(lanes, operand)))


def ld(lanes: Lanes) -> None:
    """ld, ldu"""
    target, source = lanes.operands[:2]
    shape = shape_of(lanes, source)
    address = row_of(lanes, shape, source) or address_of(lanes, source)
    site = lanes.machine.site(lanes)
    if isinstance(address, LaneRow):
        values = load_lanes(lanes, shape, address, site)
    elif shape.space == "local" or is_vector(address) or lanes.guarded:
        values = load_lanes(lanes, shape, lanes.spread(address), site)
    else:
        values = _load_one(lanes, shape, address, site, _in_parameter(lanes, source, shape))
    signed = lanes.op.modifiers[-1].startswith("s")
    targets = lanes.elements(target)
    if len(targets) != shape.elements:
        lanes.refuse(f"loads {shape.elements} elements into {len(targets)} registers")
    for register, value in zip(targets, values, strict=True):
        if not isinstance(register, Sink):
            lanes.write(register, value, signed)


def st(lanes: Lanes) -> None:
    """st"""
    target, source = lanes.operands[:2]
    shape = shape_of(lanes, target)
    address = row_of(lanes, shape, target) or address_of(lanes, target)
    site = lanes.machine.site(lanes)
    sources = lanes.elements(source)
    if len(sources) != shape.elements:
        lanes.refuse(f"stores {shape.elements} elements from {len(sources)} registers")
    values = [stored(lanes, s) for s in sources]
    one_place = (
        not isinstance(address, LaneRow) and not is_vector(address) and shape.space != "local" and not lanes.guarded
    )
    if one_place and not any(is_vector(x) for x in values):
        _store_one(lanes, shape, address, values, site)
    else:
        where = address if isinstance(address, LaneRow) else lanes.spread(address)
        store_lanes(lanes, shape, where, [lanes.spread(x) for x in values], site)


def stored(lanes: Lanes, operand: Operand) -> Any:
    """What is stored of an operand: a vector if it varies."""
    kind = lanes.op.modifiers[-1]
    return lanes.read(operand, "b" + kind[1:] if kind[0] in "us" else kind)


def watched(
    lanes: Lanes,
    shape: LaneElements,
    kind: int,
    address: Any,
    site: int,
    values: list[Any] | None = None,
    parameter: bool = False,
) -> None:
    """Let the instrument see a load (READ) or store (WRITE)."""
    order = 0
    if shape.strong:
        kind = {kinds.READ: kinds.STRONG_READ, kinds.WRITE: kinds.STRONG_WRITE}[kind]
        order = kinds.ACQUIRES * lanes.op.has("acquire") | kinds.RELEASES * lanes.op.has("release")
    touch = Touch(shape.space, shape.bytes, kind, order, shape.bits // 8, parameter)
    lanes.machine.instrument.access(lanes, touch, address, site, values)


def _in_parameter(lanes: Lanes, operand: Operand, shape: LaneElements) -> bool:
    """Whether the text alone tells that an access lies inside of a parameter of the kernel."""
    if not isinstance(operand, Address) or not isinstance(operand.base, Symbol):
        return False
    place = lanes.machine.linked.place(lanes.frame.function.name, operand.base.name)
    if place is None or place.space != "param":
        return False
    first = operand.base.offset + operand.offset
    return bool(0 <= first <= place.bytes - shape.bytes and (place.offset + first) % shape.bytes == 0)


# --- all lanes at one address ---
def _load_one(lanes: Lanes, shape: LaneElements, address: Any, site: int, certain: bool) -> list[Any]:
    """certain: nothing is to be checked."""
    b, v = lanes.b, lanes.v
    if certain and not shape.strong:
        watched(lanes, shape, kinds.READ, address, site, parameter=True)
        pointer = b.inttoptr(address, POINTER)
        return [scalar_load(v, pointer, i, shape) for i in range(shape.elements)]
    element = ir.IntType(shape.bits)
    results = [lanes.frame.code.scratch(element) for _ in range(shape.elements)]
    for slot in results:  # where nothing may be read: else what an earlier load left would be a join of every block
        b.store(ir.Constant(element, 0), slot)

    def fast(pointer: Any) -> None:
        for i, slot in enumerate(results):
            b.store(scalar_load(v, pointer, i, shape), slot)

    watched(lanes, shape, kinds.READ, address, site)
    _at_one(lanes, Access(shape.space, shape.bytes, False), address, site, fast)
    return [b.load(slot) for slot in results]


def _store_one(lanes: Lanes, shape: LaneElements, address: Any, values: list[Any], site: int) -> None:
    v = lanes.v

    def fast(pointer: Any) -> None:
        for i, value in enumerate(values):
            scalar_store(v, pointer, value, i, shape)

    watched(lanes, shape, kinds.WRITE, address, site, values)
    _at_one(lanes, Access(shape.space, shape.bytes, True), address, site, fast)


def _at_one(lanes: Lanes, access: Access, address: Any, site: int, do: Any) -> None:
    """`do(pointer)` at one address if it may be touched; the check is inline while the site stays in its range."""
    b, v = lanes.b, lanes.v
    if access.space == "shared":
        offset = b.and_(address, v.int(0xFFFFFFFF))
        fits = fits_shared(lanes, offset, v.int(access.bytes), access.bytes)
        pointer = b.add(lanes.get("block", "shared"), offset)
    else:
        fits = fits_global(lanes, address, v.int(access.bytes), access.bytes, site)
        pointer = address
    with b.if_else(fits, likely=True) as (then, otherwise):
        with then:
            do(b.inttoptr(pointer, POINTER))
        with otherwise:
            out, good = resolve(lanes, access, address, site)
            with b.if_then(b.icmp_unsigned("!=", good, ir.Constant(I32, 0))):
                first = v.call("llvm.cttz.i32", I32, good, ir.Constant(I1, 1))
                do(b.inttoptr(b.load(b.gep(b.bitcast(out, I64.as_pointer()), [first])), POINTER))


def _aligned(lanes: Lanes, address: Any, size: int) -> Any:
    low = lanes.b.and_(address, const(lanes.v, address, size - 1))
    return lanes.b.icmp_unsigned("==", low, const(lanes.v, low, 0))


def fits_shared(lanes: Lanes, offset: Any, total: Any, size: int) -> Any:
    """Whether so many bytes from an offset are the block's; they are aligned to `size`."""
    if not lanes.machine.options.checked:
        return range_checks.fits_shared(lanes.v, False, offset, total, lanes.block)
    limit = lanes.b.zext(lanes.get("launch", "shared_bytes"), I64)
    return lanes.b.and_(range_checks.holds(lanes.v, limit, offset, total), _aligned(lanes, offset, size))


def fits_global(lanes: Lanes, address: Any, total: Any, size: int, site: int) -> Any:
    """Whether [address, address + total) lies in the range where this site was last (generic tags never do)."""
    if not lanes.machine.options.checked:
        return lanes.b.icmp_unsigned("<", address, lanes.v.int(1 << 56))
    first, length = site_range(lanes, site)
    inside = range_checks.holds(lanes.v, length, lanes.b.sub(address, first), total)
    return lanes.b.and_(inside, _aligned(lanes, address, size))


# --- lanes at addresses of their own ---
def side_by_side(lanes: Lanes, shape: LaneElements, addresses: Any, site: int, align: int) -> tuple[Any, Any]:
    """Whether the lanes' elements lie side by side where they may be touched (i1), and the pointer to lane 0's.

    Several elements of a lane: all 32 lanes are active.  One of each: so they are where masks are not free.
    """
    b = lanes.b

    def fits(first: Any, total: Any) -> Any:
        if shape.space == "shared":
            return fits_shared(lanes, first, total, align)
        return fits_global(lanes, first, total, align, site)

    active = None if _as_whole(lanes) else lanes.active
    together, first = lie_side_by_side(lanes.v, shape, addresses, active, fits)
    if active is None and not lanes.full:
        together = b.and_(together, b.icmp_unsigned("==", lanes.active, ir.Constant(I32, -1)))
    if shape.space == "shared":
        first = b.add(lanes.get("block", "shared"), first)
    return together, b.inttoptr(first, POINTER)


def _as_whole(lanes: Lanes) -> bool:
    """Whether a row is moved by code that has all lanes.

    Where a mask is free, some lanes take as long as all.  Elsewhere a store under a mask takes twelve cycles and more
    (Zen 3), and a function does it for them.
    """
    return lanes.full or not lowering(lanes.v).row.masks


def load_lanes(lanes: Lanes, shape: LaneElements, addresses: Any, site: int) -> list[Any]:
    """The elements at each active lane's address, one vector each."""
    b = lanes.b
    watched(lanes, shape, kinds.READ, addresses, site)
    if lanes.rare or shape.space == "local" or shape.strong or shape.elements > 1:
        return gather(lanes, shape, vector_of(addresses), site, near=lanes.rare)
    slot = lanes.frame.code.scratch(shape.row)
    together, pointer = side_by_side(lanes, shape, addresses, site, shape.bytes)
    with b.if_else(together, likely=isinstance(addresses, LaneRow)) as (then, otherwise):
        with then:
            b.store(load_row(lanes, shape, pointer), slot)
        with otherwise:
            near = _as_whole(lanes) and not lanes.full
            b.store(*gather(lanes, shape, vector_of(addresses), site, near=near), slot)
    return [b.load(slot)]


def load_row(lanes: Lanes, shape: LaneElements, pointer: Any) -> Any:
    """An element of each lane, side by side."""
    b, v, row = lanes.b, lanes.v, shape.row
    if _as_whole(lanes):
        return v.load(pointer, row, 1)
    return masked_load(v, b.bitcast(pointer, row.as_pointer()), lanes.active_lanes)


def store_lanes(lanes: Lanes, shape: LaneElements, addresses: Any, values: list[Any], site: int) -> None:
    """Store each active lane's elements at its address."""
    watched(lanes, shape, kinds.WRITE, addresses, site, values)
    if lanes.rare or shape.space == "local" or shape.strong or shape.elements > 1:
        scatter(lanes, shape, vector_of(addresses), values, site, near=lanes.rare)
        return
    together, pointer = side_by_side(lanes, shape, addresses, site, shape.bytes)
    with lanes.b.if_else(together, likely=isinstance(addresses, LaneRow)) as (then, otherwise):
        with then:
            store_row(lanes, shape, pointer, *values)
        with otherwise:
            near = _as_whole(lanes) and not lanes.full
            scatter(lanes, shape, vector_of(addresses), values, site, near=near)


def store_row(lanes: Lanes, shape: LaneElements, pointer: Any, value: Any) -> None:
    """The inverse of `load_row`."""
    v, row = lanes.v, shape.row
    if _as_whole(lanes):
        v.store(value, pointer, 1)
        return
    masked_store(v, value, lanes.b.bitcast(pointer, row.as_pointer()), lanes.active_lanes)


def _own_memory(instruction: Instruction) -> bool:
    """Whether each lane reads memory of its own: local, and parameters of functions (those of kernels it reads too)."""
    return "local" in instruction.modifiers


def _remote(instruction: Instruction) -> bool:
    return any(m in STRONG for m in instruction.modifiers)


ACTIONS = (
    Action("ld", LD, ld, results=1, varying=_own_memory, remote=_remote, whole=True),
    Action("ldu", slots("global?", "v2|v4?", TYPES), ld, results=1),
    Action("st", ST, st, whole=True),
)
