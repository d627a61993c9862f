"""Rows of bulk tensor copies: boxes of tensor maps, tiled and im2col, and edits of tensor maps.

(PTX ISA, "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", "cp.async.bulk.prefetch.tensor", "tensormap.replace",
"tensormap.cp_fenceproxy".)  As other bulk copies these are done when they are issued.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I1, I8, I32, I64
from nbtc.compiler.loops import for_lanes
from nbtc.executor.emit import access_kinds as kinds
from nbtc.executor.emit.action import Action
from nbtc.executor.emit.errors import ErrorKind
from nbtc.executor.emit.form import slots
from nbtc.executor.emit.lanes import WARP, Lanes
from nbtc.executor.emit.slots import TILE_COPY
from nbtc.executor.memory import reach
from nbtc.executor.text.data import Address, Immediate, Operand, Vector
from nbtc.executor.transfer.bulk import (
    ALL_REDUCTIONS,
    DONE,
    HINT,
    L64,
    POINTER,
    TO_CLUSTER,
    TO_GLOBAL,
    UNIT,
    ServiceWords,
    complete,
    element_of,
    for_targets,
    move,
    nothing,
)
from nbtc.executor.transfer.tensor_map import BYTES, ELEMENTS, FILLS, INTERLEAVES, LAYOUT, MOST_DIMS, SWIZZLES
from nbtc.executor.transfer.tma import LOAD, REDUCE, REDUCTIONS, STORE
from nbtc.executor.transfer.tma_service import (
    ADDRESS,
    COLUMNS,
    EXTENT,
    KIND,
    OFFSETS,
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
from nbtc.executor.transfer.tma_service import BYTES as BYTES_WORD

FOUR_ROWS, ROWS = ("tile::gather4", "tile::scatter4"), 4
IM2COL = ("im2col", "im2col_no_offs")
MAP_ALIGN = 64  # bytes: what a tensor map's address is a multiple of; so much of it is looked up
DIMS = "|".join(f"{n}d" for n in range(1, MOST_DIMS + 1))
SPATIAL_DIMS = "3d|4d|5d"  # of maps in im2col mode: images have one to three dimensions


# --- boxes ----------------------------------------------------------------------------------------------------------
def _tensor(lanes: Lanes, operand: Operand) -> tuple[Any, list[Any]]:
    """(places of the tensor map, coordinates as <32 x i64>) of `[map, {x, y, ...}]`."""
    if not isinstance(operand, Address) or not operand.rest or not isinstance(operand.rest[0], Vector):
        lanes.refuse("a tensor copy names a map and coordinates: [map, {x, y}]")
    coordinates = operand.rest[0].elements
    where = operand._replace(rest=())
    found = reach.places(lanes, "generic", where, MAP_ALIGN)
    return found, [lanes.b.sext(lanes.read(c, "s32", lanes=True), L64) for c in coordinates]


def _box(lanes: Lanes) -> None:
    """A box of a tensor map to or from shared memory; in the modes of four rows, each named by itself."""
    op, v, b = lanes.op, lanes.v, lanes.b
    loads = op.has("mbarrier::complete_tx::bytes")
    if loads:
        target, tensor, barrier, *rest = lanes.operands
        shared = target
    else:
        tensor, shared, *rest = lanes.operands
    maps, start = _tensor(lanes, tensor)
    tiles = reach.places(lanes, "shared::cluster", shared, UNIT, writes=loads)
    offsets = _offsets(lanes, rest.pop(0)) if op.has("im2col") else []
    multicast = lanes.read(rest[0], "b16", lanes=True) if op.has("multicast::cluster") else None
    operation = op.among(REDUCTIONS)
    kind = LOAD if loads else REDUCE if op.modifiers[0] == "reduce" else STORE
    counts, parts = _buffer(lanes), _parts(lanes, start)

    look = lanes.machine.instrument
    seen = kinds.BULK_WRITE if loads else kinds.BULK_READ

    def lane(number: Any) -> None:
        base, total, extent = lanes.get("block", "shared"), v.int(0), v.int(0)
        look.operates(lanes, -1 if loads else kinds.BULKS)
        for part in parts:  # each after the one before
            given = _tile_words(lanes, kind, operation, element_of(maps.words, lanes, number))
            _name_box(lanes, given, part, offsets, number)
            at = b.add(element_of(tiles.words, lanes, number), extent)

            def one(to: Any, given: ServiceWords = given) -> None:
                _one_tile(lanes, given, to, base)
                look.line(lanes, number, to, given.get(EXTENT), seen)

            for_targets(lanes, multicast, number, at, one)
            total, extent = (b.add(x, given.get(word)) for x, word in ((total, BYTES_WORD), (extent, EXTENT)))
        b.store(total, b.gep(counts, [number]))

    for_lanes(v, b.and_(maps.good, tiles.good), lane)
    if loads:
        complete(lanes, barrier, b.load(b.bitcast(counts, L64.as_pointer())), multicast, op.has("cta_group::2"))


def _offsets(lanes: Lanes, operand: Operand) -> list[Any]:
    """The offsets of im2col mode, one a spatial dimension, as <32 x i64>."""
    wanted = int(lanes.op.among(tuple(DIMS.split("|")))[0]) - 2
    if not isinstance(operand, Vector) or len(operand.elements) != wanted:
        lanes.refuse(f"takes {wanted} offsets in braces after its mbarrier")
        return []
    return [lanes.b.zext(lanes.read(x, "u16", lanes=True), L64) for x in operand.elements]


def _parts(lanes: Lanes, start: list[Any]) -> list[list[Any]]:
    """Where the boxes of one instruction begin: one, or four rows (`tile::gather4`: column, then the rows)."""
    if not any(m in FOUR_ROWS for m in lanes.op.modifiers):
        return [start]
    if len(start) != ROWS + 1:
        lanes.refuse(f"takes a column and {ROWS} rows as coordinates, not {len(start)} numbers")
    return [[start[0], row] for row in start[1:]]


def _buffer(lanes: Lanes) -> Any:
    """A vector of 64-bit words on the stack, zero; as a pointer to its first."""
    with lanes.b.goto_entry_block():
        buffer = lanes.b.alloca(L64)
    lanes.b.store(ir.Constant(L64, None), buffer)
    return lanes.b.bitcast(buffer, I64.as_pointer())


def _tile_words(lanes: Lanes, kind: int, operation: str, tensor: Any) -> ServiceWords:
    words = ServiceWords(lanes, TILE_WORDS)
    words.set(KIND, kind)
    words.set(OPERATION, REDUCTIONS.index(operation) if operation else 0)
    words.set(TENSOR, tensor)
    checked = lanes.machine.options.checked
    words.set(REGIONS, lanes.get("launch", "ranges"))
    words.set(REGION_COUNT, lanes.get("launch", "range_count") if checked else 0)
    return words


def _name_box(lanes: Lanes, words: ServiceWords, start: list[Any], offsets: list[Any], number: Any) -> None:
    """A lane's coordinates and its offsets in im2col mode."""
    for d in range(MOST_DIMS):
        words.set(START + d, element_of(start[d], lanes, number) if d < len(start) else 0)
    words.set(COLUMNS, int(any(m in IM2COL for m in lanes.op.modifiers)))
    for d in range(MOST_DIMS - 2):
        words.set(OFFSETS + d, element_of(offsets[d], lanes, number) if d < len(offsets) else 0)


def _one_tile(lanes: Lanes, words: ServiceWords, at: Any, base: Any) -> None:
    """One copy; the swizzle goes by the offset in shared memory, whose begin is a multiple of its pattern."""
    b, v = lanes.b, lanes.v
    words.set(SHARED, at)
    offset = b.and_(b.sub(at, base), v.int(1023))
    words.set(SHARED, b.sub(at, offset))
    words.set(TILE, offset)
    words.call(lanes, TILE_COPY)
    with b.if_then(b.icmp_unsigned("!=", words.get(RESULT), v.int(0)), likely=False):
        lanes.fail(ErrorKind.TENSOR_COPY, lanes.active, v.splat(words.get(ADDRESS), WARP))


# --- tensor maps ----------------------------------------------------------------------------------------------------
_FIELDS = {
    "global_address": I64,
    "global_stride": I64,
    "rank": I32,
    "box_dim": I32,
    "global_dim": I32,
    "element_stride": I32,
}

_VALUES: dict[str, tuple[int, ...]] = {  # PTX ISA, the table of "tensormap.replace"
    "elemtype": tuple(e.number for e in ELEMENTS.values()),
    "interleave_layout": tuple(INTERLEAVES.values()),
    "swizzle_mode": tuple(SWIZZLES.values()),
    "swizzle_atomicity": (0, 1, 3),  # 16, 32 and 64 bytes; 2 flips halves of 16 bytes in some lines
    "fill_mode": tuple(FILLS.values()),
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
    elif name in _VALUES and not (isinstance(rest[0], Immediate) and rest[0].value in _VALUES[name]):
        known = ", ".join(map(str, _VALUES[name]))
        lanes.refuse(f"of {name} the values {known} are implemented, as constants: others are not verified")
    value = lanes.read(rest[0], "b64" if kind is I64 else "b32", lanes=True)
    space = "shared" if lanes.op.has("shared::cta") else "global" if lanes.op.has("global") else "generic"
    found = reach.places(lanes, space, address, MAP_ALIGN, writes=True)
    b = lanes.b

    def lane(number: Any) -> None:
        x = b.extract_element(value, number)
        x = x if x.type == kind else b.trunc(x, kind)
        lanes.v.store(x, b.inttoptr(element_of(found.words, lanes, number), POINTER), 1, offset)

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
        lanes.v,
        good,
        lambda n: move(lanes, "", element_of(to.words, lanes, n), element_of(origin.words, lanes, n), size),
    )


GROUP = "cta_group::1|cta_group::2?"  # the first is as without it
FIELDS = "|".join((*_FIELDS, *_VALUES))
TENSOR_BULK, PREFETCH = ("async", "bulk", "tensor"), ("async", "bulk", "prefetch", "tensor")
ACTIONS = (
    Action("cp", slots(*TENSOR_BULK, DIMS, *TO_CLUSTER, "tile?", DONE, "multicast::cluster?", GROUP, HINT), _box),
    Action(
        "cp",
        slots(*TENSOR_BULK, SPATIAL_DIMS, *TO_CLUSTER, IM2COL[0], DONE, "multicast::cluster?", GROUP, HINT),
        _box,
    ),
    Action("cp", slots(*TENSOR_BULK, "2d", *TO_CLUSTER, FOUR_ROWS[0], DONE, "multicast::cluster?", GROUP, HINT), _box),
    Action("cp", slots(*TENSOR_BULK, "2d", *TO_GLOBAL, FOUR_ROWS[1], "bulk_group", HINT), _box),
    Action("cp", slots(*TENSOR_BULK, DIMS, *TO_GLOBAL, "tile?", "bulk_group", HINT), _box),
    Action("cp", slots(*TENSOR_BULK, SPATIAL_DIMS, *TO_GLOBAL, IM2COL[1], "bulk_group", HINT), _box),
    Action("cp", slots("reduce", *TENSOR_BULK, DIMS, *TO_GLOBAL, ALL_REDUCTIONS, "tile?", "bulk_group", HINT), _box),
    Action(
        "cp",
        slots("reduce", *TENSOR_BULK, SPATIAL_DIMS, *TO_GLOBAL, ALL_REDUCTIONS, IM2COL[1], "bulk_group", HINT),
        _box,
    ),
    Action("cp", slots(*PREFETCH, DIMS, "L2", "global", "tile|tile::gather4?", HINT), nothing),
    Action("cp", slots(*PREFETCH, SPATIAL_DIMS, "L2", "global", IM2COL[0], HINT), nothing),
    Action("tensormap", slots("replace", "tile", FIELDS, "global|shared::cta?", "b1024", "b32|b64"), _replace),
    Action(
        "tensormap",
        slots("cp_fenceproxy", *TO_GLOBAL, "tensormap::generic", "release", "cta|cluster|gpu|sys", "sync", "aligned"),
        _publish,
    ),
)
