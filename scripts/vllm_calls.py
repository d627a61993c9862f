"""As library_calls.py, of vLLM's Triton kernels."""

import sys
import types
from unittest.mock import MagicMock

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  its usual name
from library_calls import close, numbers, seeded  # noqa: F401  a fixture

LENGTHS, NEW, PAGE = (37, 20), (5, 1), 16  # tokens of two sequences, how many of these are new, tokens of a page
HEADS, SHARED, SIZE = 4, 2, 32  # of queries, of keys, channels of each
STARTS = [0, *torch.tensor(NEW).cumsum(0).tolist()]


@pytest.fixture(autouse=True)
def platform(monkeypatch):
    """vLLM asks NVML for GPUs, and imports CUDA C++ for the platform that has one; its Triton kernels need neither."""
    for name in ("vllm._C_stable_libtorch", "vllm._moe_C_stable_libtorch"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    shared = torch.cuda.get_device_properties(0).shared_memory_per_block_optin
    for space, name, answer in (
        ("_C", "cutlass_scaled_mm_supports_block_fp8", False),
        ("_C_cuda_utils", "get_max_shared_memory_per_block_device_attribute", shared),
    ):
        monkeypatch.setattr(getattr(torch.ops, space), name, lambda *_, answer=answer: answer, raising=False)
    from vllm import platforms
    from vllm.platforms.cuda import NonNvmlCudaPlatform

    monkeypatch.setattr(platforms, "_current_platform", NonNvmlCudaPlatform())


def i32(values):
    return torch.tensor(values, dtype=torch.int32, device="cuda")


def sequences(dtype=torch.float16):
    """(queries of the new tokens, keys and values of all, pages of both in another order, its table, attention)."""
    q = [numbers(n, HEADS, SIZE, dtype=dtype) for n in NEW]
    k, v = ([numbers(n, SHARED, SIZE, dtype=dtype) for n in LENGTHS] for _ in range(2))
    table = i32([[5, 1, 4], [2, 7, 0]])
    pages = [numbers(8, PAGE, SHARED, SIZE, dtype=dtype) for _ in range(2)]
    for whole, page in zip((k, v), pages, strict=True):
        for row, tokens in zip(table.tolist(), whole, strict=True):
            for number, some in zip(row, tokens.split(PAGE), strict=False):
                page[number, : len(some)] = some
    return torch.cat(q), k, v, pages, table, torch.cat([attention(*x) for x in zip(q, k, v, strict=True)])


def attention(q, k, v):
    """Of the last tokens of a sequence, each to those up to itself."""
    mask = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))
    heads = [x.transpose(0, 1).float() for x in (q, k, v)]
    return F.scaled_dot_product_attention(*heads, attn_mask=mask, enable_gqa=True).transpose(0, 1)


# --- attention -------------------------------------------------------------------------------------------------------
def test_vllm_unified_attention():
    from vllm.v1.attention.ops.triton_unified_attention import unified_attention

    q, _, _, (k, v), table, wanted = sequences()
    out = torch.empty_like(q)
    unified_attention(
        q, k, v, out, i32(STARTS), max(NEW), i32(LENGTHS), max(LENGTHS), SIZE**-0.5, True, (-1, -1), table, 0.0,
        None, None, None,
    )  # fmt: skip
    close(out, wanted, 1e-2)


def in_cells(pages, kind):
    """vLLM's older layout of a cache: keys by page, head, 8 channels, token."""
    if kind == "v":
        return pages.permute(0, 2, 3, 1).contiguous()
    return pages.reshape(8, PAGE, SHARED, SIZE // 8, 8).permute(0, 2, 3, 1, 4).contiguous()


def test_vllm_prefix_prefill():
    from vllm.v1.attention.ops.prefix_prefill import context_attention_fwd

    q, k, v, pages, table, wanted = sequences()
    new = [torch.cat([x[-n:] for x, n in zip(whole, NEW, strict=True)]) for whole in (k, v)]
    out, one = torch.empty_like(q), torch.ones(1)
    context_attention_fwd(
        q, *new, out, "auto", in_cells(pages[0], "k"), in_cells(pages[1], "v"), table, i32(STARTS), i32(LENGTHS),
        max(LENGTHS), max(NEW), one, one,
    )  # fmt: skip
    close(out, wanted, 1e-2)


def test_vllm_paged_decode():
    from vllm.v1.attention.ops.chunked_prefill_paged_decode import chunked_prefill_paged_decode

    q, k, v, pages, table, wanted = sequences()
    q, wanted = q[[4, 5]].contiguous(), wanted[[4, 5]]
    new = [torch.stack([x[-1] for x in whole]) for whole in (k, v)]
    out, one = torch.empty_like(q), torch.ones(1)
    chunked_prefill_paged_decode(
        q, *new, out, "auto", in_cells(pages[0], "k"), in_cells(pages[1], "v"), table, i32([0, 1, 2]), i32(LENGTHS),
        max(LENGTHS), 1, one, one,
    )  # fmt: skip
    close(out, wanted, 1e-2)


@pytest.mark.parametrize("grouped", [False, True])
def test_vllm_decode_attention(grouped):
    from vllm.v1.attention.ops.triton_decode_attention import decode_attention_fwd

    q, _, _, pages, table, wanted = sequences()
    q, wanted = q[[4, 5]].contiguous(), wanted[[4, 5]]
    if not grouped:
        pages = [x.repeat_interleave(HEADS // SHARED, 2).contiguous() for x in pages]
    out, sums = torch.empty_like(q), torch.empty(2, HEADS)
    parts = torch.empty(2, HEADS, 4, SIZE + 1)
    decode_attention_fwd(q, *pages, out, sums, table, i32(LENGTHS), parts, 4, SIZE**-0.5, PAGE)
    close(out, wanted, 1e-2)


def test_vllm_prefill_attention():
    from vllm.v1.attention.ops.triton_prefill_attention import context_attention_fwd

    _, k, v, *_ = sequences()
    q = [numbers(n, HEADS, SIZE, dtype=torch.float16) for n in LENGTHS]
    wanted = torch.cat([attention(*x) for x in zip(q, k, v, strict=True)])
    out = torch.empty(sum(LENGTHS), HEADS, SIZE, dtype=torch.float16)
    context_attention_fwd(*map(torch.cat, (q, k, v)), out, i32([0, LENGTHS[0]]), i32(LENGTHS), max(LENGTHS))
    close(out, wanted, 1e-2)


def test_vllm_merge_states():
    from vllm.v1.attention.ops.triton_merge_attn_states import merge_attn_states

    (a, b), (x, y) = numbers(2, 6, 3, 24), numbers(2, 3, 6)
    out, sums = torch.empty_like(a), torch.empty(3, 6)
    merge_attn_states(out, a, x, b, y, sums)
    wanted = torch.logaddexp(x, y)
    close(sums, wanted, 1e-5)
    close(out, a * (x - wanted).exp().T[..., None] + b * (y - wanted).exp().T[..., None], 1e-4)


def test_vllm_reshape_and_cache():
    from vllm.v1.attention.ops.triton_reshape_and_cache_flash import triton_reshape_and_cache_flash

    k, v = numbers(2, 7, SHARED, SIZE)
    caches = [torch.zeros(4, PAGE, SHARED, SIZE) for _ in range(2)]
    slots, one = torch.tensor([3, 40, -1, 17, 16, 63, 0]), torch.ones(1)
    triton_reshape_and_cache_flash(k, v, *caches, slots, "auto", one, one)
    for new, cache in zip((k, v), caches, strict=True):
        wanted = torch.zeros(4 * PAGE, SHARED, SIZE)
        wanted[slots[slots >= 0]] = new[slots >= 0]
        close(cache.flatten(0, 1), wanted, 0)


# --- sampling --------------------------------------------------------------------------------------------------------
def test_vllm_top_k_top_p():
    from vllm.v1.sample.ops.topk_topp_triton import apply_top_k_top_p_triton

    x, k, p = numbers(6, 300), i32([300, 5, 40, 300, 7, 60]), torch.tensor([1.0, 1.0, 0.5, 0.7, 0.9, 1.0])
    wanted = torch.full_like(x, -torch.inf)
    for row, (values, most, share) in enumerate(zip(x, k.tolist(), p.tolist(), strict=True)):
        best = values.topk(most)
        before = F.softmax(best.values, -1).cumsum(-1) - F.softmax(best.values, -1)
        kept = best.indices[before < share]
        wanted[row, kept] = values[kept]
    close(apply_top_k_top_p_triton(x.clone(), k, p), wanted, 0)


def test_vllm_gumbel():
    from vllm.v1.worker.gpu.sample.gumbel import gumbel_sample

    x, rows = numbers(3, 900), i32([0, 1, 2])
    seeds, places = torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6])
    cold = gumbel_sample(x, rows, torch.zeros(3), seeds, places, True, False)
    assert cold.tolist() == x.argmax(-1).tolist()
    warm = [gumbel_sample(x, rows, torch.ones(3), seeds + n, places, True, False) for n in range(5)]
    assert all(0 <= i < 900 for y in warm for i in y.tolist()) and len({tuple(y.tolist()) for y in warm}) > 1


def test_vllm_min_p():
    from vllm.v1.worker.gpu.sample.min_p import apply_min_p

    x, shares = numbers(3, 500), torch.tensor([0.0, 0.1, 0.5])
    probabilities = F.softmax(x, -1)
    kept = probabilities >= shares[:, None] * probabilities.amax(-1, keepdim=True)
    wanted = x.masked_fill(~kept, -torch.inf)
    apply_min_p(x, i32([0, 1, 2]), shares)
    close(x, wanted, 0)


# --- quantisation ----------------------------------------------------------------------------------------------------
def awq(rows, columns, group):
    """(packed, scales, packed zeros, what they stand for): AWQ's order of eight 4-bit numbers in a word."""
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])
    weights, zeros = torch.randint(0, 16, (rows, columns)), torch.randint(0, 16, (rows // group, columns))
    scales = numbers(rows // group, columns, dtype=torch.float16) / 8

    def packed(x):
        words = (x.view(len(x), -1, 8)[..., order] << torch.arange(0, 32, 4)).sum(-1)
        return words.to(torch.uint32).view(torch.int32)

    whole = (weights - zeros.repeat_interleave(group, 0)) * scales.float().repeat_interleave(group, 0)
    return packed(weights), scales, packed(zeros), whole


def test_vllm_awq():
    from vllm.model_executor.layers.quantization.awq_triton import awq_dequantize_triton, awq_gemm_triton

    packed, scales, zeros, whole = awq(128, 64, 32)
    close(awq_dequantize_triton(packed, scales, zeros), whole, 2e-3)
    x = numbers(9, 128, dtype=torch.float16)
    close(awq_gemm_triton(x, packed, scales, zeros, 4), x.float() @ whole, 5e-2)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_vllm_scaled_mm(dtype):
    from vllm.model_executor.layers.quantization.compressed_tensors.triton_scaled_mm import triton_scaled_mm

    a, b = ((numbers(*s) * 20).clamp(-100, 100).to(dtype) for s in ((24, 96), (48, 96)))
    scales = torch.rand(24, 1) / 20, torch.rand(48, 1) / 20
    found = triton_scaled_mm(a, b.T, *scales, torch.float16, numbers(48, dtype=torch.float16) * 0)
    close(found, (a.float() * scales[0]) @ (b.float() * scales[1]).T, 1e-2)


def test_vllm_block_fp8():
    from vllm.model_executor.layers.quantization.utils import fp8_utils

    x, w = numbers(10, 256), numbers(128, 256)
    scales = x.view(10, 2, 128).abs().amax(-1) / 448
    q = (x / scales.repeat_interleave(128, -1)).to(torch.float8_e4m3fn)
    blocks = w.view(1, 128, 2, 128).abs().amax((1, 3)) / 448
    weight = (w / blocks.repeat_interleave(128, -1)).to(torch.float8_e4m3fn)
    found = fp8_utils.w8a8_triton_block_scaled_mm(q, weight, scales, blocks, [128, 128], torch.float32)
    whole = weight.float() * blocks.repeat_interleave(128, -1)
    close(found, (q.float() * scales.repeat_interleave(128, -1)) @ whole.T, 2e-2)


def test_vllm_int8_tokens():
    from vllm.model_executor.layers.quantization.utils.int8_utils import per_token_quant_int8

    x = numbers(5, 200)
    q, scales = per_token_quant_int8(x)
    close(scales, x.abs().amax(-1, keepdim=True) / 127, 1e-6)
    close(q, (x / scales).round(), 0)


def test_vllm_mxfp8():
    from vllm.model_executor.layers.quantization.utils import mxfp8_utils

    x = numbers(6, 64, dtype=torch.bfloat16)
    for found, wanted in zip(
        mxfp8_utils._mxfp8_e4m3_quantize_triton(x), mxfp8_utils._mxfp8_e4m3_quantize_torch(x), strict=True
    ):
        assert (found.view(torch.uint8) == wanted.view(torch.uint8)).all()


def test_vllm_nvfp4():
    from vllm.model_executor.layers.quantization.utils import nvfp4_emulation_utils as nvfp4

    x, scale = numbers(6, 64, dtype=torch.bfloat16), torch.tensor(100.0)
    close(nvfp4._triton_nvfp4_quant_dequant(x, scale, 16), nvfp4.ref_nvfp4_quant_dequant(x, scale, 16), 0)


# --- LoRA ------------------------------------------------------------------------------------------------------------
def test_vllm_lora():
    from vllm.lora.ops.triton_ops import LoRAKernelMeta, lora_expand, lora_shrink

    x, which = numbers(12, 64, dtype=torch.float16), i32([0, 1, 1, -1, 2, 0, 0, 2, 1, -1, 2, 2])
    down, up = numbers(3, 1, 16, 64, dtype=torch.float16) / 8, numbers(3, 1, 48, 16, dtype=torch.float16) / 4
    meta = LoRAKernelMeta.make(max_loras=3, max_num_tokens=12, device="cuda")
    meta.prepare_tensors(which)
    middle, out = torch.zeros(1, 12, 16), torch.zeros(12, 48, dtype=torch.float16)
    lora_shrink(x, [down], middle, *meta.meta_args(12, False), 1.0)
    lora_expand(middle, [up], out, *meta.meta_args(12, False), add_inputs=True)
    for token, number in enumerate(which.tolist()):
        wanted = x[token].float() @ down[number, 0].float().T if number >= 0 else torch.zeros(16)
        close(middle[0, token], wanted, 1e-2)
        close(out[token], wanted @ up[number, 0].float().T, 3e-2)


# --- state spaces, linear attention ----------------------------------------------------------------------------------
def test_vllm_causal_conv1d():
    from vllm.model_executor.layers.mamba.ops.causal_conv1d import causal_conv1d_fn, causal_conv1d_update

    x, weight, bias, states = numbers(30, 64).T, numbers(64, 4), numbers(64), numbers(4, 3, 64).transpose(1, 2)
    start, cells, begun = i32([0, 19, 30]), i32([2, 1]), torch.tensor([True, False])
    before = states.clone()
    found, wanted = causal_conv1d_fn(x, weight, bias, states, start, cells, begun), []
    for first, last, cell, old in ((0, 19, 2, 1.0), (19, 30, 1, 0.0)):
        padded = torch.cat([before[cell] * old, x[:, first:last]], -1)
        wanted.append(F.silu(F.conv1d(padded[None], weight[:, None], bias, groups=64)[0]))
        close(states[cell], padded[:, -3:], 0)
    close(found, torch.cat(wanted, -1), 1e-4)
    token, old = numbers(2, 64), states[[2, 1]]
    padded = torch.cat([old, token[..., None]], -1)
    found = causal_conv1d_update(token.clone(), states, weight, bias, "silu", cells)
    close(found, F.silu((padded * weight).sum(-1) + bias), 1e-4)
    close(states[[2, 1]], padded[..., 1:], 0)


def test_vllm_state_update():
    from vllm.model_executor.layers.mamba.ops.mamba_ssm import selective_state_update

    state, x, dt, z = numbers(2, 48, 16), numbers(2, 48), numbers(2, 48), numbers(2, 48)
    a, b, c, d, bias = -numbers(48, 16).exp(), numbers(2, 16), numbers(2, 16), numbers(48), numbers(48)
    step = F.softplus(dt + bias)[..., None]
    new = state * (step * a).exp() + step * b[:, None] * x[..., None]
    out = torch.empty_like(x)
    selective_state_update(state, x, dt, a, b, c, d, bias, z, True, out=out)
    close(state, new, 1e-4)
    close(out, ((new * c[:, None]).sum(-1) + d * x) * F.silu(z), 1e-4)


def test_vllm_rms_norm_gated():
    from vllm.model_executor.layers.mamba.ops.layernorm_gated import rms_norm_gated

    x, z, weight = numbers(6, 64), numbers(6, 64), numbers(64)
    close(rms_norm_gated(x, weight, None, z), F.rms_norm(x, (64,), weight, 1e-6) * F.silu(z), 1e-4)


def test_vllm_lightning_attention():
    from vllm.model_executor.layers.lightning_attn import lightning_attention

    q, k, v = (numbers(1, 2, 70, 64) / 4 for _ in range(3))
    slopes = torch.tensor([0.1, 0.3])
    found, _ = lightning_attention(q, k, v, slopes)
    apart = (torch.arange(70)[:, None] - torch.arange(70)).float()
    decay = (-slopes[:, None, None] * apart).exp().masked_fill(apart < 0, 0)
    close(found, (q @ k.transpose(-1, -2) * decay) @ v, 2e-2)


# --- results that do not depend on the batch, mixtures of experts, positions -----------------------------------------
def test_vllm_batch_invariant():
    from vllm.model_executor.determinism import batch_invariant as b

    x, y, bias = numbers(40, 96, dtype=torch.float16), numbers(96, 72, dtype=torch.float16), numbers(72).half()
    close(b.matmul_persistent(x, y, bias), x.float() @ y.float() + bias.float(), 2e-2)
    z, weight = numbers(5, 130), numbers(130)
    close(b.log_softmax(z), F.log_softmax(z, -1), 1e-5)
    close(b.mean_dim(z, 0), z.mean(0), 1e-5)
    close(b.rms_norm_batch_invariant(z, weight, 1e-6), F.rms_norm(z, (130,), weight, 1e-6), 1e-5)


def test_vllm_fused_moe(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm.vllm_flash_attn", MagicMock())  # CUDA C++, of another layer
    import triton.language as tl
    from vllm.model_executor.layers.fused_moe.fused_moe import invoke_fused_moe_triton_kernel

    x, experts, block = numbers(7, 64, dtype=torch.float16), numbers(3, 48, 64, dtype=torch.float16) / 8, 16
    weights, chosen = numbers(7, 3).softmax(-1).topk(2)
    rows = [(chosen.flatten() == e).nonzero().flatten() for e in range(3)]
    padded = [F.pad(r, (0, -len(r) % block), value=14) for r in rows]  # 14: no row
    of = torch.cat([torch.full((len(r) // block,), e) for e, r in enumerate(padded)])
    out = torch.zeros(7, 2, 48, dtype=torch.float16)
    config = {"BLOCK_SIZE_M": block, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 1}
    sizes = i32([sum(map(len, padded))])
    invoke_fused_moe_triton_kernel(
        x, experts, out, None, None, weights, torch.cat(padded).int(), of.int(), sizes, True, 2, config, tl.float16,
        False, False, False, False, False,
    )  # fmt: skip
    wanted = torch.einsum("tk,tjnk->tjn", x.float(), experts[chosen].float()) * weights[..., None]
    close(out, wanted, 1e-2)


def test_vllm_mrope():
    from vllm.model_executor.layers.rotary_embedding.mrope import triton_mrope

    q, k, angles = numbers(9, 3 * 32), numbers(9, 32), numbers(3, 9, 16)
    which = torch.tensor([0] * 4 + [1] * 6 + [2] * 6)
    angle = angles[which, :, torch.arange(16)].T[:, None]
    wanted = []
    for x in (q, k):
        first, second = x.view(9, -1, 32).chunk(2, -1)
        cos, sin = angle.cos(), angle.sin()
        wanted.append(torch.cat([first * cos - second * sin, second * cos + first * sin], -1).view(9, -1))
    found = triton_mrope(q, k, angles.cos(), angles.sin(), [4, 6, 6], 32, 32, False, True)
    for x, y in zip(found, wanted, strict=True):
        close(x, y, 1e-5)
