"""Kernels of tensor words and what must come of them, for every front end that compiles Python for a GPU.

A front end is its decorator and its function that gives a lane's number; kernels that need its own shared memory are
written beside its tests.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import nbtc
from nbtc import ptx, wgmma, wmma
from nbtc.formats.arrays import as_format
from nbtc.testing import assert_bits_equal

RNG = np.random.default_rng(17)
GOLDEN = Path(__file__).parents[1] / "golden" / "registers.npz"
HALVES = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
DOUBLES = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"
SPARSE = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
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
NAMES = [f"{c[1]}-{'x'.join(map(str, c[0]))}" for c in CASES]


def numbers(fmt: object, count: int) -> Any:
    """Memory of a format: random elements, or packed words."""
    found = as_format(fmt)
    if found.packed:
        return RNG.integers(0, 1 << 32, count * found.bits // 32, np.uint32)
    if found.kind == "float":
        return RNG.standard_normal(count).astype(found.dtype)
    low, high = max(found.low, -1000), min(found.high, 1000)
    return RNG.integers(low, high + 1, count).astype(found.dtype)


def tile_kernel(shape, fmt, acc, a_layout, b_layout, layout):
    """The doubled product of a tile, as a plain function."""
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


def check_tiles(jit, case, as_taken=lambda x: x):
    """as_taken: how the front end takes an operand."""
    (m, n, k), fmt, acc, a_layout, b_layout, layout = case
    lda, ldb = k if a_layout is wmma.row_major else m, n if b_layout is wmma.row_major else k
    ldc = n if layout is wmma.mem_row_major else m
    a, b, c = numbers(fmt, m * k), numbers(fmt, k * n), numbers(acc, m * n)
    ours, plain = np.zeros_like(c), np.zeros_like(c)
    function = tile_kernel(*case)
    jit(function)[1, 32](as_taken(a), as_taken(b), c, ours, lda, ldb, ldc)
    function(a, b, c, plain, lda, ldb, ldc)
    assert_bits_equal(ours, plain)


def saturating_kernel(fmt, acc):
    """A tile of a wider matrix, with elements set, times a constant one, clamped."""

    def kernel(a, out):
        fa = wmma.fragment(wmma.matrix_a, 16, 16, 16, fmt, wmma.row_major)
        fb = wmma.fragment(wmma.matrix_b, 16, 16, 16, fmt, wmma.row_major)
        c = wmma.fragment(wmma.accumulator, 16, 16, 16, acc)
        wmma.load_matrix_sync(fa, a, 48, offset=16)
        wmma.fill_fragment(fb, 1 / 3)
        fb.x[0] = fb.x[1]
        wmma.fill_fragment(c, 0)
        wmma.mma_sync(c, fa, fb, c, satf=True)
        wmma.store_matrix_sync(out, c, 16, wmma.mem_row_major)

    return kernel


def check_saturation(jit, fmt, acc, as_taken=lambda x: x):
    a = (RNG.standard_normal((16, 48)) * 60).astype(fmt.dtype)
    a[1, 20], a[2, 20], a[3, 20] = np.inf, -np.inf, np.nan
    ours, plain = np.zeros((16, 16), acc.dtype), np.zeros((16, 16), acc.dtype)
    function = saturating_kernel(fmt, acc)
    jit(function)[1, 32](as_taken(a), ours)
    function(a, plain)
    assert_bits_equal(ours, plain)


def agreeing_bits(a, b, out):
    """Two products of bits, and one more after some were set."""
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


def check_bits(jit):
    a, b = RNG.integers(0, 1 << 32, (2, 32), np.uint32)
    ours, plain = np.zeros((8, 8), np.int32), np.zeros((8, 8), np.int32)
    jit(agreeing_bits)[1, 32](a, b, ours)
    agreeing_bits(a, b, plain)
    assert_bits_equal(ours, plain)


def recorded(run: str) -> list[Any]:
    """Register images as hardware took and gave them (`recorders/make_registers.py`): A, B, C, D, metadata if any."""
    with np.load(GOLDEN) as z:
        return [z[f"{run}__{x}"][0] for x in "ABCDE" if f"{run}__{x}" in z]


def products_kernel(lane_id):
    """A dense product, a sparse one, and a sparse one of the dense one's result."""

    def products(a, b, c, meta, d):
        lane = lane_id()
        x = (a[0, lane, 0], a[0, lane, 1], a[0, lane, 2], a[0, lane, 3])
        half = ptx.mma_sync(HALVES, x, (b[0, lane, 0], b[0, lane, 1]), c[0, lane])
        sparse = ptx.mma_sp(SPARSE, a[1, lane], b[1, lane], c[1, lane], meta[lane], selector=1)
        both = ptx.mma_sp(SPARSE, a[1, lane], b[1, lane], half, meta[lane], selector=1)
        for n in range(4):
            d[0, lane, n] = half[n]
            d[1, lane, n] = sparse[n]
            d[2, lane, n] = both[n]

    return products


def check_products(kernel):
    dense = recorded("mma_m16n8k16_f32_f16_f16_f32__cancel")
    for strategy in ("normal", "special"):
        *images, want, meta = recorded(f"spo_m16n8k32_f32_f16_f16_f32_sel1__{strategy}")
        a, b, c = (np.stack([np.pad(x, ((0, 0), (0, 4 - x.shape[1]))), y]) for x, y in zip(dense, images, strict=False))
        d = np.zeros((3, 32, 4), np.uint32)
        kernel[1, 32](a, b, c, meta, d)
        assert_bits_equal(d[0], dense[3])
        assert_bits_equal(d[1], want)
        assert_bits_equal(d[2], ptx.mma_sp(SPARSE, a[1], b[1], dense[3], meta, selector=1))


def check_doubles(jit, lane_id):
    """One product of variables, one with a literal."""

    def doubles(a, b, c, d):
        lane = lane_id()
        d[0, lane, 0], d[0, lane, 1] = ptx.mma_sync(DOUBLES, (a[lane],), (b[lane],), (c[lane, 0], c[lane, 1]))
        d[1, lane, 0], d[1, lane, 1] = ptx.mma_sync(DOUBLES, (a[lane],), (b[lane],), (0.5, a[lane]))

    *images, want = recorded("mma_m8n8k4_f64__cancel")
    a, b, c = (x.view(np.float64) for x in images)
    d = np.zeros((2, 32, 2))
    jit(doubles)[1, 32](a[:, 0].copy(), b[:, 0].copy(), c, d)
    assert_bits_equal(d[0].view(np.uint32), want)
    start = np.stack([np.full(32, 0.5), a[:, 0]], axis=1).view(np.uint32)
    assert_bits_equal(d[1].view(np.uint32), ptx.mma_sync(DOUBLES, *images[:2], start))


def conversions_kernel(lane_id):
    """One conversion a row, the last one there and back."""

    def conversions(x, out):
        lane = lane_id()
        out[0, lane] = ptx.cvt("cvt.rn.f16x2.f32", x[lane], -x[lane])
        out[1, lane] = ptx.cvt("cvt.rn.satfinite.relu.e4m3x2.f32", x[lane], -x[lane])
        out[2, lane] = ptx.cvt("cvt.rna.tf32.f32", x[lane])
        out[3, lane] = ptx.cvt("cvt.f32.bf16", ptx.cvt("cvt.rz.bf16.f32", x[lane]))

    return conversions


def check_conversions(kernel):
    x, out = RNG.standard_normal(32).astype(np.float32), np.zeros((4, 32), np.uint32)
    kernel[1, 32](x, out)
    word, minus = x.view(np.uint32), (-x).view(np.uint32)
    assert_bits_equal(out[0], ptx.cvt("cvt.rn.f16x2.f32", word, minus))
    assert_bits_equal(out[1], ptx.cvt("cvt.rn.satfinite.relu.e4m3x2.f32", word, minus).astype(np.uint32))
    assert_bits_equal(out[2], ptx.cvt("cvt.rna.tf32.f32", word))
    assert_bits_equal(out[3], ptx.cvt("cvt.f32.bf16", ptx.cvt("cvt.rz.bf16.f32", word)))


def check_moves(kernel):
    """kernel(x, regs, turned, back): x (32, 8) f16 in shared memory, ldmatrix.x4.trans of it, movmatrix of the second
    matrix, all stored again in rows of the opposite order.
    """
    x, back = RNG.standard_normal((32, 8)).astype(np.float16), np.zeros((32, 8), np.float16)
    regs, turned = np.zeros((32, 4), np.uint32), np.zeros(32, np.uint32)
    kernel[1, 32](x, regs, turned, back)
    # PTX ISA, ldmatrix: a lane has two neighbours of a matrix's row; of the transposed one, two of a column
    matrices = x.view(np.uint16).reshape(4, 8, 8)
    transposed = np.ascontiguousarray(matrices.transpose(0, 2, 1))
    assert_bits_equal(regs, transposed.view(np.uint32).reshape(4, 32).T)
    assert_bits_equal(turned, matrices[1].view(np.uint32).reshape(32))
    assert_bits_equal(back.view(np.uint16), transposed.reshape(32, 8)[::-1])


def warpgroup_operands(mnemonic, a_format, b_format):
    """Tiles of A (2048 bytes) and B (256), D before, and D after a product with -B and one with B."""
    depth = 32 * 8 // as_format(a_format).bits
    a, da = wgmma.tile_to_smem(numbers(a_format, 64 * depth).reshape(64, depth), a_format)
    b, db = wgmma.tile_to_smem(numbers(b_format, 8 * depth).reshape(8, depth), b_format)
    d = RNG.standard_normal((128, 4)).astype(np.float32).view(np.uint32)
    assert (da.leading, da.stride, db.leading, db.stride) == (1024, 128, 128, 128)
    smem, other = np.concatenate([a, b]), wgmma.Descriptor(2048, 128, 128)
    want = ptx.wgmma(mnemonic, ptx.wgmma(mnemonic, d, da, other, smem, scale_b=-1), da, other, smem)
    return a, b, d, want
