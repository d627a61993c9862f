"""Copies and fills (CUDA Driver API, "Memory Management"): every range is checked before a byte moves."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Protocol

from nbtc.libcuda import host
from nbtc.libcuda.errors import INVALID_HANDLE, INVALID_VALUE, CudaError
from nbtc.libcuda.memory import copy, fill, memory
from nbtc.libcuda.pitched_memory import Extent, Side
from nbtc.libcuda.registry import DRIVER, driver_as
from nbtc.libcuda.state import handles
from nbtc.libcuda.streams import LEGACY, NodeKind, submit

HOST, DEVICE, ARRAY, UNIFIED = 1, 2, 3, 4  # CUmemorytype
MOST_ROWS = 1 << 31
ATTRIBUTES = 24  # bytes of CUmemcpyAttributes, which begins with the order in which sources are read:
SOURCE_ORDERS = (1, 2, 3)  # CUmemcpySrcAccessOrder: in the stream's, during the call, any


def submit_copy(target: int, source: int, size: int, stream: int, device: tuple[bool, bool]) -> None:
    """A copy, or a node of a graph."""
    if not size:
        return
    submit(stream, NodeKind.MEMCPY, lambda: copy(target, source, size, device), (target, source, size))


def _plain(device: tuple[bool, bool]) -> Callable[..., None]:
    def copied(target: int, source: int, size: int, stream: int = 0) -> None:
        submit_copy(target, source, size, stream, device)

    return copied


for _name, _device in (
    ("cuMemcpy", (False, False)), ("cuMemcpyAsync", (False, False)), ("cuMemcpyHtoD_v2", (True, False)),
    ("cuMemcpyHtoDAsync_v2", (True, False)), ("cuMemcpyDtoH_v2", (False, True)),
    ("cuMemcpyDtoHAsync_v2", (False, True)), ("cuMemcpyDtoD_v2", (True, True)), ("cuMemcpyDtoDAsync_v2", (True, True)),
):  # fmt: skip
    DRIVER[_name] = _plain(_device)


@driver_as("cuMemcpyPeer", "cuMemcpyPeerAsync")
def cuMemcpyPeer(target: int, to: int, source: int, of: int, size: int, stream: int = 0) -> None:
    submit_copy(target, source, size, stream, (True, True))


@driver_as("cuMemcpyBatchAsync_v2")
def cuMemcpyBatchAsync(
    targets: int, sources: int, sizes: int, count: int, attributes: int, firsts: int, kinds: int, stream: int
) -> None:
    """Copies between addresses, each with a set of attributes; the locations in these are hints."""
    given = list(zip(host.words(targets, count), host.words(sources, count), host.words(sizes, count), strict=True))
    begins = host.words(firsts, kinds)
    if not 0 < len(begins) <= count or begins[0] or sorted({*begins}) != list(begins) or begins[-1] >= count:
        raise CudaError(INVALID_VALUE)
    if stream in (0, LEGACY) or any(host.u32(attributes + i * ATTRIBUTES) not in SOURCE_ORDERS for i in range(kinds)):
        raise CudaError(INVALID_VALUE)
    for target, source, size in given:
        submit_copy(target, source, size, stream, (False, False))


@driver_as("cuMemcpyBatchAsync")
def cuMemcpyBatchAsync_12080(
    targets: int, sources: int, sizes: int, count: int, attributes: int, firsts: int, kinds: int, failed: int,
    stream: int,
) -> None:  # fmt: skip
    """The function of CUDA 12.8, which also says which copy is wrong: SIZE_MAX where it is not one of them."""
    if failed:
        host.put64(failed, (1 << 64) - 1)
    cuMemcpyBatchAsync(targets, sources, sizes, count, attributes, firsts, kinds, stream)


def copy_rows(target: Side, source: Side, extent: Extent) -> None:
    """Copy row by row, or all at once where the rows lie side by side."""
    width, height, depth = extent
    if not width or not height or not depth:
        return
    if height * depth > MOST_ROWS:
        raise CudaError(INVALID_VALUE)
    for side in (target, source):
        if (height > 1 and side.pitch < width) or side.pitch < 0:
            raise CudaError(INVALID_VALUE)
    if target.pitch == source.pitch == width and (depth == 1 or target.plane == source.plane == width * height):
        copy(target.first, source.first, width * height * depth, (target.device, source.device))
        return
    last = [side.row(height - 1, depth - 1) + width for side in (target, source)]
    whole = [memory.everywhere(s.first, e - s.first) for s, e in zip((target, source), last, strict=True)]
    if any(side.device and not known for side, known in zip((target, source), whole, strict=True)):
        raise CudaError(INVALID_VALUE)
    move = ctypes.memmove if all(whole) else copy
    for z in range(depth):
        for y in range(height):
            move(target.row(y, z), source.row(y, z), width)


class Sided(Protocol):
    """What has a side of a copy of its own: a CUDA array."""

    def side(self, x: int, y: int, z: int, extent: Extent) -> Side:
        """From byte x of row y of plane z on."""


def _base(kind: int, on_host: int, on_device: int) -> int:
    if kind not in (HOST, DEVICE, UNIFIED):
        raise CudaError(INVALID_VALUE)
    return on_host if kind == HOST else on_device


def _array(handle: int) -> Sided:
    found: Any = handles.objects.get(handle)
    if not hasattr(found, "side"):
        raise CudaError(INVALID_HANDLE)
    made: Sided = found
    return made


def _side_2d(at: int, extent: Extent) -> Side:
    """x in bytes, y, type, host, device, array, pitch of a CUDA_MEMCPY2D."""
    x, y, kind, on_host, on_device, array, pitch = host.words(at, 7)
    kind &= 0xFFFFFFFF
    if kind == ARRAY:
        return _array(array).side(x, y, 0, extent)
    pitch = pitch or extent.width
    return Side(_base(kind, on_host, on_device) + y * pitch + x, pitch, 0, kind == DEVICE)


@driver_as("cuMemcpy2D_v2", "cuMemcpy2DUnaligned_v2", "cuMemcpy2DAsync_v2")
def cuMemcpy2D(at: int, stream: int = 0) -> None:
    width, height = host.words(at + 112, 2)
    extent = Extent(width, height, 1)
    source, target = _side_2d(at, extent), _side_2d(at + 56, extent)
    submit(stream, NodeKind.MEMCPY, lambda: copy_rows(target, source, extent), (target, source, extent))


def _side_3d(at: int, extent: Extent) -> Side:
    """x in bytes, y, z, level, type, host, device, array, reserved, pitch, height of a CUDA_MEMCPY3D."""
    x, y, z, _, kind, on_host, on_device, array, _, pitch, height = host.words(at, 11)
    kind &= 0xFFFFFFFF
    if kind == ARRAY:
        return _array(array).side(x, y, z, extent)
    pitch, height = pitch or extent.width, height or extent.height
    first = _base(kind, on_host, on_device) + (z * height + y) * pitch + x
    return Side(first, pitch, pitch * height, kind == DEVICE)


def copy_3d(at: int) -> tuple[Side, Side, Extent]:
    """What a CUDA_MEMCPY3D says."""
    extent = Extent(*host.words(at + 176, 3))
    return _side_3d(at + 88, extent), _side_3d(at, extent), extent


@driver_as("cuMemcpy3D_v2", "cuMemcpy3DAsync_v2")
def cuMemcpy3D(at: int, stream: int = 0) -> None:
    target, source, extent = copy_3d(at)
    submit(stream, NodeKind.MEMCPY, lambda: copy_rows(target, source, extent), (target, source, extent))


def submit_fill(target: int, value: int, width: int, count: int, stream: int) -> None:
    """A fill, or a node of a graph."""
    if target % width or count < 0:
        raise CudaError(INVALID_VALUE)
    submit(stream, NodeKind.MEMSET, lambda: fill(target, value, width, count), (target, value, width, count))


def fill_rows(target: Side, value: int, width: int, extent: Extent) -> None:
    """Fill rows of elements; the extent's width counts elements."""
    if not (extent.width and extent.height and extent.depth):
        return
    if extent.height > MOST_ROWS or (extent.height > 1 and target.pitch < width * extent.width):
        raise CudaError(INVALID_VALUE)
    rows = (extent.height - 1) * target.pitch + (extent.depth - 1) * target.plane
    memory.inside(target.first, rows + width * extent.width)
    for z in range(extent.depth):
        for y in range(extent.height):
            fill(target.row(y, z), value, width, extent.width)


def submit_fill_rows(target: Side, value: int, width: int, extent: Extent, stream: int) -> None:
    """A fill of rows, or a node of a graph."""
    run = lambda: fill_rows(target, value, width, extent)  # noqa: E731
    submit(stream, NodeKind.MEMSET, run, (target, value, width, extent))


def _fills(width: int) -> tuple[Callable[..., None], Callable[..., None]]:
    def plain(target: int, value: int, count: int, stream: int = 0) -> None:
        submit_fill(target, value, width, count, stream)

    def rows(target: int, pitch: int, value: int, columns: int, count: int, stream: int = 0) -> None:
        submit_fill_rows(Side(target, pitch, 0, True), value, width, Extent(columns, count, 1), stream)

    return plain, rows


for _width in (1, 2, 4):
    _plain_fill, _row_fill = _fills(_width)
    for _end in ("_v2", "Async"):
        DRIVER[f"cuMemsetD{8 * _width}{_end}"] = _plain_fill
        DRIVER[f"cuMemsetD2D{8 * _width}{_end}"] = _row_fill
