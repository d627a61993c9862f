"""Memory, events and pools of other processes.

(CUDA Driver API, "Memory Management", "Event Management", "Stream Ordered Memory Allocator".)  A process's work is done
by the time that it tells another process of it: an event from there has passed.
"""

from __future__ import annotations

import os
from typing import Any

from nbtc.libcuda import host
from nbtc.libcuda.arena import file_in_memory
from nbtc.libcuda.driver.pools import Pool
from nbtc.libcuda.driver.streams import DISABLE_TIMING, INTERPROCESS
from nbtc.libcuda.errors import INVALID_HANDLE, INVALID_VALUE, SUCCESS
from nbtc.libcuda.memory import Kind, memory
from nbtc.libcuda.registry import driver, driver_as
from nbtc.libcuda.sharing import BY_FILE, LAYOUT, POOL, What, close, exports, is_ours, let_in, opened, ticket
from nbtc.libcuda.state import disown, handles, own
from nbtc.libcuda.streams import Event

LAZY_PEERS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS


@driver
def cuIpcGetMemHandle(out: int, address: int) -> int:
    found = memory.find(address)
    if found is None or found.kind is not Kind.DEVICE:
        return INVALID_VALUE
    host.write(out, exports.of(found, What.MEMORY).packed())
    return SUCCESS


@driver_as("cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2")
def cuIpcOpenMemHandle(out: int, given: Any, flags: int) -> int:
    if flags & ~LAZY_PEERS:
        return INVALID_VALUE
    host.put64(out, 0)
    host.put64(out, let_in(ticket(bytes(given.bytes), What.MEMORY), Kind.OPENED))
    return SUCCESS


@driver
def cuIpcCloseMemHandle(address: int) -> None:
    close(address)


@driver
def cuIpcGetEventHandle(out: int, event: int) -> int:
    if not handles.get(event, Event).flags & INTERPROCESS:
        return INVALID_HANDLE
    host.write(out, exports.base(What.EVENT)._replace(number=event).packed())
    return SUCCESS


@driver
def cuIpcOpenEventHandle(out: int, given: Any) -> None:
    host.put64(out, 0)
    os.close(opened(ticket(bytes(given.bytes), What.EVENT)))
    host.put64(out, own(Event(DISABLE_TIMING | INTERPROCESS), disown))


@driver
def cuMemPoolExportToShareableHandle(out: int, pool: int, kind: int, flags: int) -> int:
    """The descriptor of a file that says which pool it is, for the client to close or to send to another process."""
    number = handles.get(pool, Pool).number
    if kind != BY_FILE or not number or flags:
        return INVALID_VALUE
    host.put32(out, 0)
    file = file_in_memory(POOL, LAYOUT.size)
    os.pwrite(file, exports.base(What.POOL)._replace(pool=number).packed(), 0)
    host.put32(out, file)
    return SUCCESS


@driver
def cuMemPoolImportFromShareableHandle(out: int, given: int, kind: int, flags: int) -> int:
    if kind != BY_FILE or flags or not is_ours(given, POOL):
        return INVALID_VALUE
    found = ticket(os.pread(given, LAYOUT.size, 0).ljust(LAYOUT.size), What.POOL)
    os.close(opened(found))
    host.put64(out, 0)
    host.put64(out, handles.add(Pool(imported=found)))
    return SUCCESS


@driver
def cuMemPoolExportPointer(out: int, address: int) -> int:
    found = memory.find(address)
    if found is None or found.kind is not Kind.POOL or not found.flags:  # the number of a pool that may be shared
        return INVALID_VALUE
    host.write(out, exports.of(found, What.POOL_MEMORY, found.flags).packed())
    return SUCCESS


@driver
def cuMemPoolImportPointer(out: int, pool: int, data: int) -> int:
    source = handles.get(pool, Pool).imported
    given = ticket(host.read(data, LAYOUT.size), What.POOL_MEMORY)
    if source is None or (source.name, source.pool) != (given.name, given.pool):
        return INVALID_VALUE
    host.put64(out, 0)
    host.put64(out, let_in(given, Kind.IMPORTED))
    return SUCCESS
