"""mbarriers: who made them, their phases, and what their arrivals tell those that wait.

The cells of an mbarrier's two halves are used otherwise: the first has the access that made it, how many phases are
over, the phase's asynchronous operations (a list through their epochs) and the time of its last arrival; the second
the last uses of two warps, and the same of the phase before, and the epoch of the last arrival or expected bytes.
"""

from __future__ import annotations

from nbtc.compiler.jit import jit
from nbtc.executor.emit import access_kinds as kinds
from nbtc.executor.transfer import mbarrier
from nbtc.executor.watch import words as w
from nbtc.executor.watch.accesses import report
from nbtc.executor.watch.order import (
    advance,
    after,
    epoch,
    finish,
    idle,
    learn,
    new_epoch,
    record_of,
    state_of,
    tick,
)
from nbtc.executor.watch.races import hazard, proxied
from nbtc.executor.watch.shadow import host_cell
from nbtc.executor.watch.words import put, word

LANES = 32
# phases over; the last asynchronous operation of this phase; from the first cell to the second
PHASES, LAST, SECOND = w.WORD, 2 * w.WORD, w.CELL
USED, USED_BEFORE = SECOND + w.WORD, SECOND  # the last uses of two warps
ARRIVED = SECOND + w.BYTES_AT  # the epoch of the last arrival, bulk copies' left out
_LOW = 0xFFFFFFFF
_COUNT, _OWED, _PENDING_AT, _OWED_AT = (
    mbarrier.COUNT_MASK, mbarrier.OWED_MASK, mbarrier.PENDING, mbarrier.OWED
)  # fmt: skip
_TIME = 1 << w.EPOCH_AT


@jit
def _time(cell):
    return word(cell + w.MARKS) >> w.EPOCH_AT


@jit
def _set_time(cell, time):
    put(cell + w.MARKS, (word(cell + w.MARKS) & (_TIME - 1)) | time << w.EPOCH_AT)


@jit
def made(block, warp, lane, address, count, site):
    """mbarrier.init"""
    cell, record = host_cell(block, address), record_of(block, warp)
    if word(cell + w.MARKS) & w.MBARRIER:
        report(block, warp, lane, site, w.MBARRIER_REUSED, kinds.NONE, address, mbarrier.BYTES, word(cell))
    elif not 1 <= count <= _COUNT:
        report(block, warp, lane, site, w.MBARRIER_COUNT, kinds.NONE, address, mbarrier.BYTES, 0)
    own = word(record + w.NOW) << w.EPOCH_AT | (site & 0xFFFF) << w.SITE_AT | kinds.WRITE << w.KIND_AT | w.WRITTEN
    for at in (cell, cell + SECOND):
        put(at, own | lane << w.LANE_AT)
        put(at + PHASES, 0)
        put(at + LAST, 0)
        put(at + w.MARKS, w.MBARRIER | w.WRITTEN)
    put(cell + USED_BEFORE, 0)
    put(cell + ARRIVED, word(record + w.NOW))


@jit
def invalid(block, warp, lane, address, site):
    """mbarrier.inval: the memory holds nothing that could be read."""
    cell = host_cell(block, address)
    usable = _usable(block, warp, lane, address, cell, site)
    for at in (cell + USED, cell + USED_BEFORE):
        used = word(at)
        other = (used >> w.LANE_AT) & 31  # of this warp, all lanes may be where this one is
        me = (state_of(block), word(block + w.AT_WATCH), record_of(block, warp), kinds.WRITE, other, 0)
        wrong = hazard(me, used, w.WRITTEN, w.NOBODY) if usable and used else w.FINE
        if wrong:
            report(block, warp, lane, site, wrong, kinds.WRITE, address, mbarrier.BYTES, used)
    for at in (cell, cell + SECOND):
        put(at, 0)
        put(at + PHASES, 0)
        put(at + LAST, 0)
        put(at + w.MARKS, 0)


@jit
def _usable(block, warp, lane, address, cell, site):
    """Whether there is an mbarrier that this warp may use; else it is reported."""
    state, record = state_of(block), record_of(block, warp)
    marks = word(cell + w.MARKS)
    if marks & w.GONE or not marks & w.MBARRIER:
        what = w.BLOCK_ENDED if marks & w.GONE else w.MBARRIER_UNMADE
        report(block, warp, lane, site, what, kinds.NONE, address, mbarrier.BYTES, 0)
        return False
    me = (state, word(block + w.AT_WATCH), record, kinds.READ, lane, 0)
    wrong = hazard(me, word(cell), w.WRITTEN, w.NOBODY)
    if wrong:
        report(block, warp, lane, site, wrong, kinds.ATOMIC, address, mbarrier.BYTES, word(cell))
    return wrong == w.FINE


@jit
def _note_use(block, warp, lane, cell, site):
    state, record, used = state_of(block), record_of(block, warp), word(cell + USED)
    row = epoch(state, used >> w.EPOCH_AT)
    if used and row and word(row) != word(record + w.ACTOR):
        put(cell + USED_BEFORE, used)
    own = word(record + w.NOW) << w.EPOCH_AT | (site & 0xFFFF) << w.SITE_AT | lane << w.LANE_AT | w.WRITTEN
    put(cell + USED, own | kinds.READ << w.KIND_AT)


@jit
def _fenced(block, warp, cell):
    """Whether a bulk copy sees the mbarrier that was made: it uses it through the asynchronous proxy, mbarrier.init
    writes through the generic one (CUDA C++ Programming Guide, "Using TMA": the barrier is fenced before the copy).

    Triton fences none, and has a barrier between bytes that are expected and each copy: that counts too.
    """
    if word(cell + ARRIVED) < word(record_of(block, warp) + w.MET):
        return True
    state, base, record = state_of(block), word(block + w.AT_WATCH), record_of(block, warp)
    then = word(cell) >> w.EPOCH_AT
    row = epoch(state, then)
    if row == 0 or proxied((state, base, record, kinds.READ, 0, 0), row, then):
        return True
    return word(base + w.WARPS + w.WARP_BYTES * (word(row) & 0xFF) + w.MBARRIER_FENCE) > then


@jit
def updated(block, warp, lane, address, before, arrivals, owed, what, site):
    """Arrivals, and bytes owed or brought, that met an mbarrier in the state `before`."""
    cell = host_cell(block, address)
    if not _usable(block, warp, lane, address, cell, site):
        return
    if what == kinds.BROUGHT and not _fenced(block, warp, cell):
        report(block, warp, lane, site, w.MBARRIER_UNFENCED, kinds.ATOMIC, address, mbarrier.BYTES, word(cell))
        return
    pending, owing = (before >> _PENDING_AT) & _COUNT, (before >> _OWED_AT) & _OWED
    if arrivals > pending or (owed > 0 and owing <= _COUNT and owing + owed > _COUNT):
        report(block, warp, lane, site, w.MBARRIER_COUNT, kinds.NONE, address, mbarrier.BYTES, word(cell))
        return
    state, record = state_of(block), record_of(block, warp)
    if what != kinds.RELAXED:
        _set_time(cell, tick(state))
    elif _time(cell) < word(record + w.FENCED):
        _set_time(cell, word(record + w.FENCED))
    _note_use(block, warp, lane, cell, site)
    if what != kinds.BROUGHT:
        put(cell + ARRIVED, word(record + w.NOW))
    if owed < 0:
        _link(state, record, cell, word(record + w.OPERATION))
    if pending == arrivals and (owing + owed) & _OWED == 0:
        _set_time(cell + SECOND, _time(cell))
        put(cell + PHASES, word(cell + PHASES) + 1)
        put(cell + SECOND + LAST, word(cell + LAST))
        put(cell + LAST, 0)


@jit
def _link(state, record, cell, stamp):
    """A bulk operation is done when somebody has seen the phase that its bytes end, of one that tells several mbarriers
    (multicast) the phase of any."""
    row = epoch(state, stamp)
    if row == 0 or word(cell + LAST) == stamp:
        return
    if word(row + w.DONE_READ):
        _stand_in(state, record, cell, stamp)
        return
    put(row + w.DONE_READ, word(state + w.CLOCK))
    put(row + w.BEFORE, word(row + w.BEFORE) | word(cell + LAST))
    put(cell + LAST, stamp)


@jit
def _stand_in(state, record, cell, last):
    """An operation and those of its chain before it are done with a phase, too.

    An epoch of its own stands for them in the phase's list: minus the last of them is where others have `DONE_READ`.
    """
    row, there = epoch(state, last), epoch(state, word(cell + LAST))
    if last == 0 or row == 0 or word(row + w.DONE):
        return
    if word(cell + LAST) and there and word(there + w.DONE_READ) == -last:
        return
    stamp = new_epoch(state, record)
    row = epoch(state, stamp)
    put(row + w.DONE_READ, -last)
    put(row + w.BEFORE, word(row + w.BEFORE) | word(cell + LAST))
    put(cell + LAST, stamp)


@jit
def joined(block, warp, address, kind):
    """cp.async.mbarrier.arrive, tcgen05.commit: operations that the warp has not waited for are done with the phase."""
    record = record_of(block, warp)
    last = word(record + w.CHAINS + w.CHAIN * kind + w.HEAD)
    _stand_in(state_of(block), record, host_cell(block, address), last)


@jit
def _seen(state, cell):
    """Somebody has seen that a phase is over."""
    stamp = word(cell + SECOND + LAST)
    if stamp == 0:
        return
    put(cell + SECOND + LAST, 0)
    time = tick(state)
    _set_time(cell + SECOND, time)
    while stamp:
        row = epoch(state, stamp)
        if row == 0:
            break
        if word(row + w.DONE) == 0:
            put(row + w.DONE, time)
        if word(row + w.DONE_READ) < 0:
            finish(state, -word(row + w.DONE_READ), time, False)
        stamp = word(row + w.BEFORE) & _LOW


@jit
def tested(block, warp, lane, address, done, acquires, site):
    """A test of a phase: over, or not."""
    cell, record = host_cell(block, address), record_of(block, warp)
    if not _usable(block, warp, lane, address, cell, site):
        return
    _note_use(block, warp, lane, cell, site)
    if done:
        _seen(state_of(block), cell)
        if acquires:
            learn(record, w.KNOWN, _time(cell + SECOND))
            learn(record, w.KNOWN_CLUSTER, _time(cell + SECOND))
            after(state_of(block), record, _time(cell + SECOND))
        if word(record + w.WAIT_BARRIER) == address:
            put(record + w.WAIT_BARRIER, 0)
        return
    idle(block, warp, lane, site)
    if word(record + w.WAIT_BARRIER) != address:
        put(record + w.WAIT_BARRIER, address)
        put(record + w.WAIT_PHASE, word(cell + PHASES))
    elif word(cell + PHASES) >= word(record + w.WAIT_PHASE) + 2:
        report(block, warp, lane, site, w.MBARRIER_OVERRUN, kinds.NONE, address, mbarrier.BYTES, word(cell))


@jit
def mbarriers(what, block, warp, addresses, mask, a, b, site):
    """One of the operations above for every lane of a mask.

    addresses: of 64 bits, places of the host.  a and b point to words of each lane: counts (init); states before and
    arrivals, after which the bytes owed lie (update); whether the phase is over (test), whose b is 1 if it acquires.
    Of operations that join a phase b is their kind.
    """
    for lane in range(LANES):
        if not (mask >> lane) & 1:
            continue
        at = w.WORD * lane
        address = word(addresses + at)
        if host_cell(block, address) == 0:
            continue
        if what == kinds.MADE:
            made(block, warp, lane, address, word(a + at), site)
        elif what == kinds.INVALIDATED:
            invalid(block, warp, lane, address, site)
        elif what == kinds.JOINED:
            joined(block, warp, address, b)
        elif what == kinds.UPDATED or what == kinds.RELAXED or what == kinds.BROUGHT:
            owed = word(b + w.WORD * LANES + at)
            updated(block, warp, lane, address, word(a + at), word(b + at), owed, what, site)
        else:
            tested(block, warp, lane, address, word(a + at), b, site)
    if what == kinds.UPDATED or what == kinds.BROUGHT:
        advance(state_of(block), record_of(block, warp))
