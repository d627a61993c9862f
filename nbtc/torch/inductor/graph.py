"""Dynamo's graph of CPU tensors as a graph of CUDA tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx.node import map_aggregate

from nbtc.torch.inductor.private import enter_autocast, factories

CUDA = torch.device("cuda", 0)


def to_cuda(module: Any) -> tuple[Any, list[torch.Tensor]]:
    """A copy of a graph whose devices are CUDA's, and the tensors that it held, which become further inputs."""
    module = _copied(module)
    held: list[torch.Tensor] = []
    last = None
    for node in list(module.graph.nodes):
        if node.op == "placeholder":
            last = node
        elif node.op == "get_attr" and isinstance(value := _attribute(module, node.target), torch.Tensor):
            last = _lifted(module.graph, node, last, len(held))
            held.append(value)
            continue
        elif (value := _constant(node)) is not None:
            if not value.ndim:
                _filled(module.graph, node, value)
            else:
                last = _lifted(module.graph, node, last, len(held), fresh=True)
                held.append(value)
            continue
        _move(node)
    module._parameters.clear()
    module._buffers.clear()
    module.recompile()
    for name, inner in module.named_children():
        if isinstance(inner, torch.fx.GraphModule):
            setattr(module, name, _inner(inner))
    return module, held


def _inner(module: Any) -> Any:
    """A copy of the graph of a higher-order operation (a checkpoint, a branch, a step) on CUDA.

    Dynamo has made inputs of the tensors that it would hold; what it makes anew from numbers is copied to CUDA there.
    """
    module = _copied(module)
    for node in list(module.graph.nodes):
        value = _constant(node)
        if value is not None and not value.ndim:
            _filled(module.graph, node, value)
        else:
            _move(node)
    module.recompile()
    for name, inner in module.named_children():
        if isinstance(inner, torch.fx.GraphModule):
            setattr(module, name, _inner(inner))
    return module


def _move(node: Any) -> None:
    """One node's devices; a function that makes a tensor makes it on the GPU, as the CPU is where it would be here."""
    node.args = map_aggregate(node.args, _moved)
    node.kwargs = {
        k: CUDA if k == "device" and v == "cpu" else v for k, v in map_aggregate(node.kwargs, _moved).items()
    }
    if node.op == "call_function" and node.target in factories() and node.kwargs.get("device") is None:
        node.kwargs = {**node.kwargs, "device": CUDA}
    if node.op == "call_function" and node.target is enter_autocast():
        node.args = ("cuda" if node.args[0] == "cpu" else node.args[0], *node.args[1:])
    elif node.op == "call_method" and node.target == "cpu":
        node.target, node.args = "to", (node.args[0], CUDA)
    elif node.op == "call_method" and node.target == "to":
        node.args = tuple(CUDA if isinstance(x, str) and x == "cpu" else x for x in node.args)


def _constant(node: Any) -> torch.Tensor | None:
    """What `torch.tensor` makes of numbers: it would be copied to the GPU, past what traces the graph."""
    if node.op != "call_function" or node.target is not torch.tensor or node.all_input_nodes:
        return None
    numbers = torch.utils._pytree.tree_leaves(node.args)
    if any(isinstance(x, torch.SymInt | torch.SymFloat | torch.SymBool) for x in numbers):
        return None
    return torch.tensor(*node.args, **{k: v for k, v in node.kwargs.items() if k == "dtype"})


def _filled(graph: Any, node: Any, value: torch.Tensor) -> None:
    """A number is written into the kernels that read it, as inductor does with one that it copies."""
    with graph.inserting_before(node):
        made = graph.call_function(torch.full, ((), value.item()), {"dtype": value.dtype, "device": CUDA})
    _replace(graph, node, made)


def _replace(graph: Any, node: Any, made: Any) -> None:
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)


@contextmanager
def autocast() -> Iterator[None]:
    """The CPU's autocast, where it is on, is the GPU's for the graph that is moved there."""
    if not torch.is_autocast_enabled("cpu"):
        yield
        return
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    torch.set_autocast_dtype("cuda", torch.get_autocast_dtype("cpu"))
    torch.set_autocast_enabled("cuda", True)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", before[0])
        torch.set_autocast_dtype("cuda", before[1])


def _lifted(graph: Any, node: Any, last: Any, number: int, fresh: bool = False) -> Any:
    """A placeholder in the place of a tensor that the graph held.

    fresh: the graph makes a new one at each call, and may write to it.
    """
    before = graph.inserting_after(last) if last is not None else graph.inserting_before(next(iter(graph.nodes)))
    with before:
        made = graph.placeholder(f"held_{number}")
    made._dynamo_source = None
    if not fresh:
        _replace(graph, node, made)
        return made
    made.meta = dict(node.meta)
    with graph.inserting_before(node):
        copy = graph.call_function(torch.clone, (made,))
    _replace(graph, node, copy)
    return made


def _moved(x: Any) -> Any:
    return CUDA if isinstance(x, torch.device) and x.type == "cpu" else x


def _copied(module: Any) -> Any:
    """Dynamo goes on reading its own graph."""
    graph = torch.fx.Graph()
    nodes: dict[Any, Any] = {}
    graph.output(graph.graph_copy(module.graph, nodes))
    for old, new in nodes.items():
        if hasattr(old, "_dynamo_source"):
            new._dynamo_source = old._dynamo_source
    copied = torch.fx.GraphModule(module, graph)
    copied.meta = module.meta
    for name, value in (("_param_name_to_source", {}), ("_source_to_user_stacks", None)):
        if hasattr(module, name):
            setattr(copied, name, getattr(module, name) if value is None else value)
    return copied


def _attribute(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def fake_input(node: Any, x: Any, mode: Any) -> Any:
    """A fake CUDA tensor like a CPU tensor; numbers that Dynamo wraps as tensors stay where they are."""
    wrapped_number = getattr(node.meta.get("grapharg"), "pass_arg_as_tensor", False)
    if not isinstance(x, torch.Tensor) or wrapped_number:
        return x
    shown = node.meta.get("example_value")  # with sizes that are symbols, where shapes are dynamic
    shown = shown if isinstance(shown, torch.Tensor) else x
    with mode:
        y = torch.empty_strided(shown.size(), shown.stride(), dtype=x.dtype, device=CUDA)
    return y.requires_grad_(x.requires_grad)
