"""The functions of the driver API, by the names of cuda.h (CUDA Driver API)."""

from nbtc.libcuda.driver import (
    arrays,
    contexts,
    copies,
    deprecated_launches,
    devices,
    entry_points,
    interprocess,
    kernels,
    launches,
    linking,
    logs,
    memory,
    modules,
    pools,
    streams,
    tensor_maps,
    textures,
    virtual_memory,
)
from nbtc.libcuda.driver.graphs import any_nodes, conditional_nodes, graphs, memory_nodes, user_objects

__all__ = [
    "any_nodes", "arrays", "conditional_nodes", "contexts", "copies", "deprecated_launches", "devices",
    "entry_points", "graphs", "interprocess", "kernels", "launches", "linking", "logs", "memory", "memory_nodes",
    "modules", "pools", "streams", "tensor_maps", "textures", "user_objects", "virtual_memory",
]  # fmt: skip
