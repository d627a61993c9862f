"""A small transformer with random weights, in bfloat16 and in fp8: something for `nbtc.torch` to look at.

>>> import torch
>>> Transformer()(tokens(2, 8)).shape
torch.Size([2, 8, 64])
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

FP8 = torch.float8_e4m3fn
LARGEST = 448.0  # of e4m3


def tokens(batch: int = 4, length: int = 32, vocabulary: int = 64) -> torch.Tensor:
    """Token numbers (batch, length) that look like nothing in particular, the same everywhere."""
    return (torch.arange(batch * length) ** 2 * 31 % 101 % vocabulary).reshape(batch, length)


class Fp8Linear(nn.Module):
    """A linear layer that rounds its input and weight to e4m3, each with one scale, as fp8 training does.

    fast_accum: of `torch._scaled_mm`.
    """

    def __init__(self, inputs: int, outputs: int, fast_accum: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.fast_accum = fast_accum

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., inputs) to (..., outputs), in x's dtype."""
        (a, scale_a), (b, scale_b) = _quantised(x.reshape(-1, x.shape[-1])), _quantised(self.weight)
        y = torch._scaled_mm(a, b.t(), scale_a, scale_b, out_dtype=x.dtype, use_fast_accum=self.fast_accum)
        return y.reshape(*x.shape[:-1], -1)


def _quantised(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """e4m3 elements and the number that brings them back."""
    scale = x.abs().max().float() / LARGEST
    return (x.float() / scale).clamp(-LARGEST, LARGEST).to(FP8), scale


class Block(nn.Module):
    """Causal attention and a perceptron, each after a normalisation and around a shortcut."""

    def __init__(self, width: int, heads: int, linear: Any) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = linear(width, 3 * width), linear(width, width)
        self.up, self.down = linear(width, 4 * width), linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, length, width) to the same."""
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.relu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """Layers of `Block` between an embedding and a linear head; weights normal from a seed, all in bfloat16.

    fp8: the blocks' linear layers multiply e4m3.
    """

    def __init__(
        self, width: int = 128, heads: int = 4, layers: int = 3, vocabulary: int = 64, fp8: bool = False, seed: int = 0
    ) -> None:
        super().__init__()
        linear = Fp8Linear if fp8 else lambda inputs, outputs: nn.Linear(inputs, outputs, bias=False)
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, linear) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary, bias=False)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for p in self.parameters():
                if p.ndim > 1:
                    p.copy_(torch.randn(p.shape, generator=generator) / p.shape[-1] ** 0.5)
        self.to(torch.bfloat16)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Token numbers (batch, length) to logits (batch, length, vocabulary)."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(x)
        return logits
