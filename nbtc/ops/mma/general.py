"""The general compiled path of every warp-level matrix multiply: registers -> elements -> `wide_chain` -> registers.

All forms share it.  What distinguishes them comes in as tables: where each matrix element sits in the register image,
and a vector of numbers.  It is compiled once, and once more for f64, whose elements take words of 64 bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.jit import jit
from nbtc.kernels.sparse_indices import DENSE, HALVES, column_of, indices, joined_halves, stored_of_chunk
from nbtc.numerics.fused import wide_chain
from nbtc.numerics.ieee import f16_to_f32, f32_to_f16

# entries of the geometry vector
GROUPS, M, N, K, STORED, WIDEN_C, NARROW_D, SPARSE = range(8)
A_BITS, B_BITS, C_BITS, D_BITS, D_WORDS, AT_B, AT_C, AT_D, AT_E = range(8, 17)
GEOMETRY = 17


class Images(NamedTuple):
    """Flat register words of A, B, C, metadata and D."""

    a: NDArray[np.uint32]
    b: NDArray[np.uint32]
    c: NDArray[np.uint32]
    meta: NDArray[np.uint32]
    d: NDArray[np.uint32]


class ElementBuffers(NamedTuple):
    """Buffers for the elements of A, of B and of a selection of B, in words of 32 bits, or of 64 for f64."""

    a: NDArray[Any]
    b: NDArray[Any]
    selected: NDArray[Any]


@jit(inline=True)
def element(words, start, place, bits):
    """The element at a place = 32 * word + shift of the image at `start`."""
    word = start + (place >> 5)
    value = np.uint64(words[word])
    if bits == 64:
        return value | np.uint64(words[word + 1]) << np.uint64(32)
    value >>= np.uint64(place & 31)
    return value & ((np.uint64(1) << np.uint64(bits)) - np.uint64(1))


@jit(inline=True)
def _deposit(words, start, place, bits, value):
    """Put an element into an image of zeros."""
    word = start + (place >> 5)
    if bits == 64:
        words[word] = np.uint32(value & np.uint64(0xFFFFFFFF))
        words[word + 1] = np.uint32(value >> np.uint64(32))
    else:
        words[word] |= np.uint32(value << np.uint64(place & 31))


@jit
def _select(meta, start, places, i, geometry, b, out):
    """The elements of B that stored row i of A meets: out[j * stored + s] for column j."""
    at, kind, stored, k, n = geometry[AT_E], geometry[SPARSE], geometry[STORED], geometry[K], geometry[N]
    per_chunk = stored_of_chunk(kind)
    for s in range(stored):
        chunk = s // per_chunk
        place = places[at + i * (stored // per_chunk) + chunk]
        first, second = indices(meta, start + (place >> 5), place & 31)
        if kind == HALVES:
            for j in range(n):
                out[j * stored + s] = joined_halves(b, j * k + 2 * chunk, 1, first, second)
        else:
            column = column_of(kind, s, first, second)
            for j in range(n):
                out[j * stored + s] = b[j * k + column]


@jit
def run(images, strides, first, last, places, geometry, params, scratch):
    """Warps first..last of one instruction.

    images: those of A, B, C and metadata of warp w begin at w * strides[0..3].  places: 32 * word + shift of each
    element of A (groups, M, stored), B (groups, N, K), C and D (groups, M, N) and of each nibble of metadata.
    """
    a, b, c, meta, d = images
    xa, xb, xs = scratch
    groups, m, n, k, stored = geometry[GROUPS], geometry[M], geometry[N], geometry[K], geometry[STORED]
    widen_c, narrow_d, kind = geometry[WIDEN_C], geometry[NARROW_D], geometry[SPARSE]
    bits_a, bits_b, bits_c, bits_d = geometry[A_BITS], geometry[B_BITS], geometry[C_BITS], geometry[D_BITS]
    at_b, at_c, at_d = geometry[AT_B], geometry[AT_C], geometry[AT_D]
    for w in range(first, last):
        wa, wb, wc, wd = w * strides[0], w * strides[1], w * strides[2], w * geometry[D_WORDS]
        for p in range(geometry[D_WORDS]):
            d[wd + p] = np.uint32(0)
        for p in range(groups * m * stored):
            xa[p] = element(a, wa, places[p], bits_a)
        for p in range(groups * n * k):
            xb[p] = element(b, wb, places[at_b + p], bits_b)
        for row in range(groups * m):
            columns, x = (row // m) * n * k, xb
            if kind != DENSE:
                _select(meta, w * strides[3], places, row, geometry, xb, xs)
                columns, x = np.int64(0), xs
            for j in range(n):
                p = row * n + j
                acc = element(c, wc, places[at_c + p], bits_c)
                if widen_c:
                    acc = np.uint64(f16_to_f32(np.int64(acc)))
                acc = wide_chain(xa, row * stored, 1, x, columns + j * stored, 1, stored, acc, params)
                if narrow_d:
                    acc = np.uint64(f32_to_f16(np.int64(acc)))
                _deposit(d, wd, places[at_d + p], bits_d, acc)
