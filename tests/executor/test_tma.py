"""Tensor maps, and tiles between arrays and swizzled shared memory."""

import numpy as np
import pytest

import nbtc
from nbtc import errors
from nbtc.executor.tma import FINE, LOAD, MISALIGNED, NEGATIVE, OUTSIDE, REDUCE, STORE, tile_copy


def aligned(shape, dtype):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 1024, np.uint8)
    start = -raw.ctypes.data % 1024
    return raw[start : start + size].view(dtype).reshape(shape)


def run(kind, array, tile_map, start, shared, op=0):
    """Copy a tile; (what went wrong, bytes)."""
    words = np.frombuffer(bytes(tile_map), np.uint8)
    regions = np.array([array.ctypes.data, array.nbytes, 1], np.int64)
    at = np.array([*start, *[0] * (5 - len(start))], np.int64)
    status = np.zeros(2, np.int64)
    return tile_copy(kind, op, words.ctypes.data, shared.ctypes.data, 0, at, regions, status), int(status[0])


@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
def test_a_tile_over_the_edge(swizzle):
    array = aligned((20, 32), np.float32)
    array[:] = np.arange(array.size).reshape(array.shape)
    view = array[:, :30]
    units = {"none": 2, "32B": 2, "64B": 4, "128B": 8}[swizzle]
    tile = nbtc.TensorMap(view, (4 * units, 8), swizzle=swizzle)
    shared = aligned(8 * 16 * units, np.uint8)
    assert run(LOAD, array, tile, (20, -3), shared) == (FINE, shared.nbytes)
    want = np.zeros((8, 4 * units), np.float32)
    for y in range(8):
        for x in range(4 * units):
            if y >= 3 and 20 + x < 30:
                want[y, x] = view[y - 3, 20 + x]
    got = np.zeros_like(want)
    lines = want.view(np.uint8).reshape(8, units, 16)
    mode = {"none": 1, "32B": 2, "64B": 4, "128B": 8}[swizzle]
    for y in range(8):
        for u in range(units):
            at = 16 * (units * y + u)
            at ^= ((at >> 7) & (mode - 1)) << 4
            got.view(np.uint8).reshape(8, units, 16)[y, u] = shared[at : at + 16]
    assert (got.view(np.uint8).reshape(lines.shape) == lines).all()


def test_stores_and_sums():
    array = aligned((6, 8), np.int32)
    tile = nbtc.TensorMap(array, (8, 4))
    shared = aligned((4, 8), np.int32)
    shared[:] = np.arange(32).reshape(4, 8)
    assert run(STORE, array, tile, (0, 2), shared)[0] == FINE
    assert (array[2:] == shared).all() and not array[:2].any()
    assert run(REDUCE, array, tile, (0, 2), shared)[0] == FINE
    assert (array[2:] == 2 * shared).all()


def test_what_the_hardware_refuses():
    array = aligned((6, 8), np.int32)
    tile, shared = nbtc.TensorMap(array, (8, 4)), aligned((4, 8), np.int32)
    assert run(LOAD, array, tile, (1, 0), shared)[0] == MISALIGNED
    assert run(STORE, array, tile, (0, -1), shared)[0] == NEGATIVE
    assert run(LOAD, array[:2], tile, (0, 0), shared)[0] == OUTSIDE


@pytest.mark.parametrize(
    ("shape", "box", "options", "error"),
    [
        ((4, 6), (4, 4), {}, errors.AlignmentError),  # rows of 24 bytes
        ((4, 8), (3, 4), {}, errors.AlignmentError),
        ((4, 8), (8, 4, 1), {}, errors.ShapeError),
        ((4, 64), (64, 4), {"swizzle": "32B"}, errors.RangeError),
        ((4, 8), (8, 4), {"swizzle": "16B"}, errors.OptionError),
        ((4, 8), (8, 4), {"oob": "nan"}, errors.OptionError),
        ((4, 8), (8, 300), {}, errors.RangeError),
        ((4, 8), (8, 4), {"dtype": "f16"}, errors.FormatError),
    ],
)
def test_bad_maps(shape, box, options, error):
    with pytest.raises(error):
        nbtc.TensorMap(aligned(shape, np.int32), box, **options)
