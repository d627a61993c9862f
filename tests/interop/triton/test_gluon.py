"""Kernels in Gluon, Triton's lower language: layouts, shared memory, copies and warpgroup products by hand."""

import numpy as np
import pytest
import triton

if tuple(int(n) for n in triton.__version__.split(".")[:2]) < (3, 9):
    pytest.skip("Gluon's names still change: these are those of Triton 3.9", allow_module_level=True)

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor, TensorDescriptorIm2Col

import nbtc


@gluon.jit
def sum_by_copies(x, out, n, BLOCK: gl.constexpr, STAGES: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    ring = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    i = gl.arange(0, BLOCK, layout=layout)
    for k in gl.static_range(STAGES - 1):
        async_copy.async_load(ring.index(k), x + k * BLOCK + i, mask=k * BLOCK + i < n)
        async_copy.commit_group()
    total = gl.zeros((BLOCK,), gl.float32, layout)
    for k in range(gl.cdiv(n, BLOCK)):
        ahead = k + STAGES - 1
        async_copy.async_load(ring.index(ahead % STAGES), x + ahead * BLOCK + i, mask=ahead * BLOCK + i < n)
        async_copy.commit_group()
        async_copy.wait_group(STAGES - 1)
        total += ring.index(k % STAGES).load(layout)
        gl.barrier()
    gl.store(out + i, total)


def test_copies_in_stages():
    x, out = np.random.default_rng(1).integers(-9, 9, 1200).astype(np.float32), np.zeros(512, np.float32)
    with nbtc.triton.emulated("sm_80"):
        sum_by_copies[(1,)](x, out, 1200, BLOCK=512, STAGES=3)
    assert (out == np.pad(x, (0, 336)).reshape(3, 512).sum(0)).all()


@gluon.jit
def product(a, b, c, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr):
    dtype: gl.constexpr = a.dtype
    tiles_a = gl.allocate_shared_memory(dtype, [STAGES, BM, BK], a.layout)
    tiles_b = gl.allocate_shared_memory(dtype, [STAGES, BK, BN], b.layout)
    bars = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(STAGES):
        mbarrier.init(bars.index(s), count=1)
    m, n = gl.program_id(0) * BM, gl.program_id(1) * BN
    for s in gl.static_range(STAGES):
        mbarrier.expect(bars.index(s), a.nbytes_per_cta + b.nbytes_per_cta)
        tma.async_load(a, [m, s * BK], bars.index(s), tiles_a.index(s))
        tma.async_load(b, [s * BK, n], bars.index(s), tiles_b.index(s))
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 16])
    acc = gl.zeros((BM, BN), gl.float32, layout)
    for k in range(gl.cdiv(K, BK)):
        stage = k % STAGES
        mbarrier.wait(bars.index(stage), k // STAGES & 1)
        acc = warpgroup_mma(tiles_a.index(stage), tiles_b.index(stage), acc)
        if k + STAGES < gl.cdiv(K, BK):
            mbarrier.expect(bars.index(stage), a.nbytes_per_cta + b.nbytes_per_cta)
            tma.async_load(a, [m, (k + STAGES) * BK], bars.index(stage), tiles_a.index(stage))
            tma.async_load(b, [(k + STAGES) * BK, n], bars.index(stage), tiles_b.index(stage))
    out = gl.allocate_shared_memory(gl.float32, [BM, BN], c.layout, acc)
    fence_async_shared()
    tma.async_store(c, [m, n], out)
    tma.store_wait(0)


def test_a_product_of_a_warpgroup():
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((128, 160)).astype(np.float16), rng.standard_normal((160, 64)).astype(np.float16)
    c = np.zeros((128, 64), np.float32)
    half = gl.NVMMASharedLayout.get_default_for([64, 32], gl.float16)
    single = gl.NVMMASharedLayout.get_default_for([64, 32], gl.float32)
    with nbtc.triton.emulated("sm_90"):
        operands = (
            TensorDescriptor.from_tensor(tensor=a, block_shape=[64, 32], layout=half),
            TensorDescriptor.from_tensor(b, [32, 32], half),
            TensorDescriptor.from_tensor(c, [64, 32], single),
        )
        product[(2, 2)](*operands, 160, BM=64, BN=32, BK=32, STAGES=2)
    assert (c == nbtc.matmul(a, b, arch="sm_90", instruction="wgmma")).all()


@gluon.jit
def load(x, ring, full, empty, n, BLOCK: gl.constexpr):
    for k in range(n):
        mbarrier.wait(empty.index(k % 2), (k // 2 & 1) ^ 1)
        mbarrier.expect(full.index(k % 2), x.nbytes_per_cta)
        tma.async_load(x, [k * BLOCK, 0], full.index(k % 2), ring.index(k % 2))


@gluon.jit
def add(out, ring, full, empty, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    total = gl.zeros((BLOCK, BLOCK), gl.float32, layout)
    for k in range(n):
        mbarrier.wait(full.index(k % 2), k // 2 & 1)
        total += ring.index(k % 2).load(layout)
        mbarrier.arrive(empty.index(k % 2), count=1)
    rows = gl.arange(0, BLOCK, layout=gl.SliceLayout(1, layout))
    columns = gl.arange(0, BLOCK, layout=gl.SliceLayout(0, layout))
    gl.store(out + rows[:, None] * BLOCK + columns[None, :], total)


@gluon.jit
def sum_by_two(x, out, n, BLOCK: gl.constexpr):
    ring = gl.allocate_shared_memory(gl.float32, [2, BLOCK, BLOCK], x.layout)
    full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(2):
        mbarrier.init(full.index(s), count=1)
        mbarrier.init(empty.index(s), count=1)
    gl.warp_specialize([(add, (out, ring, full, empty, n, BLOCK)), (load, (x, ring, full, empty, n, BLOCK))], [1], [24])


@pytest.mark.parametrize("tiles", [1, 5])
def test_specialised_warps(tiles):
    x = np.random.default_rng(3).integers(-9, 9, (32 * tiles, 32)).astype(np.float32)
    out = np.zeros((32, 32), np.float32)
    with nbtc.triton.emulated("sm_90"):
        layout = gl.NVMMASharedLayout.get_default_for([32, 32], gl.float32)
        sum_by_two[(1,)](TensorDescriptor.from_tensor(x, [32, 32], layout), out, tiles, BLOCK=32)
    assert (out == x.reshape(tiles, 32, 32).sum(0)).all()


@gluon.jit
def columns(x, out, PIXELS: gl.constexpr, CHANNELS: gl.constexpr, R: gl.constexpr, S: gl.constexpr):
    tile = gl.allocate_shared_memory(gl.float32, [PIXELS, CHANNELS], x.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    i = gl.arange(0, PIXELS, layout=gl.SliceLayout(1, layout))[:, None]
    k = gl.arange(0, CHANNELS, layout=gl.SliceLayout(0, layout))[None, :]
    for tap in gl.static_range(R * S):
        mbarrier.expect(bar, x.nbytes_per_cta)
        tma.async_load_im2col(x, [0, -1, -1, 0], [tap // S, tap % S], bar, tile)
        mbarrier.wait(bar, tap & 1)
        gl.store(out + (tap * PIXELS + i) * CHANNELS + k, tile.load(layout))
        gl.barrier()


@pytest.mark.parametrize("step", [1, 2])
def test_columns_of_pixels(step):
    """The taps of a filter of 3 x 3 with padding 1, at every pixel of two images, or at every second one."""
    images, pixels = np.random.default_rng(4).standard_normal((2, 8, 4, 32)).astype(np.float32), 64 // step**2
    out = np.zeros((3, 3, pixels, 32), np.float32)
    with nbtc.triton.emulated("sm_90"):
        layout = gl.NVMMASharedLayout.get_default_for([pixels, 32], gl.float32)
        described = TensorDescriptorIm2Col.from_tensor(
            images, [pixels, 32], layout, element_strides=[1, step, step, 1],
            pixel_box_lower_corner=[-1, -1], pixel_box_upper_corner=[-1, -1],
        )  # fmt: skip
        columns[(1,)](described, out, PIXELS=pixels, CHANNELS=32, R=3, S=3)
    around = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    for r, s in np.ndindex(3, 3):
        wanted = around[:, r : r + 8 : step, s : s + 4 : step]
        np.testing.assert_array_equal(out[r, s], wanted.reshape(-1, 32))
