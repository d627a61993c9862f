"""Textures and surfaces as a function that programs call for a warp: 64-bit words of arguments, results in their place.

A lane's handle, coordinates and values stand in its column of the words after the first HEAD.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import carray, types

from nbtc.compiler.jit import c_function, jit
from nbtc.executor.texture import surfaces
from nbtc.executor.texture.objects import DEPTH, FLAGS, HEIGHT, KIND, LAYERS, MOST, WIDTH, WORDS, Flag, ObjectKind
from nbtc.executor.texture.sampling import fetch, gather, sample, sample_cube
from nbtc.executor.transfer.tma_service import WORD, words_at

SAMPLE, FETCH, CUBE, GATHER, QUERY, LOAD, STORE = range(7)
# words of the head; FAULT is where the first fault's kind comes back, LANES the mask of its lane
OPERATION, ACTIVE, TABLE, DIMS, LAYERED, PART, BOUNDS, COUNT, SIZE, FAULT, LANES = range(11)
HEAD, LANE_WORDS, WARP = 16, 9, 32  # of a lane: its handle, four coordinates, four values
HANDLE, COORDINATES, VALUES = 0, 1, 5
# what a lane works with: three axes of three numbers, four results, its own words, the texels that are filtered
AXES, OUT, OWN, FILTERED, TOTAL = (HEAD + LANE_WORDS * WARP + n for n in (0, 9, 13, 22, 38))
NO_OBJECT, OUT_OF_BOUNDS, MISALIGNED = 1, 2, 3  # faults
CUBE, FACES = Flag.CUBE.value, 6
TEXTURE, SURFACE = ObjectKind.TEXTURE.value, ObjectKind.SURFACE.value


@jit(inline=True)
def extent(row, part, of_surface):
    """Width, height or depth as txq or suq tells them: layers come after the dimensions.

    An H100 tells these of images of each kind (tests/golden/textures_h100.xz).
    """
    if part == 0:
        return row[WIDTH]
    if part == 1:
        return row[HEIGHT] or row[LAYERS] or (0 if of_surface else 1)
    if row[FLAGS] & CUBE and not of_surface:
        return 0 if row[LAYERS] == FACES else row[LAYERS] // FACES
    return row[DEPTH] or (row[LAYERS] if row[HEIGHT] else 0)


@jit(inline=True)
def _access(head, row, own, layer, words, dims, values):
    """One lane's load or store of a surface: the fault."""
    wrong, address = surfaces.at(row, words, dims, layer, head[COUNT] * head[SIZE], head[BOUNDS])
    if wrong == surfaces.OUTSIDE:
        return OUT_OF_BOUNDS
    if wrong == surfaces.MISALIGNED:
        return MISALIGNED
    if head[OPERATION] == LOAD:
        surfaces.load(address, head[COUNT], head[SIZE], values)
    else:
        surfaces.store(address, head[COUNT], head[SIZE], values)
    return 0


@jit(inline=True)
def _lane(head, row, own, axes, filtered, out):
    """One lane's part: the fault, or 0."""
    operation, dims = head[OPERATION], head[DIMS]
    wanted = SURFACE if operation in (LOAD, STORE) or (operation == QUERY and head[BOUNDS]) else TEXTURE
    if row[KIND] != wanted:
        return NO_OBJECT
    values = own[VALUES:]
    layer = np.int64(np.uint32(own[COORDINATES])) if head[LAYERED] else 0
    words = own[COORDINATES + head[LAYERED] : VALUES]
    if operation in (LOAD, STORE):
        return _access(head, row, own, layer, words, dims, values)
    if operation == QUERY:
        values[0] = extent(row, head[PART], wanted == SURFACE)
        return 0
    if operation == SAMPLE:
        sample(row, words, dims, layer, axes, filtered, out)
    elif operation == FETCH:
        fetch(row, words, dims, layer, out)
    elif operation == CUBE:
        sample_cube(row, words, layer, axes, filtered, out)
    else:
        gather(row, words, layer, head[PART], axes, out)
    for n in range(4):
        values[n] = out[n]
    return 0


@jit
def _warp(words):
    head, table = words[:HEAD], carray(words_at(words[TABLE]), MOST * WORDS)
    # on the caller's stack: NumPy's own arrays would be allocated, and their references counted at every slice
    axes, out, own = words[AXES:OUT].reshape(3, 3), words[OUT:OWN], words[OWN:FILTERED]
    filtered = words[FILTERED:].reshape(2, 8)
    for lane in range(WARP):
        if not (words[ACTIVE] >> lane) & 1:
            continue
        for n in range(LANE_WORDS):
            own[n] = words[HEAD + n * WARP + lane]
        handle = own[HANDLE]
        fault = NO_OBJECT
        if 0 < handle < MOST:
            fault = _lane(head, table[handle * WORDS : (handle + 1) * WORDS], own, axes, filtered, out)
        if fault:
            words[FAULT], words[LANES] = fault, 1 << lane
            return
        for n in range(VALUES, LANE_WORDS):
            words[HEAD + n * WARP + lane] = own[n]


@cache
def warp() -> Any:
    """All lanes' parts."""

    @c_function(types.void(WORD))
    def entry(p):
        _warp(carray(p, TOTAL))

    return entry
