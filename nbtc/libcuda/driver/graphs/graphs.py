"""Graphs and their capture (CUDA Driver API, "Graph Management", "Stream Management")."""

from __future__ import annotations

import ctypes

from nbtc.libcuda import host
from nbtc.libcuda.direct.words import changed
from nbtc.libcuda.driver.graphs import nodes
from nbtc.libcuda.errors import (
    CAPTURE_UNMATCHED,
    GRAPH_EXEC_UPDATE_FAILURE,
    ILLEGAL_STATE,
    INVALID_VALUE,
    STREAM_CAPTURE_INVALIDATED,
    STREAM_CAPTURE_UNSUPPORTED,
    SUCCESS,
    CudaError,
)
from nbtc.libcuda.memory import Kind, Reserved, memory
from nbtc.libcuda.registry import driver, driver_as
from nbtc.libcuda.state import handles
from nbtc.libcuda.streams import (
    LEGACY,
    Event,
    Executable,
    Graph,
    Node,
    NodeKind,
    Stream,
    capturing,
    run_nodes,
    stream_of,
    submit,
)

ACTIVE, INVALIDATED = 1, 2  # CUstreamCaptureStatus
UPDATE_TOPOLOGY = 2  # CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED
AUTO_FREE = 1  # CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
SET_DEPENDENCIES = 1  # CU_STREAM_SET_CAPTURE_DEPENDENCIES


def new_graph() -> Graph:
    """An empty graph with a handle."""
    made = Graph()
    made.handle = handles.add(made)
    return made


def begin(handle: int, graph: Graph, mode: int, after: list[Node]) -> int:
    """Let a stream gather nodes."""
    stream = stream_of(handle)
    if stream.graph is not None:
        return ILLEGAL_STATE
    if handle in (0, LEGACY) or not 0 <= mode <= 2:
        return STREAM_CAPTURE_UNSUPPORTED if 0 <= mode <= 2 else INVALID_VALUE
    stream.graph, stream.last, stream.origin, stream.mode = graph, after, True, mode
    capturing.append(stream)
    changed()
    return SUCCESS


@driver
def cuStreamBeginCapture_v2(handle: int, mode: int) -> int:
    return begin(handle, Graph(), mode, [])


@driver
def cuStreamBeginCaptureToGraph(h: int, graph: int, deps: int, data: int, count: int, mode: int) -> int:
    return begin(h, handles.get(graph, Graph), mode, nodes.given(deps, count))


@driver
def cuStreamEndCapture(handle: int, out: int) -> int:
    stream = stream_of(handle)
    graph = stream.graph
    if graph is None or not stream.origin:
        host.given64(out, 0)
        return ILLEGAL_STATE if graph is None else CAPTURE_UNMATCHED
    for x in list(handles.objects.values()):
        if isinstance(x, Stream | Event) and x.graph is graph:
            x.graph, x.last = None, []
    stream.graph, stream.last, stream.origin = None, [], False
    capturing.remove(stream)
    if graph.invalid:
        host.given64(out, 0)
        return STREAM_CAPTURE_INVALIDATED
    graph.handle = graph.handle or handles.add(graph)
    host.given64(out, graph.handle)  # who captures into a graph knows its handle
    return SUCCESS


def _status(stream: Stream) -> int:
    return 0 if stream.graph is None else INVALIDATED if stream.graph.invalid else ACTIVE


@driver
def cuStreamIsCapturing(handle: int, out: int) -> None:
    host.put32(out, _status(stream_of(handle)))


@driver_as("cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v2")
def cuStreamGetCaptureInfo_v2(h: int, status: int, number: int = 0, graph: int = 0, deps: int = 0, n: int = 0) -> None:
    cuStreamGetCaptureInfo_v3(h, status, number, graph, deps, 0, n)


@driver
def cuStreamGetCaptureInfo_v3(h: int, status: int, number: int, graph: int, deps: int, edges: int, count: int) -> None:
    stream = stream_of(h)
    host.put32(status, _status(stream))
    found = stream.graph
    if found is None:
        return
    host.given64(number, found.id)
    if graph:
        found.handle = found.handle or handles.add(found)
        host.put64(graph, found.handle)
    if deps:
        stream.dependencies = (ctypes.c_uint64 * max(1, len(stream.last)))(*(n.handle for n in stream.last))
        host.put64(deps, ctypes.addressof(stream.dependencies))
    host.given64(edges, 0)
    host.given64(count, len(stream.last))


@driver
def cuStreamUpdateCaptureDependencies(h: int, deps: int, count: int, flags: int) -> int:
    stream, given = stream_of(h), nodes.given(deps, count)
    if stream.graph is None:
        return ILLEGAL_STATE
    stream.last = given if flags & SET_DEPENDENCIES else stream.last + given
    return SUCCESS


@driver
def cuStreamUpdateCaptureDependencies_v2(h: int, deps: int, data: int, count: int, flags: int) -> int:
    found: int = cuStreamUpdateCaptureDependencies(h, deps, count, flags)
    return found


@driver
def cuGraphCreate(out: int, flags: int) -> int:
    if flags:
        return INVALID_VALUE
    host.put64(out, 0)
    host.put64(out, new_graph().handle)
    return SUCCESS


@driver
def cuGraphDestroy(handle: int) -> None:
    graph = handles.get(handle, Graph)
    handles.drop(handle)
    graph.drop()


@driver
def cuGraphClone(out: int, handle: int) -> int:
    found: dict[Node, Node] = {}
    graph = handles.get(handle, Graph)
    if graph.allocates:
        return INVALID_VALUE
    made = graph.copied(found)
    made.clones = {old.handle: new for old, new in found.items()}
    made.handle = handles.add(made)
    host.put64(out, made.handle)
    return SUCCESS


@driver
def cuGraphNodeFindInClone(out: int, node: int, clone: int) -> int:
    found = handles.get(clone, Graph).clones.get(node)
    if found is None:
        return INVALID_VALUE
    host.put64(out, found.handle)
    return SUCCESS


def _put_nodes(found: list[Node], out: int, count: int) -> None:
    """Handles into an array of the size that `count` says, or only how many there are."""
    if out:
        for i, node in enumerate(found[: host.u64(count)]):
            host.put64(out + 8 * i, node.handle)
    host.put64(count, len(found))


@driver
def cuGraphGetNodes(handle: int, out: int, count: int) -> None:
    _put_nodes(handles.get(handle, Graph).nodes, out, count)


@driver
def cuGraphGetRootNodes(handle: int, out: int, count: int) -> None:
    graph = handles.get(handle, Graph)
    after = {b for _, b in graph.edges}
    _put_nodes([n for n in graph.nodes if n not in after], out, count)


def _beside(node: int, out: int, count: int, before: bool) -> None:
    found = handles.get(node, Node)
    edges = found.graph.edges if found.graph is not None else []
    _put_nodes([a if before else b for a, b in edges if (b if before else a) is found], out, count)


@driver
def cuGraphNodeGetDependencies(node: int, out: int, count: int) -> None:
    _beside(node, out, count, True)


@driver
def cuGraphNodeGetDependencies_v2(node: int, out: int, data: int, count: int) -> None:
    _beside(node, out, count, True)


@driver
def cuGraphNodeGetDependentNodes(node: int, out: int, count: int) -> None:
    _beside(node, out, count, False)


@driver
def cuGraphNodeGetDependentNodes_v2(node: int, out: int, data: int, count: int) -> None:
    _beside(node, out, count, False)


@driver_as("cuGraphGetEdges")
def cuGraphGetEdges(handle: int, first: int, second: int, count: int) -> None:
    edges = handles.get(handle, Graph).edges
    if first and second:
        for i, (a, b) in enumerate(edges[: host.u64(count)]):
            host.put64(first + 8 * i, a.handle)
            host.put64(second + 8 * i, b.handle)
    host.put64(count, len(edges))


@driver
def cuGraphGetEdges_v2(handle: int, first: int, second: int, data: int, count: int) -> None:
    cuGraphGetEdges(handle, first, second, count)


def instantiate(out: int, handle: int, flags: int = 0) -> None:
    """A graph that can be launched."""
    host.put64(out, 0)
    host.put64(out, handles.add(Executable(handles.get(handle, Graph), bool(flags & AUTO_FREE))))


@driver
def cuGraphInstantiateWithFlags(out: int, handle: int, flags: int) -> None:
    instantiate(out, handle, flags)


@driver
def cuGraphInstantiateWithParams(out: int, handle: int, parameters: int) -> None:
    """CUDA_GRAPH_INSTANTIATE_PARAMS: flags, the stream to upload to, the node in error, the result."""
    host.read(parameters, 28)
    instantiate(out, handle, host.u32(parameters))
    host.put32(parameters + 24, 0)


@driver
def cuGraphInstantiate_v2(out: int, handle: int, node: int, log: int, size: int) -> None:
    instantiate(out, handle)


@driver
def cuGraphExecDestroy(handle: int) -> None:
    handles.get(handle, Executable).drop()
    handles.drop(handle)


@driver
def cuGraphUpload(handle: int, stream: int) -> None:
    handles.get(handle, Executable)
    stream_of(stream)


@driver
def cuGraphLaunch(handle: int, stream: int) -> None:
    found = handles.get(handle, Executable)
    submit(stream, NodeKind.GRAPH, lambda: _run(found), found.graph)


def _run(executable: Executable) -> None:
    """What an earlier launch allocated must have been freed, or is now, before anything is done."""
    live = [a.first for a in executable.allocations if a.first in memory.blocks]
    if live and not executable.frees:
        raise CudaError(INVALID_VALUE)
    for first in live:
        memory.free(first, Kind.POOL)
    for conditional in executable.conditionals:
        conditional.condition.start()
    run_nodes(executable.order)


@driver
def cuGraphExecUpdate_v2(handle: int, graph: int, info: int) -> int:
    """New parameters from a graph of the same shape; info: what differs, where that is not so."""
    found, other = handles.get(handle, Executable), handles.get(graph, Graph)
    host.write(info, bytes(24))

    if _shape(found.graph) != _shape(other):
        host.put32(info, UPDATE_TOPOLOGY)
        raise CudaError(GRAPH_EXEC_UPDATE_FAILURE)
    for mine, new in zip(found.graph.nodes, other.nodes, strict=True):
        mine.run, mine.params = found.graph.contents(new)
    found.conditionals = found.graph.conditionals()
    for conditional in found.conditionals:
        found.graph.keep(conditional.condition.user)
    return SUCCESS


def _shape(graph: Graph) -> tuple[object, ...]:
    """What an update can't change: kinds of nodes, edges, allocated addresses, and the same of graphs inside."""
    number = {n: i for i, n in enumerate(graph.nodes)}
    kinds = tuple((n.kind, n.params if isinstance(n.params, Reserved) else None) for n in graph.nodes)
    chosen = tuple(c.choice for c in graph.conditionals())
    edges = tuple((number[a], number[b]) for a, b in graph.edges)
    return kinds, edges, chosen, tuple(map(_shape, graph.inside()))


@driver
def cuGraphDebugDotPrint(handle: int, path: int, flags: int) -> None:
    graph = handles.get(handle, Graph)
    number = {n: i for i, n in enumerate(graph.nodes)}
    lines = [f'  n{i} [label="{n.kind.name}"];' for n, i in number.items()]
    lines += [f"  n{number[a]} -> n{number[b]};" for a, b in graph.edges]
    try:
        with open(host.path(path), "w", encoding="utf-8") as file:
            file.write("\n".join(["digraph {", *lines, "}", ""]))
    except OSError:
        raise CudaError(INVALID_VALUE) from None
