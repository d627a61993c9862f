"""Large products of kind mxf8f6f4 on any host: decoded operands, rows and panels shared out."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.threads import ThreadTeam
from nbtc.formats.arrays import from_bits
from nbtc.formats.block_scales import scale_table
from nbtc.formats.table import Format, ue8m0
from nbtc.gemm.engines.packed_memory import contiguous
from nbtc.kernels.block_scaled.scaled_rows import COLUMNS, NOTHING, STEP, ScaledPanels, panel_rows
from nbtc.numerics.scaled import ScaledOperands, StepScales

ROWS = 8  # rows of a task: tens of milliseconds
SCALES = scale_table(ue8m0)


@cache
def element_table(fmt: Format) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.bool_]]:
    """Value, exponent and whether it is not a number, of every byte."""
    values, exponents, special = np.zeros(256), np.full(256, NOTHING, np.int32), np.zeros(256, np.bool_)
    numbers = from_bits(np.arange(1 << fmt.bits, dtype=fmt.bits_dtype), fmt).astype(np.float64)
    count, finite = numbers.size, np.isfinite(numbers)
    special[:count] = ~finite
    values[:count][finite] = numbers[finite]
    counted = finite & (numbers != 0)  # of zeros `NOTHING` stays; a subnormal has the least exponent
    exponents[:count][counted] = np.maximum(np.frexp(numbers[counted])[1] - 1, fmt.emin)
    return values, exponents, special


def decoded_bytes(m: int, n: int, k: int) -> int:
    """Upper bound of the memory of decoded operands."""
    return (m + n + COLUMNS) * (k + STEP) * 13


class ScaledRowsProduct:
    """One product of element codes a (M, K), b (K, N) with ue8m0 codes xs (M, S), ys (S, N)."""

    def __init__(
        self, a: NDArray[Any], b: NDArray[Any], xs: NDArray[Any], ys: NDArray[Any], *, formats: tuple[Format, Format],
        scales: StepScales, params: NDArray[np.int64], team: ThreadTeam,
    ) -> None:  # fmt: skip
        m, n, k = a.shape[0], b.shape[1], a.shape[1]
        steps, panels = -(-k // STEP), -(-n // COLUMNS)
        self.sizes, self.panels = np.array([m, n, k, steps]), panels
        self.scales, self.params, self.team = scales, params, team
        flat = [contiguous(x).reshape(-1) for x in (a, b, xs, ys)]
        none = np.zeros(0, np.uint32)
        self.codes = ScaledOperands(flat[0], flat[1], none, flat[2], flat[3], np.zeros((5, 1), np.int64))
        (va, ea, sa), (vb, eb, sb) = (element_table(f) for f in formats)
        self.special = (
            sa[a].any(1) | SCALES.nan[xs].any(1),
            _by_panel(sb[b].any(0) | SCALES.nan[ys].any(0), panels),
        )
        left = np.zeros((m, steps * STEP), np.uint8)  # code 0 is a zero
        left[:, :k] = a
        right = np.zeros((steps * STEP, panels * COLUMNS), np.uint8)
        right[:k, :n] = b
        right = np.ascontiguousarray(right.reshape(steps * STEP, panels, COLUMNS).swapaxes(0, 1))
        above = np.full((steps, panels * COLUMNS), ue8m0.bias, np.uint8)  # ones
        above[:, :n] = ys
        above = np.ascontiguousarray(above.reshape(steps, panels, COLUMNS).swapaxes(0, 1))
        shifts = [SCALES.exponents[x].astype(np.int32).reshape(-1) for x in (xs, above)]
        self.packed = ScaledPanels(
            va[left].reshape(-1), ea[left].reshape(-1), shifts[0],
            vb[right].reshape(-1), eb[right].reshape(-1), shifts[1],
        )  # fmt: skip

    def run(self, d: NDArray[np.uint32]) -> None:
        """d (M, N), C order: f32 bits of c in, of the result out."""
        m, n, k = (int(v) for v in self.sizes[:3])
        shares = [
            (first, min(m, first + ROWS), (panel, panel + 1))
            for panel in range(self.panels)
            for first in range(0, m, ROWS)
        ]
        fixed = (self.packed, self.codes, d.reshape(-1), self.sizes, self.special, self.scales, self.params)
        self.team.run(panel_rows, fixed, shares, m * n * k // max(1, len(shares)))


def _by_panel(columns: NDArray[np.bool_], panels: int) -> NDArray[np.bool_]:
    padded = np.zeros(panels * COLUMNS, np.bool_)
    padded[: columns.size] = columns
    return np.asarray(padded.reshape(panels, COLUMNS).any(1))
