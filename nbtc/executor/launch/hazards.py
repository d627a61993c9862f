"""A hazard in words: both accesses, and what would repair it."""

from __future__ import annotations

from collections.abc import Sequence

from nbtc.errors import ProgramError
from nbtc.executor.code.machine import Site
from nbtc.executor.emit import access_kinds as kinds
from nbtc.executor.launch.launch import Dim, Request
from nbtc.executor.launch.report import places
from nbtc.executor.launch.tensor_services import Allocated
from nbtc.executor.watch import words
from nbtc.executor.watch.heap import GivenMemory
from nbtc.executor.watch.memory import AccessSeen, HazardFound

KINDS = {
    kinds.READ: "reads",
    kinds.WRITE: "writes",
    kinds.STRONG_READ: "reads (volatile or ordered)",
    kinds.STRONG_WRITE: "writes (volatile or ordered)",
    kinds.ATOMIC: "changes atomically",
    kinds.COPY: "copies to (cp.async)",
    kinds.BULK_WRITE: "copies to in bulk",
    kinds.BULK_STORE: "stores to in bulk",
    kinds.BULK_READ: "copies from in bulk",
    kinds.BULK_SOURCE: "reads until an mbarrier tells",
    kinds.PRODUCT: "multiplies from (wgmma)",
    kinds.COPY_SOURCE: "copies from (cp.async)",
    kinds.REDUCTION: "reduces to (red.async)",
}
# what is wrong, and what would repair it
WORDS = {
    words.RACE: (
        "data race",
        "nothing orders the two: put a barrier between them ({barrier}), or release and acquire with fences between "
        "blocks",
    ),
    words.UNWRITTEN: (
        "uninitialised shared memory",
        "no thread of the block has written these bytes, or only a product of such bytes: write them first",
    ),
    words.NOT_WAITED: (
        "asynchronous operation still under way",
        "wait for its group (cp.async.wait_group, cp.async.bulk.wait_group, wgmma.wait_group) or the phase of its "
        "mbarrier first (of tcgen05, that of tcgen05.commit), then let the other threads know by a barrier",
    ),
    words.NO_PROXY_FENCE: (
        "missing proxy fence",
        "the asynchronous proxy need not see what plain stores wrote: put fence.proxy.async between them, before the "
        "barrier",
    ),
    words.FREED_MEMORY: ("freed memory", "free it after its last use"),
    words.BLOCK_ENDED: (
        "memory of a block that has ended",
        "let all blocks of the cluster meet (barrier.cluster) before one of them ends",
    ),
    words.MBARRIER_REUSED: ("an mbarrier's memory used otherwise", "mbarrier.inval it first"),
    words.MBARRIER_UNMADE: (
        "no mbarrier here",
        "mbarrier.init it first, and use it no more after mbarrier.inval",
    ),
    words.MBARRIER_COUNT: (
        "wrong count of an mbarrier",
        "a phase takes as many arrivals as mbarrier.init says, from 1 to 1048575, and at most 1048575 bytes",
    ),
    words.MBARRIER_OVERRUN: (
        "mbarrier phase overrun",
        "two phases were over before this thread saw the first: let those that arrive wait until all have seen a phase",
    ),
    words.MBARRIER_UNFENCED: (
        "mbarrier without a fence",
        "a bulk copy need not see what mbarrier.init wrote: let its thread execute fence.mbarrier_init or "
        "fence.proxy.async after it, before the barrier",
    ),
    words.PRODUCT_PENDING: (
        "registers of a product under way",
        "wgmma.commit_group and wgmma.wait_group first",
    ),
    words.PRODUCT_UNFENCED: (
        "product without a fence",
        "its registers were written, or never fenced: put wgmma.fence before it",
    ),
    words.PRODUCT_ALONE: (
        "product by less than a warpgroup",
        "all four warps of a warpgroup execute the same products in the same order",
    ),
    words.BARRIER_APART: (
        "barrier in diverged code",
        "lanes of one warp are not here, or wait at another barrier: let all threads of the warp reach the same one",
    ),
    words.BARRIER_COUNT: (
        "wrong number of threads at a barrier",
        "all that arrive at a barrier name the same number of threads, a multiple of 32",
    ),
    words.CLUSTER_TWICE: (
        "two arrivals at the cluster's barrier",
        "a thread waits (barrier.cluster.wait) before it arrives again",
    ),
    words.MASK_WITHOUT: (
        "mask without a thread that executes the instruction",
        "name all threads that execute it, and no others, in its mask",
    ),
    words.BARRIER_LEFT: (
        "barrier that not all threads reach",
        "threads of the block have ended without it, as where it is under an `if` or after a `return` of some of them: "
        "let all of them reach it before they end, or give it the number of threads that do",
    ),
}
# What barriers and atomic additions are called where a kernel was written: the source, unless it is PTX's own text.
IN_PYTHON = (
    "nbtc.syncthreads(), cuda.syncthreads(), tl.debug_barrier()",
    "nbtc.atomic_add, cuda.atomic.add or tl.atomic_add",
)
IN_CUDA = ("bar.sync, __syncthreads; bar.warp.sync within a warp", "atomicAdd")
TWO = {words.BARRIER_APART, words.BARRIER_COUNT, words.PRODUCT_PENDING, words.PRODUCT_UNFENCED}
MBARRIERS = {words.MBARRIER_UNMADE, words.MBARRIER_COUNT, words.MBARRIER_OVERRUN}
PLACED = MBARRIERS | {
    words.RACE, words.UNWRITTEN, words.NOT_WAITED, words.NO_PROXY_FENCE, words.FREED_MEMORY, words.MBARRIER_REUSED,
    words.BLOCK_ENDED, words.MBARRIER_UNFENCED,
}  # fmt: skip


def place(index: int, extent: Dim) -> str:
    """A linear index as coordinates."""
    x, y, _ = extent
    return f"({index % x}, {index // x % y}, {index // (x * y)})"


def _where(sites: Sequence[Site], number: int) -> str:
    site = sites[number] if number < len(sites) else Site("", 0, "", "", 0)
    source = f" ({site.file}:{site.source_line})" if site.file else ""
    return f"line {site.line}{source}: {site.mnemonic}"


def _who(seen: AccessSeen, request: Request) -> str:
    g = request.geometry
    block = f"block {place(seen.block, g.grid)}"
    if seen.lane < 0:
        return f"{block} warp {seen.warp}"
    return f"{block} thread {place(32 * seen.warp + seen.lane, g.block)}"


def _memory(request: Request, address: int) -> str:
    """The memory of an address, as the caller knows it: of an array, also where a table of addresses leads to it."""
    around = [m for m in request.memory if m.first <= address < m.first + m.bytes]
    if not around:
        return f"shared memory at {address & 0xFFFFFF:#x}"
    least = min(around, key=lambda m: m.bytes)
    return f"byte {address - least.first} of {least.name}"


def leak(kernel: str, sites: Sequence[Site], request: Request, given: GivenMemory) -> str:
    """The message of memory that nobody can free any more."""
    seen = AccessSeen(given.site, given.block, given.thread // 32, given.thread % 32, kinds.NONE)
    return (
        f"{kernel}: memory that nobody frees: {_where(sites, given.site)}: {_who(seen, request)} got {given.bytes} "
        "bytes, and no pointer to them is left; free them, or keep a pointer in memory that lasts"
    )


def kept(kernel: str, request: Request, found: Allocated) -> str:
    """The message of tensor memory that is allocated when its block has ended."""
    return (
        f"{kernel}: tensor memory that nobody deallocates: line {found.line}: tcgen05.alloc: "
        f"block {place(found.block, request.geometry.grid)} got {found.columns} columns at {found.address:#x} and "
        "ended with them; tcgen05.dealloc them, by a warp that ends after their last use"
    )


def hazard_error(kernel: str, sites: Sequence[Site], request: Request, found: HazardFound) -> ProgramError:
    """The error of a hazard."""
    seen = [s.site for s in (found.mine, found.other) if s is not None]
    text = hazard(kernel, sites, request, found)
    return ProgramError(text, title=WORDS[found.hazard][0], places=places(sites, *seen))


def _repair(sites: Sequence[Site], found: HazardFound) -> str:
    """What would repair a hazard, in the words of the language that the kernel is written in."""
    mine, other = (sites[s.site] if s and s.site < len(sites) else None for s in (found.mine, found.other))
    file = mine.file if mine else ""
    barrier, adds = IN_PYTHON if file.endswith(".py") or file.startswith("<") else IN_CUDA
    text = WORDS[found.hazard][1].format(barrier=barrier)
    if found.hazard == words.RACE and mine and other and file and _line(mine) == _line(other) and mine != other:
        text += f"; if the threads update one element on this line, {adds} does so in one step"  # x[0] += y
    return text


def _line(site: Site) -> tuple[str, int]:
    return site.file, site.source_line


def hazard(kernel: str, sites: Sequence[Site], request: Request, found: HazardFound) -> str:
    """The message."""
    what, repair = WORDS[found.hazard][0], _repair(sites, found)
    head = f"{kernel}: {what}: {_where(sites, found.mine.site)}"
    if found.hazard in PLACED:
        ends = found.hazard == words.BLOCK_ENDED and found.mine.kind == kinds.NONE and found.other is not None
        does = "ends and with it" if ends else KINDS.get(found.mine.kind, "uses")
        head += f": {_who(found.mine, request)} {does} {_memory(request, found.address)}"
        if found.other is not None:
            other = KINDS.get(found.other.kind, "uses")
            head += f", which {_who(found.other, request)} {other} at {_where(sites, found.other.site)}"
    else:
        head += f": block {place(found.mine.block, request.geometry.grid)} warp {found.mine.warp}"
        if found.hazard == words.BARRIER_LEFT and found.other is not None:
            head += f" ends; others are at {_where(sites, found.other.site)}"
        elif found.hazard in TWO and found.other is not None:
            head += f"; the other: {_where(sites, found.other.site)}"
    return f"{head}; {repair}"
