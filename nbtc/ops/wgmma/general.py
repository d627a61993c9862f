"""Compiled parts of wgmma: operands out of shared memory or registers, a tile of dot products, accumulators back.

Everything is flat and unsigned.  One call works on the warpgroups it names and shares nothing with other calls but its
inputs, so callers may run several in threads.
"""

from __future__ import annotations

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from nbtc.compiler.builder import I64, VectorBuilder
from nbtc.compiler.jit import jit
from nbtc.kernels.int_dot import bit_tile, integer_tile
from nbtc.kernels.rows import decode, fused_tile, mark_specials, redo_tile
from nbtc.kernels.rows_emitter import COLUMNS
from nbtc.numerics.fused import chain
from nbtc.numerics.models import A_FORMAT, B_FORMAT, KIND, Kind

# entries of the geometry vector; K, STORED and BITS count 32-bit words for b1
N, K, STORED, BITS, A_MN, B_MN, HALF, FLIP_A, FLIP_B, SPARSE, A_REGISTERS, SMEM_BYTES, ZERO = range(13)
GEOMETRY = 13
DENSE, PAIRS, HALVES = 0, 1, 2  # values of SPARSE: none, 2:4 of elements, 2:4 of the 16-bit halves of tf32
M = 64
THREADS = 128
MARKED, ALL = np.uint8(1), np.uint8(2)  # values of `again`
_FUSED, _INTEGER = int(Kind.FUSED), int(Kind.INTEGER)


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _half_unit(typing, memory, at):
    """Eight bytes at a byte address of any alignment, as a little-endian uint64."""

    def codegen(context, builder, sig, args):
        v = VectorBuilder(context, builder)
        return v.load(v.at(v.pointer(sig.args[0], args[0]), args[1]), I64)

    return types.uint64(memory, types.int64), codegen


@jit
def gather_tile(smem, base, units, u0, rows, cols, bits, mn_major, flip, out, stride_mn, stride_k):
    """Elements (mn, k) of a tile to out[mn * stride_mn + k * stride_k]; units: byte addresses of its 16-byte units."""
    per = np.int64(128) // bits
    down, across = (rows // per, cols) if mn_major else (rows, cols // per)
    down_step, across_step, inner = stride_mn, per * stride_k, stride_k
    if mn_major:
        down_step, across_step, inner = per * stride_mn, stride_k, stride_mn
    mask = np.uint64(0xFFFFFFFF) >> np.uint64(np.int64(32) - bits)
    for j in range(across):
        for i in range(down):
            at = base + np.int64(units[u0 + i * across + j])
            to = i * down_step + j * across_step
            for h in range(2):
                x = _half_unit(smem, at + np.int64(8) * h)
                for t in range(per >> 1):
                    out[to + (h * (per >> 1) + t) * inner] = np.uint32(x & mask) ^ flip
                    x >>= np.uint64(bits)


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


@jit
def load_accumulators(words, g, n, half, tile, columns):
    """Register image g (128 threads) to a tile of element bits, 64 rows of `columns`, of which n are used.

    Four threads share two rows, g and g + 8 of a warp: each holds two neighbouring columns of every eight, pairs of
    registers (one register of f16) by turns of the two rows.
    """
    pairs, wide, pair_words = n >> 2, tile.view(np.uint64), words.view(np.uint64)
    for quad in range(THREADS >> 2):
        row = 16 * (quad >> 3) + (quad & 7)
        upper = wide[row * (columns >> 1) : row * (columns >> 1) + (n >> 1)]
        lower = wide[(row + 8) * (columns >> 1) : (row + 8) * (columns >> 1) + (n >> 1)]
        for t in range(4):
            first = (g * THREADS + 4 * quad + t) * pairs
            if half:
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
def store_accumulators(words, g, n, half, tile, columns):
    """The inverse of `load_accumulators`."""
    pairs, wide, pair_words = n >> 2, tile.view(np.uint64), words.view(np.uint64)
    for quad in range(THREADS >> 2):
        row = 16 * (quad >> 3) + (quad & 7)
        upper = wide[row * (columns >> 1) : row * (columns >> 1) + (n >> 1)]
        lower = wide[(row + 8) * (columns >> 1) : (row + 8) * (columns >> 1) + (n >> 1)]
        for t in range(4):
            first = (g * THREADS + 4 * quad + t) * pairs
            if half:
                goal = words[first : first + pairs]
                for j in range(n >> 3):
                    x, y = upper[4 * j + t], lower[4 * j + t]
                    goal[2 * j] = np.uint32(x & np.uint64(0xFFFF)) | np.uint32(x >> np.uint64(16))
                    goal[2 * j + 1] = np.uint32(y & np.uint64(0xFFFF)) | np.uint32(y >> np.uint64(16))
            else:
                image = pair_words[first : first + pairs]
                for j in range(n >> 3):
                    image[2 * j] = upper[4 * j + t]
                    image[2 * j + 1] = lower[4 * j + t]


@jit
def pick_rows(meta, m0, lanes, shifts, stored, sparse, pick):
    """pick[row * stored + s] = logical k of stored element s; False when tf32 metadata names no whole element."""
    chunks = stored if sparse == HALVES else stored >> 1
    whole = True
    for i in range(M * chunks):
        nibble = np.int64(meta[m0 + lanes[i]] >> np.uint32(shifts[i]))
        first, second = nibble & 3, (nibble >> 2) & 3
        c = i % chunks
        if sparse == HALVES:
            whole &= second == first + 1 and (first & 1) == 0
            pick[i] = 2 * c + (first >> 1)
        else:
            pick[2 * i], pick[2 * i + 1] = 4 * c + first, 4 * c + second
    return whole


@jit
def operands(g, geometry, smem, images, a_units, a_which, a_words, a_from, b_units, b_which, a, b, columns):
    """Element bits of A (64 x stored) and B (k x columns) of a warpgroup."""
    n, k, stored, bits = geometry[N], geometry[K], geometry[STORED], geometry[BITS]
    flip_a, flip_b = np.uint32(geometry[FLIP_A]), np.uint32(geometry[FLIP_B])
    base = images[g] * geometry[SMEM_BYTES]
    if geometry[A_REGISTERS]:
        gather_registers(a_words, a_from[g] * (4 * THREADS), stored, bits, flip_a, a)
    else:
        u0 = a_which[g] * (M * stored * bits // 128)
        gather_tile(smem, base, a_units, u0, M, stored, bits, geometry[A_MN] != 0, flip_a, a, stored, 1)
    u0 = b_which[g] * (n * k * bits // 128)
    gather_tile(smem, base, b_units, u0, n, k, bits, geometry[B_MN] != 0, flip_b, b, 1, columns)


@jit
def decoded(a, b, columns, geometry, params, av, ae, bv, be, rows_special, columns_special):
    """Decoded operands, and the rows and columns that hold Inf or NaN."""
    stored, k, zero = geometry[STORED], geometry[K], geometry[ZERO]
    rows_special[:] = np.uint8(0)
    columns_special[:] = np.uint8(0)
    if decode(a, params[A_FORMAT], zero, av, ae):
        mark_specials(a, params[A_FORMAT], M, stored, True, rows_special)
    if decode(b, params[B_FORMAT], zero, bv, be):
        mark_specials(b, params[B_FORMAT], k, columns, False, columns_special)


@jit
def run(groups, geometry, params, smem, images, a_units, a_which, a_words, a_from, b_units, b_which, meta, meta_from,
        lanes, shifts, d, d_from, keep, out, panel_value, panel_exponent, marks, again):  # fmt: skip
    """The warpgroups named: out = A * B (+ d where keep[g] is set).

    images, a_which, b_which, a_from, meta_from, d_from: for each warpgroup, which shared-memory image, table of unit
    addresses (A, B), and register image (A, metadata, D) it uses.  panel_value, panel_exponent: arrays of the types of
    decoded operands.  again[g]: what is left to `repair`: nothing, the elements that marks[g] names, or all.
    """
    n, k, stored, sparse = geometry[N], geometry[K], geometry[STORED], geometry[SPARSE]
    half, kind, columns = geometry[HALF] != 0, params[KIND], padded(geometry[N])
    a, b, tile = np.empty(M * stored, np.uint32), np.zeros(k * columns, np.uint32), np.zeros(M * columns, np.uint32)
    av, ae = np.empty(a.size, panel_value.dtype), np.empty(a.size, panel_exponent.dtype)
    bv, be = np.empty(b.size, panel_value.dtype), np.empty(b.size, panel_exponent.dtype)
    rows_special, columns_special = np.empty(M, np.uint8), np.empty(columns, np.uint8)
    redo = np.empty(tile.size, np.uint8)
    pick = np.arange(k) if sparse == DENSE else np.empty(M * stored, np.int64)
    step = np.int64(0) if sparse == DENSE else stored
    for g in groups:
        operands(g, geometry, smem, images, a_units, a_which, a_words, a_from, b_units, b_which, a, b, columns)
        if keep[g]:
            load_accumulators(d, d_from[g], n, half, tile, columns)
        else:
            tile[:] = np.uint32(0)
        if sparse != DENSE and not pick_rows(meta, meta_from[g] * THREADS, lanes, shifts, stored, sparse, pick):
            again[g] = ALL
        elif kind == _FUSED:
            decoded(a, b, columns, geometry, params, av, ae, bv, be, rows_special, columns_special)
            if fused_tile(
                av, ae, bv, be, rows_special, columns_special, tile, redo, M, columns, stored, pick, step, params
            ):
                marks[g * tile.size : (g + 1) * tile.size] = redo
                again[g] = MARKED
        elif kind == _INTEGER:
            integer_tile(a, b, tile, M, columns, stored, pick, step, params)
        else:
            bit_tile(a, b, tile, M, columns, stored, params)
        store_accumulators(out, g, n, half, tile, columns)


@jit
def repair(groups, geometry, params, smem, images, a_units, a_which, a_words, a_from, b_units, b_which, meta, meta_from,
           lanes, shifts, d, d_from, keep, out, marks, again):  # fmt: skip
    """The warpgroups named, as far as `run` left them: through the general dot product."""
    n, k, stored, sparse = geometry[N], geometry[K], geometry[STORED], geometry[SPARSE]
    half, columns = geometry[HALF] != 0, padded(geometry[N])
    a, b = np.empty(M * stored, np.uint32), np.zeros(k * columns, np.uint32)
    before, tile = np.zeros(M * columns, np.uint32), np.zeros(M * columns, np.uint32)
    pick = np.arange(k) if sparse == DENSE else np.empty(M * stored, np.int64)
    step = np.int64(0) if sparse == DENSE else stored
    for g in groups:
        operands(g, geometry, smem, images, a_units, a_which, a_words, a_from, b_units, b_which, a, b, columns)
        m0 = meta_from[g] * THREADS
        before[:] = np.uint32(0)
        if keep[g]:
            load_accumulators(d, d_from[g], n, half, before, columns)
        if again[g] == ALL:
            tile[:] = before
            halves_tile(a, b, tile, n, columns, stored, meta, m0, lanes, shifts, params)
        else:
            load_accumulators(out, g, n, half, tile, columns)
            if sparse != DENSE:
                pick_rows(meta, m0, lanes, shifts, stored, sparse, pick)
            redo = marks[g * tile.size : (g + 1) * tile.size]
            redo_tile(a, b, before, tile, redo, M, columns, n, stored, pick, step, params)
        store_accumulators(out, g, n, half, tile, columns)


@jit
def padded(n):
    """Columns of the tile: whole steps of the row kernels."""
    return (n + COLUMNS - 1) // COLUMNS * COLUMNS


@jit
def halves_tile(a, b, c, n, columns, stored, meta, m0, lanes, shifts, params):
    """Sparse tf32 with metadata that joins halves of different elements: through the general dot product."""
    picked = np.empty(stored, np.uint32)
    for row in range(M):
        for column in range(n):
            for s in range(stored):
                nibble = meta[m0 + lanes[row * stored + s]] >> np.uint32(shifts[row * stored + s])
                first, second = np.int64(nibble & np.uint32(3)), np.int64((nibble >> np.uint32(2)) & np.uint32(3))
                low = b[(2 * s + (first >> 1)) * columns + column] >> np.uint32(16 * (first & 1))
                high = b[(2 * s + (second >> 1)) * columns + column] >> np.uint32(16 * (second & 1))
                picked[s] = (low & np.uint32(0xFFFF)) | (high << np.uint32(16))
            at = row * columns + column
            c[at] = np.uint32(chain(a, row * stored, 1, picked, 0, 1, stored, np.uint64(c[at]), params))
