"""fp8 mma.sync of architectures without such a unit, as they do it: with f16 products, by the vector code of those.

A word of four fp8 elements is two words of f16 ones, whose lanes and registers are those of an f16 form of half the
depth: elements of k mod 4 in {0, 1} make the first product, {2, 3} the second, and c is added in the end.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc._jit import jit
from nbtc.formats.table import Format
from nbtc.ops.images import Words
from nbtc.ops.mma_shape import Shape
from nbtc.ops.mma_vector import kernel


@cache
def table(fmt: Format) -> Words:
    """f16 bits of every fp8 code: exact, NaN to NaN."""
    return np.arange(256, dtype=np.uint8).view(fmt.dtype).astype(np.float16).view(np.uint16).astype(np.uint32)


@jit
def _widened(words, table, first, second):
    """The lower and the upper two elements of each word, as f16."""
    eight, byte = np.uint32(8), np.uint32(255)
    for i in range(words.size):
        w = words[i]
        first[i] = table[w & byte] | table[w >> eight & byte] << np.uint32(16)
        w >>= np.uint32(16)
        second[i] = table[w & byte] | table[w >> eight] << np.uint32(16)


def run(
    shape: Shape,
    numbers: tuple[int, int],
    formats: tuple[Format, Format],
    operands: list[tuple[Words, int]],
    result: Words,
    doubt: NDArray[np.uint8],
) -> bool:
    """D of len(doubt) warps; operands: (words, words from one warp to the next) of A, B and C.

    numbers: F and the floor.  doubt: which warps are not to be used; returns whether there are any.
    """
    halves, count = [], len(doubt)
    for (words, _), fmt in zip(operands, formats, strict=False):
        halves.append((np.empty_like(words), np.empty_like(words)))
        _widened(words, table(fmt), *halves[-1])
    (sa, sb, sc), size = (stride for _, stride in operands), result.size // count
    loop, doubts = kernel(*shape.key), np.empty((2, count), np.uint8)
    x, stride = np.zeros(size, np.uint32), 0
    for a, b, own in zip(*halves, doubts, strict=True):
        y = np.empty_like(result)
        loop(a, b, x, y, sa, sb, stride, size, 0, count, *numbers, own)
        x, stride = y, size
    kind: Any = np.float16 if shape.half else np.float32
    d = result.view(kind).reshape(count, -1)
    with np.errstate(all="ignore"):
        np.add(operands[2][0].view(kind).reshape(count if sc else 1, -1), x.view(kind).reshape(count, -1), out=d)
    doubt[:] = doubts[0] | doubts[1] | ~np.isfinite(d).all(axis=1)  # a NaN or an overflow may be of any origin
    return bool(doubt.any())
