"""The fused micro-kernel with a second task: the next warpgroup's accumulators come into the cache meanwhile.

They are most of a warpgroup's memory, and the sums leave it idle: fetched one after the other, they take a third as
long as the sums.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba.core import types
from numba.extending import intrinsic

from nbtc.compiler.builder import VectorBuilder
from nbtc.compiler.processors import host_processor
from nbtc.kernels.alignment_and_rounding import Shape
from nbtc.kernels.panel import emit_sums
from nbtc.numerics.models import OUTS
from nbtc.ops.wgmma.tile import fetch


def _fetching(v: VectorBuilder, shape: Shape, args: dict[str, Any], group: Any, block: Any) -> None:
    """Each row block of four columns of D asks for the memory that four columns of the next D take."""
    fetch(v, args["ahead"], block, shape.half)


class FetchingBlock(NamedTuple):
    """A block of products and its tile: values, exponents and signs of A and B, 4 * blocks rows by 64 columns of
    scaled accumulators, what the alignment needs, scratch.
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


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator, unused-ignore]
def sum_fetching(typing, wide, block, fraction, out, x, words, ahead):
    """One block of products into the tile, as `panel.sum_block` does it.

    The first four arguments are literals.  words[ahead] is where the memory to fetch begins.
    """
    fixed = (wide, block, fraction, out)
    target = host_processor()
    if target is None or not all(isinstance(t, types.IntegerLiteral) for t in fixed):
        return None
    values = [t.literal_value for t in fixed]
    name = {code: text for text, code in OUTS.items()}[values[3]]
    shape = Shape(target, bool(values[0]), values[1], values[2], name, full_range=False, checked=False)

    def codegen(context, builder, sig, args):
        v = VectorBuilder(context, builder)
        named = v.fields(x, args[len(fixed)])
        named["groups"] = v.int(1)
        named["ahead"] = v.at(v.pointer(words, args[-2]), builder.mul(args[-1], v.int(4)))
        emit_sums(v, shape, named, _fetching)
        return context.get_dummy_value()

    return types.void(*fixed, x, words, types.int64), codegen
