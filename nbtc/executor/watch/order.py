"""Which accesses come before which, as far as a warp can know.

A barrier tells its warps everything that happened in the block before it was complete, an acquire what the released
word's time covers.  That is more than happens-before promises, where third parties are concerned, and never less: a
race may be missed, but none is made up.
"""

from __future__ import annotations

from nbtc.compiler.jit import jit
from nbtc.executor.emit.errors import ErrorKind
from nbtc.executor.emit.state import BLOCK, LAUNCH, WARP
from nbtc.executor.watch import words as w
from nbtc.executor.watch.words import int32_at, put, put_int32, word

_INDEX = WARP.offset("index")
_BLOCK = BLOCK.offset("index")
_FAILED, _STOP, _KIND, _SITE, _ERROR_BLOCK, _THREAD = (
    LAUNCH.offset(n) for n in ("failed", "stop", "error_kind", "error_site", "error_block", "error_thread")
)
_HAZARD, _DEADLOCK = int(ErrorKind.HAZARD), int(ErrorKind.DEADLOCK)
_CLUSTER_X = LAUNCH.offset("cluster_x")
_LOW = 0xFFFFFFFF
_WAIT_SITE = WARP.offset("wait_site")


@jit(inline=True)
def state_of(block):
    """The launch's words, from a block's structure."""
    return word(word(block + w.AT_LAUNCH) + w.AT_STATE)


@jit(inline=True)
def record_of(block, warp):
    """A warp's words, from its structure."""
    return word(block + w.AT_WATCH) + w.WARPS + w.WARP_BYTES * int32_at(warp + _INDEX)


@jit(inline=True)
def tick(state):
    """A new time, later than all before."""
    now = word(state + w.CLOCK) + 1
    put(state + w.CLOCK, now)
    put(state + w.IDLE, 0)
    return now


@jit
def epoch(state, stamp):
    """The row of an epoch, 0 when it is too long ago."""
    most = word(state + w.MOST_EPOCHS)
    if stamp + most <= word(state + w.CLOCK):
        return 0
    return word(state + w.EPOCHS) + w.EPOCH * (stamp & (most - 1))


@jit
def alone(block):
    """Whether a block is a cluster by itself."""
    return cluster_blocks(block) == 1


@jit
def cluster_blocks(block):
    """Blocks of its cluster."""
    first = word(block + w.AT_LAUNCH) + _CLUSTER_X
    return int32_at(first) * int32_at(first + 4) * int32_at(first + 8)


@jit
def new_epoch(state, record):
    """A new epoch of a warp, not yet the one it is in."""
    stamp = tick(state)
    row = epoch(state, stamp)
    put(row, word(record + w.ACTOR))
    put(row + w.BEFORE, word(record + w.CLUSTER) << 32)
    put(row + w.DONE, 0)
    put(row + w.DONE_READ, 0)
    return stamp


@jit
def advance(state, record):
    """The warp goes on in a new epoch."""
    put(record + w.NOW, new_epoch(state, record))


@jit
def meet(state, record):
    """The warp goes on in a new epoch, and each of its lanes knows what the others did before."""
    advance(state, record)
    put(record + w.MET, word(record + w.NOW))


@jit
def begin_operation(block, warp, kind):
    """The epoch of a new asynchronous operation, which belongs to the next group of its kind (none: -1)."""
    state, record = state_of(block), record_of(block, warp)
    stamp = new_epoch(state, record)
    if kind >= 0:
        chain, row = record + w.CHAINS + w.CHAIN * kind, epoch(state, stamp)
        put(row + w.BEFORE, word(row + w.BEFORE) | word(chain + w.HEAD))
        put(chain + w.HEAD, stamp)
    return stamp


@jit
def finish(state, stamp, time, read_only):
    """The operations of a group and those before it are done since a time, or at least have read what they read."""
    while stamp:
        row = epoch(state, stamp)
        if row == 0 or word(row + (w.DONE_READ if read_only else w.DONE)):
            break
        if word(row + w.DONE_READ) == 0:
            put(row + w.DONE_READ, time)
        if not read_only:
            put(row + w.DONE, time)
        stamp = word(row + w.BEFORE) & _LOW


@jit
def learn(record, field, time):
    """The warp knows everything up to a time: of its block, or of more."""
    if word(record + field) < time:
        put(record + field, time)


@jit
def learn_all(record, time):
    """The warp knows everything up to a time."""
    learn(record, w.KNOWN, time)
    learn(record, w.KNOWN_CLUSTER, time)
    learn(record, w.KNOWN_GRID, time)


@jit
def after(state, record, time):
    """The warp acts after all that it knows of, up to a time: in a new epoch, unless its own is one that began later.

    Others who know that time must not know what this warp is yet to do.
    """
    if word(record + w.NOW) <= time:
        advance(state, record)


@jit
def knows(record, row, time):
    """Whether a warp knows what the owner of an epoch had done at a time."""
    actor, mine = word(row), word(record + w.ACTOR)
    if actor >> 8 == mine >> 8:
        return time <= word(record + w.KNOWN)
    if word(row + w.BEFORE) >> 32 == word(record + w.CLUSTER):
        return time <= word(record + w.KNOWN_CLUSTER)
    return time <= word(record + w.KNOWN_GRID)


@jit
def found(block, warp, lane, site, hazard):
    """Record a hazard if it is the launch's first error, and stop the launch; 0 if it was not.

    What is suspected stays the first error (`suspect`).
    """
    launch = word(block + w.AT_LAUNCH)
    if int32_at(launch + _FAILED):
        return 0
    state = word(launch + w.AT_STATE)
    put_int32(launch + _FAILED, 1)
    put_int32(launch + _KIND, _HAZARD)
    put_int32(launch + _SITE, site)
    put_int32(launch + _ERROR_BLOCK, word(block + _BLOCK))
    put_int32(launch + _THREAD, 32 * int32_at(warp + _INDEX) + lane)
    put_int32(launch + _STOP, 1)
    if word(state + w.SUSPECTED):
        return 0
    _note(state, block, warp, site, hazard)
    return state


@jit
def _note(state, block, warp, site, hazard):
    put(state + w.HAZARD, hazard)
    put(state + w.SITE, site)
    put(state + w.WHO, word(record_of(block, warp) + w.ACTOR))


@jit
def suspect(block, warp, site):
    """Note a use of unwritten memory if it is the launch's first error, and let the launch go on; 0 if it was not."""
    launch = word(block + w.AT_LAUNCH)
    state = word(launch + w.AT_STATE)
    if word(state + w.SUSPECTED) or int32_at(launch + _FAILED):
        return 0
    put(state + w.SUSPECTED, w.MOST_AFTER)
    _note(state, block, warp, site, w.UNWRITTEN)
    return state


@jit(inline=True)
def after_suspicion(block, warp, site):
    """An access after such a use: stop the launch when there were many."""
    state = state_of(block)
    left = word(state + w.SUSPECTED)
    if left > 1:
        put(state + w.SUSPECTED, left - 1)
    elif left:
        found(block, warp, 0, site, w.UNWRITTEN)


@jit
def idle(block, warp, lane, site):
    """A warp has looked at a flag or an mbarrier; a deadlock if nobody does anything else any more."""
    launch = word(block + w.AT_LAUNCH)
    state = word(launch + w.AT_STATE)
    count = word(state + w.IDLE) + 1
    put(state + w.IDLE, count)
    put_int32(warp + _WAIT_SITE, site)
    if count >= w.MOST_IDLE and not int32_at(launch + _FAILED):
        found(block, warp, lane, site, w.FINE)
        put_int32(launch + _KIND, _DEADLOCK)
