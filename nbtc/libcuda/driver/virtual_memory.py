"""Virtual memory (CUDA Driver API, "Virtual Memory Management"): addresses reserved, memory mapped to them."""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Any

from nbtc.libcuda import host
from nbtc.libcuda.arena import file_in_memory
from nbtc.libcuda.errors import INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, SUCCESS, CudaError
from nbtc.libcuda.memory import Block, Kind, Outside, memory
from nbtc.libcuda.registry import driver
from nbtc.libcuda.sharing import BY_FILE, PHYSICAL, is_ours
from nbtc.libcuda.state import handles, numbers

GRANULARITY = 2 << 20  # bytes, a device's
PINNED, LOCATIONS = 1, (1, 2, 3, 4)  # CUmemAllocationType, CUmemLocationType: the device, the host, its NUMA nodes
NO_ACCESS, READ, READ_WRITE = 0, 1, 3
SHARED, PRIVATE, FIXED, ANONYMOUS, NO_RESERVE = 1, 2, 16, 32, 0x4000  # MAP_*
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value
_reserved: dict[int, int] = {}  # bytes by first address
_mapped: dict[int, Physical] = {}


class Physical:
    """Memory without an address, in a file; shareable: by which kind of handle (CUmemAllocationHandleType) other
    processes may be let in; location: a CUmemLocation; references: how often its handle was given out and not released.
    """

    def __init__(self, size: int, file: int, shareable: int, location: tuple[int, int] = (1, 0)) -> None:
        self.size, self.file, self.shareable, self.location = size, file, shareable, location
        self.users = self.references = self.handle = 0

    def drop(self) -> None:
        """Give it back when nobody uses it any more."""
        if not self.references and not self.users:
            os.close(self.file)

    def given(self) -> int:
        """Its handle, for one who releases it."""
        if not self.references:
            self.handle = handles.add(self)
        self.references += 1
        return self.handle


def _map(address: int, size: int, protection: int, flags: int, file: int = -1) -> int:
    found: Any = _libc.mmap(address or None, size, protection, flags, file, 0)
    if found in (None, _FAILED):
        raise CudaError(OUT_OF_MEMORY)
    return int(found)


@driver
def cuMemGetAllocationGranularity(out: int, properties: int, option: int) -> None:
    host.read(properties, 16)
    host.put64(out, GRANULARITY)


@driver
def cuMemCreate(out: int, size: int, properties: int, flags: int) -> int:
    kind, shareable, where, place = host.halves(properties, 4)
    if not 0 < size <= memory.total or size % GRANULARITY or flags or kind != PINNED or where not in LOCATIONS:
        return INVALID_VALUE
    if shareable not in (0, BY_FILE):
        return NOT_SUPPORTED
    host.put64(out, 0)
    try:
        file = file_in_memory(PHYSICAL, size)
    except OSError:
        return OUT_OF_MEMORY
    host.put64(out, Physical(size, file, shareable, (where, place)).given())
    return SUCCESS


@driver
def cuMemExportToShareableHandle(out: int, handle: int, kind: int, flags: int) -> int:
    """A file descriptor, which the client closes or sends to another process."""
    found = handles.get(handle, Physical)
    if kind != BY_FILE or found.shareable != kind or flags:
        return INVALID_VALUE
    host.put32(out, 0)
    host.put32(out, os.dup(found.file))
    return SUCCESS


@driver
def cuMemImportFromShareableHandle(out: int, given: int, kind: int) -> int:
    if kind != BY_FILE or not is_ours(given, PHYSICAL):
        return INVALID_VALUE
    host.put64(out, 0)
    host.put64(out, Physical(os.fstat(given).st_size, os.dup(given), kind).given())
    return SUCCESS


@driver
def cuMemGetAllocationPropertiesFromHandle(out: int, handle: int) -> None:
    found = handles.get(handle, Physical)
    host.write(out, struct.pack("<IIIIQQ", PINNED, found.shareable, *found.location, 0, 0))


@driver
def cuMemRelease(handle: int) -> None:
    found = handles.get(handle, Physical)
    found.references -= 1
    if not found.references:
        handles.drop(handle)
        found.drop()


@driver
def cuMemRetainAllocationHandle(out: int, address: int) -> int:
    found = next((p for first, p in _mapped.items() if first <= address < first + p.size), None)
    if found is None:
        return INVALID_VALUE
    host.put64(out, 0)
    host.put64(out, found.given())
    return SUCCESS


@driver
def cuMemAddressReserve(out: int, size: int, alignment: int, address: int, flags: int) -> int:
    if not 0 < size <= 1 << 45 or size % GRANULARITY or flags:
        return INVALID_VALUE
    host.put64(out, 0)
    buffer = _map(0, size + GRANULARITY, NO_ACCESS, PRIVATE | ANONYMOUS | NO_RESERVE)
    first = -(-buffer // GRANULARITY) * GRANULARITY
    if first > buffer:
        _libc.munmap(buffer, first - buffer)
    if buffer + GRANULARITY > first:
        _libc.munmap(first + size, buffer + GRANULARITY - first)
    _reserved[first] = size
    host.put64(out, first)
    return SUCCESS


@driver
def cuMemAddressFree(address: int, size: int) -> int:
    if _reserved.get(address) != size or memory.overlaps(address, size):
        return INVALID_VALUE
    del _reserved[address]
    _libc.munmap(address, size)
    return SUCCESS


@driver
def cuMemMap(address: int, size: int, offset: int, handle: int, flags: int) -> int:
    found = handles.get(handle, Physical)
    inside = any(first <= address and address + size <= first + n for first, n in _reserved.items())
    if not inside or size != found.size or offset or flags or memory.overlaps(address, size):
        return INVALID_VALUE
    _map(address, size, NO_ACCESS, SHARED | FIXED, found.file)
    found.users += 1
    _mapped[address] = found
    return SUCCESS


@driver
def cuMemSetAccess(address: int, size: int, rows: int, count: int) -> int:
    """Rows of location and flags: kernels and copies reach what may be read and written."""
    flags = {host.u32(rows + 12 * i + 8) for i in range(min(count, 64))}
    here = [a for a in _mapped if address <= a < address + size]
    if not here or not flags or flags - {NO_ACCESS, READ, READ_WRITE}:
        return INVALID_VALUE
    for at in here:
        length = _mapped[at].size
        access = READ_WRITE if READ_WRITE in flags else READ if READ in flags else NO_ACCESS
        if at in memory.blocks:
            memory.free(at, Kind.MAPPED)
        _map(at, length, access, SHARED | FIXED, _mapped[at].file)
        if access == READ_WRITE:
            memory.add(Block(at, length, Kind.MAPPED, 0, Outside(at, length), next(numbers), None))
    return SUCCESS


@driver
def cuMemUnmap(address: int, size: int) -> int:
    here = [a for a in _mapped if address <= a < address + size]
    if not here:
        return INVALID_VALUE
    for at in here:
        found = _mapped.pop(at)
        if at in memory.blocks:
            memory.free(at, Kind.MAPPED)
        _map(at, found.size, NO_ACCESS, PRIVATE | ANONYMOUS | NO_RESERVE | FIXED)
        found.users -= 1
        found.drop()
    return SUCCESS
