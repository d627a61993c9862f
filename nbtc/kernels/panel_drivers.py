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
from nbtc.kernels.panel_operands import Packed, Packing, Scales, Source, Span, Sums, literal
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
def padded(source, lines, width, full_lines, full_width):
    """A zero-padded copy of a block; zeros are what a packer writes for places beyond an operand."""
    out = np.zeros(full_lines * full_width, source.x.dtype)
    for i in range(lines):
        from_, to = source.first + i * source.ld, i * full_width
        copied(out[to : to + width], source.x[from_ : from_ + width])
    return Source(out, 0, full_width, source.params, source.factor, source.tiny)


@jit
def moved(source, elements):
    """The same from a later element on."""
    return Source(source.x, source.first + elements, source.ld, source.params, source.factor, source.tiny)


@cache
def panels_kernel(packing: Packing) -> Any:
    """kernel(source, scales, out, special, depth, columns, places): B, packed.

    source: its first row, `depth` rows of `columns`, packed as panels of `places` products.  special[column] is set
    where one holds Inf or NaN.  Returns the largest sum of fractions of a block of products.
    """
    block, text = packing.block, literal(packing)

    @jit
    def run(source, scales, out, special, depth, columns, places):
        full = columns // PANEL if depth == places else 0
        panels = (columns + PANEL - 1) // PANEL
        heavy = np.int64(0)
        if full:
            heavy = columns_packed(text, source, scales, out, special, full, places)
        for panel in range(full, panels):
            first = panel * PANEL
            copy = padded(moved(source, first), depth, min(PANEL, columns - first), places, PANEL)
            later = Scales(scales.exponents, scales.first + first, scales.ld)
            at = first * places
            to = Packed(out.values[at:], out.exponents[at:], out.signs[at // block :])
            heavy = max(heavy, columns_packed(text, copy, later, to, special[first:], 1, places))
        return heavy

    return run


@cache
def rows_kernel(packing: Packing, fraction: int, out: int, checked: int, each_watched: int) -> Any:
    """kernel(source, scales, b, state, geometry, marks, own, numbers): rows of A times panels of B, 64 rows at a time.

    source: A from the geometry's first row on; b: packed panels; state: float32 accumulators (M, N).
    Emulated blocks come in pairs, the second continuing from the first, which starts at zero; each pair is added to
    the accumulator.  each_watched: sums that overflow f16 are noted one by one; else an Inf stays one to the end, where
    it is seen.
    """
    _, block, full_range, emulated, _ = packing
    text = literal(packing)
    sums = Sums(packing.wide, block, fraction, out, full_range, checked, 0, each_watched)
    restarted, continued = literal(sums._replace(from_zero=1)), literal(sums)

    @jit
    def pack(source, scales, rows, depth, places, tiles, out, special):
        if rows != ROWS * tiles or depth != places:
            source = padded(source, rows, depth, ROWS * tiles, places)
        rows_packed(text, source, scales, out, special, tiles, places)

    @jit
    def multiply(b, state, row, geometry, redo, own, numbers):
        rows, depth = min(ROWS * BLOCKS, state.shape[0] - row), geometry.places
        blocks = max(LEAST_BLOCKS, (rows + ROWS - 1) // ROWS)
        scale = numbers.scale
        down, up = as_f32(np.int32((127 - scale) << 23)), as_f32(np.int32((127 + scale) << 23))
        first, second = own.tiles[: ROWS * BLOCKS * PANEL], own.tiles[ROWS * BLOCKS * PANEL :]
        flags = own.scratch.view(np.uint32)[FLAG_WORD : FLAG_WORD + 32]
        for panel in range(geometry.panels):
            total = second if emulated else first
            j = geometry.column + panel * PANEL
            columns = min(PANEL, state.shape[1] - j)
            needs_fallback = load_tile(state, total, row, j, rows, columns, down, numbers.low, numbers.high)
            announce_tile(state, row, j + PANEL, rows)
            flags[:16], flags[16:] = np.uint32(0xFFFFFFFF), np.uint32(0)
            at, scratch = panel * depth * PANEL, own.scratch
            if emulated:
                for g in range(0, depth // block, 2):
                    sum_block(restarted, own.a, b, Span(at, g, 1, blocks), first, numbers, scratch)
                    sum_block(continued, own.a, b, Span(at, g + 1, 1, blocks), first, numbers, scratch)
                    add_tile(continued, first, second, blocks, scale, scratch)
            else:
                sum_block(continued, own.a, b, Span(at, 0, depth // block, blocks), first, numbers, scratch)
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
    def run(source, scales, b, state, geometry, marks, own, numbers):
        depth, places = geometry.depth, geometry.places
        for i in range(0, geometry.rows, ROWS * BLOCKS):
            count = min(ROWS * BLOCKS, geometry.rows - i)
            tiles = max(LEAST_BLOCKS, (count + ROWS - 1) // ROWS)
            row = geometry.row + i
            later = Scales(scales.exponents, scales.first + i, scales.ld)
            pack(moved(source, i * source.ld), later, count, depth, places, tiles, own.a, marks.rows[row:])
            redo = marks.tiles[row // (ROWS * BLOCKS), geometry.column // PANEL :]
            multiply(b, state, row, geometry, redo, own, numbers)

    return run
