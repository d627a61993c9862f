"""Gradients of pooling that inductor leaves to PyTorch: what its CUDA kernels add, and when.

A thread of `AdaptiveAveragePooling.cu` has one output: it divides the gradient by the window's width, then by its
height, and adds it to every element of the window by an atomic, row by row.  Threads go side by side, so where windows
overlap an element is reached first by the window in which it comes earliest.  Every quotient and every sum is rounded
to the tensor's type.
"""

from __future__ import annotations

import torch

from nbtc.torch.inductor.private import memory_format

COLUMNS, ROWS = 32, 8  # threads of a block, each of which takes every 32nd column, and every 8th row


def average_gradient(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor | None:
    """aten._adaptive_avg_pool2d_backward; None for channels last, whose kernel is another one."""
    if x.ndim == 4 and memory_format(x) == torch.channels_last:
        return None
    out = torch.zeros(x.shape, dtype=x.dtype)
    heights, widths = (_windows(gradient.shape[i], x.shape[i]) for i in (-2, -1))
    steps = [
        ((row // ROWS, column // COLUMNS, i, j), row, column)
        for row, (top, bottom) in enumerate(heights)
        for column, (left, right) in enumerate(widths)
        for i in range(bottom - top)
        for j in range(right - left)
    ]
    for (*_, i, j), row, column in sorted(steps):
        (top, bottom), (left, right) = heights[row], widths[column]
        part = gradient[..., row, column]
        for count in (right - left, bottom - top):
            part = part / part.new_full((), count)
        out[..., top + i, left + j] += part
    return out


def _windows(outputs: int, inputs: int) -> list[tuple[int, int]]:
    """First element and end of each output's window."""
    return [(i * inputs // outputs, -(-(i + 1) * inputs // outputs)) for i in range(outputs)]
