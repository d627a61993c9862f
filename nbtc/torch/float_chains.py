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
ITEMS, TILE = 4, 8  # items side by side, and positions along both axes of a tile, of `tiled`
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
    nothing = np.zeros((len(x), len(w), *x.shape[2 : 2 + rank]), np.float32)
    every_one: Any = slice(None)

    def summed(total: NDArray[np.float32], part: Any) -> NDArray[np.float32]:
        for c, tap in part:
            there: Any = (every_one, c, ..., *tap)
            weights = w[(every_one, c, *tap)].reshape(-1, *[1] * rank)
            total = add(x[there][:, None], weights, total)
        return total

    if how.over == "taps":
        total = nothing
        for t in taps:
            total = total + summed(nothing, ((c, t) for c in channels))
    else:
        total = summed(nothing, order)
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
def tiled(s: Settings, left: NDArray[Any], right: NDArray[Any], sizes: tuple[int, ...]) -> NDArray[np.float32]:
    """left (N, rows, P) times right (N, P, columns), P positions of an output of these sizes, two axes at most.

    Four items are summed side by side, each in tiles of 8 x 8 positions, tile after tile, and with it every fourth item
    from there on.  A lane has two neighbours of each second row, and a sum for each of its four rows; it adds these
    sums, item after item.  Lanes of rows of one parity are added in pairs, those of the left half of even rows to those
    of the right half of odd ones.
    """
    start = perf_counter()
    height, width = (1, *sizes)[-2:]
    spare = ((0, -len(left) % ITEMS), (0, -height % TILE), (0, -width % TILE), (0, 0))

    def laid_out(x: NDArray[Any]) -> NDArray[np.float32]:
        """(tiles, which of a pair, item, row's pair, half, neighbour, parity of the row, elements)."""
        x = np.pad(x.reshape(len(x), height, width, -1).astype(np.float32), spare)
        count, tall, wide = (n // m for n, m in zip(x.shape[:3], (ITEMS, TILE, TILE), strict=True))
        x = x.reshape(count, ITEMS, tall, TILE // 2, 2, wide, 2, 2, 2, -1)
        return x.transpose(0, 2, 5, 8, 1, 3, 6, 7, 4, 9).reshape(-1, 2, ITEMS, TILE // 2, 2, 2, 2, x.shape[-1])

    a, b = laid_out(np.moveaxis(left, 1, 2)), laid_out(right)
    add = _adder(a, b)
    sums = np.zeros((*a.shape[2:], b.shape[-1]), np.float32)
    for x, y in zip(a, b, strict=True):
        for i in range(2):
            sums = add(x[i][..., :, None], y[i][..., None, :], sums)
    rows = sums.reshape(-1, *sums.shape[2:])
    lanes = rows[0]
    for row in rows[1:]:
        lanes = lanes + row
    half = lanes[:, 0] + lanes[:, 1]  # by half and parity
    _note(s, (a.shape[-1], b.shape[-1], left.shape[0] * left.shape[2]), start)
    total: NDArray[np.float32] = (half[0, 0] + half[1, 1]) + (half[0, 1] + half[1, 0])
    return total


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
