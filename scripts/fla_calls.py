"""Calls of flash-linear-attention's operators, forward and backward, each compared with its own formula in PyTorch.

For `scripts/libraries.py`, which is the GPU.  A row says which function runs, which reference of the library's
computes the same token by token or as whole matrices, and which tensors both take.  Each runs with a length that fills
no block, and, if it can, with several sequences in one.
"""

from collections.abc import Mapping
from importlib import import_module
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  its usual name

LENGTH, HEADS, KEY, VALUE = 75, 2, 32, 48
STARTS = 0, 15, 81, 100  # of the sequences in one


class Row(NamedTuple):
    """An operator: its function, its reference and their tensors."""

    function: str
    reference: str
    tensors: str  # of both; "g=gk": what the functions call g is a tensor gk
    named: str = ""  # what the reference alone calls otherwise: "gk=g"
    heads_first: bool = False  # the reference
    options: Mapping = MappingProxyType({})  # of both
    own: Mapping = MappingProxyType({})  # of the function
    sequences: bool = True  # several in one
    value: int = VALUE
    length: int = LENGTH
    query_heads: int = HEADS
    key: int = KEY
    dtype: torch.dtype = torch.float16
    gradient: bool = True


GLA, SIMPLE, LINEAR = (
    "gla.naive:naive_recurrent_gla",
    "simple_gla.naive:naive_recurrent_simple_gla",
    "linear_attn.naive:naive_recurrent_linear_attn",
)
DELTA, GATED = "delta_rule.naive:delta_rule_recurrence", "gated_delta_rule.naive:naive_recurrent_gated_delta_rule"
SQUARE = {"value": KEY}
ROWS = {
    "gla": Row("gla:chunk_gla", GLA, "q k v g=gk", "g=gk"),
    "gla_fused": Row("gla:fused_recurrent_gla", GLA, "q k v gk"),
    "retention": Row("retention:chunk_retention", "retention.naive:naive_retention", "q k v", heads_first=True),
    "retention_parallel": Row(
        "retention:parallel_retention", "retention.naive:naive_retention", "q k v", heads_first=True
    ),
    "retention_fused": Row(
        "retention:fused_recurrent_retention", "retention.naive:naive_retention", "q k v", heads_first=True
    ),
    "retention_fused_chunk": Row(
        "retention:fused_chunk_retention", "retention.naive:naive_retention", "q k v", heads_first=True
    ),
    "simple_gla": Row("simple_gla:chunk_simple_gla", SIMPLE, "q k v g"),
    "simple_gla_parallel": Row("simple_gla:parallel_simple_gla", SIMPLE, "q k v g"),
    "simple_gla_fused_chunk": Row("simple_gla:fused_chunk_simple_gla", SIMPLE, "q k v g"),
    "simple_gla_fused": Row("simple_gla:fused_recurrent_simple_gla", SIMPLE, "q k v g"),
    "linear": Row("linear_attn:chunk_linear_attn", LINEAR, "q k v", options={"normalize": False}),
    "linear_fused_chunk": Row("linear_attn:fused_chunk_linear_attn", LINEAR, "q k v", options={"normalize": False}),
    "linear_fused": Row("linear_attn:fused_recurrent_linear_attn", LINEAR, "q k v", options={"normalize": False}),
    "delta": Row("delta_rule:chunk_delta_rule", DELTA, "q k=unit v beta", heads_first=True),
    "delta_fused": Row("delta_rule:fused_recurrent_delta_rule", DELTA, "q k=unit v beta", heads_first=True),
    "gated_delta": Row("gated_delta_rule:chunk_gated_delta_rule", GATED, "q k=unit v g beta"),
    "gated_delta_fused": Row(
        "gated_delta_rule:fused_recurrent_gated_delta_rule", GATED, "q k=unit v g beta", gradient=False
    ),
    "kda": Row("kda:chunk_kda", "kda.naive:naive_recurrent_kda", "q k=unit v g=gk beta"),
    "kda_fused": Row(
        "kda:fused_recurrent_kda", "kda.naive:naive_recurrent_kda", "q k=unit v g=gk beta", gradient=False
    ),
    "gdn2": Row("gdn2:chunk_gdn2", "gdn2.naive:naive_recurrent_gdn2", "q k=unit v g=gk b=kgate w=vgate"),
    "comba": Row(  # its reference token by token computes something else
        "comba:chunk_comba",
        "comba.naive:naive_chunk_comba",
        "q k=unit v p=other_unit g beta",
        length=64,
        sequences=False,
    ),
    "dplr": Row(
        "generalized_delta_rule:chunk_dplr_delta_rule",
        "generalized_delta_rule.dplr.naive:dplr_recurrence",
        "q k v a=minus b=unit gk",
        "a=alpha b=beta",
        heads_first=True,
    ),
    "dplr_fused": Row(
        "generalized_delta_rule:fused_recurrent_dplr_delta_rule",
        "generalized_delta_rule.dplr.naive:dplr_recurrence",
        "q k v a=minus b=unit gk",
        "a=alpha b=beta",
        heads_first=True,
        gradient=False,
    ),
    "iplr": Row(
        "generalized_delta_rule:chunk_iplr_delta_rule",
        "generalized_delta_rule.iplr.naive:iplr_recurrence",
        "q k v a=minus b=unit",
        "a=alpha b=beta",
        heads_first=True,
        gradient=False,
    ),
    "iplr_fused": Row(
        "generalized_delta_rule:fused_recurrent_iplr_delta_rule",
        "generalized_delta_rule.iplr.naive:iplr_recurrence",
        "q k v a=minus b=unit",
        "a=alpha b=beta",
        heads_first=True,
    ),
    "rwkv6": Row(
        "rwkv6:chunk_rwkv6", "rwkv6.recurrent_naive:naive_recurrent_rwkv6", "r=q k v w=gk u", "r=q", heads_first=True
    ),
    "rwkv6_fused": Row(
        "rwkv6:fused_recurrent_rwkv6",
        "rwkv6.recurrent_naive:naive_recurrent_rwkv6",
        "r=q k v w=gk u",
        "r=q",
        heads_first=True,
    ),
    "rwkv7": Row(
        "rwkv7:chunk_rwkv7",
        "generalized_delta_rule.dplr.naive:dplr_recurrence",
        "r=q w=gk k v a=minus b=unit",
        "r=q w=gk a=alpha b=beta",
        heads_first=True,
        own={"scale": KEY**-0.5},
    ),
    "hgrn": Row("hgrn:chunk_hgrn", "hgrn.naive:naive_recurrent_hgrn", "x g=gx", sequences=False),
    "hgrn_fused": Row("hgrn:fused_recurrent_hgrn", "hgrn.naive:naive_recurrent_hgrn", "x g=gx"),
    "gsa": Row("gsa:chunk_gsa", "gsa.naive:naive_recurrent_gsa", "q k v s g=gs"),
    "gsa_fused": Row("gsa:fused_recurrent_gsa", "gsa.naive:naive_recurrent_gsa", "q k v s g=gs"),
    "abc": Row("abc:chunk_abc", "abc.naive:naive_recurrent_abc", "q k v s", sequences=False, heads_first=True),
    "based": Row(
        "based:parallel_based", "based.naive:naive_parallel_based", "q k v", heads_first=True, sequences=False, key=16
    ),
    "rebased": Row(
        "rebased:parallel_rebased",
        "rebased.naive:naive_parallel_rebased",
        "q k v",
        heads_first=True,
        sequences=False,
        key=16,
        own={"use_normalize": True},
    ),
    "attn": Row("attn:parallel_attn", "attn.naive:naive_parallel_attn", "q k v", query_heads=4, **SQUARE),
    "attn_window": Row(
        "attn:parallel_attn", "attn.naive:naive_parallel_attn", "q k v", options={"window_size": 20}, **SQUARE
    ),
    "forgetting": Row(
        "forgetting_attn:parallel_forgetting_attn",
        "forgetting_attn.naive:naive_forgetting_attn",
        "q k v g=gq",
        query_heads=4,
        **SQUARE,
    ),
    "stickbreaking": Row(
        "stickbreaking_attn:parallel_stickbreaking_attn",
        "stickbreaking_attn.naive:naive_stickbreaking_attn",
        "q k v",
        **SQUARE,
    ),
    "deltaformer": Row(
        "deltaformer:deltaformer_attn",
        "deltaformer.naive:naive_deltaformer_attn",
        "q k v beta",
        sequences=False,
        dtype=torch.bfloat16,
        **SQUARE,
    ),
    "path": Row(
        "path_attn:parallel_path_attn",
        "path_attn.naive:naive_path_attn",
        "q k v w=wide_unit beta g=gq",
        query_heads=4,
        options={"scale": KEY**-0.5},
        **SQUARE,
    ),
    "parallax": Row("parallax.parallel:parallel_parallax", "parallax.naive:naive_parallax", "q r k v", **SQUARE),
    "wall": Row(
        "wall_attn:parallel_wall_attn",
        "wall_attn.naive:naive_wall_attn",
        "q k v g=gk",
        options={"scale": KEY**-0.5},
        **SQUARE,
    ),
    "log_linear": Row(
        "log_linear_attn:chunk_log_linear_attn",
        "log_linear_attn.naive:naive_log_linear_attn",
        "q k v g level_scales=levels",
        options={"scale": 1.0},
        length=128,
        sequences=False,
        key=64,
        value=64,
    ),
    "mesa": Row(
        "mesa_net:chunk_mesa_net",
        "mesa_net.naive:naive_mesa_net_exact",
        "q=unit k=other_unit v g beta lamb",
        sequences=False,
        **SQUARE,
    ),
    "ttt": Row(
        "ttt:chunk_ttt_linear",
        "ttt.naive:chunk_ttt_linear_ref",
        "q k=unit v w=small b=other_small eta",
        options={"chunk_size": 16},
        sequences=False,
        length=64,
        **SQUARE,
    ),
    "momentum": Row(
        "momentum_delta_rule.chunk:chunk_momentum_delta_rule",
        "momentum_delta_rule.naive:recurrent_momentum_delta_rule_ref",
        "q k=unit v log_alpha=g log_mu=other_g p=other_unit beta eta=other_beta",
        own={"use_qk_l2norm_in_kernel": False, "use_p_times_alpha": False},
        sequences=False,
        **SQUARE,
    ),
    "precond_kda": Row(
        "precond_kda:chunk_precond_kda",
        "precond_kda.naive:naive_recurrent_precond_kda",
        "q k=unit v g=gk g_atk=other_gk beta_atk=other_beta beta",
        sequences=False,
        **SQUARE,
    ),
    "precond_gated": Row(
        "precond_gated_delta_rule:chunk_precond_gated_delta_rule",
        "precond_gated_delta_rule.naive:naive_recurrent_precond_gated_delta_rule",
        "q k=unit v g_atk=other_g g beta_atk=other_beta beta",
        own={"use_qk_l2norm_in_kernel": False},
        sequences=False,
        **SQUARE,
    ),
}


def unit(x):
    return F.normalize(x, dim=-1)


def gate(x):
    return F.logsigmoid(x).clamp_min(-3)


# What a tensor of a kind is made of: the letters of its shape (b, t, h heads, q heads of queries, k, v, s slots, x
# columns, l levels), what is done with normal numbers of that shape, and whether the result is in 16 bits.
KINDS = {
    "q": ("btqk", torch.Tensor.clone, True),
    "r": ("btqk", torch.Tensor.clone, True),
    "k": ("bthk", torch.Tensor.clone, True),
    "v": ("bthv", torch.Tensor.clone, True),
    "unit": ("bthk", unit, True),
    "other_unit": ("bthk", unit, True),
    "wide_unit": ("bthk", unit, False),
    "minus": ("bthk", lambda x: -unit(x), True),
    "g": ("bth", F.logsigmoid, False),
    "other_g": ("bth", F.logsigmoid, False),
    "gq": ("btq", F.logsigmoid, False),
    "gk": ("bthk", gate, False),
    "other_gk": ("bthk", gate, False),
    "beta": ("bth", torch.sigmoid, False),
    "other_beta": ("bth", torch.sigmoid, False),
    "kgate": ("bthk", torch.sigmoid, True),
    "vgate": ("bthv", torch.sigmoid, True),
    "u": ("hk", torch.Tensor.clone, False),
    "x": ("btx", torch.Tensor.clone, False),
    "gx": ("btx", F.logsigmoid, False),
    "s": ("bths", torch.Tensor.clone, True),
    "gs": ("bths", F.logsigmoid, False),
    "levels": ("bthl", torch.sigmoid, True),
    "lamb": ("hk", lambda x: x.sigmoid() + 0.5, False),
    "small": ("hv", lambda x: x / 10, False),
    "other_small": ("hv", lambda x: x / 10, False),
    "eta": ("bth1", lambda x: x.sigmoid() / 10, False),
}


def tensor(kind, row, length):
    """A tensor of a kind."""
    letters, made, narrow = KINDS[kind]
    sizes = {"b": 1, "t": length, "h": HEADS, "q": row.query_heads, "k": row.key, "v": row.value}
    sizes |= {"s": 16, "x": 64, "l": 8, "1": 1}
    found = made(torch.randn(*(sizes[x] for x in letters), device="cuda"))
    return found.to(row.dtype) if narrow else found


def function(name):
    module, _, own = name.partition(":")
    return getattr(import_module(f"fla.ops.{module}"), own)


def first(found):
    return found[0] if isinstance(found, tuple) else found


def run_reference(row, tensors, bounds):
    """What the reference gives, in float32, sequence by sequence."""
    other = dict(x.split("=") for x in row.named.split())
    pieces = []
    for start, end in pairwise(bounds):
        given = {n: x[:, start:end] if x.ndim > 2 else x for n, x in tensors.items()}
        if row.heads_first:
            given = {n: x.transpose(1, 2) if x.ndim > 2 else x for n, x in given.items()}
        found = first(function(row.reference)(**{other.get(n, n): x for n, x in given.items()}, **row.options))
        pieces.append(found.transpose(1, 2) if row.heads_first else found)
    return torch.cat(pieces, 1)


def ratio(found, wanted):
    """The root of the mean square of the difference, relative to that of what is wanted."""
    assert torch.isfinite(found).all()
    return (
        (found.float() - wanted.float()).square().mean().sqrt() / (wanted.float().square().mean().sqrt() + 1e-8)
    ).item()


CASES = [(n, s) for n, row in ROWS.items() for s in (False, True) if row.sequences or not s]


@pytest.mark.parametrize(("name", "sequences"), CASES)
def test_fla_operator(name, sequences):
    torch.manual_seed(0)
    row = ROWS[name]
    bounds = STARTS if sequences else (0, row.length)
    kinds = dict(x.split("=") if "=" in x else (x, x) for x in row.tensors.split())
    tensors = {n: tensor(kind, row, bounds[-1]) for n, kind in kinds.items()}
    found, wanted = (
        {n: x.detach().clone().to(t or x.dtype).requires_grad_() for n, x in tensors.items()}
        for t in (None, torch.float32)
    )
    several = {"cu_seqlens": torch.tensor(bounds, dtype=torch.int32, device="cuda")} if sequences else {}
    one = first(function(row.function)(**found, **row.options, **row.own, **several))
    two = run_reference(row, wanted, bounds)
    assert ratio(one, two) < 0.01
    if row.gradient:
        start = torch.randn_like(two)
        ones = torch.autograd.grad(one, list(found.values()), start.to(one.dtype), allow_unused=True)
        twos = torch.autograd.grad(two, list(wanted.values()), start, allow_unused=True)
        errors = {
            n: round(ratio(x, y), 4)
            for n, x, y in zip(found, ones, twos, strict=True)
            if x is not None or y is not None
        }
        assert max(errors.values()) < 0.02, errors
