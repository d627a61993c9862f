"""Launches, kernels' attributes, occupancy (CUDA Runtime API, "Execution Control", "Occupancy")."""

from __future__ import annotations

from nbtc.libcuda import host
from nbtc.libcuda.direct.shared import launch_again
from nbtc.libcuda.driver.kernels import attribute, set_attribute
from nbtc.libcuda.driver.launches import active_clusters
from nbtc.libcuda.driver.streams import put_stream
from nbtc.libcuda.errors import INVALID_VALUE, SUCCESS
from nbtc.libcuda.launching import Config, arguments, config_of, launch, occupancy
from nbtc.libcuda.registry import DRIVER, runtime, runtime_as
from nbtc.libcuda.rows import Dim
from nbtc.libcuda.runtime.registration import function
from nbtc.libcuda.state import processor


def _launched(address: int, config: Config, args: int) -> None:
    f = function(address)
    launch(f, config, arguments(f, args, 0))


@runtime_as("cudaLaunchKernel", "__cudaLaunchKernel")
def cudaLaunchKernel(address: int, grid: Dim, block: Dim, args: int, shared: int, stream: int) -> None:
    f, config = function(address), Config((grid.x, grid.y, grid.z), (block.x, block.y, block.z), shared, stream)
    launch_again(address, f, config, arguments(f, args, 0))


@runtime
def cudaLaunchCooperativeKernel(address: int, grid: Dim, block: Dim, args: int, shared: int, stream: int) -> None:
    config = Config((grid.x, grid.y, grid.z), (block.x, block.y, block.z), shared, stream, None, True)
    _launched(address, config, args)


@runtime
def cudaLaunchKernelExC(config: int, address: int, args: int) -> None:
    _launched(address, config_of(config, False), args)


@runtime
def cudaStreamCreate(out: int) -> int:
    return put_stream(out, 0, 0)


@runtime
def cudaEventCreate(out: int) -> int:
    found: int = DRIVER["cuEventCreate"](out, 0)
    return found


# cudaFuncAttributes (CUDA Runtime API): the place of each CUfunction_attribute in it, and its bytes in all
_WIDE = {1: 0, 2: 8, 3: 16}
_NARROW = {0: 24, 4: 28, 5: 32, 6: 36, 7: 40, 8: 44, 9: 48, 10: 52, 11: 56, 12: 60, 13: 64, 15: 68, 14: 72}
_ATTRIBUTES_BYTES = 144


@runtime
def cudaFuncGetAttributes(out: int, address: int) -> None:
    f, buffer = function(address), bytearray(_ATTRIBUTES_BYTES)
    for width, places in ((8, _WIDE), (4, _NARROW)):
        for what, at in places.items():
            buffer[at : at + width] = attribute(f, what).to_bytes(width, "little", signed=True)
    host.write(out, bytes(buffer))


@runtime
def cudaFuncSetAttribute(address: int, what: int, value: int) -> int:
    return set_attribute(function(address), what, value)


@runtime_as("cudaFuncSetCacheConfig", "cudaFuncSetSharedMemConfig")
def cudaFuncSetCacheConfig(address: int, config: int) -> None:
    function(address)


@runtime
def cudaFuncGetName(out: int, address: int) -> None:
    host.put64(out, function(address).label_at)


@runtime_as("cudaOccupancyMaxActiveBlocksPerMultiprocessor", "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags")
def cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    out: int, address: int, threads: int, shared: int, flags: int = 0
) -> int:
    if threads <= 0:
        return INVALID_VALUE
    host.put32(out, occupancy(function(address), threads, shared))
    return SUCCESS


@runtime
def cudaOccupancyAvailableDynamicSMemPerBlock(out: int, address: int, blocks: int, threads: int) -> int:
    found: int = DRIVER["cuOccupancyAvailableDynamicSMemPerBlock"](out, function(address).handle, blocks, threads)
    return found


@runtime
def cudaOccupancyMaxPotentialClusterSize(out: int, address: int, config: int) -> None:
    function(address)
    host.put32(out, processor().facts.cluster)


@runtime
def cudaOccupancyMaxActiveClusters(out: int, address: int, config: int) -> None:
    host.put32(out, active_clusters(function(address), config, False))
