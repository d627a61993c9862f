"""Plainer processors than this one, as Numba's settings make believe: all kernels can be run and judged here."""

from __future__ import annotations

from nbtc.compiler.cpu.processors import AVX2, host_processor

_AVX2 = "+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,+fma,+f16c,+bmi,+bmi2"
_HASWELL = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": _AVX2}
# What to add to the environment of a new process; "host" is the processor as it is.  One that runs the kernels of AVX2
# stands for "avx2" itself: under another name it would compile the same kernels again.
HOSTS: dict[str, dict[str, str]] = {
    "host": {},
    "avx2": {} if host_processor() is AVX2 else _HASWELL,
    "generic": {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
}
OTHERS = tuple(name for name, settings in HOSTS.items() if settings)  # that are not this processor
