"""Products whose results are wider than their operands (`out_dtype`): operators that PyTorch has for CUDA alone.

Operands of the result's dtype have the same values, so the CPU's product is that of exact operands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

PRODUCTS = ("mm", "bmm", "addmm", "baddbmm")


def _wide(name: str) -> Callable[..., Any]:
    product = getattr(torch.ops.aten, name)

    def run(*given: Any, **named: Any) -> Any:
        *operands, dtype = given
        return product(*(x.to(dtype) for x in operands), **named)

    return run


def registered() -> torch.library.Library:
    """The operators' kernels for the CPU, until the library is destroyed."""
    library = torch.library.Library("aten", "IMPL")
    for name in PRODUCTS:
        for overload in ("dtype", "dtype_out"):
            library.impl(f"{name}.{overload}", _wide(name), "CPU")
    return library
