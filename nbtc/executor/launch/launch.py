"""One launch of compiled code: the machine's structures in memory, workers on threads, and what went wrong."""

from __future__ import annotations

import ctypes
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.machine_code import stacks
from nbtc.compiler.machine_code.native import Loaded
from nbtc.compiler.placement import Processors
from nbtc.compiler.threads import in_background, reporter, thread_count
from nbtc.errors import OptionError, ProgramError, shown, whole_number
from nbtc.executor.emit.errors import ErrorKind, Failure, Stop
from nbtc.executor.emit.state import BLOCK, LAUNCH, WARP, WORKER, words_of
from nbtc.executor.launch.services import table
from nbtc.executor.launch.shared_memory import reached_bytes
from nbtc.executor.memory.ranges import Memory
from nbtc.executor.memory.resolve import RANGE_WORDS, SITE_BYTES

if TYPE_CHECKING:
    from nbtc.executor.watch.memory import WatchedLaunch

LANES = 32
MOST_THREADS = 1024  # of a block (CUDA C++ Programming Guide, "Compute Capabilities")
MOST_DEPTH = 64  # of them along z (same page)
MOST_IN_CLUSTER = 16  # blocks (CUDA C++ Programming Guide, "Thread Block Clusters": 8, or 16 where it is allowed)
EXTENTS = ((1 << 31) - 1, 65535, 65535)  # of a grid
_numbers = itertools.count(1)  # of launches
RESIDENT = 64  # blocks a worker holds at most while some wait for others
RESIDENT_BYTES = 1 << 28  # and what their memory may take
SHARED_ALIGN = 1024  # of shared memory: what swizzled tiles want
IDLE, GEOMETRIES, MOST_KEPT = 2, 8, 1 << 24  # idle sessions kept of one geometry, geometries, bytes of a session
WORKSPACE = 64  # bytes: where the threads of a cooperative grid count those that have arrived at its barrier
FEW_BLOCKS = 1 << 12  # without loops: done in milliseconds, before anybody could want to stop them
LOOP_SECONDS = 10  # how long a launch goes on after a use of unwritten memory, which may keep a loop from its end
POLL_SECONDS = 0.05  # how often a waiting caller looks for Ctrl-C
Dim = tuple[int, int, int]
Bytes = NDArray[np.uint8]
CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_void_p
)


class LaunchableCode(NamedTuple):
    """Compiled code with what a launch has to know about it; `sessions` that no launch uses, by geometry."""

    loaded: Loaded
    run: Callable[[int], None]
    suspends: bool
    loops: bool
    sites: int
    shared_bytes: int
    local_bytes: int
    scratch_bytes: int
    stack_bytes: int  # of a thread, for the frames of the code
    asks: bool  # the host: it prints, asserts, allocates
    spins: bool  # it waits in loops for what other threads write, of other blocks perhaps
    services: Sequence[int]  # slots of the instrument's functions
    sessions: dict[Any, list[Any]]


class GridShape(NamedTuple):
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
    several = isinstance(given, list | tuple) or (isinstance(given, np.ndarray) and given.ndim == 1)
    numbers = [whole_number(n) for n in (given if several else (given,))]
    found = [n for n in numbers if n is not None and n >= 1]
    if not 1 <= len(found) == len(numbers) <= 3:
        raise OptionError(f"{what}={shown(given)}: pass a whole number from 1 up, or up to three of them")
    x, y, z = (*found, 1, 1)[:3]
    return x, y, z


def geometry(grid: Any, block: Any, cluster: Any) -> GridShape:
    """The extents of a launch, checked against what devices take."""
    g = GridShape(extents(grid, "grid"), extents(block, "block"), extents(1 if cluster is None else cluster, "cluster"))
    if g.threads > MOST_THREADS:
        raise OptionError(f"block={shown(block)} has {shown(g.threads)} threads: a block has {MOST_THREADS} at most")
    if g.block[2] > MOST_DEPTH:
        raise OptionError(f"block={shown(block)}: a block has {MOST_DEPTH} threads along z at most")
    if any(n > most for n, most in zip(g.grid, EXTENTS, strict=True)):
        raise OptionError(f"grid={shown(grid)}: a grid has {EXTENTS} blocks along x, y and z at most")
    if any(n % c for n, c in zip(g.grid, g.cluster, strict=True)):
        raise OptionError(f"grid={shown(grid)} is not a multiple of cluster={shown(cluster)}")
    return g


def obeyed(directives: Mapping[str, tuple[int, ...]], grid: Any, block: Any, cluster: Any) -> GridShape:
    """The extents of a launch of a kernel that says which it takes.

    (PTX ISA, "Performance-Tuning Directives", "Cluster Dimension Directives".)
    """
    wanted, exact, most = (_extents_of(directives, n) for n in ("reqnctapercluster", "reqntid", "maxntid"))
    if "blocksareclusters" in directives and wanted:
        grid = tuple(n * c for n, c in zip(extents(grid, "grid"), wanted, strict=True))
    g = geometry(grid, block, wanted if cluster is None else cluster)
    if wanted and g.cluster != wanted:
        raise OptionError(f"cluster={shown(cluster)}: the kernel says .reqnctapercluster {wanted}")
    if "explicitcluster" in directives and cluster is None and not wanted:
        raise OptionError("the kernel says .explicitcluster: pass cluster=, its blocks along x, y and z")
    rank = directives.get("maxclusterrank", (MOST_IN_CLUSTER,))[0]
    if math.prod(g.cluster) > rank:
        raise OptionError(f"cluster={shown(cluster)} has {shown(math.prod(g.cluster))} blocks: {rank} is the most here")
    if exact and g.block != exact:
        raise OptionError(f"block={shown(block)}: the kernel says .reqntid {exact} and takes no other block")
    if most and g.threads > math.prod(most):
        raise OptionError(
            f"block={shown(block)}: the kernel says .maxntid {most} and takes {math.prod(most)} threads at most"
        )
    return g


def _extents_of(directives: Mapping[str, tuple[int, ...]], name: str) -> Dim | None:
    """The numbers of a directive, those left out 1."""
    given = directives.get(name)
    return extents(given, f".{name}") if given else None


class Request(NamedTuple):
    """Everything a launch needs besides the code."""

    geometry: GridShape
    parameters: bytearray
    variables: int  # the address of the module's
    memory: Sequence[Memory]
    dynamic_bytes: int
    cooperative: bool
    threads: int | None
    callback: Any  # a CALLBACK
    timeout: float | None = None  # seconds
    together: int = 0  # blocks that are on a GPU at once, so that they may wait for each other
    watched: WatchedLaunch | None = None  # the words of a checked launch
    profile: NDArray[np.uint64] | None = None  # the counters of a profiled one
    progress: object = False  # who is told of blocks that have begun: a callable, or whoever sees a bar


def aligned(size: int, align: int) -> Bytes:
    """Memory on a boundary."""
    raw = np.empty(size + align, np.uint8)
    start = -address_of(raw) % align
    return raw[start : start + size]


def address_of(x: NDArray[Any]) -> int:
    """The address of an array's first element."""
    return int(x.__array_interface__["data"][0])


class Session:
    """The machine's structures for launches of one geometry: made once, used by one launch at a time."""

    def __init__(self, code: LaunchableCode, request: Request, count: int) -> None:
        g = request.geometry
        self.suspends: bool = code.suspends
        self.launch: Bytes = aligned(LAUNCH.size, 64)
        self.parameters: Bytes = aligned(max(1, len(request.parameters)), 64)
        shared = -(-(code.shared_bytes + request.dynamic_bytes) // SHARED_ALIGN) * SHARED_ALIGN
        local = g.warps * LANES * code.local_bytes
        stride = BLOCK.size + g.warps * WARP.size
        watch = request.watched.block_bytes(shared) if request.watched else 0
        slots = _slots(code, request, count, stride + shared + local + watch)
        self.sites: Bytes = np.zeros((count, code.sites * SITE_BYTES), np.uint8)
        self.blocks: Bytes = aligned(count * slots * stride, 64).reshape(count, slots * stride)
        self.buffer: Bytes = aligned(count * slots * (shared + local), SHARED_ALIGN)
        self.scratch: Bytes = aligned(count * code.scratch_bytes, 64).reshape(count, code.scratch_bytes)
        self.workspace: Bytes = aligned(WORKSPACE, 64)
        self.bytes: int = self.blocks.nbytes + self.buffer.nbytes + self.scratch.nbytes
        starts = address_of(self.buffer) + (shared + local) * np.arange(count * slots)
        self.workers: list[Bytes] = [aligned(WORKER.size, 64) for _ in range(count)]
        self.addresses: list[int] = [address_of(w) for w in self.workers]
        self._heads = np.ndarray((count, slots, BLOCK.size), np.uint8, self.blocks, 0, (slots * stride, stride, 1))
        self._head = np.zeros((count, slots, BLOCK.size), np.uint8)
        watches = np.zeros((count, slots), np.int64)
        if request.watched is not None:
            self.watch: Any = request.watched.block_words(count * slots, code.shared_bytes + request.dynamic_bytes)
            self.bytes += self.watch.nbytes
            watches.reshape(-1)[:] = address_of(self.watch) + self.watch.strides[0] * np.arange(count * slots)
        for name, values in (
            ("launch", np.full((count, slots), address_of(self.launch))),
            ("worker", np.repeat(np.array(self.addresses)[:, None], slots, 1)),
            ("shared", starts.reshape(count, slots)),
            ("local", (starts + shared).reshape(count, slots)),
            ("watch", watches),
        ):
            offset = BLOCK.offset(name)
            self._head[:, :, offset : offset + 8] = values.astype(np.uint64)[..., None].view(np.uint8)
        each = (slots * stride, stride, WARP.size, 1)
        self._warps = np.ndarray((count, slots, g.warps, WARP.size), np.uint8, self.blocks, BLOCK.size, each)
        index = WARP.offset("index")
        self._warps[..., index : index + 4] = np.arange(g.warps, dtype=np.uint32).view(np.uint8).reshape(-1, 4)
        self._first = [
            WORKER.packed(
                launch=address_of(self.launch),
                sites=address_of(self.sites[i]) if code.sites else 0,
                blocks=address_of(self.blocks[i]),
                block_stride=stride,
                slots=slots,
                index=i,
                scratch=address_of(self.scratch[i]) if code.scratch_bytes else 0,
            )
            for i in range(count)
        ]
        self._own = [
            *(address_of(self.parameters), len(request.parameters), False),
            *(address_of(self.workspace), WORKSPACE, True),
        ]
        self._launch = self._constants(code, request)
        self._ranges, self._ranges_at = np.zeros(0, np.uint8), 0

    def _constants(self, code: LaunchableCode, request: Request) -> NDArray[np.uint8]:
        """The words of a launch that all launches of a session have in common."""
        g = request.geometry
        return LAUNCH.packed(
            parameters=address_of(self.parameters),
            **{f"grid_{a}": n for a, n in zip("xyz", g.grid, strict=True)},
            **{f"block_{a}": n for a, n in zip("xyz", g.block, strict=True)},
            **{f"cluster_{a}": n for a, n in zip("xyz", g.cluster, strict=True)},
            threads=g.threads,
            warps=g.warps,
            shared_bytes=reached_bytes(code.shared_bytes, request.dynamic_bytes, request.watched is not None),
            dynamic_bytes=request.dynamic_bytes,
            local_bytes=code.local_bytes,
            cooperative=int(request.cooperative),
            blocks=g.blocks,
            workspace=address_of(self.workspace) if request.cooperative else 0,
            services=address_of(table().words),
        )

    def prepare(self, request: Request) -> None:
        """Set everything as a launch finds it."""
        if request.parameters:
            self.parameters.data[: len(request.parameters)] = request.parameters
        words = [word for m in request.memory if m.bytes for word in (m.first, m.bytes, m.writable)]
        words += self._own
        if request.cooperative:
            self.workspace[:] = 0
        if request.watched is not None:
            request.watched.cover(address_of(self.workspace), WORKSPACE)
        self._set_ranges(words)
        callback = ctypes.cast(request.callback, ctypes.c_void_p).value if request.callback else None
        self.launch[:] = self._launch
        LAUNCH.set(self.launch, "variables", request.variables, self._ranges_at, len(words) // RANGE_WORDS)
        LAUNCH.set(self.launch, "callback", callback or 0)
        LAUNCH.set(self.launch, "number", next(_numbers))
        watch = request.watched.address if request.watched else 0
        LAUNCH.set(self.launch, "watch", watch, 0 if request.profile is None else address_of(request.profile))
        for worker, first in zip(self.workers, self._first, strict=True):
            worker[:] = first
        self.sites[:] = 0  # a range remembered from another launch may be gone
        self._heads[:] = self._head

    def _set_ranges(self, words: list[int]) -> None:
        """The memory that the program may touch, in a buffer that is kept as long as launches fit."""
        if 8 * len(words) > len(self._ranges):
            self._ranges = np.zeros(8 * len(words), np.uint8)
            self._ranges_at = address_of(self._ranges)
        words_of(len(words)).pack_into(self._ranges.data, 0, *words)

    def failure(self) -> Failure | None:
        """What the launch recorded."""
        if not self.get("failed"):
            return None
        names = ("error_kind", "error_site", "error_block", "error_thread", "error_address")
        kind, site, block, thread, address = (self.get(name) for name in names)
        found = Failure(kind, site, block, thread, address)
        return found._replace(waiting=tuple(self._waiting())) if found.kind == ErrorKind.DEADLOCK else found

    def _waiting(self) -> Iterator[tuple[int, int, int]]:
        """Block, warp and place of each warp that has not ended."""
        for head, warps in zip(
            self._heads.reshape(-1, BLOCK.size), self._warps.reshape(-1, *self._warps.shape[2:]), strict=True
        ):
            if BLOCK.get(head, "resident"):
                for warp in warps:
                    if WARP.get(warp, "frame"):
                        yield BLOCK.get(head, "index"), WARP.get(warp, "index"), WARP.get(warp, "wait_site")

    def get(self, name: str) -> int:
        """A field of the launch."""
        return LAUNCH.get(self.launch, name)

    def stop(self, why: Stop) -> None:
        """Let every warp end as soon as it looks."""
        self.launch[LAUNCH.offset("stop")] = why


def run(code: LaunchableCode, request: Request) -> Failure | None:
    """Run all blocks; None, or what went wrong first."""
    g = request.geometry
    count = 1 if g.blocks == 1 or request.watched else min(thread_count(request.threads), g.blocks)
    key = (g, count, request.dynamic_bytes, request.cooperative, request.together)
    idle = code.sessions.setdefault(key, [])
    try:
        session = idle.pop()
    except IndexError:
        session = Session(code, request, count)
    session.prepare(request)
    table().prepare(code.services)
    in_time = True
    short = not code.loops and g.blocks <= FEW_BLOCKS
    if count == 1 and short and not request.progress and code.stack_bytes <= stacks.ANY_THREAD:
        code.run(session.addresses[0])
    else:
        in_time = _in_threads(code, session, request)
    failure: Failure | None = session.failure()
    if failure is None and not in_time:  # no warp was in a loop, but blocks are left that have not begun, or wait
        failure = Failure(ErrorKind.TIME_LIMIT, None, min(session.get("next_block"), g.blocks - 1), 0, 0)
    if session.bytes <= MOST_KEPT and len(idle) < IDLE:
        if len(code.sessions) > GEOMETRIES:
            code.sessions.clear()
        idle.append(session)
    return failure


def _slots(code: LaunchableCode, request: Request, count: int, block_bytes: int) -> int:
    """How many blocks a worker may hold."""
    if not code.suspends:
        return 1
    x, y, z = request.geometry.cluster
    cluster = x * y * z  # whose blocks are resident together
    share = -(-request.geometry.blocks // (count * cluster)) * cluster
    if request.cooperative:
        return share
    most = min(share, max(min(RESIDENT, RESIDENT_BYTES // max(1, block_bytes)), -(-request.together // count)))
    return max(1, most // cluster) * cluster


def _started(code: LaunchableCode, worker: int, processors: Processors) -> Future[Any]:
    """A worker, on a thread that has room for the frames of its code."""
    if code.stack_bytes <= stacks.ANY_THREAD:
        return in_background(processors.run, code.run, worker)
    try:
        return stacks.on_stack(code.stack_bytes, processors.run, code.run, worker)
    except RuntimeError as error:
        size = f"{code.stack_bytes / stacks.MIB:,.0f} MiB"
        raise ProgramError(f"the kernel takes {size} of stack, and no thread with as much starts here") from error


def _in_threads(code: LaunchableCode, session: Session, request: Request) -> bool:
    """Workers on threads of the pool; the caller waits where Ctrl-C finds it, watches the time, tells of progress.

    False: they were still at work when the time was over.
    """
    end = math.inf if request.timeout is None else time.monotonic() + request.timeout
    blocks = request.geometry.blocks
    report, close = reporter(request.progress, blocks, "block")
    waiting: set[Future[Any]] = set()
    processors = Processors()
    try:
        for address in session.addresses:
            waiting.add(_started(code, address, processors))
        while waiting:
            left = end - time.monotonic()
            _, waiting = wait(waiting, timeout=max(0.0, min(left, POLL_SECONDS)))
            report(min(session.get("next_block"), blocks), blocks)
            if request.watched is not None and request.watched.suspected:
                end = min(end, time.monotonic() + LOOP_SECONDS)
            if waiting and left <= 0:
                session.stop(Stop.TIME_LIMIT)
                wait(waiting)
                return False
        return True
    except BaseException:
        session.stop(Stop.ENDED)
        wait(waiting)
        raise
    finally:
        close()
