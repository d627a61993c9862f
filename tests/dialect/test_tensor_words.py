"""Kernels that speak wmma and PTX give the bits of the same calls from Python; what does not compile says why."""

from __future__ import annotations

import inspect

import ml_dtypes
import numpy as np
import pytest

import nbtc
from nbtc import ptx, warp, wgmma, wmma
from nbtc.errors import KernelError
from nbtc.testing import assert_bits_equal
from tests.dialect import tensor_words as shared
from tests.dialect.tensor_words import HALVES

ALL = 0xFFFFFFFF
pytestmark = pytest.mark.hw
RNG = np.random.default_rng(11)


@pytest.mark.parametrize("case", shared.CASES, ids=shared.NAMES)
def test_tiles_of_every_format(case):
    shared.check_tiles(nbtc.kernel, case)


def test_offsets_and_saturated_halves():
    shared.check_saturation(nbtc.kernel, nbtc.f16, nbtc.f16)


def test_products_of_bits():
    shared.check_bits(nbtc.kernel)


def test_products_of_registers():
    shared.check_products(nbtc.kernel(shared.products_kernel(nbtc.lane_id)))


def test_registers_of_doubles():
    shared.check_doubles(nbtc.kernel, nbtc.lane_id)


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
    shared.check_moves(moves)


def test_conversions():
    shared.check_conversions(nbtc.kernel(shared.conversions_kernel(nbtc.lane_id)))


@nbtc.kernel
def packing(out):
    lane = nbtc.lane_id()
    out[lane] = ptx.cvt("cvt.pack.sat.s8.s32.b32", lane * 20 - 300, lane, np.uint32(0x1234))


def test_packing_of_integers():
    out, lanes = np.zeros(32, np.uint32), np.arange(32)
    packing[1, 32](out)
    packed = [(lanes * 20 - 300).astype(np.int32).view(np.uint32), lanes.astype(np.uint32), np.uint32(0x1234)]
    assert_bits_equal(out, ptx.cvt("cvt.pack.sat.s8.s32.b32", *packed))


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
    a, b, d, want = shared.warpgroup_operands(WARPGROUP, "e4m3", "e5m2")
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
