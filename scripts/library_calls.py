"""Calls of libraries' kernels, each compared with what torch computes: for `scripts/libraries.py`, which is the GPU.

Of distributions that carry no tests.  Sizes are small; tolerances are those of the number formats that a kernel's
sums are in, for torch adds in another order.
"""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  its usual name


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def numbers(*shape, dtype=torch.float32, grad=False):
    return torch.randn(*shape, device="cuda", dtype=dtype).requires_grad_(grad)


def close(found, wanted, tolerance):
    torch.testing.assert_close(found.float(), wanted.float(), rtol=tolerance, atol=tolerance)


def gradients_close(found, wanted, inputs, tolerance):
    """Of what a kernel and torch compute from the same inputs."""
    start = torch.randn_like(wanted)
    for x, y in zip(
        torch.autograd.grad(found, inputs, start.to(found.dtype)), torch.autograd.grad(wanted, inputs, start),
        strict=True,
    ):  # fmt: skip
        close(x, y, tolerance)


# --- flash-linear-attention ------------------------------------------------------------------------------------------
def test_fla_rms_norm():
    from fla.modules import RMSNorm

    norm, x = RMSNorm(64).cuda(), numbers(2, 5, 64, grad=True)
    y = norm(x)
    close(y, F.rms_norm(x, (64,), norm.weight, norm.eps), 1e-5)
    (gradient,) = torch.autograd.grad(y.square().sum(), x)
    (wanted,) = torch.autograd.grad(F.rms_norm(x, (64,), norm.weight, norm.eps).square().sum(), x)
    close(gradient, wanted, 1e-4)


def test_fla_layer_norm():
    from fla.modules import LayerNorm

    norm, x = LayerNorm(96).cuda(), numbers(3, 96)
    close(norm(x), F.layer_norm(x, (96,), norm.weight, norm.bias, norm.eps), 1e-5)


def test_fla_l2norm():
    from fla.modules.l2norm import l2norm

    x = numbers(2, 7, 3, 32)
    close(l2norm(x), x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt(), 1e-5)


def test_fla_softmax():
    from fla.ops.utils.softmax import softmax_fwd

    x = numbers(6, 50)
    close(softmax_fwd(x), F.softmax(x, -1), 1e-5)


@pytest.mark.parametrize("backward", [False, True])
def test_fla_cumsum(backward):
    from fla.ops.utils.cumsum import chunk_global_cumsum

    x = numbers(2, 70, 3)
    wanted = x.flip(1).cumsum(1).flip(1) if backward else x.cumsum(1)
    close(chunk_global_cumsum(x, reverse=backward), wanted, 1e-4)


def test_fla_cross_entropy():
    from fla.modules import FusedCrossEntropyLoss

    x, target = numbers(5, 40, grad=True), torch.randint(0, 40, (5,), device="cuda")
    wanted = F.cross_entropy(x, target)
    (other,) = torch.autograd.grad(wanted, x)
    y = x.detach().clone().requires_grad_()
    loss = FusedCrossEntropyLoss(inplace_backward=True)(y, target)
    loss.backward()
    close(loss, wanted, 1e-5)
    close(y.grad, other, 1e-5)


def linear_attention(q, k, v, decay=None):
    """Token by token, in float32."""
    state, found = torch.zeros(*q.shape[:1], *q.shape[2:], v.shape[-1]), []
    for t in range(q.shape[1]):
        if decay is not None:
            state = state * decay[:, t, :, None, None].exp()
        state = state + k[:, t, :, :, None] * v[:, t, :, None, :]
        found.append((q[:, t, :, :, None] * state).sum(-2) * q.shape[-1] ** -0.5)
    return torch.stack(found, 1)


def test_fla_fused_recurrent():
    from fla.ops.simple_gla import fused_recurrent_simple_gla

    q, k, v = (numbers(1, 20, 2, 16) for _ in range(3))
    decay = F.logsigmoid(numbers(1, 20, 2))
    close(fused_recurrent_simple_gla(q, k, v, decay)[0], linear_attention(q, k, v, decay), 1e-4)


def test_fla_chunk():
    from fla.ops.simple_gla import chunk_simple_gla

    q, k, v = (numbers(1, 64, 1, 16) for _ in range(3))
    decay = F.logsigmoid(numbers(1, 64, 1))
    close(chunk_simple_gla(q, k, v, decay)[0], linear_attention(q, k, v, decay), 3e-2)  # products in tf32


# --- torchao ---------------------------------------------------------------------------------------------------------
def blocks(x, size):
    """Maxima of blocks of a row."""
    return x.unflatten(-1, (-1, size)).abs().amax(-1)


def test_torchao_activations():
    from torchao.kernel.blockwise_quantization import fp8_blockwise_act_quant

    x = numbers(4, 256)
    y, scales = fp8_blockwise_act_quant(x)
    close(scales, blocks(x, 128) / 448, 1e-6)
    close(y.float() * scales.repeat_interleave(128, -1), x, 2**-3)


def test_torchao_weights():
    from torchao.kernel.blockwise_quantization import fp8_blockwise_weight_dequant, fp8_blockwise_weight_quant

    x = numbers(128, 256)
    y, scales = fp8_blockwise_weight_quant(x)
    close(fp8_blockwise_weight_dequant(y, scales), x, 2**-3)


def test_torchao_gemm():
    from torchao.kernel.blockwise_quantization import (
        blockwise_fp8_gemm,
        fp8_blockwise_act_quant,
        fp8_blockwise_weight_quant,
    )

    a, b = numbers(16, 128), numbers(128, 128)
    (qa, sa), (qb, sb) = fp8_blockwise_act_quant(a), fp8_blockwise_weight_quant(b)
    wanted = (qa.float() * sa) @ (qb.float() * sb).T
    close(blockwise_fp8_gemm(qa, sa, qb, sb), wanted, 2e-1)  # a bf16 result of about 10


def test_torchao_int8_products():
    from torchao.prototype.quantized_training.int8_mm import scaled_int8_mm_cuda

    a, b = (torch.randint(-128, 128, s, dtype=torch.int8, device="cuda") for s in ((32, 64), (64, 32)))
    rows, columns = numbers(32), numbers(32)
    wanted = (a.int() @ b.int()).float() * rows[:, None] * columns
    close(scaled_int8_mm_cuda(a, b, rows, columns), wanted, 1e-5)


def test_torchao_scales_in_blocks():
    from torchao.prototype.mx_formats.kernels import triton_mx_block_rearrange
    from torchao.prototype.mx_formats.utils import to_blocked

    x = torch.randint(0, 256, (128, 8), dtype=torch.uint8, device="cuda").view(torch.float8_e8m0fnu)
    found = triton_mx_block_rearrange(x).flatten()
    assert (found.view(torch.uint8) == to_blocked(x, use_triton_kernel=False).flatten().view(torch.uint8)).all()


# --- bitsandbytes ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["nf4", "fp4"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bitsandbytes_4bit(kind, dtype):
    from bitsandbytes.backends.triton import ops
    from bitsandbytes.functional import get_4bit_type

    x = numbers(8, 64, dtype=dtype)
    packed, maxima = ops.quantize_4bit(x, 64, kind, torch.uint8)
    close(maxima, x.reshape(-1, 64).abs().amax(-1), 0)
    found = ops.dequantize_4bit(packed, maxima, 64, kind, x.shape, dtype)
    codes = torch.stack([packed >> 4, packed & 15], -1).reshape(8, 64).long()
    close(found, get_4bit_type(kind, device="cuda")[codes] * maxima[:, None], 2**-7)
    assert (found - x).abs().max() < 0.35 * maxima.max()


def test_bitsandbytes_8bit():
    from bitsandbytes.backends.triton import ops
    from bitsandbytes.functional import create_dynamic_map

    x, code = numbers(512), create_dynamic_map().to("cuda")
    codes, maxima = ops.quantize_blockwise(x, code, 256)
    close(maxima, blocks(x, 256), 0)
    nearest = (x.view(2, 256, 1) / maxima[:, None, None] - code).abs().argmin(-1).flatten()
    assert (code[codes.flatten().long()] - code[nearest]).abs().max() < 0.02
    found = ops.dequantize_blockwise(codes, maxima, code, 256, torch.float32)
    close(found, code[codes.flatten().long()] * maxima.repeat_interleave(256), 1e-6)


@pytest.mark.parametrize("name", ["adam", "momentum", "lion"])
def test_bitsandbytes_optimizer(name):
    from bitsandbytes.backends.triton.kernels_optim import optimizer_update_32bit_impl

    p, g, first, second = numbers(300), numbers(300), numbers(300), numbers(300).abs()
    start, state = p.clone(), first.clone()
    variance = second.clone()
    moments = first, second if name == "adam" else None
    betas = 0.9, 0.99, 0.0, 0.0
    optimizer_update_32bit_impl(name, g, p, *moments, None, 0.0, 0.0, *betas, 1e-8, 0.0, 3, 0.01)
    if name == "adam":
        mean, square = 0.9 * state + 0.1 * g, 0.99 * variance + 0.01 * g * g
        wanted = start - 0.01 * (1 - 0.99**3) ** 0.5 / (1 - 0.9**3) * mean / (square.sqrt() + 1e-8)
    elif name == "lion":
        wanted = start - 0.01 * torch.sign(0.9 * state + 0.1 * g)
    else:
        wanted = start - 0.01 * (0.9 * state + g)
    close(p, wanted, 1e-4)


# --- gemlite ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("bits", [4, 8])
def test_gemlite(rows, bits):
    from gemlite import DType, GemLiteLinearTriton

    n, k, group = 128, 512, 64
    layer = GemLiteLinearTriton(
        bits, group_size=group, in_features=k, out_features=n, input_dtype=DType.FP16, output_dtype=DType.FP16
    )
    weights = torch.randint(0, 2**bits, (n, k), dtype=torch.uint8, device="cuda")
    scales, zeros = (
        numbers(n, k // group, dtype=torch.float16) / 8,
        torch.full((n, k // group), 7.0, dtype=torch.float16),
    )
    layer.pack(weights, scales, zeros)
    x = numbers(rows, k, dtype=torch.float16) / 8
    whole = (weights.float() - 7) * scales.float().repeat_interleave(group, -1)
    close(layer(x), x.float() @ whole.T, 4e-2 * 2 ** (bits - 4))


# --- unsloth ---------------------------------------------------------------------------------------------------------
def test_unsloth_swiglu():
    from unsloth.kernels import swiglu_DWf_DW_dfg_kernel, swiglu_fg_kernel

    e, g, dw = numbers(6, 80, grad=True), numbers(6, 80, grad=True), numbers(6, 80)
    wanted = F.silu(e) * g
    de, dg = torch.autograd.grad(wanted, (e, g), dw)
    close(swiglu_fg_kernel(e.detach()[None], g.detach()[None])[0], wanted, 1e-5)
    found = swiglu_DWf_DW_dfg_kernel(dw.clone(), e.detach().clone(), g.detach().clone())
    for x, y in zip(found, (wanted, dg, de), strict=True):
        close(x, y, 1e-4)


@pytest.mark.parametrize("kind", ["exact", "approx"])
def test_unsloth_geglu(kind):
    from unsloth import kernels

    e, g, dw = numbers(1, 6, 80, grad=True), numbers(1, 6, 80, grad=True), numbers(6, 80)
    wanted = F.gelu(e, approximate="none" if kind == "exact" else "tanh") * g
    de, dg = torch.autograd.grad(wanted, (e, g), dw[None])
    close(getattr(kernels, f"geglu_{kind}_forward_kernel")(e.detach(), g.detach()), wanted, 1e-4)
    arguments = dw.clone(), e.detach()[0].clone(), g.detach()[0].clone()
    for x, y in zip(getattr(kernels, f"geglu_{kind}_backward_kernel")(*arguments), (wanted, dg, de), strict=True):
        close(x, y.reshape(6, 80), 1e-4)


@pytest.mark.parametrize("gemma", [False, True])
def test_unsloth_rms_norm(gemma):
    from unsloth.kernels import fast_rms_layernorm

    norm, x = torch.nn.RMSNorm(64, eps=1e-6).cuda(), numbers(2, 5, 64, grad=True)
    norm.variance_epsilon, norm.weight = norm.eps, torch.nn.Parameter(numbers(64))
    weight = norm.weight + 1 if gemma else norm.weight
    y, wanted = fast_rms_layernorm(norm, x, gemma=gemma), F.rms_norm(x, (64,), weight, norm.eps)
    close(y, wanted, 1e-5)
    start = numbers(2, 5, 64)
    close(torch.autograd.grad(y, x, start)[0], torch.autograd.grad(wanted, x, start)[0], 1e-4)


def test_unsloth_layer_norm():
    from unsloth.kernels.layernorm import fast_layernorm

    norm, x = torch.nn.LayerNorm(48).cuda(), numbers(2, 5, 48, grad=True)
    y, wanted, start = fast_layernorm(norm, x), norm(x), numbers(2, 5, 48)
    close(y, wanted, 1e-5)
    close(torch.autograd.grad(y, x, start)[0], torch.autograd.grad(wanted, x, start)[0], 1e-4)


def test_unsloth_rope():
    from unsloth.kernels import fast_rope_embedding

    q, k, angles = numbers(1, 4, 10, 32), numbers(1, 2, 10, 32), numbers(10, 16)
    cos, sin = (torch.cat([x, x], -1) for x in (angles.cos(), angles.sin()))
    wanted = [x * cos + torch.cat([-x[..., 16:], x[..., :16]], -1) * sin for x in (q, k)]
    for x, y in zip(fast_rope_embedding(q.clone(), k.clone(), cos, sin), wanted, strict=True):
        close(x, y, 1e-5)


def cross_entropy_of_unsloth(x, target, logits, **given):
    """Loss and gradient by x, which is given to the kernel, are those that torch computes of the logits."""
    from unsloth.kernels import fast_cross_entropy_loss

    wanted = F.cross_entropy(logits.flatten(0, 1), target.flatten())
    (other,) = torch.autograd.grad(wanted, x)
    y = x.detach().clone().requires_grad_()
    loss = fast_cross_entropy_loss(y * 1, target, **given)
    close(loss, wanted, 1e-5)
    close(torch.autograd.grad(loss, y)[0], other, 1e-5)


def test_unsloth_cross_entropy():
    x, target = numbers(2, 5, 70, grad=True), torch.randint(0, 70, (2, 5), device="cuda")
    target[0, 2] = -100
    cross_entropy_of_unsloth(x, target, x)


# --- cut-cross-entropy, SageAttention --------------------------------------------------------------------------------
def test_cut_cross_entropy():
    from cut_cross_entropy import linear_cross_entropy

    e, c = (numbers(n, 32, dtype=torch.bfloat16) for n in (16, 64))
    target = torch.randint(0, 64, (16,), device="cuda")
    found, wanted = ([x.detach().to(t).requires_grad_() for x in (e, c)] for t in (torch.bfloat16, torch.float32))
    loss, other = linear_cross_entropy(*found, target), F.cross_entropy(wanted[0] @ wanted[1].T, target)
    close(loss, other, 1e-2)
    loss.backward()
    other.backward()
    for x, y in zip(found, wanted, strict=True):
        close(x.grad, y.grad, 2e-2)


@pytest.mark.parametrize("causal", [False, True])
def test_sageattention(causal):
    from sageattention import sageattn

    q, k, v = (numbers(1, 2, 100 if causal else 128, 64, dtype=torch.float16) for _ in range(3))
    wanted = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=causal)
    close(sageattn(q, k, v, is_causal=causal), wanted, 3e-2)  # products in int8
