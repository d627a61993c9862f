"""What a product costs: memory beyond its operands, and roughly how long it takes."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any

from numpy.typing import NDArray

from nbtc.formats.table import Format

OVERHEAD = 8 << 20  # what allocators keep and threads' stacks hold
POSITIONS = 1 << 20  # outputs whose repair is looked for at once
# G multiply-adds a second of a thread on a server of 2023, by engine: what an estimate of time rests on
RATES = {"panel": 12.0, "portable": 2.0, "words": 60.0, "chain": 0.03}


def copied_bytes(a: NDArray[Any]) -> int:
    """Bytes of a copy that makes one matrix of the items of a batch; 0 where they are one as they lie."""
    axes = [(n, stride) for n, stride in zip(a.shape[:-1], a.strides[:-1], strict=True) if n != 1]
    even = all(outer == n * inner for (_, outer), (n, inner) in pairwise(axes))
    return 0 if even or a.ndim == 2 else a.nbytes


def peak_bytes(
    engine: str, formats: tuple[Format, Format, Format], shape: tuple[int, ...], threads: int, merged: bool
) -> int:
    """Upper bound of the memory a product takes beyond its operands."""
    fa, fb, acc = formats
    *batch, m, n, k = shape
    items = prod(batch)
    result = items * m * n * acc.dtype.itemsize
    if engine == "chain":
        copies = items * (m * k * fa.dtype.itemsize + k * n * fb.dtype.itemsize)
        return result * 2 + copies + OVERHEAD
    columns, depth = min(1024, -(-n // 64) * 64), -(-k // 32) * 32
    wide, word = max(11 * min(512, depth), 7 * min(1024, depth)), fa.dtype.itemsize  # a packed column of either kind
    at_once = 1 if merged else min(items, threads)  # items that threads work on
    packed = at_once * columns * (wide + word * min(1024, depth)) + threads * (
        64 * wide + 512 * 1024 * word + (1 << 16)
    )
    whole = at_once * (m + n) * k if fa.packed else 0  # words of a part of K
    outputs = m * n * (items if merged else at_once)
    state = outputs * 4 if acc.name == "f16" else outputs if engine == "portable" else 0
    found = 11 * max(min(outputs, POSITIONS), 64 * n) if fa.kind == "float" else 0  # outputs that Inf or NaN may reach
    nan = at_once * (m * k + k * n) + outputs if fa.name == "f64" else 0  # where operands are NaN
    return result + packed + whole + state + found + nan + OVERHEAD
