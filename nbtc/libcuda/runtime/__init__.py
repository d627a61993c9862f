"""The functions of the runtime API (CUDA Runtime API), by the names of cuda_runtime_api.h, on those of the driver."""

from nbtc.libcuda.runtime import copies, devices, graphs, launches, memory, registration, results, same

__all__ = ["copies", "devices", "graphs", "launches", "memory", "registration", "results", "same"]
