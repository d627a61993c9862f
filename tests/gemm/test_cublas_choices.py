"""What cuBLAS' heuristic answers against products that an H200 computed."""

import warnings
from pathlib import Path

import numpy as np
import pytest

import nbtc
from nbtc.errors import GuessedOrderWarning
from nbtc.formats.table import FORMATS
from nbtc.gemm.cublas.choices import Algorithm, chosen
from nbtc.gemm.cublas.shapes import find, shapes
from nbtc.gemm.orders import order
from nbtc.testing import assert_bits_equal
from tests.gemm.test_orders import CUBLAS, cancelling

with np.load(Path(__file__).parents[1] / "golden" / "libraries" / "library_choices.npz") as file:
    PRODUCTS = {key: file[key] for key in file.files if key != "names"}
    NAMES = [str(x) for x in file["names"]]


@pytest.mark.parametrize("name", NAMES)
def test_products_that_the_table_lacks(name):
    """Products recorded after the table and not in it: their orders are those of cuBLAS' answers."""
    op, fmt, layout, batch, m, n, k = name.split()
    m, n, k = int(m), int(n), int(k)
    a, b = cancelling(PRODUCTS[f"{name} rows"], PRODUCTS[f"{name} columns"], n, k)
    a = a * 1024 if fmt == "f16" else a  # float16 has no exponents as small
    a, b = (x.astype(FORMATS[fmt].dtype) for x in (a, b))
    found = nbtc.library(**CUBLAS, fast_accum=op == "scaled").order(
        m, n, k, a=fmt, layout=layout, bias=op == "addmm", batch=int(batch)
    )
    assert found.evidence.startswith("rule")
    d = nbtc.matmul(a, b, order=found).astype(FORMATS[{"tf32": "f32", "e4m3": "bf16"}.get(fmt, fmt)].dtype)
    expected = PRODUCTS[f"{name} result"]
    assert_bits_equal(d.view(expected.dtype), expected)


def steps(name, k, step):
    """The elements of every step of every part."""
    chains = order(name).chains(k)
    return [[(p, min(p + step, end)) for start, end in chain for p in range(start, end, step)] for chain in chains]


def test_answers_are_the_recorded_orders():
    """The two were made apart: the table from bits of products, the answers by asking for an algorithm."""
    compared = 0
    for kind, sizes in shapes().items():
        for size, name in sizes.items():
            made, k = chosen(kind, size), size[3]
            if made is None or made[1] != "cuBLAS' heuristic chose it":
                continue
            answer, sure = made[0].found(kind[1], kind[2], size)
            if not sure or k <= 16 or order(answer).fused:  # two steps are the same sum in one part and in two
                continue
            step = 8 if kind[1] == "tf32" or "k8" in name or "k8" in answer else 16
            assert answer == name or steps(answer, k, step) == steps(name, k, step), (kind, size, name, answer)
            compared += 1
    assert compared > 34000


def test_parts_are_whole_lines_where_operands_are():
    assert (
        Algorithm("resfirst64", 9).order("bf16", "nt", 768) == "split6x128:resfirst64"
    )  # 86 elements: two lines of 64
    assert Algorithm("resfirst64", 9).order("bf16", "tn", 768) == "split9x88:resfirst64"  # no operand has K along lines
    assert Algorithm("resfirst64", 9).order("bf16", "nt", 777) == "split9x88:resfirst64"
    assert Algorithm("k8:resfirst32", 9).order("bf16", "nt", 777) == "k8:split9x88:resfirst32"
    assert Algorithm("seq", 3).order("e4m3", "nt", 8192) == "split3x2816"
    assert Algorithm("resfirst16", 8).order("tf32", "nn", 8) == "split2x4:resfirst16"
    assert Algorithm("resfirst16", 8).order("tf32", "nn", 4) == "resfirst16"


def test_evidence():
    asked = find("mm", "bf16", "nt", (0, 9, 25600, 5120))
    assert asked is not None and (asked.kind, asked.why) == ("rule", "cuBLAS' heuristic chose it")
    near = find("mm", "bf16", "nt", (0, 1000, 4104, 4104))
    assert near is not None and (near.kind, near.order) == ("rule", "seq") and "nearest" in near.why
    with pytest.warns(GuessedOrderWarning, match="not sure"):  # no tensor cores
        nbtc.library(**CUBLAS).order(1, 50257, 768, a="bf16", layout="nt")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nbtc.library(**CUBLAS).order(3, 8192, 28672, a="f16", layout="nt", bias=True)
