"""CUDA arrays (CUDA Runtime API, "Memory Management")."""

from __future__ import annotations

import struct

from nbtc.executor.texture.objects import TexelFormat
from nbtc.libcuda import host
from nbtc.libcuda.arrays import Array, Shape, create, destroy
from nbtc.libcuda.driver.arrays import copy_lines, lines
from nbtc.libcuda.errors import INVALID_VALUE, SUCCESS, CudaError
from nbtc.libcuda.pitched_memory import Extent, Side
from nbtc.libcuda.registry import runtime, runtime_as
from nbtc.libcuda.rows import Extent as Cube
from nbtc.libcuda.runtime.copies import sides, submit_rows
from nbtc.libcuda.state import handles
from nbtc.libcuda.streams import unsafe_in_capture

CHANNELS = struct.Struct("<5i")  # cudaChannelFormatDesc: bits of x, y, z and w, and the kind
SIGNED, UNSIGNED, FLOAT = range(3)  # cudaChannelFormatKind
FORMATS = {
    (8, UNSIGNED): TexelFormat.U8, (16, UNSIGNED): TexelFormat.U16, (32, UNSIGNED): TexelFormat.U32,
    (8, SIGNED): TexelFormat.S8, (16, SIGNED): TexelFormat.S16, (32, SIGNED): TexelFormat.S32,
    (16, FLOAT): TexelFormat.F16, (32, FLOAT): TexelFormat.F32,
}  # fmt: skip
KINDS = {form: key for key, form in FORMATS.items()}


def channels_of(raw: bytes) -> tuple[TexelFormat, int]:
    """The format and number of the channels of a cudaChannelFormatDesc."""
    *bits, kind = CHANNELS.unpack(raw)
    count = sum(map(bool, bits))
    form = FORMATS.get((bits[0], kind))
    if form is None or count not in (1, 2, 4) or bits != [bits[0]] * count + [0] * (4 - count):
        raise CudaError(INVALID_VALUE)
    return form, count


def channel_words(found: Array) -> bytes:
    """The inverse."""
    bits, kind = KINDS[found.image.format]
    count = found.image.channels
    return CHANNELS.pack(*[bits] * count, *[0] * (4 - count), kind)


@runtime
def cudaCreateChannelDesc(out: int, x: int, y: int, z: int, w: int, kind: int) -> int:
    """A structure of 20 bytes comes back where the caller wants it (System V ABI for AMD64, "Returning of Values")."""
    host.write(out, CHANNELS.pack(x, y, z, w, kind))
    return out


def _put(out: int, channels: int, shape: Shape, flags: int) -> int:
    unsafe_in_capture()
    form, count = channels_of(host.read(channels, CHANNELS.size))
    host.given64(out, create(shape, form, count, flags))
    return SUCCESS


@runtime
def cudaMallocArray(out: int, channels: int, width: int, height: int, flags: int) -> int:
    return _put(out, channels, Shape(width, height, 0), flags)


@runtime
def cudaMalloc3DArray(out: int, channels: int, extent: Cube, flags: int) -> int:
    return _put(out, channels, Shape(extent.width, extent.height, extent.depth), flags)


@runtime
def cudaFreeArray(handle: int) -> None:
    if handle:
        unsafe_in_capture()
        destroy(handle)


@runtime
def cudaGetChannelDesc(out: int, handle: int) -> None:
    host.write(out, channel_words(handles.get(handle, Array)))


@runtime
def cudaArrayGetInfo(channels: int, extent: int, flags: int, handle: int) -> None:
    found = handles.get(handle, Array)
    if channels:
        host.write(channels, channel_words(found))
    if extent:
        for n, value in enumerate(found.shape):
            host.put64(extent + 8 * n, value)
    if flags:
        host.put32(flags, found.flags)


# --- copies -----------------------------------------------------------------------------------------------------------
def _part(handle: int, x: int, y: int, extent: Extent) -> Side:
    return handles.get(handle, Array).side(x, y, 0, extent)


@runtime_as("cudaMemcpy2DToArray", "cudaMemcpy2DToArrayAsync")
def cudaMemcpy2DToArray(array, x, y, source, pitch, width, height, kind, stream=0):
    extent = Extent(width, height, 1)
    submit_rows(_part(array, x, y, extent), Side(source, pitch, 0, sides(kind)[1]), extent, stream)


@runtime_as("cudaMemcpy2DFromArray", "cudaMemcpy2DFromArrayAsync")
def cudaMemcpy2DFromArray(target, pitch, array, x, y, width, height, kind, stream=0):
    extent = Extent(width, height, 1)
    submit_rows(Side(target, pitch, 0, sides(kind)[0]), _part(array, x, y, extent), extent, stream)


@runtime
def cudaMemcpy2DArrayToArray(to, x, y, source, from_x, from_y, width, height, kind):
    extent = Extent(width, height, 1)
    submit_rows(_part(to, x, y, extent), _part(source, from_x, from_y, extent), extent, 0)


@runtime_as("cudaMemcpyToArray", "cudaMemcpyToArrayAsync")
def cudaMemcpyToArray(array, x, y, source, size, kind, stream=0):
    copy_lines(lines(array, x, y, size), source, sides(kind)[1], True, stream)


@runtime_as("cudaMemcpyFromArray", "cudaMemcpyFromArrayAsync")
def cudaMemcpyFromArray(target, array, x, y, size, kind, stream=0):
    copy_lines(lines(array, x, y, size), target, sides(kind)[0], False, stream)
