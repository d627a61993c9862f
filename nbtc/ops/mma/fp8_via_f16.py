"""fp8 mma.sync and mma.sp of architectures without such a unit, as they do it: with f16 products, by vector code.

A word of four fp8 elements is two words of f16 ones, whose lanes and registers are those of an f16 form of half the
depth: elements of k mod 4 in {0, 1} make the first product, {2, 3} the second, and c is added in the end.  In sparse
forms that goes for stored elements: the first product has every other chunk of four elements of B, all of each, and
those chunks' nibbles of metadata.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.jit import in_default_float_mode, jit
from nbtc.formats.table import Format
from nbtc.kernels.warp import loop
from nbtc.kernels.warp_shape import Shape
from nbtc.ops.images import Words


@cache
def table(fmt: Format) -> Words:
    """f16 bits of every fp8 code: exact, NaN to NaN."""
    return np.arange(256, dtype=np.uint8).view(fmt.dtype).astype(np.float16).view(np.uint16).astype(np.uint32)


@jit(inline=True)
def _pair(word, table, place):
    """Two neighbouring elements of a word, from bit `place` on, as f16."""
    byte = np.uint32(255)
    w = word >> np.uint32(place)
    return table[w & byte] | table[w >> np.uint32(8) & byte] << np.uint32(16)


@jit
def _widened(words, table, first, second):
    """The lower and the upper two elements of each word, as f16."""
    for i in range(words.size):
        first[i], second[i] = _pair(words[i], table, 0), _pair(words[i], table, 16)


@jit
def _widened_chunks(words, table, first, second):
    """Of images of four registers: both halves of the words of even lanes, and of odd ones, in two lanes each."""
    for start in range(0, words.size, 8):
        for i in range(start, start + 4):
            first[i], first[i + 4] = _pair(words[i], table, 0), _pair(words[i], table, 16)
            second[i], second[i + 4] = _pair(words[i + 4], table, 0), _pair(words[i + 4], table, 16)


@jit
def _chunks_apart(meta, first, second):
    """Metadata of even and of odd chunks, where f16 has it: in two lanes of four, row g in the lower half."""
    for lane in range(meta.size):
        first[lane] = second[lane] = np.uint32(0)
    for start in range(0, meta.size, 4):
        for x in range(2):
            for row in range(2):
                word = meta[start + 2 * x + row]
                for n in range(4):
                    to = np.uint32(4 * n + 16 * row)
                    first[start + x] |= (word >> np.uint32(8 * n) & np.uint32(15)) << to
                    second[start + x] |= (word >> np.uint32(8 * n + 4) & np.uint32(15)) << to


@in_default_float_mode
def run(
    shape: Shape,
    numbers: tuple[int, int],
    formats: tuple[Format, Format],
    operands: list[tuple[Words, int]],
    result: Words,
    needs_fallback: NDArray[np.uint8],
) -> bool:
    """D of so many warps; operands: (words, words from one warp to the next) of A, B, C, and metadata if any.

    numbers: F and the floor.  needs_fallback: which warps are not to be used; returns whether there are any.
    """
    halves, count = (
        [(np.empty_like(w), np.empty_like(w)) for n, (w, _) in enumerate(operands) if n != 2],
        len(needs_fallback),
    )
    for (words, _), fmt, widen, both in zip(
        operands, formats, (_widened, _widened_chunks if shape.sparse else _widened), halves, strict=False
    ):
        widen(words, table(fmt), *both)
    for (words, _), both in zip(operands[3:], halves[2:], strict=True):
        _chunks_apart(words, *both)
    (sa, sb, sc, *sm), size = (stride for _, stride in operands), result.size // count
    vector, marks = loop(shape), np.empty((2, count), np.uint8)
    x, stride = np.zeros(size, np.uint32), 0
    for a, b, *meta, own in zip(*halves, marks, strict=True):
        y = np.empty_like(result)
        vector((a, b, x, *meta, y), (sa, sb, stride, *sm, size), 0, count, numbers, own)
        x, stride = y, size
    kind: Any = np.float16 if shape.f16_acc else np.float32
    d = result.view(kind).reshape(count, -1)
    with np.errstate(all="ignore"):
        np.add(operands[2][0].view(kind).reshape(count if sc else 1, -1), x.view(kind).reshape(count, -1), out=d)
    needs_fallback[:] = marks[0] | marks[1] | ~np.isfinite(d).all(axis=1)  # a NaN or an overflow may be of any origin
    return bool(needs_fallback.any())
