"""One lane's read of a texture: where its coordinates lie, which texels those are, what comes of them.

(PTX ISA, "tex", "tld4"; CUDA C++ Programming Guide, "Texture Fetching".)  What the guides leave open was fitted to
what an H100 returned (tests/golden/textures_h100.xz): normalised coordinates are cut to 21 bits of fraction, a texture
of one dimension is the line at y = 0 of one with two, with the border around it.
"""

from __future__ import annotations

import numpy as np

from nbtc.compiler.jit import jit
from nbtc.executor.texture.filtering import ONE, filtered_floats, filtered_fractions, plane_weights
from nbtc.executor.texture.objects import (
    BASE,
    BORDER,
    CHANNELS,
    DEPTH,
    FLAGS,
    FORMAT,
    HEIGHT,
    LAYERS,
    MODE,
    PITCH,
    PLANE,
    WIDTH,
    Flag,
    Mode,
    TexelFormat,
)
from nbtc.executor.transfer.tma import load8, load16, load32
from nbtc.numerics.ieee import bits32, bits64, f16_to_f32, f32_of, f32_to_f16

FINEST = 2.0**21  # what normalised coordinates are multiples of, inverted
FAR = 2.0**32  # coordinates beyond are as these: no texture is as large, and none is odd
OUTSIDE = -1
U8, U16, U32, S8, S16, S32, F16, F32 = (f.value for f in TexelFormat)
WRAP, CLAMP, MIRROR, AROUND = (m.value for m in Mode)
LINEAR, NORMALIZED, INTEGER, MEMORY = (f.value for f in (Flag.LINEAR, Flag.NORMALIZED, Flag.INTEGER, Flag.MEMORY))


@jit(inline=True)
def is_negative(x):
    """Whether a double has its sign bit set."""
    return np.int64(bits64(x)) < 0


@jit(inline=True)
def cut(x):
    """A normalised coordinate as the unit takes it."""
    return np.floor(x * FINEST) / FINEST


@jit(inline=True)
def mode_of(row, d):
    """How a dimension goes on outside; only normalised coordinates repeat."""
    mode = row[MODE + d]
    return mode if row[FLAGS] & NORMALIZED or mode == AROUND else CLAMP


@jit(inline=True)
def position_of(row, d, word, size):
    """A float coordinate in texels; what is far outside is at 0 where the texture repeats."""
    x = np.float64(f32_of(np.uint32(word)))
    periodic = mode_of(row, d) in (WRAP, MIRROR)
    if np.isnan(x) or abs(x) < 2.0**-126 or (periodic and abs(x) >= FAR):  # subnormal numbers count as zero
        return 0.0
    if row[FLAGS] & NORMALIZED:
        x = cut(min(max(x, -FAR), FAR)) * size
    return x if periodic else min(max(x, -FAR), FAR)


@jit(inline=True)
def index(i, size, mode):
    """The texel that is read for texel i, OUTSIDE for the border."""
    if 0 <= i < size:
        return i
    if mode == AROUND:
        return OUTSIDE
    if mode == CLAMP:
        return 0 if i < 0 else size - 1
    if mode == WRAP:
        return i % size
    i %= 2 * size
    return i if i < size else 2 * size - 1 - i


@jit(inline=True)
def channel(row, x, y, z, c):
    """The bits of a texel's channel, integers as their values; those of a row's border where a number is OUTSIDE."""
    format = row[FORMAT]
    if min(x, y, z) == OUTSIDE:
        return border(row, c)
    size = 1 if format in (U8, S8) else 2 if format in (U16, S16, F16) else 4
    at = row[BASE] + z * row[PLANE] + y * row[PITCH] + (x * row[CHANNELS] + c) * size
    if format == U8:
        return np.int64(load8(at))
    if format == S8:
        return np.int64(np.int8(load8(at)))
    if format == S16:
        return np.int64(np.int16(load16(at)))
    return np.int64(load16(at)) if size == 2 else np.int64(load32(at))


@jit(inline=True)
def _cut_to_f16(bits):
    """f32 bits to f16 bits, rounded to zero."""
    near = f32_to_f16(bits)
    return near - 1 if (f16_to_f32(near) & 0x7FFFFFFF) > (bits & 0x7FFFFFFF) else near


@jit(inline=True)
def border(row, c):
    """The border's colour as a texel's channel has it."""
    format, bits = row[FORMAT], row[BORDER + c]
    x = np.float64(f32_of(np.uint32(bits)))
    if row[FLAGS] & INTEGER and format in (U8, U16, S8, S16):  # its low bits
        if format in (S8, S16):
            return np.int64(np.int8(bits)) if format == S8 else np.int64(np.int16(bits))
        return bits & (0xFF if format == U8 else 0xFFFF)
    if format in (U32, S32, F32):
        return bits
    if format == F16:
        return _cut_to_f16(bits)
    most = 255 if format == U8 else 65535 if format == U16 else 127 if format == S8 else 32767
    return np.int64(x * most)  # 0 or 1: others are refused


@jit(inline=True)
def as_word(value, format, integer):
    """What a point read of a channel returns: 32 bits."""
    if format in (U32, S32, F32) or integer:
        return np.uint32(value)
    if format == F16:
        if value & 0x7C00 == 0x7C00:  # a NaN keeps its bits
            return np.uint32((value & 0x8000) << 16 | 0x7F800000 | (value & 0x3FF) << 13)
        return np.uint32(f16_to_f32(value))
    most = 255.0 if format == U8 else 65535.0 if format == U16 else 127.0 if format == S8 else 32767.0
    return bits32(np.float32(max(value / most, -1.0)))


@jit(inline=True)
def between(row, d, u, size, axis):
    """Into axis: the two texels around a position, and the weight of the second in 256ths."""
    mode = mode_of(row, d)
    q = np.int64(np.floor(u * ONE + 0.5)) - ONE // 2
    axis[0], axis[1], axis[2] = index(q >> 8, size, mode), index((q >> 8) + 1, size, mode), q & ONE - 1


@jit(inline=True)
def place(row, d, u, size, axis):
    """As `between`, or of textures that are not filtered the texel at a position."""
    if row[FLAGS] & LINEAR:
        inside = min(max(u, 0.5), size - 0.5) if mode_of(row, d) == CLAMP else u
        return between(row, d, inside, size, axis)
    axis[0] = axis[1] = index(np.int64(np.floor(u)), size, mode_of(row, d))
    axis[2] = 0


@jit(inline=True)
def fetch(row, words, dims, layer, out):
    """The texel at whole numbers; zeros outside, and everywhere in a line that is an array of one dimension."""
    out[:] = 0
    x, y, z = np.int32(words[0]), np.int32(words[1]) if dims > 1 else 0, np.int32(words[2]) if dims > 2 else 0
    layers = row[LAYERS]
    inside = 0 <= x < row[WIDTH] and 0 <= y < max(row[HEIGHT], 1) and 0 <= z < max(row[DEPTH], 1)
    if not inside or (layers and layer >= layers) or (dims == 1 and not layers and not row[FLAGS] & MEMORY):
        return
    for c in range(row[CHANNELS]):
        bits = channel(row, x, y, layer if layers else z, c)
        out[c] = as_word(bits, row[FORMAT], row[FLAGS] & INTEGER)


@jit(inline=True)
def sample(row, words, dims, layer, axes, filtered, out):
    """A read of a texture of `dims` dimensions at words[0:dims], in a layer (0 where it has none), into 4 words."""
    layer = min(layer, max(row[LAYERS] - 1, 0))
    sizes = (row[WIDTH], max(row[HEIGHT], 1), max(row[DEPTH], 1))
    for d in range(max(dims, 2)):
        place(row, d, position_of(row, d, words[d] if d < dims else 0, sizes[d]), sizes[d], axes[d])
    if dims < 3:
        axes[2, 0] = axes[2, 1] = layer
    combine(row, axes, dims == 3, filtered, out)


@jit(inline=True)
def sample_cube(row, words, layer, axes, filtered, out):
    """A read of the face of a cube that a direction meets, as of a plane; an edge ends it."""
    n = row[WIDTH]
    face, s, t = face_of(
        np.float64(f32_of(np.uint32(words[0]))),
        np.float64(f32_of(np.uint32(words[1]))),
        np.float64(f32_of(np.uint32(words[2]))),
    )
    place(row, 0, cut(s) * n, n, axes[0])
    place(row, 1, cut(t) * n, n, axes[1])
    axes[2, 0] = axes[2, 1] = 6 * min(layer, max(row[LAYERS] // 6 - 1, 0)) + face
    combine(row, axes, False, filtered, out)


@jit(inline=True)
def face_of(x, y, z):
    """The face of a cube that a direction meets, and where: from 0 to 1.

    (CUDA C++ Programming Guide, "Cubemap Textures".)  An infinite one counts as one without a direction.
    """
    if np.isinf(x) or np.isinf(y) or np.isinf(z):
        x = y = z = 0.0
    if abs(z) >= abs(x) and abs(z) >= abs(y):
        face, across, down, along = (5 if is_negative(z) else 4), (-x if is_negative(z) else x), -y, abs(z)
    elif abs(y) >= abs(x):
        face, across, down, along = (3 if is_negative(y) else 2), x, (-z if is_negative(y) else z), abs(y)
    else:
        face, across, down, along = (1 if is_negative(x) else 0), (z if is_negative(x) else -z), -y, abs(x)
    s, t = across / along, down / along
    return face, 0.5 if np.isnan(s) else (s + 1) / 2, 0.5 if np.isnan(t) else (t + 1) / 2


@jit(inline=True)
def gather(row, words, layer, component, axes, out):
    """One channel of the four texels that a filtered read would take: from the lower left, against the clock."""
    layer = min(layer, max(row[LAYERS] - 1, 0))
    sizes = (row[WIDTH], max(row[HEIGHT], 1))
    for d in range(2):
        between(row, d, position_of(row, d, words[d], sizes[d]), sizes[d], axes[d])
    for n in range(4):
        x, y = axes[0, 1 if n in (1, 2) else 0], axes[1, 1 if n < 2 else 0]
        bits = channel(row, x, y, layer, component) if component < row[CHANNELS] else 0
        out[n] = as_word(bits, row[FORMAT], row[FLAGS] & INTEGER)


@jit(inline=True)
def combine(row, axes, two, filtered, out):
    """What the texels of three axes make together; filtered: buffer for the texels of two planes and their weights."""
    format, integer = row[FORMAT], row[FLAGS] & INTEGER
    out[:] = 0
    if not row[FLAGS] & LINEAR or integer or format in (U32, S32):
        for c in range(row[CHANNELS]):
            out[c] = as_word(channel(row, axes[0, 0], axes[1, 0], axes[2, 0], c), format, integer)
        return
    texels, weights = filtered[0], filtered[1]
    z = axes[2, 2] if two else 0
    planes = 2 if z else 1
    each = 4 if axes[0, 2] or axes[1, 2] or z else 1  # coordinates are often a texel's own
    for k in range(planes):
        plane_weights(axes[0, 2], axes[1, 2], z if k else ONE - z, weights[4 * k :])
    for c in range(row[CHANNELS]):
        for n in range(4 * (planes - 1) + each):  # those at a distance of 0, not those whose weight is rounded to 0
            i, j, k = n & 1, n >> 1 & 1, n >> 2
            used = (axes[0, 2] or not i) and (axes[1, 2] or not j) and (z or not k)
            texels[n] = channel(row, axes[0, i], axes[1, j], axes[2, k], c) if used else 0
        if format in (F16, F32):
            value = filtered_floats(texels, weights, planes, each, format == F16)
        else:
            value = filtered_fractions(texels, weights, 4 * (planes - 1) + each, format)
        out[c] = bits32(value)
