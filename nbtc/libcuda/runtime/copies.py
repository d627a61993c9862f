"""Copies and fills (CUDA Runtime API, "Memory Management")."""

from __future__ import annotations

from nbtc.libcuda import host
from nbtc.libcuda.arrays import Array
from nbtc.libcuda.driver.copies import copy_rows, submit_copy, submit_fill, submit_fill_rows
from nbtc.libcuda.errors import INVALID_VALUE, CudaError
from nbtc.libcuda.pitched_memory import Extent, Side
from nbtc.libcuda.registry import runtime_as
from nbtc.libcuda.rows import Extent as Cube
from nbtc.libcuda.rows import Pitched
from nbtc.libcuda.runtime.registration import symbol
from nbtc.libcuda.state import handles
from nbtc.libcuda.streams import NodeKind, stream_of, submit, synchronous

# cudaMemcpyKind: which sides are the device's; the default takes what the addresses say
SIDES = {0: (False, False), 1: (True, False), 2: (False, True), 3: (True, True), 4: (False, False)}
INVALID_DIRECTION = 21  # cudaErrorInvalidMemcpyDirection


def sides(kind: int) -> tuple[bool, bool]:
    """Which sides have to be the device's memory."""
    found = SIDES.get(kind)
    if found is None:
        raise CudaError(INVALID_DIRECTION)
    return found


def _waits(stream: int) -> int:
    """A copy that waits can't be captured."""
    synchronous(stream_of(stream))
    return stream


@runtime_as("cudaMemcpy")
def cudaMemcpy(target: int, source: int, size: int, kind: int) -> None:
    submit_copy(target, source, size, _waits(0), sides(kind))


@runtime_as("cudaMemcpyAsync")
def cudaMemcpyAsync(target: int, source: int, size: int, kind: int, stream: int) -> None:
    submit_copy(target, source, size, stream, sides(kind))


@runtime_as("cudaMemcpyToSymbol", "cudaMemcpyToSymbolAsync")
def cudaMemcpyToSymbol(name: int, source: int, size: int, offset: int, kind: int, stream: int = 0) -> None:
    address, count = symbol(name)
    if offset + size > count:
        raise CudaError(INVALID_VALUE)
    submit_copy(address + offset, source, size, stream, (True, sides(kind)[1]))


@runtime_as("cudaMemcpyFromSymbol", "cudaMemcpyFromSymbolAsync")
def cudaMemcpyFromSymbol(target: int, name: int, size: int, offset: int, kind: int, stream: int = 0) -> None:
    address, count = symbol(name)
    if offset + size > count:
        raise CudaError(INVALID_VALUE)
    submit_copy(target, address + offset, size, stream, (sides(kind)[0], True))


@runtime_as("cudaMemcpy2D", "cudaMemcpy2DAsync")
def cudaMemcpy2DAsync(to, to_pitch, source, pitch, width, height, kind, stream=0):
    writes, reads = sides(kind)
    target, origin = Side(to, to_pitch, 0, writes), Side(source, pitch, 0, reads)
    submit_rows(target, origin, Extent(width, height, 1), stream)


def submit_rows(target: Side, source: Side, extent: Extent, stream: int) -> None:
    """A copy of rows, or a node of a graph."""
    submit(stream, NodeKind.MEMCPY, lambda: copy_rows(target, source, extent), (target, source, extent))


def rows_of(at: int) -> tuple[Side, Side, Extent]:
    """cudaMemcpy3DParms: array, position and pitched pointer of each side, the extent, the kind.

    Where an array takes part, its positions and the extent's width count its texels, not bytes.
    """
    words = host.words(at, 19)
    writes, reads = sides(host.u32(at + 152))
    arrays = [handles.get(words[n], Array) if words[n] else None for n in (8, 0)]
    texel = next((a.image.texel for a in arrays if a is not None), 1)
    extent, made = Extent(words[16] * texel, *words[17:19]), []
    for array, first, device in zip(arrays, (8, 0), (writes, reads), strict=True):
        _, x, y, z, pointer, pitch, _, height = words[first : first + 8]
        if array is not None:
            made.append(array.side(x * array.image.texel, y, z, extent))
        else:
            made.append(Side(pointer + (z * height + y) * pitch + x, pitch, pitch * height, device))
    return made[0], made[1], extent


@runtime_as("cudaMemcpy3D", "cudaMemcpy3DAsync")
def cudaMemcpy3DAsync(at: int, stream: int = 0) -> None:
    submit_rows(*rows_of(at), stream)


@runtime_as("cudaMemset", "cudaMemsetAsync")
def cudaMemsetAsync(target: int, value: int, count: int, stream: int = 0) -> None:
    submit_fill(target, value, 1, count, stream)


@runtime_as("cudaMemset2D", "cudaMemset2DAsync")
def cudaMemset2DAsync(target: int, pitch: int, value: int, width: int, height: int, stream: int = 0) -> None:
    submit_fill_rows(Side(target, pitch, 0, True), value, 1, Extent(width, height, 1), stream)


@runtime_as("cudaMemset3D", "cudaMemset3DAsync")
def cudaMemset3DAsync(target: Pitched, value: int, extent: Cube, stream: int = 0) -> None:
    side = Side(target.pointer, target.pitch, target.pitch * target.ysize, True)
    submit_fill_rows(side, value, 1, Extent(extent.width, extent.height, extent.depth), stream)
