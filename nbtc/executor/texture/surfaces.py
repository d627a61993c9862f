"""One lane's access of a surface: texels as bytes.  (PTX ISA, "suld", "sust".)"""

from __future__ import annotations

import numpy as np

from nbtc.compiler.jit import jit
from nbtc.executor.texture.objects import BASE, CHANNELS, DEPTH, FORMAT, HEIGHT, LAYERS, PITCH, PLANE, WIDTH
from nbtc.executor.texture.sampling import F16, S8, S16, U8, U16
from nbtc.executor.transfer.tma import load_element, store_element

TRAP, CLAMP, ZERO = range(3)  # what an access outside does
FINE, OUTSIDE, MISALIGNED = range(3)
NOWHERE = 0  # an address


@jit(inline=True)
def texel_bytes(row):
    """Of a texel of a row's image."""
    format = row[FORMAT]
    return row[CHANNELS] * (1 if format in (U8, S8) else 2 if format in (U16, S16, F16) else 4)


@jit(inline=True)
def at(row, words, dims, layer, size, bounds):
    """(what is wrong, address) of `size` bytes at x bytes into a line; NOWHERE for what is left out."""
    x, y, z = np.int32(words[0]), np.int32(words[1]) if dims > 1 else 0, np.int32(words[2]) if dims > 2 else 0
    width, height, depth = row[WIDTH] * texel_bytes(row), max(row[HEIGHT], 1), max(row[DEPTH], 1)
    if x % size:
        return MISALIGNED, NOWHERE
    if row[LAYERS]:
        z, depth = layer, row[LAYERS]
    if not (0 <= x < width and 0 <= y < height and 0 <= z < depth):
        if bounds != CLAMP:
            return OUTSIDE if bounds == TRAP else FINE, NOWHERE
        x, y = min(max(x, 0), width - size), min(max(y, 0), height - 1)
        z = min(max(z, 0), depth - 1)
    return FINE, row[BASE] + z * row[PLANE] + y * row[PITCH] + x


@jit(inline=True)
def load(address, count, size, out):
    """`count` elements of `size` bytes; zeros from nowhere."""
    for n in range(count):
        out[n] = 0 if address == NOWHERE else np.int64(load_element(address + n * size, size))


@jit(inline=True)
def store(address, count, size, values):
    """The inverse; nothing to nowhere."""
    if address != NOWHERE:
        for n in range(count):
            store_element(address + n * size, size, np.uint64(values[n]))
