"""Tensor cores without the GPU: NVIDIA's matrix instructions on a CPU, bit for bit.

>>> import numpy as np, nbtc
>>> a = np.eye(16, dtype=np.float16)
>>> nbtc.matmul(a, a, arch="sm_90").dtype
dtype('float32')

Names are resolved on first use: importing this package compiles nothing, imports neither a compiler nor
NumPy and takes milliseconds.
"""

from __future__ import annotations

from importlib import import_module as _import_module

TYPE_CHECKING = False  # checkers take it for true; `typing` itself would be the longest part of this import
if TYPE_CHECKING:
    from typing import Any as _Any

    from nbtc import dpx, errors, examples, ptx, sparse, testing, warp, wgmma, wmma
    from nbtc.dialect.kernel import device, kernel
    from nbtc.dialect.language import (
        atomic_add,
        atomic_and,
        atomic_cas,
        atomic_dec,
        atomic_exch,
        atomic_inc,
        atomic_max,
        atomic_min,
        atomic_or,
        atomic_sub,
        atomic_xor,
        block_dim,
        block_idx,
        grid,
        grid_dim,
        lane_id,
        local,
        nanosleep,
        shared,
        syncthreads,
        syncthreads_and,
        syncthreads_count,
        syncthreads_or,
        syncwarp,
        thread_idx,
        threadfence,
        threadfence_block,
        threadfence_system,
        warp_idx,
        where,
    )
    from nbtc.executor.coverage import coverage
    from nbtc.executor.program import load
    from nbtc.executor.tensor_map import TensorMap
    from nbtc.formats.arrays import as_format, pack, unpack
    from nbtc.formats.conversions import convert
    from nbtc.formats.table import (
        b1,
        bf16,
        e2m1,
        e2m3,
        e3m2,
        e4m3,
        e5m2,
        f16,
        f32,
        f64,
        s4,
        s8,
        s32,
        tf32,
        u4,
        u8,
        ue4m3,
        ue8m0,
    )
    from nbtc.gemm import Plan, gemm, library, matmul, order, plan
    from nbtc.instructions import Instruction, instruction, instructions

__version__ = "0.1.0"

_MODULES = (
    "cuda",
    "dask",
    "dpx",
    "errors",
    "examples",
    "mx",
    "ptx",
    "sparse",
    "tcgen05",
    "testing",
    "torch",
    "triton",
    "warp",
    "wgmma",
    "wmma",
)
_KERNEL_WORDS = (
    "atomic_add",
    "atomic_and",
    "atomic_cas",
    "atomic_dec",
    "atomic_exch",
    "atomic_inc",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_sub",
    "atomic_xor",
    "local",
    "nanosleep",
    "shared",
    "threadfence",
    "threadfence_block",
    "threadfence_system",
    "block_dim",
    "block_idx",
    "grid",
    "grid_dim",
    "lane_id",
    "syncthreads",
    "syncthreads_and",
    "syncthreads_count",
    "syncthreads_or",
    "syncwarp",
    "thread_idx",
    "warp_idx",
    "where",
)
_NAMES = {
    "TensorMap": "nbtc.executor.tensor_map",
    "as_format": "nbtc.formats.arrays",
    **dict.fromkeys(_KERNEL_WORDS, "nbtc.dialect.language"),
    "device": "nbtc.dialect.kernel",
    "kernel": "nbtc.dialect.kernel",
    "coverage": "nbtc.executor.coverage",
    "convert": "nbtc.formats.conversions",
    "gemm": "nbtc.gemm",
    "library": "nbtc.gemm",
    "load": "nbtc.executor.program",
    "matmul": "nbtc.gemm",
    "order": "nbtc.gemm",
    "plan": "nbtc.gemm",
    "Plan": "nbtc.gemm",
    "Instruction": "nbtc.instructions",
    "instruction": "nbtc.instructions",
    "instructions": "nbtc.instructions",
    "pack": "nbtc.formats.arrays",
    "unpack": "nbtc.formats.arrays",
}
_FORMATS = (
    "b1",
    "bf16",
    "e2m1",
    "e2m3",
    "e3m2",
    "e4m3",
    "e5m2",
    "f16",
    "f32",
    "f64",
    "s32",
    "s4",
    "s8",
    "tf32",
    "u4",
    "u8",
    "ue4m3",
    "ue8m0",
)

__all__ = [
    "device",
    "kernel",
    "atomic_add",
    "atomic_and",
    "atomic_cas",
    "atomic_dec",
    "atomic_exch",
    "atomic_inc",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_sub",
    "atomic_xor",
    "local",
    "nanosleep",
    "shared",
    "threadfence",
    "threadfence_block",
    "threadfence_system",
    "block_dim",
    "block_idx",
    "grid",
    "grid_dim",
    "lane_id",
    "syncthreads",
    "syncthreads_and",
    "syncthreads_count",
    "syncthreads_or",
    "syncwarp",
    "thread_idx",
    "warp_idx",
    "where",
    "Instruction",
    "Plan",
    "TensorMap",
    "as_format",
    "b1",
    "bf16",
    "convert",
    "coverage",
    "dpx",
    "e2m1",
    "e2m3",
    "e3m2",
    "e4m3",
    "e5m2",
    "errors",
    "examples",
    "f16",
    "f32",
    "f64",
    "gemm",
    "instruction",
    "instructions",
    "library",
    "load",
    "matmul",
    "mx",
    "order",
    "pack",
    "plan",
    "ptx",
    "s4",
    "s8",
    "s32",
    "sparse",
    "tcgen05",
    "testing",
    "tf32",
    "u4",
    "u8",
    "ue4m3",
    "ue8m0",
    "unpack",
    "warp",
    "wgmma",
    "wmma",
]


def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        return _import_module(f"nbtc.{name}")
    room = "nbtc.formats.table" if name in _FORMATS else _NAMES.get(name)
    if room is None:
        raise AttributeError(f"module 'nbtc' has no attribute {name!r}")
    found = getattr(_import_module(room), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
