"""The device (CUDA Runtime API, "Device Management")."""

from __future__ import annotations

from functools import cache

from nbtc.libcuda import host, state
from nbtc.libcuda.attach_points import exported
from nbtc.libcuda.driver.contexts import cuDevicePrimaryCtxReset
from nbtc.libcuda.driver.devices import BLOCK, GRID, THREADS, attribute, attributes, uuid
from nbtc.libcuda.driver.entry_points import entry_point
from nbtc.libcuda.errors import (
    INVALID_DEVICE,
    INVALID_VALUE,
    PEER_ACCESS_NOT_ENABLED,
    PEER_ACCESS_UNSUPPORTED,
    SUCCESS,
    CudaError,
)
from nbtc.libcuda.memory import memory
from nbtc.libcuda.registry import runtime, runtime_as
from nbtc.libcuda.rows import TABLES, VERSION
from nbtc.libcuda.runtime.registration import unload_all
from nbtc.libcuda.runtime.results import forget
from nbtc.libcuda.state import initialise, processor


def _check(number: int) -> None:
    initialise()
    if number:
        raise CudaError(INVALID_DEVICE)


@runtime
def cudaGetDeviceCount(out: int) -> None:
    initialise()
    host.put32(out, 1)


@runtime
def cudaGetDevice(out: int) -> None:
    host.put32(out, 0)


@runtime
def cudaSetDevice(number: int) -> None:
    _check(number)
    state.use_primary()


@runtime
def cudaInitDevice(number: int, device_flags: int, flags: int) -> None:
    _check(number)


@runtime_as("cudaSetDeviceFlags", "cudaDeviceSetCacheConfig", "cudaDeviceSetSharedMemConfig")
def cudaSetDeviceFlags(flags: int) -> None:
    initialise()


@runtime_as("cudaGetDeviceFlags", "cudaDeviceGetCacheConfig")
def cudaGetDeviceFlags(out: int) -> None:
    host.put32(out, 0)


@runtime
def cudaSetValidDevices(devices: int, count: int) -> int:
    return INVALID_VALUE if any(host.halves(devices, count)) else SUCCESS


@runtime
def cudaRuntimeGetVersion(out: int) -> None:
    host.put32(out, VERSION)


@runtime
def cudaDeviceGetAttribute(out: int, what: int, number: int) -> None:
    _check(number)
    host.put32(out, attribute(what))


@runtime
def cudaDeviceReset() -> None:
    """Everything of the device is gone, a kernel's fault too; what the program registered is loaded anew."""
    initialise()
    unload_all()
    cuDevicePrimaryCtxReset(0)
    forget()


@runtime
def cudaDeviceEnablePeerAccess(number: int, flags: int) -> int:
    return PEER_ACCESS_UNSUPPORTED if not number else INVALID_DEVICE


@runtime
def cudaDeviceDisablePeerAccess(number: int) -> int:
    return PEER_ACCESS_NOT_ENABLED if not number else INVALID_DEVICE


@runtime
def cudaChooseDevice(out: int, properties: int) -> None:
    host.put32(out, 0)


@cache
def _fields() -> dict[str, tuple[int, int]]:
    """Offset and bytes of each field of cudaDeviceProp; those of "-" are the end."""
    lines = (TABLES / "properties.txt").read_text(encoding="ascii").splitlines()
    return {name: (int(at), int(size)) for name, at, size in (line.split() for line in lines)}


# Fields whose names aren't those of attributes, in small and large letters, without underscores.
_OTHER = {
    "regsPerBlock": "MAX_REGISTERS_PER_BLOCK", "sharedMemPerBlock": "MAX_SHARED_MEMORY_PER_BLOCK",
    "memoryPoolSupportedHandleTypes": "MEMPOOL_SUPPORTED_HANDLE_TYPES",
    "memPitch": "MAX_PITCH", "totalConstMem": "TOTAL_CONSTANT_MEMORY", "major": "COMPUTE_CAPABILITY_MAJOR",
    "minor": "COMPUTE_CAPABILITY_MINOR", "multiProcessorCount": "MULTIPROCESSOR_COUNT",
    "memoryBusWidth": "GLOBAL_MEMORY_BUS_WIDTH", "persistingL2CacheMaxSize": "MAX_PERSISTING_L2_CACHE_SIZE",
    "sharedMemPerMultiprocessor": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "regsPerMultiprocessor": "MAX_REGISTERS_PER_MULTIPROCESSOR", "asyncEngineCount": "ASYNC_ENGINE_COUNT",
    "sharedMemPerBlockOptin": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "maxBlocksPerMultiProcessor": "MAX_BLOCKS_PER_MULTIPROCESSOR",
    "maxThreadsPerMultiProcessor": "MAX_THREADS_PER_MULTIPROCESSOR",
    "reservedSharedMemPerBlock": "RESERVED_SHARED_MEMORY_PER_BLOCK", "unifiedFunctionPointers": "",
    "accessPolicyMaxWindowSize": "MAX_ACCESS_POLICY_WINDOW_SIZE",
}  # fmt: skip


@cache
def properties() -> bytes:
    """cudaDeviceProp."""
    fields, known = _fields(), attributes()
    plain = {name.replace("_", "").lower(): value for name, value in known.items()}
    buffer = bytearray(fields["-"][0])
    values: dict[str, bytes | int] = {
        "name": processor().facts.name.encode()[:255], "uuid": uuid(), "totalGlobalMem": memory.total,
        "maxThreadsDim": b"".join(n.to_bytes(4, "little") for n in BLOCK), "maxThreadsPerBlock": THREADS,
        "maxGridSize": b"".join(n.to_bytes(4, "little") for n in GRID), "luidDeviceNodeMask": 1,
    }  # fmt: skip
    for name, (at, size) in fields.items():
        value = values.get(name)
        if value is None:
            value = known.get(_OTHER[name], 0) if name in _OTHER else plain.get(name.lower(), 0)
        raw = value if isinstance(value, bytes) else value.to_bytes(min(size, 8) or 1, "little")
        if size:
            buffer[at : at + len(raw)] = raw
    return bytes(buffer)


@runtime
def cudaGetDeviceProperties(out: int, number: int) -> None:
    _check(number)
    host.write(out, properties())


def put_entry_point(symbol: int, out: int, version: int, flags: int, status: int) -> int:
    """The driver's function of that name."""
    name, why = entry_point(host.name(symbol), version, flags)
    address = exported(name) if name is not None else None
    host.put64(out, address or 0)
    host.given32(status, why)
    return SUCCESS


@runtime
def cudaGetDriverEntryPoint(symbol: int, out: int, flags: int, status: int) -> int:
    return put_entry_point(symbol, out, VERSION, flags, status)


@runtime
def cudaGetDriverEntryPointByVersion(symbol: int, out: int, version: int, flags: int, status: int) -> int:
    return put_entry_point(symbol, out, version, flags, status)
