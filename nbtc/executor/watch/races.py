"""What is wrong between an access and those before it, and what is remembered of it."""

from __future__ import annotations

import numpy as np

from nbtc.compiler.jit import jit
from nbtc.executor.emit import access_kinds as kinds
from nbtc.executor.watch import words as w
from nbtc.executor.watch.order import epoch, knows
from nbtc.executor.watch.words import put, word

_MASK = w.CELL_BYTES * 4 - 1
_ASYNCHRONOUS = kinds.ASYNCHRONOUS << w.KIND_AT
_WHOLE = np.int64(w.WRITTEN)


@jit
def proxied(me, row, then):
    """Whether a proxy fence stands between a plain write and this access through the asynchronous proxy."""
    base, record = me[1], me[2]
    if then <= word(record + w.PROXY_KNOWN):
        return True
    actor = word(row)
    if actor >> 8 != word(record + w.ACTOR) >> 8:
        return True
    return word(base + w.WARPS + w.WARP_BYTES * (actor & 0xFF) + w.PROXY_FENCE) > then


@jit(inline=True)
def _same_lane(slot, lane):
    return (slot >> w.LANE_AT) & 31 == lane and not (slot >> w.SHARED_AT) & 1


@jit
def _other_lane(slot, mask, lane, owners):
    """The lane of a shared access that this lane has bytes in common with, -1: of none that is known."""
    for n in range(w.CELL_BYTES):
        owner = (owners >> 8 * n) & 0xFF
        if (slot & mask) >> n & 1 and owner != lane and not (owner & w.SEVERAL and (kinds.WRITES >> _kind(slot)) & 1):
            return owner
    return -1


@jit(inline=True)
def _kind(slot):
    return (slot >> w.KIND_AT) & 15


@jit
def hazard(me, slot, mask, owners):
    """What is wrong between an earlier access and this one.  me: state, block's words, warp's words, kind, lane, time
    up to which plain accesses are known.  owners: whose the earlier access' bytes are."""
    state, _, record, kind, lane, _ = me
    other, then = (slot >> w.KIND_AT) & 15, slot >> w.EPOCH_AT
    if (kinds.STRONG >> other) & (kinds.STRONG >> kind) & 1:
        return w.FINE
    row = epoch(state, then)
    if row == 0:
        return w.FINE
    mine = word(row) == word(record + w.ACTOR)
    if other == kinds.PRODUCT and not mine:
        done = word(row + w.DONE_READ)
        if done == 0:
            return w.NOT_WAITED
        peer = word(row) >> 2 == word(record + w.ACTOR) >> 2  # of its warpgroup
        return w.FINE if (peer and done <= word(record + w.PRODUCTS_SEEN)) or knows(record, row, done) else w.RACE
    if (kinds.GROUPED >> other) & 1:
        done = word(row + (w.DONE_READ if other == kinds.BULK_READ else w.DONE))
        if done == 0:
            return w.NOT_WAITED
        alone = mine and not (kinds.TOLD >> other) & 1 and (_same_lane(slot, lane) or done < word(record + w.MET))
        return w.FINE if alone or (mine and (kinds.WARPS_OWN >> other) & 1) or knows(record, row, done) else w.RACE
    if mine:
        if then >= word(record + (w.MET if (kinds.WRITES >> other) & 1 else w.NOW)):
            if (slot >> w.SHARED_AT) & 1:
                if _other_lane(slot, mask, lane, owners) >= 0:
                    return w.RACE
            elif (slot >> w.LANE_AT) & 31 != lane:
                return w.RACE
    elif not knows(record, row, then):
        return w.RACE
    if (kinds.ASYNC_PROXY >> kind) & 1 and not (kinds.WRITES >> kind) & 1 and (kinds.GENERIC_WRITES >> other) & 1:
        return w.FINE if proxied(me, row, then) else w.NO_PROXY_FENCE
    return w.FINE


@jit(inline=True)
def before(slot, known):
    """Whether an access, or none, is surely known."""
    return slot >> w.EPOCH_AT <= known and not slot & _ASYNCHRONOUS


@jit(inline=True)
def _known(me, slot):
    """Whether an access is surely known."""
    return before(slot, me[5])


@jit
def _look(me, slot, mask, owners):
    """As `hazard`, for the bytes that both accesses have in common."""
    if not slot & mask & _MASK:
        return w.FINE
    if _known(me, slot) and not (kinds.ASYNC_PROXY >> me[3]) & 1:
        return w.FINE
    return hazard(me, slot, mask, owners)


@jit
def _with(slot, mask, lane, owners):
    """An access that a lane has a hazard with, by the lane whose bytes they have in common."""
    if not (slot >> w.SHARED_AT) & 1:
        return slot
    other = _other_lane(slot, mask, lane, owners)
    if other < 0 or other & w.SEVERAL:
        return slot
    return (slot & ~(31 << w.LANE_AT | 1 << w.SHARED_AT)) | other << w.LANE_AT


@jit(inline=True)
def _joined(slot, own):
    """An access with another of the same warp in the same epoch."""
    found = slot | (own & _MASK)
    return found if (slot ^ own) & (31 << w.LANE_AT) == 0 else found | 1 << w.SHARED_AT


@jit
def _join(at, slot, own, is_cell):
    """Remember an access with another of the same warp in the same epoch, in a slot."""
    put(at, _joined(slot, own))
    if not is_cell:
        return
    owners, lane = word(at + w.BYTES_AT), (own >> w.LANE_AT) & 31
    for n in range(w.CELL_BYTES):
        if (own >> n) & 1:
            owner = lane
            if (slot >> n) & 1 and (owners >> 8 * n) & 0xFF != lane:
                owner = w.SEVERAL
            owners = (owners & ~(0xFF << 8 * n)) | owner << 8 * n
    put(at + w.BYTES_AT, owners)


@jit(inline=True)
def _keep(at, own, is_cell):
    """Remember an access in a slot, of a cell with the bytes' owners."""
    put(at, own)
    if is_cell:
        put(at + w.BYTES_AT, ((own >> w.LANE_AT) & 31) * w.FOUR)


@jit(inline=True)
def same_kind(slot, own):
    return (slot ^ own) & (15 << w.KIND_AT) == 0


@jit(inline=True)
def same_lanes(slot, own):
    """Whether two accesses to a granule have as many lanes."""
    return (slot ^ own) & (3 << w.LANES_AT) == 0


@jit(inline=True)
def alike(slot, own):
    return slot >> w.EPOCH_AT == own >> w.EPOCH_AT and same_kind(slot, own)


@jit(inline=True)
def succeeds(me, slot, own):
    """Whether a read is of all bytes of an earlier one by the same warp: who minds the one minds the other."""
    if (slot ^ own) & (15 << w.KIND_AT) or slot & ~own & _MASK or (kinds.GROUPED >> me[3]) & 1:
        return False
    row = epoch(me[0], slot >> w.EPOCH_AT)
    return row == 0 or word(row) == word(me[2] + w.ACTOR)


@jit
def _note_read(me, cell, own, is_cell):
    """Remember a read: in the place of one that it covers, else of the second."""
    for at in range(cell + w.WORD, cell + w.MARKS, w.WORD):
        slot = word(at)
        if slot and alike(slot, own):
            if slot != own:
                _join(at, slot, own, is_cell)
            return
        if slot == 0 or _known(me, slot) or succeeds(me, slot, own):
            _keep(at, own, is_cell)
            return
    _keep(cell + 2 * w.WORD, own, is_cell)


@jit
def _note_write(cell, own, mask, is_cell):
    """Remember a write, in the place of all that it covers."""
    slot = word(cell)
    if slot and alike(slot, own):
        _join(cell, slot, own, is_cell)
    else:
        _keep(cell, own, is_cell)
    for at in range(cell + w.WORD, cell + w.MARKS, w.WORD):
        slot = word(at)
        if slot:
            left = slot & ~mask
            put(at, left if left & _MASK else 0)
    put(cell + w.MARKS, word(cell + w.MARKS) | mask)


@jit
def look_at(me, cell, mask, own, shared):
    """One cell: (hazard, the earlier access)."""
    kind = me[3]
    marks = word(cell + w.MARKS)
    if marks & w.UNUSABLE:
        gone = w.BLOCK_ENDED if marks & w.GONE else w.FREED_MEMORY
        return (w.MBARRIER_REUSED if marks & w.MBARRIER else gone), word(cell)
    slot = word(cell)
    wrong = _look(me, slot, mask, word(cell + w.BYTES_AT))
    if wrong:
        return wrong, _with(slot, mask, me[4], word(cell + w.BYTES_AT))
    if (kinds.WRITES >> kind) & 1:
        for at in range(cell + w.WORD, cell + w.MARKS, w.WORD):
            slot = word(at)
            wrong = _look(me, slot, mask, word(at + w.BYTES_AT)) if slot else w.FINE
            if wrong:
                return wrong, _with(slot, mask, me[4], word(at + w.BYTES_AT))
        if not (kinds.ATOMICS >> kind) & 1 or not shared or marks & mask == mask:
            _note_write(cell, own, mask, 1)
            return w.FINE, 0
    _note_read(me, cell, own, 1)  # of unwritten bytes too: a later write may be one that nothing orders after it
    return (w.UNWRITTEN if shared and marks & mask != mask else w.FINE), 0


@jit
def record_access(me, granule, own, shared):
    """An access to all bytes of a granule: whether that was all; else its cells are to be looked at one by one, which
    also finds the words for what is wrong."""
    marks, writes = word(granule + w.MARKS), (kinds.WRITES >> me[3]) & 1
    if marks & (w.SPLIT | w.UNUSABLE) or (shared and not writes and marks & w.WRITTEN != w.WRITTEN):
        return False
    slot = word(granule)
    if slot and not _agree(me, slot, own):
        return False
    for at in range(granule + w.WORD, granule + w.MARKS, w.WORD):
        slot = word(at)
        if slot and slot != own and ((writes and not _agree(me, slot, own)) or _apart(slot, own)):
            return False
    if writes:
        _note_write(granule, own, w.WRITTEN, 0)
    else:
        _note_read(me, granule, own, 0)
    return True


@jit
def _agree(me, slot, own):
    """Whether nothing is wrong, as far as a granule can tell."""
    if _known(me, slot) and not (kinds.ASYNC_PROXY >> me[3]) & 1:
        return True
    before = slot >> w.EPOCH_AT < word(me[2] + w.MET) and not (kinds.GROUPED >> ((slot >> w.KIND_AT) & 15)) & 1
    return (before or same_lanes(slot, own)) and hazard(me, slot, _WHOLE, w.NOBODY) == w.FINE


@jit(inline=True)
def _apart(slot, own):
    """Whether two accesses that would become one have different lanes a cell."""
    return alike(slot, own) and not same_lanes(slot, own)


@jit
def mend(me, granule, cells):
    """Before a write to all of a split granule: it is whole again if nothing has to be remembered of its cells."""
    marks = word(cells + w.MARKS)
    for cell in range(cells, cells + w.CELLS * w.CELL, w.CELL):
        if word(cell + w.MARKS) | w.WRITTEN != marks | w.WRITTEN or marks & w.UNUSABLE:
            return
        for at in range(cell, cell + w.MARKS, w.WORD):
            slot = word(at)
            if slot and not _known(me, slot):
                return
    for at in range(granule, granule + w.MARKS, w.WORD):
        put(at, 0)
    put(granule + w.MARKS, marks & ~w.WRITTEN)
