"""A character model trained with a GPU's bits: its losses, step by step, are what the GPU computes.

python -m nbtc.examples.characters H200 40

Model, gradients and the update of the weights are compiled for the GPU.  On the GPU, compile the same functions with
`options=nbtc.torch.inductor_options()`: the two lists of losses can be compared with `==`.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import nn

import nbtc

DESCRIPTION = "Train a character model with a GPU's bits and print the loss of each step."
TEXT = "she sells sea shells by the sea shore; the shells she sells are sea shells for sure. " * 8
BEFORE = 8  # characters that the next one is predicted from
RATE = 0.1


class Characters(nn.Module):
    """Embeddings of the last characters, one hidden layer, a distribution over the alphabet."""

    def __init__(self, alphabet: int, width: int = 16, hidden: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(alphabet, width)
        self.hidden, self.head = nn.Linear(BEFORE * width, hidden), nn.Linear(hidden, alphabet)

    def forward(self, before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
        """The mean loss; before: (N, BEFORE) and after: (N,) characters by number."""
        x = torch.tanh(self.hidden(self.embed(before).flatten(1)))
        return nn.functional.cross_entropy(self.head(x).float(), after)


def descend(weights: list[torch.Tensor], gradients: list[torch.Tensor]) -> None:
    """One step of gradient descent, in place."""
    for w, g in zip(weights, gradients, strict=True):
        w.sub_(RATE * g)


class Training:
    """The model in bfloat16, compiled for a GPU, and the whole text as its batch."""

    def __init__(self, arch: object = "H200", seed: int = 0) -> None:
        alphabet = sorted(set(TEXT))
        text = torch.tensor([alphabet.index(c) for c in TEXT])
        windows = text.unfold(0, BEFORE + 1, 1)
        self.batch = windows[:, :BEFORE].contiguous(), windows[:, BEFORE].contiguous()
        torch.manual_seed(seed)
        self.model = Characters(len(alphabet)).bfloat16()
        self.compiled: Any = nbtc.torch.compile(self.model, arch=arch, fullgraph=True, dynamic=False)
        self.update: Any = nbtc.torch.compile(descend, arch=arch, fullgraph=True, dynamic=False)

    def step(self) -> float:
        """One step over the text; its loss, before the weights move."""
        weights = list(self.model.parameters())
        loss = self.compiled(*self.batch)
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            self.update([w.data for w in weights], list(gradients))
        return float(loss.detach())


def losses(arch: object = "H200", steps: int = 40) -> list[float]:
    """The loss of each step.

    >>> losses("H200", 3)                                            # doctest: +SKIP
    """
    training = Training(arch)
    return [training.step() for _ in range(steps)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m nbtc.examples.characters", description=DESCRIPTION)
    parser.add_argument("arch", nargs="?", default="H200", help="the GPU, such as A100 (H200)")
    parser.add_argument("steps", nargs="?", type=int, default=40, help="steps of training (40)")
    given = parser.parse_args()
    for number, loss in enumerate(losses(given.arch, given.steps)):
        print(number, loss)
