"""What went wrong in a launch, in words: the place in the program, the thread, the address and what lies near it."""

from __future__ import annotations

from collections.abc import Sequence

from nbtc.errors import ProgramError
from nbtc.executor.code.machine import Site
from nbtc.executor.emit.errors import ErrorKind, Failure
from nbtc.executor.emit.state import BARRIERS
from nbtc.executor.launch.launch import Dim, Request
from nbtc.executor.memory.ranges import Memory
from nbtc.executor.text.names import full_name, signature

Arrays = Sequence[tuple[str, int, int]]  # name, offset, bytes (0: dynamic)

WORDS = {
    ErrorKind.TRAP: "trap",
    ErrorKind.LOAD_BOUNDS: "reads outside all memory it was given",
    ErrorKind.STORE_BOUNDS: "writes outside all memory it was given",
    ErrorKind.MISALIGNED: "uses an address that is not a multiple of the access",
    ErrorKind.READ_ONLY: "writes to memory that is read-only",
    ErrorKind.SHARED_BOUNDS: "leaves the block's shared memory",
    ErrorKind.LOCAL_BOUNDS: "leaves the thread's local memory",
    ErrorKind.BRANCH_INDEX: "branches by an index beyond its table",
    ErrorKind.DEADLOCK: "waits forever: every warp waits for another",
    ErrorKind.STACK_OVERFLOW: "calls too deep, or takes too much at once: the stack is full",
    ErrorKind.BAD_CALL: "calls an address that is not a function",
    ErrorKind.ASSERT: "an assertion failed",
    ErrorKind.TIME_LIMIT: "was still running when the time limit of the launch was reached",
    ErrorKind.WHOLE_WARP: "needs all 32 lanes of its warp, and some are elsewhere or have ended",
    ErrorKind.BARRIER_NUMBER: f"names a barrier that is none of the {BARRIERS} of its block",
    ErrorKind.FREE: "frees memory that malloc did not give",
    ErrorKind.TENSOR_COPY: "copies a tile whose array the program may not touch",
    ErrorKind.NO_OBJECT: "names a texture or surface by a handle that is none, or that has been destroyed",
    ErrorKind.SURFACE_BOUNDS: "leaves the surface, and says .trap: .clamp and .zero would go on",
    ErrorKind.SURFACE_ALIGN: "accesses a surface at an x, in bytes, that is not a multiple of the access",
}
WINDOW = 1 << 24  # above all offsets in a block's shared memory
# Bytes from an array beyond which an address has nothing to do with it: no 32-bit index into doubles reaches farther.
NEAR = 1 << 35
NULL_PAGE = 4096  # bytes from 0, where no system maps memory by default: fields of a struct that a null pointer names
OUTSIDE = (ErrorKind.LOAD_BOUNDS, ErrorKind.STORE_BOUNDS)  # of global memory
FEW = 4  # warps of a deadlock that are named at each place
ACCESS = (
    ErrorKind.LOAD_BOUNDS,
    ErrorKind.STORE_BOUNDS,
    ErrorKind.MISALIGNED,
    ErrorKind.READ_ONLY,
    ErrorKind.SHARED_BOUNDS,
    ErrorKind.LOCAL_BOUNDS,
    ErrorKind.TENSOR_COPY,
)


def _place(index: int, extent: Dim) -> str:
    x, y, _ = extent
    return f"({index % x}, {index // x % y}, {index // (x * y)})"


def _of_tensor_copy(reason: int) -> str:
    """What is wrong with a tensor copy, unless it is its address."""
    from nbtc.executor.transfer.tma import REASONS

    return REASONS.get(reason, "")


def failure(
    kernel: str, sites: Sequence[Site], request: Request, f: Failure, assertion: str = "", shared: Arrays = ()
) -> str:
    """The message of a `ProgramError`."""
    kind = ErrorKind(f.kind)
    where = ""
    if f.site is not None and f.site < len(sites):
        site = sites[f.site]
        inside = "" if site.function == kernel else f" in {full_name(site.function)}"
        source = f" ({site.file}:{site.source_line})" if site.file else ""
        where = f"{inside}: line {site.line}{source}: {site.mnemonic}"
    g = request.geometry
    who = f"block {_place(f.block, g.grid)} thread {_place(f.thread, g.block)}"
    reason = _of_tensor_copy(f.address) if kind is ErrorKind.TENSOR_COPY else ""
    words = assertion or reason or WORDS.get(kind, kind.name)
    text = f"{full_name(kernel)}{where}: {words}; {who}"
    if kind in ACCESS and not reason:
        near: Sequence[Memory] = request.memory
        if kind is ErrorKind.SHARED_BOUNDS:
            near = _in_shared(shared, request) if f.address < WINDOW else ()
        null = kind in OUTSIDE and f.address < NULL_PAGE  # whatever array happens to lie low in memory
        text += f", address {f.address:#x}" + (", a null pointer" if null else _nearest(near, f.address))
    return text + _waiting(sites, request, f)


def places(sites: Sequence[Site], *numbers: int) -> list[tuple[str, int]]:
    """File and line of the source of places in the program, of those that have one."""
    known = [sites[n] for n in numbers if n < len(sites)]
    return [(s.file, s.source_line) for s in known if s.file]


def failed(
    kernel: str, sites: Sequence[Site], request: Request, f: Failure, assertion: str = "", shared: Arrays = ()
) -> ProgramError:
    """The error of a launch that failed; shared: the arrays of its shared memory."""
    kind = ErrorKind(f.kind)
    text = failure(kernel, sites, request, f, assertion, shared)
    return ProgramError(
        text, kind.name, kind.name.replace("_", " ").lower(), places(sites, *([] if f.site is None else [f.site]))
    )


def _waiting(sites: Sequence[Site], request: Request, f: Failure) -> str:
    """Which warps wait where."""
    where: dict[tuple[int, str], list[str]] = {}
    for block, warp, site in f.waiting:
        here = sites[site]
        who = where.setdefault((here.line, here.mnemonic), [])
        who.append(f"warp {warp} of block {_place(block, request.geometry.grid)}")
    return "".join(f"; at line {line}, {name}, {_few(who)}" for (line, name), who in sorted(where.items()))


def _few(who: Sequence[str]) -> str:
    """The first of a list, and how many more there are."""
    return ", ".join(who[:FEW]) + (f" and {len(who) - FEW} more" if len(who) > FEW else "")


def _in_shared(shared: Arrays, request: Request) -> list[Memory]:
    """A block's arrays in shared memory by the names that the source gives them."""
    return [
        Memory(signature(name).rpartition("::")[2], at, size or request.dynamic_bytes, True, None)
        for name, at, size in shared
    ]


def _nearest(memory: Sequence[Memory], address: int) -> str:
    """Which array an address is near, and by how much it misses it."""
    best = ""
    least = NEAR
    for m in (m for m in memory if m.bytes):
        before, after = m.first - address, address - (m.first + m.bytes)
        distance = max(before, after + 1, 0)
        if distance < least:
            least = distance
            where = f"{before} bytes before" if before > 0 else f"{after} bytes after the end of"
            where = where if distance else f"{address - m.first} bytes into"
            best = f", {where} {m.name} ({m.bytes} byte{'s' if m.bytes > 1 else ''})"
    return best
