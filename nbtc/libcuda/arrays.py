"""CUDA arrays: texels that programs reach through textures and surfaces alone (CUDA C++ Programming Guide, "CUDA
Arrays").  They lie row by row here; a GPU's own arrangement is secret, and nothing can see it.
"""

from __future__ import annotations

from typing import NamedTuple

from nbtc.executor.texture.objects import TexelFormat, TexelImage
from nbtc.libcuda.errors import INVALID_VALUE, NOT_SUPPORTED, CudaError, say
from nbtc.libcuda.memory import Kind, memory
from nbtc.libcuda.pitched_memory import Extent, Side
from nbtc.libcuda.state import handles

LAYERED, SURFACE, CUBEMAP, GATHER = 1, 2, 4, 8  # CUDA_ARRAY3D_*
KNOWN = LAYERED | SURFACE | CUBEMAP | GATHER
FACES = 6
ROW_ALIGN = 32  # bytes that rows are multiples of, as of textures in pitched memory
# The largest widths, heights, depths and layers (CUDA C++ Programming Guide, "Technical Specifications per Compute
# Capability"): of one dimension, two, three, and with layers.
MOST = {1: (131072, 0, 0), 2: (131072, 65536, 0), 3: (16384, 16384, 16384)}
MOST_LAYERS = 2048


class Shape(NamedTuple):
    """Extents as a descriptor has them: 0 for a dimension that is not there, depth counts layers and faces too."""

    width: int
    height: int
    depth: int


class Array:
    """One array."""

    def __init__(self, shape: Shape, format: TexelFormat, channels: int, flags: int) -> None:
        width, height, depth = shape
        self.shape, self.flags = shape, flags
        layers = depth if flags & (LAYERED | CUBEMAP) else 0
        pitch = -(-width * channels * format.bytes // ROW_ALIGN) * ROW_ALIGN
        plane = pitch * max(height, 1)
        self.base = memory.allocate(plane * max(depth, 1), Kind.ARRAY)
        self.image = TexelImage(
            self.base, width, height, 0 if layers else depth, layers, pitch, plane, format, channels
        )

    def side(self, x: int, y: int, z: int, extent: Extent) -> Side:
        """The array as a side of a copy, from byte x of row y of plane z on."""
        image = self.image
        most = (image.width * image.texel, max(self.shape.height, 1), max(self.shape.depth, 1))
        if any(at + n > whole for at, n, whole in zip((x, y, z), extent, most, strict=True)):
            raise CudaError(INVALID_VALUE)
        return Side(image.base + z * image.plane + y * image.pitch + x, image.pitch, image.plane, False)


def _legal(shape: Shape, channels: int, flags: int) -> bool:
    width, height, depth = shape
    dimensions = 3 if depth and not flags & (LAYERED | CUBEMAP) else 2 if height else 1
    sizes = (width, height, depth if dimensions == 3 else 0)
    if width < 1 or channels not in (1, 2, 4) or any(n > most for n, most in zip(sizes, MOST[dimensions], strict=True)):
        return False
    if dimensions == 3 and not height:
        return False
    if flags & CUBEMAP:
        cubes = depth % FACES == 0 and depth > 0 if flags & LAYERED else depth == FACES
        return width == height and cubes
    return not flags & LAYERED or 1 <= depth <= MOST_LAYERS


def create(shape: Shape, form: int, channels: int, flags: int) -> int:
    """The handle of a new array."""
    if flags & ~KNOWN:
        say(f"CUDA arrays with flags {flags & ~KNOWN:#x} aren't there: they return CUDA_ERROR_NOT_SUPPORTED", once=True)
        raise CudaError(NOT_SUPPORTED)
    if form not in frozenset(TexelFormat) or not _legal(shape, channels, flags):
        raise CudaError(INVALID_VALUE)
    return handles.add(Array(shape, TexelFormat(form), channels, flags))


def destroy(handle: int) -> None:
    """Forget an array and its memory."""
    memory.free(handles.get(handle, Array).base, Kind.ARRAY)
    handles.drop(handle)
