"""Which tiles tf32 kernels of an H100 divided over K, and its products of one row."""

import json
from pathlib import Path

import numpy as np
import pytest

import nbtc
from nbtc.errors import OptionError
from nbtc.gemm.cublas.choices import ONE_ROW, Algorithm
from nbtc.gemm.cublas.segments import DividingKernel, segments
from nbtc.gemm.cublas.shapes import find
from nbtc.gemm.tails import Tail
from tests.gemm.test_orders import cancelling
from tests.hashed import hashed_floats

RECORDED = json.loads((Path(__file__).parents[1] / "golden" / "libraries" / "segments.json").read_text())


@pytest.mark.parametrize("recorded", RECORDED["tiles"], ids=lambda x: f"{x[0]} {x[1]} {x[2]}x{x[3]}x{x[4]}")
def test_recorded_tiles(recorded):
    """Probes of whole results: into how many parts tiles are divided, and which; those named sure are so."""
    chain, layout, m, n, k, parts, divided = recorded
    name, sure = segments(chain, layout, (0, m, n, k))
    order = nbtc.order(name)
    assert sure is (order.tail is None or not DividingKernel.of(chain).swizzle)
    right = (order.parts or 1, _ends(order, m, n)) == (parts, divided)
    assert right or not sure


def _ends(order, m, n):
    """First row and column of the tiles that are divided, the last ones, and how many there are."""
    if order.tail is None:
        return []
    (high, wide), blocks = order.tail.tile, order.tail.blocks(m, n)
    every = [(i, j) for i in range(-(-m // high)) for j in range(-(-n // wide))]
    own = [
        t for t in every if any(r.start <= t[0] * high < r.stop and c.start <= t[1] * wide < c.stop for r, c in blocks)
    ]
    return [*np.min(own, 0).tolist(), *np.max(own, 0).tolist(), len(own)]


def test_most_paths_of_swizzled_kernels():
    swizzled = [x for x in RECORDED["tiles"] if x[6] and DividingKernel.of(x[0]).swizzle]
    orders = [nbtc.order(segments(x[0], x[1], (0, *x[2:5]))[0]) for x in swizzled]
    right = sum(_ends(order, *x[2:4]) == x[6] for order, x in zip(orders, swizzled, strict=True))
    assert right / len(swizzled) > 0.85


@pytest.mark.parametrize("recorded", RECORDED["rows"], ids=lambda x: f"{x[5]} {x[1]} {x[4]}")
def test_recorded_rows(recorded):
    op, layout, m, n, k, kernel, columns, words = recorded
    order, sure = Algorithm(kernel).found("tf32", layout, (0, m, n, k))
    assert sure and order == ONE_ROW[kernel][0]
    at = find(op, "tf32", layout, (0, m, n, k))
    assert (at.order, at.kind) == (order, "rule")
    i, j = np.arange(k, dtype=np.uint64), np.array(columns, np.uint64)
    d = nbtc.matmul(hashed_floats(i[None], 11), hashed_floats(j[:, None] * k + i, 12).T, order=order)
    assert [f"{x:08x}" for x in d[0].view(np.uint32).tolist()] == words


def test_a_tail_is_divided_and_the_rest_is_not():
    m, n, k = 96, 96, 256
    a, b = cancelling(np.arange(m), np.arange(n), n, k)
    order = nbtc.order("segment4x32:last3of32x32by1x1rows2")
    assert order.tail.blocks(m, n) == [(slice(64, 96), slice(0, 96))]  # a band of two rows, and one back
    d, whole, parts = (nbtc.matmul(a, b, order=x) for x in (order, "seq", "segment4x32"))
    assert np.array_equal(d[:64], whole[:64]) and np.array_equal(d[64:], parts[64:])
    assert not np.array_equal(whole[64:], parts[64:])
    c = np.full((m, n), 3.0, np.float32)
    assert np.array_equal(nbtc.matmul(a, b, c, order=order)[64:], parts[64:] + c[64:])
    assert "last 3 tiles" in order.tree(k)


def test_bands():
    assert Tail(2, (8, 8), (1, 2), "columns", 1).blocks(16, 32) == [(slice(0, 8), slice(16, 32))]
    assert Tail(3, (8, 8), (1, 1), "rows", 4).blocks(56, 16) == [(slice(32, 56), slice(0, 8))]  # 4 and 3 rows


def test_lanes_by_hand():
    a = np.float32([[1, 2**25, -(2**25), 1, 1]])
    b = np.ones((5, 1), np.float32)
    assert nbtc.matmul(a, b, order="fma:lanes2")[0, 0] == 0  # two lanes in which ones are lost
    assert nbtc.matmul(a, b, order="fma:runs2")[0, 0] == 2
    assert nbtc.plan(a, b, order="fma:lanes2").instruction == "fma.rn.f32"


def test_what_does_not_fit_is_refused():
    with pytest.raises(OptionError, match="segments"):
        nbtc.order("last3of32x32by1x1rows2")
    with pytest.raises(OptionError, match="fused"):
        nbtc.order("lanes4")
    for refused in ("fma:segment2x32", "fma:slice64/8:lanes4", "fma:resfirst16"):
        with pytest.raises(OptionError, match="parts, slices or lanes"):
            nbtc.order(refused)
    with pytest.raises(OptionError, match="fused multiply-adds in float32"):
        nbtc.matmul(np.ones((1, 4)), np.ones((4, 1)), order="fma:lanes2")
