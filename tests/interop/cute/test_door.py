"""Functions of CuTe DSL on the CPU: arguments, launches, tensor maps, products with the GPU's bits, what is refused."""

import cutlass
import ml_dtypes
import numpy as np
import pytest
from cutlass import cute
from cutlass.cute.runtime import make_fake_compact_tensor, make_ptr

import nbtc
from nbtc import errors
from tests.interop.cute import kernels


def dynamic(x):
    return nbtc.cute.tensor(x).mark_layout_dynamic()


def numbers(n, dtype=np.float32):
    return np.arange(n).astype(dtype)


def test_extents_of_the_call(compiled):
    f = make_fake_compact_tensor(cutlass.Float32, (cute.sym_int(),))
    run = nbtc.cute.emulate(compiled(kernels.add, f, f, f))
    for n in (1, 128, 300):
        x, c = numbers(n), np.zeros(n, np.float32)
        run(x, x, c)
        assert (c == x + x).all()
    run(dynamic(x), b=dynamic(x), c=dynamic(c))
    with pytest.raises(errors.ShapeError, match=r"0 extents and strides .* compiled for 1"):
        run(nbtc.cute.tensor(x), x, c)


@pytest.mark.parametrize("dtype", [np.float64, np.int8, np.uint16, np.float16, ml_dtypes.bfloat16])
def test_element_types(compiled, dtype):
    x, c = numbers(100, dtype), np.zeros(100, dtype)
    nbtc.cute.emulate(compiled(kernels.add, *map(nbtc.cute.tensor, (x, x, c))))(x, x, c)
    assert (c == x + x).all()


def test_launches_in_a_row_tuples_and_numbers(compiled):
    x, c = numbers(100), np.zeros(100, np.float32)
    t, out = nbtc.cute.tensor(x), nbtc.cute.tensor(c)
    nbtc.cute.emulate(compiled(kernels.add_twice, (t, t), out, cutlass.Int32(1)))((x, x), c, 1)
    assert (c == 3 * x).all()


def test_bare_pointers_need_memory(compiled):
    x = numbers(32)
    address = make_ptr(cutlass.Float32, x.ctypes.data, cute.AddressSpace.gmem)
    f = compiled(kernels.scale, address)
    with pytest.raises(errors.ProgramError, match="outside"):
        nbtc.cute.emulate(f)(address)
    nbtc.cute.emulate(f, memory=[x])(address)
    assert (x == 2 * numbers(32)).all()


def test_an_array_that_is_too_small(compiled):
    x = numbers(128)
    run = nbtc.cute.emulate(compiled(kernels.add, *[nbtc.cute.tensor(x)] * 3))
    with pytest.raises(errors.ProgramError, match=r"outside"):
        run(x[:100].copy(), x, x)


def test_a_tile_by_tma(compiled):
    x = np.arange(20 * 128, dtype=np.int16).view(np.float16).reshape(20, 128)[:, :100]
    out = np.zeros((3, 8, 8, 8), np.float16)
    tall, flat = x.transpose(), out.reshape(-1)
    run = nbtc.cute.emulate(compiled(kernels.copy, nbtc.cute.tensor(tall, assumed_align=16), nbtc.cute.tensor(flat)))
    run.checked(tall, flat)
    tiles = np.zeros((3, 8, 64), np.float16)  # rows after the last one read as zeros
    tiles.reshape(24, 64)[:20] = x[:, :64]
    rows = np.arange(8)
    wanted = np.zeros_like(out)
    for chunk in rows:  # 16 bytes
        wanted[:, rows, chunk ^ rows] = tiles.reshape(3, 8, 8, 8)[:, :, chunk]
    assert (out.view(np.int16) == wanted.view(np.int16)).all()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_products_have_the_bits_of_the_architecture(compiled, dtype, arch):
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(s).astype(dtype) for s in ((16, 64), (8, 64)))
    c = np.zeros((16, 8), np.float32)
    f = compiled(kernels.product, *map(nbtc.cute.tensor, (a, b, c)), arch="sm_80")
    run = nbtc.cute.emulate(f, None if arch == "sm_80" else arch)
    run(a, b, c)
    wanted = nbtc.matmul(a, b.T, arch=arch)
    assert (c.view(np.uint32) == wanted.view(np.uint32)).all()


def test_hazards_are_found(compiled):
    x = numbers(64)
    run = nbtc.cute.emulate(compiled(kernels.race, nbtc.cute.tensor(x)))
    with pytest.raises(errors.ProgramError, match="data race"):
        run.checked(x)


def test_what_is_refused(compiled):
    x = numbers(128)
    t = nbtc.cute.tensor(x)
    with pytest.raises(errors.FormatError, match=r"what cute.compile returned"):
        nbtc.cute.emulate(kernels.add)
    with pytest.raises(errors.OptionError, match="--keep-ptx"):
        nbtc.cute.emulate(compiled(kernels.add, t, t, t, ptx=""))
    with pytest.raises(errors.FormatError, match="read-only"):
        nbtc.cute.tensor(np.broadcast_to(x, (2, 128)))
    with pytest.raises(errors.FormatError, match="not an array"):
        nbtc.cute.tensor([1.0, 2.0])
