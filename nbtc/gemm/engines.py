"""The engines: which arithmetic each has, what it takes, and a product's items on it.

A fast engine may be narrow: it names outputs that it does not vouch for, and those are done again by chain.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.host import has_avx512
from nbtc.compiler.processors import host_processor
from nbtc.compiler.threads import ThreadTeam
from nbtc.formats.arrays import from_bits, pack
from nbtc.formats.table import Format, s8
from nbtc.gemm import chain_engine
from nbtc.gemm.cost import POSITIONS, Size, chain_bytes, packed_bytes
from nbtc.gemm.fused_engine import FusedProduct, serves
from nbtc.gemm.portable_engine import PortableProduct
from nbtc.gemm.problem import Problem, matrix
from nbtc.gemm.shares import copy
from nbtc.gemm.words_engine import WordsProduct, scheme
from nbtc.kernels import words as micro
from nbtc.numerics.ieee import INVALID64
from nbtc.numerics.models import (
    BIT_OP,
    BIT_OPS,
    BLOCK,
    FRACTION,
    KIND,
    ROUNDING,
    ROUNDINGS,
    SATURATE,
    STEP,
    Kind,
)

ITEM = 1 << 25  # multiply-adds of an item that is worth several threads, some milliseconds
MOST = 29  # the portable tiles notice a 32-bit sum that wrapped once: block * 4 * 2**fraction may not exceed 2**31
NONE = np.zeros(0, np.int32)
Positions = Iterable[NDArray[np.int64]]
Cut = tuple[int, int]  # from one k to another
P = TypeVar("P")
Taken = TypeVar("Taken", contravariant=True)


class Engine(Protocol[Taken]):
    """Computes whole products of one kind of problem.

    name: in a `Plan`.  rate: G multiply-adds a second of a thread on a server of 2023: what estimates rest on.  worth:
    multiply-adds that take some 0.3 ms on one thread: below, waking another costs more than it saves.  complete: no
    output is left to another engine.  An engine with `fills = True` takes a d that may hold anything where c is None.
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


class Chain:
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


CHAIN = Chain()


class Item(NamedTuple):
    """Two matrices of a product between two k and their result, in which the start values are; has_c: not all zero."""

    problem: Problem
    a: NDArray[Any]
    b: NDArray[Any]
    d: NDArray[Any]
    cut: Cut
    has_c: bool

    @property
    def formats(self) -> tuple[Format, Format]:
        return self.problem.a_format, self.problem.b_format

    @property
    def elements(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The operands between the two k; of those that hold one element a word."""
        start, stop = self.cut
        return (self.a, self.b) if stop - start == self.b.shape[0] else (self.a[:, start:stop], self.b[start:stop])


class _ByItem(ABC):
    """Computes one item of a batch after the other; where all have the same B, they are one."""

    mark = 0  # bytes beside an output
    complete = False

    def peak_bytes(self, size: Size) -> int:
        return packed_bytes(size, self.mark)

    @abstractmethod
    def product(self, item: Item, team: ThreadTeam) -> Positions:
        """Compute an item; positions of outputs to be done again, some at a time."""

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

        macs = items[0].size * (cut[1] - cut[0])
        if macs < ITEM:  # items are shared out whole: threads within one would wait for each other
            team.run(one, (ThreadTeam(1, False, 0),), [(i,) for i in range(len(items))], macs)
            return
        for i in range(len(items)):
            one(team, i)


class Panel(_ByItem):
    """Register-tiled fused sums of packed panels."""

    name, rate, worth = "panel", 12.0, 6_000_000

    def serves(self, params: NDArray[np.int64]) -> bool:
        if params[KIND] not in (Kind.FUSED, Kind.EMULATED_FP8) or host_processor() is None:
            return False
        return serves(int(params[BLOCK]), int(params[FRACTION]), bool(params[KIND] == Kind.EMULATED_FP8))

    def product(self, item: Item, team: ThreadTeam) -> Positions:
        d, product = item.d, FusedProduct(*item.elements, item.formats, item.problem.plan.params, team)
        if item.problem.acc.bits == 32:
            product.run(d.view(np.float32), item.has_c)
            return product.marked(d.shape)
        with np.errstate(all="ignore"):
            state = np.empty(d.shape, np.float32)
            copy(state, d.view(np.float16), team)
            state += np.float32(0)  # -0 is not a number of the least exponent
            product.run(state, item.has_c)
            copy(d.view(np.float16), state, team)
        return product.marked(d.shape)


class Portable(_ByItem):
    """Fused sums of rows in plain vector code."""

    name, rate, worth, mark = "portable", 2.0, 1_000_000, 1

    def serves(self, params: NDArray[np.int64]) -> bool:
        return bool(params[KIND] == Kind.FUSED and params[BLOCK] <= 1 << (MOST - int(params[FRACTION])))

    def product(self, item: Item, team: ThreadTeam) -> Positions:
        product = PortableProduct(*item.elements, item.formats, item.problem.plan.params, team)
        product.run(item.d)
        return _positions(product.redo)


class Words(_ByItem):
    """Integers, bits and f64."""

    name, rate, worth, fills = "words", 60.0, 10_000_000, True

    def serves(self, params: NDArray[np.int64]) -> bool:
        if params[KIND] == Kind.FMA64:  # only AVX-512 names another rounding in the instruction
            return params[ROUNDING] == ROUNDINGS["rn"] or has_avx512()
        return params[KIND] in (Kind.INTEGER, Kind.BITS)

    def product(self, item: Item, team: ThreadTeam) -> Positions:
        return _WORDS[item.problem.plan.model.kind](item, team)


class TileRegisters(Words):
    """Integers in AMX's tile registers."""

    name, rate, worth = "amx", 800.0, 200_000_000

    def serves(self, params: NDArray[np.int64]) -> bool:
        return bool(params[KIND] == Kind.INTEGER and micro.dot_of_bytes() == micro.AMX)


# Of those that serve, the first is the fastest.
ENGINES: list[Engine[Problem]] = [Panel(), Portable(), TileRegisters(), Words(), CHAIN]


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


def _packed(item: Item, side: int) -> NDArray[np.uint32]:
    """A 4-bit or bit operand between the two k as packed words along K."""
    problem, (start, stop) = item.problem, item.cut
    x, fmt, axis = (item.a, item.b)[side], item.formats[side], (-1, -2)[side]
    k, per = problem.plan.shape[-1], fmt.per_word
    if problem.packed[side] and start % per == 0 and (stop == x.shape[axis] * per or stop % per == 0):
        words = slice(start // per, -(-stop // per))
        return x[:, words] if side == 0 else x[words]
    bits = matrix(x, fmt, problem.packed[side], axis, k)
    cut = bits[:, start:stop] if side == 0 else bits[start:stop]
    return pack(from_bits(cut, fmt), fmt, axis=axis)


def _operands(item: Item) -> tuple[NDArray[Any], NDArray[Any]]:
    """The operands as kernels of words read them."""
    return (_packed(item, 0), _packed(item, 1)) if item.formats[0].packed else item.elements


def _bytes(x: NDArray[np.uint8], fmt: Format) -> NDArray[np.uint8]:
    """4-bit elements, one a byte, as signed bytes."""
    if not fmt.signed:
        return x
    wide = x ^ np.uint8(8)
    wide -= np.uint8(8)
    return wide


def _integer_operands(item: Item) -> tuple[tuple[NDArray[Any], NDArray[Any]], tuple[Format, Format]]:
    """Operands as kernels of words read them, and their formats there.

    Unpacked 4-bit elements become bytes: packed into words, which kernels unpack again, they took a product of 1024^3
    half its time.
    """
    if item.formats[0].packed and not any(item.problem.packed):
        a, b = (_bytes(x, fmt) for x, fmt in zip(item.elements, item.formats, strict=True))
        return (a, b), (s8, s8)
    return _operands(item), item.formats


def _integers(item: Item, team: ThreadTeam) -> Positions:
    acc, p = item.d.view(np.int32), item.problem.plan.params
    if p[SATURATE] and not _never_clamps(acc if item.has_c else NONE, item.cut[1] - item.cut[0], item.formats):
        return (np.arange(i, min(acc.size, i + POSITIONS)) for i in range(0, acc.size, POSITIONS))  # may clamp midway
    operands, formats = _integer_operands(item)
    WordsProduct(scheme(micro.dot_of_bytes(), *formats), team).run(*operands, acc, not item.has_c)
    return ()


def _bits(item: Item, team: ThreadTeam) -> Positions:
    op = micro.AND if item.problem.plan.params[BIT_OP] == BIT_OPS["and"] else micro.XOR
    WordsProduct(scheme(op, *item.formats), team).run(*_operands(item), item.d.view(np.int32), not item.has_c)
    return ()


def _doubles(item: Item, team: ThreadTeam) -> Positions:
    """d = chain.  Which NaN a product keeps is for the chain to say; that of Inf * 0 and Inf - Inf is written here.

    Not left to the host: x86 makes the GPU's, AArch64 the one of the other sign.
    """
    params, formats = item.problem.plan.params, item.formats
    a, b = item.elements
    x, y, acc = a.view(np.float64), b.view(np.float64), item.d.view(np.float64)
    nans = [np.isnan(x).any(axis=1, keepdims=True), np.isnan(y).any(axis=0, keepdims=True)]
    nans += [np.isnan(acc)] if item.has_c else []
    again = _positions(*nans) if any(m.any() for m in nans) else ()
    name = {code: text for text, code in ROUNDINGS.items()}[int(params[ROUNDING])]
    pad = -a.shape[1] % int(params[STEP])
    product = WordsProduct(scheme(micro.FMA, *formats, micro.ROUND[name]), team)
    product.run(x, y, acc, not item.has_c)
    if pad:  # steps are padded with zeros, which turns a final -0 into +0 (and keeps it in .rm)
        product.run(np.zeros((a.shape[0], 1)), np.zeros((1, b.shape[1])), acc)
    item.d.view(np.uint64)[np.isnan(acc)] = INVALID64
    return again


_WORDS: dict[Kind, Callable[[Item, ThreadTeam], Positions]] = {
    Kind.INTEGER: _integers, Kind.BITS: _bits, Kind.FMA64: _doubles,
}  # fmt: skip
