"""As library_calls.py, of further libraries."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  its usual name
from library_calls import close, numbers, seeded  # noqa: F401  a fixture


# --- conch, triton_kernels -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["silu", "gelu"])
def test_conch_activations(kind):
    from conch.ops.activation.gelu_tanh_and_mul import gelu_tanh_and_mul
    from conch.ops.activation.silu_and_mul import silu_and_mul

    x = numbers(6, 128)
    first, second = x.split(64, -1)
    if kind == "silu":
        close(silu_and_mul(x), F.silu(first) * second, 1e-5)
    else:
        close(gelu_tanh_and_mul(x), F.gelu(first, approximate="tanh") * second, 1e-3)


def test_conch_rms_norm():
    from conch.ops.normalization.rms_norm import rms_norm

    x, weight = numbers(5, 96), numbers(96)
    close(rms_norm(x, weight, 1e-6), F.rms_norm(x, (96,), weight, 1e-6), 1e-5)


def overlap(a, b):
    """The area that two boxes share, of the area that they have together."""
    low, high = torch.maximum(a[:2], b[:2]), torch.minimum(a[2:], b[2:])
    both = (high - low).clamp(min=0).prod()
    return both / ((a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - both)


def test_conch_nms():
    from conch.ops.vision.nms import nms

    boxes, scores = torch.rand(40, 4, device="cuda") * 10, torch.rand(40, device="cuda")
    boxes[:, 2:] += boxes[:, :2]
    kept = []
    for i in scores.argsort(descending=True).tolist():
        if all(overlap(boxes[i], boxes[j]) <= 0.3 for j in kept):
            kept.append(i)
    assert nms(boxes, scores, 0.3).tolist() == kept


def test_triton_kernels_topk():
    from triton_kernels.topk import topk

    x = numbers(16, 32)
    close(topk(x, 4, apply_softmax=False).vals, x.topk(4)[0], 0)


def test_triton_kernels_swiglu():
    from triton_kernels.swiglu import PrecisionConfig, swiglu, swiglu_torch

    x, precision = numbers(8, 64), PrecisionConfig(limit=1.0)
    close(swiglu(x, 0.5, precision), swiglu_torch(x, 0.5, precision), 1e-5)


def test_triton_kernels_matmul():
    from triton_kernels.matmul import matmul

    a, b = numbers(32, 64, dtype=torch.float16), numbers(64, 32, dtype=torch.float16)
    close(matmul(a, b, None), a.float() @ b.float(), 1e-2)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float8_e4m3fn])
def test_triton_kernels_mxfp(dtype):
    from triton_kernels.numerics_details import mxfp

    x = numbers(32, 64, dtype=torch.bfloat16)
    found, wanted = mxfp.downcast_to_mxfp(x, dtype, axis=1), mxfp.downcast_to_mxfp_torch(x, dtype, axis=1)
    for y, z in zip(found, wanted, strict=True):
        assert (y.view(torch.uint8) == z.view(torch.uint8)).all()
    again = mxfp.upcast_from_mxfp_torch(*wanted, torch.bfloat16, axis=1)
    close(mxfp.upcast_from_mxfp(*found, torch.bfloat16, axis=1), again, 0)


def test_triton_kernels_reduce():
    from triton_kernels.reduce import reduce

    x = numbers(4, 8, 32)
    close(reduce(x, dim=0)[0], x.sum(0), 1e-5)


# --- late-interaction-kernels, AdaSplash -----------------------------------------------------------------------------
def test_late_interaction():
    from late_interaction_kernels import maxsim

    q, d = numbers(2, 8, 32, dtype=torch.float16), numbers(3, 16, 32, dtype=torch.float16)
    close(maxsim(q, d), torch.einsum("qid,kjd->qkij", q.float(), d.float()).amax(-1).sum(-1), 1e-2)


def entmax(scores):
    """Of rows, 1.5-entmax: max(0, x / 2 - tau)^2 with the tau that makes the sum 1, by bisection."""
    x = scores.double() / 2
    low, high = x.amax(-1, keepdim=True) - 1, x.amax(-1, keepdim=True)
    for _ in range(60):
        middle = (low + high) / 2
        over = (x - middle).clamp(min=0).square().sum(-1, keepdim=True) >= 1
        low, high = torch.where(over, middle, low), torch.where(over, high, middle)
    return (x - low).clamp(min=0).square()


def test_adasplash():
    from adasplash import adasplash

    q, k, v = (numbers(1, 2, 64, 16) for _ in range(3))
    wanted = entmax(q @ k.transpose(-1, -2) / 4) @ v.double()
    close(adasplash(q, k, v, alpha=1.5, is_causal=False), wanted, 2e-2)  # products in tf32


# --- FlagGems --------------------------------------------------------------------------------------------------------
FLAG_GEMS = {  # of a matrix x, another y and a row w
    "add": lambda g, x, y, w: (g.add(x, y), x + y),
    "argmax": lambda g, x, y, w: (g.argmax(x, 1), x.argmax(1)),
    "bmm": lambda g, x, y, w: (g.bmm(x[None], y.T.contiguous()[None]), (x @ y.T)[None]),
    "cat": lambda g, x, y, w: (g.cat([x, y], 0), torch.cat([x, y])),
    "conv2d": lambda g, x, y, w: (
        g.conv2d(x[None, None], y[None, None, :3, :3], None, 1, 1, 1, 1),
        F.conv2d(x[None, None], y[None, None, :3, :3], None, 1, 1),
    ),
    "cumsum": lambda g, x, y, w: (g.cumsum(x, 1), x.cumsum(1)),
    "embedding": lambda g, x, y, w: (g.embedding(x, torch.tensor([1, 3])), x[[1, 3]]),
    "erf": lambda g, x, y, w: (g.erf(x), x.erf()),
    "flip": lambda g, x, y, w: (g.flip(x, [1]), x.flip(1)),
    "gather": lambda g, x, y, w: (g.gather(x, 1, (x > 0).long()), x.gather(1, (x > 0).long())),
    "gelu": lambda g, x, y, w: (g.gelu(x), F.gelu(x)),
    "group_norm": lambda g, x, y, w: (
        g.group_norm(x.view(7, 4, 10), w[:4], w[:4], 7, 4, 10, 2, 1e-5)[0],
        F.group_norm(x.view(7, 4, 10), 2, w[:4], w[:4]),
    ),
    "index_select": lambda g, x, y, w: (g.index_select(x, 0, torch.tensor([2, 0])), x[[2, 0]]),
    "isin": lambda g, x, y, w: (g.isin(x, x[0]), torch.isin(x, x[0])),
    "layer_norm": lambda g, x, y, w: (g.layer_norm(x, [40], w, w, 1e-5)[0], F.layer_norm(x, [40], w, w, 1e-5)),
    "log_softmax": lambda g, x, y, w: (g.log_softmax(x, 1), F.log_softmax(x, 1)),
    "masked_fill": lambda g, x, y, w: (g.masked_fill(x, x > 0, 2.0), x.masked_fill(x > 0, 2.0)),
    "mm": lambda g, x, y, w: (g.mm(x, y.T.contiguous()), x @ y.T),
    "nonzero": lambda g, x, y, w: (g.nonzero(x > 0), (x > 0).nonzero()),
    "pow": lambda g, x, y, w: (g.pow_tensor_scalar(x.abs(), 1.5), x.abs() ** 1.5),
    "rms_norm": lambda g, x, y, w: (g.rms_norm(x, [40], w, 1e-5), F.rms_norm(x, [40], w, 1e-5)),
    "softmax": lambda g, x, y, w: (g.softmax(x, 1), F.softmax(x, 1)),
    "sort": lambda g, x, y, w: (g.sort(x, 1)[0], x.sort(1)[0]),
    "sum": lambda g, x, y, w: (g.sum_dim(x, [1]), x.sum(1)),
    "tanh": lambda g, x, y, w: (g.tanh(x), x.tanh()),
    "topk": lambda g, x, y, w: (g.topk(x, 3, 1)[0], x.topk(3, 1)[0]),
    "unique": lambda g, x, y, w: (g._unique2(torch.tensor([3, 1, 3, 2]))[0], torch.tensor([1, 2, 3])),
    "var_mean": lambda g, x, y, w: (g.var_mean(x, [1])[0], x.var(1)),
}


@pytest.mark.parametrize("name", FLAG_GEMS)
def test_flag_gems(name, monkeypatch):
    monkeypatch.setenv("GEMS_VENDOR", "nvidia")  # else it asks nvidia-smi
    import flag_gems

    found, wanted = FLAG_GEMS[name](flag_gems, numbers(7, 40), numbers(7, 40), numbers(40))
    close(found, wanted, 2e-2 if name in ("bmm", "conv2d", "mm") else 1e-4)  # products in tf32


# --- xformers --------------------------------------------------------------------------------------------------------
def test_xformers_rms_norm():
    from xformers.ops.rmsnorm import rms_norm, rms_norm_add

    x, y, weight = numbers(5, 96), numbers(5, 96), numbers(96)
    close(rms_norm(x, weight, 1e-6), F.rms_norm(x, (96,), weight, 1e-6), 1e-5)
    wanted = F.rms_norm(x + y, (96,), weight, 1e-6)
    close(rms_norm_add(x, y, weight, 1e-6), wanted, 1e-5)


def test_xformers_scaled_index_add():
    from xformers.ops.indexing import scaled_index_add

    x, source, scaling = numbers(6, 7, 40, grad=True), numbers(3, 7, 40, grad=True), numbers(40, grad=True)
    index = torch.tensor([4, 0, 5])
    wanted = x.index_add(0, index, source * scaling, alpha=0.5)
    start = numbers(6, 7, 40)
    others = torch.autograd.grad(wanted, (x, source, scaling), start)
    found = scaled_index_add(x * 1, index, source, scaling, 0.5)
    close(found, wanted, 1e-5)
    for got, other in zip(torch.autograd.grad(found, (x, source, scaling), start), others, strict=True):
        close(got, other, 1e-4)


def test_xformers_index_select_cat():
    from xformers.ops.indexing import index_select_cat

    sources = [numbers(9, 24, grad=True), numbers(5, 40, grad=True)]
    indices = [torch.tensor([8, 1, 3]), torch.tensor([0, 4])]
    wanted = torch.cat([x[i].flatten() for x, i in zip(sources, indices, strict=True)])
    found, start = index_select_cat(sources, indices), numbers(*wanted.shape)
    close(found, wanted, 0)
    for x, y in zip(
        torch.autograd.grad(found, sources, start), torch.autograd.grad(wanted, sources, start), strict=True
    ):
        close(x, y, 0)


def test_xformers_tiled_matmul():
    from xformers.ops.tiled_matmul import tiled_matmul

    a = [[numbers(m, k, dtype=torch.float16) for k in (48, 16)] for m in (64, 40)]
    b = [[numbers(k, n, dtype=torch.float16) for n in (32, 72)] for k in (48, 16)]
    whole = torch.cat([torch.cat(row, 1) for row in a]).float() @ torch.cat([torch.cat(row, 1) for row in b]).float()
    close(torch.cat([torch.cat(row, 1) for row in tiled_matmul(a, b)]), whole, 2e-2)
