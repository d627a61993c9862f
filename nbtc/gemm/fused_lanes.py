"""Products by fused multiply-adds in float32, as libraries compute those without tensor cores: chains, lanes, parts."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.jit import in_default_float_mode
from nbtc.compiler.threads import ThreadTeam
from nbtc.formats.arrays import from_bits
from nbtc.gemm.orders import Order
from nbtc.gemm.problem import Problem
from nbtc.kernels.fused_chains import COLUMNS, ROWS, fused_chains

SUMS = 1 << 22  # results of chains at a time
Part = list[NDArray[np.int64]]  # the elements of K that each lane takes, in its order


@in_default_float_mode
def fused_lanes(problem: Problem, team: ThreadTeam) -> NDArray[np.float32]:
    """The product in an order of fused multiply-adds, from zero; operands are not rounded first."""
    order, (*batch, m, n, k) = problem.plan.order, problem.plan.shape
    a = np.asarray(from_bits(problem.a, problem.a_format), np.float32)
    b = np.asarray(from_bits(problem.b, problem.b_format), np.float32)
    a, b = np.broadcast_to(a, (*batch, m, k)), np.broadcast_to(b, (*batch, k, n))
    d = np.zeros((*batch, m, n), np.float32)
    parts = _dealt(order, k)
    if k:
        with np.errstate(all="ignore"):
            for item in np.ndindex(*batch):
                _product(order, parts, (a[item], b[item], d[item]), team)
    return d


def _dealt(order: Order, k: int) -> list[Part]:
    """Which elements of K the lanes of each part take."""
    parts = [np.concatenate([np.arange(*segment) for segment in chain]) for chain in order.chains(k)]
    if order.lanes == 1:
        return [[own] for own in parts]
    dealt = []
    for own in parts:
        each = -(-len(own) // order.lanes)
        lanes = range(order.lanes)
        dealt.append([own[x * each : (x + 1) * each] if order.runs else own[x :: order.lanes] for x in lanes])
    return dealt


def _product(order: Order, parts: list[Part], operands: tuple[NDArray[np.float32], ...], team: ThreadTeam) -> None:
    """d = a b for one item of the batch."""
    a, b, d = operands
    taken = [lane for part in parts for lane in part]
    elements, cuts = np.concatenate(taken), np.cumsum([0, *map(len, taken)])
    if not np.array_equal(elements, np.arange(len(elements))):
        a, b = a[:, elements], b[elements]
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    # a sum of several chains starts from zero, which a lone chain may leave negative
    each = order.each // order.lanes if order.each else a.shape[1] if order.lanes > 1 else 0
    rows = max(ROWS, SUMS // (len(taken) * max(1, b.shape[1])) // ROWS * ROWS)
    for top in range(0, len(a), rows):
        own, result = a[top : top + rows], d[top : top + rows]
        alone = len(taken) == 1
        out = result[None] if alone else np.zeros((len(taken), *result.shape), np.float32)
        _chains(own, b, cuts, each, out, team)
        if not alone:
            result[...] = _added(order, parts, out)


def _chains(
    a: NDArray[np.float32], b: NDArray[np.float32], cuts: NDArray[np.int64], each: int, out: NDArray[np.float32],
    team: ThreadTeam,
) -> None:  # fmt: skip
    """The chains' results, rows shared out."""
    share = ROWS * -(-len(a) // (ROWS * 4 * team.threads))
    work = [(top, min(len(a), top + share)) for top in range(0, len(a), share)]

    def some(top: int, bottom: int) -> None:
        fused_chains(a, b, cuts, each, out, np.empty((ROWS, COLUMNS), np.float32), top, bottom)

    team.run(some, (), work, share * a.shape[1] * b.shape[1])


def _added(order: Order, parts: list[Part], results: NDArray[np.float32]) -> NDArray[np.float32]:
    """The sum of lanes in each part, and of the parts."""
    sums, at = [], 0
    for part in parts:
        values = [*results[at : at + len(part)]]
        at += len(part)
        if order.serial:
            values = [reduce(np.add, values)]
        while len(values) > 1:
            half = -(-len(values) // 2)
            added = [x + y for x, y in zip(values, values[half:], strict=False)]
            values = added + values[len(added) : half]
        sums.append(values[0])
    total: NDArray[np.float32] = order.added(sums, np.add)
    return total


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
