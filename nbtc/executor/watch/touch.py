"""One access of a warp to memory: every lane's bytes are compared with what the cells remember."""

from __future__ import annotations

from nbtc.compiler.jit import jit
from nbtc.executor.state import LAUNCH, LOCAL_WINDOW, SHARED_WINDOW
from nbtc.executor.watch import words as w
from nbtc.executor.watch.order import (
    begin_operation,
    found,
    idle,
    knows,
    learn,
    learn_all,
    new_segment,
    record_of,
    segment,
    state_of,
    tick,
)
from nbtc.executor.watch.words import half, octet, put, word

LANES = 32
TAG, OFFSET = 56, (1 << 56) - 1
SHARED_TAG, LOCAL_TAG = SHARED_WINDOW >> TAG, LOCAL_WINDOW >> TAG
RANK, WITHIN = 24, (1 << 24) - 1  # of a shared address: the block it is in, plus one, and its place there
_CLUSTER_X = LAUNCH.offset("cluster_x")
_MASK = w.CELL_BYTES * 4 - 1


@jit
def region_cell(state, address):
    """The cell of an address in global memory, 0 where there is none."""
    row = word(state + w.REGIONS)
    for _ in range(word(state + w.REGION_COUNT)):
        at = address - word(row)
        if 0 <= at < word(row + w.WORD):
            return word(row + 2 * w.WORD) + (at >> 2) * w.CELL
        row += w.REGION
    return 0


@jit
def shared_place(block, address, size):
    """(cell, place of the host) of an address in the shared memory of a block of the cluster."""
    offset, rank = address & WITHIN, (address >> RANK) & 0xFF
    if rank:
        block = word(word(block + w.AT_PEERS) + w.WORD * (rank - 1))
    if offset + size > half(word(block + w.AT_LAUNCH) + w.AT_SHARED_BYTES):
        return 0, 0
    return word(block + w.AT_WATCH) + w.CELLS + (offset >> 2) * w.CELL, word(block + w.AT_SHARED) + offset


@jit
def host_cell(block, address):
    """The cell of a place of the host: in shared memory of the cluster, or global."""
    launch = word(block + w.AT_LAUNCH)
    size, count = half(launch + w.AT_SHARED_BYTES), 1
    for axis in range(3):
        count *= half(launch + _CLUSTER_X + 4 * axis)
    peers = word(block + w.AT_PEERS)
    for rank in range(count):
        peer = word(peers + w.WORD * rank)
        at = address - word(peer + w.AT_SHARED)
        if 0 <= at < size:
            return word(peer + w.AT_WATCH) + w.CELLS + (at >> 2) * w.CELL
    return region_cell(state_of(block), address)


@jit
def _proxied(me, row, then):
    """Whether a proxy fence stands between a plain write and this access through the asynchronous proxy."""
    base, record = me[1], me[2]
    if then <= word(record + w.PROXY_KNOWN):
        return True
    actor = word(row)
    if actor >> 8 != word(record + w.ACTOR) >> 8:
        return True
    return word(base + w.WARPS + w.WARP_BYTES * (actor & 0xFF) + w.PROXY_FENCE) > then


@jit
def hazard(me, slot, mask):
    """What is wrong between an earlier access and this one.  me: state, block's words, warp's words, kind, lane, time
    up to which plain accesses are known."""
    state, _, record, kind, lane, _ = me
    other, then = (slot >> w.KIND_AT) & 15, slot >> w.SEGMENT_AT
    if (w.STRONG >> other) & (w.STRONG >> kind) & 1:
        return w.FINE
    row = segment(state, then)
    if row == 0:
        return w.FINE
    mine = word(row) == word(record + w.ACTOR)
    if (w.GROUPED >> other) & 1:
        done = word(row + (w.DONE_READ if other == w.BULK_READ else w.DONE))
        if done == 0:
            return w.NOT_WAITED
        alone = mine and other != w.BULK_WRITE
        return w.FINE if alone or knows(record, row, done) else w.RACE
    if mine:
        if then == word(record + w.NOW):
            if (slot >> w.SHARED_AT) & 1:
                if not (w.WRITES >> other) & 1 and slot & mask & _MASK == _MASK:
                    return w.RACE
            elif (slot >> w.LANE_AT) & 31 != lane:
                return w.RACE
    elif not knows(record, row, then):
        return w.RACE
    if (w.ASYNC_PROXY >> kind) & 1 and not (w.WRITES >> kind) & 1 and (w.GENERIC_WRITES >> other) & 1:
        return w.FINE if _proxied(me, row, then) else w.NO_PROXY_FENCE
    return w.FINE


@jit(inline=True)
def _known(me, slot):
    """Whether an access is surely known, at a glance."""
    return slot >> w.SEGMENT_AT <= me[5] and not (w.GROUPED >> ((slot >> w.KIND_AT) & 15)) & 1


@jit
def _look(me, slot, mask):
    """As `hazard`, for the bytes that both accesses have in common."""
    if not slot & mask & _MASK:
        return w.FINE
    if _known(me, slot) and not (w.ASYNC_PROXY >> me[3]) & 1:
        return w.FINE
    return hazard(me, slot, mask)


@jit(inline=True)
def _joined(slot, own):
    """An access with another of the same warp in the same segment."""
    found = slot | (own & _MASK)
    return found if (slot ^ own) & (31 << w.LANE_AT) == 0 else found | 1 << w.SHARED_AT


@jit(inline=True)
def _alike(slot, own):
    return slot >> w.SEGMENT_AT == own >> w.SEGMENT_AT and (slot ^ own) & (15 << w.KIND_AT) == 0


@jit
def _note_read(me, cell, own):
    """Remember a read: in the place of one that it covers, else of the second."""
    for at in range(cell + w.WORD, cell + w.MARKS, w.WORD):
        slot = word(at)
        if slot and _alike(slot, own):
            joined = _joined(slot, own)
            if joined != slot:
                put(at, joined)
            return
        if slot == 0 or _known(me, slot):
            put(at, own)
            return
    put(cell + 2 * w.WORD, own)


@jit
def _note_write(cell, own, mask):
    """Remember a write, in the place of all that it covers."""
    slot = word(cell)
    put(cell, _joined(slot, own) if slot and _alike(slot, own) else own)
    for at in range(cell + w.WORD, cell + w.MARKS, w.WORD):
        slot = word(at)
        if slot:
            left = slot & ~mask
            put(at, left if left & _MASK else 0)
    put(cell + w.MARKS, word(cell + w.MARKS) | mask)


@jit
def look_at(me, cell, mask, own, shared, noted):
    """One cell: (hazard, the earlier access).  noted: whether this access is remembered."""
    kind = me[3]
    marks = word(cell + w.MARKS)
    if marks & (w.MBARRIER | w.FREED):
        return (w.MBARRIER_REUSED if marks & w.MBARRIER else w.FREED_MEMORY), word(cell)
    slot = word(cell)
    wrong = _look(me, slot, mask)
    if wrong:
        return wrong, slot
    if (w.WRITES >> kind) & 1:
        for at in range(cell + w.WORD, cell + w.MARKS, w.WORD):
            slot = word(at)
            wrong = _look(me, slot, mask) if slot else w.FINE
            if wrong:
                return wrong, slot
        if kind != w.ATOMIC or not shared or marks & mask == mask:
            _note_write(cell, own, mask)
            return w.FINE, 0
    if shared and marks & mask != mask:
        return w.UNWRITTEN, 0
    if noted:
        _note_read(me, cell, own)
    return w.FINE, 0


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
    marks = word(cell + w.MARKS)
    time = marks >> w.SEGMENT_AT
    if kind == w.ATOMIC or kind == w.STRONG_READ:
        learn(record, w.SEEN, time)
        if order & w.ACQUIRES:
            learn_all(record, word(record + w.SEEN))
    if kind != w.STRONG_READ:
        mine = tick(state) if order & w.RELEASES else word(record + w.FENCED)
        if mine > time:
            put(cell + w.MARKS, (marks & ((1 << w.SEGMENT_AT) - 1)) | mine << w.SEGMENT_AT)


@jit
def place_of_lane(block, state, space, address, size):
    """(cell, place of the host, whether it is shared) of a lane's address."""
    if space == w.GENERIC:
        tag = address >> TAG
        if tag == LOCAL_TAG:
            return 0, 0, False
        space, address = (w.SHARED, address & OFFSET) if tag == SHARED_TAG else (0, address)
    if space == w.SHARED:
        cell, place = shared_place(block, address, size)
        return cell, place, True
    return region_cell(state, address), address, False


@jit(inline=True)
def horizon(record, space, alone):
    """The time up to which plain accesses to a space are surely known."""
    if space == w.SHARED:
        return word(record + (w.KNOWN if alone else w.KNOWN_CLUSTER))
    return word(record + w.KNOWN_GRID)


@jit
def report(block, warp, lane, site, what, kind, address, size, slot):
    """Record a hazard with both accesses."""
    state = found(block, warp, lane, site, what)
    if state:
        put(state + w.LANE, lane)
        put(state + w.KIND, kind)
        at = address - word(block + w.AT_SHARED)
        inside = 0 <= at < half(word(block + w.AT_LAUNCH) + w.AT_SHARED_BYTES)
        put(state + w.ADDRESS, at if inside else address)
        put(state + w.SIZE, size)
        put(state + w.OTHER, slot)


@jit
def touch_lanes(block, warp, addresses, mask, what, size, site, values):
    """An access of `size` bytes a lane.

    addresses: of 64 bits, in memory.  mask: of lanes.  what: kind, order << 8, space << 16, bytes of an element << 24.
    values: what is written, [element][lane], or 0.
    """
    state, record, base = state_of(block), record_of(block, warp), word(block + w.AT_WATCH)
    kind, order, space, element = what & 0xFF, (what >> 8) & 0xFF, (what >> 16) & 0xFF, what >> 24
    alone = word(word(block + w.AT_PEERS)) == block and _alone(block)
    known = horizon(record, space, alone)
    stamp = begin_operation(block, warp, w.COPIES) if kind == w.COPY else word(record + w.NOW)
    fixed = stamp << w.SEGMENT_AT | (site & 0xFFFF) << w.SITE_AT | kind << w.KIND_AT
    before, again = -1, 0
    for lane in range(LANES):
        if not (mask >> lane) & 1:
            continue
        address = word(addresses + w.WORD * lane)
        again = again + 1 if address == before else 0
        before = address
        if again > 1 and not (w.WRITES >> kind) & 1:
            continue
        cell, place, shared = place_of_lane(block, state, space, address, size)
        if cell == 0 or address & (size - 1):  # outside of memory, or misaligned: reported elsewhere
            continue
        me = (state, base, record, kind, lane, known)
        at = -(address & 3)
        while at < size:
            low, high = max(at, 0), min(at + w.CELL_BYTES, size)
            bytes_here = ((1 << (high - low)) - 1) << (low - at)
            wrong, slot = look_at(me, cell, bytes_here, fixed | lane << w.LANE_AT | bytes_here, shared, True)
            plain = wrong == w.RACE and kind == w.WRITE and (slot >> w.KIND_AT) & 15 == w.WRITE
            if plain and same_bytes(place + low, values, lane, low, high - low, element):
                wrong = w.FINE
            if wrong:
                report(block, warp, lane, site, wrong, kind, address + low, size, slot)
                return
            if (w.STRONG >> kind) & 1:
                _synchronise(state, record, cell, kind, order)
            at += w.CELL_BYTES
            cell += w.CELL
    if kind == w.STRONG_READ:
        idle(block, warp, 0, site)
    elif (w.WRITES >> kind) & 1:
        put(state + w.IDLE, 0)
    if order & w.RELEASES:
        put(record + w.NOW, new_segment(state, record))


@jit
def _alone(block):
    launch = word(block + w.AT_LAUNCH)
    return half(launch + _CLUSTER_X) * half(launch + _CLUSTER_X + 4) * half(launch + _CLUSTER_X + 8) == 1


@jit
def touch_line(block, warp, lane, address, size, kind, site, noted):
    """An access of the bulk copies: `size` bytes from a place of the host, in the segment of the warp's operation.

    noted: whether it is remembered, or only compared with what was done before.
    """
    state, record, base = state_of(block), record_of(block, warp), word(block + w.AT_WATCH)
    cell = host_cell(block, address)
    if cell == 0:
        return
    shared = region_cell(state, address) == 0
    known = horizon(record, w.SHARED if shared else 0, _alone(block))
    me = (state, base, record, kind, lane, known)
    stamp = word(record + (w.NOW if kind == w.WRITE else w.OPERATION))
    own = stamp << w.SEGMENT_AT | (site & 0xFFFF) << w.SITE_AT
    own |= kind << w.KIND_AT | lane << w.LANE_AT
    for n in range(0, size, w.CELL_BYTES):
        mask = w.WRITTEN >> max(0, n + w.CELL_BYTES - size)
        wrong, slot = look_at(me, cell, mask, own | mask, shared, noted)
        if wrong:
            report(block, warp, lane, site, wrong, kind, address + n, size, slot)
            return
        cell += w.CELL
