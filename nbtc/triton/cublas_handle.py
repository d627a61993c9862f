"""Triton's own handle of cuBLAS, which its tutorials make at import to compare with: products that torch computes.

| private name of Triton | why |
|---|---|
| `triton._C.libtriton.nvidia.cublas.CublasLt` | loads libcublas.so, and asks for a driver |

Tested with Triton 3.6 and 3.9.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import torch
from triton._C.libtriton import nvidia

from nbtc.errors import UnsupportedOperationError


class CublasLt:
    """Products a b^T of (M, K) and (N, K), sums in f32 or f64, by torch on the CPU."""

    def __init__(self, workspace: Any) -> None:
        """workspace: memory that nothing here needs."""

    @staticmethod
    def matmul(a: Any, b: Any, c: Any) -> None:
        """c = a b^T."""
        CublasLt.gemm(a, b, c, c, 1.0, 0.0)

    @staticmethod
    def gemm(a: Any, b: Any, c: Any, d: Any, alpha: float, beta: float) -> None:
        """d = alpha a b^T + beta c; c is not read where beta is 0."""
        wide = torch.float64 if d.dtype == torch.float64 else torch.float32
        product = alpha * (a.to(wide) @ b.to(wide).T)
        d.copy_(product + beta * c.to(wide) if beta else product)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("block_scaled"):
            raise UnsupportedOperationError(f"CublasLt.{name} is not emulated: nbtc.mx has products with block scales")
        raise AttributeError(f"CublasLt has no {name}")


def exchanged() -> AbstractContextManager[Any]:
    """A context in which Triton's handle is the one above."""
    return patch.object(nvidia.cublas, "CublasLt", CublasLt)
