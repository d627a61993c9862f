"""PyTorch's fused cells of recurrent nets, which it has on CUDA alone: the arithmetic of its kernels, in Triton.

`_thnn_fused_lstm_cell`, `_thnn_fused_gru_cell` and their gradients (`RNN.cu`) compute in float32 and round once.
Triton's own contraction into fused multiply-adds is off, and libdevice keeps subnormal numbers, as nvcc has it: the
multiply-adds that nvcc fuses are written out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from nbtc.errors import UnsupportedInstructionError
from nbtc.torch.products import Settings
from nbtc.triton.active import emulated

BLOCK = tl.constexpr(128)
HOW = {"num_warps": 4, "enable_fp_fusion": False, "enable_reflect_ftz": False}
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_compiling = threading.Lock()


@triton.jit
def _sigmoid(x):
    return tl.div_rn(tl.full(x.shape, 1.0, tl.float32), 1.0 + libdevice.exp(-x))


@triton.jit
def _gate(inner, hidden, bias1, bias2, at, column, inside):
    x = tl.load(inner + at, inside, 0.0).to(tl.float32) + tl.load(hidden + at, inside, 0.0).to(tl.float32)
    x += tl.load(bias1 + column, inside, 0.0).to(tl.float32)
    return x + tl.load(bias2 + column, inside, 0.0).to(tl.float32)


@triton.jit
def _lstm(inner, hidden, bias1, bias2, cx, hy, cy, saved, h, count):
    """A hidden unit a lane: input, forget, cell and output gate."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    at, column = (i // h) * 4 * h + i % h, i % h
    ig = _sigmoid(_gate(inner, hidden, bias1, bias2, at, column, inside))
    fg = _sigmoid(_gate(inner, hidden, bias1, bias2, at + h, column + h, inside))
    cg = libdevice.tanh(_gate(inner, hidden, bias1, bias2, at + 2 * h, column + 2 * h, inside))
    og = _sigmoid(_gate(inner, hidden, bias1, bias2, at + 3 * h, column + 3 * h, inside))
    c = tl.fma(fg, tl.load(cx + i, inside, 0.0).to(tl.float32), ig * cg)
    tl.store(hy + i, (og * libdevice.tanh(c)).to(hy.dtype.element_ty), inside)
    tl.store(cy + i, c.to(cy.dtype.element_ty), inside)
    kind = saved.dtype.element_ty
    tl.store(saved + at, ig.to(kind), inside)
    tl.store(saved + at + h, fg.to(kind), inside)
    tl.store(saved + at + 2 * h, cg.to(kind), inside)
    tl.store(saved + at + 3 * h, og.to(kind), inside)


@triton.jit
def _lstm_gradient(saved, gates, cx, cy, gradient_h, gradient_c, out, h, count):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    at = (i // h) * 4 * h + i % h
    ig = tl.load(saved + at, inside, 0.0).to(tl.float32)
    fg = tl.load(saved + at + h, inside, 0.0).to(tl.float32)
    cg = tl.load(saved + at + 2 * h, inside, 0.0).to(tl.float32)
    og = tl.load(saved + at + 3 * h, inside, 0.0).to(tl.float32)
    go = tl.load(gradient_h + i, inside, 0.0).to(tl.float32)
    gc = tl.load(gradient_c + i, inside, 0.0).to(tl.float32)
    t = libdevice.tanh(tl.load(cy + i, inside, 0.0).to(tl.float32))
    gog = go * t
    g = tl.fma(go * og, tl.fma(-t, t, 1.0), gc)
    kind = gates.dtype.element_ty
    tl.store(gates + at, (g * cg * (1.0 - ig) * ig).to(kind), inside)
    past = g * tl.load(cx + i, inside, 0.0).to(tl.float32)
    tl.store(gates + at + h, (past * (1.0 - fg) * fg).to(kind), inside)
    tl.store(gates + at + 2 * h, (g * ig * tl.fma(-cg, cg, 1.0)).to(kind), inside)
    tl.store(gates + at + 3 * h, (gog * (1.0 - og) * og).to(kind), inside)
    tl.store(out + i, (g * fg).to(out.dtype.element_ty), inside)


@triton.jit
def _gru(inner, hidden, bias1, bias2, hx, hy, saved, h, count):
    """A hidden unit a lane: reset, update and new gate."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    at, column, kept = (i // h) * 3 * h + i % h, i % h, (i // h) * 5 * h + i % h
    rg = _sigmoid(_gate(inner, hidden, bias1, bias2, at, column, inside))
    ig = _sigmoid(_gate(inner, hidden, bias1, bias2, at + h, column + h, inside))
    hn = tl.load(hidden + at + 2 * h, inside, 0.0).to(tl.float32)
    hn += tl.load(bias2 + column + 2 * h, inside, 0.0).to(tl.float32)
    new = tl.load(inner + at + 2 * h, inside, 0.0).to(tl.float32)
    new += tl.load(bias1 + column + 2 * h, inside, 0.0).to(tl.float32)
    ng = libdevice.tanh(tl.fma(rg, hn, new))
    x = tl.load(hx + i, inside, 0.0)
    kind = saved.dtype.element_ty
    tl.store(hy + i, tl.fma(ig, x.to(tl.float32) - ng, ng).to(kind), inside)
    tl.store(saved + kept, rg.to(kind), inside)
    tl.store(saved + kept + h, ig.to(kind), inside)
    tl.store(saved + kept + 2 * h, ng.to(kind), inside)
    tl.store(saved + kept + 3 * h, x, inside)
    tl.store(saved + kept + 4 * h, hn.to(kind), inside)


@triton.jit
def _gru_gradient(saved, gradient, inner, hidden, out, h, count):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    at, kept = (i // h) * 3 * h + i % h, (i // h) * 5 * h + i % h
    rg = tl.load(saved + kept, inside, 0.0).to(tl.float32)
    ig = tl.load(saved + kept + h, inside, 0.0).to(tl.float32)
    ng = tl.load(saved + kept + 2 * h, inside, 0.0).to(tl.float32)
    hx = tl.load(saved + kept + 3 * h, inside, 0.0).to(tl.float32)
    hn = tl.load(saved + kept + 4 * h, inside, 0.0).to(tl.float32)
    go = tl.load(gradient + i, inside, 0.0).to(tl.float32)
    kind = inner.dtype.element_ty
    gin = go * (1.0 - ig) * tl.fma(-ng, ng, 1.0)
    grg = (gin * hn * (1.0 - rg) * rg).to(kind)
    gig = (go * (hx - ng) * (1.0 - ig) * ig).to(kind)
    tl.store(inner + at, grg, inside)
    tl.store(inner + at + h, gig, inside)
    tl.store(inner + at + 2 * h, gin.to(kind), inside)
    tl.store(hidden + at, grg, inside)
    tl.store(hidden + at + h, gig, inside)
    tl.store(hidden + at + 2 * h, (gin * rg).to(kind), inside)
    tl.store(out + i, (go * ig).to(kind), inside)


def _launch(s: Settings, kernel: Any, *args: Any) -> None:
    with _compiling, emulated(s.arch, threads=s.threads):
        kernel[(triton.cdiv(args[-1], BLOCK.value),)](*args, **HOW)


def lstm(
    s: Settings, inner: torch.Tensor, hidden: torch.Tensor, cx: torch.Tensor, bias1: torch.Tensor | None = None,
    bias2: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """`aten::_thnn_fused_lstm_cell`: gates (N, 4 H) of input and hidden state, cx (N, H) to hy, cy and the gates."""
    _check(inner)
    inner, hidden, cx = inner.contiguous(), hidden.contiguous(), cx.contiguous()
    hy, cy, saved = torch.empty_like(cx), torch.empty_like(cx), torch.empty_like(inner)
    _launch(s, _lstm, inner, hidden, *_biases(inner, bias1, bias2), cx, hy, cy, saved, cx.shape[1], cx.numel())
    return hy, cy, saved


def _biases(inner: torch.Tensor, *given: torch.Tensor | None) -> list[torch.Tensor]:
    nothing = torch.full((inner.shape[1],), -0.0, dtype=inner.dtype)  # which leaves a zero its sign
    return [nothing if b is None else b.contiguous() for b in given]


def lstm_gradient(
    s: Settings, gradient_h: torch.Tensor | None, gradient_c: torch.Tensor | None, cx: torch.Tensor, cy: torch.Tensor,
    saved: torch.Tensor, has_bias: bool,
) -> tuple[torch.Tensor | None, ...]:  # fmt: skip
    """`aten::_thnn_fused_lstm_cell_backward_impl`: gradients of the gates (N, 4 H), of cx (N, H), a bias (4 H)."""
    if gradient_h is None and gradient_c is None:
        return None, None, None
    _check(saved)
    cx, cy, saved = cx.contiguous(), cy.contiguous(), saved.contiguous()
    gates, out = torch.empty_like(saved), torch.empty_like(cx)
    given = [torch.zeros_like(cx) if g is None else g.contiguous() for g in (gradient_h, gradient_c)]
    _launch(s, _lstm_gradient, saved, gates, cx, cy, *given, out, cx.shape[1], cx.numel())
    return gates, out, _bias_gradient(s, gates) if has_bias else None


def gru(
    s: Settings, inner: torch.Tensor, hidden: torch.Tensor, hx: torch.Tensor, bias1: torch.Tensor | None = None,
    bias2: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """`aten::_thnn_fused_gru_cell`: gates (N, 3 H) of input and hidden state, hx (N, H) to hy and (N, 5 H) to keep."""
    _check(inner)
    inner, hidden, hx = inner.contiguous(), hidden.contiguous(), hx.contiguous()
    hy, saved = torch.empty_like(hx), hx.new_empty(hx.shape[0], 5 * hx.shape[1])
    _launch(s, _gru, inner, hidden, *_biases(inner, bias1, bias2), hx, hy, saved, hx.shape[1], hx.numel())
    return hy, saved


def gru_gradient(
    s: Settings, gradient: torch.Tensor, saved: torch.Tensor, has_bias: bool
) -> tuple[torch.Tensor | None, ...]:
    """`aten::_thnn_fused_gru_cell_backward`: gradients of both gates (N, 3 H), of hx (N, H), two biases (3 H)."""
    _check(saved)
    saved, out = saved.contiguous(), torch.empty_like(gradient, memory_format=torch.contiguous_format)
    inner = saved.new_empty(saved.shape[0], 3 * gradient.shape[1])
    hidden = torch.empty_like(inner)
    _launch(s, _gru_gradient, saved, gradient.contiguous(), inner, hidden, out, gradient.shape[1], gradient.numel())
    biases = (_bias_gradient(s, inner), _bias_gradient(s, hidden)) if has_bias else (None, None)
    return inner, hidden, out, *biases


def _bias_gradient(s: Settings, gates: torch.Tensor) -> torch.Tensor:
    if gates.shape[0] < divided(gates.shape[1]):
        return column_sums(gates)
    s.recorder.leave(f"the gradient of a bias: a GPU divides a sum of {gates.shape[0]} rows among threads")
    return gates.sum(0)


def column_sums(x: torch.Tensor) -> torch.Tensor:
    """`x.sum(0)` of a matrix (R, C) as PyTorch's reduction on CUDA adds fewer rows than `divided` (`Reduce.cuh`).

    A thread has 4 sums in float32, of every fourth row, which it adds in order.
    """
    rows, columns = x.shape
    wide = x.float()
    sums = [torch.zeros(columns) for _ in range(4)]
    for row in range(rows):
        whole = row < rows // 4 * 4
        at = row % 4 if whole else row - rows // 4 * 4
        sums[at] = sums[at] + wide[row]
    total = sums[0]
    for other in sums[1:]:
        total = total + other
    return total.to(x.dtype)


def divided(columns: int) -> int:
    """From how many rows on a GPU divides them: 16 for each row of threads of a block, of which it has 4 at most.

    A block has 128 threads of 4 columns each, 32 or fewer side by side.
    """
    wide = min(1 << max(0, (columns // 4).bit_length() - 1), 32)
    return 16 * (128 // wide)


def _check(x: torch.Tensor) -> None:
    if x.dtype not in DTYPES:
        raise UnsupportedInstructionError(f"a fused cell of {x.dtype}: float16, bfloat16 and float32 are known")


ROWS: dict[str, Callable[..., Any]] = {
    "aten::_thnn_fused_lstm_cell": lstm,
    "aten::_thnn_fused_lstm_cell_backward_impl": lstm_gradient,
    "aten::_thnn_fused_gru_cell": gru,
    "aten::_thnn_fused_gru_cell_backward": gru_gradient,
}
