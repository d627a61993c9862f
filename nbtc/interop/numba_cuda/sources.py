"""CUDA C++ that kernels are linked with, compiled to PTX without a driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba.cuda
from cuda.core import ObjectCode
from numba.cuda.core import config
from numba.cuda.cudadrv import nvrtc

from nbtc.interop.nvrtc import to_ptx

_compile = nvrtc.compile  # numba-cuda's own


def compile(
    source: str | bytes, name: str, cc: Any, ltoir: bool = False, lineinfo: bool = False, debug: bool = False
) -> tuple[ObjectCode, str]:
    """What stands for `cudadrv.nvrtc.compile`: the PTX of a source for a compute capability, and the compiler's log."""
    if ltoir:  # which nvJitLink turns into PTX for those who look at it; no kernel is launched from it
        return _compile(source, name, cc, ltoir, lineinfo, debug)  # type: ignore[no-any-return]
    major, minor, *suffix = nvrtc._verify_cc_tuple(cc)
    home = Path(numba.cuda.__file__).parent
    folders = [home / "include" / str(nvrtc._get_nvrtc_version()[0]), home / "memory_management"]
    folders += [Path(p) for p in str(config.CUDA_NVRTC_EXTRA_SEARCH_PATHS).split(":") if p]
    options = ["--relocatable-device-code=true", *(f"--include-path={p}" for p in folders), *["-G"] * debug]
    text = source.decode() if isinstance(source, bytes) else source
    made = to_ptx(text, f"sm_{major}{minor}{''.join(suffix)}", options, (), name)
    return ObjectCode.from_ptx(made.text.encode(), name=name), ""
