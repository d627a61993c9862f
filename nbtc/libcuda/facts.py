"""The device's facts as the driver tells them, from the row of a GPU."""

from __future__ import annotations

from typing import NamedTuple

from nbtc.isa.archs import arch as find_arch
from nbtc.isa.archs import gpu

PORTABLE_CLUSTER = 8  # blocks (CUDA C++ Programming Guide, "Thread Block Clusters")


class Facts(NamedTuple):
    """What launchers ask of a GPU; sizes in bytes, clocks in kHz."""

    name: str
    arch: str
    processors: int
    shared_block: int  # bytes that a block may opt in to
    shared_processor: int
    shared_reserved: int  # bytes that the system takes of each block
    memory_bytes: int
    l2_bytes: int
    clock_khz: int
    memory_clock_khz: int
    bus_bits: int
    threads_processor: int
    blocks_processor: int
    registers: int
    cluster: int  # blocks of a portable cluster, 0 where there are none


def facts(name: str) -> Facts:
    """Those of a GPU, or of the GPU that stands for an architecture."""
    row = gpu(name)
    limits = row.capability
    clusters = bool(find_arch(row.arch).suffixes)  # those that have them have targets of their own
    return Facts(
        row.name, row.arch, row.multiprocessors, limits.shared_block_optin, limits.shared,
        limits.shared - limits.shared_block_optin, row.memory, row.l2, row.clock, row.memory_clock, row.bus_width,
        limits.threads, limits.blocks, limits.registers, PORTABLE_CLUSTER * clusters,
    )  # fmt: skip
