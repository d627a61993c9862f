"""Products of tensors as `nbtc.matmul` calls written out, forwards and backwards: what `emulate` must equal."""

import ml_dtypes
import numpy as np
import torch
from torch.nn import functional

import nbtc

WORDS = {torch.bfloat16: (torch.int16, ml_dtypes.bfloat16), torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn)}
WORDS[torch.float8_e5m2] = (torch.uint8, ml_dtypes.float8_e5m2)
ARCH = "sm_90"


def numpy(t: torch.Tensor) -> np.ndarray:
    if t.dtype not in WORDS:
        return t.detach().numpy()
    carrier, dtype = WORDS[t.dtype]
    return t.detach().contiguous().view(carrier).numpy().view(dtype)


def mm(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Rounded once; a bias is added in float32 before."""
    x, y = (nbtc.convert(numpy(t), "tf32") if t.dtype == torch.float32 else numpy(t) for t in (a, b))
    d = nbtc.matmul(x, y, arch=ARCH)
    if bias is not None:
        d = d + numpy(bias.to(torch.float32))
    return torch.from_numpy(d).to(a.dtype)


class Linear(torch.autograd.Function):
    """x @ w.T + b of matrices."""

    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return mm(x, w.t(), b)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return mm(g, w), mm(g.t(), x), g.sum(0)


class Bmm(torch.autograd.Function):
    """Batched products."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return mm(a, b)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return mm(g, b.transpose(1, 2)), mm(a.transpose(1, 2), g)


class Conv(torch.autograd.Function):
    """Square 2-D convolutions without groups, through `unfold`; the input's gradient as one of the output's."""

    @staticmethod
    def forward(ctx, x, w, stride, padding):
        ctx.save_for_backward(x, w)
        ctx.stride, ctx.padding = stride, padding
        columns = functional.unfold(x, w.shape[2:], padding=padding, stride=stride)
        size = (x.shape[2] + 2 * padding - w.shape[2]) // stride + 1
        return mm(w.reshape(1, w.shape[0], -1), columns).reshape(x.shape[0], w.shape[0], size, size)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        k, stride, padding = w.shape[2], ctx.stride, ctx.padding
        columns = functional.unfold(x, (k, k), padding=padding, stride=stride)  # items, C k k, positions
        flat = columns.permute(0, 2, 1).reshape(-1, columns.shape[1])
        grad_w = mm(g.permute(1, 0, 2, 3).reshape(w.shape[0], -1), flat).reshape(w.shape)
        edge = k - 1 - padding
        n = x.shape[2]
        wide = torch.zeros(*g.shape[:2], n + k - 1, n + k - 1, dtype=g.dtype)
        span = (g.shape[2] - 1) * stride + 1
        wide[:, :, edge : edge + span : stride, edge : edge + span : stride] = g
        turned = w.flip(2, 3).permute(1, 0, 2, 3).reshape(1, w.shape[1], -1)
        return mm(turned, functional.unfold(wide, (k, k))).reshape(x.shape), grad_w, None, None
