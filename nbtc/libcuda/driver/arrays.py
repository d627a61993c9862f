"""CUDA arrays (CUDA Driver API, "Memory Management")."""

from __future__ import annotations

from nbtc.libcuda import host
from nbtc.libcuda.arrays import Array, Shape, create, destroy
from nbtc.libcuda.driver.copies import copy_rows
from nbtc.libcuda.errors import INVALID_VALUE, CudaError
from nbtc.libcuda.pitched_memory import Extent, Side
from nbtc.libcuda.registry import driver, driver_as
from nbtc.libcuda.state import handles
from nbtc.libcuda.streams import NodeKind, submit, unsafe_in_capture


@driver
def cuArrayCreate_v2(out: int, at: int) -> None:
    """CUDA_ARRAY_DESCRIPTOR: width, height, format, channels."""
    width, height = host.words(at, 2)
    form, channels = host.halves(at + 16, 2)
    unsafe_in_capture()
    host.given64(out, create(Shape(width, height, 0), form, channels, 0))


@driver
def cuArray3DCreate_v2(out: int, at: int) -> None:
    """CUDA_ARRAY3D_DESCRIPTOR: width, height, depth, format, channels, flags."""
    shape = Shape(*host.words(at, 3))
    form, channels, flags = host.halves(at + 24, 3)
    unsafe_in_capture()
    host.given64(out, create(shape, form, channels, flags))


@driver
def cuArrayDestroy(handle: int) -> None:
    unsafe_in_capture()
    destroy(handle)


@driver
def cuArrayGetDescriptor_v2(out: int, handle: int) -> None:
    found = handles.get(handle, Array)
    for n, value in enumerate(found.shape[:2]):
        host.put64(out + 8 * n, value)
    for n, value in enumerate((found.image.format, found.image.channels)):
        host.put32(out + 16 + 4 * n, value)


@driver
def cuArray3DGetDescriptor_v2(out: int, handle: int) -> None:
    found = handles.get(handle, Array)
    for n, value in enumerate(found.shape):
        host.put64(out + 8 * n, value)
    for n, value in enumerate((found.image.format, found.image.channels, found.flags)):
        host.put32(out + 24 + 4 * n, value)


# --- lines of an array ------------------------------------------------------------------------------------------------
def lines(handle: int, x: int, y: int, size: int) -> list[tuple[Side, int]]:
    """`size` bytes of an array from byte x of row y on, row after row: sides of copies, and their bytes."""
    found = handles.get(handle, Array)
    width, made = found.image.width * found.image.texel, []
    if x > width:
        raise CudaError(INVALID_VALUE)
    while size:
        count = min(size, width - x)
        made.append((found.side(x, y, 0, Extent(count, 1, 1)), count))
        size, x, y = size - count, 0, y + 1
    return made


def copy_lines(of_array: list[tuple[Side, int]], other: int, device: bool, writes: bool, stream: int) -> None:
    """Between lines of an array and memory; writes: to the array."""

    def run() -> None:
        at = other
        for side, count in of_array:
            sides = side, Side(at, count, 0, device)
            copy_rows(*(sides if writes else sides[::-1]), Extent(count, 1, 1))
            at += count

    submit(stream, NodeKind.MEMCPY, run, (of_array, other, writes))


@driver_as("cuMemcpyHtoA_v2", "cuMemcpyHtoAAsync_v2")
def cuMemcpyHtoA(array: int, offset: int, source: int, size: int, stream: int = 0) -> None:
    copy_lines(lines(array, offset, 0, size), source, False, True, stream)


@driver_as("cuMemcpyAtoH_v2", "cuMemcpyAtoHAsync_v2")
def cuMemcpyAtoH(target: int, array: int, offset: int, size: int, stream: int = 0) -> None:
    copy_lines(lines(array, offset, 0, size), target, False, False, stream)


@driver_as("cuMemcpyDtoA_v2")
def cuMemcpyDtoA(array: int, offset: int, source: int, size: int) -> None:
    copy_lines(lines(array, offset, 0, size), source, True, True, 0)


@driver_as("cuMemcpyAtoD_v2")
def cuMemcpyAtoD(target: int, array: int, offset: int, size: int) -> None:
    copy_lines(lines(array, offset, 0, size), target, True, False, 0)
