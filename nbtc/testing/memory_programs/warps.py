"""Statements of whole warps: exchanges between lanes, votes, and moves of matrices."""

from __future__ import annotations

from nbtc.testing.memory_programs import addresses
from nbtc.testing.memory_programs.addresses import at, displacement
from nbtc.testing.memory_programs.scalar import known, predicate
from nbtc.testing.memory_programs.writer import Writer

ALL = "0xffffffff"
REDUCTIONS = ("add.u32", "add.s32", "min.u32", "max.s32", "and.b32", "or.b32", "xor.b32")


def shuffle(w: Writer, mask: str = ALL) -> None:
    """shfl.sync; with a mask of some lanes each reads its own value or that of a lane that is there."""
    mode = w.pick("up", "down", "bfly", "idx")
    name, more = w.result(32), []
    clamp = w.pick("0" if mode == "up" else "31", str(w.pick(0x1C00, 0x181F, 0x100F, 0x1F, 7)))
    by = str(w.rng.randrange(34)) if w.chance(0.6) else w.register(32)
    if w.chance(0.4):
        more = [w.result(1)]
    w.put(f"shfl.sync.{mode}.b32 {'|'.join([name, *more])}, {w.register(32)}, {by}, {clamp}, {mask};",
          name, *more, plain=True)  # fmt: skip


def vote(w: Writer, mask: str = ALL) -> None:
    mode = w.pick("ballot.b32", "all.pred", "any.pred", "uni.pred")
    name = w.result(32 if mode == "ballot.b32" else 1)
    w.put(f"vote.sync.{mode} {name}, {w.pick('', '!')}{w.register(1)}, {mask};", name, plain=True)


def match(w: Writer, mask: str = ALL) -> None:
    bits = w.pick(32, 64)
    small = w.result(bits)
    w.put(f"and.b{bits} {small}, {w.register(bits)}, {w.pick(0, 1, 3, 0x18)};", small)
    name = w.result(32)
    if w.chance(0.5):
        w.put(f"match.any.sync.b{bits} {name}, {small}, {mask};", name, plain=True)
        return
    p = [w.result(1)] if w.chance(0.5) else []
    w.put(f"match.all.sync.b{bits} {'|'.join([name, *p])}, {small}, {mask};", name, *p, plain=True)


def reduction(w: Writer, mask: str = ALL) -> None:
    name = w.result(32)
    w.put(f"redux.sync.{w.pick(*REDUCTIONS)} {name}, {w.register(32)}, {mask};", name, plain=True)


def turned(w: Writer) -> None:
    name = w.result(32)
    w.put(f"movmatrix.sync.aligned.m8n8.trans.b16 {name}, {w.register(32)};", name, plain=True)


def matrix_load(w: Writer) -> None:
    """ldmatrix of rows anywhere in shared memory that nobody writes now."""
    if w.layouts["shm"] is not None:
        return
    p = addresses.pointer(w, "shm", 16, 16)
    if p is None or p.space != "shared":
        return
    count, turn = w.pick(1, 2, 4), w.pick("", ".trans")
    names = w.results(32, count)
    w.put(f"ldmatrix.sync.aligned.m8n8.x{count}{turn}.shared.b16 {{{', '.join(names)}}}, "
          f"{at(p, displacement(w, p, 16, 16))};", *names, plain=True)  # fmt: skip


def matrix_store(w: Writer) -> None:
    """stmatrix into the rows that threads own."""
    if w.layouts["shm"] is None or not known("stmatrix.sync.aligned.m8n8.x1.shared.b16", w.arch):
        return
    p = addresses.pointer(w, "shm", 16, 16)
    if p is None or p.space != "shared":
        return
    count, turn = w.pick(1, 2, 4), w.pick("", ".trans")
    sources = [w.register(32) for _ in range(count)]
    w.line(f"bar.warp.sync {ALL};")
    w.put(f"stmatrix.sync.aligned.m8n8.x{count}{turn}.shared.b16 {at(p, displacement(w, p, 16, 16))}, "
          f"{{{', '.join(sources)}}};", plain=True)  # fmt: skip
    w.line(f"bar.warp.sync {ALL};")


def subset(w: Writer) -> None:
    """Warp instructions of the lanes that took a branch, which the mask names."""
    p, end, mask = predicate(w), w.label(), w.new("%m")
    w.line(f"vote.sync.ballot.b32 {mask}, {p}, {ALL};")
    w.line(f"@!{p} bra {end};")
    with w.inner():
        for _ in range(w.pick(1, 2)):
            w.pick(vote, match, reduction)(w, mask)
    w.line(f"{end}:")


STATEMENTS = ((2, shuffle), (1, vote), (1, match), (1, reduction), (0.5, turned), (3, matrix_load),
              (3, matrix_store), (1, subset))  # fmt: skip
