"""Kernels that speak wmma and PTX give the bits of the same calls from Python; what does not compile says why."""

from __future__ import annotations

import inspect

import ml_dtypes
import numpy as np
import pytest

import nbtc
from nbtc import ptx, warp, wgmma, wmma
from nbtc.errors import KernelError
from nbtc.formats.arrays import as_format
from nbtc.testing import assert_bits_equal

ALL = 0xFFFFFFFF
pytestmark = pytest.mark.hw
RNG = np.random.default_rng(11)


# ---------------------------------------------------------------------------------------------------------------- wmma


def numbers(fmt, count):
    """Memory of a format: random elements, or packed words."""
    fmt = as_format(fmt)
    if fmt.packed:
        return RNG.integers(0, 1 << 32, count * fmt.bits // 32, np.uint32)
    if fmt.kind == "float":
        return RNG.standard_normal(count).astype(fmt.dtype)
    low, high = max(fmt.low, -1000), min(fmt.high, 1000)
    return RNG.integers(low, high + 1, count).astype(fmt.dtype)


def tile_kernel(shape, fmt, acc, a_layout, b_layout, layout):
    m, n, k = shape

    def kernel(a, b, c, out, lda, ldb, ldc):
        fa = wmma.fragment(wmma.matrix_a, m, n, k, fmt, a_layout)
        fb = wmma.fragment(wmma.matrix_b, m, n, k, fmt, b_layout)
        fc = wmma.fragment(wmma.accumulator, m, n, k, acc)
        wmma.load_matrix_sync(fa, a, lda)
        wmma.load_matrix_sync(fb, b, ldb)
        wmma.load_matrix_sync(fc, c, ldc, layout)
        wmma.mma_sync(fc, fa, fb, fc)
        for t in range(fc.num_elements):
            fc.x[t] = fc.x[t] + fc.x[t]
        wmma.store_matrix_sync(out, fc, ldc, layout)

    return kernel


CASES = [
    ((16, 16, 16), nbtc.f16, nbtc.f32, wmma.col_major, wmma.row_major, wmma.mem_row_major),
    ((32, 8, 16), nbtc.f16, nbtc.f16, wmma.row_major, wmma.col_major, wmma.mem_col_major),
    ((8, 32, 16), nbtc.bf16, nbtc.f32, wmma.row_major, wmma.row_major, wmma.mem_row_major),
    ((16, 16, 8), wmma.precision.tf32, nbtc.f32, wmma.row_major, wmma.col_major, wmma.mem_row_major),
    ((16, 16, 16), nbtc.s8, nbtc.s32, wmma.row_major, wmma.row_major, wmma.mem_row_major),
    ((8, 32, 16), nbtc.u8, nbtc.s32, wmma.col_major, wmma.col_major, wmma.mem_col_major),
    ((8, 8, 4), nbtc.f64, nbtc.f64, wmma.col_major, wmma.row_major, wmma.mem_row_major),
    ((8, 8, 32), wmma.experimental.precision.s4, nbtc.s32, wmma.row_major, wmma.col_major, wmma.mem_row_major),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{c[1]}-{'x'.join(map(str, c[0]))}" for c in CASES])
def test_tiles_of_every_format(case):
    (m, n, k), fmt, acc, a_layout, b_layout, layout = case
    lda, ldb = k if a_layout is wmma.row_major else m, n if b_layout is wmma.row_major else k
    ldc = n if layout is wmma.mem_row_major else m
    a, b, c = numbers(fmt, m * k), numbers(fmt, k * n), numbers(acc, m * n)
    ours, plain = np.zeros_like(c), np.zeros_like(c)
    function = tile_kernel(*case)
    nbtc.kernel(function)[1, 32](a, b, c, ours, lda, ldb, ldc)
    function(a, b, c, plain, lda, ldb, ldc)
    assert_bits_equal(ours, plain)


@nbtc.kernel
def saturating(a, out):
    fa = wmma.fragment(wmma.matrix_a, 16, 16, 16, nbtc.f16, wmma.row_major)
    fb = wmma.fragment(wmma.matrix_b, 16, 16, 16, nbtc.f16, wmma.row_major)
    c = wmma.fragment(wmma.accumulator, 16, 16, 16, nbtc.f16)
    wmma.load_matrix_sync(fa, a, 48, offset=16)
    wmma.fill_fragment(fb, 1 / 3)
    wmma.fill_fragment(c, 0)
    wmma.mma_sync(c, fa, fb, c, satf=True)
    wmma.store_matrix_sync(out, c, 16, wmma.mem_row_major)


def test_offsets_and_saturated_halves():
    a = (RNG.standard_normal((16, 48)) * 60).astype(np.float16)
    a[1, 20], a[2, 20], a[3, 20] = np.inf, -np.inf, np.nan
    ours, plain = np.zeros((16, 16), np.float16), np.zeros((16, 16), np.float16)
    saturating[1, 32](a, ours)
    saturating.function(a, plain)
    assert_bits_equal(ours, plain)


@nbtc.kernel
def agreeing_bits(a, b, out):
    fa = wmma.fragment(wmma.matrix_a, 8, 8, 128, wmma.experimental.precision.b1, wmma.row_major)
    fb = wmma.fragment(wmma.matrix_b, 8, 8, 128, wmma.experimental.precision.b1, wmma.col_major)
    c = wmma.fragment(wmma.accumulator, 8, 8, 128, nbtc.s32)
    wmma.fill_fragment(c, -3)
    wmma.load_matrix_sync(fa, a, 128)
    wmma.load_matrix_sync(fb, b, 128)
    wmma.bmma_sync(c, fa, fb, c, wmma.bmmaBitOpAND)
    wmma.bmma_sync(c, fa, fb, c)
    fb.x[0] = np.uint32(0xF)
    wmma.bmma_sync(c, fa, fb, c)
    wmma.store_matrix_sync(out, c, 8, wmma.mem_row_major)


def test_products_of_bits():
    a, b = RNG.integers(0, 1 << 32, (2, 32), np.uint32)
    ours, plain = np.zeros((8, 8), np.int32), np.zeros((8, 8), np.int32)
    agreeing_bits[1, 32](a, b, ours)
    agreeing_bits.function(a, b, plain)
    assert_bits_equal(ours, plain)


# ----------------------------------------------------------------------------------------------------------------- ptx

HALVES = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
DOUBLES = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"
SPARSE = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"


@nbtc.kernel
def products(a, b, c, meta, d):
    lane = nbtc.lane_id()
    half = ptx.mma_sync(HALVES, (a[lane, 0], a[lane, 1], a[lane, 2], a[lane, 3]), (b[lane, 0], b[lane, 1]), c[lane])
    sparse = ptx.mma_sp(SPARSE, a[lane], b[lane], half, meta[lane], selector=1)
    for n in range(4):
        d[0, lane, n] = half[n]
        d[1, lane, n] = sparse[n]


def test_products_of_registers():
    a, b, c = RNG.integers(0, 1 << 32, (3, 32, 4), np.uint32)
    meta, d = np.full(32, 0x4E4E4E4E, np.uint32), np.zeros((2, 32, 4), np.uint32)
    products[1, 32](a, b, c, meta, d)
    half = ptx.mma_sync(HALVES, a, b[:, :2], c)
    assert_bits_equal(d[0], half)
    assert_bits_equal(d[1], ptx.mma_sp(SPARSE, a, b, half, meta, selector=1))


@nbtc.kernel
def doubles(a, b, d):
    lane = nbtc.lane_id()
    first = ptx.mma_sync(DOUBLES, (a[lane],), (b[lane],), (0.5, a[lane]))
    d[lane, 0], d[lane, 1] = first


def test_registers_of_doubles():
    a, b = RNG.standard_normal((2, 32))
    d = np.zeros((32, 2))
    doubles[1, 32](a, b, d)
    c = np.stack([np.full(32, 0.5), a], axis=1)
    assert_bits_equal(
        d.view(np.uint32), ptx.mma_sync(DOUBLES, a.view("u4").reshape(32, 2), b.view("u4").reshape(32, 2), c.view("u4"))
    )


@nbtc.kernel
def moves(x, regs, turned, back):
    tile, lane = nbtc.shared((32, 8), nbtc.f16), nbtc.lane_id()
    for n in range(8):
        tile[lane, n] = x[lane, n]
    nbtc.syncwarp()
    found = ptx.ldmatrix(tile, 16 * lane, num=4, trans=True)
    for n in range(4):
        regs[lane, n] = found[n]
    turned[lane] = ptx.movmatrix(found[1])
    nbtc.syncwarp()
    ptx.stmatrix(tile, 16 * (31 - lane), found, num=4)
    nbtc.syncwarp()
    for n in range(8):
        back[lane, n] = tile[lane, n]


def test_matrices_between_shared_memory_and_lanes():
    x, back = RNG.standard_normal((32, 8)).astype(np.float16), np.zeros((32, 8), np.float16)
    regs, turned = np.zeros((32, 4), np.uint32), np.zeros(32, np.uint32)
    moves[1, 32](x, regs, turned, back)
    smem, lanes = x.copy().view(np.uint8).reshape(-1), np.arange(32)
    want = ptx.ldmatrix(smem, 16 * lanes, num=4, trans=True)
    assert_bits_equal(regs, want)
    assert_bits_equal(turned, ptx.movmatrix(want[:, 1]))
    ptx.stmatrix(smem, 16 * (31 - lanes), want, num=4)
    assert_bits_equal(back.view(np.uint8).reshape(-1), smem)


@nbtc.kernel
def conversions(x, out):
    lane = nbtc.lane_id()
    out[0, lane] = ptx.cvt("cvt.rn.f16x2.f32", x[lane], -x[lane])
    out[1, lane] = ptx.cvt("cvt.rn.satfinite.relu.e4m3x2.f32", x[lane], -x[lane])
    out[2, lane] = ptx.cvt("cvt.rna.tf32.f32", x[lane])
    out[3, lane] = ptx.cvt("cvt.f32.bf16", ptx.cvt("cvt.rz.bf16.f32", x[lane]))
    out[4, lane] = ptx.cvt("cvt.pack.sat.s8.s32.b32", lane * 20 - 300, lane, np.uint32(0x1234))


def test_conversions():
    x, out, lanes = RNG.standard_normal(32).astype(np.float32), np.zeros((5, 32), np.uint32), np.arange(32)
    conversions[1, 32](x, out)
    word, minus = x.view(np.uint32), (-x).view(np.uint32)
    assert_bits_equal(out[0], ptx.cvt("cvt.rn.f16x2.f32", word, minus))
    assert_bits_equal(out[1], ptx.cvt("cvt.rn.satfinite.relu.e4m3x2.f32", word, minus).astype(np.uint32))
    assert_bits_equal(out[2], ptx.cvt("cvt.rna.tf32.f32", word))
    assert_bits_equal(out[3], ptx.cvt("cvt.f32.bf16", ptx.cvt("cvt.rz.bf16.f32", word)))
    packed = [(lanes * 20 - 300).astype(np.int32).view(np.uint32), lanes.astype(np.uint32), np.uint32(0x1234)]
    assert_bits_equal(out[4], ptx.cvt("cvt.pack.sat.s8.s32.b32", *packed))


WARPGROUP = "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e5m2"


@nbtc.kernel
def chained(a, b, d):
    tile, thread = nbtc.shared(2048 + 256, np.uint8, align=1024), nbtc.thread_idx.x
    for n in range(thread, tile.size, 128):
        tile[n] = a[n] if n < 2048 else b[n - 2048]
    wgmma.fence_proxy_async()
    nbtc.syncthreads()
    da, db = wgmma.Descriptor(tile, 1024, 128), wgmma.Descriptor(tile[2048:], 128, 128)
    before = (d[thread, 0], d[thread, 1], d[thread, 2], d[thread, 3])
    wgmma.fence()
    acc = ptx.wgmma(WARPGROUP, before, da, db, scale_b=-1)
    acc = ptx.wgmma(WARPGROUP, acc, da, db, scale_d=thread >= 0)
    wgmma.commit_group()
    wgmma.wait_group(0)
    for n in range(4):
        d[thread, n] = acc[n]


def test_a_warpgroup_adds_to_its_registers():
    a, da = wgmma.tile_to_smem(numbers("e4m3", 64 * 32).reshape(64, 32), "e4m3")
    b, db = wgmma.tile_to_smem(numbers("e5m2", 8 * 32).reshape(8, 32), "e5m2")
    d = RNG.standard_normal((128, 4)).astype(np.float32).view(np.uint32)
    assert (da.leading, da.stride, db.leading, db.stride) == (1024, 128, 128, 128)
    smem, other = np.concatenate([a, b]), wgmma.Descriptor(2048, 128, 128)
    want = ptx.wgmma(WARPGROUP, ptx.wgmma(WARPGROUP, d, da, other, smem, scale_b=-1), da, other, smem)
    chained[1, 128](a, b, d)
    assert_bits_equal(d, want)


@nbtc.kernel
def double_buffered(x, out):
    """Each warp copies rows of 128 floats in two stages: while one is read, the next is on its way."""
    tile, lane = nbtc.shared((2, 128), nbtc.f32), nbtc.lane_id()
    ptx.cp_async(tile[0, 4 * lane :], x[0, 4 * lane :])
    ptx.cp_async_commit_group()
    for row in range(x.shape[0]):
        if row + 1 < x.shape[0]:
            ptx.cp_async(tile[(row + 1) % 2, 4 * lane :], x[row + 1, 4 * lane :])
        ptx.cp_async_commit_group()
        ptx.cp_async_wait_group(1)
        nbtc.syncwarp()
        for n in range(4):
            out[row, 4 * lane + n] = 2 * tile[row % 2, 127 - 4 * lane - n]
        nbtc.syncwarp()


def test_copies_in_two_stages():
    x = RNG.standard_normal((5, 128)).astype(np.float32)
    out = np.zeros_like(x)
    double_buffered[1, 32](x, out)
    assert_bits_equal(out, 2 * x[:, ::-1])


@nbtc.kernel
def bulk(x, out):
    """One thread asks for a row at a time; all wait for its bytes at a barrier."""
    tile, bar = nbtc.shared(256, nbtc.f32, align=128), nbtc.shared(1, np.uint64)
    t = nbtc.thread_idx.x
    if t == 0:
        ptx.mbarrier_init(bar, 1)
        ptx.fence_mbarrier_init()
    nbtc.syncthreads()
    for row in range(x.shape[0]):
        if t == 0:
            ptx.mbarrier_arrive_expect_tx(bar, 1024)
            ptx.cp_async_bulk(tile, x[row], 1024, bar)
        ptx.mbarrier_wait(bar, row % 2)
        out[row, t] = tile[255 - t]
        nbtc.syncthreads()
    if t == 0:
        ptx.mbarrier_inval(bar)


def test_bulk_copies():
    x = RNG.standard_normal((6, 256)).astype(np.float32)
    out = np.zeros_like(x)
    bulk[1, 256](x, out)
    assert_bits_equal(out, np.ascontiguousarray(x[:, ::-1]))


# --------------------------------------------------------------------------------------------------------------- errors


def wrong_size(x):
    wmma.fragment(wmma.matrix_a, 16, 16, 17, nbtc.f16, wmma.row_major)


def wrong_memory(x):
    a = wmma.fragment(wmma.matrix_a, 16, 16, 16, nbtc.f16, wmma.row_major)
    wmma.load_matrix_sync(a, x, 16)


def wrong_count(x):
    ptx.mma_sync(HALVES, (x[0], x[1]), (x[0], x[1]), (x[0], x[0], x[0], x[0]))


def wrong_mnemonic(x):
    ptx.mma_sync("mma.sync.aligned.m16n8k15.row.col.f32.f16.f16.f32", x, x, x)


def wrong_number(x):
    x[0] = warp.shfl_sync(ALL, x, 3)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (wrong_size, "no matrix_a fragment of shape m16n16k17"),
        (wrong_memory, "memory is an array of float16"),
        (wrong_count, "this form has 4 registers, the tuple has 2"),
        (wrong_mnemonic, "m16n8k16"),
        (wrong_number, "var is a number"),
    ],
)
def test_what_does_not_compile_says_where_and_why(function, message):
    with pytest.raises(KernelError, match=message) as caught:
        nbtc.kernel(function)[1, 32](np.zeros(256, np.uint32))
    last = function.__code__.co_firstlineno + len(inspect.getsource(function).splitlines()) - 1
    assert f":{last}" in str(caught.value)


def needs_bf16(x):
    a = wmma.fragment(wmma.matrix_a, 16, 16, 16, nbtc.bf16, wmma.row_major)
    wmma.load_matrix_sync(a, x, 16)


def needs_fp8(x):
    word = x.view(np.uint32)[0, 0]
    found = ptx.mma_sync(FP8, (word, word, word, word), (word, word), (word, word, word, word))
    x.view(np.uint32)[0, 0] = found[0]


FP8 = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"


@pytest.mark.parametrize(
    ("function", "arch", "since", "line"),
    [(needs_bf16, "sm_75", "sm_80", 2), (needs_fp8, "sm_80", "sm_89", 2)],
    ids=["bf16", "fp8"],
)
def test_what_an_architecture_lacks_is_said_with_the_line(function, arch, since, line):
    x, kernel = np.zeros((16, 16), ml_dtypes.bfloat16), nbtc.kernel(function)
    place = rf"test_tensor_words.py:{function.__code__.co_firstlineno + line}\)"
    with pytest.raises(KernelError, match=rf"{place}.*{arch} has no .*exists on {since},"):
        kernel.on(arch).ptx(x)
    assert kernel.on(since).ptx(x)
