"""Convolutions as the matrix products they are.

Each output is a chain over the elements of a window: "unfold", channel by channel as `torch.nn.functional.unfold` lists
them, "channels_last", position by position with the channels innermost, or "cudnn", as the kernel that cuDNN takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from nbtc.gemm.orders import Order
from nbtc.torch.cudnn import Case, Way, chain, way
from nbtc.torch.float_chains import chained, dealt, dealt_to_warps, tiled
from nbtc.torch.products import Settings, operand, product
from nbtc.torch.tensors import rounded

WINDOWS = ("unfold", "channels_last", "cudnn")
UNFOLD = Way("unfold", "unfold")
CHANNELS_LAST = Way("channels_last", tile=1 << 30, window=True)
STEP = 16  # channels of half precision that a tensor core takes at a time
OCTET = 8  # elements of 16 bits of the widest load
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

    def fits(self, x: torch.Tensor, weight: torch.Tensor) -> bool:
        """Whether x has the weight's dtype, rank and channels, and space for a window."""
        if x.dtype != weight.dtype or x.ndim != weight.ndim or min(*self.stride, *self.dilation) < 1:
            return False
        if min(self.padding) < 0 or self.groups < 1 or weight.shape[0] % self.groups:
            return False
        if self.transposed:
            return bool(x.shape[1] == weight.shape[0])
        axes = zip(x.shape[2:], weight.shape[2:], self.padding, self.dilation, strict=True)
        whole = all(n + 2 * p >= d * (k - 1) + 1 for n, k, p, d in axes)
        return whole and bool(x.shape[1] == weight.shape[1] * self.groups)


def _chosen(
    s: Settings, what: str, x: torch.Tensor, weight: torch.Tensor, g: Geometry, out: torch.dtype
) -> tuple[Settings, Way]:
    """The order of one convolution, and settings whose order of products is the kernel's."""
    if s.convolution != "cudnn":
        return s, UNFOLD if s.convolution == "unfold" else CHANNELS_LAST
    case = _case(what, x, weight, g, out)
    found, evidence = way(case, what)
    return s._replace(order=chain(evidence)), found


def _case(what: str, x: torch.Tensor, weight: torch.Tensor, g: Geometry, out: torch.dtype) -> Case | None:
    """What cuDNN is asked for; None of a kind that was not recorded."""
    names = {torch.bfloat16: "bf16", torch.float16: "f16"}
    if out not in names or any(len(set(axes)) > 1 for axes in (g.stride, g.dilation, g.padding)):
        return None
    last = any(t.is_contiguous(memory_format=torch.channels_last) and not t.is_contiguous() for t in (x, weight))
    sizes, filter_ = tuple(x.shape[2:]), tuple(weight.shape[2:])
    if g.transposed:
        what, sizes = {"forward": "input", "input": "forward"}.get(what, what), _made(sizes, filter_, g)
    return Case(
        what, last, names[out], x.shape[0], weight.shape[1] * g.groups, weight.shape[0], sizes, filter_, g.stride[0],
        g.padding[0], g.dilation[0], g.groups,
    )  # fmt: skip


def _made(sizes: tuple[int, ...], filter_: tuple[int, ...], g: Geometry) -> tuple[int, ...]:
    """Sizes of what a transposed convolution makes."""
    return tuple(
        (n - 1) * g.stride[i] - 2 * g.padding[i] + g.dilation[i] * (k - 1) + g.output_padding[i] + 1
        for i, (n, k) in enumerate(zip(sizes, filter_, strict=True))
    )


def forward(s: Settings, x: torch.Tensor, weight: torch.Tensor, g: Geometry) -> torch.Tensor:
    """x (N, C, ...) and weight (C_out, C / groups, ...), or (C, C_out / groups, ...) where transposed."""
    a, w = operand(x, s, True), operand(weight, s, True)
    s, how = _chosen(s, "forward", x, weight, g, x.dtype)
    if not g.transposed:
        return _gather(s, how, a, w, g, x.dtype)
    return _spread(s, how, a, w, g, _made(a.shape[2:], w.shape[2:], g), x.dtype)


def input_gradient(s: Settings, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, g: Geometry) -> torch.Tensor:
    """The gradient of x: one chain over output channels and window positions for each element."""
    a, w = operand(grad, s, True), operand(weight, s, True)
    s, how = _chosen(s, "input", x, weight, g, x.dtype)
    if g.transposed:
        return _gather(s, how, a, w, g, x.dtype)
    return _spread(s, how, a, w, g, x.shape[2:], x.dtype)


def weight_gradient(
    s: Settings, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, g: Geometry
) -> torch.Tensor:
    """The gradient of the weight: one chain over items and output positions for each element."""
    a, b = operand(grad, s, True), operand(x, s, True)
    if not x.numel():  # no items: a sum of nothing
        return torch.zeros(weight.shape, dtype=x.dtype)
    s, how = _chosen(s, "weight", x, weight, g, x.dtype)
    if g.transposed:  # the roles of input and output change places
        a, b = b, a
    windows = _windows(_padded(b, g.padding), weight.shape[2:], g.stride, g.dilation, a.shape[2:])
    out = np.empty(tuple(weight.shape), _accumulator(a))
    per, made = a.shape[1] // g.groups, b.shape[1] // g.groups
    for i in range(g.groups):
        rank = a.ndim - 2
        left = a[:, i * per : (i + 1) * per].reshape(len(a), per, -1)
        right = windows[:, i * made : (i + 1) * made]  # (N, C, out..., kernel...)
        right = np.moveaxis(right, 1, 1 + rank).reshape(*left.shape[::2], -1)  # (N, out, C * kernel)
        summed = _over_items(s, how, left, right, x.dtype, a.shape[2:])
        out[i * per : (i + 1) * per] = summed.reshape(per, made, *weight.shape[2:])
    return rounded(out, x.dtype)


def _over_items(
    s: Settings, how: Way, left: NDArray[Any], right: NDArray[Any], dtype: torch.dtype, sizes: tuple[int, ...]
) -> NDArray[Any]:
    """The sum over items N and positions P, those of `sizes`, of left (N, rows, P) times right (N, P, columns)."""
    if how.kind == "tiled":
        return tiled(s, left, right, sizes)
    if how.kind == "lanes":
        return dealt(s, np.moveaxis(left, 1, 2).reshape(-1, left.shape[1]), right.reshape(-1, right.shape[2]))
    if how.kind == "warps":
        return dealt_to_warps(s, left, right)
    if how.kind == "images":
        # rows of no whole 16 bytes: one of cuBLAS' wmma kernels, with the rest of its tiles of 128 first
        name = "resfirst128" if left.shape[2] % 8 else "seq"
        s = s._replace(order=chain(s.order.evidence if isinstance(s.order, Order) else "", name))
        total = product(left[0], right[0], s, dtype)
        for a, b in zip(left[1:], right[1:], strict=True):
            total = total + product(a, b, s, dtype)
        return total
    return product(np.moveaxis(left, 1, 0).reshape(left.shape[1], -1), right.reshape(-1, right.shape[2]), s, dtype)


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


def _arranged(x: NDArray[Any], how: Way, rank: int) -> NDArray[Any]:
    """Elements (..., C, kernel...) as rows (..., K) in a kernel's order; a step of tensor cores has one position."""
    lead = x.shape[: -1 - rank]
    if how.kind == "unfold":
        return x.reshape(*lead, -1)
    x = np.moveaxis(x, -1 - rank, -1)
    if not how.window:
        at: tuple[Any, ...] = (..., *[slice(None, None, -1)] * rank, slice(None))
        x = x[at]
    channels = x.shape[-1]
    if how.kind in ("flat", "end to end"):
        x = x.reshape(*lead, -1)
        return _flat(x, channels) if how.kind == "flat" else x
    if (how.alone or channels > STEP // 2) and channels % STEP and how is not CHANNELS_LAST:
        more = [(0, 0)] * (x.ndim - 1) + [(0, -channels % STEP)]
        x = np.pad(x.view(f"u{x.dtype.itemsize}"), more).view(x.dtype)
    parts = [x[..., i : i + how.tile].reshape(*lead, -1) for i in range(0, channels, how.tile)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, -1)


def _flat(x: NDArray[Any], channels: int) -> NDArray[Any]:
    """Products (..., K) in the order of kernels that load their fragments from global memory.

    A thread loads eight elements of K at a time where channels are whole eights, for two instructions of 16 products:
    of 32 products, the first takes those at 0 to 3 of each eight, the second the others.
    """
    if channels % OCTET:
        return x
    lead, pair = x.shape[:-1], 2 * STEP
    words = x.view(f"u{x.dtype.itemsize}")
    padded = np.pad(words, [(0, 0)] * len(lead) + [(0, -x.shape[-1] % pair)])
    octets = padded.reshape(*lead, -1, pair // OCTET, 2, OCTET // 2)
    return np.ascontiguousarray(np.swapaxes(octets, -3, -2)).reshape(*lead, -1).view(x.dtype)


def _blocks(windows: NDArray[Any]) -> Iterator[slice]:
    """Items of the batch whose windows are copied together."""
    one = prod(windows.shape[1:]) * windows.dtype.itemsize
    per = max(1, COPIED // max(1, one))
    for i in range(0, windows.shape[0], per):
        yield slice(i, min(windows.shape[0], i + per))


def _gather(s: Settings, how: Way, x: NDArray[Any], w: NDArray[Any], g: Geometry, dtype: torch.dtype) -> torch.Tensor:
    """The convolution of x (N, C, ...) with w (C_out, C / groups, ...)."""
    padded = _padded(x, g.padding)
    sizes = [
        (n - d * (k - 1) - 1) // t + 1
        for n, k, t, d in zip(padded.shape[2:], w.shape[2:], g.stride, g.dilation, strict=True)
    ]
    windows = _windows(padded, w.shape[2:], g.stride, g.dilation, sizes)
    return _convolved(s, how._replace(window=True), windows, w, g.groups, dtype)


def _spread(
    s: Settings, how: Way, x: NDArray[Any], w: NDArray[Any], g: Geometry, sizes: Any, dtype: torch.dtype
) -> torch.Tensor:
    """The transposed convolution: x with zeros between its elements, windows of flipped weights."""
    rank = x.ndim - 2
    kernel = w.shape[2:]
    before = [d * (k - 1) - p for k, d, p in zip(kernel, g.dilation, g.padding, strict=True)]
    extents = [n + d * (k - 1) for n, k, d in zip(sizes, kernel, g.dilation, strict=True)]
    spread = np.zeros((*x.shape[:2], *extents), f"u{x.dtype.itemsize}").view(x.dtype)
    into, take = [slice(None), slice(None)], [slice(None), slice(None)]
    for at, n, t, limit in zip(before, x.shape[2:], g.stride, extents, strict=True):
        first = -(min(at, 0) // t)  # elements before the first one that any window reaches
        last = min(n, (limit - 1 - at) // t + 1)
        into.append(slice(at + first * t, max(at + (last - 1) * t + 1, 0), t))
        take.append(slice(first, last))
    spread[tuple(into)] = x[tuple(take)]
    flipped = w[(slice(None), slice(None), *[slice(None, None, -1)] * rank)]
    per = w.shape[0] // g.groups  # (groups * per, C_out / groups, ...) -> (C_out, per, ...)
    swapped = flipped.reshape(g.groups, per, *w.shape[1:]).swapaxes(1, 2).reshape(-1, per, *kernel)
    windows = _windows(spread, kernel, (1,) * rank, g.dilation, sizes)
    return _convolved(s, how, windows, swapped, g.groups, dtype)


def _convolved(
    s: Settings, how: Way, windows: NDArray[Any], w: NDArray[Any], groups: int, dtype: torch.dtype
) -> torch.Tensor:
    """Windows (N, C, out..., kernel...) times weights (C_out, C / groups, kernel...): (N, C_out, out...)."""
    rank = w.ndim - 2
    count, sizes = windows.shape[0], windows.shape[2 : 2 + rank]
    out = np.empty((count, w.shape[0], *sizes), _accumulator(w))
    channels, made = w.shape[1], w.shape[0] // groups
    if how.kind == "chain":
        for i in range(groups):
            own = slice(i * made, (i + 1) * made)
            out[:, own] = chained(s, how, windows[:, i * channels : (i + 1) * channels], w[own])
        return rounded(out, dtype)
    for i in range(groups):
        columns = _arranged(w[i * made : (i + 1) * made], how, rank).T
        for items in _blocks(windows):
            part = np.moveaxis(windows[items, i * channels : (i + 1) * channels], 1, 1 + rank)
            rows = _arranged(part, how, rank).reshape(-1, columns.shape[0])
            d = product(rows, columns, s, dtype).reshape(-1, *sizes, made)
            out[items, i * made : (i + 1) * made] = np.moveaxis(d, -1, 1)
    return rounded(out, dtype)
