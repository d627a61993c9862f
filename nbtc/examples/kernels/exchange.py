"""Threads of a warp that talk to each other: broadcast, scan, reduction; and blocks that take turns."""

from __future__ import annotations

import numpy as np

import nbtc
from nbtc import warp

ALL = 0xFFFFFFFF  # every lane takes part


@nbtc.kernel
def broadcast(x):
    """Every lane gets what lane 0 of its warp has."""
    i = nbtc.grid(1)
    value = x[i] if nbtc.lane_id() == 0 else x.dtype.type(0)
    x[i] = warp.shfl_sync(ALL, value, 0)


@nbtc.kernel
def scan_by_eight(x):
    """Inclusive sums within groups of eight lanes, in three steps."""
    i, lane = nbtc.grid(1), nbtc.lane_id()
    value = x[i]
    distance = 1
    while distance < 8:
        below = warp.shfl_up_sync(ALL, value, distance, width=8)
        if lane % 8 >= distance:
            value += below
        distance *= 2
    x[i] = value


@nbtc.kernel
def reduce_by_butterfly(x):
    """Every lane gets the sum of its warp: partners 16, 8, 4, 2 and 1 lanes away add what the other has."""
    i = nbtc.grid(1)
    value = x[i]
    distance = 16
    while distance > 0:
        value += warp.shfl_xor_sync(ALL, value, distance)
        distance //= 2
    x[i] = value


@nbtc.kernel
def count_in_turn(lock, counters):
    """One thread of every block adds 1 to counters that a lock guards: taken by compare-and-swap, waited for asleep.

    lock: int32 (1,), 0 where free.  The fences order the counters' traffic with that of the lock.
    """
    if nbtc.thread_idx.x == 0:
        pause = 8
        while nbtc.atomic_cas(lock, 0, 0, 1) != 0:
            nbtc.nanosleep(pause)
            pause = min(2 * pause, 256)
        nbtc.threadfence()
        for n in range(counters.size):
            counters[n] += 1
        nbtc.threadfence()
        nbtc.atomic_exch(lock, 0, 0)


def demonstrate():
    """The four kernels on small inputs.

    >>> for row in demonstrate(): print(row)
    [5, 5, 5, 5]
    [1, 3, 6, 10, 15, 21, 28, 36, 9, 19]
    [496, 496]
    [64, 64, 64]
    """
    x = np.arange(5, 37, dtype=np.int32)
    broadcast[1, 32](x)
    y = np.arange(1, 33, dtype=np.int32)
    scan_by_eight[1, 32](y)
    z = np.arange(32, dtype=np.int32)
    reduce_by_butterfly[1, 32](z)
    counters = np.zeros(3, np.int64)
    count_in_turn[64, 32](np.zeros(1, np.int32), counters)
    return x[:4].tolist(), y[:10].tolist(), z[:2].tolist(), counters.tolist()
