"""Compiled parts of wgmma: operands out of shared memory or registers, a tile of dot products, accumulators back.

Everything is flat and unsigned.  One call works on the warpgroups it names and shares nothing with other calls but its
inputs, so callers may run several in threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nbtc.compiler.bits import double_word_at
from nbtc.compiler.copies import copied
from nbtc.compiler.jit import jit
from nbtc.kernels.rows.rows import Decoded, Picks, Sizes, decode, fused_tile, mark_specials, redo_tile
from nbtc.kernels.rows.rows_emitter import COLUMNS
from nbtc.kernels.sparse_indices import DENSE, HALVES, UNITS, column_of, indices, joined_halves, stored_of_chunk
from nbtc.kernels.words.int_dot import bit_tile, integer_tile
from nbtc.numerics.fused import chain
from nbtc.numerics.models import A_FORMAT, B_FORMAT, KIND, Kind

M = 64
THREADS = 128
MARKED, ALL = np.uint8(1), np.uint8(2)  # values of `again`
_FUSED, _INTEGER = int(Kind.FUSED), int(Kind.INTEGER)


class WarpgroupGeometry(NamedTuple):
    """Numbers of a form; k, stored and bits count 32-bit words for b1.

    stored: elements of a row of A.  a_mn, b_mn: 1 where an operand lies along M or N.  f16_acc: 1 for f16 accumulators.
    flip_a, flip_b: xor of every element.  a_registers: 1 for A in registers.  smem_bytes: of an image.  zero: the
    exponent that marks a zero.
    """

    n: int
    k: int
    stored: int
    bits: int
    a_mn: int
    b_mn: int
    f16_acc: int
    flip_a: int
    flip_b: int
    sparse: int
    a_registers: int
    smem_bytes: int
    zero: int


class Sources(NamedTuple):
    """Where operands come from, and for each warpgroup which shared-memory image, which table of unit addresses (of A,
    of B) and which register image (of A) it uses.
    """

    smem: Any
    images: Any
    a_units: Any
    a_which: Any
    a_words: Any
    a_from: Any
    b_units: Any
    b_which: Any


class Metadata(NamedTuple):
    """Register images of metadata, which one each warpgroup uses, and the lane and shift of every nibble."""

    words: Any
    which: Any
    lanes: Any
    shifts: Any


class Accumulators(NamedTuple):
    """Register images of D, which one each warpgroup starts from, whether it does (else from zero), and the results."""

    d: Any
    which: Any
    keep: Any
    out: Any


class WarpgroupTask(NamedTuple):
    """One call: all warpgroups of one form."""

    geometry: WarpgroupGeometry
    params: Any
    sources: Sources
    metadata: Metadata
    accumulators: Accumulators


class Left(NamedTuple):
    """What is left to `repair`: again[g] says nothing, the elements that marks[g] names, or all."""

    marks: Any
    again: Any


class Grid(NamedTuple):
    """A tile as 16-byte units hold it: rows and columns of elements of some bits, along M or N or along K."""

    rows: int
    cols: int
    bits: int
    mn_major: bool


@jit
def gather_tile(smem, base, units, grid, flip, out, stride_mn, stride_k):
    """Elements (mn, k) of a tile to out[mn * stride_mn + k * stride_k]; units: byte addresses of its 16-byte units."""
    per = np.int64(128) // grid.bits
    down, across = (grid.rows // per, grid.cols) if grid.mn_major else (grid.rows, grid.cols // per)
    down_step, across_step, inner = stride_mn, per * stride_k, stride_k
    if grid.mn_major:
        down_step, across_step, inner = per * stride_mn, stride_k, stride_mn
    mask = np.uint64(0xFFFFFFFF) >> np.uint64(np.int64(32) - grid.bits)
    for j in range(across):
        for i in range(down):
            at = base + np.int64(units[i * across + j])
            to = i * down_step + j * across_step
            for h in range(2):
                x = double_word_at(smem, at + np.int64(8) * h)
                for t in range(per >> 1):
                    out[to + (h * (per >> 1) + t) * inner] = np.uint32(x & mask) ^ flip
                    x >>= np.uint64(grid.bits)


@jit
def gather_registers(words, w0, cols, bits, flip, out):
    """A (64 x cols) from 128 lanes of four registers to out[row * cols + col]."""
    per = np.int64(32) // bits
    mask = np.uint32((np.uint64(1) << np.uint64(bits)) - np.uint64(1))
    for thread in range(THREADS):
        row0 = 16 * (thread >> 5) + ((thread & 31) >> 2)
        col0 = per * (thread & 3)
        for r in range(4):
            word = words[w0 + 4 * thread + r]
            at = (row0 + 8 * (r & 1)) * cols + col0 + 4 * per * (r >> 1)
            for p in range(per):
                out[at + p] = ((word >> np.uint32(p * bits)) & mask) ^ flip


@jit(inline=True)
def shared_rows(tile, quad, n, columns):
    """The columns in use, two by two, of the rows g and g + 8 of a warp that a group of four threads shares."""
    row, pairs, used = 16 * (quad >> 3) + (quad & 7), columns >> 1, n >> 1
    doubles = tile.view(np.uint64)
    return doubles[row * pairs : row * pairs + used], doubles[(row + 8) * pairs : (row + 8) * pairs + used]


@jit
def load_accumulators(words, g, n, f16_acc, tile, columns):
    """Register image g (128 threads) to a tile of element bits, 64 rows of `columns`, of which n are used.

    Four threads share two rows, g and g + 8 of a warp: each holds two neighbouring columns of every eight, pairs of
    registers (one register of f16) by turns of the two rows.
    """
    pairs, pair_words = n >> 2, words.view(np.uint64)
    for quad in range(THREADS >> 2):
        upper, lower = shared_rows(tile, quad, n, columns)
        for t in range(4):
            first = (g * THREADS + 4 * quad + t) * pairs
            if f16_acc:
                source = words[first : first + pairs]
                for j in range(n >> 3):
                    x, y = np.uint64(source[2 * j]), np.uint64(source[2 * j + 1])
                    upper[4 * j + t] = (x & np.uint64(0xFFFF)) | ((x >> np.uint64(16)) << np.uint64(32))
                    lower[4 * j + t] = (y & np.uint64(0xFFFF)) | ((y >> np.uint64(16)) << np.uint64(32))
            else:
                image = pair_words[first : first + pairs]
                for j in range(n >> 3):
                    upper[4 * j + t] = image[2 * j]
                    lower[4 * j + t] = image[2 * j + 1]


@jit
def store_accumulators(words, g, n, f16_acc, tile, columns):
    """The inverse of `load_accumulators`."""
    pairs, pair_words = n >> 2, words.view(np.uint64)
    for quad in range(THREADS >> 2):
        upper, lower = shared_rows(tile, quad, n, columns)
        for t in range(4):
            first = (g * THREADS + 4 * quad + t) * pairs
            if f16_acc:
                destination = words[first : first + pairs]
                for j in range(n >> 3):
                    x, y = upper[4 * j + t], lower[4 * j + t]
                    destination[2 * j] = np.uint32(x & np.uint64(0xFFFF)) | np.uint32(x >> np.uint64(16))
                    destination[2 * j + 1] = np.uint32(y & np.uint64(0xFFFF)) | np.uint32(y >> np.uint64(16))
            else:
                image = pair_words[first : first + pairs]
                for j in range(n >> 3):
                    image[2 * j] = upper[4 * j + t]
                    image[2 * j + 1] = lower[4 * j + t]


@jit
def pick_rows(metadata, g, stored, sparse, pick):
    """pick[row * stored + s] = logical k of stored element s; False when tf32 metadata names no whole element."""
    chunks = stored // stored_of_chunk(sparse)
    m0, whole = metadata.which[g] * THREADS, True
    for i in range(M * chunks):
        first, second = indices(metadata.words, m0 + metadata.lanes[i], metadata.shifts[i])
        c = i % chunks
        if sparse == HALVES:
            whole &= second == first + 1 and (first & 1) == 0
            pick[i] = 2 * c + (first >> 1)
        else:
            for n in range(2):
                pick[2 * i + n] = column_of(UNITS, 2 * c + n, first, second)
    return whole


@jit
def operands(g, geometry, sources, a, b, columns):
    """Element bits of A (64 x stored) and B (k x columns) of a warpgroup."""
    n, k, stored, bits = geometry.n, geometry.k, geometry.stored, geometry.bits
    flip_a, flip_b = np.uint32(geometry.flip_a), np.uint32(geometry.flip_b)
    base = sources.images[g] * geometry.smem_bytes
    if geometry.a_registers:
        gather_registers(sources.a_words, sources.a_from[g] * (4 * THREADS), stored, bits, flip_a, a)
    else:
        units = sources.a_units[sources.a_which[g] * (M * stored * bits // 128) :]
        gather_tile(sources.smem, base, units, Grid(M, stored, bits, geometry.a_mn != 0), flip_a, a, stored, 1)
    units = sources.b_units[sources.b_which[g] * (n * k * bits // 128) :]
    gather_tile(sources.smem, base, units, Grid(n, k, bits, geometry.b_mn != 0), flip_b, b, 1, columns)


@jit
def decode_both(a, b, columns, geometry, params, x):
    """Decoded operands, and the rows and columns that hold Inf or NaN, into the arrays of `x`."""
    x.a_special[:] = np.uint8(0)
    x.b_special[:] = np.uint8(0)
    if decode(a, params[A_FORMAT], geometry.zero, x.a, x.a_exponents):
        mark_specials(a, params[A_FORMAT], M, geometry.stored, True, x.a_special)
    if decode(b, params[B_FORMAT], geometry.zero, x.b, x.b_exponents):
        mark_specials(b, params[B_FORMAT], geometry.k, columns, False, x.b_special)


@jit
def run(groups, task, value, exponent, left):
    """The warpgroups named: out = A * B (+ d where it is kept).

    value, exponent: empty arrays of the types of decoded operands.
    """
    geometry, params, sources, metadata, acc = task
    n, k, stored, sparse = geometry.n, geometry.k, geometry.stored, geometry.sparse
    f16_acc, kind, columns = geometry.f16_acc != 0, params[KIND], padded(n)
    a, b, tile = np.empty(M * stored, np.uint32), np.zeros(k * columns, np.uint32), np.zeros(M * columns, np.uint32)
    x = Decoded(
        np.empty(a.size, value.dtype), np.empty(a.size, exponent.dtype), np.empty(b.size, value.dtype),
        np.empty(b.size, exponent.dtype), np.empty(M, np.uint8), np.empty(columns, np.uint8),
    )  # fmt: skip
    redo = np.empty(tile.size, np.uint8)
    picks = Picks(
        np.arange(k) if sparse == DENSE else np.empty(M * stored, np.int64), np.int64(0) if sparse == DENSE else stored
    )
    sizes = Sizes(M, columns, stored)
    for g in groups:
        operands(g, geometry, sources, a, b, columns)
        if acc.keep[g]:
            load_accumulators(acc.d, acc.which[g], n, f16_acc, tile, columns)
        else:
            tile[:] = np.uint32(0)
        if sparse != DENSE and not pick_rows(metadata, g, stored, sparse, picks.places):
            left.again[g] = ALL
        elif kind == _FUSED:
            decode_both(a, b, columns, geometry, params, x)
            if fused_tile(x, tile, redo, sizes, picks, params):
                copied(left.marks[g * tile.size : (g + 1) * tile.size], redo)
                left.again[g] = MARKED
        elif kind == _INTEGER:
            integer_tile(a, b, tile, sizes, picks, params)
        else:
            bit_tile(a, b, tile, sizes, params)
        store_accumulators(acc.out, g, n, f16_acc, tile, columns)


@jit
def repair(groups, task, left):
    """The warpgroups named, as far as `run` left them: through the general dot product."""
    geometry, params, sources, metadata, acc = task
    n, k, stored, sparse = geometry.n, geometry.k, geometry.stored, geometry.sparse
    f16_acc, columns = geometry.f16_acc != 0, padded(n)
    a, b = np.empty(M * stored, np.uint32), np.zeros(k * columns, np.uint32)
    before, tile = np.zeros(M * columns, np.uint32), np.zeros(M * columns, np.uint32)
    picks = Picks(
        np.arange(k) if sparse == DENSE else np.empty(M * stored, np.int64), np.int64(0) if sparse == DENSE else stored
    )
    for g in groups:
        operands(g, geometry, sources, a, b, columns)
        before[:] = np.uint32(0)
        if acc.keep[g]:
            load_accumulators(acc.d, acc.which[g], n, f16_acc, before, columns)
        if left.again[g] == ALL:
            copied(tile, before)
            halves_tile(a, b, tile, Sizes(M, columns, stored), n, metadata, g, params)
        else:
            load_accumulators(acc.out, g, n, f16_acc, tile, columns)
            if sparse != DENSE:
                pick_rows(metadata, g, stored, sparse, picks.places)
            redo = left.marks[g * tile.size : (g + 1) * tile.size]
            redo_tile(a, b, before, tile, redo, n, Sizes(M, columns, stored), picks, params)
        store_accumulators(acc.out, g, n, f16_acc, tile, columns)


@jit
def padded(n):
    """Columns of the tile: whole steps of the row kernels."""
    return (n + COLUMNS - 1) // COLUMNS * COLUMNS


@jit
def halves_tile(a, b, c, sizes, used, metadata, g, params):
    """Sparse tf32 with metadata that joins halves of different elements: through the general dot product.

    used: columns that matter, the first of n.
    """
    _, columns, stored = sizes
    picked, m0 = np.empty(stored, np.uint32), metadata.which[g] * THREADS
    for row in range(M):
        for column in range(used):
            for s in range(stored):
                at = row * stored + s
                first, second = indices(metadata.words, m0 + metadata.lanes[at], metadata.shifts[at])
                picked[s] = joined_halves(b, 2 * s * columns + column, columns, first, second)
            at = row * columns + column
            c[at] = np.uint32(chain(a, row * stored, 1, picked, 0, 1, stored, np.uint64(c[at]), params))
