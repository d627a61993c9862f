"""Approximate functions against what an H200 returned (golden/special_functions.npz), on arrays, scalars and hosts."""

from pathlib import Path

import numpy as np
import pytest

import nbtc
from nbtc.executor.scalar.approx import MNEMONICS
from nbtc.numerics import special_functions as rows
from nbtc.testing.hosts import HOSTS, OTHERS
from nbtc.testing.scalar_rows import RowCase, Rows
from tests.processes import forked, fresh, output

GOLDEN = Path(__file__).parents[2] / "golden" / "special_functions.npz"
TEXTS = list(MNEMONICS)
SINGLE = [t for t in TEXTS if not t.endswith("x2")]
CHUNK = 1 << 18  # inputs of a recorded hash
WORDS = {"16": np.uint16, "32": np.uint32, "64": np.uint64}


@pytest.fixture(scope="module")
def recorded():
    with np.load(GOLDEN) as found:
        return dict(found)


def operands(name, recorded):
    """Inputs of a function and what the GPU returned."""
    if name.startswith("div"):
        return [recorded["quot_a"], recorded["quot_b"]], recorded[f"quot_{name}"]
    if name.endswith("16"):
        return [np.arange(1 << 16, dtype=np.uint16)], recorded[f"all_{name}"]
    return [recorded["special_dx" if name.endswith("f64") else "special_x"]], recorded[f"special_{name}"]


def mix(x):
    """The weight of an input in a chunk's hash: splitmix64, odd."""
    z = x.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))) | np.uint64(1)


@pytest.mark.parametrize("name", SINGLE)
def test_recorded_words(recorded, name):
    inputs, want = operands(name, recorded)
    found = nbtc.ptx.approx(name, *inputs)
    assert found.dtype == want.dtype
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("name", [n for n in SINGLE if not n.startswith("div") and not n.endswith("16")])
def test_whole_chunks_of_inputs(recorded, name):
    for chunk, want in zip(recorded["chunks"], recorded[f"hash_{name}"], strict=True):
        index = np.arange(CHUNK, dtype=np.uint64) + np.uint64(int(chunk) * CHUNK)
        weight = mix(index)
        x = index.astype(np.uint32)
        if name.endswith("f64"):
            x = index << np.uint64(32) | weight & np.uint64(0xFFFFFFFF)
        v = nbtc.ptx.approx(name, x).astype(np.uint64)
        assert ((v ^ (v >> np.uint64(32))) + np.uint64(1)) @ weight == want, f"chunk {chunk}"


def test_both_halves_of_a_register(recorded):
    for name in (t for t in TEXTS if t.endswith("x2")):
        want = recorded[f"all_{name.removesuffix('x2')}"]
        x = np.arange(1 << 16, dtype=np.uint32)
        found = nbtc.ptx.approx(name, x | x[::-1] << np.uint32(16))
        np.testing.assert_array_equal(found, want | want[::-1].astype(np.uint32) << np.uint32(16))


def test_one_lane(recorded):
    """Values that are the same in all lanes are computed once, by scalar code."""
    scalar = Rows([RowCase(name) for name in SINGLE], lanes=None)
    for i, name in enumerate(SINGLE):
        inputs, want = operands(name, recorded)
        part = slice(0, inputs[0].size // 32 * 32, 1)
        np.testing.assert_array_equal(scalar(i, [x[part] for x in inputs])[0], want[part])


CODE = f"""
import numpy as np, nbtc
with np.load({str(GOLDEN)!r}) as z:
    for name in ("rcp", "rsqrt", "sqrt", "ex2", "lg2", "sin", "cos"):
        text = name + ".approx.f32"
        print(np.array_equal(nbtc.ptx.approx(text, z["special_x"]), z["special_" + text]))
    for text in ("tanh.approx.f32", "rsqrt.approx.f64"):
        x = z["special_dx"] if text.endswith("f64") else z["special_x"]
        print(np.array_equal(nbtc.ptx.approx(text, x), z["special_" + text]))
    for text in ("ex2.approx.f16", "tanh.approx.bf16"):
        print(np.array_equal(nbtc.ptx.approx(text, np.arange(1 << 16, dtype=np.uint16)), z["all_" + text]))
"""


@pytest.mark.parametrize("host", ["host", *OTHERS])
def test_every_processor(host):
    start = fresh if HOSTS[host] else forked
    assert output(start(CODE, **HOSTS[host])).split() == ["True"] * 11


def test_shapes_and_threads():
    x = np.random.default_rng(3).integers(0, 1 << 32, (1001, 7), dtype=np.uint32)
    whole = nbtc.ptx.approx("lg2.approx.f32", x)
    assert whole.shape == x.shape
    np.testing.assert_array_equal(nbtc.ptx.approx("lg2.approx.f32", x[::-3, ::2], threads=3), whole[::-3, ::2])
    assert nbtc.ptx.approx("rcp.approx.f32", np.uint32(0x40000000)) == 0x3F000000
    row = nbtc.ptx.approx("div.full.f32", x[:, :1], x[:1])
    assert row.shape == x.shape and row[5, 3] == nbtc.ptx.approx("div.full.f32", x[5, 0], x[0, 3])
    assert nbtc.ptx.approx("sin.approx.f32", np.zeros((0, 4), np.uint32)).shape == (0, 4)


@pytest.mark.parametrize(
    ("error", "call", "says"),
    [
        (nbtc.errors.ParseError, ("ex2.f32", np.uint32(0)), "not an approximate function"),
        (nbtc.errors.ParseError, ("sqrt.rn.f32", np.uint32(0)), "not an approximate function"),
        (nbtc.errors.ParseError, (3, np.uint32(0)), "not an approximate function"),
        (nbtc.errors.ShapeError, ("div.full.f32", np.uint32(0)), "2 source operands"),
        (nbtc.errors.ShapeError, ("div.full.f32", np.zeros(3, np.uint32), np.zeros(2, np.uint32)), "broadcast"),
        (nbtc.errors.FormatError, ("ex2.approx.f32", np.float32(0)), "view"),
        (nbtc.errors.FormatError, ("ex2.approx.f16", np.uint32(0)), "16-bit"),
    ],
)
def test_bad_calls(error, call, says):
    with pytest.raises(error, match=says):
        nbtc.ptx.approx(*call)


def test_a_table_must_fit_its_row():
    with pytest.raises(ValueError, match="segments"):
        rows.Interpolation("ex2", 23, 16, 13, 1, 0, 38)
    with pytest.raises(ValueError, match="bits of a double"):
        rows.Interpolation("ex2", 23, 17, 30, 1, 0, 38)


def test_programs_say_what_backs_the_bits():
    m = nbtc.load(""".version 8.0 .target sm_80 .address_size 64
    .visible .entry k() { .reg .f32 a; ex2.approx.f32 a, a; ret; }""")
    (form,) = (f for f in m["k"].forms if f.form == "ex2.approx.f32")
    assert "recorded on sm_90" in form.evidence and not form.refused


@pytest.mark.parametrize("shared", ["dividend", "divisor"])
@pytest.mark.parametrize("name", [n for n in SINGLE if n.startswith("div")])
def test_quotients_of_an_operand_that_all_lanes_share(recorded, name, shared):
    a, b = (x[:512] for x in operands(name, recorded)[0])
    own, one = (b, a) if shared == "dividend" else (a, b)
    kernel = nbtc.load(f""".version 8.0 .target sm_80 .address_size 64
.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 one) {{
    .reg .b32 %r<9>; .reg .b64 %d<9>; ld.param.u64 %d1, [x]; ld.param.u64 %d2, [y]; ld.param.u32 %r1, [one];
    mov.u32 %r2, %tid.x; mul.wide.u32 %d3, %r2, 4; add.s64 %d1, %d1, %d3; add.s64 %d2, %d2, %d3;
    ld.global.u32 %r3, [%d1]; {name} %r4, {"%r1, %r3" if shared == "dividend" else "%r3, %r1"};
    st.global.u32 [%d2], %r4; ret; }}""")["k"]
    found = np.zeros_like(own)
    specials = [0, 1, 0x007FFFFF, 0x00800000, 0x7E7FFFFF, 0x7E800000, 0x7F000000, 0x7F800000, 0x7FC00001, 0x80000001]
    for word in (*specials, *(int(x) for x in one[::50])):
        kernel[1, 512](own, found, word)
        every = np.full_like(own, word)
        want = nbtc.ptx.approx(name, *((every, own) if shared == "dividend" else (own, every)))
        np.testing.assert_array_equal(found, want)
