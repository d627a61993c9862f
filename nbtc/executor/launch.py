"""One launch of compiled code: the machine's structures in memory, workers on threads, and what went wrong."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.native import Loaded
from nbtc.compiler.threads import in_background, thread_count
from nbtc.errors import OptionError
from nbtc.executor.arguments import Memory
from nbtc.executor.resolve import SITE_BYTES
from nbtc.executor.state import BLOCK, LAUNCH, WARP, WORKER, Layout

LANES = 32
MOST_THREADS = 1024  # of a block (CUDA C++ Programming Guide, "Compute Capabilities")
EXTENTS = ((1 << 31) - 1, 65535, 65535)  # of a grid
RESIDENT = 64  # blocks a worker holds at most while some wait for others
RESIDENT_BYTES = 1 << 28  # and what their memory may take
SHARED_ALIGN = 1024  # of shared memory: what swizzled tiles want
POLL_SECONDS = 0.05  # how often a waiting caller looks for Ctrl-C
Dim = tuple[int, int, int]
Bytes = NDArray[np.uint8]
CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_void_p
)


class Code(NamedTuple):
    """Compiled code with what a launch has to know about it."""

    loaded: Loaded
    run: Callable[[int], None]
    suspends: bool
    loops: bool
    sites: int
    shared_bytes: int
    shared_align: int
    local_bytes: int


class Geometry(NamedTuple):
    """The extents of a launch."""

    grid: Dim
    block: Dim
    cluster: Dim

    @property
    def blocks(self) -> int:
        """Of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def warps(self) -> int:
        """Of a block."""
        return -(-self.threads // LANES)


def extents(given: Any, what: str) -> Dim:
    """An int or up to 3 ints as three numbers."""
    numbers = (given,) if isinstance(given, int | np.integer) else tuple(given)
    if not 1 <= len(numbers) <= 3 or not all(isinstance(n, int | np.integer) and n >= 1 for n in numbers):
        raise OptionError(f"{what}={given!r}: pass a whole number from 1 up, or up to three of them")
    x, y, z = (*(int(n) for n in numbers), 1, 1)[:3]
    return x, y, z


def geometry(grid: Any, block: Any, cluster: Any) -> Geometry:
    """The extents of a launch, checked against what devices take."""
    g = Geometry(extents(grid, "grid"), extents(block, "block"), extents(cluster or 1, "cluster"))
    if g.threads > MOST_THREADS:
        raise OptionError(f"block={block!r} has {g.threads} threads: a block has {MOST_THREADS} at most")
    if any(n > most for n, most in zip(g.grid, EXTENTS, strict=True)):
        raise OptionError(f"grid={grid!r}: a grid has {EXTENTS} blocks along x, y and z at most")
    if any(n % c for n, c in zip(g.grid, g.cluster, strict=True)):
        raise OptionError(f"grid={grid!r} is no multiple of cluster={cluster!r}")
    return g


class Structure:
    """A structure of the machine in memory."""

    def __init__(self, layout: Layout, **values: int) -> None:
        raw = np.zeros(layout.size + 64, np.uint8)
        start = -raw.ctypes.data % 64
        self.bytes: Bytes = raw[start : start + layout.size]
        self.address = self.bytes.ctypes.data
        self.layout = layout
        for name, value in values.items():
            self.set(name, value)

    def set(self, name: str, value: int) -> None:
        """Give a field its value."""
        field = self.layout.fields[name]
        size = field.bits // 8
        self.bytes[field.offset : field.offset + size] = np.frombuffer(value.to_bytes(size, "little"), np.uint8)

    def get(self, name: str) -> int:
        """A field's value."""
        field = self.layout.fields[name]
        return int.from_bytes(self.bytes[field.offset : field.offset + field.bits // 8].tobytes(), "little")


class Failure(NamedTuple):
    """What the program recorded when it failed."""

    kind: int
    site: int
    block: int
    thread: int
    address: int


class Request(NamedTuple):
    """Everything a launch needs besides the code."""

    geometry: Geometry
    parameters: bytearray
    variables: Bytes
    memory: Sequence[Memory]
    dynamic_bytes: int
    cooperative: bool
    threads: int | None
    callback: Any  # a CALLBACK


def aligned(size: int, align: int) -> Bytes:
    """Memory on a boundary."""
    raw = np.empty(size + align, np.uint8)
    start = -raw.ctypes.data % align
    return raw[start : start + size]


def run(code: Code, request: Request) -> Failure | None:
    """Run all blocks; None, or what went wrong first."""
    g = request.geometry
    count = min(thread_count(request.threads), g.blocks)
    keep: list[Any] = []
    launch = _launch(code, request, keep)
    workers = [_worker(code, request, launch, count, i, keep) for i in range(count)]
    if count == 1 and not code.loops:
        code.run(workers[0].address)
    else:
        _in_threads(code, workers, launch)
    if not launch.get("failed"):
        return None
    names = ("error_kind", "error_site", "error_block", "error_thread", "error_address")
    return Failure(*(launch.get(name) for name in names))


def _launch(code: Code, request: Request, keep: list[Any]) -> Structure:
    g = request.geometry
    parameters = np.frombuffer(request.parameters, np.uint8) if request.parameters else np.zeros(1, np.uint8)
    rows = [(m.first, m.bytes, int(m.writable)) for m in request.memory if m.bytes]
    rows.append((parameters.ctypes.data, len(parameters), 0))
    ranges = np.array(rows, np.uint64)
    keep += [parameters, ranges, request]
    return Structure(
        LAUNCH,
        parameters=parameters.ctypes.data,
        variables=request.variables.ctypes.data,
        ranges=ranges.ctypes.data,
        range_count=len(rows),
        **{f"grid_{a}": n for a, n in zip("xyz", g.grid, strict=True)},
        **{f"block_{a}": n for a, n in zip("xyz", g.block, strict=True)},
        **{f"cluster_{a}": n for a, n in zip("xyz", g.cluster, strict=True)},
        threads=g.threads,
        warps=g.warps,
        shared_bytes=code.shared_bytes + request.dynamic_bytes,
        dynamic_bytes=request.dynamic_bytes,
        local_bytes=code.local_bytes,
        cooperative=int(request.cooperative),
        blocks=g.blocks,
        callback=ctypes.cast(request.callback, ctypes.c_void_p).value or 0 if request.callback else 0,
    )


def _slots(code: Code, request: Request, count: int, block_bytes: int) -> int:
    """How many blocks a worker may hold."""
    if not code.suspends:
        return 1
    share = -(-request.geometry.blocks // count)
    if request.cooperative:
        return share
    return max(1, min(share, RESIDENT, RESIDENT_BYTES // max(1, block_bytes)))


def _worker(code: Code, request: Request, launch: Structure, count: int, index: int, keep: list[Any]) -> Structure:
    g = request.geometry
    stride = BLOCK.size + g.warps * WARP.size
    shared = -(-(code.shared_bytes + request.dynamic_bytes) // SHARED_ALIGN) * SHARED_ALIGN
    local = g.warps * LANES * code.local_bytes
    slots = _slots(code, request, count, stride + shared + local)
    blocks = aligned(slots * stride, 64)
    room = aligned(slots * (shared + local), SHARED_ALIGN)
    sites = np.zeros(code.sites * SITE_BYTES, np.uint8)
    worker = Structure(
        WORKER,
        launch=launch.address,
        sites=sites.ctypes.data,
        blocks=blocks.ctypes.data,
        block_stride=stride,
        slots=slots,
        index=index,
    )
    heads = np.ndarray((slots, BLOCK.size), np.uint8, blocks, strides=(stride, 1))
    heads[:] = 0
    starts = room.ctypes.data + np.arange(slots, dtype=np.uint64) * np.uint64(shared + local)
    for name, values in (
        ("launch", np.full(slots, launch.address, np.uint64)),
        ("worker", np.full(slots, worker.address, np.uint64)),
        ("shared", starts),
        ("local", starts + np.uint64(shared)),
    ):
        offset = BLOCK.offset(name)
        heads[:, offset : offset + 8] = values.view(np.uint8).reshape(slots, 8)
    numbers = np.ndarray((slots, g.warps), np.uint32, blocks, BLOCK.size + WARP.offset("index"), (stride, WARP.size))
    numbers[:] = np.arange(g.warps)
    keep += [blocks, room, sites, worker]
    return worker


def _in_threads(code: Code, workers: list[Structure], launch: Structure) -> None:
    """Workers on threads of the pool; the caller waits where Ctrl-C finds it."""
    waiting = {in_background(code.run, worker.address) for worker in workers}
    try:
        while waiting:
            _, waiting = wait(waiting, timeout=POLL_SECONDS)
    except BaseException:
        launch.set("stop", 1)
        wait(waiting)
        raise
