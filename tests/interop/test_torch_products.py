"""Each operation under `emulated` against `nbtc.matmul` called by hand."""

import contextlib
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

import nbtc
from nbtc.errors import ArchError, GuessedOrderWarning, OptionError

from .by_hand import numpy

emulated = nbtc.torch.emulated


def same(x: torch.Tensor, y: torch.Tensor) -> None:
    assert x.dtype == y.dtype and x.shape == y.shape
    assert torch.equal(x.contiguous().view(torch.uint8), y.contiguous().view(torch.uint8))


def tensors(*shapes, dtype=torch.bfloat16):
    g = torch.Generator().manual_seed(7)
    return [torch.randn(*shape, generator=g).to(dtype) for shape in shapes]


def back(d, dtype):
    return torch.from_numpy(np.asarray(d)).to(dtype)


@pytest.mark.filterwarnings("ignore::nbtc.errors.UnvalidatedModelWarning")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_products(dtype):
    a, b, c, bias = tensors((9, 40), (40, 8), (9, 8), (8,), dtype=dtype)
    x, y, z = (numpy(t) for t in (a, b, c))
    wide = np.float64 if dtype == torch.float64 else np.float32
    d = nbtc.matmul(x, y, arch="sm_80")
    twice = back(numpy(back(d, dtype)).astype(wide) + z.astype(wide), dtype)  # as recorded, of a matrix c
    with emulated("sm_80") as mode:
        same(a @ b, back(d, dtype))
        same(torch.addmm(c, a, b), twice)
        same(torch.addmm(bias, a, b), back(d + numpy(bias).astype(wide), dtype))
        same(torch.addmm(c, a, b, beta=0), back(d, dtype))
        same(functional.linear(a, b.t()), back(d, dtype))
        same(torch.bmm(a[None], b[None])[0], back(d, dtype))
        same(torch.einsum("ij,jk->ik", a, b), back(d, dtype))
        same(torch.matmul(a.expand(2, 3, 9, 40), b)[1, 2], back(d, dtype))
        same(torch.addbmm(c, a[None], b[None]), twice)
        out = torch.empty(0, dtype=dtype)
        same(torch.mm(a, b, out=out), out)
        same(out, back(d, dtype))
        copy = c.clone()
        same(copy.addmm_(a, b), twice)
    assert not mode.report().left


@pytest.mark.parametrize("name", ["matrix", "narrow"])
def test_a_matrix_is_added_after_a_rounding_as_recorded(name):
    """`torch.addmm(c, a, b)` of bfloat16 matrices on an H200 (torch 2.11).

    From the gradients of an LSTM cell, and of a gate of four experts: rows of 8 bytes, and c is added before rounding.
    """
    with np.load(Path(__file__).parents[1] / "golden" / "libraries" / f"addmm_{name}.npz") as z:
        c, a, b, result = (torch.from_numpy(z[x]).view(torch.bfloat16) for x in ("c", "a", "b", "result"))
    with emulated("sm_90"):
        same(torch.addmm(c, a, b), result)


@pytest.mark.parametrize(("dtype", "wide"), [(torch.float16, np.float32), (torch.float64, np.float64)])
def test_alpha_and_beta_are_fused_as_recorded(dtype, wide):
    """An H200 gave fma(alpha, d, beta * c) for addmm and baddbmm; checked with exact rational arithmetic."""
    from fractions import Fraction

    a, b, c = tensors((6, 16), (16, 5), (6, 5), dtype=dtype)
    d = nbtc.matmul(numpy(a), numpy(b))
    with emulated("sm_90"):
        got = torch.addmm(c, a, b, beta=0.3, alpha=0.7)
        batched = torch.baddbmm(c[None], a[None], b[None], beta=0.3, alpha=0.7)
    alpha, beta = wide(0.7), wide(0.3)
    added = beta * numpy(c).astype(wide)
    for i, j in np.ndindex(6, 5):
        exact = Fraction(float(alpha)) * Fraction(float(d[i, j])) + Fraction(float(added[i, j]))
        near = wide(float(exact))
        ways = (np.nextafter(near, wide(-np.inf)), near, np.nextafter(near, wide(np.inf)))
        best = min(ways, key=lambda v: abs(Fraction(float(v)) - exact))
        assert got[i, j].item() == numpy(a).dtype.type(best)
    same(got, batched[0])


def test_int8():
    g = torch.Generator().manual_seed(1)
    a, b = (torch.randint(-128, 128, s, generator=g, dtype=torch.int8) for s in ((32, 64), (64, 16)))
    with emulated("sm_90") as mode:
        same(torch._int_mm(a, b), (a.int() @ b.int()).to(torch.int32))
    assert "s32.s8.s8" in mode.report().products[0].instruction


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("arch", ["sm_89", "sm_90", "sm_120"])
@pytest.mark.filterwarnings("ignore::nbtc.errors.UnvalidatedModelWarning")
def test_fp8_with_scales(arch, fast):
    a, b = tensors((32, 256), (16, 256), dtype=torch.float8_e4m3fn)
    rows, columns = torch.rand(32, 1), torch.rand(1, 16)
    bias = torch.randn(16).bfloat16()
    promoted = not fast and arch != "sm_120"  # whose sums keep 25 bits
    d = nbtc.matmul(numpy(a), numpy(b.t()), arch=arch, order="promote128" if promoted else "seq")
    one, two = torch.tensor(0.3), torch.tensor(0.7)
    with emulated(arch) as mode:
        more = {"use_fast_accum": fast}
        got = torch._scaled_mm(a, b.t(), one, two, out_dtype=torch.float32, **more)
        same(got, torch.from_numpy(d * (np.float32(0.3) * np.float32(0.7))))
        got = torch._scaled_mm(a, b.t(), rows, columns, out_dtype=torch.float32, **more)
        same(got, torch.from_numpy((d * numpy(columns)) * numpy(rows)))
        got = torch._scaled_mm(a, b.t(), one, two, bias=bias, out_dtype=torch.bfloat16, **more)
        scaled = d * (np.float32(0.3) * np.float32(0.7))
        same(got, back(scaled + numpy(bias).astype(np.float32), torch.bfloat16))
    assert {row.order for row in mode.report().products} == {"promote128" if promoted else "seq"}


def test_float32_is_tf32_when_torch_says_so():
    a, b = tensors((8, 24), (24, 8), dtype=torch.float32)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        with emulated("sm_90") as mode:
            same(a @ b, torch.mm(a, b))
        assert "without tf32" in mode.report().left[0].reason and not mode.report().products
        torch.set_float32_matmul_precision("high")
        with emulated("sm_90"):
            got = a @ b
        with emulated("sm_90", tf32_rounding="none"):
            plain = a @ b
    finally:
        torch.set_float32_matmul_precision(before)
    x, y = numpy(a), numpy(b)
    same(got, torch.from_numpy(nbtc.matmul(nbtc.convert(x, "tf32"), nbtc.convert(y, "tf32"))))
    same(plain, torch.from_numpy(nbtc.matmul(x, y)))


def test_orders_and_libraries():
    a, b = tensors((33, 136), (136, 65))
    x, y = numpy(a), numpy(b)
    with emulated("sm_90", order="split2x72:resfirst16"):
        same(a @ b, back(nbtc.matmul(x, y, order="split2x72:resfirst16"), torch.bfloat16))
    cublas = nbtc.library("cublas 13.0", gpu="H200")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with emulated("sm_90", order=cublas) as mode:
            a @ b
        assert mode.report().products[0].order == "seq"
    with pytest.warns(GuessedOrderWarning), emulated("sm_90", order=cublas):
        a[:5] @ b


def test_attention_is_its_products():
    q, k, v = tensors((2, 3, 10, 16), (2, 3, 10, 16), (2, 3, 10, 16))
    with emulated("sm_80") as mode:
        got = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    half = 16**-0.25  # q and k each take the root of 1 / sqrt(16)
    scores = nbtc.matmul(numpy(q * half), numpy((k * half).transpose(-1, -2)), arch="sm_80")
    mask = torch.full((10, 10), float("-inf")).triu(1).bfloat16()
    weights = torch.softmax(back(scores, torch.bfloat16) + mask, -1)
    same(got, back(nbtc.matmul(numpy(weights), numpy(v), arch="sm_80"), torch.bfloat16))
    assert [row.shape for row in mode.report().products] == [(6, 10, 10, 16), (6, 10, 16, 10)]
    with torch.inference_mode(), emulated("sm_80"):
        same(functional.scaled_dot_product_attention(q, k, v, is_causal=True), got)


def test_nans_are_canonical_and_infinities_stay():
    a = torch.tensor([[float("inf")], [1.0], [float("nan")]]).bfloat16()
    with emulated("sm_90"):
        got = a @ torch.tensor([[1.0, 0.0]]).bfloat16()
    assert got.view(torch.int16).tolist() == [[0x7F80, 0x7FFF], [0x3F80, 0], [0x7FFF, 0x7FFF]]


def test_what_is_left_is_listed_with_its_reason():
    a, v = tensors((4, 16), (16,))
    with emulated("sm_75") as mode:
        same(a @ v, torch.mv(a, v))
        a @ a.T
        torch.ones(2, 2, dtype=torch.int64) @ torch.ones(2, 2, dtype=torch.int64)
    reasons = {row.op: row.reason for row in mode.report().left}
    assert "no tensor cores" in reasons["mv"]
    assert any("bf16" in row.reason for row in mode.report().left if row.op == "mm")
    assert any("int64" in row.reason for row in mode.report().left if row.op == "mm")
    assert "left to PyTorch" in str(mode.report())


def test_modules_and_gradients_are_told_apart():
    net = torch.nn.Sequential(torch.nn.Linear(32, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)).bfloat16()
    with emulated("sm_90") as mode:
        net(torch.ones(4, 32).bfloat16()).sum().backward()
        net(torch.ones(4, 32).bfloat16())
    rows = mode.report().products
    forward = {(row.module, row.shape): row.calls for row in rows if not row.backward}
    assert forward == {("Sequential.0", (4, 16, 32)): 2, ("Sequential.2", (4, 8, 16)): 2}
    assert {row.shape for row in rows if row.backward} == {(4, 16, 8), (8, 16, 4), (16, 32, 4)}
    assert all(row.seconds > 0 for row in rows) and '"calls": 2' in mode.report().json()


def test_settings_come_back_and_nothing_is_emulated_outside():
    a, b = tensors((8, 512), (512, 8))
    before = torch.mm(a, b)
    flags = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed(), torch.backends.mha.get_fastpath_enabled()
    mode = emulated("sm_90")
    with pytest.raises(ZeroDivisionError), mode:
        raise ZeroDivisionError
    after = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed(), torch.backends.mha.get_fastpath_enabled()
    assert flags == after
    same(torch.mm(a, b), before)
    with mode:
        a @ b
    assert len(mode.report().products) == 1


def test_a_mode_inside_a_mode_wins():
    a, b = tensors((16, 512), (512, 16))
    with emulated("sm_80"), emulated("sm_90"):
        same(a @ b, back(nbtc.matmul(numpy(a), numpy(b), arch="sm_90"), torch.bfloat16))


def test_compiled_functions_run_uncompiled_inside():
    a, b = tensors((16, 512), (512, 16))

    @torch.compile(backend="eager")
    def inside(x, y):
        return x @ y

    with emulated("sm_80") as mode:
        same(inside(a, b), back(nbtc.matmul(numpy(a), numpy(b), arch="sm_80"), torch.bfloat16))
    assert len(mode.report().products) == 1
    inside(a, b)  # compiled now
    with emulated("sm_80"):
        same(inside(a, b), back(nbtc.matmul(numpy(a), numpy(b), arch="sm_80"), torch.bfloat16))


def test_bad_arguments():
    with pytest.raises(ArchError):
        emulated("sm_1")
    with pytest.raises(OptionError, match="tf32_rounding"):
        emulated("sm_90", tf32_rounding="up")
    with pytest.raises(OptionError, match="convolution"):
        emulated("sm_90", convolution="nhwc")
    with pytest.raises(OptionError, match="order"):
        emulated("sm_90", order="sequential")


def halves(*shape):
    return torch.ones(shape, dtype=torch.float16)


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.bmm(halves(1, 3, 4), halves(2, 4, 5)),
        lambda: torch.addmm(halves(4, 5), halves(1, 4), halves(4, 5)),
        lambda: torch.addmm(halves(3, 5).float(), halves(3, 4), halves(4, 5)),
        lambda: torch.addbmm(halves(3, 5), halves(2, 3, 6), halves(3, 4, 5)),
        lambda: functional.linear(halves(3, 4), halves(5, 4), halves(4)),
        lambda: torch.mm(halves(3, 4), halves(4, 5), out=torch.empty(3, 5)),
        lambda: functional.conv2d(halves(1, 3, 8, 8), halves(4, 2, 3, 3)),
        lambda: functional.conv2d(halves(1, 3, 8, 8), halves(4, 3, 3, 3), halves(1)),
        lambda: functional.conv2d(halves(1, 3, 2, 2), halves(4, 3, 3, 3)),
        lambda: functional.conv_transpose2d(halves(1, 3, 8, 8), halves(4, 3, 3, 3)),
    ],
)
def test_operands_that_do_not_fit_are_refused_as_outside(call):
    for where in (contextlib.nullcontext(), nbtc.torch.emulated()):
        with where, pytest.raises(RuntimeError):
            call()
