"""Products in Triton, bit for bit what nbtc.matmul computes."""

from threading import Event, Thread

import ml_dtypes
import numpy as np
import pytest
import triton
import triton.language as tl
from triton import runtime
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

import nbtc
from nbtc.errors import ProgramError
from nbtc.testing import assert_bits_equal
from nbtc.triton import launcher
from tests.interop.triton import kernels

SUMS = {"f32": (np.float32, tl.float32), "f16": (np.float16, tl.float16), "s32": (np.int32, tl.int32)}
INSTRUCTION = {"sm_80": "mma", "sm_90": "wgmma"}


def operand(shape, dtype, seed):
    rng = np.random.default_rng(seed)
    if np.dtype(dtype) == np.int8:
        return rng.integers(-128, 128, shape, dtype)
    return rng.standard_normal(shape, np.float32).astype(dtype)


def steps(x):
    return [s // x.itemsize for s in x.strides]


def product(a, b, acc="f32", tiles=(64, 64, 32), out=None, **options):
    (M, K), N = a.shape, b.shape[1]
    dtype, ACC = SUMS[acc]
    c = np.zeros((M, N), dtype) if out is None else out
    BM, BN, BK = tiles
    grid = (triton.cdiv(M, BM) * triton.cdiv(N, BN),)
    strides = (*steps(a), *steps(b), *steps(c))
    kernels.matmul[grid](a, b, c, M, N, K, *strides, BM=BM, BN=BN, BK=BK, GROUP=2, ACC=ACC, **options)
    return c


def expected(a, b, arch, acc="f32"):
    return nbtc.matmul(a, b, arch=arch, acc=acc, instruction=INSTRUCTION[arch])


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize(
    "dtype,acc",
    [(np.float16, "f32"), (ml_dtypes.bfloat16, "f32"), (np.float32, "f32"), (np.int8, "s32"), (np.float16, "f16")],
)
def test_products(arch, dtype, acc):
    a, b = operand((128, 64), dtype, 1), operand((64, 64), dtype, 2)
    with nbtc.triton.emulated(arch):
        assert_bits_equal(product(a, b, acc), expected(a, b, arch, acc))


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_fp8(dtype):
    a, b = operand((64, 128), dtype, 1), operand((128, 64), dtype, 2)
    with nbtc.triton.emulated("sm_90"):
        assert_bits_equal(product(a, b, tiles=(64, 64, 64)), expected(a, b, "sm_90"))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_ragged_shapes_and_other_orders(arch):
    a, b = operand((100, 83), np.float16, 1), operand((77, 83), np.float16, 2).T
    with nbtc.triton.emulated(arch):
        c = product(a, b, out=np.zeros((77, 100), np.float32).T)
    assert_bits_equal(np.ascontiguousarray(c), expected(a, b, arch))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert np.abs(c - exact).max() <= 83 * 2**-22 * np.abs(exact).max()


def test_warps_of_two_groups():
    a, b = operand((128, 64), np.float16, 1), operand((64, 128), np.float16, 2)
    with nbtc.triton.emulated():
        assert_bits_equal(product(a, b, tiles=(128, 128, 32), num_warps=8), expected(a, b, "sm_90"))


def test_descriptors_of_the_host():
    a, b = operand((128, 96), np.float16, 1), operand((96, 64), np.float16, 2)
    c = np.zeros((128, 64), np.float32)
    with nbtc.triton.emulated():
        tiles = [(64, 32), (32, 64), (64, 64)]
        maps = [
            TensorDescriptor.from_tensor(tensor=x, block_shape=list(t)) for x, t in zip((a, b, c), tiles, strict=True)
        ]
        kernels.matmul_of_descriptors[2, 1](*maps, 96, BM=64, BN=64, BK=32)
    assert_bits_equal(c, expected(a, b, "sm_90"))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_descriptors_of_the_device(arch):
    a, b = operand((72, 40), np.float16, 1), operand((40, 48), np.float16, 2)
    c = np.zeros((72, 48), np.float32)
    with nbtc.triton.emulated(arch):
        kernels.matmul_device_descriptors[2, 1](a, b, c, 72, 48, 40, BM=64, BN=64, BK=32)
    assert_bits_equal(c, expected(a, b, arch))


def test_persistent():
    a, b = operand((192, 64), np.float16, 1), operand((64, 128), np.float16, 2)
    c = np.zeros((192, 128), np.float32)
    with nbtc.triton.emulated():
        tiles = [(64, 32), (32, 64), (64, 64)]
        maps = [TensorDescriptor.from_tensor(x, list(t)) for x, t in zip((a, b, c), tiles, strict=True)]
        kernels.matmul_persistent[4,](*maps, 192, 128, 64, BM=64, BN=64, BK=32, PROGRAMS=4)
    assert_bits_equal(c, expected(a, b, "sm_90"))


def test_groups_of_products_by_address():
    sizes = np.array([(70, 64, 48), (64, 40, 32), (128, 64, 64)], np.int32)
    a = [operand((M, K), np.float16, i) for i, (M, N, K) in enumerate(sizes)]
    b = [operand((K, N), np.float16, 9 + i) for i, (M, N, K) in enumerate(sizes)]
    c = [np.zeros((M, N), np.float32) for M, N, K in sizes]
    tables = [np.array([x.ctypes.data for x in group]) for group in (a, b, c)]
    with nbtc.triton.emulated("sm_80"):
        kernels.grouped_matmul[3,](*tables, sizes, 3, PROGRAMS=3, BM=64, BN=64, BK=32)
    for x, y, z in zip(a, b, c, strict=True):
        assert_bits_equal(z, expected(x, y, "sm_80"))


def test_a_table_of_addresses_adds_the_mappings_they_lie_in():
    x = np.zeros(1 << 20, np.uint8)
    arguments = launcher.Arguments(())
    arguments.add("*i64", np.array([x.ctypes.data, 5, -1]), "table")
    _, mapping = arguments.memory
    first = mapping.first
    assert arguments.known and first <= x.ctypes.data and x.ctypes.data + x.nbytes <= first + mapping.bytes
    assert mapping.name == "what table leads to"
    for numbers in (np.arange(4096), np.array([100, -(1 << 40)])):  # no memory of the process lies there
        arguments = launcher.Arguments(())
        arguments.add("*i64", numbers, "table")
        assert arguments.known and len(arguments.memory) == 1


@pytest.mark.parametrize("value", [5, 1 << 22, -1])
def test_large_integers_leave_the_bounds_checked(value):
    x = np.full(32, value, np.int64)
    with nbtc.triton.emulated("sm_90"), pytest.raises(ProgramError, match="outside all memory"):
        kernels.shifted_copy[(1,)](x, 32, B=32)


@pytest.mark.parametrize("sizes", [(32, 5), (5, 32)])
def test_errors_name_the_argument_that_an_access_misses(sizes):
    """The nearest one's: Triton's parameters have no names in PTX, its signature has."""
    x, out = (np.zeros(n, np.int64) for n in sizes)
    nearest = "x" if sizes[0] == 5 else "out"
    with nbtc.triton.emulated("sm_90"), pytest.raises(ProgramError, match=rf"after the end of {nearest} \(40 bytes\)"):
        kernels.add[(1,)](x, x, out, 32, BLOCK=32)


def test_contexts_of_two_threads_may_end_in_any_order():
    before = runtime.driver._active, JITFunction.run
    inside, left = Event(), Event()

    def first():
        with nbtc.triton.emulated("sm_90"):
            inside.set()
            left.wait()

    thread = Thread(target=first)
    thread.start()
    inside.wait()
    with nbtc.triton.emulated("sm_80") as second:
        left.set()
        thread.join()
        assert runtime.driver.active is second
    assert (runtime.driver._active, JITFunction.run) == before
