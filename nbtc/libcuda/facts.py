"""The device's facts as the driver tells them, from the rows of GPUs."""

from __future__ import annotations

from typing import NamedTuple

from nbtc.interop.devices import DEVICES
from nbtc.isa.archs import arch as find_arch

MEMORY = 80 << 30


class Facts(NamedTuple):
    """What launchers ask of a GPU; sizes in bytes, clocks in kHz."""

    name: str
    arch: str
    processors: int
    shared_block: int  # bytes that a block may opt in to
    shared_processor: int
    memory_bytes: int
    l2_bytes: int
    clock_khz: int
    memory_clock_khz: int
    bus_bits: int
    threads_processor: int
    blocks_processor: int
    cluster: int  # blocks of a portable cluster, 0 where there are none


def facts(name: str) -> Facts:
    """Those of a GPU, or of the GPU that stands for an architecture."""
    arch = find_arch(name).name
    row = DEVICES[arch]
    shared = row.shared << 10
    return Facts(
        f"NVIDIA {arch} (nbtc)", arch, row.processors, shared, shared + 1024, MEMORY, 50 << 20, 1980000, 2619000, 5120,
        2048, 32, 8,
    )  # fmt: skip
