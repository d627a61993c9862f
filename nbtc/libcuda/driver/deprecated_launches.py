"""Launches of CUDA 3, which PyCUDA still makes (CUDA Driver API, "Execution Control [DEPRECATED]")."""

from __future__ import annotations

import struct

from nbtc.libcuda import host
from nbtc.libcuda.code import Function
from nbtc.libcuda.errors import INVALID_VALUE, CudaError
from nbtc.libcuda.launching import Config, launch
from nbtc.libcuda.registry import driver, driver_as
from nbtc.libcuda.state import handles


def _raw(f: int, at: int, data: bytes) -> None:
    """Bytes of a kernel's parameters."""
    function = handles.get(f, Function)
    raw = function.old.setdefault("raw", bytearray(function.bytes))
    if not 0 <= at <= len(raw) - len(data):
        raise CudaError(INVALID_VALUE)
    raw[at : at + len(data)] = data


@driver
def cuFuncSetBlockShape(f: int, x: int, y: int, z: int) -> None:
    handles.get(f, Function).old["block"] = (x, y, z)


@driver
def cuFuncSetSharedSize(f: int, size: int) -> None:
    handles.get(f, Function).old["shared"] = size


@driver
def cuParamSetSize(f: int, size: int) -> None:
    if not 0 <= size <= max(handles.get(f, Function).bytes, 4096):
        raise CudaError(INVALID_VALUE)


@driver
def cuParamSetv(f: int, at: int, data: int, size: int) -> None:
    if not 0 <= size <= 4096:
        raise CudaError(INVALID_VALUE)
    _raw(f, at, host.read(data, size))


@driver
def cuParamSeti(f: int, at: int, value: int) -> None:
    _raw(f, at, struct.pack("<I", value & 0xFFFFFFFF))


@driver
def cuParamSetf(f: int, at: int, value: float) -> None:
    _raw(f, at, struct.pack("<f", value))


@driver_as("cuLaunch", "cuLaunchGrid", "cuLaunchGridAsync")
def cuLaunchGrid(f: int, x: int = 1, y: int = 1, stream: int = 0) -> None:
    function = handles.get(f, Function)
    raw = bytearray(function.old.get("raw", bytes(function.bytes)))
    launch(
        function, Config((x, y, 1), function.old.get("block", (1, 1, 1)), function.old.get("shared", 0), stream), raw
    )
