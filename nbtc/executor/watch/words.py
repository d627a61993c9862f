"""What the checked mode remembers, in 64-bit words.

Time is counted in epochs.  A warp begins a new one whenever others may come to know what it did: at barriers, fences
and releases.  An epoch's number is also its time: every epoch that began before has a smaller one.

Every 4 bytes of memory have a cell of shadow memory: the last write, two reads since, and a word of marks.  An access
in a cell is one word, from the low end: which of the 4 bytes (4 bits), kind (4), lane (5), whether several lanes share
it (1), lanes of a granule (2), place in the program (16), epoch (32).  Every 16 bytes have a granule, which begins like
a cell and stands for four of them as long as they are alike (`shadow`); its lanes are one (0), that one and its
neighbour with 8 bytes each (1), or that one and the next three with 4 (2).
"""

from __future__ import annotations

import numpy as np
from numba import types

from nbtc.executor.emit.access_kinds import GROUPS as KINDS_OF_GROUPS
from nbtc.executor.emit.state import BLOCK, LAUNCH
from nbtc.executor.transfer.tma import accessors

word, put = accessors(types.int64)
int32_at, put_int32 = accessors(types.int32)
octet, _ = accessors(types.uint8)

WORD = 8
CELL_BYTES, GRANULE_BYTES = 4, 16  # of memory that one cell, one granule describes
CELLS = GRANULE_BYTES // CELL_BYTES
# bytes of a granule: last write, two reads, marks; of a cell: these, and whose bytes each of the three are
GRANULE, CELL = 4 * WORD, 8 * WORD
MARKS, BYTES_AT = 3 * WORD, 4 * WORD
# whose a byte is, a byte each: its lane, or several lanes of one warp in one epoch
SEVERAL, FOUR = 32, 0x01010101
NOBODY = np.int64(SEVERAL * FOUR)  # typed, as all other owners: of a literal, `hazard` would be compiled once more
# marks: which bytes hold something (4 bits), an mbarrier, freed memory, of a granule whether its cells count in its
# place, memory of a block that has ended; from bit 32 on the time of the last release
WRITTEN, MBARRIER, FREED, SPLIT, GONE = 15, 16, 32, 64, 128
UNUSABLE = MBARRIER | FREED | GONE  # for plain accesses
EPOCH_AT, SITE_AT, LANES_AT, SHARED_AT, LANE_AT, KIND_AT = 32, 16, 14, 13, 8, 4
MOST_SITES = 1 << 16

GLOBAL, SHARED, GENERIC = range(3)  # spaces

# hazards
(
    FINE, RACE, UNWRITTEN, NOT_WAITED, NO_PROXY_FENCE, FREED_MEMORY, BARRIER_APART, BARRIER_COUNT, BARRIER_LEFT,
    PRODUCT_PENDING, PRODUCT_UNFENCED, MBARRIER_UNMADE, MBARRIER_COUNT, MBARRIER_OVERRUN, MBARRIER_REUSED, LEAK,
    BLOCK_ENDED, CLUSTER_TWICE, MASK_WITHOUT, PRODUCT_ALONE, MBARRIER_UNFENCED,
) = range(21)  # fmt: skip

# the launch's words (byte offsets)
(
    CLOCK, HAZARD, SITE, WHO, LANE, KIND, ADDRESS, SIZE, OTHER, EPOCHS, MOST_EPOCHS, REGIONS, REGION_COUNT, IDLE,
    SUSPECTED, RECENT,
) = range(0, 16 * WORD, WORD)  # fmt: skip
# where each access' addresses and values are passed: one place for all, as each instruction's own would be another
# 256 bytes or more that the first-level cache has to hold
MOST_BYTES = 32  # of a lane's access, as PTX has none of more
ADDRESSES = 16 * WORD
VALUES = ADDRESSES + 32 * WORD
STATE_WORDS = VALUES // WORD + 32 * MOST_BYTES // WORD
REGION = 4 * WORD  # first byte, bytes (both multiples of a granule's), granules, cells
EPOCH = 4 * WORD  # block << 8 | warp, cluster << 32 | the epoch before in its group, when done, when read (of a
# product: when one of the warpgroup's warps saw that it is done)
BEFORE, DONE, DONE_READ = WORD, 2 * WORD, 3 * WORD
# fruitless looks at flags and mbarriers, in a row and by all warps, after which nobody gets on any more: at most 1,024
# warps are resident and each looks 64 times a turn, so that all have had a few dozen turns
MOST_IDLE = 1 << 21
# accesses that warps may make after a use of unwritten memory, before that counts as its own cause: a racing write is
# mostly a few instructions of another warp away, and a loop that goes by such a value might not end
MOST_AFTER = 1 << 16
KEPT_EPOCHS = 1 << 20  # what older ones did counts as known: a table of 32 MiB, of which few pages are ever touched

# a block's words: its own (HEAD_TIME is two: of even and odd phases of the cluster's barrier), each warp's, the
# granules of its shared memory, their cells
BARRIERS = 16
HEAD_CLUSTER, HEAD_GRID, HEAD_FENCED, HEAD_PROXY, HEAD_TIME = range(0, 5 * WORD, WORD)
HEAD_SEEN = 6 * WORD
HEAD_BARRIERS = 8 * WORD  # times of the barriers' last phases
HEAD_PHASES = HEAD_BARRIERS + BARRIERS * WORD  # and which phases these were
HEAD_EARLIER = HEAD_PHASES + BARRIERS * WORD  # times of the phases before these, and which they were
HEAD_EARLIER_PHASES = HEAD_EARLIER + BARRIERS * WORD
WARPS = HEAD_EARLIER_PHASES + BARRIERS * WORD
MOST_WARPS = 32
# a warp's words: its epoch; up to when it knows what its block, cluster, grid did; what it would know after a fence;
# its last fence; its last proxy fence and what it knew then; where it arrived at a barrier; an mbarrier it waits for;
# the epoch of its bulk operation; sets of registers (a bit each) of products since the last commit, of all products
# under way, and those written since the last wgmma.fence; the first epoch since its lanes last met; whether they
# waited for each other since the last access; lanes that have arrived at the cluster's barrier; which products it has
# issued (a number that differs with their places and order), and the place of the last; of the last load that defers,
# the lanes that found each of up to four words unwritten; of the last that found any, place, bytes and lane;
# sets whose registers were moved to others while they were under way; when it last waited for products
(
    NOW, KNOWN, KNOWN_CLUSTER, KNOWN_GRID, SEEN, FENCED, PROXY_FENCE, PROXY_KNOWN, ACTOR, CLUSTER, BARRIER_SITE,
    WAIT_BARRIER, WAIT_PHASE, OPERATION, SETS_NOW, SETS_PENDING, SETS_DIRTY, MET, WAITED, CLUSTER_LANES, ISSUED,
    LAST_ISSUED,
) = range(0, 22 * WORD, WORD)  # fmt: skip
UNWRITTEN_LANES = 22 * WORD
MOST_WORDS = 4
UNWRITTEN_SITE, UNWRITTEN_SIZE, UNWRITTEN_LANE, SETS_MOVED, PRODUCTS_SEEN = range(26 * WORD, 31 * WORD, WORD)
CHAINS = 31 * WORD  # one for each kind of groups
RING = 16  # groups that may be under way, per kind
HEAD, COUNT, GROUPS = 0, WORD, 2 * WORD  # of a chain: last epoch, groups committed, last epochs of the latest ones
CHAIN = (2 + RING) * WORD
GROUP_SETS = CHAINS + len(KINDS_OF_GROUPS) * CHAIN  # the sets of each of the latest groups of products
UNWRITTEN_PLACES = GROUP_SETS + RING * WORD  # of each lane: the address of the last unwritten word that it loaded
PARTLY_WRITTEN = UNWRITTEN_PLACES + 32 * WORD  # of that load: the lanes of which some other byte was written
MBARRIER_FENCE = PARTLY_WRITTEN + WORD  # the epoch since the last fence.mbarrier_init
WARP_BYTES = MBARRIER_FENCE + WORD
GRANULES = WARPS + MOST_WARPS * WARP_BYTES

AT_WATCH, AT_LAUNCH, AT_SHARED, AT_PEERS = (BLOCK.offset(n) for n in ("watch", "launch", "shared", "peers"))
AT_STATE, AT_SHARED_BYTES, AT_WARPS = (LAUNCH.offset(n) for n in ("watch", "shared_bytes", "warps"))


def block_bytes(shared: int) -> int:
    """Bytes that a block with so much shared memory needs."""
    return -(-(GRANULES + (shared // GRANULE_BYTES + 1) * (GRANULE + CELLS * CELL)) // 64) * 64
