"""More calls of kernels of torchao, bitsandbytes, gemlite and unsloth: 16-bit floats, odd sizes, groups, small floats.

For `scripts/libraries.py`, which is the GPU.  References are the libraries' own in PyTorch where there is one.
"""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  its usual name
from library_calls import close, cross_entropy_of_unsloth, numbers, seeded  # noqa: F401  a fixture

BOTH = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
E4M3 = pytest.mark.skipif(torch.cuda.get_device_capability() < (8, 9), reason="Triton has e4m3 from sm_89 on")
HALVES = {torch.float16: 2**-9, torch.bfloat16: 2**-6}  # a few units in the last place


def same(found, wanted):
    """The same bytes."""
    assert found.shape == wanted.shape
    assert (found.contiguous().view(torch.uint8) == wanted.contiguous().view(torch.uint8)).all()


# --- torchao ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("way", ["lhs", "rhs", "transposed_lhs"])
@BOTH
@E4M3
def test_torchao_more_blockwise_activations(way, dtype):
    from torchao.prototype.blockwise_fp8_training import kernels

    x = numbers(256, 384, dtype=dtype)
    y, scales = getattr(kernels, f"triton_fp8_blockwise_act_quant_{way}")(x)
    if way == "rhs":
        z, others = kernels.torch_blockwise_scale_act_quant_rhs(x)
    else:
        z, others = kernels.torch_blockwise_scale_act_quant_lhs(x.t().contiguous() if way != "lhs" else x)
    close(y, z, 2**-3)
    close(scales, others, 1e-6)


@pytest.mark.parametrize("transposed", [False, True])
@E4M3
def test_torchao_more_blockwise_weights(transposed):
    from torchao.prototype.blockwise_fp8_training import kernels

    x = numbers(256, 384, dtype=torch.bfloat16)
    name = f"triton_fp8_blockwise_weight_quant_{'transposed_' if transposed else ''}rhs"
    y, scales = getattr(kernels, name)(x)
    z, others = kernels.torch_blockwise_scale_weight_quant(x)
    close(y, z.t() if transposed else z, 2**-3)
    close(scales, others.t() if transposed else others, 1e-6)


@pytest.mark.parametrize("columns", [1, 128])
@E4M3
def test_torchao_more_blockwise_products(columns):
    from torchao.prototype.blockwise_fp8_training import kernels

    a, b = numbers(128, 256, dtype=torch.bfloat16), numbers(256, 128, dtype=torch.bfloat16)
    qa, sa = kernels.triton_fp8_blockwise_act_quant_lhs(a)
    quantize = (
        kernels.triton_fp8_blockwise_act_quant_rhs if columns == 1 else kernels.triton_fp8_blockwise_weight_quant_rhs
    )
    qb, sb = quantize(b)
    found = getattr(kernels, f"triton_fp8_gemm_1x128_128x{columns}")(qa, qb, sa, sb)
    wide = (
        qa.float() * sa.repeat_interleave(128, 1),
        qb.float() * sb.repeat_interleave(128, 0).repeat_interleave(columns, 1),
    )
    close(found, wide[0] @ wide[1], 1e-2)


GROUPS = torch.tensor([32, 48, 112], dtype=torch.int32)


@pytest.mark.parametrize("powers", [False, True])
@E4M3
def test_torchao_more_scales_of_groups(powers):
    """Columns of groups: 0.18's function for rows stores at row + column, as if both strides were 1."""
    from torchao.prototype.moe_training.kernels.jagged_float8_scales import triton_fp8_per_group_colwise_scales
    from torchao.prototype.moe_training.utils import torch_to_float8_per_group_colwise

    x, given = numbers(112, 64, dtype=torch.bfloat16), {"round_scales_to_power_of_2": powers}
    found = triton_fp8_per_group_colwise_scales(x, GROUPS, **given)
    wanted = torch_to_float8_per_group_colwise(x, GROUPS, torch.float8_e4m3fn, **given)
    close(found[0], wanted[0], 2**-3)
    close(found[1], wanted[1], 1e-6)


@pytest.mark.parametrize(
    "name", ["triton_fp8_rowwise_3d_transpose_rhs", "triton_fp8_rowwise_3d_transpose_rhs_fused_reduction"]
)
@E4M3
def test_torchao_more_scales_of_experts(name):
    from torchao.prototype.moe_training import utils
    from torchao.prototype.moe_training.kernels import float8_rowwise

    x = numbers(2, 96, 64, dtype=torch.bfloat16).transpose(1, 2)  # column by column
    found = getattr(float8_rowwise, name)(x, output_dtype=torch.float8_e4m3fn, round_scales_to_power_of_2=True)
    wanted = utils.torch_to_3d_rowwise_float8_transpose_rhs(x, torch.float8_e4m3fn, round_scales_to_power_of_2=True)
    same(found[0], wanted[0])
    close(found[1].flatten(), wanted[1].flatten(), 0)


@pytest.mark.parametrize("kind", ["M", "K"])
def test_torchao_more_blocks_of_groups(kind):
    from torchao.prototype.moe_training.kernels.mxfp8 import quant

    if kind == "M":
        x, ends = torch.randint(0, 255, (256, 8), device="cuda", dtype=torch.uint8), torch.tensor([100, 256])
        wanted = quant.torch_to_blocked_2d_M_groups(x, ends.int(), 32)[0]
        found = quant.triton_mx_block_rearrange_2d_M_groups(x.view(torch.float8_e8m0fnu), ends.int())
    else:
        x, ends = torch.randint(0, 255, (130, 12), device="cuda", dtype=torch.uint8), torch.tensor([4, 12])
        wanted = quant.torch_to_blocked_2d_K_groups(x, ends.int(), 32)[0]
        found = quant.triton_mx_block_rearrange_2d_K_groups(x.view(torch.float8_e8m0fnu), ends.int())
    rows, columns = wanted.shape
    same(found.view(torch.uint8)[:rows, :columns], wanted)


def test_torchao_more_blocks_of_experts():
    from torchao.prototype.moe_training.kernels.mxfp8 import quant

    x = torch.randint(0, 255, (3, 130, 10), device="cuda", dtype=torch.uint8)
    found = quant.triton_mx_block_rearrange_per_group_3d(x.view(torch.float8_e8m0fnu))
    wanted = quant.torch_to_blocked_per_group_3d(x.view(torch.float8_e8m0fnu))
    same(found.view(torch.uint8).reshape(3, -1), wanted.view(torch.uint8).reshape(3, -1))


def test_torchao_more_permutations():
    from torchao.prototype.moe_training.ep.kernels import generate_permute_indices

    counts = torch.tensor([5, 0, 17, 3, 9, 1, 0, 30], device="cuda", dtype=torch.int32)
    found, wanted = (generate_permute_indices(counts, 4, 2, 256, 16, use_cpu=x) for x in (False, True))
    for x, y in zip(found, wanted, strict=True):
        assert (x == y).all()


@pytest.mark.parametrize("chunks", [None, 3])
@BOTH
@E4M3
def test_torchao_more_attention(chunks, dtype):
    from torchao.prototype.attention.quantization.triton_qkv_quantization import triton_fp8_sdpa_quantize

    q, k, v = (numbers(1, 2, 70, 64, dtype=dtype) for _ in range(3))
    *quantized, sq, sk, sv = triton_fp8_sdpa_quantize(q, k, v, num_chunks=chunks)
    for x, y, scale in zip((q, k, v), quantized, (sq, sk, sv), strict=True):
        assert (x.float() - y.float().reshape(x.shape) * scale.reshape(1, 2, 1, 1)).abs().max() < x.abs().max() / 16


@pytest.mark.parametrize("interleaved", [False, True])
@E4M3
def test_torchao_more_attention_with_angles(interleaved):
    from torchao.prototype.attention.quantization.triton_rope_qkv_quantization import triton_fp8_rope_sdpa_quantize

    q, k, v = (numbers(1, 40, 2, 64, dtype=torch.bfloat16) for _ in range(3))
    angles = numbers(40, 32)
    angles = angles.repeat_interleave(2, -1) if interleaved else torch.cat([angles, angles], -1)
    found, *_, scale, _, _ = triton_fp8_rope_sdpa_quantize(
        q, k, v, angles.cos(), angles.sin(), rope_interleaved=interleaved
    )
    x = q.float().transpose(1, 2)
    if interleaved:
        turned = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    else:
        turned = torch.cat([-x[..., 32:], x[..., :32]], -1)
    wanted = x * angles.cos() + turned * angles.sin()
    assert (wanted - found.float() * scale.reshape(1, 2, 1, 1)).abs().max() < wanted.abs().max() / 16


@pytest.mark.parametrize("scale", ["column", "one"])
def test_torchao_more_int8_products(scale):
    from torchao.prototype.quantized_training.int8_mm import scaled_int8_mm

    a, b = (torch.randint(-128, 128, s, dtype=torch.int8, device="cuda") for s in ((70, 96), (48, 96)))
    rows, columns = numbers(70, dtype=torch.bfloat16), numbers(48 if scale == "column" else 1, dtype=torch.bfloat16)
    wanted = (a.int() @ b.int().T).float() * rows.float()[:, None] * columns.float()
    found = scaled_int8_mm(a, b.T, rows, columns)
    assert (found.float() - wanted).abs().max() < wanted.abs().max() * 2**-7


# --- bitsandbytes ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [64, 128, 256])
@pytest.mark.parametrize("kind", ["nf4", "fp4"])
@BOTH
def test_bitsandbytes_more_4bit(kind, dtype, size):
    from bitsandbytes.backends.triton import ops
    from bitsandbytes.functional import get_4bit_type

    w, x = numbers(96, 320, dtype=dtype), numbers(3, 320, dtype=dtype)
    packed, maxima = ops.quantize_4bit(w, size, kind, torch.uint8)
    codes = torch.stack([packed >> 4, packed & 15], -1).flatten()[: w.numel()].long()
    levels = get_4bit_type(kind, device="cuda")
    whole = (levels[codes] * maxima.repeat_interleave(size)[: w.numel()]).reshape(w.shape)
    found = ops.dequantize_4bit(packed, maxima, size, kind, w.shape, dtype)
    close(found, whole, HALVES[dtype])
    nearest = (w.float().flatten()[:, None] / maxima.repeat_interleave(size)[: w.numel(), None] - levels).abs().amin(-1)
    chosen = (w.float().flatten() / maxima.repeat_interleave(size)[: w.numel()] - levels[codes]).abs()
    assert (chosen - nearest).max() < 1e-2
    close(ops.gemv_4bit(x, packed, w.shape, maxima, levels, size), F.linear(x, found), 0)


@pytest.mark.parametrize("name", ["adam", "momentum", "rmsprop", "lion", "adagrad", "ademamix"])
@pytest.mark.parametrize("bits", [8, 32])
def test_bitsandbytes_more_optimizers(name, bits):
    from bitsandbytes.backends.triton import kernels_optim
    from bitsandbytes.functional import create_dynamic_map, quantize_blockwise

    n, two = 1100, name in ("adam", "ademamix")
    p, g = numbers(n), numbers(n)
    rates = (0.9, 0.99, 0.999, 5.0, 1e-8)
    if bits == 32:
        if name == "ademamix":
            states = numbers(2, n), numbers(n).abs()
        else:
            states = numbers(n).abs(), numbers(n).abs() if two else None
        start = p.clone()
        kernels_optim.optimizer_update_32bit_impl(name, g, p, *states, None, 0.0, 0.0, *rates, 0.01, 3, 0.01)
        assert torch.isfinite(p).all()
        assert (p != start).all()
        return
    if name == "ademamix":
        pytest.skip("two first moments in one tensor of bytes: its own reference differs in its interface")
    first, second = create_dynamic_map(signed=True).to("cuda"), create_dynamic_map(signed=False).to("cuda")
    found, wanted = p.clone(), p.clone()
    x, y = numbers(n), numbers(n).abs()
    x = x.abs() if name in ("rmsprop", "adagrad") else x  # squares
    (one, of_one), (other, of_other) = (
        quantize_blockwise(x, first, blocksize=256),
        quantize_blockwise(y, second, blocksize=256),
    )
    given = {"optimizer_name": name, "g": g, "step": 3, "lr": 0.01, "weight_decay": 0.01, "gnorm_scale": 1.0}
    given |= dict(zip(("beta1", "beta2", "beta3", "alpha", "eps"), rates, strict=True))
    given |= {"qmap1": first, "qmap2": second if two else None, "skip_zeros": False}
    for run, q in (("impl", found), ("pytorch", wanted)):
        own = {"p": q, "state1": one.clone(), "absmax1": of_one.absmax.clone()}
        own |= {"state2": other.clone() if two else None, "absmax2": of_other.absmax.clone() if two else None}
        getattr(kernels_optim, f"optimizer_update_8bit_blockwise_{run}")(**given, **own)
    close(found, wanted, 1e-4)


# --- gemlite ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("bits", "rows", "group"), [(1, 1, 128), (2, 1, 64), (2, 20, 64), (4, 3, 32), (4, 70, 128), (8, 33, 512)]
)
@pytest.mark.parametrize("kind", ["FP16", "BF16"])
def test_gemlite_more(bits, rows, group, kind):
    from gemlite import DType, GemLiteLinearTriton

    n, k = 128, 512
    dtype = {"FP16": torch.float16, "BF16": torch.bfloat16}[kind]
    kinds = {"input_dtype": getattr(DType, kind), "output_dtype": getattr(DType, kind)}
    layer = GemLiteLinearTriton(bits, group_size=group, in_features=k, out_features=n, **kinds)
    weights = torch.randint(0, 2**bits, (n, k), dtype=torch.uint8, device="cuda")
    scales = numbers(n, k // group, dtype=dtype) / 8
    zeros = torch.randint(0, 2**bits, (n, k // group), device="cuda").to(dtype)
    layer.pack(weights, scales, zeros)
    x = numbers(rows, k, dtype=dtype) / 8
    spread = [y.float().repeat_interleave(group, -1) for y in (zeros, scales)]
    wanted = x.float() @ ((weights.float() - spread[0]) * spread[1]).T
    assert (layer(x).float() - wanted).abs().max() < wanted.abs().max() * (2**-6 if kind == "FP16" else 2**-5)


@pytest.mark.parametrize("rows", [1, 40])
def test_gemlite_more_int8_activations(rows):
    from gemlite.helper import A8W8_int8_dynamic

    linear = torch.nn.Linear(256, 96, bias=False, dtype=torch.float16, device="cuda")
    x = numbers(rows, 256, dtype=torch.float16) / 4
    wanted = linear(x)
    found = A8W8_int8_dynamic(device="cuda").from_linear(linear, del_orig=False)(x)
    assert (found - wanted).abs().max() < wanted.abs().max() / 16


# --- unsloth ---------------------------------------------------------------------------------------------------------
@BOTH
@pytest.mark.parametrize("gemma", [False, True])
def test_unsloth_more_rms_norm(dtype, gemma):
    from unsloth.kernels import fast_rms_layernorm

    norm, x = torch.nn.RMSNorm(1000, eps=1e-6).cuda().to(dtype), numbers(2, 21, 1000, dtype=dtype, grad=True)
    norm.variance_epsilon, norm.weight = norm.eps, torch.nn.Parameter(numbers(1000, dtype=dtype))
    wide = x.detach().float().requires_grad_()
    weight = norm.weight.float() + 1 if gemma else norm.weight.float()
    y, wanted, start = (
        fast_rms_layernorm(norm, x, gemma=gemma),
        F.rms_norm(wide, (1000,), weight, norm.eps),
        numbers(2, 21, 1000),
    )
    close(y, wanted, 8 * HALVES[dtype])
    close(torch.autograd.grad(y, x, start.to(dtype))[0], torch.autograd.grad(wanted, wide, start)[0], 8 * HALVES[dtype])


@pytest.mark.parametrize("softcap", [0, 30])
@pytest.mark.parametrize("scaling", [0, 0.5])
def test_unsloth_more_cross_entropy(softcap, scaling):
    x, target = numbers(2, 5, 1030, grad=True), torch.randint(0, 1030, (2, 5), device="cuda")
    target[1, 1] = -100
    logits = x * scaling if scaling else x
    logits = softcap * torch.tanh(logits / softcap) if softcap else logits
    cross_entropy_of_unsloth(x, target, logits, logit_softcapping=softcap, logit_scaling=scaling)


def test_unsloth_more_cross_entropy_of_a_large_vocabulary():
    """More than 65,536 classes are done in chunks."""
    x, target = numbers(1, 2, 66000, grad=True), torch.randint(0, 66000, (1, 2), device="cuda")
    cross_entropy_of_unsloth(x, target, x)


@BOTH
def test_unsloth_more_swiglu(dtype):
    from unsloth.kernels import swiglu_DWf_DW_dfg_kernel, swiglu_fg_kernel

    e, g, dw = (numbers(7, 1030, dtype=dtype) for _ in range(3))
    wide = [x.float().requires_grad_() for x in (e, g)]
    wanted = F.silu(wide[0]) * wide[1]
    de, dg = torch.autograd.grad(wanted, wide, dw.float())
    close(swiglu_fg_kernel(e[None], g[None])[0], wanted, 8 * HALVES[dtype])
    for x, y in zip(swiglu_DWf_DW_dfg_kernel(dw.clone(), e.clone(), g.clone()), (wanted, dg, de), strict=True):
        close(x, y, 8 * HALVES[dtype])


@BOTH
@E4M3
def test_unsloth_more_fp8(dtype):
    from unsloth.kernels import fp8

    x, w = numbers(20, 256, dtype=dtype), numbers(128, 256)
    qx, sx = fp8.act_quant(x)
    blocks = w.reshape(1, 128, 2, 128).abs().amax((1, 3)) / 448
    qw = (w / blocks.repeat_interleave(128, 0).repeat_interleave(128, 1)).to(torch.float8_e4m3fn)
    whole = fp8.weight_dequant(qw, blocks, dtype)
    close(whole, w, 2**-3)
    wide = qx.float() * sx.repeat_interleave(128, 1)
    close(wide, x, 2**-3)
    found = fp8.w8a8_block_fp8_matmul_triton(qx, qw, sx, blocks, [128, 128], dtype)
    exact = wide @ (qw.float() * blocks.repeat_interleave(128, 0).repeat_interleave(128, 1)).T
    assert (found.float() - exact).abs().max() < exact.abs().max() * 2**-7


@E4M3
def test_unsloth_more_nvfp4():
    from unsloth.kernels import nvfp4

    packed = torch.randint(0, 256, (48, 32), device="cuda", dtype=torch.uint8)
    scale = (numbers(48, 4).abs() + 0.1).to(torch.float8_e4m3fn)
    found = nvfp4.nvfp4_dequantize(packed, scale, torch.tensor([3.0], device="cuda"))
    close(found, nvfp4._nvfp4_dequantize_torch(packed, scale, torch.tensor([3.0]), torch.bfloat16), 2**-7)


@pytest.mark.parametrize("transpose", [False, True])
def test_unsloth_more_mxfp4(transpose):
    from unsloth_zoo import mxfp4_dequant

    blocks = torch.randint(0, 256, (2, 64, 4, 16), device="cuda", dtype=torch.uint8)
    scales = torch.randint(110, 140, (2, 64, 4), device="cuda", dtype=torch.uint8)
    same(*(getattr(mxfp4_dequant, f"mxfp4_dequantize{x}")(blocks, scales, transpose=transpose) for x in ("", "_torch")))


@pytest.mark.parametrize("backward", [False, True])
def test_unsloth_more_grouped_products(backward):
    from unsloth.kernels.moe.grouped_gemm.interface import grouped_gemm

    experts, top, tokens, k, n = 3, 1, 40, 64, 128
    x, w = (
        numbers(tokens * top, k, dtype=torch.bfloat16, grad=True),
        numbers(experts, n, k, dtype=torch.bfloat16, grad=True),
    )
    sizes = torch.tensor([13, 0, 27], device="cuda", dtype=torch.int32)
    found = grouped_gemm(x, w, sizes, top, autotune=True)
    wide = [y.detach().float().requires_grad_() for y in (x, w)]
    wanted = torch.cat([p @ wide[1][e].T for e, p in enumerate(wide[0].split(sizes.tolist()))])
    close(found, wanted, 2**-4)
    if backward:
        start = numbers(tokens, n, dtype=torch.bfloat16)
        ones, twos = torch.autograd.grad(found, (x, w), start), torch.autograd.grad(wanted, wide, start.float())
        for y, z in zip(ones, twos, strict=True):
            close(y, z, 2**-3)


@BOTH
def test_unsloth_more_attention_of_large_heads(dtype):
    from unsloth.kernels.large_head_attention import large_head_attention

    q, k, v = (
        numbers(1, 2, 50, 512, dtype=dtype),
        numbers(1, 1, 50, 512, dtype=dtype),
        numbers(1, 1, 50, 512, dtype=dtype),
    )
    places = torch.arange(50, device="cuda", dtype=torch.int32)[None]
    found = large_head_attention(q, k, v, torch.zeros_like(places), places)
    wide = [x.float() for x in (q, k.expand(1, 2, 50, 512), v.expand(1, 2, 50, 512))]
    wanted = F.scaled_dot_product_attention(*wide, is_causal=True).transpose(1, 2)
    close(found, wanted, 8 * HALVES[dtype])
