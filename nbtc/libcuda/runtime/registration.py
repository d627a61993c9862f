"""What code that nvcc wrote calls before main (crt/host_runtime.h): fat binaries with their kernels and variables."""

from __future__ import annotations

import threading
from typing import Any

from nbtc.libcuda import host, state
from nbtc.libcuda.code import Function, Loaded, texts_of
from nbtc.libcuda.errors import INVALID_DEVICE_FUNCTION, INVALID_SYMBOL, INVALID_VALUE, SUCCESS, CudaError
from nbtc.libcuda.registry import runtime, runtime_as
from nbtc.libcuda.rows import Dim
from nbtc.libcuda.state import handles


class Binary:
    """A registered fat binary: loaded when something of it is first used."""

    def __init__(self, image: int) -> None:
        self.image, self._loaded = image, list[Loaded]()
        self.managed: list[tuple[int, str]] = []
        self.lock = threading.Lock()

    @property
    def loaded(self) -> Loaded:
        """Its module."""
        if not self._loaded:
            with self.lock:
                if not self._loaded:
                    self._loaded.append(Loaded(texts_of(self.image, "this program")))
        return self._loaded[0]

    def unload(self) -> None:
        """Give back the module; it is loaded anew when it is used again."""
        for one in self._loaded:
            one.unload()
        self._loaded.clear()


_binaries: list[Binary] = []
kernels: dict[int, tuple[Binary, str]] = {}
variables: dict[int, tuple[Binary, str, int]] = {}
_configurations: dict[int, list[Any]] = {}


@runtime
def __cudaRegisterFatBinary(image: int) -> int:
    made = Binary(image)
    _binaries.append(made)
    return handles.add(made)


@runtime_as("__cudaRegisterFatBinaryEnd")
def __cudaRegisterFatBinaryEnd(handle: int) -> None:
    handles.get(handle, Binary)


@runtime
def __cudaUnregisterFatBinary(handle: int) -> None:
    found = handles.get(handle, Binary)
    found.unload()
    _binaries.remove(found)
    for table in (kernels, variables):
        for host_address in [a for a, row in table.items() if row[0] is found]:
            del table[host_address]
    handles.drop(handle)


@runtime
def __cudaRegisterFunction(binary, function, device, name, limit, tid, bid, block, grid, warp):
    kernels[function] = (handles.get(binary, Binary), host.name(name))


@runtime
def __cudaRegisterVar(binary, variable, address, name, ext, size, constant, everywhere):
    variables[variable] = (handles.get(binary, Binary), host.name(name), size)


@runtime
def __cudaRegisterManagedVar(binary, where, address, name, ext, size, constant, everywhere):
    found = handles.get(binary, Binary)
    found.managed.append((where, host.name(name)))
    variables[where] = (found, host.name(name), size)


@runtime
def __cudaInitModule(handle: int) -> int:
    """The host's pointers to managed variables get their addresses."""
    found = handles.get(handle, Binary)
    if found.managed:
        state.use_primary()
    for where, name in found.managed:
        host.put64(where, found.loaded.variable(name)[0])
    return 1


@runtime
def __cudaPushCallConfiguration(grid: Dim, block: Dim, shared: int, stream: int) -> int:
    row = ((grid.x, grid.y, grid.z), (block.x, block.y, block.z), shared, stream)
    _configurations.setdefault(threading.get_ident(), []).append(row)
    return SUCCESS


@runtime
def __cudaPopCallConfiguration(grid: int, block: int, shared: int, stream: int) -> int:
    waiting = _configurations.get(threading.get_ident())
    if not waiting:
        return INVALID_VALUE
    extents, threads, size, handle = waiting.pop()
    for at, numbers in ((grid, extents), (block, threads)):
        host.write(at, b"".join(n.to_bytes(4, "little") for n in numbers))
    host.put64(shared, size)
    host.put64(stream, handle)
    return SUCCESS


def function(address: int) -> Function:
    """The kernel that a function of the host stands for, or that is one of the driver's."""
    known = kernels.get(address)
    if known is None:
        found = handles.objects.get(address)
        if isinstance(found, Function):
            return found
        raise CudaError(INVALID_DEVICE_FUNCTION)
    return known[0].loaded.function(known[1])


def symbol(address: int) -> tuple[int, int]:
    """Address and bytes of the device's variable that one of the host stands for."""
    known = variables.get(address)
    if known is None:
        raise CudaError(INVALID_SYMBOL)
    return known[0].loaded.variable(known[1])


@runtime_as("__cudaGetKernel", "cudaGetKernel", "cudaGetFuncBySymbol")
def cudaGetKernel(out: int, address: int) -> None:
    host.put64(out, function(address).handle)


def unload_all() -> None:
    """`cudaDeviceReset`: everything that was loaded is gone."""
    for one in _binaries:
        one.unload()
