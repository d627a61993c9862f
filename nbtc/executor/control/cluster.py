"""Rows of thread block clusters: addresses of other blocks' shared memory, and the barrier of all their threads.

(PTX ISA, "mapa", "getctarank", "barrier.cluster".)  The blocks of a cluster are resident on one thread of the host.
A shared address of another block is its offset with the block's rank, plus one, in the bits from 24 on; without them
it is the block's own.  The cluster's barrier lies in its first block: generation, and threads that have arrived.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I8, I32, I64
from nbtc.compiler.loops import for_lanes
from nbtc.executor.emit.action import Action
from nbtc.executor.emit.fields import cluster_size, field_at, load_field
from nbtc.executor.emit.form import slots
from nbtc.executor.emit.lanes import Lanes
from nbtc.executor.emit.values import const, resize
from nbtc.executor.memory.resolve import FIRST_RANK, RANK_SHIFT
from nbtc.executor.text.data import Instruction

POINTER = I8.as_pointer()


def peer(lanes: Lanes, rank: Any) -> Any:
    """Pointer to the structure of a block of the cluster, by its rank (i32)."""
    table = lanes.b.inttoptr(lanes.get("block", "peers"), POINTER)
    place = lanes.v.at(table, lanes.b.shl(lanes.b.zext(rank, I64), lanes.v.int(3)))
    return lanes.b.inttoptr(lanes.v.load(place, I64, 8), POINTER)


def peer_field(lanes: Lanes, rank: Any, name: str) -> Any:
    """A field of a block of the cluster."""
    return load_field(lanes.v, "block", peer(lanes, rank), name)


def _map(lanes: Lanes) -> None:
    """mapa: the address of the same variable in another block's shared memory."""
    target, source, rank = lanes.operands
    kind = lanes.op.modifiers[-1]
    x = resize(lanes.v, lanes.read(source, kind), 64)
    number = resize(lanes.v, lanes.read(rank, "u32"), 64)
    if x.type != number.type:
        x, number = lanes.spread(x), lanes.spread(number)
    b, v = lanes.b, lanes.v
    keep = const(v, x, ~(0xFF << RANK_SHIFT))
    moved = b.shl(b.add(number, const(v, number, FIRST_RANK)), const(v, number, RANK_SHIFT))
    lanes.write(target, b.or_(b.and_(x, keep), moved))


def _rank(lanes: Lanes) -> None:
    """getctarank: whose shared memory an address lies in."""
    target, source = lanes.operands
    lanes.write(target, rank_of(lanes, resize(lanes.v, lanes.read(source, lanes.op.modifiers[-1]), 64)))


def rank_of(lanes: Lanes, x: Any) -> Any:
    """The rank in the cluster of the block whose shared memory an address (i64, or one a lane) lies in."""
    b, v = lanes.b, lanes.v
    tag = resize(v, b.and_(b.lshr(x, const(v, x, RANK_SHIFT)), const(v, x, 0xFF)), 32)
    own = lanes.get("block", "cluster_rank")
    own = lanes.spread(own) if tag.type != own.type else own
    mine = b.icmp_unsigned("==", tag, const(v, tag, 0))
    return b.select(mine, own, b.sub(tag, const(v, tag, FIRST_RANK)))


def block_ranks(lanes: Lanes) -> Any:
    """The ranks of all blocks of the cluster, as bits of an i32."""
    one = ir.Constant(I32, 1)
    return lanes.b.sub(lanes.b.shl(one, cluster_size(lanes.v, lanes.launch)), one)


def _live(lanes: Lanes) -> Any:
    """Threads of the cluster that have not ended."""
    with lanes.b.goto_entry_block():
        total = lanes.b.alloca(I32)
    lanes.b.store(ir.Constant(I32, 0), total)
    for_lanes(
        lanes.v,
        block_ranks(lanes),
        lambda rank: lanes.b.store(lanes.b.add(lanes.b.load(total), peer_field(lanes, rank, "live_threads")), total),
    )
    return lanes.b.load(total)


class ClusterBarrier:
    """The barrier's words in the first block, and what this warp has noted of it."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes, self.v, self.b = lanes, lanes.v, lanes.b
        first = peer(lanes, ir.Constant(I32, 0))
        self.generation, self.arrived = (
            field_at(lanes.v, "block", first, f"cluster_{n}") for n in ("generation", "arrived")
        )

    def arrive(self, lanes_new: Any) -> None:
        """Count lanes (i32 mask, perhaps none); the last ones of the cluster end the generation."""
        b, v = self.b, self.v
        arrived = b.add(v.load(self.arrived, I32, 4), v.popcount(lanes_new))
        v.store(arrived, self.arrived, 4)
        full = b.icmp_unsigned(">=", arrived, _live(self.lanes))
        with b.if_then(b.and_(full, b.icmp_unsigned("!=", arrived, ir.Constant(I32, 0)))):
            v.store(ir.Constant(I32, 0), self.arrived, 4)
            v.store(b.add(v.load(self.generation, I32, 4), ir.Constant(I32, 1)), self.generation, 4)

    def stays(self) -> Any:
        """Whether the generation in which this warp arrived goes on."""
        return self.b.icmp_unsigned("==", self.lanes.get("warp", "cluster_noted"), self.v.load(self.generation, I32, 4))


def _arrive(lanes: Lanes) -> None:
    barrier = ClusterBarrier(lanes)
    lanes.put("warp", "cluster_noted", lanes.v.load(barrier.generation, I32, 4))
    barrier.arrive(lanes.active)


def _wait(lanes: Lanes) -> None:
    barrier = ClusterBarrier(lanes)
    with lanes.b.if_then(barrier.stays()):
        barrier.arrive(ir.Constant(I32, 0))  # threads that ended since may have been the last ones missing
    lanes.retry_unless(lanes.b.not_(barrier.stays()))


def _always(instruction: Instruction) -> bool:
    return True


ACTIONS = (
    Action("mapa", slots("shared::cluster?", "u32|u64"), _map, 1),
    Action("getctarank", slots("shared::cluster?", "u32|u64"), _rank, 1),
    Action("barrier", slots("cluster", "arrive", "release|relaxed?", "aligned?"), _arrive),
    Action("barrier", slots("cluster", "wait", "acquire?", "aligned?"), _wait, waits=_always),
)
