"""Nodes of any kind, by CUgraphNodeParams (CUDA Driver API, "Graph Management": cuGraphAddNode)."""

from __future__ import annotations

from collections.abc import Callable

from nbtc.libcuda import host
from nbtc.libcuda.driver.graphs import nodes
from nbtc.libcuda.driver.graphs.conditional_nodes import add_conditional
from nbtc.libcuda.driver.graphs.memory_nodes import cuGraphAddMemAllocNode, cuGraphAddMemFreeNode
from nbtc.libcuda.errors import INVALID_VALUE, SUCCESS, CudaError
from nbtc.libcuda.registry import driver
from nbtc.libcuda.state import handles
from nbtc.libcuda.streams import Executable, Node, NodeKind

# CUgraphNodeParams: its bytes, the offset of the kind's own parameters, and in those of a copy that of CUDA_MEMCPY3D.
BYTES, PARAMETERS, COPY = 256, 16, 16
Readers = dict[NodeKind, Callable[[int], nodes.Made]]
READERS: Readers = {
    NodeKind.KERNEL: nodes.kernel,
    NodeKind.MEMCPY: lambda at: nodes.rows_of(at + COPY),
    NodeKind.MEMSET: nodes.fill,
    NodeKind.HOST: nodes.called,
    NodeKind.GRAPH: lambda at: nodes.child(host.u64(at)),
    NodeKind.EMPTY: lambda at: (NodeKind.EMPTY, None, None),
    NodeKind.WAIT_EVENT: lambda at: nodes.waited(host.u64(at)),
    NodeKind.EVENT_RECORD: lambda at: nodes.recorded(host.u64(at)),
}


def made(at: int, readers: Readers) -> nodes.Made:
    """The node that a CUgraphNodeParams describes."""
    host.read(at, BYTES)
    read = readers.get(host.u32(at))  # type: ignore[call-overload]
    if read is None:
        raise CudaError(INVALID_VALUE)
    found: nodes.Made = read(at + PARAMETERS)
    return found


def add(out: int, graph: int, after: int, count: int, at: int, readers: Readers = READERS) -> int:
    """A node of any kind; those that have a result write it into their parameters."""
    host.read(at, BYTES)
    kind, here = host.u32(at), at + PARAMETERS
    if kind == NodeKind.ALLOC:
        code: int = cuGraphAddMemAllocNode(out, graph, after, count, here)
        return code
    if kind == NodeKind.FREE:
        cuGraphAddMemFreeNode(out, graph, after, count, host.u64(here))
    elif kind == NodeKind.CONDITIONAL:
        add_conditional(out, graph, after, count, here)
    else:
        nodes.put_node(out, graph, after, count, made(at, readers))
    return SUCCESS


@driver
def cuGraphAddNode(out: int, graph: int, after: int, count: int, at: int) -> int:
    return add(out, graph, after, count, at)


@driver
def cuGraphAddNode_v2(out: int, graph: int, after: int, data: int, count: int, at: int) -> int:
    return add(out, graph, after, count, at)


@driver
def cuGraphNodeSetParams(node: int, at: int) -> None:
    nodes.change(handles.get(node, Node), made(at, READERS))


@driver
def cuGraphExecNodeSetParams(executable: int, node: int, at: int) -> None:
    nodes.change(handles.get(executable, Executable).node(node), made(at, READERS))
