"""Instructions of vectors that ask about a warp's addresses give what the same functions say one by one."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from nbtc.compiler.integers.integer_code import machine_code
from nbtc.compiler.jit import jit
from nbtc.executor.watch import service
from nbtc.executor.watch.rows import each_whole, in_a_row

LANES = 32


@jit
def row(addresses, step):
    return in_a_row(addresses, step)


@jit
def whole(addresses, first, most):
    return each_whole(addresses, first, most)


@pytest.fixture(scope="module")
def compiled():
    """Each function as programs call it."""
    kept = {f: machine_code(f.py_func, service.PRIMITIVES) for f in (row, whole)}

    def call(function, *words):
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(words))
        return kind(kept[function].address)(*words)

    return call


@pytest.mark.parametrize("size", [4, 8, 16])
def test_a_row_is_one_where_no_lane_is_elsewhere(compiled, size):
    for begin in (0, 1 << 40):
        addresses = begin + size * np.arange(LANES, dtype=np.int64)
        assert compiled(row, addresses.ctypes.data, size) == row(addresses.ctypes.data, size) == 0
        for lane in range(1, LANES):
            for moved in (1, 16, -size, 1 << 33):
                there = addresses.copy()
                there[lane] += moved
                found = compiled(row, there.ctypes.data, size)
                assert found == row(there.ctypes.data, size) != 0


def test_granules_are_whole_where_no_lane_leaves_the_window_or_repeats_the_one_before(compiled):
    rng = np.random.default_rng(0)
    first, most = 1 << 40, 4096 - 16
    for _ in range(50):
        good = first + 16 * rng.permutation(most // 16 + 1)[:LANES].astype(np.int64)
        assert compiled(whole, good.ctypes.data, first, most) >= 0 <= whole(good.ctypes.data, first, most)
        for lane in range(LANES):
            for bad in (first - 16, first + most + 16, good[lane] + 4, good[max(lane, 1) - 1], 0, -16):
                there = good.copy()
                there[max(lane, 1)] = bad
                assert compiled(whole, there.ctypes.data, first, most) < 0 > whole(there.ctypes.data, first, most)
    ends = np.array([first, first + most] * (LANES // 2), np.int64)
    assert compiled(whole, ends.ctypes.data, first, most) >= 0


def test_the_same_place_may_come_again_in_a_lane_further_on(compiled):
    first = 1 << 40
    addresses = np.array([first, first + 16] * (LANES // 2), np.int64)
    assert compiled(whole, addresses.ctypes.data, first, 16) >= 0 <= whole(addresses.ctypes.data, first, 16)
