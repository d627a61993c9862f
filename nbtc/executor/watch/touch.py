"""One access of a warp to memory: every lane's bytes are compared with what the cells remember."""

from __future__ import annotations

from nbtc.compiler.jit import jit
from nbtc.executor.state import LAUNCH, LOCAL_WINDOW, SHARED_WINDOW
from nbtc.executor.watch.order import begin_operation, found, knows, learn, learn_all, new_segment, record_of, segment, state_of, tick
from nbtc.executor.watch.words import (
    ACQUIRES,
    ACTOR,
    ADDRESS,
    ASYNC_PROXY,
    ATOMIC,
    AT_LAUNCH,
    AT_PEERS,
    AT_SHARED,
    AT_SHARED_BYTES,
    AT_WATCH,
    BULK_READ,
    BULK_WRITE,
    CELL,
    CELL_BYTES,
    CELLS,
    COPIES,
    COPY,
    DONE,
    DONE_READ,
    FENCED,
    FINE,
    FREED,
    FREED_MEMORY,
    GENERIC,
    GENERIC_WRITES,
    GROUPED,
    KIND,
    KIND_AT,
    KNOWN,
    KNOWN_CLUSTER,
    KNOWN_GRID,
    LANE,
    LANE_AT,
    MARKS,
    MBARRIER,
    MBARRIER_REUSED,
    NO_PROXY_FENCE,
    NOT_WAITED,
    NOW,
    OTHER,
    PROXY_FENCE,
    PROXY_KNOWN,
    RACE,
    REGION,
    REGION_COUNT,
    REGIONS,
    RELEASES,
    SEEN,
    SEGMENT_AT,
    SHARED,
    SHARED_AT,
    SITE_AT,
    SIZE,
    STRONG,
    STRONG_READ,
    UNWRITTEN,
    WARP_BYTES,
    WARPS,
    WORD,
    WRITE,
    WRITES,
    WRITTEN,
    half,
    octet,
    put,
    word,
)

LANES = 32
TAG, OFFSET = 56, (1 << 56) - 1
SHARED_TAG, LOCAL_TAG = SHARED_WINDOW >> TAG, LOCAL_WINDOW >> TAG
RANK, WITHIN = 24, (1 << 24) - 1  # of a shared address: the block it is in, plus one, and its place there
_CLUSTER_X = LAUNCH.offset("cluster_x")
_MASK = CELL_BYTES * 4 - 1


@jit
def region_cell(state, address):
    """The cell of an address in global memory, 0 where there is none."""
    row = word(state + REGIONS)
    for _ in range(word(state + REGION_COUNT)):
        at = address - word(row)
        if 0 <= at < word(row + WORD):
            return word(row + 2 * WORD) + (at >> 2) * CELL
        row += REGION
    return 0


@jit
def shared_place(block, address, size):
    """(cell, place of the host) of an address in the shared memory of a block of the cluster."""
    offset, rank = address & WITHIN, (address >> RANK) & 0xFF
    if rank:
        block = word(word(block + AT_PEERS) + WORD * (rank - 1))
    if offset + size > half(word(block + AT_LAUNCH) + AT_SHARED_BYTES):
        return 0, 0
    return word(block + AT_WATCH) + CELLS + (offset >> 2) * CELL, word(block + AT_SHARED) + offset


@jit
def host_cell(block, address):
    """The cell of a place of the host: in shared memory of the cluster, or global."""
    launch = word(block + AT_LAUNCH)
    size, count = half(launch + AT_SHARED_BYTES), 1
    for axis in range(3):
        count *= half(launch + _CLUSTER_X + 4 * axis)
    peers = word(block + AT_PEERS)
    for rank in range(count):
        peer = word(peers + WORD * rank)
        at = address - word(peer + AT_SHARED)
        if 0 <= at < size:
            return word(peer + AT_WATCH) + CELLS + (at >> 2) * CELL
    return region_cell(state_of(block), address)


@jit
def _proxied(me, row, then):
    """Whether a proxy fence stands between a plain write and this access through the asynchronous proxy."""
    base, record = me[1], me[2]
    if then <= word(record + PROXY_KNOWN):
        return True
    actor = word(row)
    if actor >> 8 != word(record + ACTOR) >> 8:
        return True
    return word(base + WARPS + WARP_BYTES * (actor & 0xFF) + PROXY_FENCE) > then


@jit
def hazard(me, slot, mask):
    """What is wrong between an earlier access and this one.  me: state, block's words, warp's words, kind, lane, time
    up to which plain accesses are known."""
    state, _, record, kind, lane, _ = me
    other, then = (slot >> KIND_AT) & 15, slot >> SEGMENT_AT
    if (STRONG >> other) & (STRONG >> kind) & 1:
        return FINE
    row = segment(state, then)
    if row == 0:
        return FINE
    mine = word(row) == word(record + ACTOR)
    if (GROUPED >> other) & 1:
        done = word(row + (DONE_READ if other == BULK_READ else DONE))
        if done == 0:
            return NOT_WAITED
        return FINE if mine or knows(record, row, done) else RACE
    if mine and other != BULK_WRITE:
        if then == word(record + NOW):
            if (slot >> SHARED_AT) & 1:
                if not (WRITES >> other) & 1 and slot & mask & _MASK == _MASK:
                    return RACE
            elif (slot >> LANE_AT) & 31 != lane:
                return RACE
    elif not knows(record, row, then):
        return RACE
    if (ASYNC_PROXY >> kind) & 1 and not (WRITES >> kind) & 1 and (GENERIC_WRITES >> other) & 1:
        return FINE if _proxied(me, row, then) else NO_PROXY_FENCE
    return FINE


@jit(inline=True)
def _known(me, slot):
    """Whether an access is surely known, at a glance."""
    return slot >> SEGMENT_AT <= me[5] and not (GROUPED >> ((slot >> KIND_AT) & 15)) & 1


@jit
def _look(me, slot, mask):
    """As `hazard`, for the bytes that both accesses have in common."""
    if not slot & mask & _MASK:
        return FINE
    if _known(me, slot) and not (ASYNC_PROXY >> me[3]) & 1:
        return FINE
    return hazard(me, slot, mask)


@jit(inline=True)
def _joined(slot, own):
    """An access with another of the same warp in the same segment."""
    found = slot | (own & _MASK)
    return found if (slot ^ own) & (31 << LANE_AT) == 0 else found | 1 << SHARED_AT


@jit(inline=True)
def _alike(slot, own):
    return slot >> SEGMENT_AT == own >> SEGMENT_AT and (slot ^ own) & (15 << KIND_AT) == 0


@jit
def _note_read(me, cell, own):
    """Remember a read: in the place of one that it covers, else of the second."""
    for at in range(cell + WORD, cell + MARKS, WORD):
        slot = word(at)
        if slot and _alike(slot, own):
            joined = _joined(slot, own)
            if joined != slot:
                put(at, joined)
            return
        if slot == 0 or _known(me, slot):
            put(at, own)
            return
    put(cell + 2 * WORD, own)


@jit
def _note_write(cell, own, mask):
    """Remember a write, in the place of all that it covers."""
    slot = word(cell)
    put(cell, _joined(slot, own) if slot and _alike(slot, own) else own)
    for at in range(cell + WORD, cell + MARKS, WORD):
        slot = word(at)
        if slot:
            left = slot & ~mask
            put(at, left if left & _MASK else 0)
    put(cell + MARKS, word(cell + MARKS) | mask)


@jit
def look_at(me, cell, mask, own, shared):
    """One cell: (hazard, the earlier access)."""
    kind = me[3]
    marks = word(cell + MARKS)
    if marks & (MBARRIER | FREED):
        return (MBARRIER_REUSED if marks & MBARRIER else FREED_MEMORY), word(cell)
    slot = word(cell)
    wrong = _look(me, slot, mask)
    if wrong:
        return wrong, slot
    if (WRITES >> kind) & 1:
        for at in range(cell + WORD, cell + MARKS, WORD):
            slot = word(at)
            wrong = _look(me, slot, mask) if slot else FINE
            if wrong:
                return wrong, slot
        if kind != ATOMIC or not shared or marks & mask == mask:
            _note_write(cell, own, mask)
            return FINE, 0
    if shared and marks & mask != mask:
        return UNWRITTEN, 0
    _note_read(me, cell, own)
    return FINE, 0


@jit
def same_bytes(place, values, lane, at, size, count):
    """Whether memory already holds what a lane is about to write: `size` bytes from byte `at` of its values.

    values: the lanes' elements of `count` bytes, [element][lane].
    """
    if values == 0:
        return False
    for n in range(at, at + size):
        if octet(place + n - at) != octet(values + (n // count * LANES + lane) * count + n % count):
            return False
    return True


@jit
def _synchronise(state, record, cell, kind, order):
    """What an atomic or strong access tells others, and learns from them."""
    marks = word(cell + MARKS)
    time = marks >> SEGMENT_AT
    if kind == ATOMIC or kind == STRONG_READ:
        learn(record, SEEN, time)
        if order & ACQUIRES:
            learn_all(record, word(record + SEEN))
    if kind != STRONG_READ:
        mine = tick(state) if order & RELEASES else word(record + FENCED)
        if mine > time:
            put(cell + MARKS, (marks & ((1 << SEGMENT_AT) - 1)) | mine << SEGMENT_AT)


@jit
def place_of_lane(block, state, space, address, size):
    """(cell, place of the host, whether it is shared) of a lane's address."""
    if space == GENERIC:
        tag = address >> TAG
        if tag == LOCAL_TAG:
            return 0, 0, False
        space, address = (SHARED, address & OFFSET) if tag == SHARED_TAG else (0, address)
    if space == SHARED:
        cell, place = shared_place(block, address, size)
        return cell, place, True
    return region_cell(state, address), address, False


@jit(inline=True)
def horizon(record, space, alone):
    """The time up to which plain accesses to a space are surely known."""
    if space == SHARED:
        return word(record + (KNOWN if alone else KNOWN_CLUSTER))
    return word(record + KNOWN_GRID)


@jit
def report(block, warp, lane, site, what, kind, address, size, slot):
    """Record a hazard with both accesses."""
    state = found(block, warp, lane, site, what)
    if state:
        put(state + LANE, lane)
        put(state + KIND, kind)
        put(state + ADDRESS, address)
        put(state + SIZE, size)
        put(state + OTHER, slot)


@jit
def touch(block, warp, addresses, mask, what, size, site, values):
    """An access of `size` bytes a lane.

    addresses: of 64 bits, in memory.  mask: of lanes.  what: kind, order << 8, space << 16, bytes of an element << 24.
    values: what is written, [element][lane], or 0.
    """
    state, record, base = state_of(block), record_of(block, warp), word(block + AT_WATCH)
    kind, order, space, element = what & 0xFF, (what >> 8) & 0xFF, (what >> 16) & 0xFF, what >> 24
    alone = word(word(block + AT_PEERS)) == block and _alone(block)
    known = horizon(record, space, alone)
    stamp = begin_operation(block, warp, COPIES) if kind == COPY else word(record + NOW)
    fixed = stamp << SEGMENT_AT | (site & 0xFFFF) << SITE_AT | kind << KIND_AT
    before, again = -1, 0
    for lane in range(LANES):
        if not (mask >> lane) & 1:
            continue
        address = word(addresses + WORD * lane)
        again = again + 1 if address == before else 0
        before = address
        if again > 1 and not (WRITES >> kind) & 1:
            continue
        cell, place, shared = place_of_lane(block, state, space, address, size)
        if cell == 0:
            continue
        me = (state, base, record, kind, lane, known)
        at = -(address & 3)
        while at < size:
            low, high = max(at, 0), min(at + CELL_BYTES, size)
            bytes_here = ((1 << (high - low)) - 1) << (low - at)
            wrong, slot = look_at(me, cell, bytes_here, fixed | lane << LANE_AT | bytes_here, shared)
            if wrong == RACE and kind == WRITE and (slot >> KIND_AT) & 15 == WRITE:
                if same_bytes(place + low, values, lane, low, high - low, element):
                    wrong = FINE
            if wrong:
                report(block, warp, lane, site, wrong, kind, address + low, size, slot)
                return
            if (STRONG >> kind) & 1:
                _synchronise(state, record, cell, kind, order)
            at += CELL_BYTES
            cell += CELL
    if order & RELEASES:
        put(record + NOW, new_segment(state, record))


@jit
def _alone(block):
    launch = word(block + AT_LAUNCH)
    return half(launch + _CLUSTER_X) * half(launch + _CLUSTER_X + 4) * half(launch + _CLUSTER_X + 8) == 1


@jit
def touch_line(block, warp, lane, address, size, kind, site, stamp):
    """An access of the bulk copies: `size` bytes from a place of the host, in a segment of its own."""
    state, record, base = state_of(block), record_of(block, warp), word(block + AT_WATCH)
    cell = host_cell(block, address)
    if cell == 0:
        return
    shared = region_cell(state, address) == 0
    known = horizon(record, SHARED if shared else 0, _alone(block))
    me = (state, base, record, kind, lane, known)
    own = stamp << SEGMENT_AT | (site & 0xFFFF) << SITE_AT | kind << KIND_AT | lane << LANE_AT
    for n in range(0, size, CELL_BYTES):
        mask = WRITTEN >> max(0, n + CELL_BYTES - size)
        wrong, slot = look_at(me, cell, mask, own | mask, shared)
        if wrong:
            report(block, warp, lane, site, wrong, kind, address + n, size, slot)
            return
        cell += CELL
