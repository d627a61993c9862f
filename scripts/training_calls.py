"""As library_calls.py, of FlashAttention's and Mamba's Triton kernels."""

import sys
import types

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  its usual name
from library_calls import close, gradients_close, numbers, seeded  # noqa: F401  a fixture


# --- flash-attn ------------------------------------------------------------------------------------------------------
@pytest.fixture
def flash_attn(monkeypatch):
    """The package imports without its CUDA C++ if its kernels are to be the Triton ones."""
    monkeypatch.setenv("FLASH_ATTENTION_TRITON_AMD_ENABLE", "TRUE")


@pytest.mark.parametrize("interleaved", [False, True])
def test_flash_attn_rotary(flash_attn, interleaved):
    from flash_attn.layers.rotary import apply_rotary_emb, apply_rotary_emb_torch

    x, angles = numbers(2, 9, 3, 32, grad=True), numbers(12, 8)
    cos, sin = angles.cos(), angles.sin()
    found = apply_rotary_emb(x, cos, sin, interleaved=interleaved)
    wanted = apply_rotary_emb_torch(x, cos[:9], sin[:9], interleaved=interleaved)
    close(found, wanted, 1e-5)
    gradients_close(found, wanted, (x,), 1e-5)


@pytest.mark.parametrize("rms", [False, True])
def test_flash_attn_layer_norm(flash_attn, rms):
    from flash_attn.ops.triton.layer_norm import layer_norm_fn, layer_norm_ref, rms_norm_ref

    x, residual, weight, bias = (numbers(*s, grad=True) for s in ((5, 72), (5, 72), (72,), (72,)))
    found, kept = layer_norm_fn(x, weight, bias, residual, prenorm=True, is_rms_norm=rms)
    wanted, other = (rms_norm_ref if rms else layer_norm_ref)(x, weight, bias, residual, prenorm=True)
    close(kept, other, 1e-6)
    close(found, wanted, 1e-5)
    gradients_close(found, wanted, (x, residual, weight, bias), 1e-4)


def test_flash_attn_cross_entropy(flash_attn):
    from flash_attn.ops.triton.cross_entropy import cross_entropy_loss

    x, target = numbers(7, 90, grad=True), torch.randint(0, 90, (7,), device="cuda")
    target[2] = -100
    found, _ = cross_entropy_loss(x, target, label_smoothing=0.1)
    wanted = F.cross_entropy(x, target, label_smoothing=0.1, reduction="none")
    close(found, wanted, 1e-5)
    gradients_close(found, wanted, (x,), 1e-5)


# --- mamba-ssm -------------------------------------------------------------------------------------------------------
@pytest.fixture
def mamba(monkeypatch):
    """The package imports its CUDA C++ at once; its Triton kernels do not use it."""
    monkeypatch.setitem(sys.modules, "selective_scan_cuda", types.ModuleType("selective_scan_cuda"))


def test_mamba_layer_norm_gated(mamba):
    from mamba_ssm.ops.triton.layernorm_gated import rms_norm_ref, rmsnorm_fn

    x, z, weight = (numbers(*s, grad=True) for s in ((6, 64), (6, 64), (64,)))
    found = rmsnorm_fn(x, weight, None, z, group_size=32, norm_before_gate=False)
    wanted = rms_norm_ref(x, weight, None, z, group_size=32, norm_before_gate=False)
    close(found, wanted, 1e-5)
    gradients_close(found, wanted, (x, z, weight), 1e-4)


def test_mamba_swiglu(mamba):
    from mamba_ssm.ops.triton.k_activations import swiglu

    x = numbers(5, 96, grad=True)
    first, second = x.chunk(2, -1)
    wanted = F.silu(first) * second
    close(swiglu(x), wanted, 1e-5)
    gradients_close(swiglu(x), wanted, (x,), 1e-5)


def test_mamba_state_update(mamba):
    from mamba_ssm.ops.triton.selective_state_update import selective_state_update, selective_state_update_ref

    state, x, dt, z = numbers(2, 48, 16), numbers(2, 48), numbers(2, 48), numbers(2, 48)
    a, b, c, d, bias = -numbers(48, 16).exp(), numbers(2, 16), numbers(2, 16), numbers(48), numbers(48)
    other = state.clone()
    found = selective_state_update(state, x, dt, a, b, c, d, z, bias, dt_softplus=True)
    wanted = selective_state_update_ref(other, x, dt, a, b, c, d, z, bias, dt_softplus=True)
    close(state, other, 1e-4)
    close(found, wanted, 1e-4)


def scan_inputs():
    """Of a state space model: two chunks of 16, and 5 steps more that fill none."""
    x, dt = numbers(1, 37, 2, 32, grad=True), numbers(1, 37, 2, grad=True)
    a, d = (-numbers(2).exp()).requires_grad_(), numbers(2, grad=True)
    return x, dt, a, numbers(1, 37, 1, 16, grad=True), numbers(1, 37, 1, 16, grad=True), d


@pytest.mark.parametrize("backward", [False, True])
def test_mamba_chunk_scan(mamba, backward):
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

    inputs = x, dt, a, b, c, d = scan_inputs()
    found = mamba_chunk_scan_combined(x, dt, a, b, c, 16, d, dt_softplus=True)
    wanted = by_steps(x, F.softplus(dt), a, b, c, d)
    close(found, wanted, 2e-2)
    if backward:
        gradients_close(found, wanted, inputs, 4e-2)


def by_steps(x, dt, a, b, c, d):
    """The recurrence of a state space model, a step at a time."""
    state, outputs = x.new_zeros(*x.shape[:1], *x.shape[2:], b.shape[-1]), []
    for t in range(x.shape[1]):
        decay = (dt[:, t] * a).exp()[..., None, None]
        state = state * decay + (dt[:, t, :, None] * x[:, t])[..., None] * b[:, t, :, None]
        outputs.append((state * c[:, t, :, None]).sum(-1) + d[:, None] * x[:, t])
    return torch.stack(outputs, 1)
