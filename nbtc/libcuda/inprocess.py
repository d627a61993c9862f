"""nbtc's CUDA driver in this Python process."""

from __future__ import annotations

import ctypes
import os
import re

from nbtc.errors import DeviceError, OptionError
from nbtc.isa.archs import gpu
from nbtc.libcuda.command import tools
from nbtc.libcuda.library.files import folder
from nbtc.libcuda.rows import SONAMES

_installed: list[str] = []


def _loaded() -> set[str]:
    """Libraries of this process that are called like a driver or its runtime."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        return set(re.findall(r"(/\S*/lib(?:cuda|cudart|nvrtc|nvJitLink)\.so[.\d]*)$", file.read(), re.MULTILINE))


def install(arch: str | None, checked: bool, threads: int | None) -> None:
    """See `nbtc.cuda.install`."""
    name = gpu(arch if arch is not None else os.environ.get("NBTC_ARCH") or "sm_90").name
    if _installed:
        if _installed[0] != name:
            raise OptionError(f"this process has {_installed[0]} already: a process has one GPU, start another")
        return
    place = folder()
    others = sorted(p for p in _loaded() if not p.startswith(str(place)))
    if others:
        raise DeviceError(
            f"{', '.join(others)} is loaded already: call nbtc.cuda.install before what uses CUDA is imported, "
            "or start the program by nbtc run"
        )
    os.environ["NBTC_ARCH"] = name
    if checked:
        os.environ["NBTC_CHECKED"] = "1"
    if threads is not None:
        os.environ["NBTC_THREADS"] = str(threads)
    os.environ.update(tools(place))
    os.environ["PATH"] = f"{place / 'bin'}:{os.environ.get('PATH', os.defpath)}"  # PyCUDA starts nvcc
    for soname in SONAMES.values():
        ctypes.CDLL(str(place / soname), mode=ctypes.RTLD_GLOBAL)
    _installed.append(name)
