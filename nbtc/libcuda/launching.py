"""Launches: arguments gathered from the caller's memory, the program run, its fault made the context's."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from nbtc.errors import NbtcError, OptionError, ProgramError
from nbtc.executor.launch.arguments import Arguments
from nbtc.executor.launch.launch import GridShape
from nbtc.libcuda import host
from nbtc.libcuda.code import REGISTERS, Function
from nbtc.libcuda.errors import (
    ASSERT,
    COOPERATIVE_LAUNCH_TOO_LARGE,
    ILLEGAL_ADDRESS,
    INVALID_CONFIGURATION,
    INVALID_PTX,
    INVALID_VALUE,
    LAUNCH_FAILED,
    LAUNCH_TIMEOUT,
    MISALIGNED_ADDRESS,
    CudaError,
    say,
)
from nbtc.libcuda.memory import memory
from nbtc.libcuda.report import findings
from nbtc.libcuda.state import current_or_none, fail, processor
from nbtc.libcuda.streams import NodeKind, submit

BUFFER_POINTER, BUFFER_SIZE = 1, 2  # CU_LAUNCH_PARAM_*
MOST_EXTRA = 16
COOPERATIVE, CLUSTER = 2, 4  # CU_LAUNCH_ATTRIBUTE_*
ATTRIBUTE_BYTES = 72  # of a CUlaunchAttribute: its number, padding, 64 bytes of value
CODES = {  # of what a launch recorded, by the names of `executor.errors.Kind`
    "LOAD_BOUNDS": ILLEGAL_ADDRESS, "STORE_BOUNDS": ILLEGAL_ADDRESS, "READ_ONLY": ILLEGAL_ADDRESS,
    "SHARED_BOUNDS": ILLEGAL_ADDRESS, "LOCAL_BOUNDS": ILLEGAL_ADDRESS, "MISALIGNED": MISALIGNED_ADDRESS,
    "ASSERT": ASSERT, "TIME_LIMIT": LAUNCH_TIMEOUT,
}  # fmt: skip


class Settings(NamedTuple):
    """What the process's environment says of launches."""

    threads: int | None
    profile: str
    checked: bool


def _settings() -> Settings:
    given = os.environ.get("NBTC_THREADS", "")
    return Settings(
        int(given) if given.isdecimal() and int(given) else None,
        os.environ.get("NBTC_PROFILE", ""),
        os.environ.get("NBTC_CHECKED", "0") not in ("", "0"),
    )


settings = _settings()
profiles: list[Any] = []  # of all launches, where they are asked for
_profiles_lock = threading.Lock()


class Config(NamedTuple):
    """A launch's configuration."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int = 0
    stream: int = 0
    cluster: tuple[int, int, int] | None = None
    cooperative: bool = False


def arguments(f: Function, params: int, extra: int) -> bytearray:
    """The bytes of a kernel's parameters: from an array of pointers to them, or from a buffer."""
    raw = bytearray(f.bytes)
    if params:
        for (at, size), place in zip(f.parameters, host.words(params, len(f.parameters)), strict=True):
            if size:
                raw[at : at + size] = host.read(place, size)
    elif extra:
        values = {}
        for i in range(MOST_EXTRA):
            what = host.u64(extra + 16 * i)
            if not what:
                break
            values[what] = host.u64(extra + 16 * i + 8)
        if BUFFER_POINTER not in values or BUFFER_SIZE not in values:
            raise CudaError(INVALID_VALUE)
        size = min(host.u64(values[BUFFER_SIZE]), f.bytes)
        raw[:size] = host.read(values[BUFFER_POINTER], size)
    elif f.bytes:
        raise CudaError(INVALID_VALUE)
    return raw


def launch(f: Function, config: Config, raw: bytearray) -> None:
    """Run a kernel, or note it in the graph that the stream is captured into."""
    submit(config.stream, NodeKind.KERNEL, runner(f, config, raw), (f, config, raw))


def runner(f: Function, config: Config, raw: bytearray) -> Callable[[], None]:
    """What runs a kernel with these arguments, checked now."""
    try:
        geometry = f.geometry(config.grid, config.block, config.cluster)
    except NbtcError as error:
        if config.grid != (0, 0, 0):
            say(f"{f.name}: {error}")
        raise CudaError(INVALID_CONFIGURATION) from error
    if not 0 <= config.shared <= f.dynamic:
        say(
            f"{f.name}: {config.shared} bytes of dynamic shared memory, {f.dynamic} are allowed: set "
            "cudaFuncAttributeMaxDynamicSharedMemorySize"
        )
        raise CudaError(INVALID_VALUE)
    if (
        config.cooperative
        and geometry.blocks > occupancy(f, geometry.threads, config.shared) * processor().facts.processors
    ):
        raise CudaError(COOPERATIVE_LAUNCH_TOO_LARGE)
    return lambda: _run(f, config, geometry, raw)


def _run(f: Function, config: Config, geometry: GridShape, raw: bytearray) -> None:
    program = f.program.profile if settings.profile else f.program
    findings.launched(f.name)
    try:
        found = program.launch(
            geometry,
            None,
            Arguments(raw, memory.reach()),
            shared=config.shared,
            cooperative=config.cooperative,
            threads=settings.threads,
            checked=settings.checked,
        )
    except OptionError as error:
        say(f"{f.name}: {error}")
        raise CudaError(INVALID_VALUE) from error
    except NbtcError as error:
        if isinstance(error, ProgramError) and error.title:
            return failed(f.name, error)  # it has run; what can't run at all harms nothing else
        say(f"{type(error).__name__}: {error}")
        findings.found(f.name, error)
        raise CudaError(INVALID_PTX) from error
    if found is not None:
        with _profiles_lock:
            profiles.append(found)


def failed(kernel: str, error: ProgramError) -> None:
    """A kernel's fault: the launch succeeds, as on a device, and whatever waits for it or comes later fails."""
    say(str(error))
    findings.found(kernel, error)
    context = current_or_none()
    if context is not None:
        fail(context, CODES.get(error.kind, LAUNCH_FAILED))
    if sys.stdout is not None:
        sys.stdout.flush()


def occupancy(f: Function, threads: int, shared: int) -> int:
    """Blocks of a kernel that a multiprocessor holds at once, as `cuOccupancyMaxActiveBlocksPerMultiprocessor` counts.

    (CUDA C++ Best Practices Guide, "Calculating Occupancy".)  Registers count as the 64 that `cuFuncGetAttribute` tells
    of; shared memory comes with the kibibyte that the system takes of each block.
    """
    facts = processor().facts
    if not 1 <= threads <= f.threads or f.shared + shared > facts.shared_block:
        return 0
    warps = -(-threads // 32)
    return min(
        facts.blocks_processor,
        facts.threads_processor // (32 * warps),
        facts.registers // (REGISTERS * 32 * warps),
        facts.shared_processor // max(1, -(-(f.shared + shared) // 128) * 128 + facts.shared_reserved),
    )


def config_of(at: int, driver: bool) -> Config:
    """A CUlaunchConfig or cudaLaunchConfig_t."""
    numbers = host.halves(at, 7)
    shared = numbers[6] if driver else host.u64(at + 24)
    stream, attributes = host.words(at + 32, 2)
    count = host.u32(at + 48)
    cluster, cooperative = None, False
    if count > 64 or (count and not attributes):
        raise CudaError(INVALID_VALUE)
    for i in range(count):
        here = attributes + ATTRIBUTE_BYTES * i
        what = host.u32(here)
        if what == COOPERATIVE:
            cooperative = bool(host.u32(here + 8))
        elif what == CLUSTER:
            x, y, z = host.halves(here + 8, 3)
            cluster = (x, y, z)
    return Config(numbers[:3], numbers[3:6], shared, stream, cluster, cooperative)  # type: ignore[arg-type]


def reported_profiles() -> str:
    """What NBTC_PROFILE's file gets: the profiles of all launches, one after the other."""
    return "\n\n".join(map(str, profiles))
