"""What orders accesses: beginnings of blocks, barriers, fences, groups of asynchronous operations."""

from __future__ import annotations

from nbtc.compiler.jit import jit
from nbtc.executor.control import barriers
from nbtc.executor.emit import access_kinds as kinds
from nbtc.executor.emit.state import BLOCK, LAUNCH, WARP
from nbtc.executor.watch import words as w
from nbtc.executor.watch.accesses import report, used
from nbtc.executor.watch.order import (
    advance,
    alone,
    begin_operation,
    epoch,
    finish,
    found,
    learn,
    learn_all,
    meet,
    record_of,
    state_of,
    tick,
)
from nbtc.executor.watch.shadow import cells_at, granule_at, shared_window
from nbtc.executor.watch.words import int32_at, put, word

(
    BEGIN, LEAVE, MEET, FENCE, FENCE_PROXY, CLUSTER_ARRIVE, CLUSTER_LEAVE, COMMIT, WAIT, WAIT_READ, END, OPERATE,
    PRODUCT_FENCE, REGISTERS, USED, FENCE_MBARRIERS,
) = range(16)  # fmt: skip
ALL_GROUPS = -1  # in place of a number of groups: what is not committed too
_BARRIERS, _INDEX = BLOCK.offset("barriers"), BLOCK.offset("index")
_WARP_INDEX = WARP.offset("index")
_X, _LIVE, _WAITING, _THREADS = (
    BLOCK.offset("x"), BLOCK.offset("live_threads"), WARP.offset("waiting"), LAUNCH.offset("threads")
)  # fmt: skip
_LANES, _WAITERS = WARP.offset("live"), WARP.offset("barrier_waiters")
_RELEASED_IN = WARP.offset("released_in")
_BLOCK_BYTES, _WARP_BYTES = BLOCK.size, WARP.size
_GENERATION, _NOTED = BLOCK.offset("cluster_generation"), WARP.offset("cluster_noted")
_GRID, _CLUSTER = LAUNCH.offset("grid_x"), LAUNCH.offset("cluster_x")
_ARRIVED, _PHASE, _EXPECTED, _BYTES = barriers.ARRIVED, barriers.PHASE, barriers.EXPECTED, barriers.BARRIER_BYTES
_LOW = 0xFFFFFFFF


@jit
def begin(block, reserved):
    """A block begins: nothing is in its shared memory but for reserved bytes, and its warps know of nobody."""
    state, base, launch = state_of(block), word(block + w.AT_WATCH), word(block + w.AT_LAUNCH)
    warps = int32_at(launch + w.AT_WARPS)
    granules = (int32_at(launch + w.AT_SHARED_BYTES) // w.GRANULE_BYTES + 1) * w.GRANULE
    for at in range(base, base + w.WARPS + warps * w.WARP_BYTES, w.WORD):
        put(at, 0)
    for at in range(base + w.GRANULES, base + w.GRANULES + granules, w.WORD):
        put(at, 0)
    for n in range(reserved // w.GRANULE_BYTES):
        put(base + w.GRANULES + n * w.GRANULE + w.MARKS, w.WRITTEN)
    cluster = 0
    for axis in range(2, -1, -1):
        size = int32_at(launch + _CLUSTER + 4 * axis)
        cluster = cluster * (int32_at(launch + _GRID + 4 * axis) // size) + int32_at(block + _X + 4 * axis) // size
    for n in range(warps):
        record = base + w.WARPS + w.WARP_BYTES * n
        put(record + w.ACTOR, word(block + _INDEX) << 8 | n)
        put(record + w.CLUSTER, cluster)
        put(record + w.SETS_DIRTY, -1)
        meet(state, record)


@jit
def arrive(block, warp, barrier, new, count, site, aligned):
    """Lanes of a warp are about to arrive at a barrier (new: their mask; count: how many threads it is for)."""
    if new == 0:
        return
    state, record, base = state_of(block), record_of(block, warp), word(block + w.AT_WATCH)
    waiting, lane = int32_at(warp + _WAITING) & _LOW, 0
    while not (new >> lane) & 1:
        lane += 1
    if aligned and waiting and word(record + w.BARRIER_SITE) != site + 1:
        _misused(block, warp, lane, site, w.BARRIER_APART, word(record + w.BARRIER_SITE) - 1)
    elif count == 0 and int32_at(block + _LIVE) < int32_at(word(block + w.AT_LAUNCH) + _THREADS):
        _misused(block, warp, lane, site, w.BARRIER_LEFT, 0)
    elif count % 32 or (int32_at(barrier + _ARRIVED) and int32_at(barrier + _EXPECTED) != count):
        _misused(block, warp, lane, site, w.BARRIER_COUNT, word(record + w.BARRIER_SITE) - 1)
    put(record + w.BARRIER_SITE, site + 1)
    if word(base + w.HEAD_GRID) < word(record + w.KNOWN_GRID):
        put(base + w.HEAD_GRID, word(record + w.KNOWN_GRID))
    if word(base + w.HEAD_CLUSTER) < word(record + w.KNOWN_CLUSTER):
        put(base + w.HEAD_CLUSTER, word(record + w.KNOWN_CLUSTER))
    if word(base + w.HEAD_FENCED) < word(record + w.FENCED):
        put(base + w.HEAD_FENCED, word(record + w.FENCED))
    if word(base + w.HEAD_PROXY) < word(record + w.PROXY_KNOWN):
        put(base + w.HEAD_PROXY, word(record + w.PROXY_KNOWN))
    if word(base + w.HEAD_SEEN) < word(record + w.SEEN):
        put(base + w.HEAD_SEEN, word(record + w.SEEN))
    learn_all(record, word(record + w.SEEN))
    meet(state, record)


@jit
def _misused(block, warp, lane, site, what, other):
    state = found(block, warp, lane, site, what)
    if state:
        put(state + w.OTHER, max(other, 0) << w.SITE_AT)


@jit
def _time_of_phase(state, phase, at):
    """When a phase of a barrier ended, of which `at` tells the last two that warps went on after.

    Others may have used the barrier again before a warp goes on: it learns what was done before its own phase ended.
    """
    if word(at + w.HEAD_EARLIER_PHASES) == phase + 1:
        return word(at + w.HEAD_EARLIER)
    if word(at + w.HEAD_PHASES) != phase + 1:
        put(at + w.HEAD_EARLIER_PHASES, word(at + w.HEAD_PHASES))
        put(at + w.HEAD_EARLIER, word(at + w.HEAD_BARRIERS))
        put(at + w.HEAD_PHASES, phase + 1)
        put(at + w.HEAD_BARRIERS, tick(state))
    return word(at + w.HEAD_BARRIERS)


@jit
def leave(block, warp, barrier, released):
    """Lanes of a warp go on after a barrier."""
    if released == 0:
        return
    state, record, base = state_of(block), record_of(block, warp), word(block + w.AT_WATCH)
    number = (barrier - block - _BARRIERS) // _BYTES
    learn(record, w.KNOWN, _time_of_phase(state, int32_at(warp + _RELEASED_IN), base + w.WORD * number))
    learn(record, w.KNOWN_CLUSTER, word(base + w.HEAD_CLUSTER))
    learn(record, w.KNOWN_GRID, word(base + w.HEAD_GRID))
    learn(record, w.FENCED, word(base + w.HEAD_FENCED))
    # not yet known, but to be after a fence of any thread here: two fence.sc, each on the other side of a barrier from
    # the atomics that saw each other, can be in one order only
    learn(record, w.SEEN, word(base + w.HEAD_SEEN))
    learn(record, w.PROXY_KNOWN, word(base + w.HEAD_PROXY))
    meet(state, record)


@jit
def _barrier_site(block, number):
    """Where a warp waits at a barrier, or has arrived at one."""
    arrived = 0
    for n in range(int32_at(word(block + w.AT_LAUNCH) + w.AT_WARPS)):
        site = word(word(block + w.AT_WATCH) + w.WARPS + w.WARP_BYTES * n + w.BARRIER_SITE)
        if int32_at(block + _BLOCK_BYTES + _WARP_BYTES * n + _WAITERS + 4 * number):
            return site - 1
        arrived = max(arrived, site)
    return arrived - 1


@jit
def end(block, warp, site):
    """Threads end: others must not wait for them at a barrier, nor use the memory of a block that is over."""
    for number in range(w.BARRIERS):
        barrier = block + _BARRIERS + _BYTES * number
        if int32_at(barrier + _ARRIVED) and int32_at(barrier + _EXPECTED) == 0:
            _misused(block, warp, 0, site, w.BARRIER_LEFT, _barrier_site(block, number))
    if int32_at(block + _LIVE) == 0:
        _compare_groups(block, warp)
        if not alone(block):
            _look_for_peers(block, warp, site)
            _give_up(block)


@jit
def _compare_groups(block, warp):
    """A block is over: the four warps of each of its warpgroups have issued the same products."""
    warps = word(block + w.AT_WATCH) + w.WARPS
    for n in range(int32_at(word(block + w.AT_LAUNCH) + w.AT_WARPS)):
        mine = warps + w.WARP_BYTES * n
        for other in range(n & ~3, (n & ~3) + 4):
            there = other < w.MOST_WARPS and word(warps + w.WARP_BYTES * other + w.ISSUED) == word(mine + w.ISSUED)
            if word(mine + w.ISSUED) and not there:
                state = found(block, warp, 0, word(mine + w.LAST_ISSUED), w.PRODUCT_ALONE)
                if state:
                    put(state + w.WHO, word(mine + w.ACTOR))


@jit
def _look_for_peers(block, warp, site):
    """A block is over: what others of its cluster did in its shared memory was before that, as one of its warps knows.

    Had they come later, there would have been no memory: that they came first is nothing to rely on.
    """
    base, known = word(block + w.AT_WATCH), 0
    for n in range(int32_at(word(block + w.AT_LAUNCH) + w.AT_WARPS)):
        known = max(known, word(base + w.WARPS + w.WARP_BYTES * n + w.KNOWN_CLUSTER))
    here = shared_window(block, 0)
    for at in range(0, here[1], w.GRANULE_BYTES):
        granule = granule_at(here, at)
        if not word(granule + w.MARKS) & w.SPLIT:
            _look_for_peer(block, warp, site, granule, at, known)
            continue
        for n in range(w.CELLS):
            cell = cells_at(here, at) + w.CELL * n
            if not word(cell + w.MARKS) & w.MBARRIER:  # whose words are others
                _look_for_peer(block, warp, site, cell, at + w.CELL_BYTES * n, known)


@jit
def _look_for_peer(block, warp, site, cell, at, known):
    """As above, for one granule or cell.  What is asynchronous is for those that wait for it."""
    for place in range(cell, cell + w.MARKS, w.WORD):
        slot = word(place)
        if slot >> w.EPOCH_AT <= known or (kinds.GROUPED >> ((slot >> w.KIND_AT) & 15)) & 1:
            continue
        row = epoch(state_of(block), slot >> w.EPOCH_AT)
        if row and word(row) >> 8 != word(block + _INDEX):
            address = word(block + w.AT_SHARED) + at
            report(block, warp, 0, site, w.BLOCK_ENDED, kinds.NONE, address, w.CELL_BYTES, slot)


@jit
def _give_up(block):
    """A block is over: what is left of its shared memory is not for the others of its cluster."""
    launch, base = word(block + w.AT_LAUNCH), word(block + w.AT_WATCH) + w.GRANULES
    granules = int32_at(launch + w.AT_SHARED_BYTES) // w.GRANULE_BYTES + 1
    cells = base + w.GRANULE * granules
    for at in range(base + w.MARKS, cells, w.GRANULE):
        put(at, word(at) | w.GONE)
    for at in range(cells + w.MARKS, cells + w.CELLS * w.CELL * granules, w.CELL):
        put(at, word(at) | w.GONE)


@jit
def fence(block, warp):
    """A memory fence: what the warp has seen released it now knows, and what it did it may release."""
    state, record = state_of(block), record_of(block, warp)
    learn_all(record, word(record + w.SEEN))
    put(record + w.FENCED, tick(state))
    meet(state, record)


@jit
def fence_proxy(block, warp):
    """A fence between the generic and the asynchronous proxy."""
    state, record = state_of(block), record_of(block, warp)
    learn(record, w.PROXY_KNOWN, word(record + w.KNOWN))
    advance(state, record)
    put(record + w.PROXY_FENCE, word(record + w.NOW))


@jit
def cluster_arrive(block, warp, lanes, aligned, site):
    """Lanes of a warp arrive at their cluster's barrier."""
    state, record = state_of(block), record_of(block, warp)
    if word(record + w.CLUSTER_LANES) & lanes:
        _misused(block, warp, 0, site, w.CLUSTER_TWICE, 0)
    elif aligned and lanes != int32_at(warp + _LANES) & _LOW:
        _misused(block, warp, 0, site, w.BARRIER_APART, 0)
    put(record + w.CLUSTER_LANES, word(record + w.CLUSTER_LANES) | lanes)
    leader = word(word(block + w.AT_PEERS))
    put(word(leader + w.AT_WATCH) + w.HEAD_TIME + w.WORD * (int32_at(leader + _GENERATION) & 1), tick(state))
    learn_all(record, word(record + w.SEEN))
    meet(state, record)


@jit
def cluster_leave(block, warp, lanes):
    """Lanes of a warp go on after their cluster's barrier."""
    state, record = state_of(block), record_of(block, warp)
    put(record + w.CLUSTER_LANES, word(record + w.CLUSTER_LANES) & ~lanes)
    leader = word(word(block + w.AT_PEERS))
    time = word(word(leader + w.AT_WATCH) + w.HEAD_TIME + w.WORD * (int32_at(warp + _NOTED) & 1))
    learn(record, w.KNOWN, time)
    learn(record, w.KNOWN_CLUSTER, time)
    meet(state, record)


# --- groups ---------------------------------------------------------------------------------------------------------
@jit
def commit(block, warp, kind):
    """Operations since the last commit become a group."""
    chain = record_of(block, warp) + w.CHAINS + w.CHAIN * kind
    count = word(chain + w.COUNT)
    put(chain + w.GROUPS + w.WORD * (count % w.RING), word(chain + w.HEAD))
    put(chain + w.COUNT, count + 1)
    if kind == kinds.PRODUCTS:
        record = record_of(block, warp)
        put(record + w.GROUP_SETS + w.WORD * (count % w.RING), word(record + w.SETS_NOW))
        put(record + w.SETS_NOW, 0)


@jit
def wait(block, warp, kind, most, read_only):
    """All but the latest `most` groups are done."""
    state, record = state_of(block), record_of(block, warp)
    chain = record + w.CHAINS + w.CHAIN * kind
    count = word(chain + w.COUNT)
    if most == ALL_GROUPS:
        last = word(chain + w.HEAD)
    elif most < count and most < w.RING:
        last = word(chain + w.GROUPS + w.WORD * ((count - 1 - most) % w.RING))
    else:
        return
    time = tick(state)
    finish(state, last, time, read_only)
    if kind == kinds.PRODUCTS:
        put(record + w.PRODUCTS_SEEN, time)
        if most != ALL_GROUPS:
            _finish_for_peers(block, warp, count - 1 - most, time)
    advance(state, record)


@jit
def _finish_for_peers(block, warp, group, time):
    """A product is one operation of four warps: where one has seen that it is done, it is done with all operands.

    The others have issued what is in the group, and perhaps not committed it yet.
    """
    state, chains = state_of(block), word(block + w.AT_WATCH) + w.WARPS + w.CHAINS + w.CHAIN * kinds.PRODUCTS
    mine = int32_at(warp + _WARP_INDEX)
    first = mine & ~3
    for n in range(first, min(first + 4, int32_at(word(block + w.AT_LAUNCH) + w.AT_WARPS))):
        chain = chains + w.WARP_BYTES * n
        count = word(chain + w.COUNT)
        if n == mine or count < group or count - group > w.RING:
            continue
        last = word(chain + w.HEAD) if count == group else word(chain + w.GROUPS + w.WORD * (group % w.RING))
        finish(state, last, time, True)


@jit
def wait_products(block, warp, most):
    """The registers of all but the latest groups of products may be used again."""
    record = record_of(block, warp)
    count = word(record + w.CHAINS + w.CHAIN * kinds.PRODUCTS + w.COUNT)
    pending = word(record + w.SETS_NOW)
    for n in range(max(0, count - min(most, w.RING)), count):
        pending |= word(record + w.GROUP_SETS + w.WORD * (n % w.RING))
    put(record + w.SETS_PENDING, pending)
    put(record + w.SETS_MOVED, word(record + w.SETS_MOVED) & pending)


@jit
def event(what, block, warp, a, b, site):
    """One of the events above, with up to two numbers."""
    if what == BEGIN:
        begin(block, a)
    elif what == MEET:
        meet(state_of(block), record_of(block, warp))
    elif what == FENCE:
        fence(block, warp)
    elif what == FENCE_PROXY:
        fence_proxy(block, warp)
    elif what == FENCE_MBARRIERS:
        fence(block, warp)
        put(record_of(block, warp) + w.MBARRIER_FENCE, word(record_of(block, warp) + w.NOW))
    elif what == LEAVE:
        leave(block, warp, a, b)
    elif what == END:
        end(block, warp, site)
    elif what == CLUSTER_ARRIVE:
        cluster_arrive(block, warp, a, b, site)
    elif what == CLUSTER_LEAVE:
        cluster_leave(block, warp, a)
    elif what == COMMIT:
        commit(block, warp, a)
    elif what in (WAIT, WAIT_READ):
        wait(block, warp, a, b, what == WAIT_READ)
        if a == kinds.PRODUCTS:
            wait_products(block, warp, b)
            meet(state_of(block), record_of(block, warp))
    elif what == OPERATE:
        put(record_of(block, warp) + w.OPERATION, begin_operation(block, warp, a))
    elif what == REGISTERS:
        _misused(block, warp, 0, site, a, b)
    elif what == USED:
        used(block, warp, a, site)
    elif what == PRODUCT_FENCE:
        put(record_of(block, warp) + w.SETS_DIRTY, 0)
