"""As library_calls.py, of smaller libraries, and of DeepSpeed's Triton kernels."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  its usual name
from library_calls import close, gradients_close, numbers, seeded  # noqa: F401  a fixture


# --- DeepSpeed -------------------------------------------------------------------------------------------------------
def test_deepspeed_cross_entropy():
    from deepspeed.runtime.chunked_cross_entropy import chunked_cross_entropy

    x, target = numbers(7, 90, grad=True), torch.randint(0, 90, (7,), device="cuda")
    target[2] = -100
    found, wanted = chunked_cross_entropy(x * 1, target, backend="triton"), F.cross_entropy(x, target)
    close(found, wanted, 1e-5)
    gradients_close(found, wanted, (x,), 1e-5)


@pytest.mark.parametrize("transposed", [False, True])
def test_deepspeed_grouped_products(transposed):
    from deepspeed.ops.triton_ops.group_gemm_triton import group_gemm_triton

    a = numbers(40, 64, dtype=torch.bfloat16, grad=True)
    b = numbers(3, *((48, 64) if transposed else (64, 48)), dtype=torch.bfloat16, grad=True)
    ends = torch.tensor([9, 9, 40], dtype=torch.int32)
    wide = b.transpose(1, 2) if transposed else b
    parts = a.float().tensor_split(ends[:-1].long())
    wanted = torch.cat([x @ y.float() for x, y in zip(parts, wide, strict=True)])
    found = group_gemm_triton(a, b, ends, transposed)
    close(found, wanted, 2e-2)
    gradients_close(found, wanted, (a, b), 4e-2)


def test_deepspeed_rms_norm():
    from deepspeed.ops.triton_ops.fused_rms_norm import fused_rms_norm

    x, weight = numbers(6, 96, dtype=torch.bfloat16, grad=True), numbers(96, dtype=torch.bfloat16, grad=True)
    wanted = F.rms_norm(x.float(), (96,), weight.float(), 1e-6)
    found = fused_rms_norm(x, weight, 1e-6)
    close(found, wanted, 2e-2)
    gradients_close(found, wanted, (x, weight), 4e-2)


def test_deepspeed_rotary():
    from deepspeed.ops.triton_ops.fused_rotary_pos_emb import fused_apply_rotary_pos_emb

    q, k = numbers(2, 4, 9, 32, dtype=torch.bfloat16, grad=True), numbers(2, 2, 9, 32, dtype=torch.bfloat16, grad=True)
    angles = numbers(2, 9, 16).repeat(1, 1, 2)
    cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
    for number, y in enumerate((q, k)):
        x = fused_apply_rotary_pos_emb(q, k, cos, sin)[number]
        turned = torch.cat([-y[..., 16:], y[..., :16]], -1)
        wanted = y * cos[:, None] + turned * sin[:, None]
        assert torch.equal(x, wanted)
        gradients_close(x, wanted, (y,), 1e-2)


@pytest.mark.parametrize("packed", [False, True])
def test_deepspeed_swiglu(packed):
    from deepspeed.ops.triton_ops import swiglu_triton

    x = numbers(6, 160, dtype=torch.bfloat16, grad=True)
    gate, up = x.chunk(2, -1)
    found = swiglu_triton.swiglu_packed(x) if packed else swiglu_triton.swiglu(gate, up)
    wanted = F.silu(gate.float()) * up.float()
    close(found, wanted, 2e-2)
    gradients_close(found, wanted, (x,), 2e-2)


def test_deepspeed_weighted_restore():
    from deepspeed.ops.triton_ops.autoep_fused_token_ops import fused_weighted_restore

    rows, order = numbers(20, 48, dtype=torch.bfloat16), torch.randperm(20)
    scores = numbers(10, 2).softmax(-1)
    wanted = (rows[order.argsort()].float().view(10, 2, 48) * scores[..., None]).sum(1)
    close(fused_weighted_restore(rows, scores, order, 2, (2, 5, 48)).view(10, 48), wanted, 2e-2)


# --- mlstm-kernels ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["limit_chunk", "xl_chunk", "xl_chunk_siging"])
def test_mlstm_chunks(name):
    from mlstm_kernels.torch import get_mlstm_kernel

    shapes = (1, 2, 64, 32), (1, 2, 64, 32), (1, 2, 64, 32), (1, 2, 64), (1, 2, 64)
    inputs = q, k, v, i, f = [numbers(*s, grad=True) for s in shapes]
    siging = name.endswith("siging")
    found = get_mlstm_kernel(f"chunkwise--triton_{name}")(q, k, v, i, f + 3, chunk_size=32)
    native = "native_siging_custbw" if siging else "native_custbw"
    wanted = get_mlstm_kernel(f"parallel--{native}")(q, k, v, i, f + 3)
    close(found, wanted, 2e-2)
    gradients_close(found, wanted, inputs, 8e-2)


def test_mlstm_parallel():
    from mlstm_kernels.torch import get_mlstm_kernel

    shapes = (1, 2, 64, 32), (1, 2, 64, 32), (1, 2, 64, 32), (1, 2, 64), (1, 2, 64)
    inputs = q, k, v, i, f = [numbers(*s, grad=True) for s in shapes]
    found, wanted = (
        get_mlstm_kernel(f"parallel--{x}")(q, k, v, i, f + 3) for x in ("triton_limit_headdim", "native_custbw")
    )
    close(found, wanted, 2e-2)
    gradients_close(found, wanted, inputs, 8e-2)


# --- moe-ops ---------------------------------------------------------------------------------------------------------
def test_moe_ops_routing():
    import moe_ops

    logits = numbers(12, 8, grad=True)
    weights, chosen = moe_ops.fused_topk_softmax(logits, 2)
    best, places = logits.topk(2)
    assert (chosen == places).all()
    close(weights, best.softmax(-1), 1e-5)
    x = numbers(12, 40, grad=True)
    rows, where, _ = moe_ops.permute(x, chosen, E=8)
    back = moe_ops.unpermute(rows, where, weights, 12, 2)
    close(back, x * weights.sum(-1, keepdim=True), 1e-4)
    gradients_close(back, x * best.softmax(-1).sum(-1, keepdim=True), (x,), 1e-4)


def test_moe_ops_grouped_products():
    import moe_ops

    a, b = numbers(40, 64, dtype=torch.bfloat16, grad=True), numbers(3, 48, 64, dtype=torch.bfloat16, grad=True)
    starts = torch.tensor([0, 9, 20, 40], dtype=torch.int32)
    parts = a.float().split((9, 11, 20))
    wanted = torch.cat([x @ y.float().T for x, y in zip(parts, b, strict=True)])
    found = moe_ops.grouped_gemm(a, b, starts)
    close(found, wanted, 2e-2)
    gradients_close(found, wanted, (a, b), 4e-2)


# --- triton-sigmoid, flash-kmeans ------------------------------------------------------------------------------------
@pytest.mark.parametrize("causal", [False, True])
def test_triton_sigmoid(causal):
    from triton_sigmoid import sigmoid_attention, sigmoid_attention_padded, sigmoid_attention_ref

    q, k, v = (numbers(2, 70, 2, 32, dtype=torch.float16, grad=True) for _ in range(3))
    found, wanted = sigmoid_attention(q, k, v, causal), sigmoid_attention_ref(q, k, v, causal=causal)
    close(found, wanted, 1e-2)
    gradients_close(found, wanted, (q, k, v), 2e-2)
    lengths = torch.tensor([70, 33], dtype=torch.int32)
    found = sigmoid_attention_padded(q, k, v, lengths, lengths, causal)
    wanted = sigmoid_attention_ref(q, k, v, lengths, lengths, causal=causal)
    close(found[0], wanted[0], 1e-2)
    close(found[1, :33], wanted[1, :33], 1e-2)


def test_flash_kmeans():
    from flash_kmeans import batch_kmeans_Euclid

    x = numbers(2, 200, 32)
    chosen, centres, _ = batch_kmeans_Euclid(x, 5, max_iters=3, init_centroids=x[:, :5].clone())
    wanted = x[:, :5].clone()
    for _ in range(3):
        before, nearest = wanted, torch.cdist(x, wanted).argmin(-1)
        parts = F.one_hot(nearest, 5).float().transpose(1, 2)
        wanted = parts @ x / parts.sum(-1, keepdim=True)
    assert (chosen == nearest).float().mean() > 0.98  # products in tf32
    assert min((centres - before).abs().max(), (centres - wanted).abs().max()) < 0.1


# --- native-sparse-attention, trinix, torchnorm ----------------------------------------------------------------------
def test_native_sparse_attention():
    from native_sparse_attention_pytorch.triton_native_sparse_attention import native_sparse_attend

    q, k, v = (numbers(1, 2, 64, 32, grad=True) for _ in range(3))
    blocks = torch.zeros(1, 2, 64, 1, dtype=torch.long)
    mask = torch.ones(1, 2, 64, 1, dtype=torch.bool)
    mask[:, :, :32] = False
    found = native_sparse_attend(q, k, v, 16, blocks, mask)
    at, to = torch.arange(64)[:, None], torch.arange(64)
    seen = (at >= to) & ((at // 16 == to // 16) | ((to < 16) & (at >= 32)))
    wanted = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    close(found, wanted, 2e-2)
    gradients_close(found, wanted, (q, k, v), 4e-2)


ACTIVATIONS = {
    "geglu_kernel.TritonGeGLUFunction": lambda a, b: a * F.gelu(b),
    "mish_kernel.TritonMishFunction": F.mish,
    "quickgelu_kernel.TritonQuickGELUFunction": lambda x: x * (1.702 * x).sigmoid(),
    "reglu_kernel.TritonReGLUFunction": lambda a, b: a * F.relu(b),
    "squared_relu_kernel.TritonSquaredReLUFunction": lambda x: F.relu(x).square(),
    "swigelu_kernel.TritonSwiGLUFunction": lambda a, b: a * F.silu(b),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_trinix(name):
    from importlib import import_module

    module, _, function = name.partition(".")
    x = numbers(5, 128, grad=True)
    inputs = x.chunk(2, -1) if "GLUF" in function else (x,)
    found, wanted = getattr(import_module(f"trinix.kernels.{module}"), function).apply(x), ACTIVATIONS[name](*inputs)
    close(found, wanted, 1e-3)
    gradients_close(found, wanted, (x,), 2e-3)


def test_torchnorm():
    import torchnorm

    x, y, weight = numbers(5, 96), numbers(5, 96), numbers(96)
    norm, added, layer = torchnorm.RMSNorm(96), torchnorm.FusedAddRMSNorm(96), torchnorm.LayerNorm(96)
    for module in (norm, added, layer):
        module.weight = torch.nn.Parameter(weight)
    close(norm(x), F.rms_norm(x, (96,), weight, 1e-6), 1e-5)
    close(added(x, y)[0], F.rms_norm(x + y, (96,), weight, 1e-6), 1e-5)
    close(layer(x), F.layer_norm(x, (96,), weight, layer.bias, layer.eps), 1e-5)
