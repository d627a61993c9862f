"""One row per matrix operation of PyTorch: what product it is.  What is not here is PyTorch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from nbtc.gemm.scales import apply_scales
from nbtc.torch import convolution
from nbtc.torch.products import NoEmulation, Settings, epilogue, operand, product
from nbtc.torch.tensors import array, rounded

Handler = Callable[..., Any]
HALF = (torch.float16, torch.bfloat16)
UNFIT = "operands that do not fit: PyTorch says how"


def mm(s: Settings, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """mm and bmm."""
    return addmm(s, None, a, b)


def addmm(
    s: Settings, c: torch.Tensor | None, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """addmm and baddbmm: the sum with c in the accumulator's type, one rounding at the end."""
    if a.dtype == torch.int8 or a.dtype != b.dtype:
        raise NoEmulation(f"{a.dtype} times {b.dtype} wraps to its own type: _int_mm and _scaled_mm are emulated")
    batches = a.ndim == 2 or a.shape[0] == b.shape[0]
    if not batches or (c is not None and not _expands(c, a, (*a.shape[:-1], b.shape[-1]))):
        raise NoEmulation(UNFIT)  # NumPy would broadcast some of these
    vector = c is not None and (c.ndim == 1 or (c.ndim == 2 and c.stride(0) == 0))
    d = product(operand(a, s), operand(b, s), s, a.dtype, bias=vector)
    if c is not None and c.ndim == 2 and not vector and alpha == beta == 1 and a.dtype in HALF and _in_16_bytes(a, b):
        d = array(rounded(d, a.dtype)).astype(d.dtype)  # recorded on an H200: rounded before c is added, and after
    return rounded(epilogue(d, None if c is None else array(c), float(alpha), float(beta)), a.dtype)


def _expands(c: torch.Tensor, a: torch.Tensor, shape: tuple[int, ...]) -> bool:
    """Whether c can be added to a product of a that has this shape."""
    axes = zip(reversed(c.shape), reversed(shape), strict=False)
    return c.dtype == a.dtype and c.ndim <= len(shape) and all(n in (1, size) for n, size in axes)


def _in_16_bytes(*operands: torch.Tensor) -> bool:
    """Whether lines begin at multiples of 16 bytes: kernels for others add c before they round, as recorded."""
    return all(max(x.stride()) * x.element_size() % 16 == 0 for x in operands)


def addbmm(
    s: Settings, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """The sum over the batch is one product with a K of all its items."""
    if a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise NoEmulation(UNFIT)
    left, right = a.transpose(0, 1).reshape(a.shape[1], -1), b.reshape(-1, b.shape[2])
    return addmm(s, c, left, right, beta=beta, alpha=alpha)


def addmm_activation(
    s: Settings, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1,
    use_gelu: bool = False,
) -> torch.Tensor:  # fmt: skip
    """addmm and an activation."""
    y = addmm(s, c, a, b, beta=beta, alpha=alpha)
    return torch.nn.functional.gelu(y, approximate="tanh") if use_gelu else torch.relu(y)


def int_mm(s: Settings, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """int8 to int32."""
    return torch.from_numpy(product(operand(a, s), operand(b, s), s, torch.int32))


def scaled_mm(
    s: Settings, a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor,
    bias: torch.Tensor | None = None, scale_result: torch.Tensor | None = None, out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> torch.Tensor:  # fmt: skip
    """fp8 products, scaled as recorded: two numbers are multiplied with each other first; columns go before rows."""
    out = out_dtype or a.dtype
    if out not in (torch.float32, torch.float16, torch.bfloat16) or scale_result is not None:
        raise NoEmulation(f"a result of {out}{' with a scale' if scale_result is not None else ''}")
    if scale_a.dtype != torch.float32 or scale_b.dtype != torch.float32:
        raise NoEmulation(f"scales of {scale_a.dtype}: no block scales on the architectures of this mode")
    m, n = a.shape[0], b.shape[1]
    left, right = array(scale_a), array(scale_b)
    numbers = left.size == right.size == 1
    if not numbers and (left.shape != (m, 1) or right.shape != (1, n)):
        raise NoEmulation(f"scales of shapes {left.shape} and {right.shape}")
    d = product(operand(a, s), operand(b, s), s, out, fast_accum=use_fast_accum)
    apply_scales(d, (np.multiply(left, right).reshape(1, 1), None) if numbers else (right, left))
    return rounded(epilogue(d, None if bias is None else array(bias)), out)


def convolve(s: Settings, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *more: Any) -> torch.Tensor:
    """aten.convolution: the product rounded, then the bias added, as two kernels of a GPU do."""
    g = convolution.Geometry.of(weight.ndim - 2, *more)
    made = weight.shape[1] * g.groups if g.transposed else weight.shape[0]
    if not g.fits(x, weight) or (bias is not None and (bias.shape != (made,) or bias.dtype != x.dtype)):
        raise NoEmulation(UNFIT)
    y = convolution.forward(s, x, weight, g)
    return y if bias is None else y.add_(bias.reshape(-1, *[1] * (y.ndim - 2)))


def convolve_backward(
    s: Settings, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias_sizes: list[int] | None, *more: Any
) -> tuple[torch.Tensor | None, ...]:
    """aten.convolution_backward: gradients of input, weight and bias that the mask asks for."""
    *shape, mask = more
    g = convolution.Geometry.of(weight.ndim - 2, *shape)
    return (
        convolution.input_gradient(s, grad, x, weight, g) if mask[0] else None,
        convolution.weight_gradient(s, grad, x, weight, g) if mask[1] else None,
        grad.sum([0, *range(2, grad.ndim)]) if mask[2] else None,
    )


ROWS: dict[str, Handler] = {
    "aten::mm": mm,
    "aten::bmm": mm,
    "aten::addmm": addmm,
    "aten::baddbmm": addmm,
    "aten::addbmm": addbmm,
    "aten::_addmm_activation": addmm_activation,
    "aten::_int_mm": int_mm,
    "aten::_scaled_mm": scaled_mm,
    "aten::convolution": convolve,
    "aten::convolution_backward": convolve_backward,
}

VECTOR = "matrix times vector: libraries use no tensor cores for it"
FUSED = "a fused kernel whose order of summation is not known"
LEFT: dict[str, str] = {
    "aten::mv": VECTOR,
    "aten::addmv": VECTOR,
    "aten::dot": VECTOR,
    "aten::vdot": VECTOR,
    "aten::addr": "an outer product has no sum",
    "aten::_scaled_dot_product_flash_attention_for_cpu": FUSED,
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": FUSED,
    "aten::mkldnn_rnn_layer": FUSED,
    "aten::_native_multi_head_attention": FUSED,
    "aten::_transformer_encoder_layer_fwd": FUSED,
    "aten::_cdist_forward": FUSED,
    "aten::_trilinear": FUSED,
    "aten::_grouped_mm": FUSED,
    "aten::_scaled_grouped_mm": FUSED,
    "aten::_scaled_mm_v2": "scales of this kind",
}
