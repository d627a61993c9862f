"""Allocations (CUDA Driver API, "Memory Management", "Unified Addressing")."""

from __future__ import annotations

from typing import Any

from nbtc.libcuda import host
from nbtc.libcuda.errors import (
    HOST_MEMORY_ALREADY_REGISTERED,
    HOST_MEMORY_NOT_REGISTERED,
    INVALID_VALUE,
    SUCCESS,
    CudaError,
)
from nbtc.libcuda.memory import ALIGN, PITCH, Block, Kind, Outside, memory
from nbtc.libcuda.registry import driver, driver_as
from nbtc.libcuda.state import current_or_none, numbers, primary
from nbtc.libcuda.streams import stream_of, unsafe_in_capture

PAGE = 4096
READ_ONLY = 8  # CU_MEMHOSTREGISTER_READ_ONLY
registered: set[int] = set()  # memory of the host's own that kernels may reach
DEVICE_KINDS = (Kind.DEVICE, Kind.MANAGED, Kind.POOL, Kind.IMPORTED)


def put_allocation(out: int, size: int, kind: Kind, flags: int = 0, align: int = ALIGN) -> int:
    """Allocate, once it is known that the address can be handed over."""
    host.put64(out, 0)
    if size <= 0:
        return INVALID_VALUE
    host.put64(out, memory.allocate(size, kind, flags, align))
    return SUCCESS


@driver
def cuMemAlloc_v2(out: int, size: int) -> int:
    unsafe_in_capture()
    return put_allocation(out, size, Kind.DEVICE)


@driver
def cuMemAllocManaged(out: int, size: int, flags: int) -> int:
    if flags not in (1, 2):  # CU_MEM_ATTACH_GLOBAL, CU_MEM_ATTACH_HOST
        return INVALID_VALUE
    return put_allocation(out, size, Kind.MANAGED, flags)


@driver
def cuMemAllocPitch_v2(out: int, pitch: int, width: int, height: int, element: int) -> int:
    if element not in (4, 8, 16):
        return INVALID_VALUE
    return put_pitched(out, pitch, width, height)


def put_pitched(out: int, pitch: int, width: int, height: int) -> int:
    """Rows that begin at multiples of the pitch."""
    row = -(-width // PITCH) * PITCH
    host.put64(pitch, row)
    return put_allocation(out, row * height, Kind.DEVICE)


@driver
def cuMemAllocHost_v2(out: int, size: int) -> int:
    return put_allocation(out, size, Kind.HOST, 0, PAGE)


@driver
def cuMemHostAlloc(out: int, size: int, flags: int) -> int:
    return INVALID_VALUE if flags & ~7 else put_allocation(out, size, Kind.HOST, flags, PAGE)


@driver
def cuMemFree_v2(address: int) -> int:
    if address:
        unsafe_in_capture()
        memory.free(address, *DEVICE_KINDS)
    return SUCCESS


@driver
def cuMemFreeHost(address: int) -> int:
    if address in registered:
        return INVALID_VALUE
    memory.free(address, Kind.HOST)
    return SUCCESS


@driver
def cuMemHostRegister_v2(address: int, size: int, flags: int) -> int:
    if not address or size <= 0 or flags & ~15:
        return INVALID_VALUE
    if size > memory.total or not host.mapped(address, size, not flags & READ_ONLY):
        return INVALID_VALUE
    if memory.overlaps(address, size):
        return HOST_MEMORY_ALREADY_REGISTERED
    outside = Outside(address, size)
    memory.add(Block(address, size, Kind.HOST, flags, outside, next(numbers), current_or_none()))
    registered.add(address)
    return SUCCESS


@driver
def cuMemHostUnregister(address: int) -> int:
    if address not in registered:
        return HOST_MEMORY_NOT_REGISTERED
    registered.discard(address)
    if address in memory.blocks:  # not since its context ended
        memory.free(address, Kind.HOST)
    return SUCCESS


@driver
def cuMemHostGetDevicePointer_v2(out: int, address: int, flags: int) -> int:
    found = memory.find(address)
    host.put64(out, 0)
    if found is None or found.kind not in (Kind.HOST, Kind.HOST_POOL, Kind.MANAGED) or flags:
        return INVALID_VALUE
    host.put64(out, address)
    return SUCCESS


@driver
def cuMemHostGetFlags(out: int, address: int) -> int:
    found = memory.find(address)
    if found is None or found.kind is not Kind.HOST:
        return INVALID_VALUE
    host.put32(out, found.flags)
    return SUCCESS


@driver
def cuMemGetInfo_v2(free: int, total: int) -> None:
    host.put64(free, max(0, memory.total - memory.used))
    host.put64(total, memory.total)


@driver
def cuMemGetAddressRange_v2(base: int, size: int, address: int) -> None:
    found = memory.inside(address, 1)
    host.given64(base, found.first)
    host.given64(size, found.bytes)


@driver_as("cuMemPrefetchAsync")
def cuMemPrefetchAsync(address: int, size: int, device: int, stream: int) -> None:
    memory.inside(address, size)
    stream_of(stream)


@driver_as("cuMemPrefetchAsync_v2")
def cuMemPrefetchAsync_v2(address: int, size: int, where: Any, flags: int, stream: int) -> None:
    memory.inside(address, size)
    stream_of(stream)


@driver_as("cuMemAdvise", "cuMemAdvise_v2")
def cuMemAdvise(address: int, size: int, advice: int, device: Any) -> None:
    memory.inside(address, size)


@driver
def cuMemRangeGetAttribute(out: int, size: int, what: int, address: int, count: int) -> int:
    memory.inside(address, count)
    if size % 4 or not 4 <= size <= PAGE:
        return INVALID_VALUE
    host.write(out, bytes(size))
    return SUCCESS


# CUpointer_attribute
CONTEXT, MEMORY_TYPE, DEVICE_POINTER, HOST_POINTER, SYNC, BUFFER_ID, MANAGED, ORDINAL = 1, 2, 3, 4, 6, 7, 8, 9
START, SIZE, MAPPED = 11, 12, 13
BYTES = {MEMORY_TYPE: 4, SYNC: 4, MANAGED: 1, ORDINAL: 4, MAPPED: 1, 10: 1, 14: 4, 15: 1, 16: 4, 18: 4, 19: 8, 21: 1}
UNKNOWN = {MEMORY_TYPE: 0, ORDINAL: -2}  # of what is no allocation


def pointer_attribute(what: int, address: int) -> int:
    """An attribute of an address that lies in an allocation."""
    found = memory.find(address)
    if found is None:
        raise CudaError(INVALID_VALUE)
    on_host = found.kind in (Kind.HOST, Kind.HOST_POOL)
    from_host = on_host or found.kind is Kind.MANAGED
    if what == HOST_POINTER and not from_host:
        raise CudaError(INVALID_VALUE)
    values = {
        CONTEXT: (found.context or primary).handle, MEMORY_TYPE: 1 if on_host else 2,
        DEVICE_POINTER: address, HOST_POINTER: address, SYNC: 1, BUFFER_ID: found.id,
        MANAGED: int(found.kind is Kind.MANAGED), ORDINAL: 0, START: found.first, SIZE: found.bytes, MAPPED: 1,
    }  # fmt: skip
    return values.get(what, 0)


def put_attribute(out: int, what: int, value: int) -> None:
    """An attribute, as wide as its type."""
    size = BYTES.get(what, 8)
    host.write(out, (value & (1 << 8 * size) - 1).to_bytes(size, "little"))


@driver
def cuPointerGetAttribute(out: int, what: int, address: int) -> None:
    put_attribute(out, what, pointer_attribute(what, address))


@driver
def cuPointerGetAttributes(count: int, what: int, data: int, address: int) -> None:
    """Several at once: of what is no allocation they say so, without an error."""
    for kind, out in zip(host.halves(what, count), host.words(data, count), strict=True):
        try:
            value = pointer_attribute(kind, address)
        except CudaError:
            value = UNKNOWN.get(kind, 0)
        put_attribute(out, kind, value)


@driver
def cuPointerSetAttribute(value: int, what: int, address: int) -> None:
    host.read(value, 4)
    memory.inside(address, 1)
