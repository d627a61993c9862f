"""What the processor can do, as Numba will compile for it."""

from __future__ import annotations

from functools import cache

AVX512 = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})


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
    return frozenset(f[1:] for f in text.split(",") if f.startswith("+")) & frozenset(host)


def has_avx512(*more: str) -> bool:
    """True when 512-bit vectors (and the extensions named) can be used."""
    return features() >= AVX512 | set(more)
