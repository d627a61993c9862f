"""Streams, events and graphs.

What a stream is given is done at once and in order, which CUDA allows; so an event has passed as soon as it is
recorded.  A stream that is being captured gathers nodes instead.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from nbtc.libcuda.errors import (
    CAPTURE_IMPLICIT,
    INVALID_VALUE,
    STREAM_CAPTURE_INVALIDATED,
    STREAM_CAPTURE_UNSUPPORTED,
    CudaError,
)
from nbtc.libcuda.memory import Outside
from nbtc.libcuda.state import Context, current, handles, numbers

LEGACY, PER_THREAD = 1, 2  # CU_STREAM_LEGACY, CU_STREAM_PER_THREAD
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING


class NodeKind(IntEnum):
    """CUgraphNodeType."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2
    HOST = 3
    GRAPH = 4
    EMPTY = 5
    WAIT_EVENT = 6
    EVENT_RECORD = 7
    ALLOC = 10
    FREE = 11
    CONDITIONAL = 13


# What the graphs of a conditional node may hold (CUDA Runtime API, cudaConditionalNodeParams).
IN_BODIES = (NodeKind.KERNEL, NodeKind.MEMCPY, NodeKind.MEMSET, NodeKind.GRAPH, NodeKind.EMPTY, NodeKind.CONDITIONAL)


class Node:
    """A node of a graph: what it does, and the parameters it was made from."""

    def __init__(self, kind: NodeKind, run: Callable[[], None] | None, params: Any = None) -> None:
        self.kind, self.run, self.params = kind, run, params
        self.graph: Graph | None = None
        self.enabled = True
        self.handle = handles.add(self)


class UserObject:
    """Something of the client's that graphs keep: its destructor runs when nothing refers to it any more."""

    def __init__(self, destroy: Callable[[], None], count: int) -> None:
        self.destroy, self.count, self.handle = destroy, count, 0

    def release(self, count: int) -> None:
        """Give references back."""
        self.count -= count
        if not self.count:
            handles.drop(self.handle)
            self.destroy()


class Graph:
    """Nodes and their edges."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.edges: list[tuple[Node, Node]] = []
        self.handle = 0
        self.id = next(numbers)
        self.invalid = False
        self.inner = False  # a node of another graph owns it
        self.users: dict[UserObject, int] = {}  # references that it has
        self.clones: dict[int, Node] = {}  # of a copied graph: its nodes by the handles of those they copy

    def add(self, node: Node, after: list[Node]) -> Node:
        """A node after others."""
        if any(n.graph is not self for n in after):
            raise CudaError(INVALID_VALUE)
        node.graph = self
        self.nodes.append(node)
        self.edges += [(n, node) for n in after]
        return node

    def ordered(self) -> list[Node]:
        """All nodes, each after those it waits for."""
        before: dict[Node, int] = dict.fromkeys(self.nodes, 0)
        successors: dict[Node, list[Node]] = {}
        for first, second in self.edges:
            before[second] += 1
            successors.setdefault(first, []).append(second)
        ready = [n for n in self.nodes if not before[n]]
        for node in ready:  # which grows
            for other in successors.get(node, ()):
                before[other] -= 1
                if not before[other]:
                    ready.append(other)
        if len(ready) != len(self.nodes):
            raise CudaError(INVALID_VALUE)
        return ready

    def run(self) -> None:
        """Do what its nodes do."""
        run_nodes(self.ordered())

    @property
    def allocates(self) -> bool:
        """Whether it allocates memory or frees it."""
        return any(n.kind in (NodeKind.ALLOC, NodeKind.FREE) for n in self.nodes)

    def copied(self, found: dict[Node, Node]) -> Graph:
        """The same nodes anew; `found` gets who became whom."""
        made = Graph()
        for node in self.nodes:
            found[node] = made.add(Node(node.kind, *made.contents(node)), [])
        made.edges = [(found[a], found[b]) for a, b in self.edges]
        for user, count in self.users.items():
            user.count += count
            made.users[user] = made.users.get(user, 0) + count
        return made

    def contents(self, node: Node) -> tuple[Callable[[], None] | None, Any]:
        """What a copy of a node does, for a node of this graph: graphs that it owns are copied."""
        params: Any = node.params
        if isinstance(params, Conditional):
            params = Conditional(params.condition, params.choice, [self.adopted(b) for b in params.bodies])
            return params.run, params
        if isinstance(params, Graph):
            params = self.adopted(params)
            return params.run if params.inner else node.run, params
        return node.run, params

    def inside(self) -> list[Graph]:
        """The graphs that its nodes own."""
        found = []
        for node in self.nodes:
            if isinstance(node.params, Conditional):
                found += node.params.bodies
            elif isinstance(node.params, Graph) and node.params.inner:
                found.append(node.params)
        return found

    def keep(self, user: UserObject) -> None:
        """Have a reference, unless it has one."""
        if user not in self.users:
            self.users[user] = 1
            user.count += 1

    def within(self) -> list[Node]:
        """Its nodes, and those of the graphs inside."""
        return self.nodes + [n for graph in self.inside() for n in graph.within()]

    def conditionals(self) -> list[Conditional]:
        """Its conditional nodes, and those of the graphs inside."""
        return [n.params for n in self.within() if isinstance(n.params, Conditional)]

    def adopted(self, graph: Graph) -> Graph:
        """A copy of another graph for a node of this one, which gets its references."""
        made = graph.copied({})
        made.inner = graph.inner
        for user, count in made.users.items():
            self.users[user] = self.users.get(user, 0) + count
        made.users.clear()
        return made

    def drop(self) -> None:
        """Its nodes are gone, and what it refers to."""
        for node in self.nodes:
            handles.drop(node.handle)
        for graph in self.inside():
            handles.drop(graph.handle)
            graph.drop()
        users = {user: count for user, count in self.users.items() if count}
        self.users.clear()
        for user, count in users.items():
            user.release(count)


class Condition(Outside):
    """What a conditional node looks at: 32 bits that kernels set."""

    def __init__(self, first: int, default: int | None, free: Callable[[], None]) -> None:
        super().__init__(first, ctypes.sizeof(ctypes.c_uint32))
        self.first = first
        self.value = ctypes.c_uint32.from_address(first)
        self.default = default
        self.taken = False  # by the one node that it can have
        self.user = UserObject(free, 0)  # graphs keep it as they keep what clients give them

    def start(self) -> None:
        """What a launch of its graph begins with."""
        if self.default is not None:
            self.value.value = self.default


class Choice(IntEnum):
    """CUgraphConditionalNodeType."""

    IF = 0
    WHILE = 1
    SWITCH = 2


class Conditional:
    """The graphs of a conditional node."""

    def __init__(self, condition: Condition, choice: Choice, bodies: list[Graph]) -> None:
        self.condition, self.choice, self.bodies = condition, choice, bodies
        self.listed: Any = None  # the array of the bodies' handles that clients read

    def run(self) -> None:
        """Run the graph that the condition says, or run it while it says so: a fault ends that."""
        value = self.condition.value
        if self.choice is Choice.WHILE:
            order, context = self.bodies[0].ordered(), current()
            while value.value and not context.failure:
                run_nodes(order)
            return
        number = (0 if value.value else 1) if self.choice is Choice.IF else value.value
        if number < len(self.bodies):
            self.bodies[number].run()


def run_nodes(order: list[Node]) -> None:
    """The nodes of a graph in order; graphs inside of it in their places."""
    for node in order:
        if node.enabled and node.run is not None:
            node.run()


class Stream:
    """A stream, and the capture it takes part in."""

    remembered = True  # compiled calls know its handle

    def __init__(self, flags: int = 0, priority: int = 0) -> None:
        self.flags, self.priority, self.id = flags, priority, next(numbers)
        self.graph: Graph | None = None
        self.last: list[Node] = []
        self.origin = False
        self.mode = 0
        self.context: Context | None = None
        self.handle = 0
        self.dependencies: Any = None  # keeps the array that `cuStreamGetCaptureInfo` handed out


class Event:
    """An event: when it was recorded, or where in a capture."""

    def __init__(self, flags: int) -> None:
        self.flags = flags
        self.at: float | None = None
        self.graph: Graph | None = None
        self.last: list[Node] = []
        self.context: Context | None = None


standard = {0: Stream(), LEGACY: Stream(), PER_THREAD: Stream(NON_BLOCKING)}
capturing: list[Stream] = []  # those that a capture began on


def stream_of(handle: int) -> Stream:
    """A stream by its handle."""
    found = standard.get(handle)
    return found if found is not None else handles.get(handle, Stream)


def submit(handle: int, kind: NodeKind, run: Callable[[], None], params: Any = None) -> None:
    """Do it, or note it where the stream is being captured."""
    stream = stream_of(handle)
    if stream.graph is None:
        if capturing and handle in (0, LEGACY):
            _implicit()
        current()
        run()
        return
    if stream.graph.invalid:
        raise CudaError(STREAM_CAPTURE_INVALIDATED)
    stream.last = [stream.graph.add(Node(kind, run, params), stream.last)]


def _implicit() -> None:
    """The legacy stream would wait for streams that are being captured: their captures are spoilt."""
    for stream in capturing:
        if stream.mode == 0 and stream.graph is not None and not stream.flags & NON_BLOCKING:
            stream.graph.invalid = True
            raise CudaError(CAPTURE_IMPLICIT)


def synchronous(stream: Stream) -> None:
    """Refuse to wait for a stream that is being captured."""
    if stream.graph is not None:
        stream.graph.invalid = True
        raise CudaError(STREAM_CAPTURE_UNSUPPORTED)


def unsafe_in_capture() -> None:
    """Calls that may wait for the device are refused while a thread captures in global mode."""
    for stream in capturing:
        if stream.mode == 0 and stream.graph is not None:
            stream.graph.invalid = True
            raise CudaError(STREAM_CAPTURE_UNSUPPORTED)


class Executable:
    """A graph ready to be launched: the order of its nodes, each of which may be changed."""

    def __init__(self, graph: Graph, frees: bool = False) -> None:
        self.found: dict[Node, Node] = {}
        self.graph = graph.copied(self.found)
        self.order = self.graph.ordered()
        self.frees = frees  # what it allocated, before it allocates that again
        self.allocations = [n.params for n in self.order if n.kind is NodeKind.ALLOC]
        self.conditionals = self.graph.conditionals()
        if any(n.kind not in IN_BODIES for c in self.conditionals for b in c.bodies for n in b.within()):
            self.graph.drop()
            raise CudaError(INVALID_VALUE)

    def node(self, handle: int) -> Node:
        """What became of a node of the graph that this was made from."""
        node = self.found.get(handles.get(handle, Node))
        if node is None:
            raise CudaError(INVALID_VALUE)
        return node

    def drop(self) -> None:
        """Its nodes are gone, and what it refers to."""
        self.graph.drop()
