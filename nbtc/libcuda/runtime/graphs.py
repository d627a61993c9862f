"""Nodes of graphs that are described otherwise than the driver's (CUDA Runtime API, "Graph Management")."""

from __future__ import annotations

from nbtc.libcuda import host
from nbtc.libcuda.driver.graphs import any_nodes, nodes
from nbtc.libcuda.pitched_memory import Extent, Side
from nbtc.libcuda.registry import DRIVER, runtime
from nbtc.libcuda.runtime.copies import rows_of, sides
from nbtc.libcuda.runtime.registration import function
from nbtc.libcuda.state import handles
from nbtc.libcuda.streams import Executable, Node, NodeKind


def kernel(at: int) -> nodes.Made:
    """cudaKernelNodeParams: as the driver's, with the host's function."""
    return nodes.kernel(at, lambda here: function(host.u64(here)))


def _rows(at: int) -> nodes.Made:
    return nodes.copied(*rows_of(at))


@runtime
def cudaGraphAddKernelNode(out: int, graph: int, after: int, count: int, at: int) -> None:
    nodes.put_node(out, graph, after, count, kernel(at))


@runtime
def cudaGraphKernelNodeSetParams(node: int, at: int) -> None:
    nodes.change(handles.get(node, Node), kernel(at))


@runtime
def cudaGraphExecKernelNodeSetParams(executable: int, node: int, at: int) -> None:
    nodes.change(handles.get(executable, Executable).node(node), kernel(at))


@runtime
def cudaGraphKernelNodeGetParams(node: int, out: int) -> int:
    found: int = DRIVER["cuGraphKernelNodeGetParams_v2"](node, out)
    return found


@runtime
def cudaGraphAddMemcpyNode(out: int, graph: int, after: int, count: int, at: int) -> None:
    nodes.put_node(out, graph, after, count, _rows(at))


@runtime
def cudaGraphMemcpyNodeSetParams(node: int, at: int) -> None:
    nodes.change(handles.get(node, Node), _rows(at))


@runtime
def cudaGraphExecMemcpyNodeSetParams(executable: int, node: int, at: int) -> None:
    nodes.change(handles.get(executable, Executable).node(node), _rows(at))


def _line(target: int, source: int, size: int, kind: int) -> nodes.Made:
    writes, reads = sides(kind)
    return nodes.copied(Side(target, size, 0, writes), Side(source, size, 0, reads), Extent(size, 1, 1))


@runtime
def cudaGraphAddMemcpyNode1D(out, graph, after, count, target, source, size, kind):
    nodes.put_node(out, graph, after, count, _line(target, source, size, kind))


@runtime
def cudaGraphMemcpyNodeSetParams1D(node: int, target: int, source: int, size: int, kind: int) -> None:
    nodes.change(handles.get(node, Node), _line(target, source, size, kind))


@runtime
def cudaGraphExecMemcpyNodeSetParams1D(e: int, node: int, target: int, source: int, size: int, kind: int) -> None:
    nodes.change(handles.get(e, Executable).node(node), _line(target, source, size, kind))


READERS = {**any_nodes.READERS, NodeKind.KERNEL: kernel, NodeKind.MEMCPY: lambda at: _rows(at + any_nodes.COPY)}


@runtime
def cudaGraphAddNode(out: int, graph: int, after: int, data: int, count: int, at: int) -> int:
    return any_nodes.add(out, graph, after, count, at, READERS)


@runtime
def cudaGraphNodeSetParams(node: int, at: int) -> None:
    nodes.change(handles.get(node, Node), any_nodes.made(at, READERS))


@runtime
def cudaGraphExecNodeSetParams(executable: int, node: int, at: int) -> None:
    nodes.change(handles.get(executable, Executable).node(node), any_nodes.made(at, READERS))


@runtime
def cudaGraphConditionalHandleCreate(out: int, graph: int, default: int, flags: int) -> int:
    found: int = DRIVER["cuGraphConditionalHandleCreate"](out, graph, 0, default, flags)
    return found
