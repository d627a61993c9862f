"""Nodes that run graphs as a condition says (CUDA C++ Programming Guide, "Conditional Graph Nodes").

A handle is the address of its condition: what `cudaGraphSetConditional` stores is checked as every other store is, and
needs no call of the host.
"""

from __future__ import annotations

import ctypes

from nbtc.libcuda import host
from nbtc.libcuda.driver.graphs.nodes import given, put_node
from nbtc.libcuda.errors import INVALID_VALUE, SUCCESS, CudaError
from nbtc.libcuda.memory import Kind, memory
from nbtc.libcuda.registry import driver
from nbtc.libcuda.state import handles, of_handle
from nbtc.libcuda.streams import Choice, Condition, Conditional, Graph, NodeKind

ASSIGN_DEFAULT = 1  # CU_GRAPH_COND_ASSIGN_DEFAULT
MOST = 1 << 12  # bodies of one node
# CUDA_CONDITIONAL_NODE_PARAMS: offsets of the kind, and of where the bodies' handles can be read.
KIND, BODIES = 8, 16
SIZES = {Choice.IF: range(1, 3), Choice.WHILE: range(1, 2), Choice.SWITCH: range(1, MOST + 1)}


@driver
def cuGraphConditionalHandleCreate(out: int, graph: int, context: int, default: int, flags: int) -> int:
    found = handles.get(graph, Graph)
    of_handle(context)
    if flags & ~ASSIGN_DEFAULT:
        return INVALID_VALUE
    host.put64(out, 0)
    first = memory.allocate(ctypes.sizeof(ctypes.c_uint32), Kind.CONDITION)
    block = memory.blocks[first]
    condition = Condition(first, default & 0xFFFFFFFF if flags else None, lambda: _free(condition))
    memory.blocks[first] = block._replace(owner=condition)
    condition.value.value = default & 0xFFFFFFFF if flags else 0
    found.keep(condition.user)
    host.put64(out, first)
    return SUCCESS


def _free(condition: Condition) -> None:
    """Unless its context's end has taken it along."""
    block = memory.blocks.get(condition.first)
    if block is not None and block.owner is condition:
        memory.free(condition.first, Kind.CONDITION)


def conditional(at: int) -> Conditional:
    """CUDA_CONDITIONAL_NODE_PARAMS: a handle, which node it is, and how many graphs it chooses from."""
    block = memory.blocks.get(host.u64(at))
    kind, size = host.halves(at + KIND, 2)
    if block is None or block.kind is not Kind.CONDITION or block.owner.taken:
        raise CudaError(INVALID_VALUE)
    if kind not in list(Choice) or size not in SIZES[Choice(kind)]:
        raise CudaError(INVALID_VALUE)
    return Conditional(block.owner, Choice(kind), [Graph() for _ in range(size)])


def add_conditional(out: int, graph: int, after: int, count: int, at: int) -> None:
    """A node that owns its graphs; their handles stand in memory that lives as long as it does."""
    handles.get(graph, Graph), given(after, count), host.read(out, 8)
    found = conditional(at)
    for body in found.bodies:
        body.handle, body.inner = handles.add(body), True
    found.listed = (ctypes.c_uint64 * len(found.bodies))(*(b.handle for b in found.bodies))
    put_node(out, graph, after, count, (NodeKind.CONDITIONAL, found.run, found))
    found.condition.taken = True
    host.put64(at + BODIES, ctypes.addressof(found.listed))
