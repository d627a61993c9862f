"""Layouts against the tables of the PTX manual, written out here a second time, and against recorded fragments."""

import re
from pathlib import Path

import numpy as np
import pytest

from nbtc.errors import UnsupportedInstructionError
from nbtc.isa import parse
from nbtc.isa.archs import arch
from nbtc.isa.spec import named
from nbtc.isa.wmma import fragment

RECORDED = np.load(Path(__file__).parents[1] / "golden" / "fragments.npz")

# shape, A format: (row, col) of A and k of B, in g = lane >> 2, t = lane & 3 and element i
MMA = {
    ("m16n8k8", "f16"): (lambda g, t, i: (g + 8 * (i >> 1), 2 * t + (i & 1)), lambda t, i: 2 * t + i),
    ("m16n8k16", "bf16"): (
        lambda g, t, i: (g + 8 * ((i >> 1) & 1), 2 * t + (i & 1) + 8 * (i >> 2)),
        lambda t, i: 2 * t + (i & 1) + 8 * (i >> 1),
    ),
    ("m16n8k4", "tf32"): (lambda g, t, i: (g + 8 * i, t), lambda t, i: t + 0 * i),
    ("m16n8k8", "tf32"): (lambda g, t, i: (g + 8 * (i & 1), t + 4 * (i >> 1)), lambda t, i: t + 4 * i),
    ("m16n8k16", "f64"): (lambda g, t, i: (g + 8 * (i & 1), t + 4 * (i >> 1)), lambda t, i: t + 4 * i),
    ("m8n8k4", "f64"): (lambda g, t, i: (g + 0 * i, t), lambda t, i: t + 0 * i),
    ("m8n8k16", "u8"): (lambda g, t, i: (g, 4 * t + i), lambda t, i: 4 * t + i),
    ("m16n8k16", "s8"): (lambda g, t, i: (g + 8 * (i >> 2), 4 * t + (i & 3)), lambda t, i: 4 * t + i),
    ("m16n8k32", "e4m3"): (
        lambda g, t, i: (g + 8 * ((i >> 2) & 1), 4 * t + (i & 3) + 16 * (i >> 3)),
        lambda t, i: 4 * t + (i & 3) + 16 * (i >> 2),
    ),
    ("m8n8k32", "s4"): (lambda g, t, i: (g, 8 * t + i), lambda t, i: 8 * t + i),
    ("m16n8k32", "u4"): (lambda g, t, i: (g + 8 * (i >> 3), 8 * t + (i & 7)), lambda t, i: 8 * t + i),
    ("m16n8k64", "s4"): (
        lambda g, t, i: (g + 8 * ((i >> 3) & 1), 8 * t + (i & 7) + 32 * (i >> 4)),
        lambda t, i: 8 * t + (i & 7) + 32 * (i >> 3),
    ),
    ("m8n8k128", "b1"): (lambda g, t, i: (g, 32 * t + i), lambda t, i: 32 * t + i),
    ("m16n8k256", "b1"): (
        lambda g, t, i: (g + 8 * ((i >> 5) & 1), 32 * t + (i & 31) + 128 * (i >> 6)),
        lambda t, i: 32 * t + (i & 31) + 128 * (i >> 5),
    ),
}


def lanes(count, elements):
    lane, i = np.arange(count)[:, None], np.arange(elements)[None, :]
    return lane, lane >> 2 & 7, lane & 3, i


def same(operand, row, col):
    want = np.stack(np.broadcast_arrays(row, col), -1)
    assert (operand.coords() == want).all()


@pytest.mark.parametrize(("shape", "name"), MMA)
def test_mma(shape, name):
    a, k = MMA[shape, name]
    for row in parse.rows(family="mma", shape=shape, a=name, b=name, executable=True, unit="mma"):
        _, g, t, i = lanes(32, row.a.elements)
        same(row.a, *np.broadcast_arrays(*a(g, t, i)))
        _, g, t, i = lanes(32, row.b.elements)
        same(row.b, k(t, i), g + 0 * i)
        _, g, t, i = lanes(32, row.c.elements)
        same(row.c, g + 8 * (i >> 1), 2 * t + (i & 1))
        assert row.c is row.d


def test_every_mma_accumulator_and_word():
    """Registers of a lane hold neighbouring elements, low bits first."""
    for row in parse.rows(family="mma", unit="mma"):
        register, shift = row.a.slots()
        per_word = max(1, 32 // row.a.width)
        assert (register == np.arange(row.a.elements) // per_word * max(1, row.a.width // 32)).all()
        assert (shift == np.arange(row.a.elements) % per_word * row.a.width + row.a.shift).all()


def test_quad_pairs():
    lane, _, _, i = lanes(32, 4)
    u, h = lane & 3, lane >> 4
    maps = {
        "row": ((u + 4 * h + 0 * i, i + 0 * u), (u + 0 * i, i + 4 * h)),
        "col": ((i + 4 * h, u + 0 * i), (i + 0 * u, u + 4 * h + 0 * i)),
    }
    lane8, _, _, i8 = lanes(32, 8)
    u8, h8 = lane8 & 3, lane8 >> 4
    f32 = ((lane8 & 1) + (i8 & 2) + 4 * h8, (i8 & 4) + (lane8 & 2) + (i8 & 1))
    rows = parse.rows(unit="quad")
    assert len(rows) == 12
    for row in rows:
        same(row.a, *maps[row.a_layout][0])
        same(row.b, *maps[row.b_layout][1])
        for operand in (row.c, row.d):
            same(operand, *(f32 if operand.format.name == "f32" else (u8 + 4 * h8 + 0 * i8, i8 + 0 * u8)))
            assert (operand.layout.products() == np.arange(32) // 4 % 4).all()


@pytest.mark.parametrize("name", RECORDED.files)
def test_wmma_fragments_recorded_on_sm_90(name):
    parts = name.split("_")
    shape = tuple(int(v) for v in re.findall(r"\d+", parts[2]))
    kind = parts[-2] if parts[1] == "c" and len(parts) > 5 else parts[3]
    operand = fragment(parts[1], shape, named(kind), parts[-1])
    same(operand, *RECORDED[name].astype(int))


def test_wmma_on_sm_70():
    lane, _, _, x = lanes(32, 16)
    q, l2, l3, l4 = lane & 3, lane >> 2 & 1, lane >> 3 & 1, lane >> 4
    f16, f32, tile = named("f16"), named("f32"), (16, 16, 16)
    volta = arch("sm_70")
    same(fragment("a", tile, f16, "row").on(volta), q + 8 * l2 + 4 * l4, x)
    same(fragment("a", tile, f16, "col").on(volta), 8 * l2 + 4 * l4 + (x & 3), q + (x & 12))
    same(fragment("b", tile, f16, "col").on(volta), x, q + 8 * l3 + 4 * l4)
    same(fragment("b", tile, f16, "row").on(volta), q + (x & 12), 8 * l3 + 4 * l4 + (x & 3))
    x = x[:, :8]
    same(fragment("c", tile, f16).on(volta), q + 8 * l2 + 4 * l4, 8 * l3 + x)
    row = (lane & 1) + (x & 2) + 8 * l2 + 4 * l4
    same(fragment("c", tile, f32).on(volta), row, 2 * (lane >> 1 & 1) + 8 * l3 + (x & 1) + (x & 4))


def test_wmma_on_sm_75():
    _, g, t, i = lanes(32, 8)
    s32 = fragment("c", (8, 32, 16), named("s32"))
    same(s32.on(arch("sm_75")), g + 0 * i, 2 * t + (i & 1) + 8 * (i >> 1))
    same(s32.on(arch("sm_80")), 2 * t + (i & 1), g + 8 * (i >> 1 & 1) + 16 * (i >> 2 & 1))
    f32 = fragment("c", (8, 32, 16), named("f32"))
    assert f32.on(arch("sm_75")) is f32


def test_copies_in_wmma_fragments():
    coords = fragment("a", (8, 32, 16), named("f16")).coords()
    assert (coords == coords[:, np.arange(16) & 3]).all()
    coords = fragment("b", (16, 16, 16), named("f16")).coords()
    assert (coords[:, 8:] == coords[:, :8]).all()


def test_worked_example_of_a_16x16_tile():
    """Lane 0 of a matrix that holds 16 * row + col."""
    for use, want in (("a", [0, 1, 128, 129, 8, 9, 136, 137]), ("b", [0, 16, 128, 144, 8, 24, 136, 152])):
        coords = fragment(use, (16, 16, 16), named("f16")).coords()[0]
        assert (coords @ [16, 1]).tolist() == want * 2


@pytest.mark.parametrize("n", [8, 24, 96, 256])
def test_wgmma(n):
    for row in parse.rows(family="wgmma.mma_async") + parse.rows(family="wgmma.mma_async.sp"):
        if row.shape[1] != n:
            continue
        lane, g, t, i = lanes(128, row.a.elements)
        e = 32 // row.a.format.bits
        r, p = i // e, i % e
        same(row.a, 16 * (lane // 32) + g + 8 * (r & 1), e * t + p + 4 * e * (r >> 1))
        lane, g, t, i = lanes(128, n // 2)
        same(row.d, 16 * (lane // 32) + g + 8 * (i >> 1 & 1), 8 * (i >> 2) + 2 * t + (i & 1))
        with pytest.raises(UnsupportedInstructionError, match="shared memory"):
            row.b.coords()


def test_ldmatrix():
    _, g, t, i = lanes(32, 8)
    j, half = i >> 1, i & 1
    same(parse.row("ldmatrix.sync.aligned.m8n8.x4.b16").d, 8 * j + g, 2 * t + half)
    same(parse.row("ldmatrix.sync.aligned.m8n8.x4.trans.b16").d, 8 * j + 2 * t + half, g + 0 * i)
    _, g, t, i = lanes(32, 16)
    k, r = i & 3, i >> 2
    wide = parse.row("ldmatrix.sync.aligned.m16n16.x2.trans.b8").d
    same(wide, 16 * (r >> 1) + 4 * t + k, g + 8 * (r & 1))
    same(parse.row("ldmatrix.sync.aligned.m8n16.x4.b8x16.b4x16_p64").d, 8 * r + g, 4 * t + k)
    same(parse.row("stmatrix.sync.aligned.m16n8.x4.trans.b8").a, 8 * r + 2 * t + (k & 1), g + 8 * (k >> 1))


def test_layouts_cover_their_matrix_evenly():
    """What every row checks when it is built, said again over all of them."""
    for row in parse.rows():
        for name in "abcd":
            operand = getattr(row, name)
            if operand is not None and operand.layout is not None:
                count = np.bincount(operand.gather.ravel(), minlength=operand.products * operand.rows * operand.cols)
                assert count.min() == count.max() >= 1
                assert (operand.gather.ravel()[operand.scatter] == np.arange(count.size)).all()
