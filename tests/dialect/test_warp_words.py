"""Kernels that speak warp and DPX give the bits of the same calls from Python."""

from __future__ import annotations

import numpy as np
import pytest

import nbtc
from nbtc import dpx, warp
from nbtc.testing import assert_bits_equal

ALL = 0xFFFFFFFF
pytestmark = pytest.mark.hw
RNG = np.random.default_rng(11)


@nbtc.kernel
def exchanges(x, out):
    lane = nbtc.lane_id()
    v = x[lane]
    out[0, lane] = warp.shfl_sync(ALL, v, 2, width=8)
    out[1, lane] = warp.shfl_up_sync(ALL, v, delta=3, width=16)
    out[2, lane] = warp.shfl_down_sync(ALL, v, 5)
    out[3, lane] = warp.shfl_xor_sync(ALL, v, 1)


@pytest.mark.parametrize("dtype", [np.int32, np.uint64, np.float64, np.float16, "bfloat16"])
def test_exchanges(dtype):
    x = RNG.integers(0, 100, 32).astype(dtype)
    out = np.zeros((4, 32), x.dtype)
    exchanges[1, 32](x, out)
    want = [
        warp.shfl_sync(ALL, x, 2, width=8),
        warp.shfl_up_sync(ALL, x, 3, width=16),
        warp.shfl_down_sync(ALL, x, 5),
        warp.shfl_xor_sync(ALL, x, 1),
    ]
    assert_bits_equal(out, np.stack(want))


@nbtc.kernel
def votes(x, out):
    lane = nbtc.lane_id()
    v = x[lane]
    out[0, lane] = warp.reduce_add_sync(ALL, v)
    out[1, lane] = warp.reduce_max_sync(ALL, v)
    out[2, lane] = warp.reduce_xor_sync(ALL, v)
    out[3, lane] = warp.all_sync(ALL, v > 3)
    out[4, lane] = warp.any_sync(ALL, v > 3)
    out[5, lane] = np.int32(warp.ballot_sync(ALL, v & 1))
    out[6, lane] = np.int32(warp.match_any_sync(ALL, v % 4))
    same, agree = warp.match_all_sync(ALL, v // 1000)
    out[7, lane] = np.int32(same) + agree
    if lane < 7:
        out[8, lane] = np.int32(warp.activemask())


def test_votes_and_reductions():
    x, out = RNG.integers(-50, 50, 32).astype(np.int32), np.zeros((9, 32), np.int32)
    votes[1, 32](x, out)
    for row, want in enumerate((
        warp.reduce_add_sync(ALL, x), warp.reduce_max_sync(ALL, x), warp.reduce_xor_sync(ALL, x),
        warp.all_sync(ALL, x > 3), warp.any_sync(ALL, x > 3), warp.ballot_sync(ALL, x & 1),
        warp.match_any_sync(ALL, np.fmod(x, 4) + 0 * x),
    )):  # fmt: skip
        if row != 6:
            assert (out[row] == want.astype(np.int32)).all(), row
    assert (out[6].view(np.uint32) == warp.match_any_sync(ALL, (x % 4).astype(np.int32))).all()
    same, agree = warp.match_all_sync(ALL, (x // 1000).astype(np.int32))
    assert (out[7] == same.astype(np.int32) + agree).all() and (out[8, :7] == 127).all()


@nbtc.kernel
def scores(a, b, c, out):
    lane = nbtc.lane_id()
    best, first = dpx.vibmax_s32(a[lane], b[lane])
    out[0, lane] = dpx.viaddmax_s32(a[lane], b[lane], c[lane])
    out[1, lane] = dpx.vimax3_s32_relu(a[lane], b[lane], c[lane])
    out[2, lane] = best + first


def test_dpx():
    a, b, c = RNG.integers(-(1 << 31), 1 << 31, (3, 32), np.int32)
    out = np.zeros((3, 32), np.int32)
    scores[1, 32](a, b, c, out)
    best, first = dpx.vibmax_s32(a, b)
    want = dpx.viaddmax_s32(a, b, c), dpx.vimax3_s32_relu(a, b, c), best + first
    assert_bits_equal(out, np.stack(want))
