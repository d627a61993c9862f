"""The engines: which arithmetic each has, what it takes, and a product's items on it.

A fast engine may be narrow: it names outputs that it does not vouch for, and those are done again by chain.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.cpu.host import has_avx512
from nbtc.compiler.cpu.processors import host_processor
from nbtc.compiler.threads import ThreadTeam
from nbtc.gemm.cost import Size, chain_bytes, packed_bytes
from nbtc.gemm.engines import chain_engine
from nbtc.gemm.engines.fused_call import fused_call
from nbtc.gemm.engines.fused_engine import FusedProduct, serves
from nbtc.gemm.engines.portable_engine import PortableProduct
from nbtc.gemm.engines.words_items import CALLS, PRODUCTS
from nbtc.gemm.item import Cut, Item, Positions, positions
from nbtc.gemm.problem import Problem, matrix
from nbtc.gemm.repeated import Call, Ranges
from nbtc.gemm.shares import copy
from nbtc.kernels.words import words as micro
from nbtc.numerics.models import (
    BLOCK,
    FRACTION,
    KIND,
    ROUNDING,
    ROUNDINGS,
    Kind,
)

ALONE = ThreadTeam(1, False, 0)  # of one thread, which reports to nobody
ITEM = 1 << 25  # multiply-adds of an item that is worth several threads, some milliseconds
MOST = 29  # the portable tiles notice a 32-bit sum that wrapped once: block * 4 * 2**fraction may not exceed 2**31
P = TypeVar("P")
Taken = TypeVar("Taken", contravariant=True)


class Engine(Protocol[Taken]):
    """Computes whole products of one kind of problem.

    name: in a `Plan`.  rate: G multiply-adds a second of a thread on a server of 2023: what estimates rest on.  worth:
    multiply-adds that take some 0.3 ms on one thread: below, waking another costs more than it saves.  complete: no
    output is left to another engine.  An engine with `fills = True` takes a d that may hold anything where c is None.
    One with `call(problem, before)` makes a single native call of a product that is asked for again (`repeated`).
    """

    name: str
    rate: float
    worth: int
    complete: bool

    def serves(self, params: NDArray[np.int64]) -> bool:
        """Whether it has arithmetic of these parameters on this host."""

    def peak_bytes(self, size: Size) -> int:
        """Upper bound of the memory a product takes beyond its operands."""

    def run(self, problem: Taken, c: NDArray[Any] | None, d: NDArray[Any], cut: Cut, team: ThreadTeam) -> None:
        """d, zeros of (batch..., M, N), or anything (see above): one chain an output between two k, from c or zero."""


class ChainEngine:
    """Outputs one at a time: serves everything, and repairs what the others leave."""

    name, rate, worth, complete = "chain", 0.03, 30_000, True

    def serves(self, params: NDArray[np.int64]) -> bool:
        return True

    def peak_bytes(self, size: Size) -> int:
        return chain_bytes(size)

    def run(self, problem: Problem, c: NDArray[Any] | None, d: NDArray[Any], cut: Cut, team: ThreadTeam) -> None:
        self.some(problem, c, d, cut, team, None)

    def some(
        self, problem: Problem, c: NDArray[Any] | None, d: NDArray[Any], cut: Cut, team: ThreadTeam,
        chosen: NDArray[np.int64] | None,
    ) -> None:  # fmt: skip
        """The outputs at chosen positions, or all."""
        k, (start, stop) = problem.plan.shape[-1], cut
        a = matrix(problem.a, problem.a_format, problem.packed[0], -1, k)[..., start:stop]
        b = matrix(problem.b, problem.b_format, problem.packed[1], -2, k)[..., start:stop, :]
        chain_engine.run(a, b, c, d, _maps(problem, c), problem.plan.params, team, chosen)


CHAIN = ChainEngine()


class _ByItem(ABC):
    """Computes one item of a batch after the other; where all have the same B, they are one."""

    mark = 0  # bytes beside an output
    complete = False

    def peak_bytes(self, size: Size) -> int:
        return packed_bytes(size, self.mark)

    @abstractmethod
    def product(self, item: Item, team: ThreadTeam) -> Positions:
        """Compute an item; positions of outputs to be done again, some at a time."""

    def call(self, problem: Problem, before: Ranges) -> Call | None:
        """What computes a product of two matrices as this one, from zero, on one thread; None where nothing does.

        before: ranges of exponents that a call must cover too.
        """
        cut, nowhere = (0, problem.plan.shape[-1]), np.zeros((0, 0), problem.acc.bits_dtype)
        return self.item_call(Item(problem, problem.a, problem.b, nowhere, cut, False), before)

    @abstractmethod
    def item_call(self, item: Item, before: Ranges) -> Call | None:
        """That of an item, whose result is nowhere yet."""

    def run(self, problem: Problem, c: NDArray[Any] | None, d: NDArray[Any], cut: Cut, team: ThreadTeam) -> None:
        has_c = c is not None
        if c is not None:
            copy(d, np.broadcast_to(c, d.shape), team)
        a, b, whole = problem.a, problem.b, d
        if not problem.batch or problem.merged:
            if problem.batch:  # one B for all items: their rows are rows of one product
                a, b, whole = a.reshape(-1, a.shape[-1]), b.reshape(b.shape[-2:]), d.reshape(-1, d.shape[-1])
            for marked in self.product(Item(problem, a, b, whole, cut, has_c), team):
                CHAIN.some(problem, c, d, cut, team, marked)
            return
        maps, items = _maps(problem, c), d.reshape(-1, *d.shape[-2:])

        def one(workers: ThreadTeam, i: int) -> None:
            item = Item(problem, _matrix_at(a, maps[0][i]), _matrix_at(b, maps[1][i]), items[i], cut, has_c)
            for marked in self.product(item, workers):
                CHAIN.some(problem, c, d, cut, workers, marked + i * items[i].size)

        each_item(one, len(items), items[0].size * (cut[1] - cut[0]), team)


def each_item(one: Callable[[ThreadTeam, int], None], count: int, macs: int, team: ThreadTeam) -> None:
    """one(threads, i) for each item of a batch, of so many multiply-adds."""
    if macs < ITEM:  # items are shared out whole: threads within one would wait for each other
        team.run(one, (ALONE,), [(i,) for i in range(count)], macs)
        return
    for i in range(count):
        one(team, i)


class PanelEngine(_ByItem):
    """Register-tiled fused sums of packed panels."""

    name, rate, worth, fills = "panel", 12.0, 6_000_000, True

    def serves(self, params: NDArray[np.int64]) -> bool:
        if params[KIND] not in (Kind.FUSED, Kind.EMULATED_FP8) or host_processor() is None:
            return False
        return serves(int(params[BLOCK]), int(params[FRACTION]), bool(params[KIND] == Kind.EMULATED_FP8))

    def item_call(self, item: Item, before: Ranges) -> Call | None:
        return fused_call(FusedProduct(*item.elements, item.formats, item.problem.plan.params, ALONE), before)

    def product(self, item: Item, team: ThreadTeam) -> Positions:
        d, product = item.d, FusedProduct(*item.elements, item.formats, item.problem.plan.params, team)
        if item.problem.acc.bits == 32:
            product.run(d.view(np.float32), item.has_c)
            return product.marked(d.shape)
        with np.errstate(all="ignore"):
            state = np.empty(d.shape, np.float32)
            if item.has_c:
                copy(state, d.view(np.float16), team)
                state += np.float32(0)  # -0 is not a number of the least exponent
            product.run(state, item.has_c)
            copy(d.view(np.float16), state, team)
        return product.marked(d.shape)


class PortableEngine(_ByItem):
    """Fused sums of rows in plain vector code."""

    name, rate, worth, mark = "portable", 2.0, 1_000_000, 1

    def serves(self, params: NDArray[np.int64]) -> bool:
        return bool(params[KIND] == Kind.FUSED and params[BLOCK] <= 1 << (MOST - int(params[FRACTION])))

    def item_call(self, item: Item, before: Ranges) -> Call | None:
        return None

    def product(self, item: Item, team: ThreadTeam) -> Positions:
        product = PortableProduct(*item.elements, item.formats, item.problem.plan.params, team)
        product.run(item.d)
        return positions(product.redo)


class WordsEngine(_ByItem):
    """Integers, bits and f64."""

    name, rate, worth, fills = "words", 60.0, 10_000_000, True

    def serves(self, params: NDArray[np.int64]) -> bool:
        if params[KIND] == Kind.FMA64:  # only AVX-512 names another rounding in the instruction
            return params[ROUNDING] == ROUNDINGS["rn"] or has_avx512()
        return params[KIND] in (Kind.INTEGER, Kind.BITS)

    def item_call(self, item: Item, before: Ranges) -> Call | None:
        return CALLS[item.problem.plan.model.kind](item)

    def product(self, item: Item, team: ThreadTeam) -> Positions:
        return PRODUCTS[item.problem.plan.model.kind](item, team)


class TileRegistersEngine(WordsEngine):
    """Integers in AMX's tile registers."""

    name, rate, worth = "amx", 800.0, 200_000_000

    def serves(self, params: NDArray[np.int64]) -> bool:
        return bool(params[KIND] == Kind.INTEGER and micro.dot_of_bytes() == micro.AMX)


# Of those that serve, the first is the fastest.
ENGINES: list[Engine[Problem]] = [PanelEngine(), PortableEngine(), TileRegistersEngine(), WordsEngine(), CHAIN]


def named(name: str, engines: Sequence[Engine[P]]) -> Engine[P]:
    """The engine of a plan."""
    for engine in engines:
        if engine.name == name:
            return engine
    raise LookupError(name)


def engines_for(params: NDArray[np.int64], engines: Sequence[Engine[P]]) -> tuple[Engine[P], ...]:
    """The engines that can compute arithmetic of these parameters on this host, the fastest first."""
    return tuple(engine for engine in engines if engine.serves(params))


def _maps(problem: Problem, c: NDArray[Any] | None) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """For each item of the batch, which matrix of a, b and c it uses."""
    a, b, own = (_map(x, problem.batch) for x in (problem.a, problem.b, c))
    return a, b, own


def _map(x: NDArray[Any] | None, batch: tuple[int, ...]) -> NDArray[np.int64]:
    if x is None:
        return np.full(prod(batch), -1)
    if not batch:
        return np.zeros(1, np.int64)
    own = np.arange(prod(x.shape[:-2])).reshape(x.shape[:-2])
    # a copy in any case: a broadcast array is read-only, and kernels would be compiled once more for each such operand
    return np.array(np.broadcast_to(own, batch), order="C").reshape(-1)


def _matrix_at(x: NDArray[Any], index: int) -> NDArray[Any]:
    """Matrix `index` of the batch axes, counted in C order."""
    return x[np.unravel_index(index, x.shape[:-2])] if x.ndim > 2 else x
