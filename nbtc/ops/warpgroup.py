"""Compiled parts of wgmma: operands out of shared memory or registers, one dot product per element, accumulators back.

Everything is flat and unsigned.  One call works on warpgroups [g0, g1) and shares nothing with other calls but its
inputs, so callers may run several in threads.
"""

from __future__ import annotations

import numpy as np

from nbtc._jit import jit
from nbtc.numerics.fused import chain

# entries of the geometry vector
N, K, STORED, BITS, A_MN, B_MN, HALF, SCALE_A, SCALE_B, SPARSE, A_REGISTERS, SMEM_BYTES = range(12)
GEOMETRY = 12
DENSE, PAIRS, HALVES = 0, 1, 2  # values of SPARSE: none, 2:4 of elements, 2:4 of the 16-bit halves of tf32
M = 64
THREADS = 128


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
    per = np.int64(128) // bits
    down, across = (rows // per, cols) if mn_major else (rows, cols // per)
    inner = stride_mn if mn_major else stride_k
    for i in range(down):
        for j in range(across):
            at = base + np.int64(units[u0 + i * across + j])
            to = (i * per * stride_mn + j * stride_k) if mn_major else (i * stride_mn + j * per * stride_k)
            for t in range(per):
                if bits == np.int64(1):
                    x = np.uint32((smem[at + (t >> 3)] >> np.uint8(t & 7)) & np.uint8(1))
                else:
                    x = _element(smem, at + ((t * bits) >> 3), bits)
                out[to + t * inner] = x ^ flip


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
def accumulator_place(thread, i, n):
    """Place of accumulator element i of a thread in the 64 x n tile."""
    row = 16 * (thread >> 5) + ((thread & 31) >> 2) + 8 * ((i >> 1) & 1)
    return row * n + 8 * (i >> 2) + 2 * (thread & 3) + (i & 1)


@jit
def load_accumulators(words, w0, n, half, tile):
    """128 lanes of accumulator registers to the 64 x n tile of element bits."""
    registers = n >> 2 if half else n >> 1
    for thread in range(THREADS):
        for i in range(n >> 1):
            word = words[w0 + thread * registers + (i >> 1 if half else i)]
            if half:
                word = (word >> np.uint32(16 * (i & 1))) & np.uint32(0xFFFF)
            tile[accumulator_place(thread, i, n)] = word


@jit
def store_accumulators(words, w0, n, half, tile):
    """The inverse of `load_accumulators`."""
    registers = n >> 2 if half else n >> 1
    for thread in range(THREADS):
        for r in range(registers):
            if half:
                low, high = accumulator_place(thread, 2 * r, n), accumulator_place(thread, 2 * r + 1, n)
                words[w0 + thread * registers + r] = tile[low] | (tile[high] << np.uint32(16))
            else:
                words[w0 + thread * registers + r] = tile[accumulator_place(thread, r, n)]


@jit
def select_column(b, column, n, meta, m0, lanes, shifts, row, stored, sparse, out):
    """The elements of a column of B that the metadata of a row of A names, one per stored element."""
    chunks = stored if sparse == HALVES else stored >> 1
    for c in range(chunks):
        nibble = meta[m0 + lanes[row * chunks + c]] >> np.uint32(shifts[row * chunks + c])
        first, second = np.int64(nibble & np.uint32(3)), np.int64((nibble >> np.uint32(2)) & np.uint32(3))
        if sparse == HALVES:
            low = b[(2 * c + (first >> 1)) * n + column] >> np.uint32(16 * (first & 1))
            high = b[(2 * c + (second >> 1)) * n + column] >> np.uint32(16 * (second & 1))
            out[c] = (low & np.uint32(0xFFFF)) | (high << np.uint32(16))
        else:
            out[2 * c] = b[(4 * c + first) * n + column]
            out[2 * c + 1] = b[(4 * c + second) * n + column]


@jit
def general_tile(a, b, tile, geometry, params, meta, m0, lanes, shifts):
    """tile = A * B + tile through the general dot product: every format and input class, sparse or dense."""
    n, stored, sparse = geometry[N], geometry[STORED], geometry[SPARSE]
    picked = np.empty(stored, np.uint32)
    for row in range(M):
        for column in range(n):
            c = np.uint64(tile[row * n + column])
            if sparse == DENSE:
                d = chain(a, row * stored, 1, b, column, n, stored, c, params)
            else:
                select_column(b, column, n, meta, m0, lanes, shifts, row, stored, sparse, picked)
                d = chain(a, row * stored, 1, picked, 0, 1, stored, c, params)
            tile[row * n + column] = np.uint32(d)


@jit
def run(g0, g1, geometry, params, smem, images, a_units, a_which, a_words, a_from, b_units, b_which, meta, meta_from,
        lanes, shifts, d, d_from, keep, out):  # fmt: skip
    """Warpgroups g0 .. g1-1: out = A * B (+ d where keep[g] is set).

    images, a_which, b_which, a_from, meta_from, d_from: for each warpgroup, which shared-memory image, table of unit
    addresses (A, B), and register image (A, metadata, D) it uses.
    """
    n, k, stored, bits = geometry[N], geometry[K], geometry[STORED], geometry[BITS]
    half = geometry[HALF] != 0
    flip_a, flip_b = np.uint32(geometry[SCALE_A]), np.uint32(geometry[SCALE_B])
    a, b, tile = np.empty(M * stored, np.uint32), np.empty(k * n, np.uint32), np.empty(M * n, np.uint32)
    registers = n >> 2 if half else n >> 1
    a_count, b_count = M * stored * bits // 128, n * k * bits // 128
    for g in range(g0, g1):
        base = images[g] * geometry[SMEM_BYTES]
        if geometry[A_REGISTERS]:
            gather_registers(a_words, a_from[g] * (4 * THREADS), stored, bits, flip_a, a)
        else:
            gather_tile(
                smem, base, a_units, a_which[g] * a_count, M, stored, bits, geometry[A_MN] != 0, flip_a, a, stored, 1
            )
        gather_tile(smem, base, b_units, b_which[g] * b_count, n, k, bits, geometry[B_MN] != 0, flip_b, b, 1, n)
        if keep[g]:
            load_accumulators(d, d_from[g] * (THREADS * registers), n, half, tile)
        else:
            tile[:] = np.uint32(0)
        general_tile(a, b, tile, geometry, params, meta, meta_from[g] * THREADS, lanes, shifts)
        store_accumulators(out, g * (THREADS * registers), n, half, tile)
