"""Nodes of graphs that are built by hand (CUDA Driver API, "Graph Management")."""

from __future__ import annotations

from collections.abc import Callable

from nbtc.libcuda import host
from nbtc.libcuda.code import Function
from nbtc.libcuda.driver.copies import copy_3d, copy_rows, fill_rows
from nbtc.libcuda.driver.streams import check_code
from nbtc.libcuda.errors import INVALID_VALUE, SUCCESS, CudaError
from nbtc.libcuda.launching import Config, arguments, runner
from nbtc.libcuda.pitched_memory import Extent, Side
from nbtc.libcuda.registry import DRIVER, driver, driver_as
from nbtc.libcuda.state import handles
from nbtc.libcuda.streams import Event, Executable, Graph, Node, NodeKind

MOST = 1 << 16  # nodes or edges that one call names
Made = tuple[NodeKind, "Callable[[], None] | None", object]


def given(at: int, count: int) -> list[Node]:
    """Nodes that an array names."""
    return [handles.get(h, Node) for h in host.words(at, count)]


def put_node(out: int, graph: int, after: int, count: int, made: Made) -> None:
    """A node in a graph, after others."""
    found, before = handles.get(graph, Graph), given(after, count)
    host.put64(out, 0)
    node = found.add(Node(*made), before)
    host.put64(out, node.handle)


def function_of(at: int) -> Function:
    """The function, or kernel, of CUDA_KERNEL_NODE_PARAMS."""
    handle = host.u64(at) or host.u64(at + 56)
    return handles.get(handle, Function)


def kernel(at: int, find: Callable[[int], Function] = function_of) -> Made:
    """CUDA_KERNEL_NODE_PARAMS: function, grid, block, shared bytes, pointers to arguments."""
    f = find(at)
    gx, gy, gz, bx, by, bz, shared = host.halves(at + 8, 7)
    raw = arguments(f, *host.words(at + 40, 2))
    config = Config((gx, gy, gz), (bx, by, bz), shared)
    return NodeKind.KERNEL, runner(f, config, raw), (f, config, raw)


def rows_of(at: int) -> Made:
    """CUDA_MEMCPY3D."""
    target, source, extent = copy_3d(at)
    return copied(target, source, extent)


def copied(target: Side, source: Side, extent: Extent) -> Made:
    """A copy of rows."""
    return NodeKind.MEMCPY, lambda: copy_rows(target, source, extent), (target, source, extent)


def fill(at: int) -> Made:
    """CUDA_MEMSET_NODE_PARAMS: target, pitch, value, bytes of an element, elements of a row, rows."""
    target, pitch = host.words(at, 2)
    value, width = host.halves(at + 16, 2)
    columns, rows = host.words(at + 24, 2)
    if width not in (1, 2, 4):
        raise CudaError(INVALID_VALUE)
    side, extent = Side(target, pitch, 0, True), Extent(columns, rows, 1)
    return NodeKind.MEMSET, lambda: fill_rows(side, value, width, extent), (side, value, width, extent)


def called(at: int) -> Made:
    """CUDA_HOST_NODE_PARAMS: a function and its argument."""
    import ctypes

    function, data = host.words(at, 2)
    if not check_code(function):
        raise CudaError(INVALID_VALUE)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)
    return NodeKind.HOST, lambda: call(data or None), (function, data)


def child(handle: int) -> Made:
    """A graph inside of a graph: what it was when it was added."""
    graph = handles.get(handle, Graph)
    if graph.allocates or graph.conditionals():
        raise CudaError(INVALID_VALUE)  # the parent would have to own what is allocated, or the condition
    copied = graph.copied({})
    copied.handle, copied.inner = handles.add(copied), True
    return NodeKind.GRAPH, copied.run, copied


def recorded(event: int) -> Made:
    """An event's time is that of the node."""
    import time

    found = handles.get(event, Event)

    def run() -> None:
        found.at = time.perf_counter()

    return NodeKind.EVENT_RECORD, run, event


def waited(event: int) -> Made:
    """What a graph waits for has passed: everything is in order."""
    handles.get(event, Event)
    return NodeKind.WAIT_EVENT, None, event


# Nodes that structs describe, by what cuda.h calls them; the reader of each struct.
READERS: dict[str, Callable[[int], Made]] = {"KernelNode": kernel, "MemsetNode": fill, "HostNode": called,
                                             "MemcpyNode": rows_of}  # fmt: skip
ENDS = {"KernelNode": "_v2"}


def _register(name: str, read: Callable[[int], Made]) -> None:
    """The functions that add such a node, and that change it in a graph and in an executable one."""
    end = ENDS.get(name, "")

    def add(out: int, graph: int, after: int, count: int, at: int, context: int = 0) -> None:
        put_node(out, graph, after, count, read(at))

    def set_params(node: int, at: int) -> None:
        found = handles.get(node, Node)
        change(found, read(at))

    def set_executable(executable: int, node: int, at: int, context: int = 0) -> None:
        found = handles.get(executable, Executable).node(node)
        change(found, read(at))

    DRIVER[f"cuGraphAdd{name}{end}"] = add
    DRIVER[f"cuGraph{name}SetParams{end}"] = set_params
    DRIVER[f"cuGraphExec{name}SetParams{end}"] = set_executable


def change(node: Node, made: Made) -> None:
    """New parameters for a node."""
    kind, run, params = made
    if node.kind is not kind:
        raise CudaError(INVALID_VALUE)
    node.run, node.params = run, params


for _name, _read in READERS.items():
    _register(_name, _read)


@driver
def cuGraphAddEmptyNode(out: int, graph: int, after: int, count: int) -> None:
    put_node(out, graph, after, count, (NodeKind.EMPTY, None, None))


@driver
def cuGraphAddChildGraphNode(out: int, graph: int, after: int, count: int, inner: int) -> None:
    put_node(out, graph, after, count, child(inner))


@driver
def cuGraphAddEventRecordNode(out: int, graph: int, after: int, count: int, event: int) -> None:
    put_node(out, graph, after, count, recorded(event))


@driver
def cuGraphAddEventWaitNode(out: int, graph: int, after: int, count: int, event: int) -> None:
    put_node(out, graph, after, count, waited(event))


@driver
def cuGraphChildGraphNodeGetGraph(node: int, out: int) -> int:
    found = handles.get(node, Node)
    if not isinstance(found.params, Graph):
        return INVALID_VALUE
    found.params.handle = found.params.handle or handles.add(found.params)
    host.put64(out, found.params.handle)
    return SUCCESS


@driver
def cuGraphNodeGetType(node: int, out: int) -> None:
    host.put32(out, handles.get(node, Node).kind)


@driver
def cuGraphKernelNodeGetParams_v2(node: int, out: int) -> int:
    found = handles.get(node, Node)
    if found.kind is not NodeKind.KERNEL:
        return INVALID_VALUE
    f, config, _ = found.params
    host.write(out, bytes(72))
    host.put64(out, f.handle)
    for i, value in enumerate((*config.grid, *config.block, config.shared)):
        host.put32(out + 8 + 4 * i, value)
    return SUCCESS


@driver_as("cuGraphAddDependencies")
def cuGraphAddDependencies(graph: int, first: int, second: int, count: int) -> int:
    found = handles.get(graph, Graph)
    pairs = list(zip(given(first, count), given(second, count), strict=True))
    if any(n.graph is not found for pair in pairs for n in pair):
        return INVALID_VALUE
    found.edges += [pair for pair in pairs if pair not in found.edges]
    return SUCCESS


@driver
def cuGraphAddDependencies_v2(graph: int, first: int, second: int, data: int, count: int) -> int:
    found: int = cuGraphAddDependencies(graph, first, second, count)
    return found


@driver
def cuGraphRemoveDependencies(graph: int, first: int, second: int, count: int) -> None:
    found = handles.get(graph, Graph)
    gone = set(zip(given(first, count), given(second, count), strict=True))
    found.edges = [e for e in found.edges if e not in gone]


@driver
def cuGraphRemoveDependencies_v2(graph: int, first: int, second: int, data: int, count: int) -> None:
    cuGraphRemoveDependencies(graph, first, second, count)


@driver
def cuGraphDestroyNode(node: int) -> None:
    found = handles.get(node, Node)
    if found.graph is not None and found.graph.allocates:
        raise CudaError(INVALID_VALUE)
    if found.graph is not None:
        found.graph.nodes.remove(found)
        found.graph.edges = [e for e in found.graph.edges if found not in e]
    handles.drop(node)


@driver
def cuGraphNodeSetEnabled(executable: int, node: int, enabled: int) -> None:
    handles.get(executable, Executable).node(node).enabled = bool(enabled)


@driver
def cuGraphNodeGetEnabled(executable: int, node: int, out: int) -> None:
    host.put32(out, int(handles.get(executable, Executable).node(node).enabled))
