"""Compiled parts of wgmma: operands out of shared memory or registers, a tile of dot products, accumulators back.

Everything is flat and unsigned.  One call works on warpgroups [g0, g1) and shares nothing with other calls but its
inputs, so callers may run several in threads.
"""

from __future__ import annotations

import numpy as np

from nbtc._jit import jit
from nbtc.numerics.fused import chain
from nbtc.numerics.models import A_FORMAT, B_FORMAT, KIND, Kind
from nbtc.numerics.tile import COLUMNS, bit_tile, decode, fused_tile, integer_tile, mark_specials

# entries of the geometry vector; K, STORED and BITS count 32-bit words for b1
N, K, STORED, BITS, A_MN, B_MN, HALF, FLIP_A, FLIP_B, SPARSE, A_REGISTERS, SMEM_BYTES, ZERO = range(13)
GEOMETRY = 13
DENSE, PAIRS, HALVES = 0, 1, 2  # values of SPARSE: none, 2:4 of elements, 2:4 of the 16-bit halves of tf32
M = 64
THREADS = 128
_FUSED, _INTEGER = int(Kind.FUSED), int(Kind.INTEGER)


@jit(inline=True)
def _element(smem, at, bits):
    """Little-endian element at a byte address."""
    x = np.uint32(smem[at])
    if bits >= np.int64(16):
        x |= np.uint32(smem[at + 1]) << np.uint32(8)
    if bits == np.int64(32):
        x |= (np.uint32(smem[at + 2]) << np.uint32(16)) | (np.uint32(smem[at + 3]) << np.uint32(24))
    return x


@jit
def gather_tile(smem, base, units, u0, rows, cols, bits, mn_major, flip, out, stride_mn, stride_k):
    """Elements (mn, k) of a tile to out[mn * stride_mn + k * stride_k]; units: byte addresses of its 16-byte units."""
    per, size = np.int64(128) // bits, bits >> 3
    down, across = (rows // per, cols) if mn_major else (rows, cols // per)
    inner = stride_mn if mn_major else stride_k
    for i in range(down):
        for j in range(across):
            at = base + np.int64(units[u0 + i * across + j])
            to = (i * per * stride_mn + j * stride_k) if mn_major else (i * stride_mn + j * per * stride_k)
            for t in range(per):
                out[to + t * inner] = _element(smem, at + t * size, bits) ^ flip


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
def _pair_place(thread, pair, columns):
    """Place, in pairs of columns, of accumulator elements 2 * pair and 2 * pair + 1 of a thread."""
    row = 16 * (thread >> 5) + ((thread & 31) >> 2) + 8 * (pair & 1)
    return row * (columns >> 1) + 4 * (pair >> 1) + (thread & 3)


@jit
def load_accumulators(words, g, n, half, tile, columns):
    """Register image g (128 threads) to a tile of element bits, 64 rows of `columns`, of which n are used."""
    pairs, wide = n >> 2, tile.view(np.uint64)
    w0 = g * (THREADS * pairs)
    pair_words = words.view(np.uint64)
    for thread in range(THREADS):
        for p in range(pairs):
            if half:
                both = np.uint64(words[w0 + thread * pairs + p])
                x = (both & np.uint64(0xFFFF)) | ((both >> np.uint64(16)) << np.uint64(32))
            else:
                x = pair_words[w0 + thread * pairs + p]
            wide[_pair_place(thread, p, columns)] = x


@jit
def store_accumulators(words, g, n, half, tile, columns):
    """The inverse of `load_accumulators`."""
    pairs, wide = n >> 2, tile.view(np.uint64)
    w0 = g * (THREADS * pairs)
    pair_words = words.view(np.uint64)
    for thread in range(THREADS):
        for p in range(pairs):
            x = wide[_pair_place(thread, p, columns)]
            if half:
                words[w0 + thread * pairs + p] = np.uint32(x & np.uint64(0xFFFF)) | np.uint32(x >> np.uint64(16))
            else:
                pair_words[w0 + thread * pairs + p] = x


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


@jit
def run(g0, g1, geometry, params, panel_value, panel_exponent, smem, images, a_units, a_which, a_words, a_from, b_units,
        b_which, meta, meta_from, lanes, shifts, d, d_from, keep, out):  # fmt: skip
    """Warpgroups g0 .. g1-1: out = A * B (+ d where keep[g] is set).

    images, a_which, b_which, a_from, meta_from, d_from: for each warpgroup, which shared-memory image, table of unit
    addresses (A, B), and register image (A, metadata, D) it uses.  panel_value, panel_exponent: arrays of the types of
    decoded operands.
    """
    n, k, stored, bits, sparse = geometry[N], geometry[K], geometry[STORED], geometry[BITS], geometry[SPARSE]
    half, zero, kind = geometry[HALF] != 0, geometry[ZERO], params[KIND]
    flip_a, flip_b = np.uint32(geometry[FLIP_A]), np.uint32(geometry[FLIP_B])
    columns = (n + COLUMNS - 1) // COLUMNS * COLUMNS
    a, b, tile = np.empty(M * stored, np.uint32), np.zeros(k * columns, np.uint32), np.zeros(M * columns, np.uint32)
    av, ae = np.empty(a.size, panel_value.dtype), np.empty(a.size, panel_exponent.dtype)
    bv, be = np.empty(b.size, panel_value.dtype), np.empty(b.size, panel_exponent.dtype)
    rows_special, columns_special = np.zeros(M, np.uint8), np.zeros(columns, np.uint8)
    pick = np.arange(k) if sparse == DENSE else np.empty(M * stored, np.int64)
    pick_step = np.int64(0) if sparse == DENSE else stored
    a_count, b_count = M * stored * bits // 128, n * k * bits // 128
    for g in range(g0, g1):
        base, m0 = images[g] * geometry[SMEM_BYTES], meta_from[g] * THREADS
        if geometry[A_REGISTERS]:
            gather_registers(a_words, a_from[g] * (4 * THREADS), stored, bits, flip_a, a)
        else:
            gather_tile(
                smem, base, a_units, a_which[g] * a_count, M, stored, bits, geometry[A_MN] != 0, flip_a, a, stored, 1
            )
        gather_tile(smem, base, b_units, b_which[g] * b_count, n, k, bits, geometry[B_MN] != 0, flip_b, b, 1, columns)
        if keep[g]:
            load_accumulators(d, d_from[g], n, half, tile, columns)
        else:
            tile[:] = np.uint32(0)
        whole = True
        if sparse != DENSE:
            whole = pick_rows(meta, m0, lanes, shifts, stored, sparse, pick)
        if not whole:
            halves_tile(a, b, tile, n, columns, stored, meta, m0, lanes, shifts, params)
        elif kind == _FUSED:
            rows_special[:] = np.uint8(0)
            columns_special[:] = np.uint8(0)
            if decode(a, params[A_FORMAT], zero, av, ae):
                mark_specials(a, params[A_FORMAT], M, stored, True, rows_special)
            if decode(b, params[B_FORMAT], zero, bv, be):
                mark_specials(b, params[B_FORMAT], k, columns, False, columns_special)
            fused_tile(
                av, ae, bv, be, a, b, rows_special, columns_special, tile, M, columns, stored, pick, pick_step, params
            )
        elif kind == _INTEGER:
            integer_tile(a, b, tile, M, columns, stored, pick, pick_step, params)
        else:
            bit_tile(a, b, tile, M, columns, stored, params)
        store_accumulators(out, g, n, half, tile, columns)
