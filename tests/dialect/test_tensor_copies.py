"""Copies of boxes by tensor maps, bulk copies, clusters and warpgroups' registers, bits compared."""

import re

import numpy as np
import pytest

import nbtc
from nbtc import ptx, wgmma
from nbtc.errors import FormatError, KernelError, OptionError
from nbtc.testing import assert_bits_equal

pytestmark = pytest.mark.hw
RNG = np.random.default_rng(23)
BYTES = 1024


@nbtc.kernel
def through_shared(source, target, first, second):
    """One thread fetches a box of 1 KB, all wait for it, one thread puts it somewhere else."""
    tile, bar = nbtc.shared(BYTES, np.uint8, align=1024), nbtc.shared(1, np.uint64)
    t = nbtc.thread_idx.x
    if t == 0:
        ptx.tma_prefetch(source)
        ptx.mbarrier_init(bar, 1)
        ptx.fence_mbarrier_init()
    nbtc.syncthreads()
    if t == 0:
        ptx.mbarrier_arrive_expect_tx(bar, BYTES)
        ptx.tma_load(tile, source, first, bar)
    ptx.mbarrier_wait(bar, 0)
    tile[t] ^= 1
    wgmma.fence_proxy_async()
    nbtc.syncthreads()
    if t == 0:
        ptx.tma_store(target, second, tile)
        ptx.cp_async_bulk_commit_group()
        ptx.cp_async_bulk_wait_group(0)


# array and box, outermost first; where the box is taken from and put to, innermost first
BOXES = [
    ((4096,), (256,), (-16,), (100,)),
    ((40, 64), (16, 16), (60, 30), (4, 5)),
    ((9, 12, 24), (4, 8, 8), (20, -3, 1), (0, 2, 5)),
    ((3, 5, 6, 16), (2, 4, 4, 8), (4, 1, 1, 1), (0, 0, 0, 0)),
    ((3, 3, 4, 5, 16), (2, 2, 2, 4, 8), (0, 1, 2, 1, 1), (8, 1, 2, 1, 1)),
]


@pytest.mark.parametrize(("shape", "box", "first", "second"), BOXES, ids=[f"{len(s)}d" for s, *_ in BOXES])
def test_boxes_of_every_rank(shape, box, first, second):
    x, out = RNG.integers(0, 1 << 32, shape, np.uint32), np.zeros(shape, np.uint32)
    maps = [nbtc.TensorMap(a, box[::-1]) for a in (x, out)]
    through_shared[1, 32](*maps, first, second)
    tile = np.zeros(box, np.uint32)
    want = np.zeros_like(x)
    for place in np.ndindex(box):
        taken = tuple(p + f for p, f in zip(place, first[::-1], strict=True))
        if all(0 <= p < n for p, n in zip(taken, shape, strict=True)):
            tile[place] = x[taken]
    tile.reshape(-1).view(np.uint8)[:32] ^= 1
    for place in np.ndindex(box):
        put = tuple(p + s for p, s in zip(place, second[::-1], strict=True))
        if all(0 <= p < n for p, n in zip(put, shape, strict=True)):
            want[put] = tile[place]
    assert_bits_equal(out, want)


@nbtc.kernel
def swizzled(source, out):
    tile, bar = nbtc.shared(8192, np.uint8, align=1024), nbtc.shared(1, np.uint64)
    t = nbtc.thread_idx.x
    if t == 0:
        ptx.mbarrier_init(bar, 1)
        ptx.fence_mbarrier_init()
        ptx.mbarrier_arrive_expect_tx(bar, 8192)
        ptx.tma_load(tile, source, (0, 0), bar)
    nbtc.syncthreads()
    ptx.mbarrier_wait(bar, 0)
    for n in range(t, 8192, 32):
        out[n] = tile[n]


def test_a_swizzled_tile_is_the_one_of_wgmma():
    x, out = RNG.standard_normal((64, 64)).astype(np.float16), np.zeros(8192, np.uint8)
    swizzled[1, 32](nbtc.TensorMap(x, (64, 64), swizzle="128B"), out)
    assert_bits_equal(out, wgmma.tile_to_smem(x, "f16", "k", "128B")[0])


@nbtc.kernel(cluster=2)
def shared_by_two(source, out):
    """Each block of a cluster fetches half of a tile for both."""
    tile, bar = nbtc.shared((2, 64), np.uint32, align=128), nbtc.shared(1, np.uint64)
    t, rank = nbtc.thread_idx.x, ptx.cluster_rank()
    if t == 0:
        ptx.mbarrier_init(bar, 3)
        ptx.fence_mbarrier_init()
    ptx.cluster_arrive()
    ptx.cluster_wait()
    if t == 0:
        ptx.mbarrier_arrive_expect_tx(bar, 512)
        ptx.tma_load(tile[rank], source, (0, 2 * (nbtc.block_idx.x // 2) + rank), bar, 3)
    if t < 2:
        ptx.mbarrier_arrive_cluster(bar, t)
    ptx.mbarrier_wait(bar, 0)
    for n in range(t, 64, 32):
        out[nbtc.block_idx.x, 0, n] = tile[0, n]
        out[nbtc.block_idx.x, 1, n] = tile[1, n]
    ptx.cluster_arrive()
    ptx.cluster_wait()


def test_a_box_for_all_blocks_of_a_cluster():
    x, out = RNG.integers(0, 1 << 32, (4, 64), np.uint32), np.zeros((4, 2, 64), np.uint32)
    shared_by_two[4, 32](nbtc.TensorMap(x, (64, 1)), out)
    assert_bits_equal(out, np.repeat(x.reshape(2, 2, 64), 2, axis=0))


@nbtc.kernel(max_threads=256)
def by_groups(x, out):
    """Two warpgroups with registers of their own count; each meets at its barrier; one elected thread stores."""
    tile = nbtc.shared((2, 128), np.uint32, align=16)
    group, t = nbtc.thread_idx.x // 128, nbtc.thread_idx.x % 128
    if group == 0:
        ptx.setmaxnreg_dec(40)
    else:
        ptx.setmaxnreg_inc(232)
    tile[group, t] = x[group, t] + 1
    wgmma.fence_proxy_async()
    ptx.bar_sync(group + 1, 128)
    if t // 32 == 0 and ptx.elect_sync():
        ptx.cp_async_bulk_store(out[group], tile[group], 512)
        ptx.cp_async_bulk_commit_group()
        ptx.cp_async_bulk_wait_group(0, read=True)
        ptx.cp_async_bulk_wait_group(0)


def test_groups_of_threads():
    x, out = RNG.integers(0, 1000, (2, 128)).astype(np.uint32), np.zeros((2, 128), np.uint32)
    by_groups[1, 256](x, out)
    assert_bits_equal(out, x + 1)
    text = by_groups.ptx(x, out)
    assert ".maxntid 256" in text and ".target sm_90a" in text
    with pytest.raises(OptionError, match="maxntid"):
        by_groups[1, 512](x, out)


@nbtc.kernel
def sums(out, n):
    held = nbtc.local((4, 4), np.uint32)
    for i in nbtc.unroll(4):
        for j in nbtc.unroll(4):
            held[i, j] = out[4 * i + j]
    for step in range(n):
        for k in nbtc.unroll(6, 0, -2):
            if k == 4:
                nbtc.syncthreads()
            for i in nbtc.unroll(4):
                for j in nbtc.unroll(4):
                    if j == k:
                        continue
                    held[i, j] += np.uint32(k * i + j + step)
    for i in nbtc.unroll(4):
        for j in nbtc.unroll(4):
            out[4 * i + j] = held[i, j]


def test_unrolled_loops_keep_arrays_in_registers():
    out, want = np.arange(16, dtype=np.uint32), np.arange(16, dtype=np.uint32).reshape(4, 4)
    for step in range(3):
        for k in (6, 4, 2):
            i, j = np.indices((4, 4))
            want[j != k] += (k * i + j + step)[j != k].astype(np.uint32)
    sums[1, 32](out, 3)
    assert_bits_equal(out.reshape(4, 4), want)
    assert ".local" not in sums.ptx(out, 3)


@nbtc.kernel
def same_condition_twice(out):
    bar = nbtc.shared(1, np.uint64)
    t = nbtc.thread_idx.x
    if t == 0:
        ptx.mbarrier_init(bar, 32)
    nbtc.syncthreads()
    if t == 0:
        ptx.fence_mbarrier_init()
    ptx.mbarrier_arrive(bar)
    out[t] = 1
    if t == 0:
        ptx.cp_async_bulk_commit_group()


def test_what_threads_meet_in_is_not_copied_into_branches():
    text = same_condition_twice.ptx(np.zeros(32, np.int32))
    assert len(re.findall(r"mbarrier\.arrive", text)) == 1 and len(re.findall(r"bar\.sync", text)) == 1


# --------------------------------------------------------------------------------------------------------------- errors
def no_map(x):
    ptx.tma_load(nbtc.shared(64, np.uint8), x, (0,), nbtc.shared(1, np.uint64))


def wrong_registers(x):
    ptx.setmaxnreg_inc(100)


def wrong_steps(x):
    for _ in nbtc.unroll(x.size):
        pass


@pytest.mark.parametrize(
    ("function", "message"),
    [(no_map, "an nbtc.TensorMap, not array"), (wrong_registers, "multiple of 8"), (wrong_steps, "takes constants")],
)
def test_what_does_not_compile(function, message):
    with pytest.raises(KernelError, match=message):
        nbtc.kernel(function)[1, 32](np.zeros(4))


def test_options_and_arguments():
    with pytest.raises(OptionError, match="max_threads=0"):
        nbtc.kernel(no_map, max_threads=0)
    with pytest.raises(FormatError, match="kernel takes arrays, numbers"):
        sums[1, 32]("x", 3)
