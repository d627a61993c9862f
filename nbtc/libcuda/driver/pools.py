"""Memory pools (CUDA Driver API, "Stream Ordered Memory Allocator"): allocations in a stream's order."""

from __future__ import annotations

from nbtc.libcuda import host
from nbtc.libcuda.driver.graphs.memory_nodes import FREED, allocated, freed
from nbtc.libcuda.driver.memory import put_allocation
from nbtc.libcuda.errors import INVALID_VALUE, NOT_SUPPORTED, SUCCESS, CudaError
from nbtc.libcuda.memory import Kind, memory
from nbtc.libcuda.registry import driver, driver_as
from nbtc.libcuda.sharing import BY_FILE, Ticket
from nbtc.libcuda.state import device, handles, numbers
from nbtc.libcuda.streams import stream_of, submit

SWITCHES = (1, 2, 3)  # attributes that are ints; the others count bytes
THRESHOLD, RESERVED, USED = 4, (5, 6), (7, 8)
READ_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
PINNED, MANAGED = 1, 2  # CUmemAllocationType
DEVICE_LOCATION, HOST_LOCATIONS = 1, (2, 3, 4)  # CUmemLocationType: the host, one of its NUMA nodes, the current one


def kind_of(allocation: int, location: int) -> Kind:
    """Whose memory a pool's allocations are."""
    if allocation == MANAGED:
        return Kind.MANAGED
    if allocation != PINNED or location not in (DEVICE_LOCATION, *HOST_LOCATIONS):
        raise CudaError(INVALID_VALUE)
    return Kind.POOL if location == DEVICE_LOCATION else Kind.HOST_POOL


class Pool:
    """A memory pool; shareable: other processes may be let in; imported: which of another process's it is."""

    def __init__(self, kind: Kind = Kind.POOL, shareable: bool = False, imported: Ticket | None = None) -> None:
        self.attributes: dict[int, int] = dict.fromkeys(SWITCHES, 1)
        self.kind, self.imported = kind, imported
        self.number = next(numbers) if shareable else 0


default = Pool()
default_handle = handles.add(default)
_current = [default_handle]
_defaults = {Kind.POOL: default_handle}


@driver
def cuMemAllocAsync(out: int, size: int, stream: int) -> int:
    if stream_of(stream).graph is not None:
        host.put64(out, 0)
        address, (kind, run, params) = allocated(size)
        submit(stream, kind, run, params)
        host.put64(out, address)
        return SUCCESS
    return put_allocation(out, size, Kind.POOL)


@driver
def cuMemAllocFromPoolAsync(out: int, size: int, pool: int, stream: int) -> int:
    found_pool = handles.get(pool, Pool)
    if found_pool.imported is not None:
        return INVALID_VALUE
    if stream_of(stream).graph is None:
        return put_allocation(out, size, found_pool.kind, found_pool.number)
    found: int = cuMemAllocAsync(out, size, stream)
    return found


@driver
def cuMemFreeAsync(address: int, stream: int) -> None:
    graph = stream_of(stream).graph
    if graph is not None:
        submit(stream, *freed(graph, address))
        return
    if memory.blocks.get(address) is None:
        raise CudaError(INVALID_VALUE)
    memory.free(address, *FREED)


@driver
def cuDeviceGetDefaultMemPool(out: int, number: int) -> None:
    device(number)
    host.put64(out, default_handle)


@driver
def cuDeviceGetMemPool(out: int, number: int) -> None:
    device(number)
    host.put64(out, _current[0])


@driver
def cuDeviceSetMemPool(number: int, pool: int) -> None:
    device(number)
    handles.get(pool, Pool)
    _current[0] = pool


@driver
def cuMemPoolCreate(out: int, properties: int) -> int:
    allocation, shareable, location = host.halves(properties, 3)
    kind = kind_of(allocation, location)
    if shareable not in ((0, BY_FILE) if kind is Kind.POOL else (0,)):
        return NOT_SUPPORTED
    host.put64(out, 0)
    host.put64(out, handles.add(Pool(kind, shareable == BY_FILE)))
    return SUCCESS


@driver
def cuMemPoolDestroy(pool: int) -> int:
    handles.get(pool, Pool)
    if pool in _defaults.values():
        return INVALID_VALUE
    if _current[0] == pool:
        _current[0] = default_handle
    handles.drop(pool)
    return SUCCESS


@driver
def cuMemPoolSetAttribute(pool: int, what: int, value: int) -> int:
    found = handles.get(pool, Pool)
    if not 1 <= what <= 8:
        return INVALID_VALUE
    found.attributes[what] = host.u32(value) if what in SWITCHES else host.u64(value)
    return SUCCESS


@driver
def cuMemPoolGetAttribute(pool: int, what: int, out: int) -> int:
    found = handles.get(pool, Pool)
    if not 1 <= what <= 8:
        return INVALID_VALUE
    used = sum(b.bytes for b in list(memory.blocks.values()) if b.kind is found.kind)
    if what in SWITCHES:
        host.put32(out, found.attributes[what])
    else:
        host.put64(out, found.attributes.get(what, 0) if what == THRESHOLD else used)
    return SUCCESS


@driver
def cuMemPoolTrimTo(pool: int, size: int) -> None:
    handles.get(pool, Pool)


@driver
def cuMemPoolSetAccess(pool: int, rows: int, count: int) -> None:
    handles.get(pool, Pool)


@driver
def cuMemPoolGetAccess(out: int, pool: int, location: int) -> None:
    handles.get(pool, Pool)
    host.put32(out, READ_WRITE)


@driver_as("cuMemGetDefaultMemPool", "cuMemGetMemPool")
def cuMemGetMemPool(out: int, location: int, kind: int) -> None:
    where = kind_of(kind, host.u32(location))
    if where not in _defaults:
        _defaults[where] = handles.add(Pool(where))
    host.put64(out, _defaults[where])


@driver
def cuMemSetMemPool(location: int, kind: int, pool: int) -> None:
    handles.get(pool, Pool)
