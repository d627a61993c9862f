"""Errors, versions and entry points (CUDA Driver API, "Error Handling", "Driver Entry Point Access")."""

from __future__ import annotations

import uuid
from functools import cache

from nbtc.libcuda import errors, host, state
from nbtc.libcuda.attach_points import exported
from nbtc.libcuda.code import constant_text
from nbtc.libcuda.errors import INVALID_VALUE, NOT_FOUND, SUCCESS, say
from nbtc.libcuda.registry import driver
from nbtc.libcuda.rows import VERSION, rows

PER_THREAD = 2  # CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
FOUND, SYMBOL_NOT_FOUND, VERSION_TOO_LOW = 0, 1, 2  # CUdriverProcAddressQueryResult
NVRTC_TABLE = uuid.UUID("da9151d3-3ae6-cc41-a5c0-4f26d533e328")  # NVRTC 13 asks for it and does without
STATIC = (
    "a static CUDA runtime (or a library that has one, such as cuBLAS) asks for NVIDIA's private tables, which nbtc "
    "doesn't answer: build with nvcc -cudart shared (CMake: CUDA_RUNTIME_LIBRARY Shared)"
)


def put_text(out: int, text: str | None) -> int:
    """The address of a constant text, or NULL and an error."""
    host.put64(out, 0 if text is None else constant_text(text.encode() + b"\0"))
    return INVALID_VALUE if text is None else SUCCESS


@driver
def cuGetErrorName(code: int, out: int) -> int:
    return put_text(out, errors.name_of(code, "driver_errors"))


@driver
def cuGetErrorString(code: int, out: int) -> int:
    return put_text(out, errors.text_of(code, "driver_errors"))


@driver
def cuInit(flags: int) -> int:
    if flags:
        return INVALID_VALUE
    state.initialise()
    return SUCCESS


@driver
def cuDriverGetVersion(out: int) -> None:
    host.put32(out, VERSION)


@cache
def _named() -> dict[str, list[tuple[int, str]]]:
    """Versions and exported names of each function, the oldest first."""
    found: dict[str, list[tuple[int, str]]] = {}
    for row in rows("driver"):
        if not row.name.endswith(("_ptsz", "_ptds")):
            found.setdefault(row.base, []).append((row.version, row.name))
    return {base: sorted(versions) for base, versions in found.items()}


def entry_point(symbol: str, version: int, flags: int) -> tuple[str | None, int]:
    """The exported name that a version of CUDA means by a function's name, or why there is none."""
    known = _named().get(symbol)
    if known is None:
        return None, SYMBOL_NOT_FOUND
    fitting = [name for since, name in known if since <= version]
    if not fitting:
        return None, VERSION_TOO_LOW
    if flags & PER_THREAD:
        names = {row.name for row in rows("driver")}
        for end in ("_ptsz", "_ptds"):
            if fitting[-1] + end in names:
                return fitting[-1] + end, FOUND
    return fitting[-1], FOUND


@driver
def cuGetProcAddress_v2(symbol: int, out: int, version: int, flags: int, status: int) -> int:
    name, why = entry_point(host.name(symbol), version, flags)
    address = exported(name) if name is not None else None
    host.put64(out, address or 0)
    host.given32(status, why if address or name is None else SYMBOL_NOT_FOUND)
    return SUCCESS if address else NOT_FOUND


@driver
def cuGetProcAddress(symbol: int, out: int, version: int, flags: int) -> int:
    found: int = cuGetProcAddress_v2(symbol, out, version, flags, 0)
    return found


@driver
def cuGetExportTable(out: int, table: int) -> int:
    """NVIDIA's private tables: none is here, and who asks is told what to do, but for who does without."""
    if uuid.UUID(bytes=host.read(table, 16)) != NVRTC_TABLE:
        say(STATIC, once=True)
    host.put64(out, 0)
    return NOT_FOUND
