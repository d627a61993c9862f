"""Plainer processors than this one, as Numba's settings make believe: all kernels can be run and judged here."""

from __future__ import annotations

_AVX2 = "+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,+fma,+f16c,+bmi,+bmi2"
# what to add to the environment of a new process; "host" is the processor as it is
HOSTS: dict[str, dict[str, str]] = {
    "host": {},
    "avx2": {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": _AVX2},
    "generic": {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
}
