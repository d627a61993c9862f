"""What most accesses find, granule by granule: that all before them is known, so that they are only remembered.

An access is known to a warp that it is ordered before: no later one of the warp races with it.  The functions here go
through lanes as long as all that they find is known, and leave the other lanes to the full check, that of `accesses`.

Where a warp's lanes lie is asked once for all of them (`rows`).  Their granules are compared and remembered one by one:
each is 32 bytes, of which three words are compared with different things, so that vectors have little to win.
Granules of global memory, which are seldom in a near cache, are asked for before the first is looked at.
"""

from __future__ import annotations

import numpy as np

from nbtc.compiler.jit import jit
from nbtc.executor.emit import access_kinds as kinds
from nbtc.executor.watch import words as w
from nbtc.executor.watch.races import alike, same_kind, same_lanes, succeeds
from nbtc.executor.watch.rows import LANES, each_whole, fetch, in_a_row
from nbtc.executor.watch.shadow import cell_at, cells_at, granule_at
from nbtc.executor.watch.words import put, word

ALL = (1 << LANES) - 1
_SCALE = w.GRANULE // w.GRANULE_BYTES  # from a place, a multiple of 16, to its granule's
_ASYNCHRONOUS = kinds.ASYNCHRONOUS << w.KIND_AT
_CP_ASYNC = 1 << kinds.COPY | 1 << kinds.COPY_SOURCE
_ZERO, _NONE = np.int64(0), np.int64(-1)  # typed, as in `accesses`
FULL_CHECK = np.int64(-2)  # no epoch: an access that takes the full check


@jit
def first_lane(mask):
    """The first lane of a mask, the last of all if it is empty."""
    lane = _ZERO
    while lane < LANES - 1 and not (mask >> lane) & 1:
        lane += 1
    return lane


@jit(inline=True)
def side_by_side(addresses, mask, lane, count, size):
    """Whether `count` lanes from a lane on have the bytes of one granule, each `size` of them."""
    if (mask >> lane) & ((1 << count) - 1) != (1 << count) - 1 or lane & (count - 1):
        return False
    first = word(addresses + w.WORD * lane)
    fits = first & (w.GRANULE_BYTES - 1) == 0
    for n in range(1, count):
        fits &= word(addresses + w.WORD * (lane + n)) == first + size * n
    return fits


@jit(inline=True)
def _together(addresses, here, size, count):
    """Whether 32 lanes have whole granules of a window: one each, or, where `count` share one, all in a row."""
    first, most, _ = here
    if count == 1:
        return each_whole(addresses, first, most) >= 0
    at = word(addresses) - first
    fits = (at | (most - (LANES - 1) * size - at)) >= 0 and not at & (w.GRANULE_BYTES - 1)
    return fits and in_a_row(addresses, size) == 0


@jit
def _waited_for(state, record, slot):
    """Whether an access is a copy (cp.async) of this block that the warp knows to be done."""
    stamp, most = slot >> w.EPOCH_AT, word(state + w.MOST_EPOCHS)
    if not (_CP_ASYNC >> ((slot >> w.KIND_AT) & 15)) & 1 or stamp + most <= word(state + w.CLOCK):
        return False
    row = word(state + w.EPOCHS) + w.EPOCH * (stamp & (most - 1))
    done = word(row + w.DONE)
    return done != 0 and done <= word(record + w.KNOWN) and word(row) >> 8 == word(record + w.ACTOR) >> 8


@jit(inline=True)
def _plain(slot, limit):
    """Whether an access is surely known: of an epoch before that of the limit, and not asynchronous."""
    return slot < limit and not slot & _ASYNCHRONOUS


@jit(inline=True)
def _after_copy(me, slot, copied):
    """As _plain, of a write that may be a copy that was waited for: the epoch of the last of these (copied: the one
    before), or FULL_CHECK.  All of a copy's bytes, and mostly its neighbours', have one epoch: it is looked up once."""
    state, record, _, limit, _, _, harmless = me
    stamp = slot >> w.EPOCH_AT
    if stamp in (copied, harmless) or _plain(slot, limit):
        return copied
    return stamp if _waited_for(state, record, slot) else FULL_CHECK


@jit(inline=True)
def _beside(me, granule, own):
    """Remember a read beside an earlier one that others may mind; False if it takes the full check."""
    state, record, kind, limit, _, _, _ = me
    first, second = word(granule + w.WORD), word(granule + 2 * w.WORD)
    if kind & kinds.ASYNCHRONOUS and same_kind(first, own):
        put(granule + w.WORD, own)
        return True
    if not alike(first, own) and _plain(second, limit):
        put(granule + 2 * w.WORD, own)
        return True
    if first == own or second == own:
        return True
    write = word(granule)
    if alike(first, own) or alike(second, own) or not (_plain(write, limit) or same_lanes(write, own)):
        return False
    # a third warp reads it: as in `_note_read`
    warps = (state, 0, record, kind, 0, 0)
    put(granule + (w.WORD if succeeds(warps, first, own) else 2 * w.WORD), own)
    return True


@jit(inline=True)
def _read(me, granule, own, copied):
    """Remember a read of a granule; see _after_copy for `copied`, and what is returned."""
    _, _, _, limit, looked_at, good, _ = me
    if word(granule + w.MARKS) & looked_at != good:
        return FULL_CHECK
    copied = _after_copy(me, word(granule), copied)
    if copied != FULL_CHECK:
        if _plain(word(granule + w.WORD), limit):
            put(granule + w.WORD, own)
        elif not _beside(me, granule, own):
            return FULL_CHECK
    return copied


@jit(inline=True)
def _write(me, granule, own, copied):
    """As _read, for a write."""
    _, _, _, limit, looked_at, good, _ = me
    marks = word(granule + w.MARKS)
    if marks & looked_at != good:
        return FULL_CHECK
    if not (_plain(word(granule + w.WORD), limit) and _plain(word(granule + 2 * w.WORD), limit)):
        return FULL_CHECK
    copied = _after_copy(me, word(granule), copied)
    if copied != FULL_CHECK:
        put(granule, own)
        put(granule + w.WORD, 0)
        put(granule + 2 * w.WORD, 0)
        put(granule + w.MARKS, marks | w.WRITTEN)
    return copied


@jit
def _all_reads(me, addresses, granules, own, count):
    """Remember reads of all lanes, which are `_together`: the first lane that takes the full check."""
    lane, copied = _ZERO, _NONE
    while lane < LANES:
        granule = granules + word(addresses + w.WORD * lane) * _SCALE
        copied = _read(me, granule, own | lane << w.LANE_AT, copied)
        if copied == FULL_CHECK:
            break
        lane += count
    return lane


@jit
def _all_writes(me, addresses, granules, own, count):
    """As _all_reads."""
    lane, copied = _ZERO, _NONE
    while lane < LANES:
        granule = granules + word(addresses + w.WORD * lane) * _SCALE
        copied = _write(me, granule, own | lane << w.LANE_AT, copied)
        if copied == FULL_CHECK:
            break
        lane += count
    return lane


@jit(inline=True)
def _fits(lane, last, here, given, count):
    """Whether a lane's access, with its neighbours', is of a whole granule of a window, and not of the same place as
    the lane before's."""
    addresses, mask, size = given
    address = word(addresses + w.WORD * lane)
    at = address - here[0]
    if (at | (here[1] - at)) < 0 or at & (w.GRANULE_BYTES - 1) or address == last:
        return False
    return count == 1 or side_by_side(addresses, mask, lane, count, size)


@jit
def _reads(me, lanes, here, given, own, count):
    """Remember reads of lanes, each of which may be anywhere: (the first lane that takes the full check, the address of
    the one before)."""
    lane, last = lanes
    addresses, mask, _ = given
    granules, copied = here[2] - here[0] * _SCALE, _NONE
    while lane < LANES:
        if (mask >> lane) & 1:
            if not _fits(lane, last, here, given, count):
                break
            address = word(addresses + w.WORD * lane)
            copied = _read(me, granules + address * _SCALE, own | lane << w.LANE_AT, copied)
            if copied == FULL_CHECK:
                break
            last = address
            lane += count - 1
        lane += 1
    return lane, last


@jit
def _writes(me, lanes, here, given, own, count):
    """As _reads."""
    lane, last = lanes
    addresses, mask, _ = given
    granules, copied = here[2] - here[0] * _SCALE, _NONE
    while lane < LANES:
        if (mask >> lane) & 1:
            if not _fits(lane, last, here, given, count):
                break
            address = word(addresses + w.WORD * lane)
            copied = _write(me, granules + address * _SCALE, own | lane << w.LANE_AT, copied)
            if copied == FULL_CHECK:
                break
            last = address
            lane += count - 1
        lane += 1
    return lane, last


@jit
def _fetch(addresses, granules):
    """Let all lanes' granules come from memory side by side, instead of each when it is looked at."""
    for n in range(LANES):
        fetch(granules + word(addresses + w.WORD * n) * _SCALE)


@jit
def record_known(me, lanes, window, given, access, harmless):
    """Lanes do as `record_access` would have it, up to the first that takes the full check: that lane, and the address
    of the one before.

    me: as for `hazard`.  lanes: the first, and the address of the one before it.  given: what `touch_lanes` was.
    access: the access without its lane, and how many lanes share a granule.  harmless: an epoch that nothing is wrong
    with.  Only whole granules of the window that are neither split nor unusable are recorded here.

    Reads and writes have loops of their own, so that neither asks at every granule which of them it is; and so have
    warps all of whose lanes are there, whose addresses are looked at together.
    """
    state, _, record, kind, _, known = me
    fixed, count = access
    addresses, mask, size, _, _, _, _ = given
    own, writes = fixed | (count >> 1) << w.LANES_AT | w.WRITTEN, (kinds.WRITES >> kind) & 1
    good = w.WRITTEN if window[5] and not writes else 0
    mine = (state, record, kind, (known + 1) << w.EPOCH_AT, w.SPLIT | w.UNUSABLE | good, good, harmless)
    here, touched = (window[0], window[1] - size, window[2]), (addresses, mask, size)
    lane, last = lanes
    if lane == 0 and mask == ALL and _together(addresses, here, size, count):
        granules = window[2] - window[0] * _SCALE
        if not window[5] and count == 1:
            _fetch(addresses, granules)
        if writes:
            lane = _all_writes(mine, addresses, granules, own, count)
        else:
            lane = _all_reads(mine, addresses, granules, own, count)
        return lane, word(addresses + w.WORD * (lane - count)) if lane else last
    if writes:
        return _writes(mine, (lane, last), here, touched, own, count)
    return _reads(mine, (lane, last), here, touched, own, count)


@jit(inline=True)
def _cell_fits(me, cell, own, copied):
    """Whether an access to all of a cell finds nothing but what is known: as `_read` and `_write`."""
    _, _, kind, limit, looked_at, good, _ = me
    if word(cell + w.MARKS) & looked_at != good:
        return FULL_CHECK
    first, write = word(cell + w.WORD), word(cell)
    if (kinds.WRITES >> kind) & 1:
        if not (_plain(first, limit) and _plain(word(cell + 2 * w.WORD), limit)) or alike(write, own):
            return FULL_CHECK
    elif not _plain(first, limit) or alike(first, own):
        return FULL_CHECK
    return _after_copy(me, write, copied)


@jit(inline=True)
def _keep_in_cell(cell, own, writes):
    """Remember such an access."""
    at = cell if writes else cell + w.WORD
    if writes:
        put(cell + w.WORD, 0)
        put(cell + 2 * w.WORD, 0)
        put(cell + w.MARKS, word(cell + w.MARKS) | w.WRITTEN)
    put(at, own)
    put(at + w.BYTES_AT, ((own >> w.LANE_AT) & 31) * w.FOUR)


@jit
def record_known_cells(me, lanes, window, given, access):
    """As `record_known`, for lanes whose granules are split or that share theirs with no other lane, cell by cell.

    What `touch_lanes` would do with the granules of lanes side by side comes first, and is left to it.
    """
    state, _, record, kind, _, known = me
    fixed, count = access
    addresses, mask, size, order, _, _, _ = given
    writes, lane, last = (kinds.WRITES >> kind) & 1, lanes[0], lanes[1]
    good, bits, seen = w.WRITTEN if window[5] and not writes else 0, fixed | w.WRITTEN, _ZERO
    mine = (state, record, kind, (known + 1) << w.EPOCH_AT, w.UNUSABLE | good, good, _NONE)
    copied = _NONE
    while lane < LANES:
        if (mask >> lane) & 1:
            address = word(addresses + w.WORD * lane)
            at, own = address - window[0], bits | lane << w.LANE_AT
            if address == last or (at | (window[1] - size - at)) < 0 or at & (size - 1):
                break
            split = word(granule_at(window, at) + w.MARKS) & w.SPLIT
            if (writes or not split) and side_by_side(addresses, mask, lane, count, size):
                break
            cell = cells_at(window, at) + ((at >> 2) & 3) * w.CELL if split else cell_at(window, at)
            end = cell + size * (w.CELL // w.CELL_BYTES)
            for each in range(cell, end, w.CELL):
                if copied != FULL_CHECK:
                    copied = _cell_fits(mine, each, own, copied)
            if copied == FULL_CHECK:
                break
            for each in range(cell, end, w.CELL):
                _keep_in_cell(each, own, writes)
            last, seen = address, seen | 1 << lane
        lane += 1
    if order & kinds.DEFERS:
        put(record + w.PARTLY_WRITTEN, word(record + w.PARTLY_WRITTEN) | seen)
    return lane, last
