"""nbtc's functions in kernels of numba.cuda give the bits of the same calls from Python.

On the CPU under `nbtc.cuda.emulated`; with --hw on this machine's GPU.
"""

from contextlib import nullcontext

import numpy as np
import pytest
from numba import cuda
from numba.core import types

import nbtc
from nbtc import dpx, ptx, warp, wgmma, wmma
from nbtc.testing import assert_bits_equal
from tests.isa.assembler import PTXAS, known, needs_ptxas, refusal

nbtc.cuda.register()
pytestmark = pytest.mark.hw
ALL = 0xFFFFFFFF
RNG = np.random.default_rng(17)
HALVES = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
DOUBLES = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"
SPARSE = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
WARPGROUP = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"


@pytest.fixture(autouse=True)
def device(request):
    """A device of sm_90: emulated, or with --hw the machine's own."""
    with nullcontext() if request.config.getoption("--hw") else nbtc.cuda.emulated("sm_90"):
        yield


# ---------------------------------------------------------------------------------------------------------------- wmma


def tile_kernel(shape, fmt, acc, a_layout, b_layout, layout):
    m, n, k = shape

    @cuda.jit
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
    ((8, 8, 4), nbtc.f64, nbtc.f64, wmma.col_major, wmma.row_major, wmma.mem_row_major),
    ((8, 8, 32), wmma.experimental.precision.s4, nbtc.s32, wmma.row_major, wmma.col_major, wmma.mem_row_major),
]


def numbers(fmt, count):
    """Memory of a format: random elements, or packed words."""
    fmt = nbtc.formats.arrays.as_format(fmt)
    if fmt.packed:
        return RNG.integers(0, 1 << 32, count * fmt.bits // 32, np.uint32)
    if fmt.kind == "float":
        return RNG.standard_normal(count).astype(fmt.dtype)
    return RNG.integers(max(fmt.low, -1000), min(fmt.high, 1000) + 1, count).astype(fmt.dtype)


@pytest.mark.parametrize("case", CASES, ids=[f"{c[1]}-{'x'.join(map(str, c[0]))}" for c in CASES])
def test_tiles_of_every_format(case):
    (m, n, k), fmt, acc, a_layout, b_layout, layout = case
    lda, ldb = k if a_layout is wmma.row_major else m, n if b_layout is wmma.row_major else k
    ldc = n if layout is wmma.mem_row_major else m
    a, b, c = numbers(fmt, m * k), numbers(fmt, k * n), numbers(acc, m * n)
    ours, plain = np.zeros_like(c), np.zeros_like(c)
    kernel = tile_kernel(*case)
    words = [x.view(np.uint16) if x.dtype.name == "bfloat16" else x for x in (a, b)]
    kernel[1, 32](*words, c, ours, lda, ldb, ldc)
    kernel.py_func(a, b, c, plain, lda, ldb, ldc)
    assert_bits_equal(ours, plain)


@cuda.jit
def saturating(a, out):
    fa = wmma.fragment(wmma.matrix_a, 16, 16, 16, nbtc.bf16, wmma.row_major)
    fb = wmma.fragment(wmma.matrix_b, 16, 16, 16, nbtc.bf16, wmma.row_major)
    c = wmma.fragment(wmma.accumulator, 16, 16, 16, nbtc.f32)
    wmma.load_matrix_sync(fa, a, 48, offset=16)
    wmma.fill_fragment(fb, 1 / 3)
    fb.x[0] = fb.x[1]
    wmma.fill_fragment(c, 0)
    wmma.mma_sync(c, fa, fb, c, satf=True)
    wmma.store_matrix_sync(out, c, 16, wmma.mem_row_major)


def test_offsets_and_saturation():
    a = (RNG.standard_normal((16, 48)) * 60).astype(nbtc.bf16.dtype)
    a[1, 20], a[2, 20], a[3, 20] = np.inf, -np.inf, np.nan
    ours, plain = np.zeros((16, 16), np.float32), np.zeros((16, 16), np.float32)
    saturating[1, 32](a.view(np.uint16), ours)
    saturating.py_func(a, plain)
    assert_bits_equal(ours, plain)


@cuda.jit
def agreeing_bits(a, b, out):
    fa = wmma.fragment(wmma.matrix_a, 8, 8, 128, wmma.experimental.precision.b1, wmma.row_major)
    fb = wmma.fragment(wmma.matrix_b, 8, 8, 128, wmma.experimental.precision.b1, wmma.col_major)
    c = wmma.fragment(wmma.accumulator, 8, 8, 128, nbtc.s32)
    wmma.fill_fragment(c, -3)
    wmma.load_matrix_sync(fa, a, 128)
    wmma.load_matrix_sync(fb, b, 128)
    wmma.bmma_sync(c, fa, fb, c, wmma.bmmaBitOpAND)
    wmma.bmma_sync(c, fa, fb, c)
    wmma.store_matrix_sync(out, c, 8, wmma.mem_row_major)


def test_products_of_bits():
    a, b = RNG.integers(0, 1 << 32, (2, 32), np.uint32)
    ours, plain = np.zeros((8, 8), np.int32), np.zeros((8, 8), np.int32)
    agreeing_bits[1, 32](a, b, ours)
    agreeing_bits.py_func(a, b, plain)
    assert_bits_equal(ours, plain)


# ----------------------------------------------------------------------------------------------------------------- ptx


@cuda.jit
def products(a, b, c, meta, d):
    lane = cuda.laneid
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


@cuda.jit
def doubles(a, b, d):
    lane = cuda.laneid
    d[lane, 0], d[lane, 1] = ptx.mma_sync(DOUBLES, (a[lane],), (b[lane],), (0.5, a[lane]))


def test_registers_of_doubles():
    a, b = RNG.standard_normal((2, 32))
    d = np.zeros((32, 2))
    doubles[1, 32](a, b, d)
    c = np.stack([np.full(32, 0.5), a], axis=1)
    words = [x.view(np.uint32).reshape(32, -1) for x in (a, b, c)]
    assert_bits_equal(d.view(np.uint32), ptx.mma_sync(DOUBLES, *words))


@cuda.jit
def moves(x, regs, turned, back):
    tile, lane = cuda.shared.array((32, 8), np.float16), cuda.laneid
    for n in range(8):
        tile[lane, n] = x[lane, n]
    cuda.syncwarp()
    found = ptx.ldmatrix(tile, 16 * lane, num=4, trans=True)
    for n in range(4):
        regs[lane, n] = found[n]
    turned[lane] = ptx.movmatrix(found[1])
    cuda.syncwarp()
    ptx.stmatrix(tile, 16 * (31 - lane), found, num=4)
    cuda.syncwarp()
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


@cuda.jit
def conversions(x, out):
    lane = cuda.laneid
    out[0, lane] = ptx.cvt("cvt.rn.f16x2.f32", x[lane], -x[lane])
    out[1, lane] = ptx.cvt("cvt.rn.satfinite.relu.e4m3x2.f32", x[lane], -x[lane])
    out[2, lane] = ptx.cvt("cvt.rna.tf32.f32", x[lane])
    out[3, lane] = ptx.cvt("cvt.f32.bf16", ptx.cvt("cvt.rz.bf16.f32", x[lane]))


def test_conversions():
    x, out = RNG.standard_normal(32).astype(np.float32), np.zeros((4, 32), np.uint32)
    conversions[1, 32](x, out)
    word, minus = x.view(np.uint32), (-x).view(np.uint32)
    assert_bits_equal(out[0], ptx.cvt("cvt.rn.f16x2.f32", word, minus))
    assert_bits_equal(out[1], ptx.cvt("cvt.rn.satfinite.relu.e4m3x2.f32", word, minus).astype(np.uint32))
    assert_bits_equal(out[2], ptx.cvt("cvt.rna.tf32.f32", word))
    assert_bits_equal(out[3], ptx.cvt("cvt.f32.bf16", ptx.cvt("cvt.rz.bf16.f32", word)))


@cuda.jit
def chained(a, b, d):
    tile, thread = cuda.shared.array(2048 + 256, np.uint8, alignment=1024), cuda.threadIdx.x
    for n in range(thread, 2048, 128):
        tile[n] = a[n]
    for n in range(thread, 256, 128):
        tile[2048 + n] = b[n]
    wgmma.fence_proxy_async()
    cuda.syncthreads()
    da, db = wgmma.Descriptor(tile, 1024, 128), wgmma.Descriptor(tile[2048:], 128, 128)
    before = (d[thread, 0], d[thread, 1], d[thread, 2], d[thread, 3])
    wgmma.fence()
    acc = ptx.wgmma(WARPGROUP, before, da, db, scale_b=-1)
    acc = ptx.wgmma(WARPGROUP, acc, da, db, scale_d=thread >= 0)
    wgmma.commit_group()
    wgmma.wait_group(0)
    for n in range(4):
        d[thread, n] = acc[n]


def warpgroup_operands():
    a, da = wgmma.tile_to_smem(numbers("f16", 64 * 16).reshape(64, 16), "f16")
    b, db = wgmma.tile_to_smem(numbers("f16", 8 * 16).reshape(8, 16), "f16")
    d = RNG.standard_normal((128, 4)).astype(np.float32).view(np.uint32)
    assert (da.leading, da.stride, db.leading, db.stride) == (1024, 128, 128, 128)
    smem, other = np.concatenate([a, b]), wgmma.Descriptor(2048, 128, 128)
    want = ptx.wgmma(WARPGROUP, ptx.wgmma(WARPGROUP, d, da, other, smem, scale_b=-1), da, other, smem)
    return a, b, d, want


def test_a_warpgroup_adds_to_its_registers():
    a, b, d, want = warpgroup_operands()
    chained[1, 128](a, b, d)
    assert_bits_equal(d, want)


@cuda.jit
def copies(x, out):
    """Rows by an asynchronous copy of each thread, then by one thread's bulk copy with a barrier."""
    tile, bar = cuda.shared.array(256, np.float32, alignment=128), cuda.shared.array(1, np.uint64)
    t = cuda.threadIdx.x
    if t == 0:
        ptx.mbarrier_init(bar, 1)
        ptx.fence_mbarrier_init()
    cuda.syncthreads()
    if t < 64:
        ptx.cp_async(tile[4 * t :], x[0, 4 * t :])
        ptx.cp_async_commit_group()
        ptx.cp_async_wait_group(0)
    cuda.syncthreads()
    out[0, t] = tile[255 - t]
    cuda.syncthreads()
    wgmma.fence_proxy_async()
    if t == 0:
        ptx.mbarrier_arrive_expect_tx(bar, 1024)
        ptx.cp_async_bulk(tile, x[1], 1024, bar)
    ptx.mbarrier_wait(bar, 0)
    out[1, t] = tile[255 - t]


def test_copies():
    x = RNG.standard_normal((2, 256)).astype(np.float32)
    out = np.zeros_like(x)
    copies[1, 256](x, out)
    assert_bits_equal(out, np.ascontiguousarray(x[:, ::-1]))


# ------------------------------------------------------------------------------------------------------- warp and dpx


@cuda.jit
def exchanges(x, out):
    lane = cuda.laneid
    v = x[lane]
    out[0, lane] = warp.shfl_sync(ALL, v, 2, width=8)
    out[1, lane] = warp.shfl_up_sync(ALL, v, delta=3, width=16)
    out[2, lane] = warp.shfl_down_sync(ALL, v, 5)
    out[3, lane] = warp.shfl_xor_sync(ALL, v, 1)


@pytest.mark.parametrize("dtype", [np.int32, np.float64, np.float16])
def test_exchanges(dtype):
    x = RNG.integers(0, 100, 32).astype(dtype)
    out = np.zeros((4, 32), x.dtype)
    exchanges[1, 32](x, out)
    up, down = warp.shfl_up_sync(ALL, x, 3, width=16), warp.shfl_down_sync(ALL, x, 5)
    assert_bits_equal(out, np.stack([warp.shfl_sync(ALL, x, 2, width=8), up, down, warp.shfl_xor_sync(ALL, x, 1)]))


@cuda.jit
def votes(x, out):
    lane = cuda.laneid
    v = x[lane]
    out[0, lane] = warp.reduce_add_sync(ALL, v)
    out[1, lane] = warp.reduce_min_sync(ALL, v)
    out[2, lane] = warp.reduce_xor_sync(ALL, v)
    out[3, lane] = warp.ballot_sync(ALL, v > 3)
    out[4, lane] = warp.any_sync(ALL, v > 90) + 2 * warp.all_sync(ALL, v >= 0)
    out[5, lane] = warp.match_any_sync(ALL, v)
    lanes, agree = warp.match_all_sync(ALL, v)
    out[6, lane] = lanes + np.uint32(agree)
    out[7, lane] = warp.activemask()


def test_votes():
    x, out = RNG.integers(0, 8, 32).astype(np.int32), np.zeros((8, 32), np.uint32)
    votes[1, 32](x, out)
    assert (out[0] == x.sum()).all() and (out[1] == x.min()).all() and (out[2] == np.bitwise_xor.reduce(x)).all()
    assert_bits_equal(out[3], warp.ballot_sync(ALL, x > 3))
    assert (out[4] == 2).all() and (out[6] == 0).all() and (out[7] == ALL).all()
    assert_bits_equal(out[5], warp.match_any_sync(ALL, x))


@cuda.jit
def steps(x, y, z, out):
    i = cuda.laneid
    out[0, i] = dpx.viaddmax_s32_relu(x[i], y[i], z[i])
    out[1, i] = dpx.vimax3_s32(x[i], y[i], z[i])
    out[2, i] = dpx.vimin_s32_relu(x[i], y[i])
    out[3, i] = dpx.viaddmin_u16x2(x[i], y[i], z[i])
    out[4, i] = dpx.vimin3_s16x2_relu(x[i], y[i], z[i])
    value, taken = dpx.vibmax_u32(x[i], y[i])
    out[5, i], out[6, i] = value, taken
    value, high, low = dpx.vibmin_s16x2(x[i], y[i])
    out[7, i], out[8, i] = value, 2 * high + low


def test_steps_of_dynamic_programs():
    words = RNG.integers(0, 1 << 32, (3, 32), np.uint32)
    words[1, :4] = words[0, :4]
    out = np.zeros((9, 32), np.uint32)
    steps[1, 32](*words, out)
    x, y, z = words.view(np.int32)
    assert_bits_equal(out[0], dpx.viaddmax_s32_relu(x, y, z).view(np.uint32))
    assert_bits_equal(out[1], dpx.vimax3_s32(x, y, z).view(np.uint32))
    assert_bits_equal(out[2], dpx.vimin_s32_relu(x, y).view(np.uint32))
    assert_bits_equal(out[3], dpx.viaddmin_u16x2(*words))
    assert_bits_equal(out[4], dpx.vimin3_s16x2_relu(*words))
    value, taken = dpx.vibmax_u32(*words[:2])
    assert_bits_equal(out[5:7], np.stack([value, taken.astype(np.uint32)]))
    value, high, low = dpx.vibmin_s16x2(*words[:2])
    assert_bits_equal(out[7:], np.stack([value, 2 * high.astype(np.uint32) + low]))


# ------------------------------------------------------------------------------------------------- compiled beforehand

WORDS, BYTES = types.uint32[:, ::1], types.uint8[::1]


def test_text_for_a_target_runs_and_assembles():
    text, _ = cuda.compile_ptx(chained.py_func, types.void(BYTES, BYTES, WORDS), cc=(9, 0, "a"))
    assert ".target sm_90a" in text and text.count(f"{WARPGROUP} ") == 2
    assert PTXAS is None or refusal(known(text), "sm_90a") == ""
    a, b, d, want = warpgroup_operands()
    module = nbtc.load(text)
    launch = [x for y in (a, b, d) for x in (None, None, y.size, y.itemsize, y, *y.shape, *y.strides)]
    module[module.kernels[0]][1, 128](*launch)
    assert_bits_equal(d, want)


@needs_ptxas
@pytest.mark.parametrize(
    "kernel", [products, moves, conversions, votes, copies, steps], ids=lambda k: k.py_func.__name__
)
def test_every_kernel_assembles(kernel):
    line, table, single = types.uint32[::1], types.uint32[:, ::1], types.float32[::1]
    halves = types.float16[:, ::1]
    given = {
        "products": (table, table, table, line, types.uint32[:, :, ::1]),
        "moves": (halves, table, line, halves),
        "conversions": (single, table),
        "votes": (types.int32[::1], table),
        "copies": (types.float32[:, ::1], types.float32[:, ::1]),
        "steps": (line, line, line, table),
    }[kernel.py_func.__name__]
    text, _ = cuda.compile_ptx(kernel.py_func, types.void(*given), cc=(9, 0, "a"))
    assert refusal(known(text), "sm_90a") == ""
