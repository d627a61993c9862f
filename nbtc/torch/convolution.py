"""Convolutions as the matrix products they are.

Each output is one chain over the elements of a window.  Which order a library takes through the window is not known in
general; two are offered: "unfold", channel by channel as `torch.nn.functional.unfold` lists them, and "channels_last",
position by position with the channels innermost, which recorded bfloat16 convolutions of an H200 show.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from nbtc.torch.products import Settings, operand, product
from nbtc.torch.tensors import rounded

WINDOWS = ("unfold", "channels_last")
COPIED = 64 << 20  # bytes of windows copied at a time


class Geometry(NamedTuple):
    """Arguments of aten.convolution, one number a spatial axis."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int

    @classmethod
    def of(
        cls, rank: int, stride: Any, padding: Any, dilation: Any, transposed: bool, more: Any, groups: int
    ) -> Geometry:
        """From lists as PyTorch passes them: a single number stands for every axis."""
        lists = [tuple(x) * (rank // len(x)) for x in (stride, padding, dilation, more)]
        return cls(lists[0], lists[1], lists[2], transposed, lists[3], groups)


def forward(s: Settings, x: torch.Tensor, weight: torch.Tensor, g: Geometry) -> torch.Tensor:
    """x (N, C, ...) and weight (C_out, C / groups, ...), or (C, C_out / groups, ...) where transposed."""
    a, w = operand(x, s, True), operand(weight, s, True)
    if not g.transposed:
        return _gather(s, a, w, g, x.dtype)
    sizes = [
        (n - 1) * g.stride[i] - 2 * g.padding[i] + g.dilation[i] * (k - 1) + g.output_padding[i] + 1
        for i, (n, k) in enumerate(zip(a.shape[2:], w.shape[2:], strict=True))
    ]
    return _spread(s, a, w, g, sizes, x.dtype)


def input_gradient(s: Settings, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, g: Geometry) -> torch.Tensor:
    """The gradient of x: one chain over output channels and window positions for each element."""
    a, w = operand(grad, s, True), operand(weight, s, True)
    if g.transposed:
        return _gather(s, a, w, g, x.dtype)
    return _spread(s, a, w, g, x.shape[2:], x.dtype)


def weight_gradient(
    s: Settings, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, g: Geometry
) -> torch.Tensor:
    """The gradient of the weight: one chain over items and output positions for each element."""
    a, b = operand(grad, s, True), operand(x, s, True)
    if g.transposed:  # the roles of input and output change places
        a, b = b, a
    windows = _windows(_padded(b, g.padding), weight.shape[2:], g.stride, g.dilation, a.shape[2:])
    out = np.empty(tuple(weight.shape), _accumulator(a))
    per, made = a.shape[1] // g.groups, b.shape[1] // g.groups
    for i in range(g.groups):
        left = np.moveaxis(a[:, i * per : (i + 1) * per], 1, 0).reshape(per, -1)
        right = windows[:, i * made : (i + 1) * made]  # (N, C, out..., kernel...)
        rank = a.ndim - 2
        right = np.moveaxis(right, 1, 1 + rank).reshape(left.shape[1], -1)  # K: items, positions
        out[i * per : (i + 1) * per] = product(left, right, s, x.dtype).reshape(per, made, *weight.shape[2:])
    return rounded(out, x.dtype)


def _accumulator(a: NDArray[Any]) -> type[np.generic]:
    """The accumulator's type."""
    return np.float64 if a.dtype == np.float64 else np.float32


def _padded(x: NDArray[Any], padding: tuple[int, ...]) -> NDArray[Any]:
    """x with zeros around its spatial axes."""
    if not any(padding):
        return x
    words = x.view(f"u{x.dtype.itemsize}")
    return np.pad(words, [(0, 0), (0, 0), *((p, p) for p in padding)]).view(x.dtype)


def _windows(
    x: NDArray[Any], kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...], sizes: Any
) -> NDArray[Any]:
    """Windows (N, C, out..., kernel...) of x, a view; out... are the first `sizes`."""
    rank = x.ndim - 2
    span = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    view = sliding_window_view(x, span, axis=tuple(range(2, 2 + rank)))
    steps = tuple(slice(None, n * t, t) for n, t in zip(sizes, stride, strict=True))
    return view[(slice(None), slice(None), *steps, *(slice(None, None, d) for d in dilation))]


def _rows(s: Settings, windows: NDArray[Any], rank: int) -> NDArray[Any]:
    """Windows as rows (N * out, C * kernel) of a matrix, in the order the settings ask for."""
    x = np.moveaxis(windows, 1, 1 + rank)  # N, out..., C, kernel...
    if s.convolution == "channels_last":
        x = np.moveaxis(x, 1 + rank, -1)
    return x.reshape(prod(x.shape[: 1 + rank]), -1)


def _columns(s: Settings, w: NDArray[Any]) -> NDArray[Any]:
    """Weights (C_out, C, kernel...) as columns of a matrix in the same order."""
    x = np.moveaxis(w, 1, -1) if s.convolution == "channels_last" else w
    return x.reshape(w.shape[0], -1).T


def _blocks(windows: NDArray[Any]) -> Iterator[slice]:
    """Items of the batch whose windows are copied together."""
    one = prod(windows.shape[1:]) * windows.dtype.itemsize
    per = max(1, COPIED // max(1, one))
    for i in range(0, windows.shape[0], per):
        yield slice(i, min(windows.shape[0], i + per))


def _gather(s: Settings, x: NDArray[Any], w: NDArray[Any], g: Geometry, dtype: torch.dtype) -> torch.Tensor:
    """The convolution of x (N, C, ...) with w (C_out, C / groups, ...)."""
    rank = x.ndim - 2
    padded = _padded(x, g.padding)
    sizes = [
        (n - d * (k - 1) - 1) // t + 1
        for n, k, t, d in zip(padded.shape[2:], w.shape[2:], g.stride, g.dilation, strict=True)
    ]
    return _convolved(s, _windows(padded, w.shape[2:], g.stride, g.dilation, sizes), w, g.groups, dtype, rank)


def _spread(s: Settings, x: NDArray[Any], w: NDArray[Any], g: Geometry, sizes: Any, dtype: torch.dtype) -> torch.Tensor:
    """The transposed convolution: x with zeros between its elements, windows of flipped weights."""
    rank = x.ndim - 2
    kernel = w.shape[2:]
    before = [d * (k - 1) - p for k, d, p in zip(kernel, g.dilation, g.padding, strict=True)]
    room = [n + d * (k - 1) for n, k, d in zip(sizes, kernel, g.dilation, strict=True)]
    spread = np.zeros((*x.shape[:2], *room), f"u{x.dtype.itemsize}").view(x.dtype)
    into, take = [slice(None), slice(None)], [slice(None), slice(None)]
    for at, n, t, limit in zip(before, x.shape[2:], g.stride, room, strict=True):
        first = -(min(at, 0) // t)  # elements before the first one that any window reaches
        last = min(n, (limit - 1 - at) // t + 1)
        into.append(slice(at + first * t, max(at + (last - 1) * t + 1, 0), t))
        take.append(slice(first, last))
    spread[tuple(into)] = x[tuple(take)]
    flipped = w[(slice(None), slice(None), *[slice(None, None, -1)] * rank)]
    per = w.shape[0] // g.groups  # (groups * per, C_out / groups, ...) -> (C_out, per, ...)
    swapped = flipped.reshape(g.groups, per, *w.shape[1:]).swapaxes(1, 2).reshape(-1, per, *kernel)
    windows = _windows(spread, kernel, (1,) * rank, g.dilation, sizes)
    return _convolved(s, windows, swapped, g.groups, dtype, rank)


def _convolved(
    s: Settings, windows: NDArray[Any], w: NDArray[Any], groups: int, dtype: torch.dtype, rank: int
) -> torch.Tensor:
    """Windows (N, C, out..., kernel...) times weights (C_out, C / groups, kernel...): (N, C_out, out...)."""
    count, sizes = windows.shape[0], windows.shape[2 : 2 + rank]
    out = np.empty((count, w.shape[0], *sizes), _accumulator(w))
    channels, made = w.shape[1], w.shape[0] // groups
    for i in range(groups):
        columns = _columns(s, w[i * made : (i + 1) * made])
        for items in _blocks(windows):
            rows = _rows(s, windows[items, i * channels : (i + 1) * channels], rank)
            d = product(rows, columns, s, dtype).reshape(-1, *sizes, made)
            out[items, i * made : (i + 1) * made] = np.moveaxis(d, -1, 1)
    return rounded(out, dtype)
