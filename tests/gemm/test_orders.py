"""Orders of summation: recorded library products, the same sums by hand, and what an order may not be."""

import os
import warnings
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nbtc
from nbtc.errors import GuessedOrderWarning, OptionError, UnsupportedInstructionError
from nbtc.formats.table import FORMATS
from nbtc.gemm.cublas.orders import LIBRARIES
from nbtc.gemm.cublas.shapes import shapes
from nbtc.gemm.orders import RULES
from nbtc.gemm.run import add
from nbtc.testing import assert_bits_equal
from tests.hashed import hashed_words

GOLDEN = os.environ.get("NBTC_GOLDEN")
FILE = (
    Path(GOLDEN) / "gemm.npz" if GOLDEN else Path(__file__).parents[1] / "golden" / "libraries" / "library_orders.npz"
)
CUBLAS = {"name": "cublas 13.0", "gpu": "H200"}


def recorded():
    """(tag, shape, order) of every recorded product."""
    with np.load(FILE) as z:
        return [(*key.split("__")[:2], str(z[key])) for key in z.files if key.endswith("__order")]


def parts(tag: str) -> tuple[str, str, str]:
    """Formats of A, of B and of the result."""
    kind, *words = tag.split("_")
    a, b = (kind[:4], kind[4:]) if len(kind) == 8 else (kind, kind)
    wide = {"f64": "f64", "s8": "s32"}.get(a, "f32")
    out = {"f16": "f16", "bf16": "bf16"}.get(a, wide) if words[0] in ("nn", "nt") else words[0].removesuffix("out")
    return a, b, out


@pytest.mark.parametrize(("tag", "shape", "order"), recorded())
def test_recorded_products_of_a_library(tag, shape, order):
    a, b, out = parts(tag)
    with np.load(FILE) as z:
        x, y, result = z[f"{tag.split('_')[0]}__{shape}__A"], z[f"{tag.split('_')[0]}__{shape}__B"], None
        result = z[f"{tag}__{shape}__R"]
    x, y = x.view(FORMATS[a].dtype), np.ascontiguousarray(y).view(FORMATS[b].dtype)
    if a == "tf32":  # the library rounds operands to nearest even
        x, y = nbtc.convert(x, "tf32"), nbtc.convert(y, "tf32")
    d = nbtc.matmul(x, y, order=order)
    assert_bits_equal(d.astype(FORMATS[out].dtype).view(result.dtype), result)
    m, n, k = map(int, shape.split("x"))
    library = nbtc.library(**CUBLAS, fast_accum=tag.endswith("fast"))
    found = library.order(m, n, k, a=a, b=b, out=out, layout="nt" if "nt" in tag or "e4m3" in tag else "nn")
    assert found.recorded
    assert (found.chains(k), found.step) == (nbtc.order(order).chains(k), nbtc.order(order).step)


def test_every_rule_is_in_a_recording_or_explained():
    examples = {"seq", "split12x4", "promote128", "promo4", "slice64/2", "resfirst16", "segment4x32"}
    examples |= {"segment2x32:last48of256x128by1x2rows8", "fma:lanes16", "fma:lanes16serial:each512"}  # test_segments
    examples |= {"fma:slice40/5:folded"}  # test_fused_orders
    assert {r.example for r in RULES} <= examples
    orders = [shapes()[tuple(x[:3])][tuple(map(int, x[3:]))] for x in map(str.split, NAMES)]
    assert {"segment3x32", "segment4x32", "segment5x32"} <= set(orders)
    rows = [row.order for rows in LIBRARIES.values() for row in rows]
    assert {nbtc.order(name).name for name in rows} == set(rows)


SPECS = st.one_of(
    st.just("seq"),
    st.integers(1, 9).map(lambda n: f"promote{n}"),
    st.tuples(st.integers(1, 8), st.integers(1, 4)).map(lambda t: ("slice", t[0] * t[1], t[1])),
    st.integers(1, 9).map(lambda n: ("resfirst", n)),
    st.tuples(st.integers(1, 9), st.integers(1, 9)).map(lambda t: f"promote{t[0]}:resfirst{t[1]}"),
)


@given(SPECS, st.integers(0, 40))
def test_chains_take_every_element_once(spec, k):
    chains = nbtc.order(spec).chains(k)
    taken = [i for chain in chains for start, stop in chain for i in range(start, stop)]
    assert sorted(taken) == list(range(k))
    assert nbtc.order(spec).steps(k, 4) >= -(-k // 4)


def operands(m=20, k=136, n=24, dtype=np.float16):
    rng = np.random.default_rng(5)
    if np.dtype(dtype).kind == "i":
        return rng.integers(-128, 128, (m, k)).astype(dtype), rng.integers(-128, 128, (k, n)).astype(dtype)
    return rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)


@pytest.mark.parametrize("size", [(3, 136, 5), (70, 136, 70)], ids=["chain", "panels"])  # by either engine
def test_sums_by_hand(size):
    m, k, n = size
    a, b = operands(m, k, n)
    c = np.random.default_rng(6).standard_normal((m, n)).astype(np.float32)
    mm = nbtc.matmul
    first = mm(a[:, :8], b[:8], c)
    assert_bits_equal(mm(a, b, c, order="resfirst16"), mm(a[:, 8:], b[8:], first))
    cuts = [slice(i, i + 48) for i in range(0, k, 48)]
    split = [mm(a[:, s], b[s]) for s in cuts]
    assert_bits_equal(mm(a, b, c, order=("split", 3, 48)), reduce(lambda x, y: add(x, y, False), [*split, c]))
    even, odd = ([i for i in range(k) if i // 32 % 2 == side] for side in (0, 1))
    sliced = add(mm(a[:, even], b[even]), mm(a[:, odd], b[odd]), False)
    assert_bits_equal(mm(a, b, order="slice64/2"), sliced)
    both = [mm(a[:, s][:, 8:], b[s][8:], mm(a[:, s][:, :8], b[s][:8])) for s in (slice(0, 72), slice(72, 136))]
    both[1] = mm(a[:, 72:], b[72:])  # 64 elements: no residue
    assert_bits_equal(mm(a, b, order="split2x72:resfirst16"), add(*both, False))


def test_segments_by_hand():
    a, b = operands(k=140)  # five times 32, the last of them not whole
    mm, cuts = nbtc.matmul, (slice(0, 32), slice(32, 96), slice(96, 140))
    parts = [mm(a[:, s], b[s]) for s in cuts]
    assert_bits_equal(mm(a, b, order="segment3x32"), add(add(parts[2], parts[1], False), parts[0], False))
    assert nbtc.order("segment4x32").chains(192) == (((0, 32),), ((32, 64),), ((64, 128),), ((128, 192),))
    assert "d = (s3 + s2) + (s1 + s0)" in nbtc.order("segment4x32").tree(192)
    with pytest.raises(OptionError, match='order="segment2x32"'):
        mm(a[:, :50], b[:50], order="segment3x32")
    with pytest.raises(OptionError, match="no further"):
        nbtc.order("segment3x32:resfirst8")


def test_integer_orders_saturate_where_they_add():
    a, b = np.full((2, 128), -128, np.int8), np.full((128, 2), 127, np.int8)
    c = np.full((2, 2), -(2**31) + 5, np.int32)
    assert (nbtc.matmul(a, b, c, order="split2x64", saturate=True, instruction="mma") == -(2**31)).all()
    wrapped = (np.int64(128 * -128 * 127) - 2**31 + 5 + 2**32) % 2**32
    assert (nbtc.matmul(a, b, c, order="split2x64").astype(np.int64) % 2**32 == wrapped).all()


def test_packed_words_and_batches():
    a, b = operands(6, 128, 10, np.int8)
    a, b = (x >> 4 for x in (a, b))
    words = nbtc.pack(a, "s4"), nbtc.pack(b, "s4", axis=-2)
    packed = nbtc.matmul(*words, a_format="s4", b_format="s4", order="slice64/2")
    assert_bits_equal(packed, a.astype(np.int32) @ b.astype(np.int32))
    x, y = operands(5, 40, 6)
    batch = np.stack([x, 2 * x])
    every = nbtc.matmul(batch, y, order="slice16/2")
    assert_bits_equal(every[1], nbtc.matmul(2 * x, y, order="slice16/2"))


def test_the_named_step_chooses_the_instruction():
    a, b = operands()
    p = nbtc.plan(a, b, order="k8:split17x8")
    assert ".m16n8k8." in p.instruction and p.steps == 17
    assert nbtc.plan(a, b, order="k16:seq").instruction == nbtc.plan(a, b).instruction
    with pytest.raises(UnsupportedInstructionError, match="K = 7"):
        nbtc.plan(a, b, order="k7:seq")
    with pytest.raises(OptionError, match="steps of 8"):
        nbtc.plan(a, b, order="k8:seq", instruction="mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")


@pytest.mark.parametrize(
    "spec",
    ["sequ", "split4x0", "split4", "", ("split", 4), ("split", 4, "8"), (), 7, "slice30/4", "slice64/2:resfirst16"],
)
def test_what_is_no_order_says_what_is(spec):
    with pytest.raises(OptionError, match="order="):
        nbtc.matmul(*operands(), order=spec)


def test_an_order_fits_its_k():
    with pytest.raises(OptionError, match=r'order=\("split", 9, 16\)'):
        nbtc.matmul(*operands(), order=("split", 4, 16))
    with pytest.raises(OptionError, match="one of the two"):
        nbtc.matmul(*operands(), order="seq", k_split=16)


def test_library_choices():
    x = np.ones((64, 64), np.float32)
    cublas = nbtc.library(**CUBLAS)
    p = nbtc.plan(x, x, order=cublas)
    assert p.order.name == "slice64/2" and "recorded" in p.explain() and "s0 = [0..7]" in p.explain()
    wide = np.ones((64, 16), np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert nbtc.plan(wide, wide.T.copy(), order=cublas).order.name == "split4x4"
    far = np.ones((7, 30000), np.float32)
    with pytest.warns(GuessedOrderWarning, match="7 x 7 x 30000"):  # far from any that was recorded
        assert "guess" in nbtc.plan(far, far.T, order=cublas).explain()
    with pytest.warns(GuessedOrderWarning):
        assert cublas.order(8, 8, 1024, a="e4m3").name == "promote128"
    with pytest.raises(OptionError, match=r"cublas 13\.0"):
        nbtc.library("cublas 12.0", gpu="H200")
    with pytest.raises(OptionError, match="layout"):
        cublas.order(64, 64, 64, a="f16", layout="kn")


def test_pictures():
    tree = nbtc.order("promote128").tree(1280, step=32)
    assert "d = ((((s0 + s1) + s2) + s3) + s4) + s5 + ... + s9" in tree and "s5 = [640..671]" in tree
    assert nbtc.order("resfirst16").tree(24).splitlines()[-1] == "s0 = [0..7] -> [8..23]"


def test_shapes_of_real_models():
    cublas = nbtc.library(**CUBLAS)
    split = cublas.order(1, 4096, 14336, a="bf16", layout="nt")  # four parts: 128 blocks of threads at 32 tiles
    assert split.name == "split4x3584" and split.recorded
    assert cublas.order(8192, 4096, 4096, a="bf16", layout="nt").name == "seq"
    between = cublas.order(3, 4096, 14336, a="f16", layout="nt")  # recorded M on both sides have it
    assert between.name == "split4x3584" and between.evidence.startswith("rule")
    assert cublas.order(104, 96, 2048, a="bf16", layout="tn").evidence.startswith("rule")


def hashed(index, seed):
    """Numbers of 11 bits and eight exponents, the same wherever they are made: a hash of an element's index."""
    h = hashed_words(index, seed)
    mantissa = ((h & 1023) + 1024) * (1 - 2 * (h >> 20 & 1))
    return mantissa.astype(np.float32), np.exp2(-(10.0 + (h >> 11 & 7))).astype(np.float32)


def cancelling(rows, columns, n, k):
    """Rows of A and columns of B whose products cancel in pairs: what is left shows the order of the sum."""
    i = np.arange(k)
    mirror = np.minimum(i, k - 1 - i)
    sign = np.sign(k - 1 - 2 * i).astype(np.float32)
    mantissa, power = hashed(rows[:, None] * k + mirror, 3)
    left = mantissa * sign * power
    mantissa, power = hashed(mirror[:, None] * n + columns, 4)
    return left, mantissa * power


with np.load(Path(__file__).parents[1] / "golden" / "libraries" / "library_shapes.npz") as file:
    SHAPES = {key: file[key] for key in file.files if key != "names"}
    NAMES = [str(x) for x in file["names"]]


@pytest.mark.parametrize("name", NAMES)
def test_recorded_shapes(name):
    """Some of the products that `cublas_shapes` was made from, a few outputs of each."""
    op, fmt, layout, batch, m, n, k = name.split()
    m, n, k = int(m), int(n), int(k)
    a, b = cancelling(SHAPES[f"{name} rows"], SHAPES[f"{name} columns"], n, k)
    a = a * 1024 if fmt == "f16" else a  # float16 has no exponents as small
    a, b = (x.astype(FORMATS[fmt].dtype) for x in (a, b))
    order = nbtc.library(**CUBLAS, fast_accum=op == "scaled").order(
        m, n, k, a=fmt, layout=layout, bias=op == "addmm", batch=int(batch)
    )
    assert order.recorded or order.fused  # with numbers that tf32 holds a recording doesn't tell the two
    d = nbtc.matmul(a, b, order=order).astype(FORMATS[{"tf32": "f32", "e4m3": "bf16"}.get(fmt, fmt)].dtype)
    expected = SHAPES[f"{name} result"]
    assert_bits_equal(d.view(expected.dtype), expected)
