"""The fused micro-kernel with a second task: the next warpgroup's accumulators come into the cache meanwhile.

They are most of a warpgroup's memory, and the sums leave it idle: fetched one after the other, they take a third as
long as the sums.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from nbtc.compiler.builder import VectorBuilder
from nbtc.compiler.machine_code.emitted import Named
from nbtc.kernels.panels.alignment_and_rounding import SumShape
from nbtc.kernels.panels.panel import emit_sums
from nbtc.ops.wgmma.parts import part
from nbtc.ops.wgmma.tile import fetch


def _fetching(v: VectorBuilder, shape: SumShape, args: dict[str, Any], group: Any, block: Any) -> None:
    """Each row block of four columns of D asks for the memory that four columns of the next D take."""
    fetch(v, args["ahead"], block, shape.f16_acc)


class FetchingBlock(NamedTuple):
    """A block of products and its tile: values, exponents and signs of A and B, 4 * blocks rows by 64 columns of
    scaled accumulators, what the alignment needs, scratch.  words[ahead] is where the memory to fetch begins.
    """

    a: Any
    ea: Any
    sa: Any
    b: Any
    eb: Any
    sb: Any
    tile: Any
    blocks: int
    floor: int
    least: int
    scale: int
    reference: int
    scratch: Any
    words: Any
    ahead: int


@cache
def sums(shape: SumShape) -> int:
    """The address of what sums a `FetchingBlock` into its tile, as `panel.sum_block` does it."""

    def write(v: VectorBuilder, given: Named) -> None:
        named = {name: x for name, x in given.items() if name != "words"}
        named |= {"groups": v.int(1), "ahead": v.at(given["words"], v.b.mul(given["ahead"], v.int(4)))}
        emit_sums(v, shape, named, _fetching)

    return part(__file__, FetchingBlock, write, shape.key)
