"""Instructions, fragments and matrix moves inside functions compiled by Numba give the bits of calls outside."""

from __future__ import annotations

import numba
import numpy as np
import pytest

import nbtc
from nbtc import ptx, wmma
from nbtc.errors import CompilerError
from nbtc.testing import assert_bits_equal


@pytest.fixture
def rng():
    return np.random.default_rng(7)


BYTES = nbtc.instruction("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32")
SPARSE = nbtc.instruction("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")
NIBBLES = nbtc.instruction("mma.sync.aligned.m8n8k32.row.col.s32.s4.u4.s32")


def test_an_instruction_is_a_constant(rng) -> None:
    @numba.njit
    def product(a, b, c):
        d = BYTES(BYTES.pack_a(a), BYTES.pack_b(b), BYTES.pack_c(c))
        return BYTES.unpack_d(d), BYTES.shape, BYTES.a.registers, BYTES.mnemonic, BYTES.a.coords()[5, 1, 1]

    a, b = rng.integers(-128, 128, (8, 16), np.int8), rng.integers(-128, 128, (16, 8), np.int8)
    d, *facts = product(a, b, np.ones((8, 8), np.int32))
    assert_bits_equal(d, a.astype(np.int32) @ b.astype(np.int32) + 1)
    assert facts == [BYTES.shape, BYTES.a.registers, BYTES.mnemonic, BYTES.a.coords()[5, 1, 1]]


def test_a_sparse_instruction_takes_metadata(rng) -> None:
    a = np.where(np.arange(32) % 4 < 2, rng.integers(-128, 128, (16, 32)), 0).astype(np.int8)
    stored, meta = nbtc.sparse.compress(a, SPARSE, selector=1)
    b, c = rng.integers(-128, 128, (32, 8), np.int8), np.zeros((16, 8), np.int32)
    images = SPARSE.pack_a(stored), SPARSE.pack_b(b), SPARSE.pack_c(c)
    compiled = numba.njit(lambda a, b, c, meta: SPARSE(a, b, c, meta, selector=1))(*images, meta)
    assert_bits_equal(compiled, SPARSE(*images, meta, selector=1))


def test_packing_of_narrow_elements(rng) -> None:
    pack = numba.njit(lambda a, b: (NIBBLES.pack_a(a), NIBBLES.unpack_a(NIBBLES.pack_a(a)), NIBBLES.pack_b(b)))
    a, b = rng.integers(-8, 8, (8, 32)), rng.integers(0, 16, (32, 8))
    image, back, other = pack(a.astype(np.int8), b.astype(np.uint8))
    assert_bits_equal(image, NIBBLES.pack_a(a.astype("int4")))
    assert_bits_equal(other, NIBBLES.pack_b(b.astype("uint4")))
    assert_bits_equal(back, a.astype(np.int8))


def _tile(mem, out, ldm, offset):
    a = wmma.fragment(wmma.matrix_a, 16, 16, 16, nbtc.f16, wmma.col_major)
    b = wmma.fragment(wmma.matrix_b, 16, 16, 16, nbtc.f16, wmma.row_major)
    c = wmma.fragment(wmma.accumulator, 16, 16, 16, nbtc.f16)
    wmma.load_matrix_sync(a, mem, ldm, offset=offset)
    wmma.load_matrix_sync(b, mem, ldm)
    wmma.fill_fragment(c, 1 / 3)
    wmma.mma_sync(c, a, b, c, satf=True)
    wmma.store_matrix_sync(out, c, 16, wmma.mem_col_major)
    return c.num_elements


def test_fragments_of_halves(rng) -> None:
    mem = (rng.standard_normal(32 * 48) * 60).astype(np.float16)
    mem[7] = np.inf
    compiled, plain = np.zeros(256, np.float16), np.zeros(256, np.float16)
    jitted = numba.njit(_tile)
    count = jitted(mem.view(np.uint16), compiled.view(np.uint16), 48, 16)
    assert count == _tile(mem, plain, 48, 16) == 8
    assert_bits_equal(compiled, plain)
    with pytest.raises(nbtc.errors.AlignmentError, match="32 bytes"):
        jitted(mem.view(np.uint16), compiled.view(np.uint16), 48, 3)


def _bits(a, b, out):
    fa = wmma.fragment(wmma.matrix_a, 8, 8, 128, wmma.experimental.precision.b1, wmma.row_major)
    fb = wmma.fragment(wmma.matrix_b, 8, 8, 128, wmma.experimental.precision.b1, wmma.col_major)
    c = wmma.fragment(wmma.accumulator, 8, 8, 128, nbtc.s32)
    wmma.load_matrix_sync(fa, a, 128)
    wmma.load_matrix_sync(fb, b, 128)
    wmma.bmma_sync(c, fa, fb, c, wmma.bmmaBitOpAND)
    for t in range(c.num_elements):
        for lane in range(32):  # a whole row at a time takes Numba 4 s: it compiles the text of an error
            c.x[t, lane] += 5
    wmma.store_matrix_sync(out, c, 8, wmma.mem_row_major)


def test_fragments_of_bits(rng) -> None:
    a, b = rng.integers(0, 1 << 32, (2, 32), np.uint32)
    compiled, plain = np.zeros((8, 8), np.int32), np.zeros((8, 8), np.int32)
    numba.njit(_bits)(a, b, compiled)
    _bits(a, b, plain)
    assert_bits_equal(compiled, plain)


def test_matrices_between_memory_and_lanes(rng) -> None:
    @numba.njit
    def moves(smem, addr):
        regs = ptx.ldmatrix(smem, addr, num=4, trans=True)
        turned = ptx.movmatrix(regs[:, 1])
        ptx.stmatrix(smem, addr, regs, num=4)
        return regs, turned

    smem, addr = rng.integers(0, 256, 1024, np.uint8), 16 * rng.permutation(64)[:32]
    ours = smem.copy()
    regs, turned = moves(ours, addr)
    assert_bits_equal(regs, ptx.ldmatrix(smem, addr, num=4, trans=True))
    assert_bits_equal(turned, ptx.movmatrix(regs[:, 1]))
    ptx.stmatrix(smem, addr, regs, num=4)
    assert_bits_equal(ours, smem)
    with pytest.raises(nbtc.errors.BoundsError, match="leaves the shared memory"):
        moves(ours[:512], addr + 512)


def _unknown_size(n):
    wmma.fragment(wmma.matrix_a, n, 16, 16, nbtc.f16, wmma.row_major)


def _no_format(n):
    wmma.fragment(wmma.accumulator, 16, 16, 16, n)


def _half_array(x):
    c = wmma.fragment(wmma.accumulator, 16, 16, 16, nbtc.f16)
    wmma.load_matrix_sync(c, x, 16, wmma.mem_row_major)


@pytest.mark.parametrize(
    ("kernel", "argument", "message"),
    [
        (_unknown_size, 16, "must be known when a function is compiled"),
        (_no_format, 16, "T must be a format"),
        (_half_array, np.zeros(256, np.float32), r"x\.view\(np\.uint16\)"),
        (lambda x: wmma.fill_fragment(x, 3), 16, "works on a fragment, not on int64"),
        (lambda x: BYTES(x, x, x), np.zeros(3), "C-contiguous uint32 array"),
        (lambda x: BYTES.pack_a(x), np.zeros((8, 16)), "pack_a takes a 2-D C-contiguous array of int8 for s8"),
    ],
)
def test_wrong_types_are_told_in_one_line(kernel, argument, message) -> None:
    with pytest.raises(CompilerError, match=message) as caught:
        numba.njit(kernel)(argument)
    assert "\n" not in str(caught.value)
