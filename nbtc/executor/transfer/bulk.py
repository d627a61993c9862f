"""Rows of bulk copies of lines: cp.async.bulk, cp.reduce.async.bulk, and groups of bulk copies.

(PTX ISA, "cp.async.bulk", "cp.reduce.async.bulk", "cp.async.bulk.commit_group".)  A copy is done when it is issued and
tells its mbarrier at once; bulk groups have nothing to wait for.  Lanes act one after the other.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I1, I8, I32, I64, vector
from nbtc.compiler.loops import for_lanes
from nbtc.executor.control.cluster import peer_field, rank_of
from nbtc.executor.emit import access_kinds as kinds
from nbtc.executor.emit.action import Action
from nbtc.executor.emit.errors import ErrorKind
from nbtc.executor.emit.form import slots
from nbtc.executor.emit.lanes import WARP, Lanes
from nbtc.executor.emit.slots import REDUCE_ELEMENTS
from nbtc.executor.memory import reach
from nbtc.executor.memory.resolve import find_range
from nbtc.executor.text.data import Operand
from nbtc.executor.transfer.mbarrier import update
from nbtc.executor.transfer.tensor_map import ELEMENTS
from nbtc.executor.transfer.tma import REDUCTIONS
from nbtc.executor.transfer.tma_service import ELEMENT_WORDS, MASKED

L32, L64 = vector(I32, WARP), vector(I64, WARP)
POINTER = I8.as_pointer()
UNIT = 16  # bytes: bulk addresses and sizes are multiples


class ServiceWords:
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


def element_of(x: Any, lanes: Lanes, lane: Any) -> Any:
    """One lane's part of a vector."""
    return lanes.b.extract_element(x, lane)


# --- lines of memory ------------------------------------------------------------------------------------------------
def _ends(lanes: Lanes, space: str, operand: Operand, size: Any, writes: bool) -> tuple[Any, Any]:
    """(places of a line's begin, lanes whose whole line may be touched).

    Its first and last 16 bytes are looked up, and then the line as a whole: they may lie in two arrays with something
    else between.  Lines of no bytes touch nothing.
    """
    b, v = lanes.b, lanes.v
    some = lanes.mask(b.icmp_unsigned("!=", size, v.const(L64, 0)))
    first = reach.address(lanes, operand)
    last = b.sub(b.add(first, size), v.const(L64, UNIT))
    begin = reach.places_at(lanes, space, first, UNIT, writes, some)
    end = reach.places_at(lanes, space, last, UNIT, writes, some)
    good = b.and_(begin.good, end.good)
    if lanes.machine.options.checked:
        good = _unbroken(lanes, space, (begin.words, end.words, size, good), writes)
    return begin.words, good


def _unbroken(lanes: Lanes, space: str, line: tuple[Any, Any, Any, Any], writes: bool) -> Any:
    """The lanes whose line (places of its begin and last unit, bytes, lanes) is in one piece of memory; what is wrong
    with the others is recorded."""
    b, v = lanes.b, lanes.v
    begins, ends, sizes, mask = line
    with b.goto_entry_block():
        kept = b.alloca(I32)
    b.store(mask, kept)
    site = ir.Constant(I32, lanes.machine.site(lanes))

    def lane(number: Any) -> None:
        begin, end, size = (element_of(x, lanes, number) for x in (begins, ends, sizes))
        if reach.space_of(space) == "shared":  # of two blocks of a cluster, if the line is long enough
            whole = b.icmp_unsigned("==", b.sub(end, begin), b.sub(size, v.int(UNIT)))
            kind = b.select(whole, ir.Constant(I32, 0), ir.Constant(I32, ErrorKind.SHARED_BOUNDS))
        else:
            where = (lanes.launch, lanes.worker, begin, size, site)
            kind = find_range(lanes.machine.helpers, v, where, ir.Constant(I32, int(writes)))
        with b.if_then(b.icmp_unsigned("!=", kind, ir.Constant(I32, 0)), likely=False):
            lanes.machine.helpers.record(v, lanes.launch, (lanes.block, lanes.warp), (site, kind, number, begin))
            b.store(b.xor(b.load(kept), b.shl(ir.Constant(I32, 1), number)), kept)

    for_lanes(v, mask, lane)
    return b.load(kept)


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
    multicast = lanes.read(rest[1], "b16", lanes=True) if lanes.op.has("multicast::cluster") else None
    masks = lanes.read(rest[-1], "b16", lanes=True) if lanes.op.has("cp_mask") else None

    grouped, look = lanes.op.has("bulk_group"), lanes.machine.instrument

    def lane(number: Any) -> None:
        target, origin, count = (element_of(x, lanes, number) for x in (there, here, many))
        look.operates(lanes, kinds.BULKS if grouped else -1)
        look.line(lanes, number, origin, count, kinds.BULK_READ if grouped else kinds.BULK_SOURCE)
        for_targets(lanes, multicast, number, target, lambda at: one(number, at, origin, count))

    def one(number: Any, at: Any, origin: Any, count: Any) -> None:
        written = kinds.ATOMIC if operation else kinds.BULK_STORE if grouped else kinds.BULK_WRITE
        look.line(lanes, number, at, count, written)
        if masks is not None:
            _move_masked(lanes, at, origin, count, element_of(masks, lanes, number))
        else:
            move(lanes, operation, at, origin, count)

    for_lanes(v, good, lane)
    if rest and lanes.op.has("mbarrier::complete_tx::bytes"):
        complete(lanes, rest[0], many, multicast)


def _move_masked(lanes: Lanes, target: Any, source: Any, count: Any, mask: Any) -> None:
    """The bytes of every 16 whose bit is set."""
    given = ServiceWords(lanes, ELEMENT_WORDS)
    for n, x in enumerate((MASKED, lanes.b.zext(mask, I64), 1, target, source, count)):
        given.set(n, x)
    given.call(lanes, REDUCE_ELEMENTS)


def move(lanes: Lanes, operation: str, target: Any, source: Any, count: Any) -> None:
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
    words = ServiceWords(lanes, ELEMENT_WORDS)
    many = b.udiv(count, v.int(element.size))
    for n, x in enumerate((REDUCTIONS.index(operation), element.number, element.size, target, source, many)):
        words.set(n, x)
    words.call(lanes, REDUCE_ELEMENTS)


def for_targets(lanes: Lanes, multicast: Any, lane: Any, address: Any, do: Any, home: Any = None) -> None:
    """do(address) here, or in the same place of the shared memory of every block of the cluster that a mask names.

    home: the rank of the block that the address lies in; of each pair of blocks with one that is named, that one counts
    whose rank is even, or odd, as this is.
    """
    if multicast is None:
        do(address)
        return
    b, one = lanes.b, ir.Constant(I32, 1)
    base = lanes.get("block", "shared") if home is None else peer_field(lanes, home, "shared")
    offset = b.sub(address, base)
    mask = b.zext(element_of(multicast, lanes, lane), I32)

    def target(rank: Any) -> None:
        if home is not None:
            rank = b.or_(b.and_(rank, b.not_(one)), b.and_(home, one))
        do(b.add(peer_field(lanes, rank, "shared"), offset))

    for_lanes(lanes.v, mask, target)


def complete(lanes: Lanes, barrier: Operand, count: Any, multicast: Any, of_pairs: bool = False) -> None:
    """Tell an mbarrier (of every block that a mask names) that so many bytes have come.

    of_pairs: the mbarrier may be in the other block of the pair (PTX ISA, "cp.async.bulk.tensor", .cta_group::2); with
    a mask, of all pairs those blocks are told that have a place in theirs as the mbarrier's block has.
    """
    b, v = lanes.b, lanes.v
    none = v.const(L64, 0)
    found = reach.places(lanes, "shared::cluster", barrier, 8, writes=True)
    if multicast is None:
        update(lanes, found, none, b.sub(none, count), none)
        return

    addresses = reach.address(lanes, barrier) if of_pairs else None

    def lane(number: Any) -> None:
        at, owed = element_of(found.words, lanes, number), b.sub(none, count)
        home = rank_of(lanes, element_of(addresses, lanes, number)) if of_pairs else None

        def one(place: Any) -> None:
            update(lanes, reach.Places(v.splat(place, WARP), b.shl(ir.Constant(I32, 1), number)), none, owed, none)

        for_targets(lanes, multicast, number, at, one, home)

    for_lanes(v, found.good, lane)


def nothing(lanes: Lanes) -> None:
    """Copies are done; what only warms a cache changes nothing."""


HINT, DONE = "L2::cache_hint?", "mbarrier::complete_tx::bytes"
NARROW = (("inc|dec", "u32"), ("and|or|xor", "b32"))
TO_OTHERS = (("add", "u32|s32|u64"), ("min|max", "u32|s32"), *NARROW)  # reductions in another block's shared memory
TO_MEMORY = (
    ("add", "u32|s32|u64|f32|f64"),
    ("add", "noftz", "f16|bf16"),
    ("min|max", "u32|s32|u64|s64|f16|bf16"),
    ("and|or|xor", "b64"),
    *NARROW,
)
ALL_REDUCTIONS = "|".join(REDUCTIONS)
TO_CLUSTER, TO_GLOBAL = ("shared::cluster|shared::cta", "global"), ("global", "shared::cta")
ACTIONS = (
    Action("cp", slots("async", "bulk", *TO_CLUSTER, DONE, "multicast::cluster?", HINT), _line),
    Action("cp", slots("async", "bulk", "shared::cluster", "shared::cta", DONE), _line),
    Action("cp", slots("async", "bulk", *TO_GLOBAL, "bulk_group", HINT, "cp_mask?"), _line),
    *(
        Action("cp", slots("reduce", "async", "bulk", "shared::cluster", "shared::cta", DONE, *which), _line)
        for which in TO_OTHERS
    ),
    *(Action("cp", slots("reduce", "async", "bulk", *TO_GLOBAL, "bulk_group", HINT, *which), _line)
      for which in TO_MEMORY),
    Action("cp", slots("async", "bulk", "prefetch", "L2", "global", HINT), nothing),
    Action("cp", slots("async", "bulk", "commit_group"), nothing),
    Action("cp", slots("async", "bulk", "wait_group", "read|sync_restrict::proxy::async?"), nothing),
)  # fmt: skip
