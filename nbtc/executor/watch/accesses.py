"""One access of a warp to memory: every lane's bytes are compared with what granules and cells remember."""

from __future__ import annotations

import numpy as np

from nbtc.compiler.jit import jit
from nbtc.executor.emit import access_kinds as kinds
from nbtc.executor.watch import words as w
from nbtc.executor.watch.known_accesses import first_lane, record_known, record_known_cells, side_by_side
from nbtc.executor.watch.order import (
    advance,
    after,
    after_suspicion,
    alone,
    begin_operation,
    found,
    idle,
    learn,
    learn_all,
    record_of,
    state_of,
    suspect,
    tick,
)
from nbtc.executor.watch.races import look_at, mend, record_access
from nbtc.executor.watch.shadow import cell_at, cells_at, granule_at, host_window, window
from nbtc.executor.watch.words import int32_at, octet, put, word

LANES = 32
_ZERO, _NONE = np.int64(0), np.int64(-1)  # typed: of literals, Numba compiles all that is called with them once more
SIMPLE = (
    1 << kinds.READ | 1 << kinds.WRITE | 1 << kinds.COPY | 1 << kinds.COPY_SOURCE
)  # kinds that granules may stand for


@jit
def _same_bytes(place, values, lane, at, size, count):
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
    time = marks >> w.EPOCH_AT
    if kind == kinds.ATOMIC or kind == kinds.STRONG_READ:
        learn(record, w.SEEN, time)
        if order & kinds.ACQUIRES:
            learn_all(record, word(record + w.SEEN))
    if kind != kinds.STRONG_READ:
        mine = tick(state) if order & kinds.RELEASES else word(record + w.FENCED)
        if mine > time:
            put(cell + w.MARKS, (marks & ((1 << w.EPOCH_AT) - 1)) | mine << w.EPOCH_AT)


@jit
def _begin_after(state, record, order):
    """The epoch of what a warp does after an atomic or strong access."""
    if order & kinds.RELEASES:
        advance(state, record)
    elif order & kinds.ACQUIRES:
        after(state, record, word(record + w.SEEN))


@jit(inline=True)
def horizon(record, space, by_itself):
    """The time up to which plain accesses to a space are surely known."""
    if space == w.SHARED:
        return word(record + (w.KNOWN if by_itself else w.KNOWN_CLUSTER))
    return word(record + w.KNOWN_GRID)


@jit
def report(block, warp, lane, site, what, kind, address, size, slot):
    """Record a hazard with both accesses.

    Unwritten memory that is used is only suspected: if somebody writes those bytes later and nothing orders the two,
    the launch has a race, and only the order in which warps happen to run here made the bytes unwritten.
    """
    if what == w.UNWRITTEN:
        state = suspect(block, warp, site)
    else:
        if what == w.RACE and (slot >> w.SITE_AT) & 0xFFFF == word(state_of(block) + w.SITE):
            put(state_of(block) + w.SUSPECTED, 0)
        state = found(block, warp, lane, site, what)
    if state:
        put(state + w.LANE, lane)
        put(state + w.KIND, kind)
        at = address - word(block + w.AT_SHARED)
        inside = 0 <= at < int32_at(word(block + w.AT_LAUNCH) + w.AT_SHARED_BYTES)
        put(state + w.ADDRESS, at if inside else address)
        put(state + w.SIZE, size)
        put(state + w.OTHER, slot)


@jit
def _record_access(me, granule, cells, own, shared):
    """As `record_access`, of granules that may have been split."""
    if (kinds.WRITES >> me[3]) & 1 and word(granule + w.MARKS) & w.SPLIT:
        mend(me, granule, cells)
    return record_access(me, granule, own, shared)


@jit
def _harmless(me, place, part, slot, given):
    """Whether a write after a write is no race: memory holds its bytes already, or a lane of this instruction wrote
    them: one of a warp's lanes then does (CUDA C++ Programming Guide, "SIMT Architecture").

    Which lane does is the same for warps whose lanes have the same values: the first one, here.  Triton's reductions
    leave sums in all lanes that differ in the last bit where they have been fused with products.
    part: the first of the lane's bytes and how many of them, which are at a place of the host.
    """
    addresses, mask, _, _, site, values, element = given
    lane, other = me[4], (slot >> w.LANE_AT) & 31
    first = 0
    while not (mask >> first) & 1 or word(addresses + w.WORD * first) != word(addresses + w.WORD * lane):
        first += 1  # as far as the lane itself
    if _same_bytes(place, values, first, part[0], part[1], element):
        return True
    own = word(me[2] + w.NOW) << (w.EPOCH_AT - w.SITE_AT) | (site & 0xFFFF)
    together = other < lane and (mask >> other) & 1 and slot >> w.SITE_AT == own
    return together and word(addresses + w.WORD * other) == word(addresses + w.WORD * lane)


@jit
def _defer(record, lane, number, where):
    """A load finds one of its words unwritten: those that use its value report that."""
    at = record + w.UNWRITTEN_LANES + w.WORD * number
    put(at, word(at) | 1 << lane)
    put(record + w.UNWRITTEN_SITE, where[0])
    put(record + w.UNWRITTEN_PLACES + w.WORD * lane, where[1])
    put(record + w.UNWRITTEN_SIZE, where[2])
    put(record + w.UNWRITTEN_LANE, lane)


@jit
def _begin_deferred(record):
    """A load that defers begins: nothing is found unwritten yet."""
    for at in range(record + w.UNWRITTEN_LANES, record + w.UNWRITTEN_LANES + w.MOST_WORDS * w.WORD, w.WORD):
        put(at, 0)
    put(record + w.PARTLY_WRITTEN, 0)


@jit
def _as_before(record, lane, last):
    """A lane loads what the last one before it has loaded."""
    for at in range(record + w.UNWRITTEN_LANES, record + w.UNWRITTEN_LANES + w.MOST_WORDS * w.WORD, w.WORD):
        if (word(at) >> last) & 1:
            put(at, word(at) | 1 << lane)
    partly = word(record + w.PARTLY_WRITTEN)
    put(record + w.PARTLY_WRITTEN, partly | ((partly >> last) & 1) << lane)
    places = record + w.UNWRITTEN_PLACES
    put(places + w.WORD * lane, word(places + w.WORD * last))


@jit
def used(block, warp, mask, site):
    """Lanes use a value that they loaded from words that nobody wrote; the latest such load stands for theirs."""
    record, lane = record_of(block, warp), 0
    while not (mask >> lane) & 1:
        lane += 1
    slot = word(record + w.NOW) << w.EPOCH_AT | (site & 0xFFFF) << w.SITE_AT | lane << w.LANE_AT
    loaders = 0
    for n in range(w.MOST_WORDS):
        loaders |= word(record + w.UNWRITTEN_LANES + w.WORD * n)
    # the lane itself, where it is one of those that loaded: what another has loaded came by a shuffle or by ldmatrix
    loader = lane if (loaders >> lane) & 1 else word(record + w.UNWRITTEN_LANE)
    address = word(record + w.UNWRITTEN_PLACES + w.WORD * loader)
    there, size = word(record + w.UNWRITTEN_SITE), word(record + w.UNWRITTEN_SIZE)
    report(block, warp, loader, there, w.UNWRITTEN, kinds.READ, address, size, slot)


@jit
def _parts(me, block, warp, here, at, own, given):
    """An access to some bytes, cell by cell: whether nothing is wrong.  given: what `touch_lanes` was."""
    kind, lane = me[3], me[4]
    _, _, size, order, site, _, _ = given
    for n in range(-(at & (w.CELL_BYTES - 1)), size, w.CELL_BYTES):
        cell = cell_at(here, at + n)
        low, high = max(n, 0), min(n + w.CELL_BYTES, size)
        bytes_here = ((1 << (high - low)) - 1) << (low - n)
        wrong, slot = look_at(me, cell, bytes_here, own | bytes_here, here[5])
        plain = wrong == w.RACE and kind == kinds.WRITE and (slot >> w.KIND_AT) & 15 == kinds.WRITE
        if plain and _harmless(me, here[4] + at + low, (low, high - low), slot, given):
            wrong = w.FINE
        if order & kinds.DEFERS:
            if word(cell + w.MARKS) & bytes_here:
                put(me[2] + w.PARTLY_WRITTEN, word(me[2] + w.PARTLY_WRITTEN) | 1 << lane)
            if wrong == w.UNWRITTEN:
                _defer(me[2], lane, low // w.CELL_BYTES, (site, here[0] + at + low, size))
                continue
        if wrong:
            report(block, warp, lane, site, wrong, kind, here[0] + at + low, size, slot)
            if wrong != w.UNWRITTEN:
                return False
        if (kinds.STRONG >> kind) & 1:
            _synchronise(me[0], me[2], cell, kind, order)
    return True


@jit(inline=True)
def _after_wait(state, record):
    """The first access after a warp's lanes waited for each other is in another epoch than those before."""
    if word(record + w.WAITED):
        put(record + w.WAITED, 0)
        advance(state, record)


@jit
def _stamp(block, warp, kind):
    """The epoch that an access is of."""
    record = record_of(block, warp)
    if kind == kinds.COPY:
        return begin_operation(block, warp, kinds.COPIES)
    if kind == kinds.COPY_SOURCE:  # of the copy whose target was looked at just before
        return word(record + w.CHAINS + w.CHAIN * kinds.COPIES + w.HEAD)
    return word(record + w.NOW)


@jit
def _whole(me, here, at, size, own):
    """An access to all bytes of granules: whether that was all."""
    for n in range(at, at + size, w.GRANULE_BYTES):
        if not _record_access(me, granule_at(here, n), cells_at(here, n), own, here[5]):
            return False
    return True


@jit
def touch_lanes(block, warp, addresses, mask, what, size, site, values):
    """An access of `size` bytes a lane.

    addresses: of 64 bits, in memory.  mask: of lanes.  what: kind, order << 8, space << 16, bytes of an element << 24.
    values: what is written, [element][lane], or 0.
    """
    state, record, base = state_of(block), record_of(block, warp), word(block + w.AT_WATCH)
    _after_wait(state, record)
    after_suspicion(block, warp, site)
    kind, order, space, element = what & 0xFF, (what >> 8) & 0xFF, (what >> 16) & 0xFF, what >> 24
    known = horizon(record, space, alone(block))
    fixed = _stamp(block, warp, kind) << w.EPOCH_AT | (site & 0xFFFF) << w.SITE_AT | kind << w.KIND_AT
    count = 0 if size < w.CELL_BYTES or not (SIMPLE >> kind) & 1 else max(1, w.GRANULE_BYTES // size)
    given = (addresses, mask, size, order, site, values, element)
    lane, last, harmless = _ZERO, _ZERO, _NONE
    before, again, here = _NONE, 0, window(block, space, word(addresses + w.WORD * first_lane(mask)))
    writes = (kinds.WRITES >> kind) & 1
    if order & kinds.DEFERS:
        _begin_deferred(record)
    while lane < LANES:
        if count and size <= w.GRANULE_BYTES:
            me = (state, base, record, kind, lane, known)
            lane, now = record_known(me, (lane, before), here, given, (fixed, count), harmless)
            if lane < LANES and (count > 1 or not writes):
                lane, now = record_known_cells(me, (lane, now), here, given, (fixed, count))
            if now != before:
                before, again = now, 0
            if lane >= LANES:
                break
        address = word(addresses + w.WORD * lane)
        if not (mask >> lane) & 1:
            lane += 1
            continue
        again = again + 1 if address == before else 0
        before, at = address, address - here[0]
        if not 0 <= at < here[1]:
            here = window(block, space, address)
            at = address - here[0]
        # nothing of memory that is not there, or misaligned, which is reported elsewhere; nor of a third equal read
        if at + size > here[1] or address & (size - 1) or (again > 1 and not writes):
            if again > 1 and order & kinds.DEFERS:
                _as_before(record, lane, last)
            lane, last = lane + 1, lane
            continue
        own = fixed | lane << w.LANE_AT
        me = (state, base, record, kind, lane, known)
        if count and side_by_side(addresses, mask, lane, count, size):
            then, whole = word(granule_at(here, at)) >> w.EPOCH_AT, own | (count >> 1) << w.LANES_AT | w.WRITTEN
            if _whole(me, here, at, max(size, w.GRANULE_BYTES), whole):
                harmless = harmless if then >= word(record + w.MET) else then
                lane, last = lane + count, lane + count - 1
                continue
        if not _parts(me, block, warp, here, at, own, given):
            return
        lane, last = lane + 1, lane
    if kind == kinds.STRONG_READ:
        idle(block, warp, 0, site)
    elif (kinds.WRITES >> kind) & 1:
        put(state + w.IDLE, 0)
    _begin_after(state, record, order)


@jit
def forget(block, addresses, mask, at, size):
    """Lanes have written `size` bytes from byte `at` of theirs in shared memory, whose values count as unwritten."""
    for lane in range(LANES):
        if (mask >> lane) & 1:
            address = word(addresses + w.WORD * lane) + at
            here = window(block, w.SHARED, address)
            for byte in range(address - here[0], min(address - here[0] + size, here[1])):
                marks = cell_at(here, byte) + w.MARKS
                put(marks, word(marks) & ~(1 << (byte & (w.CELL_BYTES - 1))))


@jit
def touch_line(block, warp, lane, address, size, kind, site):
    """An access of the bulk copies: `size` bytes from a place of the host, in the epoch of the warp's operation."""
    state, record, base = state_of(block), record_of(block, warp), word(block + w.AT_WATCH)
    here = host_window(block, address)
    if not here[1]:
        return
    known = horizon(record, w.SHARED if here[5] else w.GLOBAL, alone(block))
    me = (state, base, record, kind, lane, known)
    stamp = word(record + (w.NOW if kind == kinds.WRITE else w.OPERATION))
    own = stamp << w.EPOCH_AT | (site & 0xFFFF) << w.SITE_AT
    own |= kind << w.KIND_AT | lane << w.LANE_AT
    at, end = address - here[0], address - here[0] + size
    while at < end:
        whole = at % w.GRANULE_BYTES == 0 and at + w.GRANULE_BYTES <= end
        if whole and _record_access(me, granule_at(here, at), cells_at(here, at), own | w.WRITTEN, here[5]):
            at += w.GRANULE_BYTES
            continue
        mask = w.WRITTEN >> max(0, at + w.CELL_BYTES - end)
        wrong, slot = look_at(me, cell_at(here, at), mask, own | mask, here[5])
        if wrong:
            report(block, warp, lane, site, wrong, kind, here[4] + at, size, slot)
            if wrong != w.UNWRITTEN:
                return
        at += w.CELL_BYTES
