"""Bulk reductions of rows whose last 16 bytes are partly outside of the array (an H200's bytes), and of NaNs."""

import numpy as np
import pytest

import nbtc
from nbtc.executor.transfer.tensor_map import ELEMENTS
from nbtc.executor.transfer.tma import FINE, REDUCE, REDUCTIONS, reduce_bytes, tile_copy


@pytest.mark.parametrize(
    "operation, dtype, columns, x, y, want",
    [  # elements at `columns` and beyond are outside
        ("dec", "u4", 1, "99b60a3729b779b5", "ffffff7f0100c07e", "98b60a370100c07e"),
        ("add", "i4", 2, "a8ffffff4b000000", "e522ad4056588541", "8d22ad40a1588541"),
        ("min", "u4", 3, "abb4672c71c7136a", "91401b4116409a40", "abb4672c16409a40"),
    ],
)
def test_rows_are_reduced_in_whole_units(operation, dtype, columns, x, y, want):
    raw = np.zeros(256, np.uint8)
    start = -raw.ctypes.data % 128
    memory, shared = raw[start : start + 16], raw[start + 64 : start + 80]
    first = {1: 0, 2: 8, 3: 8}[columns]
    memory[first : first + 8], shared[first : first + 8] = (np.frombuffer(bytes.fromhex(z), np.uint8) for z in (x, y))
    tile = nbtc.TensorMap(memory.view(dtype).reshape(1, 4)[:, :columns], (4, 1))
    words, regions = np.frombuffer(bytes(tile), np.uint8), np.array([memory.ctypes.data, 16, 1], np.int64)
    at, status = np.zeros(5, np.int64), np.zeros(2, np.int64)
    places = words.ctypes.data, shared.ctypes.data, 0, at
    assert tile_copy(REDUCE, REDUCTIONS.index(operation), *places, regions, status) == FINE
    assert memory[first : first + 8].tobytes().hex() == want


def test_sums_of_doubles_keep_a_nan_as_it_is():
    """As atomic sums in global memory do (test_float_atomics); the first pair is a bulk store's on an H200."""
    inf, nan = 0x7FF0000000000000, 0xFFF00000FFFFFFFF
    x = np.array([0x1C8F43A01D062EE1, 0xFFFFFFB6FFFFFFE3, nan, inf], np.uint64)
    y = np.array([0xFFFFFFF200000032, 0x1C9EC58B1D029ABD, 0x7FF0000000000001, inf | 1 << 63], np.uint64)
    reduce_bytes(0, ELEMENTS["f64"].number, 8, x.ctypes.data, y.ctypes.data, 4)
    assert x.tolist() == [0xFFFFFFF200000032, 0xFFFFFFB6FFFFFFE3, 0x7FF0000000000001, 0xFFF8000000000000]
