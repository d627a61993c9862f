"""What orders accesses: beginnings of blocks, barriers, fences, groups of asynchronous operations."""

from __future__ import annotations

from nbtc.compiler.jit import jit
from nbtc.executor import barriers
from nbtc.executor.state import BLOCK, LAUNCH, WARP
from nbtc.executor.watch.order import (
    advance,
    found,
    learn,
    learn_all,
    record_of,
    segment,
    state_of,
    tick,
)
from nbtc.executor.watch.words import (
    ACTOR,
    AT_LAUNCH,
    AT_PEERS,
    AT_SHARED_BYTES,
    AT_WARPS,
    AT_WATCH,
    BARRIERS,
    BARRIER_APART,
    BARRIER_COUNT,
    BARRIER_LEFT,
    BARRIER_SITE,
    BEFORE,

    CELL,
    CELL_BYTES,
    CELLS,
    CHAIN,
    CHAINS,
    CLUSTER,

    COUNT,
    DONE,
    DONE_READ,
    FENCED,
    GROUPS,
    HEAD,
    HEAD_BARRIERS,
    HEAD_CLUSTER,
    HEAD_FENCED,
    HEAD_GRID,
    HEAD_PHASES,
    HEAD_PROXY,
    HEAD_TIME,
    KNOWN,
    KNOWN_CLUSTER,
    KNOWN_GRID,
    NOW,
    OTHER,
    PROXY_FENCE,
    PROXY_KNOWN,
    RING,
    SEEN,
    SITE_AT,
    WARP_BYTES,
    WARPS,
    WORD,
    half,
    put,
    word,
)

BEGIN, ARRIVE, LEAVE, MEET, FENCE, FENCE_PROXY, CLUSTER_ARRIVE, CLUSTER_LEAVE, COMMIT, WAIT, WAIT_READ, END = range(12)
ALL_GROUPS = -1  # in place of a number of groups: what is not committed too
_BARRIERS, _INDEX = BLOCK.offset("barriers"), BLOCK.offset("index")
_X, _LIVE, _WAITING, _THREADS = (
    BLOCK.offset("x"), BLOCK.offset("live_threads"), WARP.offset("waiting"), LAUNCH.offset("threads")
)  # fmt: skip
_GRID, _CLUSTER = LAUNCH.offset("grid_x"), LAUNCH.offset("cluster_x")
_ARRIVED, _PHASE, _EXPECTED, _BYTES = barriers.ARRIVED, barriers.PHASE, barriers.EXPECTED, barriers.BARRIER_BYTES
_LOW = 0xFFFFFFFF


@jit
def begin(block):
    """A block begins: nothing is in its shared memory, and its warps know of nobody."""
    state, base, launch = state_of(block), word(block + AT_WATCH), word(block + AT_LAUNCH)
    warps = half(launch + AT_WARPS)
    cells = (half(launch + AT_SHARED_BYTES) + CELL_BYTES - 1) // CELL_BYTES * CELL
    for at in range(base, base + WARPS + warps * WARP_BYTES, WORD):
        put(at, 0)
    for at in range(base + CELLS, base + CELLS + cells, WORD):
        put(at, 0)
    cluster = 0
    for axis in range(2, -1, -1):
        size = half(launch + _CLUSTER + 4 * axis)
        cluster = cluster * (half(launch + _GRID + 4 * axis) // size) + half(block + _X + 4 * axis) // size
    for n in range(warps):
        record = base + WARPS + WARP_BYTES * n
        put(record + ACTOR, word(block + _INDEX) << 8 | n)
        put(record + CLUSTER, cluster)
        advance(state, record)


@jit
def arrive(block, warp, barrier, new, count, site, aligned):
    """Lanes of a warp are about to arrive at a barrier (new: their mask; count: how many threads it is for)."""
    if new == 0:
        return
    state, record, base = state_of(block), record_of(block, warp), word(block + AT_WATCH)
    waiting, lane = half(warp + _WAITING) & _LOW, 0
    while not (new >> lane) & 1:
        lane += 1
    if aligned and waiting and word(record + BARRIER_SITE) != site + 1:
        _misused(block, warp, lane, site, BARRIER_APART, word(record + BARRIER_SITE) - 1)
    elif count == 0 and half(block + _LIVE) < half(word(block + AT_LAUNCH) + _THREADS):
        _misused(block, warp, lane, site, BARRIER_LEFT, 0)
    elif count % 32 or (half(barrier + _ARRIVED) and half(barrier + _EXPECTED) != count):
        _misused(block, warp, lane, site, BARRIER_COUNT, word(record + BARRIER_SITE) - 1)
    put(record + BARRIER_SITE, site + 1)
    if word(base + HEAD_GRID) < word(record + KNOWN_GRID):
        put(base + HEAD_GRID, word(record + KNOWN_GRID))
    if word(base + HEAD_CLUSTER) < word(record + KNOWN_CLUSTER):
        put(base + HEAD_CLUSTER, word(record + KNOWN_CLUSTER))
    if word(base + HEAD_FENCED) < word(record + FENCED):
        put(base + HEAD_FENCED, word(record + FENCED))
    if word(base + HEAD_PROXY) < word(record + PROXY_KNOWN):
        put(base + HEAD_PROXY, word(record + PROXY_KNOWN))
    learn_all(record, word(record + SEEN))
    advance(state, record)


@jit
def _misused(block, warp, lane, site, what, other):
    state = found(block, warp, lane, site, what)
    if state:
        put(state + OTHER, max(other, 0) << SITE_AT)


@jit
def leave(block, warp, barrier, released):
    """Lanes of a warp go on behind a barrier."""
    if released == 0:
        return
    state, record, base = state_of(block), record_of(block, warp), word(block + AT_WATCH)
    number = (barrier - block - _BARRIERS) // _BYTES
    phase, at = half(barrier + _PHASE), base + WORD * number
    if word(at + HEAD_PHASES) != phase:
        put(at + HEAD_PHASES, phase)
        put(at + HEAD_BARRIERS, tick(state))
    learn(record, KNOWN, word(at + HEAD_BARRIERS))
    learn(record, KNOWN_CLUSTER, word(base + HEAD_CLUSTER))
    learn(record, KNOWN_GRID, word(base + HEAD_GRID))
    learn(record, FENCED, word(base + HEAD_FENCED))
    learn(record, PROXY_KNOWN, word(base + HEAD_PROXY))
    advance(state, record)


@jit
def end(block, warp, site):
    """Threads end: others must not wait for them at a barrier."""
    for number in range(BARRIERS):
        barrier = block + _BARRIERS + _BYTES * number
        if half(barrier + _ARRIVED) and half(barrier + _EXPECTED) == 0:
            _misused(block, warp, 0, site, BARRIER_LEFT, 0)


@jit
def fence(block, warp):
    """A memory fence: what the warp has seen released it now knows, and what it did it may release."""
    state, record = state_of(block), record_of(block, warp)
    learn_all(record, word(record + SEEN))
    put(record + FENCED, tick(state))
    advance(state, record)


@jit
def fence_proxy(block, warp):
    """A fence between the generic and the asynchronous proxy."""
    state, record = state_of(block), record_of(block, warp)
    learn(record, PROXY_KNOWN, word(record + KNOWN))
    advance(state, record)
    put(record + PROXY_FENCE, word(record + NOW))


@jit
def cluster_arrive(block, warp):
    """A warp arrives at its cluster's barrier."""
    state, record = state_of(block), record_of(block, warp)
    first = word(word(word(block + AT_PEERS)) + AT_WATCH)
    put(first + HEAD_TIME, tick(state))
    learn_all(record, word(record + SEEN))
    advance(state, record)


@jit
def cluster_leave(block, warp):
    """A warp goes on behind its cluster's barrier."""
    state, record = state_of(block), record_of(block, warp)
    time = word(word(word(word(block + AT_PEERS)) + AT_WATCH) + HEAD_TIME)
    learn(record, KNOWN, time)
    learn(record, KNOWN_CLUSTER, time)
    advance(state, record)


# --- groups ---------------------------------------------------------------------------------------------------------
@jit
def commit(block, warp, kind):
    """Operations since the last commit become a group."""
    chain = record_of(block, warp) + CHAINS + CHAIN * kind
    count = word(chain + COUNT)
    put(chain + GROUPS + WORD * (count % RING), word(chain + HEAD))
    put(chain + COUNT, count + 1)


@jit
def finish(block, warp, stamp, read_only):
    """Operations up to a segment are done: all of its chain that are not yet."""
    state = state_of(block)
    time = tick(state)
    while stamp:
        row = segment(state, stamp)
        if row == 0 or word(row + (DONE_READ if read_only else DONE)):
            break
        put(row + DONE_READ, time)
        if not read_only:
            put(row + DONE, time)
        stamp = word(row + BEFORE) & _LOW
    advance(state, record_of(block, warp))


@jit
def wait(block, warp, kind, most, read_only):
    """All but the latest `most` groups are done."""
    chain = record_of(block, warp) + CHAINS + CHAIN * kind
    count = word(chain + COUNT)
    if most == ALL_GROUPS:
        finish(block, warp, word(chain + HEAD), read_only)
    elif most < count and most < RING:
        finish(block, warp, word(chain + GROUPS + WORD * ((count - 1 - most) % RING)), read_only)


@jit
def event(what, block, warp, a, b, site):
    """One of the events above, with up to two numbers."""
    if what == BEGIN:
        begin(block)
    elif what == MEET:
        advance(state_of(block), record_of(block, warp))
    elif what == FENCE:
        fence(block, warp)
    elif what == FENCE_PROXY:
        fence_proxy(block, warp)
    elif what == LEAVE:
        leave(block, warp, a, b)
    elif what == END:
        end(block, warp, site)
    elif what == CLUSTER_ARRIVE:
        cluster_arrive(block, warp)
    elif what == CLUSTER_LEAVE:
        cluster_leave(block, warp)
    elif what == COMMIT:
        commit(block, warp, a)
    elif what == WAIT or what == WAIT_READ:
        wait(block, warp, a, b, what == WAIT_READ)
