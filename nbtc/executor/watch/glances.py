"""What most accesses find, granule by granule: that all before them is known, so that they are only remembered.

A warp's lanes are gone through twice.  The first time their granules are looked for, and come from memory side by side
instead of one after the other; the second time they are compared and remembered.
"""

from __future__ import annotations

import numpy as np

from nbtc.compiler.jit import jit
from nbtc.executor.emit import access_kinds as kinds
from nbtc.executor.watch import words as w
from nbtc.executor.watch.races import alike, same_kind
from nbtc.executor.watch.words import put, word

LANES = 32
_SCALE = w.GRANULE // w.GRANULE_BYTES  # from a place, a multiple of 16, to its granule's
_ASYNCHRONOUS = kinds.ASYNCHRONOUS << w.KIND_AT
_CP_ASYNC = 1 << kinds.COPY | 1 << kinds.COPY_SOURCE
_ZERO = np.int64(0)  # typed, as in `accesses`


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


@jit
def fitting(lane, last, window, given, count, writes):
    """The lane up to which accesses are of whole granules of a window that are neither split nor unusable.

    last: the address of the lane before.  given: what `touch_lanes` was; count: of lanes that share a granule.
    """
    addresses, mask, size, _, _, _, _ = given
    first, most, marks = window[0], window[1] - size, window[2] + w.MARKS
    good = w.WRITTEN if window[5] and not writes else 0
    looked_at = w.SPLIT | w.UNUSABLE | good
    while lane < LANES:
        if (mask >> lane) & 1:
            address = word(addresses + w.WORD * lane)
            at = address - first
            if address == last or at < 0 or at > most or at & (w.GRANULE_BYTES - 1):
                break
            if count > 1 and not side_by_side(addresses, mask, lane, count, size):
                break
            if word(marks + at * _SCALE) & looked_at != good:
                break
            last = address
            lane += count - 1
        lane += 1
    return lane


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


@jit
def remember(me, lanes, window, given, own, harmless):
    """Lanes do as `record_access` would have it, up to the first for which it has to look more closely: that lane, and
    the address of the one before.

    me: as for `hazard`.  lanes: the first, the one that ends them, and the address of the one before the first.  own:
    the access without its lane, and how many lanes share a granule.  harmless: an epoch that nothing is wrong with.

    Reads and writes have a loop each, so that neither asks at every granule which of them it is.
    """
    access, count = own
    own = access | (count >> 1) << w.LANES_AT | w.WRITTEN, count
    if (kinds.WRITES >> me[3]) & 1:
        return _remember_writes(me, lanes, window, given, own, harmless)
    return _remember_reads(me, lanes, window, given, own, harmless)


@jit
def _remember_reads(me, lanes, window, given, access, harmless):
    lane, end, last = lanes
    fixed, count = access
    addresses, mask, granules, limit = given[0], given[1], window[2], (me[5] + 1) << w.EPOCH_AT
    granules -= window[0] * _SCALE
    while lane < end:
        if (mask >> lane) & 1:
            address = word(addresses + w.WORD * lane)
            granule, own = granules + address * _SCALE, fixed | lane << w.LANE_AT
            slot = word(granule)
            if slot >> w.EPOCH_AT != harmless and not _plain(slot, limit) and not _waited_for(me[0], me[2], slot):
                break
            if _plain(word(granule + w.WORD), limit):
                put(granule + w.WORD, own)
            elif not _beside(me[3], granule, own, limit):
                break
            last = address
            lane += count - 1
        lane += 1
    return lane, last


@jit
def _beside(kind, granule, own, limit):
    """Remember a read beside an earlier one that others may mind; False if it takes a closer look."""
    first, second = word(granule + w.WORD), word(granule + 2 * w.WORD)
    if kind & kinds.ASYNCHRONOUS and same_kind(first, own):
        put(granule + w.WORD, own)
        return True
    if not alike(first, own) and _plain(second, limit):
        put(granule + 2 * w.WORD, own)
        return True
    return first == own or second == own


@jit
def _remember_writes(me, lanes, window, given, access, harmless):
    lane, end, last = lanes
    fixed, count = access
    addresses, mask, granules, limit = given[0], given[1], window[2], (me[5] + 1) << w.EPOCH_AT
    granules -= window[0] * _SCALE
    while lane < end:
        if (mask >> lane) & 1:
            address = word(addresses + w.WORD * lane)
            granule = granules + address * _SCALE
            slot = word(granule)
            if slot >> w.EPOCH_AT != harmless and not _plain(slot, limit) and not _waited_for(me[0], me[2], slot):
                break
            if not (_plain(word(granule + w.WORD), limit) and _plain(word(granule + 2 * w.WORD), limit)):
                break
            put(granule, fixed | lane << w.LANE_AT)
            put(granule + w.WORD, 0)
            put(granule + 2 * w.WORD, 0)
            put(granule + w.MARKS, word(granule + w.MARKS) | w.WRITTEN)
            last = address
            lane += count - 1
        lane += 1
    return lane, last
