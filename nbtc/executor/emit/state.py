"""The machine's state in memory: structures that compiled programs and the launcher share.

A `Layout` gives each field its offset.  `Launch` is one for a launch, `Worker` one for a thread of the host, `Block`
one for a resident thread block, `Warp` one for each warp of it.  Pointers are 64-bit.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Windows of the generic address space: the top byte tells the space, which no address of the host sets.
RESERVED_SHARED = 1024  # bytes of a block, from sm_80 on (CUDA C++ Programming Guide, "Compute Capabilities")
SHARED_WINDOW, LOCAL_WINDOW, FUNCTION_WINDOW = (n << 56 for n in (1, 2, 3))
FUNCTION_STEP = 16  # between the "addresses" of functions

_WORD32 = struct.Struct("<I")
ALIGN = 64  # bytes: a cache line, so that two workers never write to one

BARRIERS = 16  # of a block (PTX ISA, "bar")
SCRATCH_BYTES = 128 * 32  # of a warp: room for instructions that hand words from lane to lane


@cache
def words_of(count: int) -> struct.Struct:
    """So many words of 64 bits."""
    return struct.Struct(f"<{count}Q")


class Field(NamedTuple):
    """Where a field lies, and its bits."""

    offset: int
    bits: int


class Structure(NamedTuple):
    """A structure: its fields and its size in bytes."""

    fields: Mapping[str, Field]
    size: int

    def packed(self, **values: int) -> NDArray[np.uint8]:
        """The structure's bytes with these fields, the others 0."""
        data = bytearray(self.size)
        for name, value in values.items():
            field = self.fields[name]
            (words_of(1) if field.bits == 64 else _WORD32).pack_into(data, field.offset, value)
        return np.frombuffer(data, np.uint8)

    def set(self, data: Any, name: str, *values: int) -> None:
        """Change a field of a structure's bytes, and with more values the pointers after it."""
        field = self.fields[name]
        if field.bits == 64:
            words_of(len(values)).pack_into(data, field.offset, *values)
        else:
            _WORD32.pack_into(data, field.offset, *values)

    def get(self, data: Any, name: str) -> int:
        """A field of a structure's bytes."""
        field = self.fields[name]
        found: int = (words_of(1) if field.bits == 64 else _WORD32).unpack_from(data, field.offset)[0]
        return found

    def offset(self, name: str) -> int:
        """Byte offset of a field."""
        return self.fields[name].offset


def _layout(**bits: int) -> Structure:
    """Fields in the order given, each aligned to its size (64 bytes at most)."""
    fields, at = {}, 0
    for name, width in bits.items():
        size = width // 8
        step = min(size, ALIGN)
        at = -(-at // step) * step
        fields[name] = Field(at, width)
        at += size
    return Structure(MappingProxyType(fields), -(-at // ALIGN) * ALIGN)


POINTER = 64

LAUNCH = _layout(
    stop=32,  # not 0 (see `Stop`): every warp ends as soon as it looks
    failed=32,  # 1 once an error is recorded
    error_site=32,  # which place of the program, an index into the program's table of places
    error_kind=32,
    error_block=32,  # linear index
    error_thread=32,  # linear index in the block
    error_address=64,
    parameters=POINTER,
    variables=POINTER,  # the module's .global and .const variables
    ranges=POINTER,  # memory the program may touch: triples (first byte, bytes, writable)
    range_count=64,
    grid_x=32,
    grid_y=32,
    grid_z=32,
    block_x=32,
    block_y=32,
    block_z=32,
    cluster_x=32,
    cluster_y=32,
    cluster_z=32,
    threads=32,  # of a block
    warps=32,  # of a block
    shared_bytes=32,  # static and dynamic, those that may be touched
    dynamic_bytes=32,
    local_bytes=32,  # of one thread
    cooperative=32,  # 1: every block must be resident before any may wait for another
    blocks=64,  # of the grid
    next_block=64,  # the first that no worker has taken
    callback=POINTER,  # what the program asks of the host: i32 (*)(launch, what, warp, lanes mask, words)
    workspace=POINTER,  # of a cooperative grid (the environment registers 1 and 2 hold its address), else 0
    services=POINTER,  # functions of the host that programs call (`services`)
    number=64,  # from 1 on, another for each launch of the process
    user=64,  # for the launcher
    watch=POINTER,  # what the checked mode remembers of the launch (`watch.words`), else 0
    profile=POINTER,  # counters of a profiled launch (`profile.hooks`), else 0
)
WORKER = _layout(
    launch=POINTER,
    sites=POINTER,  # of each place that accesses memory: the range it last was in, (first byte, bytes)
    blocks=POINTER,  # resident block structures, each followed by its warps
    block_stride=64,
    slots=64,  # how many blocks may be resident
    free_frames=POINTER,  # coroutine frames to be used again
    all_frames=POINTER,
    index=64,
    scratch=POINTER,  # for what one instruction or one basic block needs (`scratch`)
)
BLOCK = _layout(
    launch=POINTER,
    worker=POINTER,
    shared=POINTER,
    local=POINTER,
    index=64,  # linear, in the grid
    x=32,
    y=32,
    z=32,
    live_threads=32,  # that have not ended
    live_warps=32,
    resident=32,
    cluster_rank=32,
    peers=POINTER,  # the block structures of its cluster
    barriers=BARRIERS * 256,  # eight words each; what they mean is told where barriers are emitted
    user=2048,
    cluster_generation=32,  # of the cluster's barrier, in its first block
    cluster_arrived=32,
    cluster_live=32,  # in its first block: how many of its blocks have not ended
    cluster_held=32,  # and how many others still have their slots
    watch=POINTER,  # what the checked mode remembers of the block
)
WARP = _layout(
    block=POINTER,
    frame=POINTER,  # the suspended coroutine, 0 when the warp has ended
    wait_address=POINTER,  # 0: ready; else the warp waits while the word there is `wait_value`
    wait_value=32,
    index=32,  # in the block
    live=32,  # mask of lanes that have not ended
    waiting=32,  # mask of lanes that have arrived somewhere and wait
    wait_site=32,  # where lanes waited last
    advanced=32,  # 1: the warp has got on since it was resumed
    released=32,  # mask of those among them that may go on
    ended=32,
    user=1024,
    cluster_noted=32,  # generation of the cluster's barrier in which the warp arrived
    products=32,  # products of its warpgroup that the warp has issued (wgmma.mma_async)
    fenced=32,  # 1 + `products` when it was last at wgmma.fence, 0 before
    barrier_waiters=BARRIERS * 32,  # of each barrier of the block, mask of the lanes that wait there
    released_in=32,  # phase of the barrier that released lanes of the warp last
    told=32 * 32,  # what a barrier that reduces told each lane that it released
    scratch=SCRATCH_BYTES * 8,
)
LAYOUTS = MappingProxyType({"launch": LAUNCH, "worker": WORKER, "block": BLOCK, "warp": WARP})


def read_field(layout: Structure, base: int, name: str) -> int:
    """A field of the structure at an address, from the host's side."""
    field = layout.fields[name]
    return int.from_bytes(ctypes.string_at(base + field.offset, field.bits // 8), "little")


def write_field(layout: Structure, base: int, name: str, value: int) -> None:
    """Set a field of the structure at an address."""
    field = layout.fields[name]
    ctypes.memmove(base + field.offset, int(value).to_bytes(field.bits // 8, "little"), field.bits // 8)
