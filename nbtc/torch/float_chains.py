"""Convolutions that cuDNN computes without tensor cores: chains of fused multiply-adds in float32."""

from __future__ import annotations

from itertools import product as every
from math import prod
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.jit import in_default_float_mode
from nbtc.gemm.fused_lanes import fma32
from nbtc.gemm.orders import Order
from nbtc.torch.cudnn import Way, chain
from nbtc.torch.products import Settings

INSTRUCTION = "fma.rn.f32"
LANES = 32
ROWS = 2  # of an output, which the lanes of `paired` share
WARPS = 8  # of a block of PyTorch's own kernel for gradients of depthwise weights


@in_default_float_mode
def chained(s: Settings, how: Way, windows: NDArray[Any], w: NDArray[Any]) -> NDArray[np.float32]:
    """Windows (N, C, out..., kernel...) times weights (C_out, C, kernel...), a tap at a time: (N, C_out, out...)."""
    start = perf_counter()
    rank = w.ndim - 2
    x, w = windows.astype(np.float32), w.astype(np.float32)
    add = _adder(x, w)
    taps = list(every(*map(range, w.shape[2:])))
    taps = taps if how.window else taps[::-1]
    channels = range(w.shape[1])
    order = ((c, t) for c in channels for t in taps) if how.over == "crs" else ((c, t) for t in taps for c in channels)
    total = np.zeros((len(x), len(w), *x.shape[2 : 2 + rank]), np.float32)
    every_one: Any = slice(None)
    for c, tap in order:
        there: Any = (every_one, c, ..., *tap)
        weights = w[(every_one, c, *tap)].reshape(-1, *[1] * rank)
        total = add(x[there][:, None], weights, total)
    _note(s, (len(x) * prod(x.shape[2 : 2 + rank]), len(w), prod(w.shape[1:])), start)
    return total


@in_default_float_mode
def dealt(s: Settings, left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.float32]:
    """left (K, rows) times right (K, columns): lane i of 32 sums elements i, i + 32 ...; the lanes' sums are a tree."""
    start = perf_counter()
    a, b = left.astype(np.float32), right.astype(np.float32)
    lanes = np.zeros((LANES, a.shape[1], b.shape[1]), np.float32)
    _deal(a, b, lanes, _adder(a, b))
    _note(s, (a.shape[1], b.shape[1], len(a)), start)
    return _tree(lanes)


@in_default_float_mode
def dealt_to_warps(s: Settings, left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.float32]:
    """left (N, rows, P) times right (N, P, columns): warp i of eight takes items i, i + 8 ..., whose positions are
    dealt to its lanes; each warp's lanes are a tree, and so are the warps' sums.
    """
    start = perf_counter()
    a, b = (x.astype(np.float32) for x in (np.moveaxis(left, 1, 2), right))
    add, shape = _adder(a, b), (LANES, a.shape[2], b.shape[2])
    sums = np.zeros(shape, np.float32)
    for warp in range(min(len(a), WARPS)):
        lanes = np.zeros(shape, np.float32)
        for item in range(warp, len(a), WARPS):
            _deal(a[item], b[item], lanes, add)
        sums[warp] = _tree(lanes)
    _note(s, (a.shape[2], b.shape[2], len(a) * a.shape[1]), start)
    return _tree(sums)


@in_default_float_mode
def paired(s: Settings, left: NDArray[Any], right: NDArray[Any], sizes: tuple[int, ...]) -> NDArray[np.float32]:
    """left (N, rows, P) times right (N, P, columns), P positions of an output of these sizes, two axes at most.

    A lane takes two neighbours of every second row of the output, adds their products, and that to its sum, item after
    item; the lanes' sums are a tree, those of a row first.
    """
    start = perf_counter()
    height, width = (1, *sizes)[-2:]
    pairs = 1 << (-(-width // 2) - 1).bit_length()
    spare = ((0, 0), (0, height % ROWS), (0, 2 * pairs - width), (0, 0))

    def laid_out(x: NDArray[Any]) -> NDArray[np.float32]:
        """(N, half of the height, pair, row, which of a pair, elements)."""
        x = np.pad(x.reshape(len(x), height, width, -1).astype(np.float32), spare)
        return x.reshape(len(x), -1, ROWS, pairs, 2, x.shape[-1]).swapaxes(2, 3)

    a, b = laid_out(np.moveaxis(left, 1, 2)), laid_out(right)
    add = _adder(a, b)
    lanes = np.zeros((pairs, ROWS, a.shape[-1], b.shape[-1]), np.float32)
    for x, y in zip(a.reshape(-1, *a.shape[2:]), b.reshape(-1, *b.shape[2:]), strict=True):
        both = np.zeros_like(lanes)
        for i in range(2):
            both = add(x[..., i, :, None], y[..., i, None, :], both)
        lanes = lanes + both
    _note(s, (a.shape[-1], b.shape[-1], left.shape[0] * left.shape[2]), start)
    return _tree(lanes.reshape(-1, *lanes.shape[2:]))


def _deal(a: NDArray[np.float32], b: NDArray[np.float32], lanes: NDArray[np.float32], add: Any) -> None:
    """Lane i goes on with elements i, i + 32 ... of a (K, rows) times b (K, columns)."""
    for k in range(0, len(a), LANES):
        x, y = a[k : k + LANES, :, None], b[k : k + LANES, None, :]
        lanes[: len(x)] = add(x, y, lanes[: len(x)])


def _tree(lanes: NDArray[np.float32]) -> NDArray[np.float32]:
    """The sum of all lanes: the upper half is added to the lower one, until one is left."""
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    total: NDArray[np.float32] = lanes[0]
    return total


def _adder(a: NDArray[np.float32], b: NDArray[np.float32]) -> Any:
    """a * b + c rounded once; where every product of these operands is exact in float32 that is one addition."""
    smallest = [np.abs(x[x != 0]).min(initial=np.float32(1), where=True).astype(np.float64) for x in (a, b)]
    largest = [np.abs(x).max(initial=np.float32(0)).astype(np.float64) for x in (a, b)]
    exact = smallest[0] * smallest[1] >= 2.0**-126 and largest[0] * largest[1] < 2.0**127
    return (lambda x, y, z: x * y + z) if exact else fma32


def _note(s: Settings, shape: tuple[int, ...], start: float) -> None:
    order = s.order if isinstance(s.order, Order) else chain("")
    s.recorder.product(shape, INSTRUCTION, order, perf_counter() - start)
