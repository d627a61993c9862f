"""Which kind of kernel cuDNN takes for a convolution: a decision tree for each of the three operations.

PyTorch runs the first engine that cuDNN's heuristic names.  The heuristic (cuDNN 9.19) was asked on an H100 about the
operations of 780,000 random sizes, in both formats; asked for an H200 it gave the same answer to 1,200 of 1,200
questions.  The trees in `convolution_choices.txt.xz` were fitted to these answers by
tests/golden/recorders/make_convolution_choices.py.  A twentieth of the sizes was left out: of those the trees have 94
to 95 % of the answers.  They know nothing of depthwise convolutions, for which PyTorch has kernels of its own.

The file has the nodes of each tree in preorder: "feature threshold", whose next branch is for features of at most the
threshold, or a kind of kernel (`cudnn.CHOSEN` says what each is).
"""

from __future__ import annotations

import lzma
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, Protocol

import numpy as np

OPERATIONS = ("forward", "input", "weight")
# Sizes of kernels' tiles of output elements; an H100 and an H200 have 132 multiprocessors
TILES = ((64, 32), (64, 64), (128, 32), (128, 64), (128, 128), (256, 64), (256, 128))
MULTIPROCESSORS = 132
OCTET = 8  # elements of the widest load


class Sizes(Protocol):
    """Numbers of convolutions, or arrays of them: `cudnn.Case` has them by the same names."""

    @property
    def half(self) -> Any:
        """Whether it is f16, not bf16."""

    @property
    def last(self) -> Any:
        """Whether channels are last."""

    @property
    def items(self) -> Any: ...
    @property
    def channels(self) -> Any: ...
    @property
    def outputs(self) -> Any: ...
    @property
    def stride(self) -> Any: ...
    @property
    def padding(self) -> Any: ...
    @property
    def dilation(self) -> Any: ...
    @property
    def groups(self) -> Any: ...
    @property
    def size(self) -> Any:
        """Of the input's last axis."""

    @property
    def kernel(self) -> Any:
        """Of the filter's last axis."""

    @property
    def rank(self) -> Any:
        """How many axes."""


class Node(NamedTuple):
    """A branch of a tree (`kind` is empty), whose second subtree starts at `other`, or a leaf."""

    feature: int = 0
    threshold: int = 0
    other: int = 0
    kind: str = ""


def features(c: Sizes) -> list[Any]:
    """What the trees look at."""
    made = (c.size + 2 * c.padding - c.dilation * (c.kernel - 1) - 1) // c.stride + 1
    channels, outputs, taps = c.channels // c.groups, c.outputs // c.groups, c.kernel**c.rank
    positions, places = c.items * made**c.rank, c.items * c.size**c.rank
    left, right = channels * taps, outputs * taps
    work = positions * left
    found = [
        c.half, c.last, taps, c.stride, c.dilation, c.groups, channels, outputs, np.minimum(channels, outputs),
        np.maximum(channels, outputs), _aligned(channels), _aligned(outputs), c.size, made, c.items, positions, places,
        left, right, positions * outputs, left * outputs, work, work * c.outputs, c.padding, channels * outputs, c.rank,
        c.kernel, c.items * c.groups, made**c.rank, c.size**c.rank, positions * channels,
    ]  # fmt: skip
    for rows, columns in ((positions, outputs), (places, channels), (outputs, left)):
        for tall, wide in TILES:
            tiles = -(-rows // tall) * -(-columns // wide)
            found += [tiles, -(-tiles // MULTIPROCESSORS)]
    return found


def _aligned(channels: Any) -> Any:
    """The largest power of two, up to eight, that divides a number."""
    return np.minimum(channels & -channels, OCTET)


@cache
def _trees() -> dict[str, list[str]]:
    """The lines of each operation's tree."""
    packed = files("nbtc").joinpath("data", "convolution_choices.txt.xz").read_bytes()
    parts = lzma.decompress(packed).decode().split("\n\n")
    return dict(zip(OPERATIONS, (part.splitlines() for part in parts), strict=True))


@cache
def tree(operation: str) -> list[Node]:
    """Nodes in preorder."""
    nodes: list[Node] = []
    waiting: list[int] = []  # branches whose second subtree has not begun
    for at, line in enumerate(_trees()[operation]):
        first, _, threshold = line.partition(" ")
        if threshold:
            waiting.append(at)
            nodes.append(Node(int(first), int(threshold)))
            continue
        nodes.append(Node(kind=first))
        if waiting:
            branch = waiting.pop()
            nodes[branch] = nodes[branch]._replace(other=at + 1)
    return nodes


def chosen(operation: str, c: Sizes) -> str:
    """The kind of kernel that cuDNN most likely takes; operation: one of OPERATIONS."""
    nodes, values = tree(operation), features(c)
    at = 0
    while not nodes[at].kind:
        at = at + 1 if values[nodes[at].feature] <= nodes[at].threshold else nodes[at].other
    return nodes[at].kind
