"""Bulk copies as functions that programs call with one pointer: 64-bit words of arguments, results in their place."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import carray, types
from numba.extending import intrinsic

from nbtc.compiler.jit import c_function, jit
from nbtc.executor.transfer.tma import OUTSIDE, REDUCTIONS, column_copy, copy_masked, is_packed, reduce_bytes, tile_copy

# words of a tile copy's arguments
KIND, OPERATION, TENSOR, SHARED, TILE, START = range(6)
REGIONS, REGION_COUNT, RESULT, BYTES, ADDRESS = 10, 11, 12, 13, 14
COLUMNS, OFFSETS = 15, 16  # whether in im2col mode, and its offsets
EXTENT = 19  # bytes of shared memory that the tile takes up, gaps included, which BYTES, those of the array, leave out
TILE_WORDS = 20
ELEMENT_WORDS = 6  # of a reduction's: operation, element type, its bytes, target, source, count
MASKED = len(REDUCTIONS)  # the operation of a copy under a mask, which stands in place of the element type
WORD = types.CPointer(types.int64)


@intrinsic
def words_at(typing, address):
    """An address as a pointer to 64-bit words."""

    def codegen(context, builder, sig, args):
        return builder.inttoptr(args[0], context.get_value_type(WORD))

    return WORD(types.int64), codegen


@jit
def _tile(words, regions):
    status, start = np.zeros(2, np.int64), words[START:REGIONS].copy()
    kind, operation, tensor, shared, tile = words[KIND], words[OPERATION], words[TENSOR], words[SHARED], words[TILE]
    if words[COLUMNS]:
        offsets = words[OFFSETS:EXTENT].copy()
        words[RESULT] = column_copy(kind, operation, tensor, shared, tile, start, offsets, regions, status)
    else:
        words[RESULT] = tile_copy(kind, operation, tensor, shared, tile, start, regions, status)
    # of b4x16_p64 8 of every 16 bytes: what Triton 3.6 lets its mbarriers expect of `fp4_padded` descriptors
    words[BYTES], words[EXTENT] = status[0] >> is_packed(tensor), status[0]
    words[ADDRESS] = status[1] if words[RESULT] == OUTSIDE else words[RESULT]  # no address, but one of REASONS


@cache
def tile() -> Any:
    """The tile copy."""

    @c_function(types.void(WORD))
    def entry(p):
        words = carray(p, TILE_WORDS)
        _tile(words, carray(words_at(words[REGIONS]), 3 * words[REGION_COUNT]))

    return entry


@cache
def elements() -> Any:
    """The reduction of neighbouring elements, and the copy of bytes under a mask."""

    @c_function(types.void(WORD))
    def entry(p):
        w = carray(p, ELEMENT_WORDS)
        if w[0] == MASKED:
            copy_masked(w[1], w[3], w[4], w[5])
        else:
            reduce_bytes(w[0], w[1], w[2], w[3], w[4], w[5])

    return entry
