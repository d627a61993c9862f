"""`torch.autograd.grad` on fake CUDA tensors: a walk over the nodes in the order of PyTorch's engine.

The engine asks the driver for streams as soon as a node is of CUDA; the nodes themselves do not, and can be called from
Python.  Tracing on CPU instead would be wrong: some operations decompose otherwise there (`nn.RMSNorm` becomes
`_fused_rms_norm` on CUDA alone).
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch


class Walk:
    """One backward pass.

    A node runs when everything that needs it ran; of those ready, the one with the highest sequence number.  Gradients
    are summed in the order in which they arrive.
    """

    def __init__(self, roots: Sequence[Any], inputs: Sequence[torch.Tensor]) -> None:
        leaves = _leaves([e.node for e in roots])
        self.ends = [leaves.get(id(x), x) if x.grad_fn is None else x.grad_fn for x in inputs]  # kept for their ids
        self.wanted = [(id(end), x.output_nr) for end, x in zip(self.ends, inputs, strict=True)]
        self.captured: dict[tuple[int, int], Any] = dict.fromkeys(self.wanted)
        self.nodes, self.leads = _reach([e.node for e in roots], {key for key, _ in self.wanted})
        self.missing: Counter[int] = Counter()
        for node in self.nodes.values():
            self.missing.update(id(n) for n, _ in node.next_functions if n is not None)
        self.missing.update(id(e.node) for e in roots)
        self.buffers: dict[int, dict[int, Any]] = {}
        self.ready: list[tuple[int, int, Any]] = []
        self._tick = itertools.count()

    def arrive(self, node: Any, number: int, gradient: Any) -> None:
        """A gradient (or None) of one of a node's outputs; the node is ready when it was the last."""
        if gradient is not None:
            buffer = self.buffers.setdefault(id(node), {})
            gradient = _fitted(gradient, node._input_metadata[number])
            buffer[number] = buffer[number] + gradient if number in buffer else gradient
        self.missing[id(node)] -= 1
        if not self.missing[id(node)]:
            heapq.heappush(self.ready, (-node._sequence_nr(), next(self._tick), node))

    def run(self) -> tuple[Any, ...]:
        """Every ready node until none is; the gradients that were wanted."""
        while self.ready:
            node = heapq.heappop(self.ready)[2]
            given = self.buffers.pop(id(node), {})
            for number, gradient in given.items():
                if (id(node), number) in self.captured:
                    self.captured[id(node), number] = gradient
            following = [n for n, _ in node.next_functions if n is not None and self.leads[id(n)]]
            results: tuple[Any, ...] = (None,) * len(node.next_functions)
            if following and given:
                results = _applied(node, [given.get(i) for i in range(len(node._input_metadata))])
            for (n, number), gradient in zip(node.next_functions, results, strict=False):
                if n is not None and self.leads[id(n)]:
                    self.arrive(n, number, gradient)
        return tuple(self.captured[key] for key in self.wanted)


def _leaves(roots: list[Any]) -> dict[int, Any]:
    """The nodes that the roots reach and that accumulate gradients, by their tensors.

    A tensor tells its own only where autograd is on at its level of `torch.func`'s transforms.
    """
    found: dict[int, Any] = {}
    seen, waiting = {id(node): node for node in roots}, list(roots)
    while waiting:
        node = waiting.pop()
        if hasattr(node, "variable"):
            found[id(node.variable)] = node
        for following, _ in node.next_functions:
            if following is not None and id(following) not in seen:
                seen[id(following)] = following
                waiting.append(following)
    return found


def _reach(roots: list[Any], targets: set[int]) -> tuple[dict[int, Any], dict[int, bool]]:
    """All nodes that the roots reach, and whether each leads to a target: depth first, without recursion."""
    nodes: dict[int, Any] = {}
    leads: dict[int, bool] = {}
    order = list(roots)
    while order:
        node = order[-1]
        following = [n for n, _ in node.next_functions if n is not None]
        if id(node) not in nodes:
            nodes[id(node)] = node
            order += [n for n in following if id(n) not in nodes]
        else:
            order.pop()
            leads[id(node)] = id(node) in targets or any(leads.get(id(n), False) for n in following)
    return nodes, leads


def _applied(node: Any, gradients: list[Any]) -> tuple[Any, ...]:
    """A node's gradients, one for each of its next functions.

    An autograd.Function written in Python gives one for each argument of its forward, and has no next functions for
    those that are no tensors (the branches of `torch.cond` come before its operands).
    """
    if not isinstance(node, torch.autograd.function.BackwardCFunction):
        results = node(*gradients)
        return results if isinstance(results, tuple) else (results,)
    results = node.apply(*gradients)
    results = results if isinstance(results, tuple) else (results,)
    needed = (x for x, is_needed in zip(results, node.needs_input_grad, strict=False) if is_needed)
    return tuple(None if n is None else next(needed) for n, _ in node.next_functions)


def _fitted(gradient: Any, about: Any) -> Any:
    """A gradient with the shape and dtype that its node's output had, as the engine makes it."""
    if tuple(gradient.shape) != tuple(about.shape):
        gradient = gradient.sum_to_size(tuple(about.shape))
    return gradient if gradient.dtype == about.dtype else gradient.to(about.dtype)


def grad(
    outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
    **_: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """`torch.autograd.grad` as AOTAutograd and `torch.func` call it: unused inputs allowed."""
    edge = torch.autograd.graph.get_gradient_edge
    outputs, inputs = ([x] if isinstance(x, torch.Tensor) else list(x) for x in (outputs, inputs))
    given = [None] * len(outputs) if grad_outputs is None else grad_outputs
    given = [given] if isinstance(given, torch.Tensor) else given
    roots = [edge(y) for y in outputs]
    walk = Walk(roots, inputs)
    with torch.set_grad_enabled(create_graph):
        for root, y, gradient in zip(roots, outputs, given, strict=True):
            walk.arrive(root.node, root.output_nr, torch.ones_like(y) if gradient is None else gradient)
        return walk.run()
