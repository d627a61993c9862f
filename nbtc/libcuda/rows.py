"""One row a function of the libraries: its names, the CUDA version it came with, its signature in C.

Read from `tables/`, which `scripts/cuda_tables.py` writes from CUDA's public headers.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

TABLES = Path(__file__).with_name("tables")
SONAMES = {
    "driver": "libcuda.so.1", "runtime": "libcudart.so.13", "nvrtc": "libnvrtc.so.13",
    "nvjitlink": "libnvJitLink.so.13",
}  # fmt: skip
COMPILERS = ("nvrtc", "nvjitlink")  # libraries that go before NVIDIA's own, and call them
VERSIONED = {which: SONAMES[which] for which in ("runtime", *COMPILERS)}  # the version that all their symbols have
VERSION = 13050  # of the CUDA whose headers the tables were read from: 1000 * major + 10 * minor

WORD, INT, WIDE = ctypes.c_uint64, ctypes.c_int32, ctypes.c_uint64


class Extent(ctypes.Structure):
    """cudaExtent."""

    _fields_ = [("width", ctypes.c_size_t), ("height", ctypes.c_size_t), ("depth", ctypes.c_size_t)]


class Pitched(ctypes.Structure):
    """cudaPitchedPtr."""

    _fields_ = [("pointer", WORD), ("pitch", ctypes.c_size_t), ("xsize", ctypes.c_size_t), ("ysize", ctypes.c_size_t)]


class Dim(ctypes.Structure):
    """dim3."""

    _fields_ = [("x", ctypes.c_uint32), ("y", ctypes.c_uint32), ("z", ctypes.c_uint32)]


class Location(ctypes.Structure):
    """CUmemLocation, cudaMemLocation."""

    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class Ticket(ctypes.Structure):
    """CUipcMemHandle, CUipcEventHandle and the runtime's."""

    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


BY_VALUE: dict[str, Any] = {
    **dict.fromkeys(("CUipcMemHandle", "CUipcEventHandle", "cudaIpcMemHandle_t", "cudaIpcEventHandle_t"), Ticket),
    "cudaExtent": Extent, "cudaPitchedPtr": Pitched, "dim3": Dim, "CUmemLocation": Location,
    "cudaMemLocation": Location, "float": ctypes.c_float,
}  # fmt: skip
# Structures that functions return and that are too large for registers: the caller says where they go.
BY_MEMORY = frozenset(("cudaChannelFormatDesc",))
# Types of 64 bits: sizes, device pointers, and the handles that a typedef hides; all others are of 32.
_WIDE = """
    size_t cuuint64_t CUdeviceptr CUtexObject CUsurfObject CUmemGenericAllocationHandle cudaTextureObject_t
    cudaSurfaceObject_t CUgraphConditionalHandle cudaGraphConditionalHandle CUcontext CUmodule CUfunction
    CUlibrary CUkernel CUarray CUmipmappedArray CUtexref CUsurfref CUevent CUstream CUgraphicsResource
    CUexternalMemory CUexternalSemaphore CUgraph CUgraphNode CUgraphExec CUmemoryPool CUuserObject CUgreenCtx
    CUlinkState CUhostFn CUstreamCallback CUoccupancyB2DSize CUgraphDeviceNode CUasyncCallbackHandle
    CUasyncCallback CUlogsCallback CUlogsCallbackHandle CUdevResourceDesc CUcoredumpCallbackHandle
    CUeglStreamConnection nvrtcProgram nvJitLinkHandle
"""
WIDE_NAMES = frozenset(_WIDE.split())
NARROW_T = frozenset(("cudaError_t", "cudaDataType_t"))  # enumerations that are spelled like handles


def kind(name: str) -> Any:
    """The ctypes type of a type of C."""
    if name in BY_VALUE:
        return BY_VALUE[name]
    handle = name.startswith("cuda") and name.endswith("_t") and name not in NARROW_T
    if "*" in name or name in WIDE_NAMES or "long" in name or handle:
        return WIDE
    return INT


class Row(NamedTuple):
    """A function: exported name, name for cuGetProcAddress, version, result and parameters."""

    name: str
    base: str
    version: int
    result: str
    parameters: tuple[str, ...]

    @property
    def arguments(self) -> tuple[str, ...]:
        """The types of what a call passes: first, where a result goes that is too large for registers."""
        return (f"{self.result}*", *self.parameters) if self.result in BY_MEMORY else self.parameters

    @property
    def prototype(self) -> Any:
        """Its type for ctypes."""
        results = {"void": None, "char": ctypes.c_char, "unsigned int": ctypes.c_uint32, "cudaError_t": ctypes.c_int32}
        pointer = "*" in self.result or self.result in BY_MEMORY
        result = results.get(self.result, ctypes.c_uint64 if pointer else ctypes.c_int32)
        return ctypes.CFUNCTYPE(result, *map(kind, self.arguments))


def _row(line: str) -> Row:
    name, base, version, signature = line.split(" ", 3)
    result, _, rest = signature.partition("(")
    parameters = rest.rpartition(")")[0]
    return Row(name, base, int(version), result, tuple(parameters.split(",")) if parameters else ())


@cache
def rows(which: str) -> tuple[Row, ...]:
    """The functions of a library, in the order of its table."""
    lines = (TABLES / f"{which}.txt").read_text(encoding="ascii").splitlines()
    return tuple(map(_row, lines))


@cache
def numbered(table: str) -> dict[int, str]:
    """A table of numbers and names, such as errors."""
    lines = (TABLES / f"{table}.txt").read_text(encoding="ascii").splitlines()
    return {int(number): name for number, name in (line.split() for line in lines)}
