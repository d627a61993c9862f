"""From PTX addresses to places in the host's memory, each lane checked: inside of what it may touch, and aligned.

Global, const and kernel parameter addresses are the host's own.  Shared addresses are offsets in the block's shared
memory, local ones offsets in the thread's; generic addresses of both carry a tag in the top byte (`link`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.builder import I1, I8, I32, I64, VectorBuilder, vector
from nbtc.compiler.loops import for_lanes
from nbtc.executor.emit.errors import ErrorKind
from nbtc.executor.emit.fields import cluster_size, load_field
from nbtc.executor.emit.lanes import Lanes, is_vector
from nbtc.executor.emit.state import LOCAL_WINDOW, SHARED_WINDOW
from nbtc.executor.emit.values import const

LANES = 32
POINTER = I8.as_pointer()
ADDRESSES = vector(I64, LANES)
RANGE_WORDS = 3  # of 64 bits, of a range: first byte, bytes, writable
SITE_BYTES = 16  # what a site remembers: first byte and bytes of the range it last was in
WRITES = 1 << 31  # beside the bytes of an access
TAG = 56
RANK_SHIFT = 24  # of an address in another block's shared memory: its rank in the cluster, plus two (`cluster`)
# Even, so that a program for pairs of blocks that clears the lowest bit of an address' rank gets the even block's: no
# document says that it may, but CUTLASS' copies with .cta_group::2 do (Sm100MmaPeerBitMask), and others as well.
FIRST_RANK = 2
SPACES = ("global", "shared", "local", "generic")


class Access(NamedTuple):
    """One kind of access: `bytes` of each lane (all elements), aligned to as many."""

    space: str
    bytes: int
    write: bool


def rank_bits(lanes: Lanes) -> Any:
    """The block's rank as shared addresses have it that other blocks can use; none where it has no cluster."""
    b = lanes.b
    tag = b.add(lanes.get("block", "cluster_rank"), ir.Constant(I32, FIRST_RANK))
    alone = b.icmp_unsigned("==", cluster_size(lanes.v, lanes.launch), ir.Constant(I32, 1))
    return b.select(alone, ir.Constant(I64, 0), b.shl(b.zext(tag, I64), ir.Constant(I64, RANK_SHIFT)))


def resolve(lanes: Lanes, access: Access, addresses: Any, site: int) -> tuple[Any, Any]:
    """Host addresses (<32 x i64>*, in memory of the warp) and the i32 mask of the lanes that may go there.

    The other active lanes' error has been recorded, and the launch is about to stop.
    """
    out = lanes.frame.code.lane_words()
    where = ir.Constant(I32, site), lanes.block, lanes.warp
    return out, resolved(lanes.v, lanes.machine.helpers, access, (lanes.spread(addresses), lanes.active), where, out)


def resolved(v: VectorBuilder, helpers: Any, access: Access, given: Any, where: Any, out: Any) -> Any:
    """As `resolve`, of (addresses, mask) at (site, block, warp): the mask; host addresses are put into `out`."""
    resolver = helpers.function(
        f"resolve_{access.space}",
        I32,
        (ADDRESSES, I32, I32, I32, POINTER, POINTER, ADDRESSES.as_pointer()),
        lambda v, args: _resolver(v, access.space, helpers, args),
    )
    addresses, mask = given
    what = ir.Constant(I32, access.bytes | (WRITES if access.write else 0))
    return v.b.call(resolver, [addresses, mask, what, *where, out])


def _resolver(v: VectorBuilder, space: str, helpers: Any, args: Any) -> None:
    """The body of a resolver: all lanes at once where that can be told, else lane by lane."""
    b = v.b
    addresses, mask, what, site, block, warp, out = args
    size, writes = b.and_(what, ir.Constant(I32, WRITES - 1)), b.and_(what, ir.Constant(I32, WRITES))
    checked = helpers.checked
    if space != "local":
        places, fine = at_once(v, checked, space, b.zext(size, I64), (addresses, mask, site, block, warp))
        with b.if_then(fine, likely=True):
            b.store(places, out)
            b.ret(mask)
    good = b.alloca(I32)
    b.store(mask, good)
    words = b.bitcast(out, I64.as_pointer())
    kept = b.alloca(ADDRESSES)
    b.store(addresses, kept)
    given = b.bitcast(kept, I64.as_pointer())
    where = _Where(v, helpers, writes, size, site, block, warp)

    def lane(number: Any) -> None:
        address = b.load(b.gep(given, [number]))
        found, kind = where.find(space, address, number)
        b.store(found, b.gep(words, [number]))
        if checked:
            low = b.and_(address, b.sub(b.zext(size, I64), v.int(1)))
            crooked = b.icmp_unsigned("!=", low, v.int(0))
            kind = b.select(crooked, ir.Constant(I32, ErrorKind.MISALIGNED), kind)
            with b.if_then(b.icmp_unsigned("!=", kind, ir.Constant(I32, 0)), likely=False):
                helpers.record(v, where.launch, (block, warp), (site, kind, number, address))
                b.store(b.xor(b.load(good), b.shl(ir.Constant(I32, 1), number)), good)

    for_lanes(v, mask, lane)
    b.ret(b.load(good))


def at_once(v: VectorBuilder, checked: bool, space: str, size: Any, args: Any) -> tuple[Any, Any]:
    """(host addresses, whether all lanes may go there) of shared, global or generic ones, for accesses of `size` bytes.

    args: (addresses, mask, site, block, warp).  Where the answer is no, each lane has to be looked at.
    """
    b = v.b
    addresses, mask, site, block, _warp = args
    if space == "shared":
        places, fine = _shared_places(v, checked, size, addresses, block)
    else:
        places, fine = _host_places(v, checked, size, (addresses, site, block))
    all_fine = b.or_(b.bitcast(fine, I32), b.not_(mask))
    return places, b.icmp_unsigned("==", all_fine, ir.Constant(I32, -1))


def lies_in(v: VectorBuilder, extent: Any, offset: Any, size: Any) -> Any:
    """Whether [offset, offset + size) lies in the first `extent` bytes; offset: a value, or one for each lane.

    What an access may touch at most is compared, not its end: a sum of offset and size could overflow.
    """
    last = v.b.sub(extent, size)
    enough = v.b.icmp_signed(">=", last, ir.Constant(last.type, 0))
    if is_vector(offset):
        last, enough = v.splat(last, LANES), v.splat(enough, LANES)
    return v.b.and_(v.b.icmp_unsigned("<=", offset, last), enough)


def holds(v: VectorBuilder, extent: Any, offset: Any, size: Any) -> Any:
    """As `lies_in`, of a size that is not 0 and an i64 offset: two operations less, where each access is looked at."""
    above = v.call("llvm.usub.sat.i64", I64, extent, v.b.sub(size, v.int(1)))  # 0 where nothing of the size fits
    return v.b.icmp_unsigned("<", offset, above)


def _aligned(v: VectorBuilder, x: Any, size: Any) -> Any:
    low = v.b.and_(x, v.splat(v.b.sub(size, ir.Constant(size.type, 1)), LANES))
    return v.b.icmp_unsigned("==", low, const(v, x, 0))


def _shared_places(v: VectorBuilder, checked: bool, size: Any, addresses: Any, block: Any) -> tuple[Any, Any]:
    """Host addresses of shared ones, and which lie inside and are aligned."""
    b = v.b
    offsets = b.trunc(addresses, vector(I32, LANES))
    base = v.splat(load_field(v, "block", block, "shared"), LANES)
    places = b.add(base, b.zext(offsets, ADDRESSES))
    if not checked:  # other blocks' are found one by one
        return places, b.icmp_unsigned("<", offsets, const(v, offsets, 1 << RANK_SHIFT))
    launch = b.inttoptr(load_field(v, "block", block, "launch"), POINTER)
    small = b.trunc(size, I32)
    inside = lies_in(v, load_field(v, "launch", launch, "shared_bytes"), offsets, small)
    return places, b.and_(inside, _aligned(v, offsets, small))


def _host_places(v: VectorBuilder, checked: bool, size: Any, args: Any) -> tuple[Any, Any]:
    """Which addresses lie in the range where this place was last (no tagged one does), and are aligned."""
    b = v.b
    addresses, site, block = args
    if not checked:
        return addresses, b.icmp_unsigned("<", addresses, ir.Constant(ADDRESSES, [1 << TAG] * LANES))
    first, length = _last_range(v, site, block)
    offsets = b.sub(addresses, v.splat(first, LANES))
    return addresses, b.and_(lies_in(v, length, offsets, size), _aligned(v, addresses, size))


def fits(v: VectorBuilder, checked: bool, first: Any, total: Any, args: Any) -> Any:
    """Whether [first, first + total), addresses of the host, lies in the range where this place was last."""
    b = v.b
    if not checked:
        return b.icmp_unsigned("<", first, v.int(1 << TAG))
    _addresses, _mask, site, block, _warp = args
    begin, length = _last_range(v, site, block)
    return lies_in(v, length, b.sub(first, begin), total)


def fits_shared(v: VectorBuilder, checked: bool, offset: Any, total: Any, block: Any) -> Any:
    """Whether [offset, offset + total) lies in the block's shared memory; unchecked, whether it is not another's."""
    if not checked:
        return v.b.icmp_unsigned("<", offset, v.int(1 << RANK_SHIFT))
    launch = v.b.inttoptr(load_field(v, "block", block, "launch"), POINTER)
    limit = v.b.zext(load_field(v, "launch", launch, "shared_bytes"), I64)
    return lies_in(v, limit, offset, total)


def _last_range(v: VectorBuilder, site: Any, block: Any) -> tuple[Any, Any]:
    """First byte and bytes of the range that a place was last in."""
    worker = v.b.inttoptr(load_field(v, "block", block, "worker"), POINTER)
    sites = v.b.inttoptr(load_field(v, "worker", worker, "sites"), POINTER)
    memory = v.at(sites, v.b.mul(v.b.zext(site, I64), v.int(SITE_BYTES)))
    return v.load(memory, I64, 8), v.load(memory, I64, 8, 8)


class _Where:
    """Emits the search for one address in each space."""

    def __init__(self, v: VectorBuilder, helpers: Any, write: Any, size: Any, site: Any, block: Any, warp: Any) -> None:
        self.v, self.b, self.helpers, self.checked, self.write = v, v.b, helpers, helpers.checked, write
        self.size, self.site, self.warp, self.block = size, site, warp, block
        self.launch = v.b.inttoptr(load_field(v, "block", block, "launch"), POINTER)
        self.worker = v.b.inttoptr(load_field(v, "block", block, "worker"), POINTER)
        self.shared = load_field(v, "block", block, "shared")
        self.local = load_field(v, "block", block, "local")
        self.fine = ir.Constant(I32, 0)

    def find(self, space: str, address: Any, lane: Any) -> tuple[Any, Any]:
        """Host address and error kind (0: fine)."""
        if space != "generic":
            found, error = getattr(self, f"_{space}")(address, lane)
            return found, error
        v, b = self.v, self.b
        with b.goto_entry_block():
            result, error = self._buffer(I64), self._buffer(I32)
        tag = b.lshr(address, v.int(TAG))
        inner = b.and_(address, v.int((1 << TAG) - 1))
        ways = (("global", address, None), ("shared", inner, SHARED_WINDOW), ("local", inner, LOCAL_WINDOW))
        end = b.append_basic_block("found")
        for name, value, window in reversed(ways):
            if window is None:
                self._keep(self._global(value, lane), result, error)
                b.branch(end)
                continue
            here, other = b.append_basic_block(name), b.append_basic_block("other")
            b.cbranch(b.icmp_unsigned("==", tag, v.int(window >> TAG)), here, other)
            b.position_at_end(here)
            self._keep(getattr(self, f"_{name}")(value, lane), result, error)
            b.branch(end)
            b.position_at_end(other)
        b.position_at_end(end)
        return b.load(result), b.load(error)

    def _buffer(self, kind: ir.Type) -> Any:
        """Stack memory of the function, taken once and not for every lane."""
        with self.b.goto_entry_block():
            return self.b.alloca(kind)

    def _keep(self, found: tuple[Any, Any], result: Any, error: Any) -> None:
        self.b.store(found[0], result)
        self.b.store(found[1], error)

    def _inside(self, offset: Any, limit: Any, kind: ErrorKind) -> Any:
        """The error of an offset outside of a space of `limit` bytes."""
        b = self.b
        if not self.checked:
            return self.fine
        fits = lies_in(self.v, b.zext(limit, I64), offset, b.zext(self.size, I64))
        return b.select(fits, self.fine, ir.Constant(I32, kind))

    def _shared(self, address: Any, lane: Any) -> tuple[Any, Any]:
        b, v = self.b, self.v
        offset = b.and_(address, v.int((1 << RANK_SHIFT) - 1))
        limit = load_field(v, "launch", self.launch, "shared_bytes")
        rank = b.and_(b.lshr(address, v.int(RANK_SHIFT)), v.int(0xFF))  # 0: this block
        result, kind = self._buffer(I64), self._buffer(I32)
        b.store(self.shared, result)
        b.store(self._inside(offset, limit, ErrorKind.SHARED_BOUNDS), kind)
        with b.if_then(b.icmp_unsigned("!=", rank, v.int(0)), likely=False):
            rank = b.sub(rank, v.int(FIRST_RANK))
            fits = b.icmp_unsigned("<", rank, b.zext(cluster_size(v, self.launch), I64))
            if not self.helpers.suspends:  # blocks run one by one: no other is there
                fits = ir.Constant(I1, 0)
            with b.if_else(fits) as (then, otherwise):
                with then:
                    table = b.inttoptr(load_field(v, "block", self.block, "peers"), POINTER)
                    peer = b.inttoptr(v.load(v.at(table, b.shl(rank, v.int(3))), I64, 8), POINTER)
                    b.store(load_field(v, "block", peer, "shared"), result)
                with otherwise:
                    b.store(ir.Constant(I32, ErrorKind.SHARED_BOUNDS), kind)
        return b.add(b.load(result), offset), b.load(kind)

    def _local(self, address: Any, lane: Any) -> tuple[Any, Any]:
        b, v = self.b, self.v
        limit = load_field(v, "launch", self.launch, "local_bytes")
        thread = b.add(b.mul(load_field(v, "warp", self.warp, "index"), ir.Constant(I32, LANES)), lane)
        start = b.add(self.local, b.mul(b.zext(thread, I64), b.zext(limit, I64)))
        return b.add(start, address), self._inside(address, limit, ErrorKind.LOCAL_BOUNDS)

    def _global(self, address: Any, lane: Any) -> tuple[Any, Any]:
        if not self.checked:
            return address, self.fine
        where = (self.launch, self.worker, address, self.b.zext(self.size, I64), self.site)
        return address, find_range(self.helpers, self.v, where, self.write)


def find_range(helpers: Any, v: VectorBuilder, where: tuple[Any, ...], write: Any) -> Any:
    """The error kind (0: none) of an access that must lie in one range: (launch, worker, address, bytes, site).

    write: an i32, 0 for a load.
    """
    search = helpers.function("find_range", I32, (POINTER, POINTER, I64, I64, I32, I32), _find_range)
    return v.b.call(search, [*where, write])


def _find_range(v: VectorBuilder, args: Any) -> None:
    """Which range holds an address: its site remembers it.  The answer is an error kind, 0 when it is found."""
    b = v.b
    launch, worker, address, size, site, write = args
    table = b.inttoptr(load_field(v, "launch", launch, "ranges"), POINTER)
    count = load_field(v, "launch", launch, "range_count")
    entry = b.block
    head, test, hit, follow, miss = (b.append_basic_block(n) for n in ("head", "test", "hit", "follow", "miss"))
    b.branch(head)
    b.position_at_end(head)
    i = b.phi(I64)
    i.add_incoming(v.int(0), entry)
    b.cbranch(b.icmp_unsigned("<", i, count), test, miss)
    b.position_at_end(test)
    row = v.at(table, b.mul(i, v.int(8 * RANGE_WORDS)))
    first, length, writable = (v.load(row, I64, 8, 8 * n) for n in range(3))
    b.cbranch(lies_in(v, length, b.sub(address, first), size), hit, follow)
    b.position_at_end(follow)
    i.add_incoming(b.add(i, v.int(1)), follow)
    b.branch(head)
    b.position_at_end(hit)
    forbidden = b.and_(b.icmp_unsigned("==", writable, v.int(0)), b.icmp_unsigned("!=", write, ir.Constant(I32, 0)))
    with b.if_then(forbidden, likely=False):
        b.ret(ir.Constant(I32, ErrorKind.READ_ONLY))
    sites = b.inttoptr(load_field(v, "worker", worker, "sites"), POINTER)
    memory = v.at(sites, b.mul(b.zext(site, I64), v.int(SITE_BYTES)))
    v.store(first, memory, 8)
    v.store(length, memory, 8, 8)
    b.ret(ir.Constant(I32, 0))
    b.position_at_end(miss)
    kind = b.select(
        b.icmp_unsigned("!=", write, ir.Constant(I32, 0)),
        ir.Constant(I32, ErrorKind.STORE_BOUNDS),
        ir.Constant(I32, ErrorKind.LOAD_BOUNDS),
    )
    b.ret(kind)


def site_range(lanes: Lanes, site: int) -> tuple[Any, Any]:
    """First byte and bytes of the range that a site was last in."""
    sites = lanes.pointer("worker", "sites")
    first, length = (lanes.v.load(sites, I64, 8, SITE_BYTES * site + 8 * n) for n in range(2))
    return first, length
