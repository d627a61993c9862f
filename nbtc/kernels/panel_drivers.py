"""Compiled drivers of the fused micro-kernel: panels of B packed; rows of A packed and multiplied with them.

They serve every form: what packs and what sums is emitted code (`panel_code`), called by its address.
"""

from __future__ import annotations

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from nbtc.compiler.bits import as_f32, as_i32
from nbtc.compiler.builder import VectorBuilder
from nbtc.compiler.copies import copied
from nbtc.compiler.emitted import call_emitted
from nbtc.compiler.jit import jit
from nbtc.kernels.alignment_and_rounding import WRAP_MARGIN
from nbtc.kernels.fused_sum import PANEL, ROWS
from nbtc.kernels.panel import BLOCKS, LEAST_BLOCKS, AddArguments, SumArguments
from nbtc.kernels.panel_operands import Scales, Source, Span
from nbtc.kernels.panel_pack import PackArguments
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
    most = np.int32(0)
    for r in range(rows):
        line, at = state[i + r, j : j + columns], tile[r * PANEL : r * PANEL + columns]
        for q in range(columns):
            most = max(most, as_i32(at[q]) & np.int32(0x7FFFFFFF))
            line[q] = at[q] * scale
    return most >= np.int32(0x7F800000)


@jit
def padded(source, lines, width, full_lines, full_width, edge):
    """A zero-padded copy of a block at `edge`; zeros are what a packer writes for places beyond an operand."""
    size = source.size
    for i in range(full_lines * full_width * size):
        edge[i] = np.uint8(0)
    for i in range(lines):
        from_, to = (source.first + i * source.ld) * size, i * full_width * size
        copied(edge[to : to + width * size], source.x[from_ : from_ + width * size])
    return Source(edge, 0, full_width, size, source.params, source.factor, source.tiny)


@jit
def moved(source, elements):
    """The same from a later element on."""
    return Source(source.x, source.first + elements, source.ld, source.size, source.params, source.factor, source.tiny)


@jit
def pack_columns(pack, source, scales, out, special, sizes, edge):
    """B, packed by the function at `pack`: panels of `places` products, of `depth` rows of `columns` from the source's
    first on (sizes: depth, columns, places).

    special[column] is set where one holds Inf or NaN.  edge: room for a panel as it comes.  Returns the largest sum of
    fractions of a block of products.
    """
    depth, columns, places = sizes
    full = columns // PANEL if depth == places else 0
    most = call_emitted(pack, PackArguments(source, scales, out, special, 0, full, places))
    for panel in range(full, (columns + PANEL - 1) // PANEL):
        first = panel * PANEL
        copy = padded(moved(source, first), depth, min(PANEL, columns - first), places, PANEL, edge)
        only = moved(copy, -first)  # panels are counted from the first
        most = max(most, call_emitted(pack, PackArguments(only, scales, out, special, panel, panel + 1, places)))
    return most


@jit
def _pack_rows(pack, source, scales, own, special, rows, tiles, sizes):
    """Up to 64 rows of A."""
    depth, places = sizes
    if rows != ROWS * tiles or depth != places:
        source = padded(source, rows, depth, ROWS * tiles, places, own.edge)
    call_emitted(pack, PackArguments(source, scales, own.a, special, 0, tiles, places))


@jit
def _multiply(form, b, state, row, geometry, redo, own, numbers):
    """Packed rows of A times panels of B."""
    rows, depth = min(ROWS * BLOCKS, state.shape[0] - row), geometry.places
    blocks = max(LEAST_BLOCKS, (rows + ROWS - 1) // ROWS)
    scale = numbers.scale
    down, up = as_f32(np.int32((127 - scale) << 23)), as_f32(np.int32((127 + scale) << 23))
    first, second = own.tiles[: ROWS * BLOCKS * PANEL], own.tiles[ROWS * BLOCKS * PANEL :]
    flags, scratch = own.scratch[FLAG_WORD : FLAG_WORD + 32], own.scratch
    for panel in range(geometry.panels):
        total = second if form.added else first
        j = geometry.column + panel * PANEL
        columns = min(PANEL, state.shape[1] - j)
        needs_fallback = load_tile(state, total, row, j, rows, columns, down, numbers.low, numbers.high)
        announce_tile(state, row, j + PANEL, rows)
        for q in range(16):
            flags[q], flags[q + 16] = np.uint32(0xFFFFFFFF), np.uint32(0)
        at = panel * depth * PANEL
        if form.added:
            for g in range(0, depth // form.block, 2):
                span = Span(at, g, 1, blocks)
                call_emitted(form.from_zero, SumArguments(own.a, b, span, first, numbers, scratch))
                span = Span(at, g + 1, 1, blocks)
                call_emitted(form.sums, SumArguments(own.a, b, span, first, numbers, scratch))
                call_emitted(form.added, AddArguments(first, second, blocks, scale))
        else:
            span = Span(at, 0, depth // form.block, blocks)
            call_emitted(form.sums, SumArguments(own.a, b, span, first, numbers, scratch))
        if form.checked:
            for q in range(16):
                needs_fallback |= flags[q] < np.uint32(2 * WRAP_MARGIN)
        if form.watched:
            for q in range(16, 32):
                needs_fallback |= flags[q] >= np.uint32(0x7F7FFFFF)
        needs_fallback |= store_tile(state, total, row, j, rows, columns, up)
        if needs_fallback:
            redo[panel] = np.uint8(1)


@jit
def multiply_rows(form, source, scales, b, state, geometry, marks, own, numbers):
    """Rows of A times panels of B, 64 rows at a time.

    source: A from the geometry's first row on; b: packed panels; state: float32 accumulators (M, N).
    """
    sizes = geometry.depth, geometry.places
    for i in range(0, geometry.rows, ROWS * BLOCKS):
        count = min(ROWS * BLOCKS, geometry.rows - i)
        tiles = max(LEAST_BLOCKS, (count + ROWS - 1) // ROWS)
        row = geometry.row + i
        later = Scales(scales.exponents, scales.first + i, scales.ld)
        _pack_rows(form.pack, moved(source, i * source.ld), later, own, marks.rows[row:], count, tiles, sizes)
        redo = marks.tiles[row // (ROWS * BLOCKS), geometry.column // PANEL :]
        _multiply(form, b, state, row, geometry, redo, own, numbers)


@jit
def multiply_block(code, left, right, scales, space, state, geometry, marks, numbers):
    """A product in one piece: B packed, then all rows of A times it.  False where these sums could leave 32 bits, and
    nothing is summed.

    One call: two, and what Python does between them, take a product of 32^3 three times as long as its arithmetic.
    """
    sizes = geometry.depth, state.shape[1], geometry.places
    if pack_columns(code.pack, right, scales, space.packed, marks.columns, sizes, space.edge) >= code.most:
        return False
    multiply_rows(code.form, left, scales, space.packed, state, geometry, marks, space.own, numbers)
    return True
