"""A GPU's row as PyTorch describes a device."""

from __future__ import annotations

from types import SimpleNamespace

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
