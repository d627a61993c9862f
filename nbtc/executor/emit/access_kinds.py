"""Kinds of accesses and of what happens at mbarriers: numbers in compiled code, and for instruments."""

from __future__ import annotations

# kinds of accesses, of asynchronous operations from ASYNCHRONOUS on: one bit tells them from the others
ASYNCHRONOUS = 8
NONE, READ, WRITE, STRONG_READ, STRONG_WRITE, ATOMIC = range(6)
COPY, BULK_WRITE, BULK_STORE, BULK_READ, PRODUCT, BULK_SOURCE, COPY_SOURCE, REDUCTION = range(8, 16)
ATOMICS = 1 << ATOMIC | 1 << REDUCTION
WRITES = 1 << WRITE | 1 << STRONG_WRITE | ATOMICS | 1 << COPY | 1 << BULK_WRITE | 1 << BULK_STORE
STRONG = 1 << STRONG_READ | 1 << STRONG_WRITE | ATOMICS
# through the asynchronous proxy; BULK_SOURCE is what copies and tcgen05 read until an mbarrier is told
ASYNC_PROXY = 1 << BULK_WRITE | 1 << BULK_STORE | 1 << BULK_READ | 1 << PRODUCT | 1 << BULK_SOURCE
# done when somebody has waited for their group or seen their mbarrier's phase
GROUPED = ASYNC_PROXY | 1 << COPY | 1 << COPY_SOURCE | 1 << REDUCTION  # all that are asynchronous
WARPS_OWN = 1 << PRODUCT | 1 << COPY_SOURCE  # reads that all lanes of a warp know to be done when one of them does
TOLD = 1 << BULK_WRITE | 1 << REDUCTION  # those that only an mbarrier tells of, so that their own thread knows no more
GENERIC_WRITES = 1 << WRITE | 1 << STRONG_WRITE | 1 << ATOMIC
# orders of an access; of a load whether unwritten words are only noted
ACQUIRES, RELEASES, DEFERS = 1, 2, 4
MADE, INVALIDATED, UPDATED, RELAXED, BROUGHT, TESTED, JOINED = range(7)  # what happens to an mbarrier
COPIES, BULKS, PRODUCTS, TENSORS = GROUPS = range(4)  # kinds of groups of asynchronous operations
