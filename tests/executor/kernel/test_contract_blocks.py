"""Products and sums in several blocks, as an H100 rounded them (golden/contract_blocks.npz).

Each text was a kernel of its own there, run by golden/recorders/make_contract_blocks.py.  A lane reads seven numbers, a
to g, and leaves what it stores in sixteen places.
"""

from pathlib import Path

import numpy as np
import pytest

import nbtc

GOLDEN = Path(__file__).parents[2] / "golden" / "contract_blocks.npz"
LANES, SLOTS = 64, 16
Q = "mul.f32 q, b, e; "
LOADED = "ld.global.f32 r, [x+16]; mul.f32 q, r, e; "
CONSTANT = "mul.f32 q, b, 0f40490FDB; "
S = "add.f32 s, q, 0f3F000001; "
OTHER = "st.global.f32 [y+8], q; "
USE = "st.global.f32 [y], s; "
MAX = "max.f32 t, s, a; "
USE_MAX = "st.global.f32 [y+4], t; "
GUARD = "@p st.global.f32 [y+12], a; "
LOAD = "@p ld.global.f32 d, [x]; "
BRANCH = "@!p bra L#; st.global.f32 [y+12], a; st.global.f32 [y+16], c; L#: "
G = GUARD
TEXTS = {
    # a guard on what touches memory or other lanes is a branch, one on arithmetic is not
    "guarded store": Q + G + S + USE,
    "guarded load": Q + LOAD + S + USE + "st.global.f32 [y+20], d; ",
    "guarded maximum": Q + "@p max.f32 d, d, a; " + S + USE + "st.global.f32 [y+20], d; ",
    "branch": Q + BRANCH + S + USE,
    "barrier": Q + "bar.sync 0; " + S + USE,
    "shuffle": Q + "mov.b32 i, b; shfl.sync.bfly.b32 i, i, 1, 31, -1; st.global.u32 [y+20], i; " + S + USE,
    "fence": Q + "membar.gl; " + S + USE,
    "rounded quotient": Q + "div.rn.f32 d, d, a; st.global.f32 [y+20], d; " + S + USE,
    "quotient": Q + "div.full.f32 d, d, a; st.global.f32 [y+20], d; " + S + USE,
    "label": Q + "L1: " + S + USE,
    # a product by a constant fuses in whatever blocks its sums are
    "constant, guarded store": CONSTANT + G + S + USE,
    "constant, two branches": CONSTANT + BRANCH + BRANCH + S + USE,
    "constant in a register": "mov.f32 r, 0f40490FDB; mul.f32 q, b, r; " + G + S + USE,
    "constant, two sums": CONSTANT + S + USE + BRANCH + "sub.f32 t, a, q; " + USE_MAX,
    "constant quotient": "div.full.f32 q, b, 0f44C40000; " + BRANCH + S + USE,
    "constant, another reader": CONSTANT + OTHER + G + S + USE,
    "not a constant": "max.f32 r, e, a; mul.f32 q, b, r; " + G + S + USE,
    # a sum that is used far away is computed anew there, with the product
    "far": G + Q + S + OTHER + G + G + USE,
    "far, branches": BRANCH + Q + S + OTHER + BRANCH + BRANCH + USE,
    "near": G + Q + S + OTHER + G + USE,
    "far and near": G + Q + S + OTHER + G + USE + G + "st.global.f32 [y+20], s; ",
    "far from the block of the product": G + Q + OTHER + G + S + G + G + USE,
    "far, of a load in the block": G + LOADED + S + OTHER + G + G + USE,
    "far, of a shared load": G
    + LOADED + S + OTHER + G + G + USE + G + "st.global.f32 [y+20], r; ",
    "far, maximum": G + Q + S + OTHER + MAX + G + G + USE_MAX,
    "far, root": G + Q + S + OTHER + "rsqrt.approx.ftz.f32 t, s; " + G + G + USE_MAX,
    "far, constant": G + CONSTANT + S + OTHER + G + G + USE,
    "far, stored before": G + Q + S + OTHER + USE + MAX + G + "st.global.f32 [y+20], s; " + USE_MAX,
    "far, two": G + Q + S + OTHER + MAX + "min.f32 r, s, c; " + G + G + USE_MAX + G + "st.global.f32 [y+20], r; ",
    "far, one of two": G + Q + S + OTHER + MAX + "min.f32 r, s, c; st.global.f32 [y+20], r; " + G + G + USE_MAX,
    "far, sum of a sum": G + Q + S + OTHER + "mul.f32 r, s, f; add.f32 t, r, a; " + G + G + USE_MAX,
    "far, product read before": G + Q + S + G + OTHER + G + USE,
    "far, product read after": G + Q + S + G + G + USE + OTHER,
    "far, product read twice": G + Q + S + "max.f32 t, s, q; " + OTHER + G + G + USE_MAX,
    "far, nine": G + Q + S + OTHER + "".join(
        f"{op}.f32 s{n + 1}, s{n}, {x}; " for n, (op, x) in enumerate(zip(("max", "min") * 4, "acacaca", strict=False))
    ).replace("s0", "s") + G + G + "st.global.f32 [y], s7; ",
    "far, ten": G + Q + S + OTHER + "".join(
        f"{op}.f32 s{n + 1}, s{n}, {x}; " for n, (op, x) in enumerate(zip(("max", "min") * 4, "acacacac", strict=True))
    ).replace("s0", "s") + G + G + "st.global.f32 [y], s8; ",
    "far, in a loop": "mov.u32 i, 0; L9: add.u32 i, i, 1; add.f32 b, b, c; "
    + Q + S + OTHER + G + G + USE + "setp.lt.u32 o, i, 3; @o bra L9; ",
}  # fmt: skip


def text(name):
    """A kernel of one of the texts."""
    body = TEXTS[name]
    for n in range(body.count("L#: ")):
        body = body.replace("L#", f"L{n}", 2)
    loads = " ".join(f"ld.global.f32 {n}, [x+{4 * k}];" for k, n in enumerate("abcdefg"))
    return f"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 X, .param .u64 Y) {{
 .reg .f32 a, b, c, d, e, f, g, q, r, s, s1, s2, s3, s4, s5, s6, s7, s8, t; .reg .b32 i, l; .reg .b64 x, y, z;
 .reg .pred p, o;
 ld.param.u64 x, [X]; ld.param.u64 y, [Y]; mov.u32 l, %tid.x;
 mul.wide.u32 z, l, 32; add.u64 x, x, z; mul.wide.u32 z, l, {4 * SLOTS}; add.u64 y, y, z;
 {loads} setp.lt.f32 p, g, 0f00000000;
 {body}
 ret; }}
"""


def run(name, inputs, **options):
    """What nbtc leaves of a text's kernel."""
    out = np.zeros((LANES, SLOTS), np.float32)
    nbtc.load(text(name))["k"].launch(1, LANES, [inputs.copy(), out], **options)
    return out.view(np.uint32)


@pytest.fixture(scope="module")
def recorded():
    with np.load(GOLDEN) as found:
        return dict(found)


@pytest.mark.parametrize("name", TEXTS)
def test_as_recorded(name, recorded):
    np.testing.assert_array_equal(run(name, recorded["inputs"]), recorded[name])


def test_contraction_is_seen(recorded):
    """Without contraction the recording is another one: the test above can fail."""
    for name in ("guarded maximum", "constant, two branches", "far"):
        assert (run(name, recorded["inputs"], contract="off") != recorded[name]).any()
