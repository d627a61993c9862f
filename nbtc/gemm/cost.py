"""What a product costs in memory beyond its operands."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

from numpy.typing import NDArray

from nbtc.formats.table import Format
from nbtc.gemm.shares import COLUMNS, buffers, columns_at_once

OVERHEAD = 8 << 20  # what allocators keep and threads' stacks hold
POSITIONS = 1 << 20  # outputs whose repair is looked for at once


class Size(NamedTuple):
    """How large a product is: formats of A, B and the accumulator, (batch..., M, N, K), the shape of a block of the
    result, threads, and whether the items of the batch have one B.
    """

    formats: tuple[Format, Format, Format]
    shape: tuple[int, ...]
    block: tuple[int, ...]
    threads: int
    merged: bool


def copied_bytes(a: NDArray[Any]) -> int:
    """Bytes of a copy that makes one matrix of the items of a batch; 0 where they are one as they lie."""
    if a.ndim < 3:
        return 0
    axes = [(n, stride) for n, stride in zip(a.shape[:-1], a.strides[:-1], strict=True) if n != 1]
    even = all(outer == n * inner for (_, outer), (n, inner) in pairwise(axes))
    return 0 if even else a.nbytes


def chain_bytes(size: Size) -> int:
    """Upper bound of the memory of outputs computed one at a time."""
    (fa, fb, acc), (*batch, m, n) = size.formats, size.block
    items, k = prod(batch), size.shape[-1]
    copies = items * (m * k * fa.dtype.itemsize + k * n * fb.dtype.itemsize)
    return items * m * n * acc.dtype.itemsize * 2 + copies + OVERHEAD


def packed_bytes(size: Size, mark: int) -> int:
    """Upper bound of the memory of packed operands, `mark` bytes an output beside it, and what repairs take."""
    (fa, _, acc), (*batch, m, n), threads = size.formats, size.block, size.threads
    items, k = prod(batch), size.shape[-1]
    result = items * m * n * acc.dtype.itemsize
    few, depth = min(COLUMNS, -(-n // 64) * 64), -(-k // 32) * 32
    column, word = max(11 * min(512, depth), 7 * min(1024, depth)), fa.dtype.itemsize  # a packed column of either kind
    at_once = 1 if size.merged else min(items, threads)  # items that threads work on
    # items on one thread each pack few columns, the threads of one item more, and the next ones ahead
    columns = max(at_once * few, min(buffers(threads, 2) * columns_at_once(threads), -(-n // 64) * 64 * -(-k // 512)))
    packed = columns * (column + word * min(1024, depth)) + threads * (64 * column + 512 * 1024 * word + (1 << 16))
    whole = at_once * (m + n) * k if fa.packed else 0  # words of a part of K
    outputs = m * n * (items if size.merged else at_once)
    state = outputs * (4 if acc.name == "f16" else mark)
    found = 11 * max(min(outputs, POSITIONS), 64 * n) if fa.kind == "float" else 0  # outputs that Inf or NaN may reach
    nan = at_once * (m * k + k * n) + outputs if fa.name == "f64" else 0  # where operands are NaN
    return result + packed + whole + state + found + nan + OVERHEAD
