"""A GPU's row as PyTorch describes a device, and torch.cuda where that is the one device there is."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from nbtc.isa.gpus import GPU


def properties(gpu: GPU) -> SimpleNamespace:
    """What `torch.cuda.get_device_properties` gives of a GPU."""
    c = gpu.capability
    return SimpleNamespace(
        name=gpu.name, major=c.major, minor=c.minor, multi_processor_count=gpu.multiprocessors,
        total_memory=gpu.memory, regs_per_multiprocessor=c.registers, max_threads_per_multi_processor=c.threads,
        max_threads_per_block=c.threads_block, warp_size=c.warp_size, shared_memory_per_block=c.shared_block,
        shared_memory_per_block_optin=c.shared_block_optin, shared_memory_per_multiprocessor=c.shared,
        L2_cache_size=gpu.l2, is_integrated=0, is_multi_gpu_board=0, gcnArchName=gpu.name,
        memory_clock_rate=gpu.memory_clock, clock_rate=gpu.clock, memory_bus_width=gpu.bus_width,
    )  # fmt: skip


class Guard:
    """`torch.cuda.device` and `_DeviceGuard`: there is one device."""

    idx, prev_idx = 0, -1

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, *failure: Any) -> None:
        return None


def nothing(*_: Any, **__: Any) -> None:
    """What there is nothing to do for."""


def cuda_names(device: Callable[[], Any]) -> dict[str, Any]:
    """Names of torch.cuda as they are with one GPU.  device: gives its properties, asked at each call."""
    import torch

    return {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "is_initialized": lambda: True,
        "_lazy_init": nothing,
        "get_device_properties": lambda *_, **__: device(),
        "_get_device_properties": lambda *_, **__: device(),  # for those who hold the function that was there before
        "get_device_capability": lambda *_, **__: (device().major, device().minor),
        "get_device_name": lambda *_, **__: device().name,
        "is_bf16_supported": lambda including_emulation=True: device().major >= 8,
        "is_tf32_supported": lambda: device().major >= 8,
        "mem_get_info": lambda *_, **__: (device().total_memory, device().total_memory),
        "memory_allocated": lambda *_, **__: 0,
        "max_memory_allocated": lambda _=None: 0,
        "synchronize": nothing,
        "set_device": nothing,
        "device": Guard,
        "_DeviceGuard": Guard,
        "get_rng_state": lambda *_, **__: torch.get_rng_state(),
        "set_rng_state": nothing,
    }
