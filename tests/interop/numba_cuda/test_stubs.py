"""nbtc's functions in kernels of numba.cuda give the bits of the same calls from Python.

On the CPU under `nbtc.cuda.emulated`; with --hw on this machine's GPU.
"""

from contextlib import nullcontext

import numpy as np
import pytest
from numba import cuda
from numba.core import types

import nbtc
from nbtc import dpx, ptx, warp, wgmma
from nbtc.testing import assert_bits_equal
from tests.dialect import tensor_words as shared
from tests.isa.assembler import PTXAS, known, needs_ptxas, refusal

nbtc.cuda.register()
pytestmark = pytest.mark.hw
ALL = 0xFFFFFFFF
RNG = np.random.default_rng(17)
WARPGROUP = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"


@pytest.fixture(autouse=True)
def device(request):
    """A device of sm_90: emulated, or with --hw the machine's own."""
    with nullcontext() if request.config.getoption("--hw") else nbtc.cuda.emulated("sm_90"):
        yield


@cuda.jit(device=True)
def lane_id():
    return cuda.laneid


products, conversions = (cuda.jit(of(lane_id)) for of in (shared.products_kernel, shared.conversions_kernel))


def as_words(x):
    """numba.cuda has no type for bfloat16 arrays of NumPy's."""
    return x.view(np.uint16) if x.dtype.name == "bfloat16" else x


@pytest.mark.parametrize("case", shared.CASES, ids=shared.NAMES)
def test_tiles_of_every_format(case):
    shared.check_tiles(cuda.jit, case, as_words)


def test_offsets_and_saturation():
    shared.check_saturation(cuda.jit, nbtc.bf16, nbtc.f32, as_words)


def test_products_of_bits():
    shared.check_bits(cuda.jit)


def test_products_of_registers():
    shared.check_products(products)


def test_registers_of_doubles():
    shared.check_doubles(cuda.jit, lane_id)


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
    shared.check_moves(moves)


def test_conversions():
    shared.check_conversions(conversions)


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


def test_a_warpgroup_adds_to_its_registers():
    a, b, d, want = shared.warpgroup_operands(WARPGROUP, "f16", "f16")
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
    a, b, d, want = shared.warpgroup_operands(WARPGROUP, "f16", "f16")
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
    halves, stack = types.float16[:, ::1], types.uint32[:, :, ::1]
    given = {
        "products": (stack, stack, stack, line, stack),
        "moves": (halves, table, line, halves),
        "conversions": (single, table),
        "votes": (types.int32[::1], table),
        "copies": (types.float32[:, ::1], types.float32[:, ::1]),
        "steps": (line, line, line, table),
    }[kernel.py_func.__name__]
    text, _ = cuda.compile_ptx(kernel.py_func, types.void(*given), cc=(9, 0, "a"))
    assert refusal(known(text), "sm_90a") == ""
