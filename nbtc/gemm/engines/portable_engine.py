"""Large fused products on any processor: tiles of generic vector code."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.threads import ThreadTeam
from nbtc.formats.table import Format
from nbtc.gemm.engines.packed_memory import contiguous
from nbtc.kernels.rows.rows import Decoded, Picks, Sizes, decode, fused_tile, mark_specials, panels
from nbtc.numerics.models import BLOCK

ROWS, COLUMNS, DEPTH = 64, 256, 512


class PortableProduct:
    """One product of 2-D operands: accumulator bits in, chain results out, and which elements must be redone."""

    def __init__(
        self,
        a: NDArray[Any],
        b: NDArray[Any],
        formats: tuple[Format, Format],
        params: NDArray[np.int64],
        team: ThreadTeam,
    ) -> None:
        self.a, self.b, self.formats, self.params, self.team = a, b, formats, params, team
        self.redo = np.zeros((a.shape[0], b.shape[1]), np.uint8)

    def run(self, state: NDArray[Any]) -> None:
        """state (M, N): accumulator bits."""
        work = [(i, j) for i in range(0, self.a.shape[0], ROWS) for j in range(0, self.b.shape[1], COLUMNS)]
        macs = self.a.size * self.b.shape[1] // max(1, len(work))
        self.team.run(self._tile, (state,), work, macs)

    def _tile(self, state: NDArray[Any], i: int, j: int) -> None:
        m, n = min(ROWS, self.a.shape[0] - i), min(COLUMNS, self.b.shape[1] - j)
        padded = -(-n // 64) * 64
        c, marks = np.zeros((m, padded), np.uint32), np.zeros((m, padded), np.uint8)
        c[:, :n] = state[i : i + m, j : j + n]
        block = int(self.params[BLOCK])
        for k in range(0, self.a.shape[1], DEPTH):
            depth = min(DEPTH, self.a.shape[1] - k)
            deep = -(-depth // block) * block
            x, y = np.zeros((m, deep), self.a.dtype), np.zeros((deep, padded), self.b.dtype)
            x[:, :depth] = self.a[i : i + m, k : k + depth]
            y[:depth, :n] = self.b[k : k + depth, j : j + n]
            redo = np.zeros(m * padded, np.uint8)
            decoded = Decoded(*self._decoded(x, 0), *self._decoded(y, 1), *self._specials(x, y))
            sizes = Sizes(m, padded, deep)
            fused_tile(decoded, c.reshape(-1), redo, sizes, Picks(np.arange(deep), 0), self.params)
            marks |= redo.reshape(m, padded)
        state[i : i + m, j : j + n] = c[:, :n].astype(state.dtype)
        self.redo[i : i + m, j : j + n] = marks[:, :n]

    def _decoded(self, x: NDArray[Any], side: int) -> tuple[NDArray[Any], NDArray[Any]]:
        kept = panels(*self.formats)
        values, exponents = np.empty(x.size, kept.value), np.empty(x.size, kept.exponent)
        decode(contiguous(x).reshape(-1), self.formats[side].code, kept.zero, values, exponents)
        return values, exponents

    def _specials(self, x: NDArray[Any], y: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        rows, columns = np.zeros(x.shape[0], np.uint8), np.zeros(y.shape[1], np.uint8)
        mark_specials(x.reshape(-1), self.formats[0].code, *x.shape, True, rows)
        mark_specials(y.reshape(-1), self.formats[1].code, *y.shape, False, columns)
        return rows, columns
