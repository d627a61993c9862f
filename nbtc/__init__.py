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
from time import time as _time

_STARTED = _time()  # no module of the package was imported before (`compiler.cache.sources`)
TYPE_CHECKING = False  # checkers take it for true; `typing` itself would be the longest part of this import
if TYPE_CHECKING:  # the names of _EXPORTS and _MODULES once more: checkers and editors read no tables
    from typing import Any as _Any

    from nbtc import (
        dpx as dpx,
        errors as errors,
        examples as examples,
        intrinsics as intrinsics,
        mx as mx,
        ptx as ptx,
        sparse as sparse,
        tcgen05 as tcgen05,
        testing as testing,
        warp as warp,
        wgmma as wgmma,
        wmma as wmma,
    )
    from nbtc.dialect.kernel import Kernel as Kernel, device as device, kernel as kernel
    from nbtc.dialect.language import (
        atomic_add as atomic_add,
        atomic_and as atomic_and,
        atomic_cas as atomic_cas,
        atomic_dec as atomic_dec,
        atomic_exch as atomic_exch,
        atomic_inc as atomic_inc,
        atomic_max as atomic_max,
        atomic_min as atomic_min,
        atomic_or as atomic_or,
        atomic_sub as atomic_sub,
        atomic_xor as atomic_xor,
        block_dim as block_dim,
        block_idx as block_idx,
        grid as grid,
        grid_dim as grid_dim,
        lane_id as lane_id,
        local as local,
        nanosleep as nanosleep,
        shared as shared,
        syncthreads as syncthreads,
        syncthreads_and as syncthreads_and,
        syncthreads_count as syncthreads_count,
        syncthreads_or as syncthreads_or,
        syncwarp as syncwarp,
        thread_idx as thread_idx,
        threadfence as threadfence,
        threadfence_block as threadfence_block,
        threadfence_system as threadfence_system,
        unroll as unroll,
        warp_idx as warp_idx,
        where as where,
    )
    from nbtc.executor.coverage import Coverage as Coverage, coverage as coverage
    from nbtc.executor.profile.result import Profile as Profile
    from nbtc.executor.program import Module as Module, Program as Program, load as load
    from nbtc.executor.transfer.tensor_map import TensorMap as TensorMap
    from nbtc.formats.arrays import as_format as as_format, pack as pack, unpack as unpack
    from nbtc.formats.conversions import convert as convert
    from nbtc.formats.table import (
        Format as Format,
        b1 as b1,
        bf16 as bf16,
        e2m1 as e2m1,
        e2m3 as e2m3,
        e3m2 as e3m2,
        e4m3 as e4m3,
        e5m2 as e5m2,
        f16 as f16,
        f32 as f32,
        f64 as f64,
        s4 as s4,
        s8 as s8,
        s32 as s32,
        tf32 as tf32,
        u4 as u4,
        u8 as u8,
        ue4m3 as ue4m3,
        ue8m0 as ue8m0,
    )
    from nbtc.gemm import (
        Plan as Plan,
        gemm as gemm,
        library as library,
        matmul as matmul,
        order as order,
        plan as plan,
    )
    from nbtc.instructions import Instruction as Instruction, instruction as instruction, instructions as instructions

__version__ = "0.9.0"

# Where public names are defined.
_EXPORTS = {
    "nbtc.formats.table": "Format b1 bf16 e2m1 e2m3 e3m2 e4m3 e5m2 f16 f32 f64 s32 s4 s8 tf32 u4 u8 ue4m3 ue8m0",
    "nbtc.formats.arrays": "as_format pack unpack",
    "nbtc.formats.conversions": "convert",
    "nbtc.gemm": "gemm library matmul order Plan plan",
    "nbtc.instructions": "Instruction instruction instructions",
    "nbtc.executor.coverage": "Coverage coverage",
    "nbtc.executor.profile.result": "Profile",
    "nbtc.executor.program": "Module Program load",
    "nbtc.executor.transfer.tensor_map": "TensorMap",
    "nbtc.dialect.kernel": "Kernel device kernel",
    "nbtc.dialect.language": (
        "atomic_add atomic_and atomic_cas atomic_dec atomic_exch atomic_inc atomic_max atomic_min atomic_or "
        "atomic_sub atomic_xor block_dim block_idx grid grid_dim lane_id local nanosleep shared syncthreads "
        "syncthreads_and syncthreads_count syncthreads_or syncwarp thread_idx threadfence threadfence_block "
        "threadfence_system unroll warp_idx where"
    ),
}
_MODULES = (
    "dpx", "errors", "examples", "intrinsics", "mx", "ptx", "sparse", "tcgen05", "testing", "warp", "wgmma", "wmma",
)  # fmt: skip
_EXTRAS = ("cuda", "cute", "dask", "torch", "triton")  # what they need may be missing
_NAMES = {name: module for module, names in _EXPORTS.items() for name in names.split()}

__all__ = [*_NAMES, *_MODULES]


def __getattr__(name: str) -> _Any:
    imports = _import_module("nbtc.forks").IMPORTS
    if name in _MODULES or name in _EXTRAS:
        with imports:
            return _import_module(f"nbtc.{name}")
    module = _NAMES.get(name)
    if module is None:
        hint = "" if name.startswith("_") else _import_module("nbtc.errors").did_you_mean(name, __all__)
        raise AttributeError(f"module 'nbtc' has no attribute {name!r}{hint}")
    with imports:
        found = getattr(_import_module(module), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
