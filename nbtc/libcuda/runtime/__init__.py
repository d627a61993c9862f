"""The functions of the runtime API (CUDA Runtime API), by the names of cuda_runtime_api.h, on those of the driver."""

from nbtc.libcuda.runtime import (
    arrays,
    copies,
    devices,
    driver_aliases,
    graphs,
    launches,
    memory,
    registration,
    results,
    textures,
)

__all__ = [
    "arrays", "copies", "devices", "driver_aliases", "graphs", "launches", "memory", "registration", "results",
    "textures",
]  # fmt: skip
