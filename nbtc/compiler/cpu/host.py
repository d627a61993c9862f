"""What the processor can do, as Numba will compile for it."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

AVX512 = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})
AMX = frozenset({"amx-tile", "amx-int8"})
# Linux, "Using XSTATE features in user space applications"
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


@cache
def architecture() -> str:
    """The kind of processor, as LLVM's target triples begin with it: "x86_64", "aarch64"."""
    import llvmlite.binding as llvm

    return str(llvm.get_process_triple()).partition("-")[0]


@cache
def features() -> frozenset[str]:
    """Names of the instruction-set extensions compiled code may use.

    This is what both the machine has and Numba is told to target (NUMBA_CPU_NAME, NUMBA_CPU_FEATURES), so forcing a
    plainer target forces nbtc's plainer kernels too: an AVX-512 intrinsic on another target aborts the process.
    """
    import llvmlite.binding as llvm
    from numba.core import config
    from numba.core.codegen import get_host_cpu_features

    host = {name for name, on in llvm.get_host_cpu_features().items() if on}
    forced = config.CPU_FEATURES
    text = get_host_cpu_features() if forced is None else forced
    wanted = frozenset(f[1:] for f in text.split(",") if f.startswith("+")) & frozenset(host)
    return wanted if not wanted & AMX or tile_registers_allowed() else wanted - AMX


@cache
def tile_registers_allowed() -> bool:
    """Whether this process may use AMX's tile registers, which Linux grants to a process and its children on request.

    It refuses where a thread's signal stack has no room for their 8 KiB.  Other systems are not asked.
    """
    if sys.platform != "linux" or architecture() != "x86_64":
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0)


def has_avx512(*more: str) -> bool:
    """True when 512-bit vectors (and the extensions named) can be used."""
    return features() >= AVX512 | set(more)
