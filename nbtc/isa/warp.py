"""Rows of the warp-wide instructions: exchange, reduction, votes, barriers, and the fences of wgmma (PTX ISA,
"Parallel Synchronization and Communication Instructions")."""

from __future__ import annotations

from collections.abc import Iterator

from nbtc.isa.spec import Row

SYNTAX_REDUX = "d a mask~"

# family, mnemonic, operands, first target
PLAIN = (
    ("vote.sync", "vote.sync.all.pred", "d a mask~", "sm_70"),
    ("vote.sync", "vote.sync.any.pred", "d a mask~", "sm_70"),
    ("vote.sync", "vote.sync.uni.pred", "d a mask~", "sm_70"),
    ("vote.sync", "vote.sync.ballot.b32", "d a mask~", "sm_70"),
    ("match.sync", "match.any.sync.b32", "d a mask~", "sm_70"),
    ("match.sync", "match.all.sync.b32", "d|p a mask~", "sm_70"),
    ("match.sync", "match.any.sync.b64", "d a mask~", "sm_70"),
    ("match.sync", "match.all.sync.b64", "d|p a mask~", "sm_70"),
    ("elect.sync", "elect.sync", "d|p mask~", "sm_90"),
    ("activemask", "activemask.b32", "d", "sm_70"),
    ("bar.warp.sync", "bar.warp.sync", "mask~", "sm_70"),
    ("nanosleep", "nanosleep.u32", "t~", "sm_70"),
    ("fence", "fence.proxy.async", "", "sm_90"),
    ("fence", "fence.proxy.async.shared::cta", "", "sm_90"),
)
WGMMA_SYNC = (
    ("wgmma.fence.sync.aligned", ""),
    ("wgmma.commit_group.sync.aligned", ""),
    ("wgmma.wait_group.sync.aligned", "n="),
)


def rows(family: str) -> Iterator[Row]:
    """The rows of one of this file's families."""
    if family == "shfl.sync":
        for mode in ("up", "down", "bfly", "idx"):
            yield Row(f"shfl.sync.{mode}.b32", family, "sm_70", syntax=("d|p a b~ c~ mask~",))
    elif family == "redux.sync":
        yield from _reductions()
    elif family == "wgmma.sync":
        for name, syntax in WGMMA_SYNC:
            yield Row(name, family, "sm_90a", last=90, unit="wgmma", syntax=(syntax,))
    for found, name, syntax, target in PLAIN:
        if found == family:
            yield Row(name, family, target, syntax=(syntax,))


def _reductions() -> Iterator[Row]:
    for op, types in (("add min max", "s32 u32"), ("and or xor", "b32")):
        for name in op.split():
            for t in types.split():
                yield Row(f"redux.sync.{name}.{t}", "redux.sync", "sm_80", syntax=(SYNTAX_REDUX,))
    for name in ("min", "max"):  # floats: sm_100 and sm_103 alone
        for modifier in ("", ".abs", ".NaN", ".abs.NaN"):
            yield Row(
                f"redux.sync.{name}{modifier}.f32", "redux.sync", "sm_100a", executable=False, last=LAST_FLOAT,
                syntax=(SYNTAX_REDUX,),
            )  # fmt: skip


LAST_FLOAT = 103
FAMILIES = tuple(dict.fromkeys(["shfl.sync", "redux.sync", "wgmma.sync", *(f for f, *_ in PLAIN)]))
