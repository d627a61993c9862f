"""Copies of many bytes that one thread starts for its block, between barriers at which all threads are together."""

from __future__ import annotations

from nbtc.testing.memory_programs.scalar import known
from nbtc.testing.memory_programs.writer import PREFIXES, REGIONS, Writer

GRANULE = 16  # bytes that addresses and sizes are multiples of
TO_SHARED = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
TO_GLOBAL = "cp.async.bulk.global.shared::cta.bulk_group"


def available(w: Writer) -> bool:
    """Whether the architecture has such copies, and all threads stay to the end."""
    return not w.exits and known(TO_SHARED, w.arch)


def copy(w: Writer) -> None:
    """Into shared memory, or out of it; layouts are the caller's to change after it."""
    size = GRANULE * w.pick(1, 2, 3, 8, 17, w.rng.randrange(1, 129))
    first = w.new(PREFIXES[1])
    source, target = (GRANULE * w.rng.randrange((REGIONS[r] - size) // GRANULE + 1) for r in ("src", "shm"))
    w.line("fence.proxy.async;")  # what threads wrote is there for the copy
    w.line("bar.sync 0;")
    w.put(f"setp.eq.u32 {first}, %number, {w.rng.randrange(w.threads)};", first)
    if w.chance(0.6):
        w.line(f"@{first} mbarrier.arrive.expect_tx.shared.b64 _, [arrived], {size};")
        w.line(f"@{first} {TO_SHARED} [%shm+{target}], [%src+{source}], {size}, [arrived];")
        w.line("bar.sync 0;")
        top = w.label()
        w.line(f"{top}: mbarrier.try_wait.parity.shared.b64 %more, [arrived], %phase;")
        w.line(f"@!%more bra {top};")
        w.line("xor.b32 %phase, %phase, 1;")
    else:
        w.line(f"@{first} {TO_GLOBAL} [%own+{source}], [%shm+{target}], {size};")
        w.line("cp.async.bulk.commit_group;")
        w.line("cp.async.bulk.wait_group 0;")


def first_lines(w: Writer) -> list[str]:
    """The mbarrier that copies arrive at, before all threads meet for the first time."""
    if not available(w):
        return []
    return [
        ".shared .align 8 .b64 arrived;", ".reg .b32 %phase;", "mov.u32 %phase, 0;",
        "setp.eq.u32 %more, %number, 0;", "@%more mbarrier.init.shared.b64 [arrived], 1;",
    ]  # fmt: skip
