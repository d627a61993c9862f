"""One tile: a 16x16x16 product of halves, and which elements a thread holds."""

from __future__ import annotations

import numpy as np

import nbtc
from nbtc import wmma


@nbtc.kernel
def multiply_tile(a, b, c):
    """c = a @ b for one warp: a is 16x16 half, column-major, b row-major, c 16x16 float, row-major."""
    fa = wmma.fragment(wmma.matrix_a, 16, 16, 16, nbtc.f16, wmma.col_major)
    fb = wmma.fragment(wmma.matrix_b, 16, 16, 16, nbtc.f16, wmma.row_major)
    fc = wmma.fragment(wmma.accumulator, 16, 16, 16, nbtc.f32)
    wmma.fill_fragment(fc, 0.0)
    wmma.load_matrix_sync(fa, a, 16)
    wmma.load_matrix_sync(fb, b, 16)
    wmma.mma_sync(fc, fa, fb, fc)
    wmma.store_matrix_sync(c, fc, 16, wmma.mem_row_major)


@nbtc.kernel
def dump_fragments(matrix, a, b):
    """Copy what each thread of a warp holds of a 16x16 matrix as A and as B: a and b are (32, 16) half."""
    fa = wmma.fragment(wmma.matrix_a, 16, 16, 16, nbtc.f16, wmma.row_major)
    fb = wmma.fragment(wmma.matrix_b, 16, 16, 16, nbtc.f16, wmma.row_major)
    wmma.load_matrix_sync(fa, matrix, 16)
    wmma.load_matrix_sync(fb, matrix, 16)
    for t in range(fa.num_elements):
        a[nbtc.lane_id(), t] = fa.x[t]
        b[nbtc.lane_id(), t] = fb.x[t]


def fragments_of_a_counting_matrix():
    """Fragments A and B of the matrix 0, 1 ... 255, as integers (32, 16).

    >>> a, b = fragments_of_a_counting_matrix()
    >>> a[0, :8].tolist(), b[0, :8].tolist()
    ([0, 1, 128, 129, 8, 9, 136, 137], [0, 16, 128, 144, 8, 24, 136, 152])
    """
    a, b = np.zeros((32, 16), np.float16), np.zeros((32, 16), np.float16)
    dump_fragments[1, 32](np.arange(256, dtype=np.float16), a, b)
    return a.astype(int), b.astype(int)
