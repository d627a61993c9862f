"""Launches and occupancy (CUDA Driver API, "Execution Control", "Occupancy")."""

from __future__ import annotations

import ctypes

from nbtc.libcuda import host
from nbtc.libcuda.code import Function
from nbtc.libcuda.direct.shared import launch_again
from nbtc.libcuda.driver.streams import check_code
from nbtc.libcuda.errors import INVALID_VALUE, SUCCESS, CudaError
from nbtc.libcuda.launching import Config, arguments, config_of, launch, occupancy
from nbtc.libcuda.registry import driver, driver_as
from nbtc.libcuda.state import handles, processor


@driver
def cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra):
    function = handles.get(f, Function)
    raw = arguments(function, params, extra)
    launch_again(f, function, Config((gx, gy, gz), (bx, by, bz), shared, stream), raw)


@driver
def cuLaunchCooperativeKernel(f, gx, gy, gz, bx, by, bz, shared, stream, params):
    function = handles.get(f, Function)
    raw = arguments(function, params, 0)
    launch(function, Config((gx, gy, gz), (bx, by, bz), shared, stream, None, True), raw)


@driver
def cuLaunchKernelEx(config: int, f: int, params: int, extra: int) -> None:
    function = handles.get(f, Function)
    launch(function, config_of(config, True), arguments(function, params, extra))


@driver_as("cuOccupancyMaxActiveBlocksPerMultiprocessor", "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags")
def cuOccupancyMaxActiveBlocksPerMultiprocessor(out: int, f: int, threads: int, shared: int, flags: int = 0) -> int:
    function = handles.get(f, Function)
    if threads <= 0:
        return INVALID_VALUE
    host.put32(out, occupancy(function, threads, shared))
    return SUCCESS


def best_block(function: Function, callback: int, shared: int, limit: int) -> tuple[int, int]:
    """The smallest grid and the block that fill the device, as `cuOccupancyMaxPotentialBlockSize` seeks them."""
    if callback and not check_code(callback):
        raise CudaError(INVALID_VALUE)
    of_block = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int)(callback) if callback else None
    most = min(function.threads, limit or function.threads)
    best = (0, 0, 0)
    for threads in range(32, max(most, 32) + 1, 32):
        blocks = occupancy(function, threads, of_block(threads) if of_block else shared)
        best = max(best, (blocks * threads, threads, blocks))
    return best[2] * processor().facts.processors, best[1]


@driver_as("cuOccupancyMaxPotentialBlockSize", "cuOccupancyMaxPotentialBlockSizeWithFlags")
def cuOccupancyMaxPotentialBlockSize(grid, block, f, callback, shared, limit, flags=0):
    blocks, threads = best_block(handles.get(f, Function), callback, shared, limit)
    host.put32(grid, blocks)
    host.put32(block, threads)


@driver
def cuOccupancyAvailableDynamicSMemPerBlock(out: int, f: int, blocks: int, threads: int) -> int:
    function = handles.get(f, Function)
    if blocks <= 0 or threads <= 0:
        return INVALID_VALUE
    facts = processor().facts
    host.put64(
        out, max(0, min(facts.shared_processor // blocks - facts.shared_reserved, facts.shared_block) - function.shared)
    )
    return SUCCESS


@driver
def cuOccupancyMaxPotentialClusterSize(out: int, f: int, config: int) -> None:
    handles.get(f, Function)
    host.put32(out, processor().facts.cluster)


def active_clusters(function: Function, config: int, driver_config: bool) -> int:
    """How many clusters of a launch the device holds at once."""
    given = config_of(config, driver_config)
    x, y, z = given.cluster or (1, 1, 1)
    bx, by, bz = given.block
    size = max(1, x * y * z)
    return occupancy(function, bx * by * bz, given.shared) * processor().facts.processors // size


@driver
def cuOccupancyMaxActiveClusters(out: int, f: int, config: int) -> None:
    host.put32(out, active_clusters(handles.get(f, Function), config, True))
