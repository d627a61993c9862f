"""A product at the speed of mma.sync: tiles in shared memory, several stages of asynchronous copies, ldmatrix.

a (m, k) and b (n, k) half, both K-major; d = a @ b.T half, each element the chain of mma steps, rounded once.  The page
"Two fast products" goes through it line by line.
"""

from __future__ import annotations

from functools import cache

import numpy as np

import nbtc
from nbtc import ptx
from nbtc.examples.kernels.raster import place

FORM = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
DEPTH = 64  # halves of k in a tile: rows of 128 bytes, eight units of 16
STAGES, AHEAD, PENDING = 4, 3, 2  # tiles in shared memory, fetched before they are needed, under way when one is
THREADS = 256  # two rows of four warps
UNIT = 16  # bytes of a copy
ROW = 2 * DEPTH  # bytes


@cache
def kernel(across=4, along=8):
    """The kernel whose warps make `across` by `along` (even) products of 16x8: blocks of 32 across x 32 along."""
    height, width = 32 * across, 32 * along
    a_tile = height * DEPTH
    stage_elements = a_tile + width * DEPTH
    pairs, a_copies, half = along // 2, height // 32, width // 64

    @nbtc.device
    def fetch_rows(tiles, first, source, row, col, copies):
        t = nbtc.thread_idx.x
        pitch = source.shape[1]
        to = first + t // 8 * DEPTH + 8 * ((t % 8) ^ (t // 8 % 8))
        at = (row + t // 8) * pitch + col + 8 * (t % 8)
        for i in nbtc.unroll(8):
            if i < copies:
                ptx.cp_async(tiles, source, 16, to + 32 * DEPTH * i, at + 32 * pitch * i)

    @nbtc.device
    def fetch(tiles, stage, step, a, b, row, col, third):
        """Rows of a, half of b's, the other half; then the group is closed."""
        first = stage * stage_elements
        if step * DEPTH < a.shape[1]:
            if third == 0:
                fetch_rows(tiles, first, a, row, step * DEPTH, a_copies)
            else:
                before = 32 * half * (third - 1)
                fetch_rows(tiles, first + a_tile + before * DEPTH, b, col + before, step * DEPTH, half)
        if third == 2:
            ptx.cp_async_commit_group()

    @nbtc.device
    def load(tiles, base, part, fa, fb, buffer, a_at, b_at):
        lane = nbtc.lane_id()
        at = base + a_at + UNIT * ((2 * part + lane // 16) ^ (lane % 8))
        for i in nbtc.unroll(across):
            r = ptx.ldmatrix(tiles, at + 16 * ROW * i, num=4)
            for e in nbtc.unroll(4):
                fa[buffer, i, e] = r[e]
        at = base + b_at + UNIT * ((2 * part + lane // 8 % 2) ^ (lane % 8))
        for j in nbtc.unroll(pairs):
            r = ptx.ldmatrix(tiles, at + 16 * ROW * j, num=4)
            for e in nbtc.unroll(4):
                fb[buffer, 2 * j + e // 2, e % 2] = r[e]

    @nbtc.device
    def multiply(acc, fa, fb, buffer):
        for i in nbtc.unroll(across):
            for n in nbtc.unroll(along):
                j = along - 1 - n if i % 2 else n  # the last b of a row is the first of the next
                d = ptx.mma_sync(FORM, fa[buffer, i], fb[buffer, j], acc[i, j])
                for e in nbtc.unroll(4):
                    acc[i, j, e] = d[e]

    @nbtc.kernel(max_threads=THREADS)
    def product(a, b, d, rows, cols):
        tiles = nbtc.shared(None, nbtc.f16, align=128)
        acc = nbtc.local((across, along, 4), np.uint32)
        fa, fb = nbtc.local((2, across, 4), np.uint32), nbtc.local((2, along, 2), np.uint32)
        lane, warp = nbtc.thread_idx.x % 32, nbtc.thread_idx.x // 32
        tile_row, tile_col = place(nbtc.block_idx.x, rows, cols)
        down, right = warp % 2 * (height // 2), warp // 2 * (width // 4)
        a_at, b_at = ROW * (down + lane % 16), 2 * a_tile + ROW * (right + lane // 16 * 8 + lane % 8)
        for i in nbtc.unroll(across):
            for j in nbtc.unroll(along):
                for e in nbtc.unroll(4):
                    acc[i, j, e] = 0
        for s in range(AHEAD):
            for third in nbtc.unroll(3):
                fetch(tiles, s, s, a, b, tile_row * height, tile_col * width, third)
        ptx.cp_async_wait_group(PENDING)
        nbtc.syncthreads()
        load(tiles, 0, 0, fa, fb, 0, a_at, b_at)
        read, write = 0, AHEAD
        for step in range(a.shape[1] // DEPTH):
            for part in nbtc.unroll(4):
                if part == 3:
                    ptx.cp_async_wait_group(PENDING)
                    nbtc.syncthreads()
                    read = (read + 1) % STAGES
                load(tiles, 2 * stage_elements * read, (part + 1) % 4, fa, fb, (part + 1) % 2, a_at, b_at)
                if part < 3:
                    fetch(tiles, write, step + AHEAD, a, b, tile_row * height, tile_col * width, part)
                if part == 2:
                    write = (write + 1) % STAGES
                multiply(acc, fa, fb, part % 2)
        row = tile_row * height + down + lane // 4
        col = (tile_col * width + right) // 2 + lane % 4
        for i in nbtc.unroll(across):
            for j in nbtc.unroll(along):
                d[row + 16 * i, col + 4 * j] = ptx.cvt("cvt.rn.f16x2.f32", acc[i, j, 1], acc[i, j, 0])
                d[row + 16 * i + 8, col + 4 * j] = ptx.cvt("cvt.rn.f16x2.f32", acc[i, j, 3], acc[i, j, 2])

    return product, 2 * STAGES * stage_elements


def launch(a, b, d, across=4, along=8, stream=None):
    """d = a @ b.T: a (m, k), b (n, k) half, d (m, n // 2) words of two halves, in the host's memory or a GPU's.

    m, n and k are multiples of 32 across, 32 along and 64.

    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.standard_normal((32, 128)).astype(np.float16), rng.standard_normal((64, 128)).astype(np.float16)
    >>> d = np.zeros((32, 64), np.float16)
    >>> launch(a, b, d.view(np.uint32), across=1, along=2)
    >>> bool((d == nbtc.matmul(a, b.T, instruction=FORM).astype(np.float16)).all())
    True
    """
    product, shared = kernel(across, along)
    rows, cols = a.shape[0] // (32 * across), b.shape[0] // (32 * along)
    product[rows * cols, THREADS, stream, shared](a, b, d, rows, cols)
