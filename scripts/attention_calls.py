"""As library_calls.py: further operators of flash-linear-attention, each against the library's own reference."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  its usual name
from library_calls import close, numbers, seeded  # noqa: F401  a fixture

TIME, HEADS, SIZE = 70, 2, 32  # tokens fill no chunk


def operands(name):
    """q, k and v by token, head and channel; of delta rules keys of length 1, and bfloat16, for they refuse float32."""
    q, k, v = (numbers(1, TIME, HEADS, SIZE) for _ in range(3))
    if "delta" not in name and name != "kda":
        return q, k, v
    return [x.bfloat16() for x in (F.normalize(q, dim=-1), F.normalize(k, dim=-1), v)]


def by_head(call):
    """A reference that has heads before tokens."""
    return lambda *x, **options: call(*(y.transpose(1, 2) for y in x), **options).transpose(1, 2)


def gates(*shape):
    return F.logsigmoid(numbers(1, TIME, HEADS, *shape))


def strengths(like):
    return numbers(1, TIME, HEADS).sigmoid().to(like.dtype)


def gla(q, k, v):
    from fla.ops.gla import chunk_gla, fused_recurrent_gla
    from fla.ops.gla.naive import naive_recurrent_gla

    g = gates(SIZE)
    wanted = naive_recurrent_gla(q, k, v, g)[0]
    return [(chunk_gla(q, k, v, g)[0], wanted), (fused_recurrent_gla(q, k, v, g)[0], wanted)]


def retention(q, k, v):
    from fla.ops.retention import chunk_retention, parallel_retention
    from fla.ops.retention.naive import naive_retention

    wanted = by_head(naive_retention)(q, k, v)
    return [(chunk_retention(q, k, v)[0], wanted), (parallel_retention(q, k, v)[0], wanted)]


def delta_rule(q, k, v):
    from fla.ops.delta_rule import chunk_delta_rule, fused_recurrent_delta_rule
    from fla.ops.delta_rule.naive import delta_rule_recurrence

    beta = strengths(q)
    wanted = delta_rule_recurrence(*(x.transpose(1, 2) for x in (q, k, v, beta)))[0].transpose(1, 2)
    return [(f(q, k, v, beta)[0], wanted) for f in (chunk_delta_rule, fused_recurrent_delta_rule)]


def gated_delta_rule(q, k, v):
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule, fused_recurrent_gated_delta_rule
    from fla.ops.gated_delta_rule.naive import naive_recurrent_gated_delta_rule

    beta, g = strengths(q), gates()
    wanted = naive_recurrent_gated_delta_rule(q, k, v, beta, g)[0]
    return [(f(q, k, v, g, beta)[0], wanted) for f in (chunk_gated_delta_rule, fused_recurrent_gated_delta_rule)]


def kda(q, k, v):
    from fla.ops.kda import chunk_kda, fused_recurrent_kda
    from fla.ops.kda.naive import naive_recurrent_kda

    beta, g = strengths(q), gates(SIZE)
    wanted = naive_recurrent_kda(q, k, v, g, beta)[0]
    return [(f(q, k, v, g, beta)[0], wanted) for f in (chunk_kda, fused_recurrent_kda)]


def linear_attn(q, k, v):
    from fla.ops.linear_attn import chunk_linear_attn, fused_recurrent_linear_attn
    from fla.ops.linear_attn.naive import naive_recurrent_linear_attn

    wanted = naive_recurrent_linear_attn(q, k, v)[0]
    return [(f(q, k, v, normalize=False)[0], wanted) for f in (chunk_linear_attn, fused_recurrent_linear_attn)]


def attn(q, k, v):
    from fla.ops.attn import parallel_attn

    wanted = by_head(F.scaled_dot_product_attention)(q, k, v, is_causal=True)
    return [(parallel_attn(q, k, v), wanted)]


def forgetting_attn(q, k, v):
    from fla.ops.forgetting_attn import parallel_forgetting_attn
    from fla.ops.forgetting_attn.naive import naive_forgetting_attn

    g = gates()
    return [(parallel_forgetting_attn(q, k, v, g), naive_forgetting_attn(q, k, v, g))]


def hgrn(q, k, v):
    from fla.ops.hgrn import chunk_hgrn, fused_recurrent_hgrn
    from fla.ops.hgrn.naive import naive_recurrent_hgrn

    x, g = q.flatten(2), F.logsigmoid(k.flatten(2))
    wanted = naive_recurrent_hgrn(x, g)[0]
    return [(f(x, g)[0], wanted) for f in (chunk_hgrn, fused_recurrent_hgrn)]


def gsa(q, k, v):
    from fla.ops.gsa import fused_recurrent_gsa
    from fla.ops.gsa.naive import naive_recurrent_gsa

    s, g = numbers(1, TIME, HEADS, SIZE), gates(SIZE)
    return [(fused_recurrent_gsa(q, k, v, s, g)[0], naive_recurrent_gsa(q, k, v, s, g)[0])]


def based(q, k, v):
    from fla.ops.based import parallel_based
    from fla.ops.based.naive import naive_parallel_based

    q, k = q[..., :16].contiguous(), k[..., :16].contiguous()
    return [(parallel_based(q, k, v), naive_parallel_based(q, k, v))]


def rebased(q, k, v):
    from fla.ops.rebased import parallel_rebased
    from fla.ops.rebased.naive import naive_parallel_rebased

    return [(parallel_rebased(q, k, v), naive_parallel_rebased(q, k, v))]


def short_convolution(q, k, v):
    from fla.modules.conv import ShortConvolution

    layer, x = ShortConvolution(HEADS * SIZE, 4, activation="silu").cuda(), q.flatten(2)
    wanted = F.conv1d(F.pad(x.transpose(1, 2), (3, 0)), layer.weight, layer.bias, groups=HEADS * SIZE)
    return [(layer(x)[0], F.silu(wanted).transpose(1, 2))]


OPERATORS = {f.__name__: f for f in (
    gla, retention, delta_rule, gated_delta_rule, kda, linear_attn, attn, forgetting_attn, hgrn, gsa, based, rebased,
    short_convolution,
)}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_fla_operator(name):
    for found, wanted in OPERATORS[name](*operands(name)):
        close(found, wanted, 4e-2)  # products in tf32


@pytest.mark.parametrize("name", ["gla", "gated_delta_rule", "attn"])
def test_fla_gradients(name):
    inputs = [x.requires_grad_() for x in operands(name)]
    found, wanted = OPERATORS[name](*inputs)[0]
    start = numbers(*wanted.shape)
    for x, y in zip(torch.autograd.grad(found, inputs, start), torch.autograd.grad(wanted, inputs, start), strict=True):
        close(x, y, 6e-2)
