"""Elements below a byte: a layer of bits, and a product of 4-bit integers that goes through shared memory."""

from __future__ import annotations

import numpy as np

import nbtc
from nbtc import ptx, wmma

BITS = 128  # of a row of a b1 tile
INT4 = "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32"
ROW = 8  # words of a row of 64 elements of 4 bits


@nbtc.kernel
def binary_layer(x, weights, out, k):
    """out = k - 2 * popcount(x xor weights): the products of +1 (bit 0) and -1 (bit 1), summed.

    x (rows, k / 32) and weights (columns, k / 32) hold words of bits, out (rows, columns) int32.  One warp an 8x8 tile;
    its row comes from x, its column from y.
    """
    row, col = 8 * nbtc.block_idx.x, 8 * nbtc.block_idx.y
    fx = wmma.fragment(wmma.matrix_a, 8, 8, 128, wmma.experimental.precision.b1, wmma.row_major)
    fw = wmma.fragment(wmma.matrix_b, 8, 8, 128, wmma.experimental.precision.b1, wmma.col_major)
    differing = wmma.fragment(wmma.accumulator, 8, 8, 128, nbtc.s32)
    wmma.fill_fragment(differing, 0)
    for i in range(0, k, BITS):
        wmma.load_matrix_sync(fx, x, k, offset=row * k + i)
        wmma.load_matrix_sync(fw, weights, k, offset=col * k + i)
        wmma.bmma_sync(differing, fx, fw, differing)
    for t in range(differing.num_elements):
        differing.x[t] = k - 2 * differing.x[t]
    wmma.store_matrix_sync(out, differing, out.shape[1], wmma.mem_row_major, offset=row * out.shape[1] + col)


@nbtc.kernel
def int4_gemm(a, bt, c):
    """c = a @ bt.T of 4-bit integers: a (m, k / 8) and bt (n, k / 8) packed words, c (m, n) int32.

    A warp makes 16x8 elements, 64 of k at a time: rows of 32 bytes go to shared memory, from where ldmatrix brings
    them as mma.sync wants them: half a row (16 bytes, 32 elements) is a row of an 8x8 matrix of 16-bit cells.
    """
    tile_a, tile_b = nbtc.shared((16, ROW), np.uint32), nbtc.shared((8, ROW), np.uint32)
    lane = nbtc.lane_id()
    row, col = 16 * nbtc.block_idx.x, 8 * nbtc.block_idx.y
    zero = np.uint32(0)
    d = (zero, zero, zero, zero)
    for k in range(0, a.shape[1], ROW):
        for n in range(lane, 16 * ROW, 32):
            tile_a[n // ROW, n % ROW] = a[row + n // ROW, k + n % ROW]
        for n in range(lane, 8 * ROW, 32):
            tile_b[n // ROW, n % ROW] = bt[col + n // ROW, k + n % ROW]
        nbtc.syncwarp()
        fa = ptx.ldmatrix(tile_a, 32 * (lane % 16) + 16 * (lane // 16), num=4)
        fb = ptx.ldmatrix(tile_b, 32 * (lane % 8) + 16 * (lane // 8 % 2), num=2)
        d = ptx.mma_sync(INT4, fa, fb, d)
        nbtc.syncwarp()
    for n in range(4):
        c[row + lane // 4 + 8 * (n // 2), col + 2 * (lane % 4) + n % 2] = np.int32(d[n])


def products(seed=0):
    """Both kernels on random operands, each with what NumPy makes of them.

    >>> [bool((ours == plain).all()) for ours, plain in products()]
    [True, True]
    """
    rng = np.random.default_rng(seed)
    x, w = rng.integers(0, 2, (16, 256)).astype(bool), rng.integers(0, 2, (24, 256)).astype(bool)
    layer = np.zeros((16, 24), np.int32)
    binary_layer[(2, 3), 32](nbtc.pack(x, "b1"), nbtc.pack(w, "b1"), layer, 256)
    a, b = rng.integers(-8, 8, (32, 128)), rng.integers(-8, 8, (16, 128))
    c = np.zeros((32, 16), np.int32)
    int4_gemm[(2, 2), 32](nbtc.pack(a, "s4"), nbtc.pack(b, "s4"), c)
    return (layer, (1 - 2 * x.astype(int)) @ (1 - 2 * w.astype(int)).T), (c, a @ b.T)
