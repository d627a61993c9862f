"""A product's items on the engines: operands as each wants them, and repairs of what a fast one does not vouch for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.threads import ThreadTeam
from nbtc.formats.arrays import from_bits, pack
from nbtc.formats.table import Format
from nbtc.gemm import chain_engine
from nbtc.gemm.cost import POSITIONS
from nbtc.gemm.fused_engine import FusedProduct
from nbtc.gemm.plan import Plan, Problem, matrix
from nbtc.gemm.portable_engine import PortableProduct
from nbtc.gemm.words_engine import WordsProduct, scheme
from nbtc.kernels import words as micro
from nbtc.numerics.models import BIT_OP, BIT_OPS, ROUNDING, ROUNDINGS, SATURATE, STEP, Kind

ITEM = 1 << 25  # multiply-adds of an item that is worth several threads, some milliseconds


def _elements(problem: Problem, start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Element bits of both operands between two k."""
    k = problem.plan.shape[-1]
    a = matrix(problem.a, problem.a_format, problem.packed[0], -1, k)
    b = matrix(problem.b, problem.b_format, problem.packed[1], -2, k)
    return a[..., start:stop], b[..., start:stop, :]


def _maps(problem: Problem, c: NDArray[Any] | None) -> tuple[NDArray[np.int64], ...]:
    """For each item of the batch, which matrix of a, b and c it uses."""
    if not problem.batch:
        return tuple(np.array([-1 if x is None else 0]) for x in (problem.a, problem.b, c))
    maps = []
    for x in (problem.a, problem.b, c):
        if x is None:
            maps.append(np.full(problem.batch, -1).reshape(-1))
        else:
            own = np.arange(prod(x.shape[:-2])).reshape(x.shape[:-2])
            maps.append(np.ascontiguousarray(np.broadcast_to(own, problem.batch)).reshape(-1))
    return tuple(maps)


def by_chain(
    problem: Problem, c: NDArray[Any] | None, d: NDArray[Any], start: int, stop: int, team: ThreadTeam,
    chosen: NDArray[np.int64] | None = None,
) -> None:  # fmt: skip
    a, b = _elements(problem, start, stop)
    maps = _maps(problem, c)
    chain_engine.run(a, b, c, d, (maps[0], maps[1], maps[2]), problem.plan.params, team, chosen)


def by_item(problem: Problem, c: NDArray[Any] | None, d: NDArray[Any], start: int, stop: int, team: ThreadTeam) -> None:
    """Each item of the batch by a vector engine, then whatever that does not vouch for by chain."""
    product = _fused if problem.plan.model.kind in (Kind.FUSED, Kind.EMULATED_FP8) else _words
    has_c, a, b = c is not None, problem.a, problem.b
    if not problem.batch or problem.merged:
        if problem.batch:  # one B for all items: their rows are rows of one product
            a, b, d = a.reshape(-1, a.shape[-1]), b.reshape(b.shape[-2:]), d.reshape(-1, d.shape[-1])
        for marked in product(problem, a, b, d, start, stop, has_c, team):
            by_chain(problem, c, d, start, stop, team, marked)
        return
    maps, items = _maps(problem, c), d.reshape(-1, *d.shape[-2:])

    def one(workers: ThreadTeam, item: int) -> None:
        x, y = _item(a, maps[0][item]), _item(b, maps[1][item])
        for marked in product(problem, x, y, items[item], start, stop, has_c, workers):
            by_chain(problem, c, d, start, stop, workers, marked + item * items[item].size)

    macs = items[0].size * (stop - start)
    if macs < ITEM:  # items are shared out whole: threads within one would wait for each other
        team.run(one, (ThreadTeam(1, False, 0),), [(item,) for item in range(len(items))], macs)
        return
    for item in range(len(items)):
        one(team, item)


def _item(x: NDArray[Any], index: int) -> NDArray[Any]:
    """Matrix `index` of the batch axes, counted in C order."""
    return x[np.unravel_index(index, x.shape[:-2])] if x.ndim > 2 else x


def _cut(a: NDArray[Any], b: NDArray[Any], start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """The operands' elements between two k."""
    return (a, b) if stop - start == b.shape[0] else (a[:, start:stop], b[start:stop])


def _fused(
    problem: Problem,
    a: NDArray[Any],
    b: NDArray[Any],
    d: NDArray[Any],
    start: int,
    stop: int,
    has_c: bool,
    team: ThreadTeam,
) -> Iterable[NDArray[np.int64]]:
    """d = chain on the fused engine; positions of outputs to be done again, some at a time."""
    plan, formats = problem.plan, (problem.a_format, problem.b_format)
    a, b = _cut(a, b, start, stop)
    if plan.engine == "portable":
        portable = PortableProduct(a, b, formats, plan.params, team)
        portable.run(d)
        return _positions(portable.redo)
    product = FusedProduct(a, b, formats, plan.params, team)
    if problem.acc.bits == 32:
        product.run(d.view(np.float32), has_c)
        return product.marked(d.shape)
    with np.errstate(all="ignore"):
        state = d.view(np.float16).astype(np.float32)
        state += np.float32(0)  # -0 is no number of the least exponent
        product.run(state, has_c)
        d.view(np.float16)[...] = state
    return product.marked(d.shape)


def _words(
    problem: Problem,
    a: NDArray[Any],
    b: NDArray[Any],
    d: NDArray[Any],
    start: int,
    stop: int,
    has_c: bool,
    team: ThreadTeam,
) -> Iterable[NDArray[np.int64]]:
    """d += A * B on words; positions of outputs to be done again (f64 with NaN), some at a time."""
    plan, formats = problem.plan, (problem.a_format, problem.b_format)
    if formats[0].packed:
        a, b = (_packed(v, problem, side, start, stop) for side, v in enumerate((a, b)))
    else:
        a, b = _cut(a, b, start, stop)
    if plan.model.kind == Kind.FMA64:
        return _doubles(plan, formats, a, b, d, team)
    acc, p = d.view(np.int32), plan.params
    if plan.model.kind == Kind.BITS:
        op = micro.AND if p[BIT_OP] == BIT_OPS["and"] else micro.XOR
        WordsProduct(scheme(op, *formats), team).run(a, b, acc)
    elif not p[SATURATE] or _never_clamps(acc, stop - start, formats):
        WordsProduct(scheme(micro.dot_of_bytes(), *formats), team).run(a, b, acc)
    else:
        return (np.arange(i, min(d.size, i + POSITIONS)) for i in range(0, d.size, POSITIONS))  # may clamp midway
    return ()


def _positions(*masks: Any) -> Iterator[NDArray[np.int64]]:
    """Where one of some masks that broadcast to a matrix is set, some rows at a time."""
    m, n = np.broadcast_shapes(*(mask.shape for mask in masks))
    step = max(1, POSITIONS // max(1, n))
    for i in range(0, m, step):
        part = np.zeros((min(step, m - i), n), bool)
        for mask in masks:
            part |= (mask[i : i + step] if len(mask) > 1 else mask).astype(bool)
        found = np.flatnonzero(part)
        if found.size:
            yield found + i * n


def _never_clamps(acc: NDArray[np.int32], k: int, formats: tuple[Format, Format]) -> bool:
    """No chain can leave int32: the largest start plus the largest possible sum stays inside."""
    most = k
    for f in formats:
        most *= max(-f.low, f.high)
    top = max(-int(acc.min()), int(acc.max())) if acc.size else 0
    return top + most < 1 << 31


def _packed(x: NDArray[Any], problem: Problem, side: int, start: int, stop: int) -> NDArray[np.uint32]:
    """Elements start..stop of K of a 4-bit or bit operand as packed words along K."""
    fmt, axis = (problem.a_format, problem.b_format)[side], (-1, -2)[side]
    k, per = problem.plan.shape[-1], fmt.per_word
    if problem.packed[side] and start % per == 0 and (stop == x.shape[axis] * per or stop % per == 0):
        words = slice(start // per, -(-stop // per))
        return x[:, words] if side == 0 else x[words]
    bits = matrix(x, fmt, problem.packed[side], axis, k)
    cut = bits[:, start:stop] if side == 0 else bits[start:stop]
    return pack(from_bits(cut, fmt), fmt, axis=axis)


def _doubles(
    plan: Plan, formats: tuple[Format, Format], a: NDArray[Any], b: NDArray[Any], d: NDArray[Any], team: ThreadTeam
) -> Iterable[NDArray[np.int64]]:
    """d = chain; a NaN keeps its payload by rules of its own, Infs and what they make are as the host has them."""
    x, y, acc = a.view(np.float64), b.view(np.float64), d.view(np.float64)
    odd = np.isnan(x).any(axis=1, keepdims=True), np.isnan(y).any(axis=0, keepdims=True), np.isnan(acc)
    again = _positions(*odd) if any(m.any() for m in odd) else ()
    name = {code: text for text, code in ROUNDINGS.items()}[int(plan.params[ROUNDING])]
    pad = -a.shape[1] % int(plan.params[STEP])
    product = WordsProduct(scheme(micro.FMA, *formats, micro.ROUND[name]), team)
    product.run(x, y, acc)
    if pad:  # steps are padded with zeros, which turns a final -0 into +0 (and keeps it in .rm)
        product.run(np.zeros((a.shape[0], 1)), np.zeros((1, b.shape[1])), acc)
    return again
