"""As library_calls.py, of SGLang's Triton kernels."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  its usual name
from library_calls import close, numbers, seeded  # noqa: F401  a fixture

OLD, NEW = (30, 9), (5, 12)  # tokens of two sequences that are cached, and new ones
HEADS, SHARED, SIZE = 4, 2, 32  # of queries, of keys, channels of each


def starts(lengths):
    return torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0).int()


def attention(q, k, v):
    """Of the last tokens of a sequence, each to those up to itself."""
    mask = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))
    heads = [x.transpose(0, 1).float() for x in (q, k, v)]
    return F.scaled_dot_product_attention(*heads, attn_mask=mask, enable_gqa=True).transpose(0, 1)


def cached():
    """(keys and values of 64 places of a cache, the places of the cached tokens, those by sequence)."""
    caches = numbers(2, 64, SHARED, SIZE, dtype=torch.float16)
    places = torch.randperm(64)[: sum(OLD)]
    return caches, places, places.split(OLD)


def test_sglang_decode_attention():
    from sglang.kernels.ops.attention.decode_attention import decode_attention_fwd

    (k, v), places, own = cached()
    q = numbers(2, HEADS, SIZE, dtype=torch.float16)
    out, parts, sums = torch.empty_like(q), torch.empty(2, HEADS, 4, SIZE), torch.empty(2, HEADS, 4)
    splits = torch.tensor([3, 1], dtype=torch.int32)
    decode_attention_fwd(q, k, v, out, starts(OLD), places, parts, sums, splits, 4, SIZE**-0.5, 1.0, 1.0)
    close(out, torch.cat([attention(x[None], k[i], v[i]) for x, i in zip(q, own, strict=True)]), 1e-2)


def test_sglang_extend_attention():
    from sglang.kernels.ops.attention.extend_attention import extend_attention_fwd

    (k, v), places, own = cached()
    q, more_k, more_v = (numbers(sum(NEW), n, SIZE, dtype=torch.float16) for n in (HEADS, SHARED, SHARED))
    out, wanted = torch.empty_like(q), []
    for i, *new in zip(own, *(x.split(NEW) for x in (q, more_k, more_v)), strict=True):
        wanted.append(attention(new[0], torch.cat([k[i], new[1]]), torch.cat([v[i], new[2]])))
    extend_attention_fwd(
        q, more_k, more_v, out, k, v, starts(NEW), starts(OLD), places, None, True, None, max(NEW), 1.0, 1.0
    )
    close(out, torch.cat(wanted), 1e-2)


def test_sglang_prefill_attention():
    from sglang.kernels.ops.attention.prefill_attention import context_attention_fwd

    q, k, v = (numbers(sum(NEW), n, SIZE, dtype=torch.float16) for n in (HEADS, SHARED, SHARED))
    out, lengths = torch.empty_like(q), torch.tensor(NEW, dtype=torch.int32)
    context_attention_fwd(q, k, v, out, starts(NEW)[:-1], lengths, max(NEW))
    close(out, torch.cat([attention(*x) for x in zip(*(y.split(NEW) for y in (q, k, v)), strict=True)]), 1e-2)


def test_sglang_merge_state():
    from sglang.kernels.ops.attention.merge_state import merge_state_triton

    (a, b), (x, y) = numbers(2, 6, 3, 24), numbers(2, 6, 3)
    found, sums = merge_state_triton(a, x, b, y)
    wanted = torch.logaddexp(x, y)
    close(sums, wanted, 1e-5)
    close(found, a * (x - wanted).exp()[..., None] + b * (y - wanted).exp()[..., None], 1e-4)


def test_sglang_gated_delta_rule():
    from sglang.kernels.ops.attention.fla.fused_recurrent import fused_recurrent_gated_delta_rule

    q, k, v = numbers(1, 20, 2, 32), F.normalize(numbers(1, 20, 2, 32), dim=-1), numbers(1, 20, 2, 32)
    g, beta = F.logsigmoid(numbers(1, 20, 2)), numbers(1, 20, 2).sigmoid()
    found, _ = fused_recurrent_gated_delta_rule(q, k, v, g, beta, output_final_state=True)
    state, wanted = torch.zeros(1, 2, 32, 32), []
    for t in range(20):
        state = state * g[:, t].exp()[..., None, None]
        error = (v[:, t] - (k[:, t, ..., None] * state).sum(-2)) * beta[:, t, :, None]
        state = state + k[:, t, ..., None] * error[..., None, :]
        wanted.append((q[:, t, ..., None] * state).sum(-2) * 32**-0.5)
    close(found, torch.stack(wanted, 1), 1e-4)


def test_sglang_rms_norm():
    from sglang.kernels.ops.layernorm.fused_rmsnorm import fused_dual_residual_rmsnorm, fused_rmsnorm

    x, residual = numbers(5, 96), numbers(5, 96)
    first, second = numbers(96), numbers(96)
    close(fused_rmsnorm(x, first, 1e-6), F.rms_norm(x, (96,), first, 1e-6), 1e-5)
    middle = F.rms_norm(x, (96,), first, 1e-6) + residual
    found, kept = fused_dual_residual_rmsnorm(x, residual, first, second, 1e-6)
    close(kept, middle, 1e-5)
    close(found, F.rms_norm(middle, (96,), second, 1e-6), 1e-5)


def test_sglang_norm_of_diffusion():
    from sglang.kernels.ops.diffusion.norm.norm_triton import norm_infer, rms_norm_fn

    x, weight, bias = numbers(6, 80), numbers(80), numbers(80)
    close(norm_infer(x, weight, bias, 1e-6), F.layer_norm(x, (80,), weight, bias, 1e-6), 1e-5)
    close(rms_norm_fn(x, weight, None), F.rms_norm(x, (80,), weight, 1e-6), 1e-5)


def test_sglang_softcap():
    from sglang.kernels.ops.activation.softcap import softcap_inplace_logits

    x = numbers(3, 700) * 20
    wanted = 30 * torch.tanh(x / 30)
    softcap_inplace_logits(x, 30.0)
    close(x, wanted, 1e-4)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_sglang_block_products(dtype):
    from sglang.kernels.ops.gemm.fp8_kernel import w8a8_block_fp8_matmul_triton
    from sglang.kernels.ops.gemm.int8_kernel import w8a8_block_int8_matmul

    multiply = w8a8_block_int8_matmul if dtype == torch.int8 else w8a8_block_fp8_matmul_triton
    a, b = ((numbers(*s) * 20).clamp(-100, 100).to(dtype) for s in ((24, 256), (128, 256)))
    scales, blocks = torch.rand(24, 2) / 20, torch.rand(1, 2) / 20
    found = multiply(a, b, scales, blocks, [128, 128], torch.float32)
    wide = [x.repeat_interleave(128, 1) for x in (scales, blocks)]
    close(found, (a.float() * wide[0]) @ (b.float() * wide[1]).T, 2e-2)


def test_sglang_quantisation():
    from sglang.kernels.ops.quantization.fp8_kernel import static_quant_fp8

    x, scale = numbers(6, 96), torch.tensor([0.01])
    found, _ = static_quant_fp8(x, scale)
    wanted = (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
    close(found, wanted, 1 / 8)  # products by the inverse may round to the neighbour


def test_sglang_sampling():
    from sglang.kernels.ops.sampling.renorm_triton import top_k_renorm_probs_triton
    from sglang.kernels.ops.sampling.temperature_softmax import temperature_softmax

    x, heat = numbers(4, 30000), torch.rand(4, 1) + 0.5
    found = temperature_softmax(x, heat)
    close(found, F.softmax(x / heat, -1), 1e-5)
    best = found.topk(7)
    wanted = torch.zeros_like(x).scatter(-1, best.indices, best.values / best.values.sum(-1, keepdim=True))
    close(top_k_renorm_probs_triton(found, 7), wanted, 1e-5)
