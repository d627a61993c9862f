"""Products that PyTorch has for CUDA alone, computed on the CPU.

| products | how |
|---|---|
| with `out_dtype` | operands of the result's dtype have the same values: the CPU's product of exact operands |
| `torch._scaled_mm`, `torch._scaled_grouped_mm` | in float32, scaled by rows and columns after it, by blocks before |
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from nbtc.errors import UnsupportedOperationError

BLOCK = 128  # elements with one scale, along rows or columns of blocks
PRODUCTS = ("mm", "bmm", "addmm", "baddbmm")


def _wide(name: str) -> Callable[..., Any]:
    product = getattr(torch.ops.aten, name)

    def run(*given: Any, **named: Any) -> Any:
        *operands, dtype = given
        return product(*(x.to(dtype) for x in operands), **named)

    return run


def _spread(scale: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Scales of blocks as scales of elements; one column or row stays one."""
    if scale.dtype != torch.float32:
        raise UnsupportedOperationError(
            f"scales are {scale.dtype}: on the emulated device torch._scaled_mm takes float32; nbtc.mx has others"
        )
    if scale.numel() == 1:
        return scale.reshape(1, 1)
    for axis, size in enumerate(shape):
        if scale.shape[axis] not in (1, size):
            scale = scale.repeat_interleave(BLOCK, axis).narrow(axis, 0, size)
    return scale


def _scaled(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    scale_a, scale_b = _spread(scale_a, a.shape), _spread(scale_b, b.shape)
    if scale_a.shape[1] == scale_b.shape[0] == 1:
        return (a.float() @ b.float()) * scale_a * scale_b
    return (a.float() * scale_a) @ (b.float() * scale_b)


def scaled_mm(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, bias: torch.Tensor | None = None,
    scale_result: torch.Tensor | None = None, out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
) -> torch.Tensor:  # fmt: skip
    """`torch._scaled_mm`: scales of everything, of rows and columns, or of blocks."""
    found = _scaled(a, b, scale_a, scale_b)
    found = found if bias is None else found + bias.float()
    return (found if scale_result is None else found * scale_result).to(out_dtype or a.dtype)


def scaled_mm_out(*given: Any, out: torch.Tensor, **named: Any) -> torch.Tensor:
    """`torch._scaled_mm` into a tensor."""
    found = scaled_mm(*given, **named)
    return out.resize_(found.shape).copy_(found)


def scaled_grouped_mm(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None, scale_result: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
) -> torch.Tensor:  # fmt: skip
    """`torch._scaled_grouped_mm`: groups are matrices of a stack, or stretches of rows, columns or what is summed."""
    dtype, ends = out_dtype or torch.bfloat16, [] if offs is None else offs.tolist()
    stretches = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    groups = len(stretches) if offs is not None else a.shape[0]
    if a.ndim == b.ndim == 3:
        each = scale_a.reshape(groups, -1, 1), scale_b.reshape(groups, 1, -1)
        return torch.stack([_scaled(*x) for x in zip(a, b, *each, strict=True)]).to(dtype)
    if a.ndim == b.ndim:
        rows, columns = scale_a.reshape(groups, -1, 1), scale_b.reshape(groups, 1, -1)
        pieces = [_scaled(a[:, s], b[s], rows[g], columns[g]) for g, s in enumerate(stretches)]
        return torch.stack(pieces).to(dtype)
    found = torch.zeros(a.shape[-2], b.shape[-1], dtype=dtype)
    for g, s in enumerate(stretches):
        if a.ndim == 2:
            found[s] = _scaled(a[s], b[g], scale_a.reshape(-1, 1)[s], scale_b[g].reshape(1, -1)).to(dtype)
        else:
            found[:, s] = _scaled(a[g], b[:, s], scale_a[g].reshape(-1, 1), scale_b.reshape(1, -1)[:, s]).to(dtype)
    return found


KERNELS: dict[str, Callable[..., Any]] = {
    **{f"{name}.{overload}": _wide(name) for name in PRODUCTS for overload in ("dtype", "dtype_out")},
    "_scaled_mm": scaled_mm,
    "_scaled_mm.out": scaled_mm_out,
    "_scaled_grouped_mm": scaled_grouped_mm,
}


def registered() -> torch.library.Library:
    """The operators' kernels for the CPU, until the library is destroyed."""
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of `_scaled_mm`, which the CPU has, with one scale for everything
        for name, kernel in KERNELS.items():
            library.impl(name, kernel, "CPU", allow_override=True)
    return library
