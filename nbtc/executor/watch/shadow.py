"""Where the shadow memory of an address lies, its granules and cells, and granules that are split.

A granule stands for 16 bytes that were used alike: by one lane, or by neighbouring lanes with 8 or 4 bytes each.  The
first access that is different splits it into its four cells, and the next write of all 16 bytes makes it whole.
"""

from __future__ import annotations

from nbtc.compiler.jit import jit
from nbtc.executor.emit.state import LOCAL_WINDOW, SHARED_WINDOW
from nbtc.executor.memory.resolve import FIRST_RANK, RANK_SHIFT
from nbtc.executor.watch import words as w
from nbtc.executor.watch.order import cluster_blocks, state_of
from nbtc.executor.watch.words import int32_at, put, word

TAG = 56  # of a generic address
SHARED_TAG, LOCAL_TAG = SHARED_WINDOW >> TAG, LOCAL_WINDOW >> TAG
WITHIN = (1 << RANK_SHIFT) - 1  # of a shared address: its place in the block that it is in
NOWHERE = (0, 0, 0, 0, 0, 0)


@jit
def shared_window(block, first):
    """The window of a block's shared memory, whose first byte has an address."""
    size, base = int32_at(word(block + w.AT_LAUNCH) + w.AT_SHARED_BYTES), word(block + w.AT_WATCH) + w.GRANULES
    return first, size, base, base + w.GRANULE * (size // w.GRANULE_BYTES + 1), word(block + w.AT_SHARED), 1


@jit
def _region(state, address):
    """The region that an address is in, 0: none."""
    row = word(state + w.REGIONS)
    for _ in range(word(state + w.REGION_COUNT)):
        if 0 <= address - word(row) < word(row + w.WORD):
            return row
        row += w.REGION
    return 0


@jit
def global_window(block, address):
    """The window of an address in global memory."""
    state = state_of(block)
    row = word(state + w.RECENT)  # most accesses are of the array of the one before
    if not 0 <= address - word(row) < word(row + w.WORD):
        row = _region(state, address)
        if row == 0:
            return NOWHERE
        put(state + w.RECENT, row)
    first = word(row)
    return first, word(row + w.WORD), word(row + 2 * w.WORD), word(row + 3 * w.WORD), first, 0


@jit
def window(block, space, address):
    """The memory that an address is in: its first address, its bytes, granules and cells, its place on the host,
    whether it is shared; of no bytes where nothing is watched."""
    if space == w.GENERIC:
        tag = address >> TAG
        if tag == LOCAL_TAG:
            return NOWHERE
        space = w.SHARED if tag == SHARED_TAG else w.GLOBAL
    if space == w.GLOBAL:
        return global_window(block, address)
    tag = (address >> RANK_SHIFT) & 0xFF
    if tag:
        rank = tag - FIRST_RANK
        if not 0 <= rank < cluster_blocks(block):
            return NOWHERE
        block = word(word(block + w.AT_PEERS) + w.WORD * rank)
    return shared_window(block, address - (address & WITHIN))


@jit
def host_window(block, address):
    """The window of a place of the host: shared memory of the cluster, or global."""
    launch, peers = word(block + w.AT_LAUNCH), word(block + w.AT_PEERS)
    for rank in range(cluster_blocks(block)):
        peer = word(peers + w.WORD * rank)
        first = word(peer + w.AT_SHARED)
        if 0 <= address - first < int32_at(launch + w.AT_SHARED_BYTES):
            return shared_window(peer, first)
    return global_window(block, address)


@jit(inline=True)
def granule_at(window, at):
    """The granule of byte `at` of a window."""
    return window[2] + (at >> 4) * w.GRANULE


@jit(inline=True)
def cells_at(window, at):
    """The first cell of that granule, of use where it is split."""
    return window[3] + (at >> 4) * (w.CELLS * w.CELL)


@jit(inline=True)
def cell_at(window, at):
    """The cell of byte `at` of a window, whose granule is split from now on."""
    granule, cells = granule_at(window, at), cells_at(window, at)
    if not word(granule + w.MARKS) & w.SPLIT:
        _split(granule, cells)
    return cells + ((at >> 2) & 3) * w.CELL


@jit
def _split(granule, cells):
    """Let a granule's cells stand for it: lanes side by side had 16, 8 or 4 bytes each."""
    marks = word(granule + w.MARKS)
    put(granule + w.MARKS, marks | w.SPLIT)
    for n in (0, 1, 2, 3):
        put(cells + n * w.CELL + w.MARKS, marks)
    for at in (0, w.WORD, 2 * w.WORD):
        slot = word(granule + at)
        spread = (slot >> w.LANES_AT) & 3
        for n in (0, 1, 2, 3):
            cell = cells + n * w.CELL + at
            share = (slot & ~(3 << w.LANES_AT)) + ((n * spread >> 1) << w.LANE_AT)
            put(cell, share)
            if slot:  # nobody asks whose the bytes of no access are
                owner = w.SEVERAL if (share >> w.SHARED_AT) & 1 else (share >> w.LANE_AT) & 31
                put(cell + w.BYTES_AT, owner * w.FOUR)


@jit
def host_cell(block, address):
    """The cell of a place of the host, 0 where nothing is watched."""
    found = host_window(block, address)
    return cell_at(found, address - found[0]) if found[1] else 0
