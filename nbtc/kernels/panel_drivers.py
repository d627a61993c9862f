"""Compiled drivers of the fused micro-kernel: panels of B packed; rows of A packed and multiplied with them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from nbtc.compiler.bits import as_f32
from nbtc.compiler.builder import VectorBuilder
from nbtc.compiler.copies import copied
from nbtc.compiler.jit import jit
from nbtc.kernels.alignment_and_rounding import WRAP_MARGIN
from nbtc.kernels.fused_sum import PANEL, ROWS
from nbtc.kernels.panel import BLOCKS, LEAST_BLOCKS, add_tile, sum_block
from nbtc.kernels.panel_pack import columns_packed, rows_packed
from nbtc.kernels.panel_schedules import FLAG_WORD


@intrinsic
def _prefetch(typing, x, index):
    """Ask for the cache line of element `index` of a flat view of x's memory, to be written."""

    def codegen(context, builder, sig, args):
        v = VectorBuilder(context, builder)
        v.prefetch(v.pointer(sig.args[0], args[0]), builder.mul(args[1], v.int(4)), level=2, write=True)
        return context.get_dummy_value()

    return types.void(x, types.int64), codegen


@jit
def announce_tile(state, i, j, rows):
    """Fetch the lines of the next tile while this one is summed: a cold tile costs a tenth of its sums."""
    if j < state.shape[1]:
        for r in range(rows):
            at = (i + r) * state.shape[1] + j
            for line in range(0, min(PANEL, state.shape[1] - j), 16):
                _prefetch(state, at + line)


@jit
def load_tile(state, tile, i, j, rows, columns, scale, low, high):
    """A tile of scaled accumulators; True where one is no number, or not zero and out of the range [low, high]."""
    if rows < ROWS * BLOCKS or columns < PANEL:
        tile[: ROWS * BLOCKS * PANEL] = np.float32(0.0)
    needs_fallback = np.int32(0)
    for r in range(rows):
        line, to = state[i + r, j : j + columns], tile[r * PANEL : r * PANEL + columns]
        for q in range(columns):
            x = line[q]
            size = abs(x)
            fits = (size >= low) & (size <= high) | (size == np.float32(0.0))
            needs_fallback |= np.int32(0) if fits else np.int32(1)
            to[q] = x * scale
    return needs_fallback != 0


@jit
def store_tile(state, tile, i, j, rows, columns, scale):
    """The tile back to its place; True where a result has overflowed."""
    most = np.uint32(0)
    for r in range(rows):
        line, at = state[i + r, j : j + columns], tile[r * PANEL : r * PANEL + columns]
        bits = at.view(np.uint32)
        for q in range(columns):
            most = max(most, np.uint32(bits[q] & np.uint32(0x7FFFFFFF)))
            line[q] = at[q] * scale
    return most >= np.uint32(0x7F800000)


@jit
def padded(x, x0, ld, lines, width, full_lines, full_width):
    """A zero-padded copy of a block; zeros are what a packer writes for places beyond an operand."""
    out = np.zeros(full_lines * full_width, x.dtype)
    for i in range(lines):
        from_, to = x0 + i * ld, i * full_width
        copied(out[to : to + width], x[from_ : from_ + width])
    return out


@cache
def panels_kernel(wide: int, block: int, full_range: int, emulated: int, lifted: int) -> Any:
    """kernel(x, x0, ld, depth, columns, places, b, eb, sb, special, p, factor, tiny, lifts, l0, ll): B, packed.

    x: flat bits, the block's first element at x0, rows ld apart.  lifts: from place l0 on, as `rows_packed` has them.
    Returns the largest sum of fractions of a block of products.
    """

    @jit
    def run(x, x0, ld, depth, columns, places, b, eb, sb, special, p, factor, tiny, lifts, l0, ll):
        full = columns // PANEL if depth == places else 0
        panels = (columns + PANEL - 1) // PANEL
        heavy = np.int64(0)
        if full:
            heavy = columns_packed(
                wide, block, full_range, emulated, lifted, x, x0, ld, full, places, b, eb, sb, special, p, factor, tiny,
                lifts, l0, ll,
            )  # fmt: skip
        for panel in range(full, panels):
            first = panel * PANEL
            copy = padded(x, x0 + first, ld, depth, min(PANEL, columns - first), places, PANEL)
            at = first * places
            edge = columns_packed(
                wide, block, full_range, emulated, lifted, copy, 0, PANEL, 1, places, b[at:], eb[at:],
                sb[at // block :], special[first:], p, factor, tiny, lifts, l0 + first, ll,
            )  # fmt: skip
            heavy = max(heavy, edge)
        return heavy

    return run


@cache
def rows_kernel(
    wide: int, block: int, fraction: int, out: int, full_range: int, checked: int, emulated: int, each_watched: int,
    lifted: int,
) -> Any:  # fmt: skip
    """kernel(x, x0, ld, rows, depth, p, factor, tiny, b, eb, sb, places, state, row, column, panels, redo, special,
    a, ea, sa, scratch, tiles, k, r, lifts, l0, ll): rows of A times panels of B, 64 rows at a time.

    x: flat bits of A, the first element at x0, rows ld apart, `depth` products; b, eb, sb: packed panels of `places`
    products; state: float32 accumulators (M, N); the block starts at (row, column).  redo[64 rows, panel] is set where
    the sums may be wrong, special[row] where A has Inf or NaN.  a, ea, sa, scratch, tiles: this thread's workspace.
    k: int64 floor, least, scale (x), reference; r: the range of accumulators.  emulated: blocks come in pairs, the
    second continuing from the first, which starts at zero; each pair is added to the accumulator.
    each_watched: sums that overflow f16 are noted one by one; else an Inf stays one to the end, where it is seen.
    lifts: from place l0 on, as `rows_packed` has them.
    """

    @jit
    def pack(x, x0, ld, rows, depth, places, tiles, a, ea, sa, special, p, factor, tiny, lifts, l0, ll):
        if rows != ROWS * tiles or depth != places:
            x, x0, ld = padded(x, x0, ld, rows, depth, ROWS * tiles, places), 0, places
        rows_packed(
            wide, block, full_range, emulated, lifted, x, x0, ld, tiles, places, a, ea, sa, special, p, factor, tiny,
            lifts, l0, ll,
        )  # fmt: skip

    @jit
    def multiply(a, ea, sa, b, eb, sb, depth, state, row, column, panels, redo, scratch, tiles, k, r):
        rows = min(ROWS * BLOCKS, state.shape[0] - row)
        blocks = max(LEAST_BLOCKS, (rows + ROWS - 1) // ROWS)
        floor, least, scale, reference = k[0], k[1], k[2], k[3]
        down, up = as_f32(np.int32((127 - scale) << 23)), as_f32(np.int32((127 + scale) << 23))
        first, second = tiles[: ROWS * BLOCKS * PANEL], tiles[ROWS * BLOCKS * PANEL :]
        flags = scratch.view(np.uint32)[FLAG_WORD : FLAG_WORD + 32]
        for panel in range(panels):
            total = second if emulated else first
            j = column + panel * PANEL
            columns = min(PANEL, state.shape[1] - j)
            needs_fallback = load_tile(state, total, row, j, rows, columns, down, r[0], r[1])
            announce_tile(state, row, j + PANEL, rows)
            flags[:16], flags[16:] = np.uint32(0xFFFFFFFF), np.uint32(0)
            b0 = panel * depth * PANEL
            if emulated:
                for g in range(0, depth // block, 2):
                    sum_block(
                        wide, block, fraction, out, full_range, checked, 1, each_watched,
                        a, ea, sa, 0, b, eb, sb, b0, g, 1, first, blocks, floor, least, scale, reference, scratch,
                    )  # fmt: skip
                    sum_block(
                        wide, block, fraction, out, full_range, checked, 0, each_watched,
                        a, ea, sa, 0, b, eb, sb, b0, g + 1, 1, first, blocks, floor, least, scale, reference, scratch,
                    )  # fmt: skip
                    add_tile(out, full_range, each_watched, first, second, blocks, scale, scratch)
            else:
                sum_block(
                    wide, block, fraction, out, full_range, checked, 0, each_watched,
                    a, ea, sa, 0, b, eb, sb, b0, 0, depth // block, first, blocks, floor, least, scale, reference,
                    scratch,
                )  # fmt: skip
            if checked:
                for q in range(16):
                    needs_fallback |= flags[q] < np.uint32(2 * WRAP_MARGIN)
            if full_range or each_watched:
                for q in range(16, 32):
                    needs_fallback |= flags[q] >= np.uint32(0x7F7FFFFF)
            needs_fallback |= store_tile(state, total, row, j, rows, columns, up)
            if needs_fallback:
                redo[panel] = np.uint8(1)

    @jit
    def run(
        x, x0, ld, rows, depth, p, factor, tiny, b, eb, sb, places, state, row, column, panels, redo, special,
        a, ea, sa, scratch, tiles, k, r, lifts, l0, ll,
    ):  # fmt: skip
        for i in range(0, rows, ROWS * BLOCKS):
            count = min(ROWS * BLOCKS, rows - i)
            four = max(LEAST_BLOCKS, (count + ROWS - 1) // ROWS)
            at = row + i
            pack(
                x,
                x0 + i * ld,
                ld,
                count,
                depth,
                places,
                four,
                a,
                ea,
                sa,
                special[at:],
                p,
                factor,
                tiny,
                lifts,
                l0 + i,
                ll,
            )
            marks = redo[at // (ROWS * BLOCKS), column // PANEL :]
            multiply(a, ea, sa, b, eb, sb, places, state, at, column, panels, marks, scratch, tiles, k, r)

    return run
