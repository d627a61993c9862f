"""Products by fused multiply-adds in float32, as libraries compute those of a single row: lanes, and a sum of lanes."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.jit import in_default_float_mode
from nbtc.formats.arrays import from_bits
from nbtc.gemm.orders import Order
from nbtc.gemm.problem import Problem

SUMS = 1 << 20  # lanes' sums at a time


@in_default_float_mode
def fused_lanes(problem: Problem) -> NDArray[np.float32]:
    """The product in an order of fused multiply-adds, from zero; operands are not rounded first."""
    order, (*batch, m, n, k) = problem.plan.order, problem.plan.shape
    a = np.asarray(from_bits(problem.a, problem.a_format), np.float32)
    b = np.asarray(from_bits(problem.b, problem.b_format), np.float32)
    d = np.zeros((*batch, m, n), np.float32)
    part, rows = order.part or max(1, k), max(1, SUMS // (order.lanes * max(1, n)))
    with np.errstate(all="ignore"):
        for top in range(0, m, rows):
            own = a[..., top : top + rows, :]
            sums = [_part(order, own[..., at : at + part], b[..., at : at + part, :]) for at in range(0, k, part)]
            d[..., top : top + rows, :] = reduce(np.add, sums) if sums else 0
    return d


def _part(order: Order, a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    """One part of K: a chain in each lane, and the sum of the lanes."""
    k, lanes = a.shape[-1], order.lanes
    each = -(-k // lanes)
    left = _padded(a, (*a.shape[:-1], each * lanes))
    right = _padded(b, (*b.shape[:-2], each * lanes, b.shape[-1]))
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], lanes, b.shape[-1])
    sums, chain = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    steps = order.each // lanes if order.each else each
    for i in range(each):
        own = slice(i, None, each) if order.runs else slice(i * lanes, (i + 1) * lanes)
        chain = fma32(left[..., own, None], right[..., None, own, :], chain)
        if (i + 1) % max(1, steps) == 0 or i == each - 1:
            sums, chain = sums + chain, np.zeros(shape, np.float32)
    values = [sums[..., lane, :] for lane in range(lanes)]
    if order.serial:
        return reduce(np.add, values)
    while len(values) > 1:
        half = -(-len(values) // 2)
        added = [x + y for x, y in zip(values, values[half:], strict=False)]
        values = added + values[len(added) : half]
    return values[0]


def _padded(x: NDArray[np.float32], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """x, followed by zeros."""
    if x.shape == shape:
        return x
    whole = np.zeros(shape, np.float32)
    whole[tuple(slice(size) for size in x.shape)] = x
    return whole


def fma32(x: Any, y: NDArray[np.float32], z: NDArray[np.float32]) -> NDArray[np.float32]:
    """x * y + z rounded once: the exact product in float64, the sum rounded to odd there, then to float32."""
    p, z64 = np.multiply(x, y, dtype=np.float64), z.astype(np.float64)
    total = p + z64
    part = total - p
    lost = (p - (total - part)) + (z64 - part)  # Knuth's two-sum: what total lacks
    inexact = np.isfinite(total) & (lost != 0)
    bits = total.view(np.int64)
    even = inexact & (bits & 1 == 0)
    toward = np.where((lost > 0) == (total > 0), 1, -1)  # the odd neighbour on the side of what was lost
    bits[even] += toward[even]
    rounded: NDArray[np.float32] = total.astype(np.float32)
    return rounded
