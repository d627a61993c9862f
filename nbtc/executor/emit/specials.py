"""Special registers (PTX ISA chapter 10), as values of one lane or all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from nbtc.compiler.builder import I32, I64, vector
from nbtc.executor.emit.fields import cluster_size
from nbtc.executor.emit.state import RESERVED_SHARED
from nbtc.executor.emit.values import resize

if TYPE_CHECKING:
    from nbtc.executor.emit.lanes import Lanes

VARYING_SPECIALS = frozenset(
    {"%tid", "%tid.x", "%tid.y", "%tid.z", "%laneid", *(f"%lanemask_{r}" for r in ("eq", "le", "lt", "ge", "gt"))}
)
SHARED_UNIT = 128  # bytes that shared memory is handed out in from sm_80 on (PTX ISA, "%total_smem_size")
# what an H100 says; the first 288 bytes are for CUDA's cooperative groups
RESERVED_OFFSETS = {"begin": 0, "end": 288, "cap": RESERVED_SHARED, "0": 0, "1": 0}
Reader = Callable[["Lanes"], Any]


def _field(structure: str, name: str) -> Reader:
    return lambda lanes: lanes.get(structure, name)


def _constant(value: int) -> Reader:
    return lambda lanes: ir.Constant(I32, value)


def _lane_constants(of: Callable[[int], int]) -> Reader:
    return lambda lanes: ir.Constant(vector(I32, 32), [of(lane) & 0xFFFFFFFF for lane in range(32)])


def _thread(axis: str) -> Reader:
    return lambda lanes: lanes.frame.thread_index(axis)


def _cycles(lanes: Lanes) -> Any:
    """A counter that grows; the time stamp counter where there is one."""
    return lanes.v.call("llvm.readcyclecounter", I64)


def _clusters(axis: str) -> Reader:
    def read(lanes: Any) -> Any:
        return lanes.b.udiv(lanes.get("launch", f"grid_{axis}"), lanes.get("launch", f"cluster_{axis}"))

    return read


def _cluster_index(axis: str) -> Reader:
    return lambda lanes: lanes.b.udiv(lanes.get("block", axis), lanes.get("launch", f"cluster_{axis}"))


def _in_cluster(axis: str) -> Reader:
    return lambda lanes: lanes.b.urem(lanes.get("block", axis), lanes.get("launch", f"cluster_{axis}"))


def _cluster_blocks(lanes: Lanes) -> Any:
    return cluster_size(lanes.v, lanes.launch)


def _explicit_cluster(lanes: Lanes) -> Any:
    return lanes.b.icmp_unsigned("!=", _cluster_blocks(lanes), ir.Constant(I32, 1))


def _workspace(shift: int) -> Reader:
    """Half of the address of a cooperative grid's workspace."""
    return lambda lanes: lanes.b.trunc(lanes.b.lshr(lanes.get("launch", "workspace"), ir.Constant(I64, shift)), I32)


def _own_shared(lanes: Lanes) -> Any:
    """The block's static and dynamic shared memory."""
    linked = lanes.machine.linked
    own = ir.Constant(I32, linked.shared_bytes - linked.reserved_bytes)
    return lanes.b.add(lanes.get("launch", "dynamic_bytes"), own)


def _total_shared(lanes: Lanes) -> Any:
    """The same in whole units of allocation."""
    more = lanes.b.add(_own_shared(lanes), ir.Constant(I32, SHARED_UNIT - 1))
    return lanes.b.and_(more, ir.Constant(I32, -SHARED_UNIT))


VECTORS = ("%tid", "%ntid", "%ctaid", "%nctaid", "%clusterid", "%nclusterid", "%cluster_ctaid", "%cluster_nctaid")
READERS: Mapping[str, Reader] = MappingProxyType(
    {
        **{f"%tid.{a}": _thread(a) for a in "xyz"},
        **{f"%ntid.{a}": _field("launch", f"block_{a}") for a in "xyz"},
        **{f"%ctaid.{a}": _field("block", a) for a in "xyz"},
        **{f"%nctaid.{a}": _field("launch", f"grid_{a}") for a in "xyz"},
        **{f"%clusterid.{a}": _cluster_index(a) for a in "xyz"},
        **{f"%nclusterid.{a}": _clusters(a) for a in "xyz"},
        **{f"%cluster_ctaid.{a}": _in_cluster(a) for a in "xyz"},
        **{f"%cluster_nctaid.{a}": _field("launch", f"cluster_{a}") for a in "xyz"},
        **{f"{name}.w": _constant(0) for name in VECTORS},  # PTX ISA 10: unused, and always zero
        "%cluster_ctarank": _field("block", "cluster_rank"),
        "%cluster_nctarank": _cluster_blocks,
        "%is_explicit_cluster": _explicit_cluster,
        "%laneid": _lane_constants(lambda lane: lane),
        "%lanemask_eq": _lane_constants(lambda lane: 1 << lane),
        "%lanemask_lt": _lane_constants(lambda lane: (1 << lane) - 1),
        "%lanemask_le": _lane_constants(lambda lane: (2 << lane) - 1),
        "%lanemask_gt": _lane_constants(lambda lane: -(2 << lane)),
        "%lanemask_ge": _lane_constants(lambda lane: -(1 << lane)),
        "%warpid": _field("warp", "index"),
        "%nwarpid": _constant(64),  # of an SM of compute capability 8.0 and 9.0
        "%smid": _constant(0),
        "%nsmid": _constant(1),
        "%gridid": _constant(0),
        "WARP_SZ": _constant(32),
        "%clock": _cycles,
        "%clock64": _cycles,
        "%clock_hi": lambda lanes: lanes.b.lshr(_cycles(lanes), ir.Constant(I64, 32)),
        "%globaltimer": _cycles,
        "%globaltimer_lo": _cycles,
        "%globaltimer_hi": lambda lanes: lanes.b.lshr(_cycles(lanes), ir.Constant(I64, 32)),
        "%dynamic_smem_size": _field("launch", "dynamic_bytes"),
        "%total_smem_size": _total_shared,
        "%aggr_smem_size": lambda lanes: lanes.b.add(_own_shared(lanes), ir.Constant(I32, RESERVED_SHARED)),
        **{
            f"%pm{n}{bits}": _constant(0) for n in range(8) for bits in ("", "_64")
        },  # performance counters count nothing
        **{f"%reserved_smem_offset_{name}": _constant(offset) for name, offset in RESERVED_OFFSETS.items()},
        "%current_graph_exec": _constant(0),  # no launch is a graph's
        **{f"%envreg{n}": _constant(0) for n in range(32)},
        "%envreg1": _workspace(32),  # where CUDA's cooperative groups look for the grid's workspace
        "%envreg2": _workspace(0),
    }
)


def read(lanes: Lanes, name: str, bits: int) -> Any:
    """A special register's value with so many bits."""
    reader = READERS.get(name)
    if reader is None:
        lanes.refuse(f"{name} is neither declared nor a special register that nbtc has")
    return resize(lanes.v, reader(lanes), bits)
