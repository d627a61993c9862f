"""Large products of kind mxf8f6f4 on the micro-kernel of fused sums: block scales add to exponents.

An element times its scale is exact in f64, and the kernel aligns sums by exponents that are packed beside the values.
So a block-scaled product is a fused one whose packers add the scales; nothing inside the sums knows of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.jit import jit
from nbtc.compiler.threads import ThreadTeam
from nbtc.formats.table import Format
from nbtc.gemm.engines.exponent_ranges import Range
from nbtc.gemm.engines.fused_engine import MOST_SCALED, FusedProduct, ScaleExponents
from nbtc.gemm.engines.packed_memory import ROW_BLOCK, contiguous
from nbtc.gemm.engines.scaled_rows_engine import SCALES, element_table
from nbtc.kernels.block_scaled.scaled_rows import NOTHING, STEP
from nbtc.kernels.panels.fused_sum import PANEL
from nbtc.numerics.ieee import NAN32


@cache
def _range_kernel(of_rows: bool) -> Any:
    """kernel(codes, lines, width, exponents, scale_exponents, ld): least and greatest exponent of non-zero numbers.

    codes: flat, `width` a line; a line is a row of A (of_rows), or a k of B.
    """

    @jit
    def run(codes, lines, width, exponents, scale_exponents, ld):
        low, high = np.int32(-NOTHING), np.int32(NOTHING)
        for i in range(lines):
            for j in range(width):
                e = exponents[codes[i * width + j]]
                place = j // STEP * ld + i if of_rows else i // STEP * ld + j
                total = e + scale_exponents[place]
                low = min(low, total if e > NOTHING else np.int32(-NOTHING))
                high = max(high, total if e > NOTHING else np.int32(NOTHING))
        return low, high

    return run


def _scale_exponents(codes: NDArray[np.uint8], lines: int) -> NDArray[np.int32]:
    """int32 [block][line] of scale codes [block][line], with some lines more; a NaN counts as one."""
    out = np.zeros((codes.shape[0], lines), np.int32)
    out[:, : codes.shape[1]] = np.where(SCALES.nan, 0, SCALES.exponents)[codes]
    return out


def _range(x: NDArray[np.uint8], fmt: Format, scale_exponents: NDArray[np.int32], of_rows: bool) -> Range:
    exponents = element_table(fmt)[1]
    low, high = _range_kernel(of_rows)(
        contiguous(x).reshape(-1), *x.shape, exponents, scale_exponents.reshape(-1), scale_exponents.shape[1]
    )
    return Range(int(low), int(high)) if low <= high else Range(0, 0)


class ScaledPanelProduct:
    """One product of element codes a (M, K), b (K, N) with ue8m0 codes xs (M, S), ys (S, N)."""

    def __init__(
        self, a: NDArray[np.uint8], b: NDArray[np.uint8], xs: NDArray[np.uint8], ys: NDArray[np.uint8], *,
        formats: tuple[Format, Format], params: NDArray[np.int64], team: ThreadTeam,
    ) -> None:  # fmt: skip
        lines = -(-a.shape[0] // ROW_BLOCK) * ROW_BLOCK, -(-b.shape[1] // PANEL) * PANEL
        left, right = _scale_exponents(xs.T, lines[0]), _scale_exponents(ys, lines[1])
        ranges = _range(a, formats[0], left, True), _range(b, formats[1], right, False)
        self.serves = ranges[0].greatest + ranges[1].greatest <= MOST_SCALED
        self.nan = SCALES.nan[xs].any(1), SCALES.nan[ys].any(0)
        self.product = FusedProduct(a, b, formats, params, team, ScaleExponents(left, right, ranges))

    def run(self, d: NDArray[np.uint32], has_c: bool) -> Iterator[NDArray[np.int64]]:
        """d (M, N), C order: f32 bits of c in, if there is one, of the result out.  Yields positions that the scalar
        chain must do.
        """
        self.product.run(d.view(np.float32), has_c)
        d[self.nan[0]] = NAN32
        d[:, self.nan[1]] = NAN32
        return self.product.marked(d.shape)
