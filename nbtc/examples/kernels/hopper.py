"""A product at the speed of a Hopper GPU: the copy engine fetches tiles, one warpgroup asks for them, two multiply.

a (m, k) and b (n, k), both K-major; d = a @ b.T, each element the chain of wgmma steps, rounded once.  Two blocks may
be a cluster: each fetches half of a tile of b for both, which takes a third off what the L2 cache has to give.  The
page "Two fast products" goes through it line by line.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

import nbtc
from nbtc import ptx, warp, wgmma
from nbtc.errors import ShapeError
from nbtc.examples.kernels.raster import BAND, place
from nbtc.formats.arrays import as_format

ROWS, WIDTH = 128, 128  # of a block's tile: rows of a, and bytes of each, which the swizzle permutes
STAGES = 4  # tiles in shared memory: while one is multiplied, three are on their way
CONSUMERS = 2  # warpgroups that multiply, 64 rows each
THREADS = 128 * (CONSUMERS + 1)
UNIT = 16  # bytes: what descriptors count in
BOX = 64  # rows and columns of a box of d: 8 KB
BOX_BYTES, PARTS = 2 * BOX * BOX, BOX // 16  # a warp stores 16 columns at once
STEP = np.uint64(32 // UNIT)  # a product takes 32 bytes of k: the descriptors move on by so many units


class Elements(NamedTuple):
    """Elements of a and b, and of d: bytes of each of a, and what rounds two sums to elements of d."""

    name: str
    bytes: int
    rounding: str

    @property
    def depth(self):
        """Of k in a tile."""
        return WIDTH // self.bytes


ELEMENTS = {
    "f16": Elements("f16", 2, "cvt.rn.f16x2.f32"),
    "bf16": Elements("bf16", 2, "cvt.rn.bf16x2.f32"),
    "e4m3": Elements("e4m3", 1, "cvt.rn.f16x2.f32"),
}


@nbtc.device
def following(stage, parity):
    """The next stage, and the parity of its barriers, which changes with every round."""
    if stage + 1 == STAGES:
        return np.uint32(0), np.uint32(parity ^ 1)
    return np.uint32(stage + 1), parity


@cache
def kernel(columns=256, cluster=2, elements=ELEMENTS["f16"]):
    """The kernel for tiles of so many columns, a multiple of 64 up to 256, and clusters of 1 or 2 blocks."""
    form = f"wgmma.mma_async.sync.aligned.m64n{columns}k{32 // elements.bytes}.f32.{elements.name}.{elements.name}"
    depth, rounding = elements.depth, elements.rounding
    a_tile, b_tile = ROWS * WIDTH // 2, columns * WIDTH // 2  # in halves, whatever the elements
    part, every = columns // cluster, (1 << cluster) - 1  # of b's tile, which each block fetches for all
    stage_elements = a_tile + b_tile
    stage_bytes = 2 * stage_elements
    half_rows = a_tile // CONSUMERS
    boxes = columns // BOX
    stores = 1 - boxes % 2  # that may read shared memory still: after an odd number, the next takes the last one's box

    @nbtc.device
    def multiply(d, a, b):
        wgmma.fence()
        d = ptx.wgmma(form, d, a, b)
        d = ptx.wgmma(form, d, a + STEP, b + STEP)
        d = ptx.wgmma(form, d, a + np.uint64(2) * STEP, b + np.uint64(2) * STEP)
        d = ptx.wgmma(form, d, a + np.uint64(3) * STEP, b + np.uint64(3) * STEP)
        wgmma.commit_group()
        return d

    @nbtc.device
    def release(empty, stage):
        """The stage may be filled again, by all blocks of the cluster."""
        if cluster == 1:
            ptx.mbarrier_arrive(empty[stage])
        else:
            for rank in nbtc.unroll(cluster):
                ptx.mbarrier_arrive_cluster(empty[stage], rank, release=False)  # it was only read

    @nbtc.device
    def fetch(a_map, b_map, tiles, full, empty, rows, cols, steps):
        stage, parity, rank = np.uint32(0), np.uint32(0), nbtc.block_idx.x % cluster
        tile = nbtc.block_idx.x // cluster
        while tile < rows // cluster * cols:  # a range might have step 0: for the call that says so wgmma would wait
            row, col = place(tile, rows // cluster, cols, BAND // cluster)
            for step in range(steps):
                ptx.mbarrier_wait(empty[stage], parity ^ 1)
                ptx.mbarrier_arrive_expect_tx(full[stage], stage_bytes)
                here = tiles[stage * stage_elements :]
                ptx.tma_load(here, a_map, (step * depth, (row * cluster + rank) * ROWS), full[stage])
                there = here[a_tile + rank * (b_tile // cluster) :]
                at = (step * depth, col * columns + rank * part)
                if cluster == 1:
                    ptx.tma_load(there, b_map, at, full[stage])
                else:
                    ptx.tma_load(there, b_map, at, full[stage], every)
                stage, parity = following(stage, parity)
            tile += nbtc.grid_dim.x // cluster

    @nbtc.device
    def store(d, d_map, tiles, group, t, row, col):
        first = STAGES * stage_elements + group * 2 * BOX * BOX
        for p in nbtc.unroll(boxes):
            if t == 0:
                ptx.cp_async_bulk_wait_group(stores, read=True)
            ptx.bar_sync(group + 1, 128)
            at = 2 * first + p % 2 * BOX_BYTES + (t // 32 * 16 + t % 16) * 128
            for q in nbtc.unroll(PARTS):
                n = 8 * (PARTS * p + q)
                words = (
                    ptx.cvt(rounding, d[n + 1], d[n]),
                    ptx.cvt(rounding, d[n + 3], d[n + 2]),
                    ptx.cvt(rounding, d[n + 5], d[n + 4]),
                    ptx.cvt(rounding, d[n + 7], d[n + 6]),
                )
                ptx.stmatrix(tiles, at + UNIT * ((2 * q + t % 32 // 16) ^ (t % 8)), words, num=4)
            wgmma.fence_proxy_async()
            ptx.bar_sync(group + 1, 128)
            if t == 0:
                ptx.tma_store(d_map, (col + BOX * p, row + BOX * group), tiles[first + p % 2 * BOX * BOX :])
                ptx.cp_async_bulk_commit_group()

    @nbtc.device
    def products(d_map, tiles, full, empty, group, t, rows, cols, steps):
        stage, parity = np.uint32(0), np.uint32(0)
        a = wgmma.Descriptor(tiles, 16, 1024, swizzle="128B") + np.uint64(group * (2 * half_rows // UNIT))
        b = wgmma.Descriptor(tiles, 16, 1024, swizzle="128B") + np.uint64(2 * a_tile // UNIT)
        rank, tile = nbtc.block_idx.x % cluster, nbtc.block_idx.x // cluster
        while tile < rows // cluster * cols:
            row, col = place(tile, rows // cluster, cols, BAND // cluster)
            ptx.mbarrier_wait(full[stage], parity)
            at = np.uint64(stage * (stage_bytes // UNIT))
            d = multiply(None, a + at, b + at)
            before = stage
            stage, parity = following(stage, parity)
            for _ in range(1, steps):
                ptx.mbarrier_wait(full[stage], parity)
                at = np.uint64(stage * (stage_bytes // UNIT))
                d = multiply(d, a + at, b + at)
                wgmma.wait_group(1)
                if t == 0:
                    release(empty, before)
                before = stage
                stage, parity = following(stage, parity)
            wgmma.wait_group(0)
            if t == 0:
                release(empty, before)
            store(d, d_map, tiles, group, t, (row * cluster + rank) * ROWS, col * columns)
            tile += nbtc.grid_dim.x // cluster

    @nbtc.kernel(max_threads=THREADS, cluster=cluster)
    def product(a_map, b_map, d_map, rows, cols, steps):
        tiles = nbtc.shared(None, nbtc.f16, align=1024)
        full, empty = nbtc.shared((STAGES, 1), np.uint64), nbtc.shared((STAGES, 1), np.uint64)
        thread = nbtc.thread_idx.x
        group = warp.shfl_sync(0xFFFFFFFF, thread // 128, 0)
        if thread == 0:
            for s in range(STAGES):
                ptx.mbarrier_init(full[s], 1)
                ptx.mbarrier_init(empty[s], CONSUMERS * cluster)
            ptx.fence_mbarrier_init()
        ptx.cluster_arrive()
        ptx.cluster_wait()
        if group == 0:
            ptx.setmaxnreg_dec(40)
            if thread == 0:
                fetch(a_map, b_map, tiles, full, empty, rows, cols, steps)
        else:
            ptx.setmaxnreg_inc(232)
            t = thread % 128
            products(d_map, tiles, full, empty, group - 1, t, rows, cols, steps)
            if t == 0:
                ptx.cp_async_bulk_wait_group(0)
        nbtc.syncwarp()
        ptx.cluster_arrive()  # another block may still arrive at the barriers of this one
        ptx.cluster_wait()

    return product, STAGES * stage_bytes + CONSUMERS * 2 * BOX_BYTES


def launch(a, b, d, columns=256, blocks=132, stream=None, cluster=None):
    """d = a @ b.T: a (m, k), b (n, k) f16, bf16 or e4m3, d (m, n) f16 (bf16 of bf16), in the host's memory or a GPU's.

    m, n and k are multiples of 128, `columns` and 64 (128 of e4m3).  blocks: how many run at once; an H200 has 132
    multiprocessors.  cluster: blocks that fetch tiles of b for each other, 1 or 2; 2 (the default where both are even)
    divides `blocks` and m / 128.

    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.standard_normal((128, 128)).astype(np.float16), rng.standard_normal((64, 128)).astype(np.float16)
    >>> d = np.zeros((128, 64), np.float16)
    >>> launch(a, b, d, columns=64, blocks=1)
    >>> bool((d == nbtc.matmul(a, b.T).astype(np.float16)).all())
    True
    """
    (m, k), n, elements = a.shape, b.shape[0], ELEMENTS[as_format(a.dtype).name]
    if m % ROWS or n % columns or k % elements.depth:
        raise ShapeError(
            f"a {m}x{k} and b {n}x{k} of {elements.name} are not whole tiles: pad them with zeros to multiples of "
            f"{ROWS} rows of a, {columns} rows of b and {elements.depth} of k"
        )
    cluster = (1 if m // ROWS % 2 or blocks % 2 else 2) if cluster is None else cluster
    product, shared = kernel(columns, cluster, elements)
    depth = elements.depth
    maps = (
        nbtc.TensorMap(a, (depth, ROWS), swizzle="128B"),
        nbtc.TensorMap(b, (depth, columns // cluster), swizzle="128B"),
        nbtc.TensorMap(d, (BOX, BOX), swizzle="128B"),
    )
    product[blocks, THREADS, stream, shared](*maps, m // ROWS, n // columns, k // depth)
