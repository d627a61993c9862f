"""CUDA graphs of torch: launches of kernels and operations of torch that are kept, then run at every replay.

As on a GPU a capture runs nothing that could be seen: operations that write into their operands write into copies, and
results are memory that holds nothing useful before the first replay.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from nbtc.triton import capture

# Their results hold nothing, so a replay has nothing to do for them.
MAKERS = ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")
EMPTY = {f"aten::{name}" for name in MAKERS}
# Numbers or shapes that depend on values: a GPU would have to finish what it has not begun.
NEEDS_VALUES = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


class Graph:
    """`torch.cuda.CUDAGraph`."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._steps: list[capture.Step] | None = None
        self._capturing = ExitStack()

    def capture_begin(
        self, pool: Any = None, capture_error_mode: str = "global", check_input_liveness: bool = False
    ) -> None:
        """From here on, operations and launches of this thread are steps, which keep their inputs alive."""
        if capture.steps() is not None:
            raise RuntimeError("a CUDA graph is being captured already: end that capture before the next begins")
        self._steps = []
        self._capturing.enter_context(capture.into(self._steps))
        self._capturing.enter_context(Operations(self._steps))

    def capture_end(self) -> None:
        """What follows runs again."""
        if self._steps is None or capture.steps() is not self._steps:
            raise RuntimeError("this CUDA graph is not being captured: call capture_begin() first")
        self._capturing.close()

    def replay(self) -> None:
        """Run the steps, on the values that their operands have now."""
        if self._steps is None or capture.steps() is self._steps:
            raise RuntimeError("this CUDA graph has no captured steps: capture some with torch.cuda.graph(graph)")
        with torch.no_grad():
            for step in self._steps:
                step()

    def reset(self) -> None:
        """Forget the steps."""
        self._steps = None

    def pool(self) -> tuple[int, int]:
        """Where its memory lies: all memory is the host's."""
        return pool_handle()

    def instantiate(self) -> None:
        """Steps need no preparation."""

    def enable_debug_mode(self) -> None:
        """Steps have no picture."""


class capturing:  # noqa: N801  torch's name is one of a function
    """`torch.cuda.graph`; annotations, which torch has from 2.14 on, are for profilers of a GPU."""

    def __init__(
        self,
        cuda_graph: Graph,
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: str = "global",
        enable_annotations: bool = False,
        check_input_liveness: bool = False,
    ) -> None:
        self._graph = cuda_graph

    def __enter__(self) -> None:
        self._graph.capture_begin()

    def __exit__(self, *failure: Any) -> None:
        self._graph.capture_end()


def pool_handle() -> tuple[int, int]:
    """`torch.cuda.graph_pool_handle`."""
    return 0, 0


class Operations(TorchDispatchMode):
    """Operations of torch become steps."""

    def __init__(self, steps: list[capture.Step]) -> None:
        super().__init__()
        self._steps = steps

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        given = dict(kwargs or {})
        if NEEDS_VALUES & set(func.tags):
            raise RuntimeError(f"{func} needs values of a GPU while a CUDA graph is captured: call it after the replay")
        written = {a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write}
        names = [a.name for a in func._schema.arguments]
        apart = [copied(x) if name in written else x for name, x in zip(names, args, strict=False)]
        with capture.into(None):  # kernels that an operator launches are part of it
            named = {name: copied(x) if name in written else x for name, x in given.items()}
            found = func(*apart, **named)
        operands = dict(zip(names, args, strict=False)) | given
        copies = dict(zip(names, apart, strict=False)) | named
        result = returned(func._schema, found, {name: (copies[name], operands[name]) for name in written & {*operands}})
        self._keep(func, args, given, result, bool(written))
        return result

    def _keep(self, func: Any, args: Any, kwargs: Any, result: Any, writes: bool) -> None:
        """Append what a replay has to do for an operation."""
        places = {storage(x) for x in tensors((args, kwargs))}
        fresh = [None if storage(x) in places else x.data for x in tensors(result)]
        if func._schema.name in EMPTY or not (writes or any(x is not None for x in fresh)):
            return
        # `.data` has a version of its own: to autograd a replay changes nothing.
        args, kwargs = tree_map_only(torch.Tensor, lambda x: x.data, (args, kwargs))

        def step() -> None:
            for old, new in zip(fresh, tensors(func(*args, **kwargs)), strict=True):
                if old is not None:
                    old.copy_(new)

        self._steps.append(step)


def tensors(x: Any) -> list[torch.Tensor]:
    """The tensors of a structure."""
    return [leaf for leaf in tree_leaves(x) if isinstance(leaf, torch.Tensor)]


def storage(x: torch.Tensor) -> int:
    """The address of its memory."""
    return int(x.untyped_storage().data_ptr())


def copied(x: Any) -> Any:
    """A structure with copies of its tensors."""
    return tree_map_only(torch.Tensor, torch.clone, x)


def returned(schema: Any, found: Any, written: Mapping[str, tuple[Any, Any]]) -> Any:
    """What an operation gives: the operands that it was to write into, instead of their copies."""
    own = {}
    for copies, operands in written.values():
        for copy, operand in zip(tensors(copies), tensors(operands), strict=True):
            if operand.shape != copy.shape:  # an `out` without elements takes the shape of the result
                operand.resize_(copy.shape)
            own[id(copy)] = operand
    return tree_map_only(torch.Tensor, lambda x: own.get(id(x), x), found)
