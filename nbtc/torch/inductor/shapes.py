"""Shapes of operations that PyTorch has on CUDA alone and no rule for: tracing them would ask a GPU."""

from __future__ import annotations

from typing import Any

import torch

from nbtc.torch.inductor.private import has_rule


def _gru_shapes(inner: torch.Tensor, hidden: torch.Tensor, hx: torch.Tensor, *_: Any) -> tuple[torch.Tensor, ...]:
    return torch.empty_like(hx, memory_format=torch.contiguous_format), hx.new_empty(hx.shape[0], 5 * hx.shape[1])


def _gru_gradient_shapes(gradient: torch.Tensor, saved: torch.Tensor, has_bias: bool) -> tuple[Any, ...]:
    n, h = gradient.shape
    gates = [saved.new_empty(n, 3 * h) for _ in range(2)]
    biases = [saved.new_empty(3 * h) if has_bias else None for _ in range(2)]
    return *gates, torch.empty_like(gradient, memory_format=torch.contiguous_format), *biases


RULES = {"_thnn_fused_gru_cell": _gru_shapes, "_thnn_fused_gru_cell_backward": _gru_gradient_shapes}
_library = torch.library.Library("aten", "IMPL")  # kept for the life of the process


def register() -> None:
    """Add the rules where there are none, and change nothing else."""
    for name, rule in RULES.items():
        if not has_rule(f"aten::{name}"):
            _library.impl(name, rule, "Meta")
