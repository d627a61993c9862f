"""Small fused products that are asked for again: all but the operands written down once."""

from __future__ import annotations

import numpy as np

from nbtc.compiler.pools.workspace_pool import Arrays
from nbtc.gemm.engines import lone_block
from nbtc.gemm.engines.exponent_ranges import magnitudes, wider
from nbtc.gemm.engines.fused_engine import NOTHING, FusedProduct
from nbtc.gemm.repeated import Call, Ranges
from nbtc.kernels.panels.panel_drivers import drivers
from nbtc.kernels.panels.panel_operands import Marks, State
from nbtc.kernels.repeated import FusedArguments, repeated
from nbtc.numerics.models import OUT, OUTS


def fused_call(product: FusedProduct, before: Ranges) -> Call | None:
    """The product of any operands of these formats and layouts as one call; None of float16 sums and large ones.

    Exponents that are measured may be somewhat beyond those of this product's operands, and of `before`'s.
    """
    if product.params[OUT] == OUTS["rne11"] or not product.is_piece():
        return None
    (fa, fb), (ra, rb), (a, b) = product.formats, product.ranges(), (product.a, product.b)
    old_a, old_b = before or (None, None)
    ranges = wider(ra, fa, old_a), wider(rb, fb, old_b)
    product.lay_out(*ranges)
    if product.packing.full_range:
        return None
    known, layout, count = product.piece(), product.layout, product.marks.size
    sources = layout.source(0, a[:0], 0, a.shape[1]), layout.source(1, b[:0], 0, b.shape[1])
    left, right = magnitudes(fa, a.size, ranges[0]), magnitudes(fb, b.size, ranges[1])
    tiles, lines, columns = product.redo.size, product.special_rows.size, b.shape[1]

    def arguments(arrays: Arrays) -> FusedArguments:
        *own, marks = arrays
        places = Marks(marks, marks[tiles:], marks[tiles + lines :])
        state = State(NOTHING, columns, fresh=1)
        block = lone_block.block_arguments(known, sources, state, places, layout.numbers, tuple(own))
        return FusedArguments(drivers().block, block, count, left, right)

    result, whole = ((a.shape[0], columns), np.float32), (a.flags.c_contiguous, b.flags.c_contiguous)
    return Call(repeated().fused, (*known.key, (count, "|u1")), arguments, result, whole, ranges)
