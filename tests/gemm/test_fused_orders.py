"""float32 products without tensor cores: recorded ones of an H100, the same sums by hand, names of orders."""

import json
from functools import reduce
from pathlib import Path

import numpy as np
import pytest

import nbtc
from nbtc.gemm.cublas.choices import Algorithm
from nbtc.testing import assert_bits_equal
from tests.gemm.test_orders import CUBLAS
from tests.hashed import hashed_floats

RECORDED = json.loads((Path(__file__).parents[1] / "golden" / "libraries" / "fused_orders.json").read_text())


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda x: " ".join(map(str, x[:7])))
def test_recorded_products(recorded):
    fmt, op, layout, batch, m, n, k, rows, columns, words = recorded
    found = nbtc.library(**CUBLAS, tf32=fmt == "tf32").order(
        m, n, k, a="f32", layout=layout, bias=op == "addmm", batch=batch
    )
    assert found.fused and found.evidence.startswith("rule")
    last, along = max(0, batch - 1), np.arange(k)  # of the batch the last item was kept
    a = hashed_floats((last * m + np.array(rows)[:, None]) * k + along, 21)
    b = hashed_floats((last * k + along[:, None]) * n + np.array(columns), 22)
    d = nbtc.matmul(a, b, order=found)
    assert [[f"{x:08x}" for x in row] for row in d.view(np.uint32).tolist()] == words


def test_every_kind_is_recorded():
    kinds = {"fma", "slice", "folded", "split", "lanes", "runs", "each"}
    orders = [
        nbtc.library(**CUBLAS, tf32=x[0] == "tf32").order(
            *x[4:7], a="f32", layout=x[2], bias=x[1] == "addmm", batch=x[3]
        )
        for x in RECORDED
    ]
    assert {kind for kind in kinds if any(kind in order.name for order in orders)} == kinds


def chain(a, b, start=0.0):
    """Fused multiply-adds of two lists: exact in float64, where a product of float32 has at most 48 bits of 53."""
    total = np.float32(start)
    for x, y in zip(a, b, strict=True):
        total = np.float32(np.float64(x) * np.float64(y) + np.float64(total))
    return total


def operands(k):
    """Small whole numbers times powers of two, whose sums float64 holds: one rounding is the right one."""
    rng = np.random.default_rng(k)
    a, b = (rng.integers(-999, 999, k).astype(np.float32) for _ in "ab")
    return a * np.exp2(rng.integers(0, 16, k)).astype(np.float32), b


@pytest.mark.parametrize("k", [1, 7, 64, 203])
def test_orders_by_hand(k):
    a, b = operands(k)

    def run(order):
        return nbtc.matmul(a[None], b[:, None], order=order)[0, 0]

    def parts(cuts):
        return reduce(np.add, [chain(a[cut], b[cut]) for cut in cuts])

    assert run("fma") == chain(a, b)
    assert run(f"fma:split{-(-k // 50)}x50") == parts([slice(i, i + 50) for i in range(0, k, 50)])
    turns = [[i for i in range(k) if i // 8 % 3 == turn] for turn in range(3)]
    assert run("fma:slice24/3") == parts([turn for turn in turns if turn])
    sums = [chain(a[turn], b[turn]) for turn in ([i for i in range(k) if i // 8 % 5 == own] for own in range(5))]
    assert run("fma:slice40/5:folded") == reduce(np.add, [sums[i] for i in (0, 3, 4, 1, 2)])
    assert run("fma:split1x999:each16") == parts([slice(i, i + 16) for i in range(0, k, 16)])


def test_many_outputs_are_those_of_one():
    """Rows in fours, columns in blocks, batches, and two threads, whose edges no test of one output has."""
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 7, 90), (2, 90, 1030)))
    for order in ("fma", "fma:slice32/4", "fma:split3x32", "fma:lanes16serial:each256"):
        d = nbtc.matmul(a, b, order=order, threads=2)
        for i, j in ((0, 0), (3, 511), (4, 512), (6, 1029)):
            assert_bits_equal(d[1, i, j], nbtc.matmul(a[1, i : i + 1], b[1, :, j : j + 1], order=order)[0, 0])


def test_specials():
    a = np.float32([[np.inf, 1, 2], [np.nan, 0, 0], [2e-38, 0, 0], [-1e-30, 0, 0], [3e38, 1, 1]])
    d = nbtc.matmul(a, np.float32([[0.25], [1], [1]]), order="fma")
    assert d.view(np.uint32)[:, 0].tolist()[:2] == [0x7F800000, 0x7FFFFFFF]
    assert d[2, 0] == np.float32(5e-39)  # subnormal results stay
    assert np.isnan(nbtc.matmul(np.float32([[np.inf, -np.inf]]), np.ones((2, 1), np.float32), order="fma")[0, 0])
    c = np.full((5, 1), 1, np.float32)
    assert nbtc.matmul(a, np.float32([[0.25], [1], [1]]), c, order="fma")[0, 0] == np.inf


def test_names_of_the_table():
    """How a choice of the table becomes an order."""
    assert Algorithm("fma:parts", 6).order("f32", "nt", 96) == "fma:split3x32"  # whole lines
    assert Algorithm("fma:parts", 6).order("f32", "nt", 100) == "fma:split5x20"  # whole 16 bytes
    assert Algorithm("fma:parts", 6).order("f32", "tn", 96) == "fma:split6x16"  # no operand has K along lines
    assert Algorithm("fma:parts8", 4).order("f32", "nt", 64) == "fma:split4x16"
    assert Algorithm("other").found("f32", "nt", (0, 9, 9, 9)) == ("fma", False)
    plain = nbtc.library(**CUBLAS, tf32=False)
    assert plain.order(300, 384, 1536, a="tf32").name == plain.order(300, 384, 1536, a="f32").name
