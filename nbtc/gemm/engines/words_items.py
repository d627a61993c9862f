"""Integers, bits and f64: an item's operands as kernels of words read them, its product, and its call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.threads import ThreadTeam
from nbtc.formats.arrays import from_bits, pack
from nbtc.formats.table import Format, s8
from nbtc.gemm.cost import POSITIONS
from nbtc.gemm.engines.words_engine import Scheme, WordsProduct, scheme, words_call
from nbtc.gemm.item import Item, Positions, positions
from nbtc.gemm.problem import matrix
from nbtc.gemm.repeated import Call
from nbtc.kernels.words import words as micro
from nbtc.numerics.ieee import INVALID64
from nbtc.numerics.models import BIT_OP, BIT_OPS, ROUNDING, ROUNDINGS, SATURATE, STEP, Kind

NONE = np.zeros(0, np.int32)


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


def _of_bits(item: Item) -> Scheme:
    op = micro.AND if item.problem.plan.params[BIT_OP] == BIT_OPS["and"] else micro.XOR
    return scheme(op, *item.formats)


def _bits(item: Item, team: ThreadTeam) -> Positions:
    WordsProduct(_of_bits(item), team).run(*_operands(item), item.d.view(np.int32), not item.has_c)
    return ()


def _of_doubles(item: Item) -> Scheme:
    name = {code: text for text, code in ROUNDINGS.items()}[int(item.problem.plan.params[ROUNDING])]
    return scheme(micro.FMA, *item.formats, micro.ROUND[name])


def _doubles(item: Item, team: ThreadTeam) -> Positions:
    """d = chain.  Which NaN a product keeps is for the chain to say; that of Inf * 0 and Inf - Inf is written here.

    Not left to the host: x86 makes the GPU's, AArch64 the one of the other sign.
    """
    params = item.problem.plan.params
    a, b = item.elements
    x, y, acc = a.view(np.float64), b.view(np.float64), item.d.view(np.float64)
    nans = [np.isnan(x).any(axis=1, keepdims=True), np.isnan(y).any(axis=0, keepdims=True)]
    nans += [np.isnan(acc)] if item.has_c else []
    again = positions(*nans) if any(m.any() for m in nans) else ()
    pad = -a.shape[1] % int(params[STEP])
    product = WordsProduct(_of_doubles(item), team)
    product.run(x, y, acc, not item.has_c)
    if pad:  # steps are padded with zeros, which turns a final -0 into +0 (and keeps it in .rm)
        product.run(np.zeros((a.shape[0], 1)), np.zeros((1, b.shape[1])), acc)
    item.d.view(np.uint64)[np.isnan(acc)] = INVALID64
    return again


PRODUCTS: dict[Kind, Callable[[Item, ThreadTeam], Positions]] = {
    Kind.INTEGER: _integers, Kind.BITS: _bits, Kind.FMA64: _doubles,
}  # fmt: skip


def _integer_call(item: Item) -> Call | None:
    """None of sums that may clamp, and of 4-bit elements that are made bytes first."""
    p = item.problem.plan.params
    if (p[SATURATE] and not _never_clamps(NONE, item.cut[1], item.formats)) or not _one_layout(item):
        return None
    return words_call(scheme(micro.dot_of_bytes(), *item.formats), item.a, item.b)


def _bit_call(item: Item) -> Call | None:
    return words_call(_of_bits(item), item.a, item.b) if _one_layout(item) else None


def _double_call(item: Item) -> Call | None:
    """NaNs are for the product with its repairs; None where the last step is padded."""
    padded = item.cut[1] % int(item.problem.plan.params[STEP])
    return None if padded else words_call(_of_doubles(item), item.a, item.b)


def _one_layout(item: Item) -> bool:
    """Whether both operands are packed words where their formats are made for that, and no word is cut."""
    fmt = item.formats[0]
    whole = not fmt.packed or item.cut[1] % fmt.per_word == 0
    return whole and all(x == fmt.packed for x in item.problem.packed)


CALLS: dict[Kind, Callable[[Item], Call | None]] = {
    Kind.INTEGER: _integer_call, Kind.BITS: _bit_call, Kind.FMA64: _double_call,
}  # fmt: skip
