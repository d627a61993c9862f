"""Results of operations that PyTorch has no rule of shapes for: tracing them asks the device, which here is the CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map, tree_unflatten


def on_cpu(mode: Any, func: Any, flat: Any, spec: Any, error: Any) -> Any:
    """`run_fallback_kernel`: fake results of an operation without a rule, of the shapes that the CPU's have."""
    from torch._subclasses.fake_tensor import FakeTensor

    if func._schema.is_mutable:
        raise error
    device = next((x.device for x in flat if isinstance(x, FakeTensor)), torch.device("cpu"))
    with _disable_current_modes():
        given = [torch.zeros(tuple(x.shape), dtype=x.dtype) if isinstance(x, FakeTensor) else x for x in flat]
        args, kwargs = tree_unflatten(given, spec)
        made = func(*args, **kwargs)

    def fake(x: Any) -> Any:
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device)

    with mode:
        return tree_map(lambda x: fake(x) if isinstance(x, torch.Tensor) else x, made)
