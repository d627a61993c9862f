"""Allocations that graphs make (CUDA Driver API, "Graph Management"; CUDA C++ Programming Guide, "Graph Memory Nodes").

A node that allocates has its address from the beginning; the memory is there from when the node runs until it is freed,
by a node of this graph or another, or by a call.  Graphs don't share addresses, as a GPU's may.
"""

from __future__ import annotations

from collections.abc import Callable

from nbtc.libcuda import host
from nbtc.libcuda.driver.graphs.nodes import put_node
from nbtc.libcuda.errors import INVALID_VALUE, NOT_SUPPORTED, SUCCESS, CudaError
from nbtc.libcuda.memory import Block, Kind, Reserved, memory
from nbtc.libcuda.registry import driver
from nbtc.libcuda.state import current_or_none, device, handles, numbers
from nbtc.libcuda.streams import Graph, Node, NodeKind

# CUDA_MEM_ALLOC_NODE_PARAMS: offsets of the kind of handle, of the place, and of the size and the address; its bytes.
HANDLE, PLACE, SIZE, ADDRESS, BYTES = 4, 8, 104, 112, 120
ON_DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
USED, RESERVED = (0, 1), (2, 3)  # CUgraphMem_attribute: now, and the most so far
FREED = (Kind.POOL, Kind.HOST_POOL, Kind.IMPORTED, Kind.DEVICE, Kind.MANAGED)
Made = tuple[NodeKind, Callable[[], None], Reserved]


def allocated(size: int) -> tuple[int, Made]:
    """An address, and the node that makes memory of it."""
    here = memory.reserve(size)

    def run() -> None:
        memory.add(Block(here.first, here.bytes, Kind.POOL, 0, here, next(numbers), current_or_none()))

    return here.first, (NodeKind.ALLOC, run, here)


def freed(graph: Graph, address: int) -> Made:
    """The node that frees what a node allocates, which a graph does once."""
    here = memory.reserved.get(address)
    if here is None or any(n.kind is NodeKind.FREE and n.params is here for n in graph.nodes):
        raise CudaError(INVALID_VALUE)
    return NodeKind.FREE, lambda: _free(address), here


def _free(address: int) -> None:
    memory.free(address, *FREED)


@driver
def cuGraphAddMemAllocNode(out: int, graph: int, after: int, count: int, at: int) -> int:
    raw = host.read(at, BYTES)
    if raw[HANDLE:PLACE] != bytes(PLACE - HANDLE):
        return NOT_SUPPORTED
    kind, number = host.halves(at + PLACE, 2)
    if kind != ON_DEVICE:
        return INVALID_VALUE
    device(number)
    address, made = allocated(host.u64(at + SIZE))
    put_node(out, graph, after, count, made)
    host.put64(at + ADDRESS, address)
    return SUCCESS


@driver
def cuGraphAddMemFreeNode(out: int, graph: int, after: int, count: int, address: int) -> None:
    put_node(out, graph, after, count, freed(handles.get(graph, Graph), address))


def _reserved(node: int, kind: NodeKind) -> Reserved:
    found = handles.get(node, Node)
    if found.kind is not kind:
        raise CudaError(INVALID_VALUE)
    here: Reserved = found.params
    return here


@driver
def cuGraphMemAllocNodeGetParams(node: int, out: int) -> None:
    here = _reserved(node, NodeKind.ALLOC)
    host.write(out, bytes(BYTES))
    host.put32(out, 1)  # CU_MEM_ALLOCATION_TYPE_PINNED
    host.put32(out + PLACE, ON_DEVICE)
    host.put64(out + SIZE, here.bytes)
    host.put64(out + ADDRESS, here.first)


@driver
def cuGraphMemFreeNodeGetParams(node: int, out: int) -> None:
    host.put64(out, _reserved(node, NodeKind.FREE).first)


@driver
def cuDeviceGetGraphMemAttribute(number: int, what: int, out: int) -> int:
    """What graphs use and have reserved; the most so far is counted where memory is reserved and added."""
    device(number)
    if what not in USED + RESERVED:
        return INVALID_VALUE
    host.put64(out, memory.of_graphs()[what])
    return SUCCESS


@driver
def cuDeviceSetGraphMemAttribute(number: int, what: int, value: int) -> int:
    """The most so far can be forgotten: zero is all that may be set."""
    device(number)
    if what not in (USED[1], RESERVED[1]) or host.u64(value):
        return INVALID_VALUE
    memory.most[what // 2] = memory.of_graphs()[what - 1]
    return SUCCESS
