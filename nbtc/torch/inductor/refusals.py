"""What of PyTorch no compiled model has here: the message names it, and what works."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from nbtc.errors import NbtcError, UnsupportedOperationError

# What an error of PyTorch says where it can't go on, and what to write instead: of Dynamo, and of a backend.
TRACING = (
    (
        "For combine_mode='pointwise', all input tensors need to be on CUDA",
        "associative_scan with combine_mode='pointwise' asks for tensors on a GPU before it is traced: give it "
        "combine_mode='generic'",
    ),
)
COMPILING = (
    (
        "DataDependentOutputException: aten._local_scalar_dense",
        "a loop over a tensor's rows (torch's scan) compiles only with torch._dynamo.config.capture_scalar_outputs = "
        "True, here and on the GPU",
    ),
    (
        "Found no NVIDIA driver",
        "tracing the model makes a tensor on a GPU, which is not there, outside of what the compiler sees: leave this "
        "operation out of the compiled part (torch.compiler.disable), where PyTorch runs it on the CPU",
    ),
)
EMBEDDINGS = {torch.nn.functional.embedding: 6, torch.nn.functional.embedding_bag: 7}  # position of `sparse`


@contextmanager
def refusing(rows: tuple[tuple[str, str], ...]) -> Iterator[None]:
    """Errors of PyTorch that have a row become nbtc's."""
    try:
        yield
    except NbtcError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        for text, way in rows:
            if text in said:
                raise UnsupportedOperationError(f"{way}{_place(said)}") from error
        raise


def _place(said: str) -> str:
    """The operation, where the error tells it."""
    lines = (line for line in said.splitlines() if line.startswith("While executing "))
    return next((f" ({line})" for line in lines), "")


def check(graph: Any) -> None:
    """Refuse a graph with gradients that are sparse tensors."""
    for node in graph.nodes:
        at = EMBEDDINGS.get(node.target) if node.op == "call_function" else None
        if at is None or not torch.is_grad_enabled():
            continue
        if node.kwargs.get("sparse", node.args[at] if len(node.args) > at else False):
            raise UnsupportedOperationError(
                f"{node.target.__name__} with sparse=True has a gradient that is a sparse tensor, and TorchInductor "
                "generates kernels of dense ones: give it sparse=False"
            )
