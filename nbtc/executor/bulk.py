"""Rows of bulk copies: cp.async.bulk, cp.reduce.async.bulk, tensor tiles, and edits of tensor maps.

(PTX ISA, "cp.async.bulk", "cp.reduce.async.bulk", "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor",
"tensormap.replace", "tensormap.cp_fenceproxy".)  A copy is done when it is issued and tells its mbarrier at once; bulk
groups have nothing to wait for.  Lanes act one after the other.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I1, I8, I32, I64, vector
from nbtc.executor import reach
from nbtc.executor.action import Action
from nbtc.executor.cluster import peer_field
from nbtc.executor.data import Address, Immediate, Operand, Vector
from nbtc.executor.errors import Kind
from nbtc.executor.form import slots
from nbtc.executor.lanes import WARP, Lanes
from nbtc.executor.mbarrier import update
from nbtc.executor.resolve import for_lanes
from nbtc.executor.services import REDUCE_ELEMENTS, TILE_COPY
from nbtc.executor.tensor_map import BYTES, ELEMENTS, LAYOUT, MOST_DIMS
from nbtc.executor.tma import LOAD, REDUCE, REDUCTIONS, STORE
from nbtc.executor.tma_service import (
    ADDRESS,
    ELEMENT_WORDS,
    KIND,
    OPERATION,
    REGION_COUNT,
    REGIONS,
    RESULT,
    SHARED,
    START,
    TENSOR,
    TILE,
    TILE_WORDS,
)
from nbtc.executor.tma_service import BYTES as BYTES_WORD
from nbtc.executor.watch import words

L32, L64 = vector(I32, WARP), vector(I64, WARP)
POINTER = I8.as_pointer()
FOUR_ROWS, ROWS = ("tile::gather4", "tile::scatter4"), 4
UNIT = 16  # bytes: bulk addresses and sizes are multiples
MAP_ALIGN = 64  # bytes: what a tensor map's address is a multiple of; so much of it is looked up


class Words:
    """A service's arguments on the stack."""

    def __init__(self, lanes: Lanes, count: int) -> None:
        self.v, self.b = lanes.v, lanes.b
        with self.b.goto_entry_block():
            self.p = self.b.bitcast(self.b.alloca(ir.ArrayType(I64, count)), POINTER)

    def set(self, n: int, value: Any) -> None:
        """Word n (a number or an i64)."""
        self.v.store(self.v.int(value) if isinstance(value, int) else value, self.p, 8, 8 * n)

    def get(self, n: int) -> Any:
        """Word n."""
        return self.v.load(self.p, I64, 8, 8 * n)

    def call(self, lanes: Lanes, slot: int) -> None:
        """Call the service of a slot."""
        address = self.v.load(lanes.services, I64, 8, 8 * slot)
        kind = ir.FunctionType(ir.VoidType(), [POINTER])
        self.b.call(self.b.inttoptr(address, kind.as_pointer()), [self.p])


def _element(x: Any, lanes: Lanes, lane: Any) -> Any:
    return lanes.b.extract_element(x, lane)


# --- lines of memory ------------------------------------------------------------------------------------------------
def _ends(lanes: Lanes, space: str, operand: Operand, size: Any, writes: bool) -> tuple[Any, Any]:
    """(places of a line's begin, lanes whose whole line may be touched): its first and last 16 bytes are looked up."""
    first = reach.address(lanes, operand)
    last = lanes.b.sub(lanes.b.add(first, size), lanes.v.const(L64, UNIT))
    begin = reach.places_at(lanes, space, first, UNIT, writes)
    end = reach.places_at(lanes, space, last, UNIT, writes)
    return begin.words, lanes.b.and_(begin.good, end.good)


def _spaces(lanes: Lanes) -> tuple[str, str]:
    """Where a line goes and where it comes from."""
    found = [m for m in lanes.op.modifiers if m.split("::")[0] in ("shared", "global") and m != "L2"]
    return found[0], found[1]


def _line(lanes: Lanes) -> None:
    """A bulk copy or reduction of a line of bytes."""
    to, source, size, *rest = lanes.operands
    b, v = lanes.b, lanes.v
    target_space, source_space = _spaces(lanes)
    many = b.zext(lanes.read(size, "u32", lanes=True), L64)
    there, good = _ends(lanes, target_space, to, many, True)
    here, fine = _ends(lanes, source_space, source, many, False)
    good = b.and_(good, fine)
    operation = lanes.op.among(REDUCTIONS)
    multicast = _mask(lanes, rest) if lanes.op.has("multicast::cluster") else None

    grouped, look = lanes.op.has("bulk_group"), lanes.machine.instrument

    def lane(number: Any) -> None:
        target, origin, count = (_element(x, lanes, number) for x in (there, here, many))
        look.operates(lanes, words.BULKS if grouped else -1)
        look.line(lanes, number, origin, count, words.BULK_READ, noted=grouped)
        for_targets(lanes, multicast, number, target, lambda at: one(number, at, origin, count))

    def one(number: Any, at: Any, origin: Any, count: Any) -> None:
        written = words.ATOMIC if operation else words.BULK_STORE if grouped else words.BULK_WRITE
        look.line(lanes, number, at, count, written)
        _move(lanes, operation, at, origin, count)

    for_lanes(v, good, lane)
    if rest and lanes.op.has("mbarrier::complete_tx::bytes"):
        _complete(lanes, rest[0], many, multicast)


def _mask(lanes: Lanes, rest: list[Operand]) -> Any:
    return lanes.read(rest[1], "b16", lanes=True)


def _move(lanes: Lanes, operation: str, target: Any, source: Any, count: Any) -> None:
    """One line: copied, or reduced element by element."""
    b, v = lanes.b, lanes.v
    if not operation:
        kind = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, I64, I1])
        name = "llvm.memcpy.p0.p0.i64"
        f = b.module.globals.get(name) or ir.Function(b.module, kind, name)
        b.call(f, [b.inttoptr(target, POINTER), b.inttoptr(source, POINTER), count, ir.Constant(I1, 0)])
        return
    name = lanes.op.modifiers[-1]
    element = ELEMENTS[{"b32": "u32", "b64": "u64"}.get(name, name)]
    words = Words(lanes, ELEMENT_WORDS)
    many = b.udiv(count, v.int(element.size))
    for n, x in enumerate((REDUCTIONS.index(operation), element.number, element.size, target, source, many)):
        words.set(n, x)
    words.call(lanes, REDUCE_ELEMENTS)


def for_targets(lanes: Lanes, multicast: Any, lane: Any, address: Any, do: Any) -> None:
    """do(address) here, or in the same place of the shared memory of every block of the cluster that a mask names."""
    if multicast is None:
        do(address)
        return
    b = lanes.b
    offset = b.sub(address, lanes.get("block", "shared"))
    mask = b.zext(_element(multicast, lanes, lane), I32)
    for_lanes(lanes.v, mask, lambda rank: do(b.add(peer_field(lanes, rank, "shared"), offset)))


def _complete(lanes: Lanes, barrier: Operand, count: Any, multicast: Any) -> None:
    """Tell an mbarrier (of every block that a mask names) that so many bytes have come."""
    b, v = lanes.b, lanes.v
    none = v.const(L64, 0)
    found = reach.places(lanes, "shared::cluster", barrier, 8, writes=True)
    if multicast is None:
        update(lanes, found, none, b.sub(none, count), none)
        return

    def lane(number: Any) -> None:
        at, owed = _element(found.words, lanes, number), b.sub(none, count)

        def one(place: Any) -> None:
            update(lanes, reach.Places(v.splat(place, WARP), b.shl(ir.Constant(I32, 1), number)), none, owed, none)

        for_targets(lanes, multicast, number, at, one)

    for_lanes(v, found.good, lane)


# --- tiles ----------------------------------------------------------------------------------------------------------
def _tensor(lanes: Lanes, operand: Operand) -> tuple[Any, list[Any]]:
    """(places of the tensor map, coordinates as <32 x i64>) of `[map, {x, y, ...}]`."""
    if not isinstance(operand, Address) or not operand.rest or not isinstance(operand.rest[0], Vector):
        lanes.refuse("a tensor copy names a map and coordinates: [map, {x, y}]")
    coordinates = operand.rest[0].elements
    where = operand._replace(rest=())
    found = reach.places(lanes, "generic", where, MAP_ALIGN)
    return found, [lanes.b.sext(lanes.read(c, "s32", lanes=True), L64) for c in coordinates]


def _tile(lanes: Lanes) -> None:
    """A tile of a tensor map to or from shared memory; in the modes of four rows, each named by itself."""
    op, v, b = lanes.op, lanes.v, lanes.b
    loads = op.has("mbarrier::complete_tx::bytes")
    if loads:
        target, tensor, barrier, *rest = lanes.operands
        shared = target
    else:
        tensor, shared, *rest = lanes.operands
    maps, start = _tensor(lanes, tensor)
    tiles = reach.places(lanes, "shared::cluster", shared, UNIT, writes=loads)
    multicast = lanes.read(rest[0], "b16", lanes=True) if op.has("multicast::cluster") else None
    operation = op.among(REDUCTIONS)
    kind = LOAD if loads else REDUCE if op.modifiers[0] == "reduce" else STORE
    counts, parts = _room(lanes), _parts(lanes, start)

    look = lanes.machine.instrument
    seen = words.BULK_WRITE if loads else words.BULK_READ

    def lane(number: Any) -> None:
        base, total = lanes.get("block", "shared"), v.int(0)
        look.operates(lanes, -1 if loads else words.BULKS)
        for part in parts:  # each behind the one before
            given = _tile_words(lanes, kind, operation, _element(maps.words, lanes, number), part, number)
            at = b.add(_element(tiles.words, lanes, number), total)

            def one(to: Any, given: Words = given) -> None:
                _one_tile(lanes, given, to, base)
                look.line(lanes, number, to, given.get(BYTES_WORD), seen)

            for_targets(lanes, multicast, number, at, one)
            total = b.add(total, given.get(BYTES_WORD))
        b.store(total, b.gep(counts, [number]))

    for_lanes(v, b.and_(maps.good, tiles.good), lane)
    if loads:
        _complete(lanes, barrier, b.load(b.bitcast(counts, L64.as_pointer())), multicast)


def _parts(lanes: Lanes, start: list[Any]) -> list[list[Any]]:
    """Where the boxes of one instruction begin: one, or four rows (`tile::gather4`: column, then the rows)."""
    if not any(m in FOUR_ROWS for m in lanes.op.modifiers):
        return [start]
    if len(start) != ROWS + 1:
        lanes.refuse(f"takes a column and {ROWS} rows as coordinates, not {len(start)} numbers")
    return [[start[0], row] for row in start[1:]]


def _room(lanes: Lanes) -> Any:
    """A vector of 64-bit words on the stack, zero; as a pointer to its first."""
    with lanes.b.goto_entry_block():
        room = lanes.b.alloca(L64)
    lanes.b.store(ir.Constant(L64, None), room)
    return lanes.b.bitcast(room, I64.as_pointer())


def _tile_words(lanes: Lanes, kind: int, operation: str, tensor: Any, start: list[Any], number: Any) -> Words:
    words = Words(lanes, TILE_WORDS)
    words.set(KIND, kind)
    words.set(OPERATION, REDUCTIONS.index(operation) if operation else 0)
    words.set(TENSOR, tensor)
    for d in range(MOST_DIMS):
        words.set(START + d, _element(start[d], lanes, number) if d < len(start) else 0)
    checked = lanes.machine.options.checked
    words.set(REGIONS, lanes.get("launch", "ranges"))
    words.set(REGION_COUNT, lanes.get("launch", "range_count") if checked else 0)
    return words


def _one_tile(lanes: Lanes, words: Words, at: Any, base: Any) -> None:
    """One copy; the swizzle goes by the offset in shared memory, whose begin is a multiple of its pattern."""
    b, v = lanes.b, lanes.v
    words.set(SHARED, at)
    offset = b.and_(b.sub(at, base), v.int(1023))
    words.set(SHARED, b.sub(at, offset))
    words.set(TILE, offset)
    words.call(lanes, TILE_COPY)
    with b.if_then(b.icmp_unsigned("!=", words.get(RESULT), v.int(0)), likely=False):
        lanes.fail(Kind.TENSOR_COPY, lanes.active, v.splat(words.get(ADDRESS), WARP))


# --- tensor maps ----------------------------------------------------------------------------------------------------
_FIELDS = {
    "global_address": I64,
    "global_stride": I64,
    "rank": I32,
    "box_dim": I32,
    "global_dim": I32,
    "element_stride": I32,
}


def _replace(lanes: Lanes) -> None:
    """tensormap.replace: one field of a map in memory."""
    name = lanes.op.modifiers[2]
    address, *rest = lanes.operands
    offset = LAYOUT.fields[name][1]  # type: ignore[index]
    kind = _FIELDS.get(name, I8)
    if name in ("box_dim", "global_dim", "element_stride", "global_stride"):
        ordinal = rest.pop(0)
        if not isinstance(ordinal, Immediate):
            lanes.refuse("the dimension is a constant")
        offset += ordinal.value * kind.width // 8
    value = lanes.read(rest[0], "b64" if kind is I64 else "b32", lanes=True)
    space = "shared" if lanes.op.has("shared::cta") else "global" if lanes.op.has("global") else "generic"
    found = reach.places(lanes, space, address, MAP_ALIGN, writes=True)
    b = lanes.b

    def lane(number: Any) -> None:
        x = b.extract_element(value, number)
        x = x if x.type == kind else b.trunc(x, kind)
        lanes.v.store(x, b.inttoptr(_element(found.words, lanes, number), POINTER), 1, offset)

    for_lanes(lanes.v, found.good, lane)


def _publish(lanes: Lanes) -> None:
    """tensormap.cp_fenceproxy: 128 bytes from shared to global memory, by one lane."""
    target, source, _ = lanes.operands
    to = reach.places(lanes, "global", target, MAP_ALIGN, writes=True)
    origin = reach.places(lanes, "shared", source, MAP_ALIGN)
    first = lanes.v.call("llvm.cttz.i32", I32, lanes.active, ir.Constant(I1, 0))
    good = lanes.b.and_(lanes.b.and_(to.good, origin.good), lanes.b.shl(ir.Constant(I32, 1), first))
    size = lanes.v.int(BYTES)
    for_lanes(
        lanes.v, good, lambda n: _move(lanes, "", _element(to.words, lanes, n), _element(origin.words, lanes, n), size)
    )


def _nothing(lanes: Lanes) -> None:
    """Copies are done; what only warms a cache changes nothing."""


DIMS = "|".join(f"{n}d" for n in range(1, MOST_DIMS + 1))
HINT, DONE = "L2::cache_hint?", "mbarrier::complete_tx::bytes"
PREFETCHED = "tile|tile::gather4?"
ONE_CTA = "cta_group::1?"  # the mbarrier is told in the block that the address names, as without it
INTEGER, FLOAT = "s32|u32|s64|u64", "f16|bf16|f32|f64"
ALL_REDUCTIONS = "|".join(REDUCTIONS)
FIELDS = "|".join(_FIELDS) + "|elemtype|interleave_layout|swizzle_mode|fill_mode"
TO_CLUSTER, TO_GLOBAL = ("shared::cluster|shared::cta", "global"), ("global", "shared::cta")
ACTIONS = (
    Action("cp", slots("async", "bulk", *TO_CLUSTER, DONE, "multicast::cluster?", HINT), _line),
    Action("cp", slots("async", "bulk", "shared::cluster", "shared::cta", DONE), _line),
    Action("cp", slots("async", "bulk", *TO_GLOBAL, "bulk_group", HINT), _line),
    Action(
        "cp",
        slots("reduce", "async", "bulk", "shared::cluster", "shared::cta", DONE, ALL_REDUCTIONS, f"b32|b64|{INTEGER}"),
        _line,
    ),
    Action(
        "cp",
        slots(
            "reduce", "async", "bulk", *TO_GLOBAL, "bulk_group", HINT, ALL_REDUCTIONS, "noftz?",
            f"b32|b64|{INTEGER}|{FLOAT}",
        ),
        _line,
    ),
    Action(
        "cp",
        slots("async", "bulk", "tensor", DIMS, *TO_CLUSTER, "tile?", DONE, "multicast::cluster?", ONE_CTA, HINT),
        _tile,
    ),
    Action(
        "cp",
        slots("async", "bulk", "tensor", "2d", *TO_CLUSTER, FOUR_ROWS[0], DONE, "multicast::cluster?", ONE_CTA, HINT),
        _tile,
    ),
    Action("cp", slots("async", "bulk", "tensor", "2d", *TO_GLOBAL, FOUR_ROWS[1], "bulk_group", HINT), _tile),
    Action("cp", slots("async", "bulk", "tensor", DIMS, *TO_GLOBAL, "tile?", "bulk_group", HINT), _tile),
    Action(
        "cp",
        slots("reduce", "async", "bulk", "tensor", DIMS, *TO_GLOBAL, ALL_REDUCTIONS, "tile?", "bulk_group", HINT),
        _tile,
    ),
    Action("cp", slots("async", "bulk", "prefetch", "L2", "global", HINT), _nothing),
    Action("cp", slots("async", "bulk", "prefetch", "tensor", DIMS, "L2", "global", PREFETCHED, HINT), _nothing),
    Action("cp", slots("async", "bulk", "commit_group"), _nothing),
    Action("cp", slots("async", "bulk", "wait_group", "read?"), _nothing),
    Action("tensormap", slots("replace", "tile", FIELDS, "global|shared::cta?", "b1024", "b32|b64"), _replace),
    Action(
        "tensormap",
        slots("cp_fenceproxy", *TO_GLOBAL, "tensormap::generic", "release", "cta|cluster|gpu|sys", "sync", "aligned"),
        _publish,
    ),
)  # fmt: skip
