"""CUDA's intrinsics and ptx.approx in kernels: the recorded words of the special function unit, and Python's."""

from pathlib import Path

import numpy as np
import pytest

import nbtc
from nbtc import intrinsics, ptx
from nbtc.dialect.intrinsics import INTRINSICS, operands

GOLDEN = Path(__file__).parents[1] / "golden" / "special_functions.npz"
RECORDED = {  # intrinsics that are one instruction
    "__log2f": "lg2.approx.f32",
    "__sinf": "sin.approx.f32",
    "__cosf": "cos.approx.f32",
    "__tanhf": "tanh.approx.f32",
    "__fdividef": "div.approx.f32",
}
THREADS = 128


@nbtc.kernel
def all_of_one(x, out):
    i = nbtc.grid(1)
    if i < x.size:
        out[0, i] = intrinsics.__expf(x[i])
        out[1, i] = intrinsics.__exp10f(x[i])
        out[2, i] = intrinsics.__logf(x[i])
        out[3, i] = intrinsics.__log2f(x[i])
        out[4, i] = intrinsics.__log10f(x[i])
        out[5, i] = intrinsics.__sinf(x[i])
        out[6, i] = intrinsics.__cosf(x[i])
        out[7, i] = intrinsics.__tanf(x[i])
        out[8, i] = intrinsics.__tanhf(x[i])


@nbtc.kernel
def all_of_two(x, y, out):
    i = nbtc.grid(1)
    if i < x.size:
        out[0, i] = intrinsics.__powf(x[i], y[i])
        out[1, i] = intrinsics.__fdividef(x[i], y[i])


ONE = ("__expf", "__exp10f", "__logf", "__log2f", "__log10f", "__sinf", "__cosf", "__tanf", "__tanhf")
TWO = ("__powf", "__fdividef")


@pytest.fixture(scope="module")
def recorded():
    with np.load(GOLDEN) as found:
        return dict(found)


def launched(kernel, names, *arrays):
    out = np.zeros((len(names), arrays[0].size), np.float32)
    kernel[-(-arrays[0].size // THREADS), THREADS](*arrays, out)
    return dict(zip(names, out.view(np.uint32), strict=True))


def test_kernels_and_python_give_the_recorded_bits(recorded):
    x = recorded["special_x"].view(np.float32)
    a, b = (recorded[f"quot_{n}"].view(np.float32) for n in "ab")
    found = launched(all_of_one, ONE, x) | launched(all_of_two, TWO, a, b)
    assert found.keys() == INTRINSICS.keys()
    for name, words in found.items():
        given = (x,) if operands(name) == 1 else (a, b)
        np.testing.assert_array_equal(getattr(intrinsics, name)(*given).view(np.uint32), words, name)
        if name in RECORDED:
            recording = "quot_" if len(given) == 2 else "special_"
            np.testing.assert_array_equal(words, recorded[recording + RECORDED[name]], name)


def test_values_and_special_numbers():
    x = np.float32([0.5, 2.0, 0.0, -1.0, np.inf, np.nan])
    np.testing.assert_allclose(intrinsics.__logf(x[:2]), np.log(x[:2]), rtol=1e-6)
    np.testing.assert_allclose(intrinsics.__exp10f(x[:2]), 10 ** x[:2], rtol=1e-6)
    np.testing.assert_allclose(intrinsics.__log10f(x[:2]), np.log10(x[:2]), rtol=1e-6)
    np.testing.assert_allclose(intrinsics.__tanf(x[:2]), np.tan(x[:2]), rtol=1e-6)
    np.testing.assert_allclose(intrinsics.__powf(x[:2], np.float32(1.5)), x[:2] ** 1.5, rtol=1e-6)
    assert intrinsics.__logf(x[2:]).view(np.uint32).tolist() == [0xFF800000, 0x7FFFFFFF, 0x7F800000, 0x7FFFFFFF]
    assert intrinsics.__fdividef(np.float32(1), np.float32(2.0**127)) == 0  # where a division is 2**-127


def test_a_product_is_not_fused_with_what_follows():
    """CUDA C++ may contract log2(x) log(2) + y; here the result is that of the operands alone."""

    @nbtc.kernel
    def shifted(x, y, out):
        i = nbtc.grid(1)
        out[i] = intrinsics.__logf(x[i]) + y[i]

    x = np.random.default_rng(5).uniform(0.1, 9, 256).astype(np.float32)
    y, out = -intrinsics.__logf(x), np.ones(256, np.float32)
    shifted[2, THREADS](x, y, out)
    assert not out.any()


def test_approx_of_a_thread(recorded):
    @nbtc.kernel
    def functions(x, h, d, out, halves, doubles):
        i = nbtc.grid(1)
        if i < x.size:
            out[0, i] = ptx.approx("rcp.approx.ftz.f32", x[i])
            out[1, i] = ptx.approx("div.full.f32", x[i], x[x.size - 1 - i])
            halves[i] = ptx.approx("ex2.approx.f16", h[i])
            doubles[i] = ptx.approx("rsqrt.approx.f64", d[i])

    count = 1024
    x, d = recorded["special_x"][:count], recorded["special_dx"][:count]
    h = np.arange(count, dtype=np.uint16) * np.uint16(64)
    out, halves, doubles = np.zeros((2, count), np.uint32), np.zeros(count, np.uint16), np.zeros(count, np.uint64)
    functions[count // THREADS, THREADS](x, h, d, out, halves, doubles)
    np.testing.assert_array_equal(out[0], recorded["special_rcp.approx.ftz.f32"][:count])
    np.testing.assert_array_equal(out[1], ptx.approx("div.full.f32", x, x[::-1]))
    np.testing.assert_array_equal(halves, recorded["all_ex2.approx.f16"][h])
    np.testing.assert_array_equal(doubles, recorded["special_rsqrt.approx.f64"][:count])


def test_wrong_calls_say_what_is_right():
    with pytest.raises(nbtc.errors.FormatError, match="takes float32, not float64"):
        intrinsics.__expf(1.5)
    with pytest.raises(nbtc.errors.ShapeError, match="do not broadcast"):
        intrinsics.__powf(np.zeros(3, np.float32), np.zeros(2, np.float32))

    @nbtc.kernel
    def unknown(x):
        x[0] = ptx.approx("ex2.f32", x[0])

    @nbtc.kernel
    def one_operand(x):
        x[0] = ptx.approx("div.full.f32", x[0])

    @nbtc.kernel
    def number(x, y):
        x[0] = ptx.approx("ex2.approx.f32", y[0])

    words, numbers = np.zeros(1, np.uint32), np.zeros(1, np.float32)
    for kernel, arrays, says in (
        (unknown, (words,), "an approximate function, in quotes"),
        (one_operand, (words,), "takes 2 source operands"),
        (number, (words, numbers), "are words of 32 bits"),
    ):
        with pytest.raises(nbtc.errors.KernelError, match=says):
            kernel[1, 1](*arrays)
