"""Allocations (CUDA Runtime API, "Memory Management")."""

from __future__ import annotations

from nbtc.libcuda import host
from nbtc.libcuda.driver.memory import DEVICE_KINDS, put_allocation, put_pitched, registered
from nbtc.libcuda.errors import INVALID_VALUE, SUCCESS
from nbtc.libcuda.memory import PITCH, Kind, memory
from nbtc.libcuda.registry import runtime
from nbtc.libcuda.rows import Extent
from nbtc.libcuda.runtime.registration import symbol
from nbtc.libcuda.streams import unsafe_in_capture

TYPES = {Kind.HOST: 1, Kind.HOST_POOL: 1, Kind.MANAGED: 3}  # cudaMemoryType; the rest is the device's
UNREGISTERED, DEVICE = 0, 2


@runtime
def cudaMalloc(out: int, size: int) -> int:
    unsafe_in_capture()
    if not size:
        host.put64(out, 0)
        return SUCCESS
    return put_allocation(out, size, Kind.DEVICE)


@runtime
def cudaMallocManaged(out: int, size: int, flags: int) -> int:
    return INVALID_VALUE if flags not in (1, 2) else put_allocation(out, size, Kind.MANAGED, flags)


@runtime
def cudaFree(address: int) -> int:
    if address:
        unsafe_in_capture()
        memory.free(address, *DEVICE_KINDS)
    return SUCCESS


@runtime
def cudaFreeHost(address: int) -> int:
    if address in registered:
        return INVALID_VALUE
    if address:
        memory.free(address, Kind.HOST)
    return SUCCESS


@runtime
def cudaMallocPitch(out: int, pitch: int, width: int, height: int) -> int:
    return put_pitched(out, pitch, width, height)


@runtime
def cudaMalloc3D(out: int, extent: Extent) -> int:
    """A cudaPitchedPtr: address, pitch, width and height."""
    pitch = -(-extent.width // PITCH) * PITCH
    code = put_allocation(out, pitch * extent.height * extent.depth, Kind.DEVICE)
    for i, value in enumerate((pitch, extent.width, extent.height)):
        host.put64(out + 8 + 8 * i, value)
    return code


@runtime
def cudaPointerGetAttributes(out: int, address: int) -> None:
    """cudaPointerAttributes: type, device, its pointer, the host's."""
    found = memory.find(address)
    if found is None:
        host.write(out, bytes(4) + (0xFFFFFFFE).to_bytes(4, "little") + bytes(8) + address.to_bytes(8, "little"))
        return
    kind = TYPES.get(found.kind, DEVICE)
    from_host = address if found.kind in TYPES else 0
    numbers = ((kind, 4), (0, 4), (address, 8), (from_host, 8))
    host.write(out, b"".join(n.to_bytes(size, "little") for n, size in numbers))


@runtime
def cudaGetSymbolAddress(out: int, address: int) -> None:
    host.put64(out, symbol(address)[0])


@runtime
def cudaGetSymbolSize(out: int, address: int) -> None:
    host.put64(out, symbol(address)[1])
