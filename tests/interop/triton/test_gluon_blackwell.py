"""Kernels in Gluon for sm_100: products of scaled formats, descriptors of padded fp4, operands of bytes by columns."""

import itertools

import ml_dtypes
import numpy as np
import pytest
import triton

if tuple(int(n) for n in triton.__version__.split(".")[:2]) < (3, 9):
    pytest.skip("Gluon's names still change: these are those of Triton 3.9", allow_module_level=True)

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    TensorMemoryScalesLayout,
    allocate_tensor_memory,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
    tcgen05_mma_scaled,
    tma,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

import nbtc

pytestmark = pytest.mark.filterwarnings("ignore::nbtc.errors.UnvalidatedModelWarning")
M, N, K = 128, 32, 128


@gluon.constexpr_function
def kind(dtype):
    return "e2m1" if dtype == gl.uint8 else "e4m3"


@gluon.jit
def unit_scales(ROWS: gl.constexpr, BLOCKS: gl.constexpr):
    place = allocate_tensor_memory(gl.uint8, [ROWS, BLOCKS], TensorMemoryScalesLayout())
    place.store(gl.full([ROWS, BLOCKS], 127, gl.uint8, place.get_reg_layout()))
    return place


@gluon.jit
def loaded_tiles(a, b):
    tile_a = gl.allocate_shared_memory(a.dtype, a.block_shape, a.layout)
    tile_b = gl.allocate_shared_memory(b.dtype, b.block_shape, b.layout)
    loaded, done = mbarrier.allocate_mbarrier(), mbarrier.allocate_mbarrier()
    mbarrier.init(loaded, count=1)
    mbarrier.init(done, count=1)
    mbarrier.expect(loaded, a.nbytes_per_cta + b.nbytes_per_cta)
    tma.async_load(a, [0, 0], loaded, tile_a)
    tma.async_load(b, [0, 0], loaded, tile_b)
    mbarrier.wait(loaded, 0)
    return tile_a, tile_b, done


@gluon.jit
def scaled_product(a, b, out, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr):
    tile_a, tile_b, done = loaded_tiles(a, b)
    scales_a, scales_b = unit_scales(M, K // 32), unit_scales(N, K // 32)
    acc = allocate_tensor_memory(gl.float32, [M, N], TensorMemoryLayout([M, N], col_stride=1))
    tcgen05_mma_scaled(
        tile_a, tile_b.permute((1, 0)), acc, scales_a, scales_b, kind(a.dtype), kind(b.dtype), use_acc=False
    )
    tcgen05_commit(done)
    mbarrier.wait(done, 0)
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    i = gl.arange(0, M, layout=gl.SliceLayout(1, layout))[:, None]
    j = gl.arange(0, N, layout=gl.SliceLayout(0, layout))[None, :]
    gl.store(out + i * N + j, gl.convert_layout(acc.load(), layout))


def operand(values, fp4, padded):
    """The descriptor of a matrix of e4m3 or e2m1, each row whole."""
    if fp4:
        words = values.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
        stored, dtype = words[:, ::2] | words[:, 1::2] << 4, gl.uint8
    else:
        stored, dtype = values.astype(ml_dtypes.float8_e4m3fn), gl.float8e4nv
    layout = gl.NVMMASharedLayout.get_default_for(list(stored.shape), dtype, fp4_padded=padded)
    return TensorDescriptor.from_tensor(aligned(stored), list(stored.shape), layout)


def aligned(values):
    """A copy that starts where padded fp4 may: at a multiple of 32 bytes."""
    buffer = np.empty(values.nbytes + 32, np.uint8)
    start = -buffer.ctypes.data % 32
    copy = buffer[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


@pytest.mark.parametrize(("fp4_a", "fp4_b"), list(itertools.product([False, True], repeat=2)))
def test_products_of_scaled_formats(fp4_a, fp4_b):
    """Where the other operand has bytes, the tile of an fp4 one has gaps."""
    rng = np.random.default_rng(5)
    a, b = (rng.choice([-4, -1.5, -0.5, 0, 1, 2, 3], (n, K)).astype(np.float32) for n in (M, N))
    out = np.zeros((M, N), np.float32)
    with nbtc.triton.emulated("sm_100"):
        mixed = fp4_a != fp4_b
        operands = operand(a, fp4_a, mixed and fp4_a), operand(b, fp4_b, mixed and fp4_b)
        scaled_product[(1,)](*operands, out, M=M, N=N, K=K)
    np.testing.assert_array_equal(out, a @ b.T)


@gluon.jit
def product_of_columns(a, b, out, M: gl.constexpr, N: gl.constexpr, TURN_A: gl.constexpr, TURN_B: gl.constexpr):
    tile_a, tile_b, done = loaded_tiles(a, b)
    acc = allocate_tensor_memory(gl.float32, [M, N], TensorMemoryLayout([M, N], col_stride=1))
    left = tile_a.permute((1, 0)) if TURN_A else tile_a
    right = tile_b.permute((1, 0)) if TURN_B else tile_b
    tcgen05_mma(left, right, acc, use_acc=False)
    tcgen05_commit(done)
    mbarrier.wait(done, 0)
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    i = gl.arange(0, M, layout=gl.SliceLayout(1, layout))[:, None]
    j = gl.arange(0, N, layout=gl.SliceLayout(0, layout))[None, :]
    gl.store(out + i * N + j, gl.convert_layout(acc.load(), layout))


@pytest.mark.parametrize(("m", "n", "k"), [(128, 32, 64), (64, 128, 32), (128, 64, 128)])
@pytest.mark.parametrize(("turn_a", "turn_b"), [(True, True), (True, False), (False, False)])
def test_operands_of_bytes_with_m_or_n_contiguous(m, n, k, turn_a, turn_b):
    """Rows of 32, 64 and 128 bytes, swizzled by as much; an operand that is turned lies in memory as its transpose."""
    rng = np.random.default_rng(7)
    a, b = (rng.integers(-4, 5, s).astype(ml_dtypes.float8_e4m3fn) for s in ((m, k), (k, n)))
    out = np.zeros((m, n), np.float32)
    operands = []
    with nbtc.triton.emulated("sm_100"):
        for values, turn in ((a, turn_a), (b, turn_b)):
            stored = np.ascontiguousarray(values.T if turn else values)
            layout = gl.NVMMASharedLayout.get_default_for(list(stored.shape), gl.float8e4nv)
            operands.append(TensorDescriptor.from_tensor(stored, list(stored.shape), layout))
        product_of_columns[(1,)](*operands, out, M=m, N=n, TURN_A=turn_a, TURN_B=turn_b)
    np.testing.assert_array_equal(out, a.astype(np.float32) @ b.astype(np.float32))
