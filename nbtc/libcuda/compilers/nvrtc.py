"""NVRTC: a program's PTX where its machine code is asked for."""

from __future__ import annotations

from ctypes import c_void_p

from nbtc.libcuda.compilers.find import INTERNAL_ERROR, real
from nbtc.libcuda.registry import Implementation


def _answer(name: str, program: int, out: int) -> int:
    library = real("nvrtc")
    return INTERNAL_ERROR["nvrtc"] if library is None else int(library[name](c_void_p(program), c_void_p(out)))


def nvrtcGetCUBINSize(program: int, out: int) -> int:
    return _answer("nvrtcGetPTXSize", program, out)


def nvrtcGetCUBIN(program: int, out: int) -> int:
    return _answer("nvrtcGetPTX", program, out)


NVRTC: dict[str, Implementation] = {f.__name__: f for f in (nvrtcGetCUBINSize, nvrtcGetCUBIN)}
