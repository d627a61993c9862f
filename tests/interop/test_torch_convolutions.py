"""Convolutions and their gradients against cuDNN's on an H200, with operands that cancel, so that orders show."""

import json
import lzma
import warnings
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from nbtc.torch import convolution, cudnn, float_chains  # noqa: E402
from nbtc.torch.products import Settings  # noqa: E402
from nbtc.torch.report import Recorder  # noqa: E402
from tests.golden.recorders.make_convolution_sizes import digest, operands  # noqa: E402
from tests.hashed import hashed_words  # noqa: E402

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
COST = 2e6  # multiply-adds; of the larger ones float16 and channels first repeat what bfloat16 and channels last show
with np.load(Path(__file__).parents[1] / "golden" / "libraries" / "convolutions.npz") as file:
    RECORDED = {name: file[name] for name in file["names"]}


def case(name):
    what, fmt, last, *numbers = name.split()
    items, channels, outputs, size, kernel, stride, padding = map(int, numbers)
    sizes = (size, size), (kernel, kernel)
    return cudnn.Case(what, last == "True", fmt, items, channels, outputs, *sizes, stride, padding)


def numbers(index, seed):
    """Mantissa with sign, and exponent: a hash of an index."""
    h = hashed_words(index, seed)
    return (1 - 2 * (h >> 20 & 1)) * ((h & 1023) + 1024), h >> 11 & 7


def made(c, shape, seed, axis, negative):
    """Elements i and n - 1 - i of an axis are equal, or opposite."""
    half = torch.arange(shape[axis])
    index = torch.arange(int(np.prod(shape))).reshape(shape)
    m, e = numbers(index.index_select(axis, torch.minimum(half, shape[axis] - 1 - half)), seed)
    x = m.float() * torch.exp2(-(10.0 + e.float())) * (16.0 if c.format == "f16" else 1.0)
    if negative:
        x = x * torch.where(half * 2 >= shape[axis], -1.0, 1.0).reshape([-1 if i == axis else 1 for i in range(4)])
    x = x.to(DTYPES[c.format])
    return x.contiguous(memory_format=torch.channels_last) if c.last else x


def computed(c):
    """(result, evidence)."""
    out = (c.size + 2 * c.padding - c.kernel) // c.stride + 1
    x = made(c, (c.items, c.channels, c.size, c.size), 5, int(c.what == "forward"), False)
    w = made(c, (c.outputs, c.channels, c.kernel, c.kernel), 6, int(c.what == "forward"), c.what == "forward")
    g = made(c, (c.items, c.outputs, out, out), 7, int(c.what == "input"), c.what != "forward")
    s = Settings("sm_90", None, None, "rn", "cudnn", 1, Recorder())
    how = convolution.Geometry.of(2, [c.stride], [c.padding], [1], False, [0], 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if c.what == "forward":
            y = convolution.forward(s, x, w, how)
        else:
            y = {"input": convolution.input_gradient, "weight": convolution.weight_gradient}[c.what](s, g, x, w, how)
    return y, {p.evidence for p in s.recorder.report("sm_90").products}


def cost(c):
    return c.items * c.channels * c.outputs * (c.size * c.kernel // c.stride) ** 2


def marks(c):
    return pytest.mark.slow if cost(c) > COST and not (c.last and c.format == "bf16") else ()


@pytest.mark.parametrize("name", [pytest.param(n, marks=marks(case(n))) for n in RECORDED])
def test_recorded_convolutions(name):
    c = case(name)
    way, evidence = cudnn.way(c, c.what) if known(c) else (None, "")
    y, seen = computed(c)
    flat = y.contiguous().view(torch.int16).flatten()[:2048].numpy()
    ours = flat[:: max(1, flat.size // 96)][:96]
    if way is None:
        assert all(e.startswith("guess") for e in seen) and (ours != RECORDED[name]).any()
    else:
        assert seen == {evidence} and evidence.startswith("recorded")
        assert (ours == RECORDED[name]).all()


def known(c):
    """Whether the kernel's order is known."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return not cudnn.way(c, c.what)[0].unknown


def test_most_are_known():
    assert sum(known(case(n)) for n in RECORDED) == 171 and len(RECORDED) == 180


def test_products_that_float32_cannot_hold_are_added_exactly():
    """Odd numbers of the smallest float32: a tie that a product rounded by itself would not be."""
    x, y = np.float32([2.0**-70]), np.float32([2.0**-80])  # half of the smallest
    smallest = np.float32(2.0**-149)
    assert (x * y)[0] == 0
    assert float_chains._adder(x, y)(x, y, smallest)[0] == 2 * smallest
    a, b, c = (np.float32(v) for v in (1 + 2.0**-12, 1 + 2.0**-12, -1.0))
    assert float_chains.fma32(a, np.array([b]), np.array([c]))[0] == 2.0**-11 + 2.0**-24


@pytest.mark.filterwarnings("ignore::nbtc.errors.GuessedOrderWarning")
@pytest.mark.parametrize("transposed", [False, True])
def test_no_items(transposed):
    shapes = (0, 3, 5, 5), (0, 4, 3, 3), (3, 4, 3, 3) if transposed else (4, 3, 3, 3)
    x, grad, weight = (torch.ones(shape).bfloat16() for shape in shapes)
    how = convolution.Geometry.of(2, [1], [2 * transposed], [1], transposed, [0], 1)
    s = Settings("sm_90", None, None, "rn", "cudnn", 1, Recorder())
    assert convolution.forward(s, x, weight, how).shape == grad.shape
    assert convolution.input_gradient(s, grad, x, weight, how).shape == x.shape
    made = convolution.weight_gradient(s, grad, x, weight, how)
    assert made.shape == weight.shape and not made.any()


NET = cudnn.Case("input", False, "f16", 4, 32, 64, (16, 16), (3, 3), 2, 1)
SHOWN = {  # by recorded nets
    "forward": (cudnn.Case("forward", False, "f16", 2, 16, 16, (14, 14), (3, 3), 1, 1), "tiles", 32, True),
    "forward, 5 x 5": (cudnn.Case("forward", False, "f16", 4, 8, 16, (20, 20), (5, 5), 1, 0), "end to end", 64, False),
    "input": (NET, "tiles", 64, True),
    "weight": (NET._replace(what="weight"), "tiled", 64, False),
    "weight of a larger image": (NET._replace(what="weight", items=2, sizes=(32, 32)), "tiles", 64, False),
}


@pytest.mark.filterwarnings("ignore::nbtc.errors.GuessedOrderWarning")
@pytest.mark.parametrize("name", SHOWN)
def test_kernels_that_recorded_nets_showed(name):
    """The nets have every bit with these; what is not known for sure stays a guess."""
    case, *shown = SHOWN[name]
    made, evidence = cudnn.way(case, case.what)
    assert [made.kind, made.tile, made.alone] == shown and evidence.startswith("guess")


# --- many sizes -------------------------------------------------------------------------------------------------------
SIZES = json.loads(
    lzma.decompress((Path(__file__).parents[1] / "golden" / "libraries" / "convolution_sizes.json.xz").read_bytes())
)
CRS = cudnn.Way("", "chain", over="crs")
ORDERS = {  # of kernels that the profiler named; cuDNN's number of the engine is added where names are alike
    ("conv_depthwise2d", "forward"): CRS, ("conv_depthwise2d", "input"): CRS,
    ("of engine 47, knob 6: not 3", "forward"): cudnn.Way("", "end to end"),
    ("conv_depthwise2d", "weight"): cudnn.Way("", "warps"),
    ("of engine 19, knob 2: 0", "weight"): cudnn.Way("", "tiled"),
    # 84 of 97 recorded results have this order; seed 2362, wrong, shows that longer sums may have another one
    ("of engine 2", "input"): cudnn.Way("", "chain", over="taps"), ("convolve_sgemm", "forward"): CRS,
    ("dgrad2d_grouped_direct", "input"): CRS, ("wgrad2d_grouped_direct", "weight"): cudnn.Way("", "lanes"),
    ("fprop_implicit_gemm_indexed_wo_smem", "forward"): cudnn.Way("", "flat"),
}  # fmt: skip


def digest_of(row, monkeypatch=None):
    """That of nbtc's result; in the order of the row's kernel where it is one of `ORDERS`."""
    seed, c, what, name, kernels, _ = row
    x, w, g = operands(seed, c, DTYPES[name])
    geometry = convolution.Geometry(
        *(tuple(c[k]) for k in ("stride", "padding", "dilation")),
        c["transposed"],
        (0,) * len(c["spatial"]),
        c["groups"],
    )
    s = Settings("sm_90", None, None, "rn", "cudnn", 1, Recorder())
    if monkeypatch:
        way = order_of(kernels, what, c)
        monkeypatch.setattr(convolution, "way", lambda *_: (way, "recorded"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if what == "forward":
            return digest(convolution.forward(s, x, w, geometry))
        how = c["stride"], c["padding"], c["dilation"], c["transposed"], [0] * len(c["spatial"]), c["groups"]
        shape = torch.ops.aten.convolution(x.float(), w.float(), None, *how).shape
        d = torch.randn(shape, generator=g).to(DTYPES[name])
        function = {"input": convolution.input_gradient, "weight": convolution.weight_gradient}[what]
        return digest(function(s, d, x, w, geometry))


def order_of(kernels, what, c):
    """The order of a kernel; a transposed convolution's are those of the convolution whose gradient it is."""
    if c["transposed"]:
        what = {"forward": "input", "input": "forward"}.get(what, what)
    named = (way for (name, of), way in ORDERS.items() if of == what and any(name in k for k in kernels))
    return next(named, None)


@pytest.mark.parametrize("row", [r for r in SIZES if order_of(r[4], r[2], r[1])], ids=lambda r: f"{r[0]}-{r[2]}-{r[3]}")
def test_kernels_sum_in_their_orders(row, monkeypatch):
    assert digest_of(row, monkeypatch) == row[-1]


def test_most_sizes_are_guessed():
    right = [digest_of(row) == row[-1] for row in SIZES]
    assert (sum(right), len(right)) == (128, 138)
