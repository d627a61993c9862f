"""Whole networks and their gradients against the same networks with every product replaced by hand."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

import nbtc

from . import by_hand


class ResidualNet(nn.Module):
    """Convolutions of sizes 3, 1 and 3 with stride 2, normalisation, a residual, pooling, a linear layer."""

    conv = staticmethod(lambda layer, x: layer(x))
    linear = staticmethod(lambda layer, x: layer(x))

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(2, 8)
        self.middle = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.down = nn.Conv2d(8, 12, 3, stride=2, padding=1, bias=False)
        self.short = nn.Conv2d(8, 12, 1, stride=2, bias=False)
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        x = functional.relu(self.norm(self.conv(self.stem, x)))
        x = x + functional.relu(self.conv(self.middle, x))
        x = functional.relu(self.conv(self.down, x) + self.conv(self.short, x))
        return self.linear(self.head, x.mean((2, 3)))


class GptBlock(nn.Module):
    """Two layers of pre-norm causal attention and a perceptron, on top of an embedding."""

    linear = staticmethod(lambda layer, x: layer(x))

    def __init__(self, width=32, heads=2, layers=2):
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(50, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.up = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(layers))
        self.down = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(layers))
        self.head = nn.Linear(width, 50, bias=False)

    def attend(self, q, k, v):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def forward(self, tokens):
        x = self.embed(tokens)
        for i, qkv in enumerate(self.qkv):
            y = self.linear(qkv, self.norms[2 * i](x))
            q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in y.chunk(3, -1))
            x = x + self.linear(self.out[i], self.attend(q, k, v).transpose(1, 2).flatten(2))
            y = functional.gelu(self.linear(self.up[i], self.norms[2 * i + 1](x)))
            x = x + self.linear(self.down[i], y)
        return self.linear(self.head, x)


def linear_by_hand(layer, x):
    bias = layer.bias if layer.bias is not None else torch.zeros(layer.out_features, dtype=x.dtype)
    return by_hand.Linear.apply(x.reshape(-1, x.shape[-1]), layer.weight, bias).reshape(*x.shape[:-1], -1)


class ResidualNetByHand(ResidualNet):
    conv = staticmethod(lambda layer, x: by_hand.Conv.apply(x, layer.weight, layer.stride[0], layer.padding[0]))
    linear = staticmethod(linear_by_hand)


class GptByHand(GptBlock):
    linear = staticmethod(linear_by_hand)

    def attend(self, q, k, v):
        root = q.shape[-1] ** -0.25
        flat = [t.reshape(-1, *t.shape[2:]) for t in (q * root, (k.transpose(-1, -2) * root), v)]
        n = q.shape[-2]
        mask = torch.zeros(n, n, dtype=q.dtype).masked_fill(torch.ones(n, n).triu(1).bool(), float("-inf"))
        weights = torch.softmax(by_hand.Bmm.apply(flat[0], flat[1]) + mask, -1)
        return by_hand.Bmm.apply(weights, flat[2]).reshape(q.shape)


@pytest.fixture(autouse=True)
def tf32():
    """float32 products are tf32, whose float32 results hide no bit of a sum."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize(
    ("model", "hand", "inputs"),
    [
        (ResidualNet, ResidualNetByHand, lambda d: torch.randn(3, 3, 12, 12).to(d)),
        (GptBlock, GptByHand, lambda d: torch.randint(0, 50, (4, 16))),
    ],
    ids=["convolutional", "transformer"],
)
def test_a_network_and_its_gradients(model, hand, inputs, arch, dtype, monkeypatch):
    monkeypatch.setattr(by_hand, "ARCH", arch)
    torch.manual_seed(0)
    net = model().to(dtype)
    other = hand().to(dtype)
    other.load_state_dict(copy.deepcopy(net.state_dict()))
    x = inputs(dtype)
    with nbtc.torch.emulated(arch) as mode:
        y = net(x)
        (y * torch.linspace(-1, 1, y.numel()).reshape(y.shape).to(dtype)).sum().backward()
    z = other(x)
    (z * torch.linspace(-1, 1, z.numel()).reshape(z.shape).to(dtype)).sum().backward()
    assert not mode.report().left
    assert torch.equal(y.view(torch.uint8), z.view(torch.uint8))
    gradients = dict(net.named_parameters()), dict(other.named_parameters())
    for name, p in gradients[0].items():
        g = p.grad, gradients[1][name].grad
        assert g[0].abs().sum() > 0
        assert torch.equal(*(t.contiguous().view(torch.uint8) for t in g)), name


@pytest.mark.parametrize("model", [ResidualNet, GptBlock])
def test_architectures_differ_so_these_tests_can_fail(model):
    torch.manual_seed(0)
    net = model()
    x = torch.randn(3, 3, 12, 12) if model is ResidualNet else torch.randint(0, 50, (4, 16))
    results = []
    for arch in ("sm_80", "sm_90"):
        with torch.no_grad(), nbtc.torch.emulated(arch):
            results.append(net(x))
    assert not torch.equal(*results)
