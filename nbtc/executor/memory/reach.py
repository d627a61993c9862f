"""Places in memory for instructions that are no plain loads and stores: where each lane's operand lies, checked."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.builder import I8, I32, VectorBuilder
from nbtc.executor.emit import access_kinds as kinds
from nbtc.executor.emit.instrument import Touch
from nbtc.executor.emit.lanes import Lanes
from nbtc.executor.emit.values import const
from nbtc.executor.memory.resolve import ADDRESSES, Access, resolve, resolved
from nbtc.executor.text.data import Operand

LANES = 32
POINTER = I8.as_pointer()


def space_of(text: str) -> str:
    """A state space by the name that resolvers know: "" is generic."""
    return text.split("::")[0] or "generic"


def address(lanes: Lanes, operand: Operand) -> Any:
    """<32 x i64>: the address that `[base + offset]` names in each lane, in its own space."""
    base, offset = lanes.address(operand)
    moved = lanes.b.add(base, const(lanes.v, base, offset)) if offset else base
    return lanes.spread(moved)


class Places(NamedTuple):
    """<32 x i64> host addresses, and the i32 mask of the lanes whose address may be used."""

    words: Any
    good: Any

    def pointer(self, v: Lanes | VectorBuilder, lane: int) -> Any:
        """One lane's, as a pointer to bytes."""
        return v.b.inttoptr(v.b.extract_element(self.words, ir.Constant(I32, lane)), POINTER)


class AccessReport(NamedTuple):
    """What an instrument is told of an access: its kind and order (`access_kinds`); nothing of one without a kind.

    values: what is written, vectors of the lanes' elements.
    """

    kind: int = kinds.NONE
    order: int = 0
    values: tuple[Any, ...] = ()


UNSEEN = AccessReport()
READ, WRITE = AccessReport(kinds.READ), AccessReport(kinds.WRITE)


def places(
    lanes: Lanes,
    space: str,
    operand: Operand,
    size: int,
    writes: bool = False,
    among: Any = None,
    seen: AccessReport = UNSEEN,
) -> Places:
    """Where each active lane's operand of `size` bytes lies; among: i32 of the lanes that count, or all active ones."""
    return places_at(lanes, space, address(lanes, operand), size, writes, among, seen)


def places_at(
    lanes: Lanes,
    space: str,
    addresses: Any,
    size: int,
    writes: bool = False,
    among: Any = None,
    seen: AccessReport = UNSEEN,
) -> Places:
    """As `places`, of <32 x i64> addresses."""
    mine, site = tell(lanes, space, addresses, size, among, seen)
    out, good = resolve(mine, Access(space_of(space), size, writes), addresses, site)
    return Places(lanes.b.load(out), good)


def tell(lanes: Lanes, space: str, addresses: Any, size: int, among: Any, seen: AccessReport) -> tuple[Lanes, int]:
    """Let the instrument see an access; the lanes that do it, and the number of its place."""
    mine = lanes
    if among is not None:
        mine = copy.copy(lanes)
        mine.active, mine.full = lanes.b.and_(among, lanes.active), False
    site = lanes.machine.site(lanes)
    touch = Touch(space_of(space), size, seen.kind, seen.order, size // max(1, len(seen.values)))
    lanes.machine.instrument.access(mine, touch, addresses, site, list(seen.values) or None)
    return mine, site


def places_in(
    v: VectorBuilder, helpers: Any, access: Access, addresses: Any, mask: Any, where: Sequence[Any]
) -> Places:
    """As `places_at` for the body of a helper, which knows where it is called: (site, block, warp)."""
    with v.b.goto_entry_block():
        out = v.b.alloca(ADDRESSES)
    good = resolved(v, helpers, access, (addresses, mask), where, out)
    return Places(v.b.load(out), good)


@contextmanager
def if_all(lanes: Lanes, found: Places, wanted: Any = None) -> Iterator[None]:
    """Code that runs only where every wanted lane (default: every active one) has a place."""
    whole = lanes.b.icmp_unsigned("==", found.good, lanes.active if wanted is None else wanted)
    with lanes.b.if_then(whole, likely=True):
        yield


def first_lane(lanes: Lanes, x: Any) -> Any:
    """A value that an instruction wants to be the same in all active lanes."""
    if not isinstance(x.type, ir.VectorType):
        return x
    leader = lanes.v.call("llvm.cttz.i32", I32, lanes.active, ir.Constant(ir.IntType(1), 0))
    return lanes.b.extract_element(x, leader)


def write(lanes: Lanes, target: Operand, value: Any) -> None:
    """Write a value of each lane, which is the same in all of them where the register is one for the warp."""
    lanes.write(target, first_lane(lanes, value) if lanes.uniform(target) else value)
