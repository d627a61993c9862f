"""Parts of a product that are products themselves: blocks of the result, or the elements of K that one chain takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nbtc.gemm.orders import Chain, Order
from nbtc.gemm.out import Block, cut
from nbtc.gemm.problem import Problem, matrix
from nbtc.gemm.tails import Tile


def block_of(problem: Problem, at: Block) -> Problem:
    """The part of a product that makes these items of the first batch axis and these rows."""
    rank = len(problem.plan.shape) - 1
    c, (scale_a, scale_b) = problem.c, problem.scales
    batch = (at[0].stop - at[0].start, *problem.batch[1:]) if problem.batch else ()
    rows = at[1].stop - at[1].start
    return replace(
        problem,
        a=cut(problem.a, at, rank, rows=True),
        b=cut(problem.b, at, rank, rows=False),
        c=None if c is None else cut(c, at, rank, rows=True),
        scales=(
            None if scale_a is None else cut(scale_a, at, rank, rows=True),
            None if scale_b is None else cut(scale_b, at, rank, rows=False),
        ),
        batch=batch,
        plan=replace(problem.plan, shape=(*batch, rows, *problem.plan.shape[-2:])),
    )


def tile_of(problem: Problem, at: Tile, order: Order) -> Problem:
    """The part of a product that makes these rows and columns, without scales, in an order of its own."""
    rows, columns = at
    plan, c = problem.plan, problem.c
    shape = *plan.shape[:-3], rows.stop - rows.start, columns.stop - columns.start, plan.shape[-1]
    return replace(
        problem,
        a=problem.a[..., rows, :],
        b=problem.b[..., columns],
        c=None if c is None else c[..., rows, columns],
        scales=(None, None),
        plan=replace(plan, shape=shape, order=order),
    )


def rearranged(problem: Problem, chain: Chain) -> Problem:
    """A product whose K is the segments of a chain one after the other, each padded with zeros to whole steps."""
    plan = problem.plan
    k, step = plan.shape[-1], (plan.row.shape or (0, 0, 1))[2]
    a = matrix(problem.a, problem.a_format, problem.packed[0], -1, k)
    b = matrix(problem.b, problem.b_format, problem.packed[1], -2, k)
    whole = [-(-(stop - start) // step) * step for start, stop in chain]
    depth = sum(whole[:-1]) + chain[-1][1] - chain[-1][0]
    left = np.zeros((*a.shape[:-1], depth), a.dtype)
    right = np.zeros((*b.shape[:-2], depth, b.shape[-1]), b.dtype)
    at = 0
    for (start, stop), length in zip(chain, whole, strict=True):
        left[..., at : at + stop - start] = a[..., start:stop]
        right[..., at : at + stop - start, :] = b[..., start:stop, :]
        at += length
    plan = replace(plan, shape=(*plan.shape[:-1], depth))
    return replace(problem, a=left, b=right, packed=(False, False), plan=plan)
