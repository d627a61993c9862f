"""Products of any size: tiles of wmma, one warp each, beside a thread for each element."""

from __future__ import annotations

import numpy as np

import nbtc
from nbtc import wmma

TILE = 16
WARPS_X, WARPS_Y = 4, 4  # of a block: it makes 64x64 elements


@nbtc.kernel
def wmma_gemm(a, b, c, d, m, n, k, alpha, beta):
    """d = alpha * a @ b + beta * c: a (m, k) and b (k, n) half, c and d (m, n) float, all row-major.

    One warp makes one 16x16 tile of d: its row of tiles comes from x, its column from y.  m, n and k are multiples of
    16; warps beyond the matrix do nothing.
    """
    row = nbtc.grid(2)[0] // 32 * TILE
    col = nbtc.grid(2)[1] * TILE
    if row < m and col < n:
        fa = wmma.fragment(wmma.matrix_a, 16, 16, 16, nbtc.f16, wmma.row_major)
        fb = wmma.fragment(wmma.matrix_b, 16, 16, 16, nbtc.f16, wmma.row_major)
        acc = wmma.fragment(wmma.accumulator, 16, 16, 16, nbtc.f32)
        fc = wmma.fragment(wmma.accumulator, 16, 16, 16, nbtc.f32)
        wmma.fill_fragment(acc, 0.0)
        for i in range(0, k, TILE):
            wmma.load_matrix_sync(fa, a, k, offset=row * k + i)
            wmma.load_matrix_sync(fb, b, n, offset=i * n + col)
            wmma.mma_sync(acc, fa, fb, acc)
        wmma.load_matrix_sync(fc, c, n, wmma.mem_row_major, offset=row * n + col)
        for t in range(acc.num_elements):
            fc.x[t] = alpha * acc.x[t] + beta * fc.x[t]
        wmma.store_matrix_sync(d, fc, n, wmma.mem_row_major, offset=row * n + col)


@nbtc.kernel
def plain_gemm(a, b, c, d, m, n, k, alpha, beta):
    """The same, one element a thread: the sum is of the type of d, one multiply-add after another."""
    i, j = nbtc.grid(2)
    if i < m and j < n:
        total = d.dtype.type(0)
        for p in range(k):
            total += a[i, p] * b[p, j]
        d[i, j] = d.dtype.type(alpha) * total + d.dtype.type(beta) * c[i, j]


def gemm(a, b, c, alpha=1.0, beta=0.0):
    """alpha * a @ b + beta * c by `wmma_gemm`, with the bits of `nbtc.gemm(..., instruction="wmma")`.

    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.standard_normal((2, 32, 32)).astype(np.float16)
    >>> c = rng.standard_normal((32, 32)).astype(np.float32)
    >>> want = nbtc.gemm(2.0, a, b, 0.5, c, instruction="wmma")
    >>> bool((gemm(a, b, c, 2.0, 0.5) == want).all())
    True
    """
    (m, k), n = a.shape, b.shape[1]
    d = np.empty((m, n), np.float32)
    grid = -(-m // (TILE * WARPS_X)), -(-n // (TILE * WARPS_Y))
    wmma_gemm[grid, (32 * WARPS_X, WARPS_Y)](a, b, c, d, m, n, k, np.float32(alpha), np.float32(beta))
    return d
