"""The functions of the runtime API (CUDA Runtime API), by the names of cuda_runtime_api.h, on those of the driver."""

from nbtc.libcuda.runtime import copies, devices, driver_aliases, graphs, launches, memory, registration, results

__all__ = ["copies", "devices", "driver_aliases", "graphs", "launches", "memory", "registration", "results"]
