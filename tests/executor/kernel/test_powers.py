"""Products times a power of two, and minima and maxima of one value: what ptxas 13.0 makes of them for sm_90a."""

from fractions import Fraction

import numpy as np
import pytest

import nbtc
from nbtc.executor.kernel.contract import contract
from nbtc.executor.text.parse import parse

HEAD = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 X, .param .u64 Y)
{
.reg .f32 a, b, c, q, r, s, t; .reg .f64 d, e; .reg .b16 h; .reg .b64 x, y, z; .reg .b32 l; .reg .pred p;
ld.param.u64 x, [X]; ld.param.u64 y, [Y]; mov.u32 l, %tid.x; mul.wide.u32 z, l, 64; add.u64 x, x, z; add.u64 y, y, z;
ld.global.f32 a, [x]; ld.global.f32 b, [x+4]; ld.global.f32 c, [x+8]; setp.lt.f32 p, a, c;
"""
HIDDEN = ("ld", "st", "setp", "ret")  # instructions around those that are looked at; so are integers'
Q = "mul.f32 q, a, b; "
TWO = "mul.f32 r, q, 0f40000000; "
STORED = "st.global.f32 [y], r; "
SCALED, MUL = "mul%scaled.f32", "mul.f32"
LEFT = {
    Q + TWO + STORED: [SCALED],
    Q + "mul.f32 r, 0f3E000000, q; " + STORED: [SCALED],
    Q + "mul.f32 r, q, 0f41000000; " + STORED: [SCALED],
    Q + "div.full.f32 r, q, 0f40000000; " + STORED: [SCALED],
    "mul.f32 q, a, 0f40400000; " + TWO + STORED: [SCALED],
    "mul.f32 q, a, 0f00000000; " + TWO + STORED: [SCALED],
    Q + "mul.rn.f32 r, q, 0f40000000; " + STORED: [SCALED],
    Q + "mul.ftz.sat.f32 r, q, 0f40000000; " + STORED: ["mul%scaled.ftz.sat.f32"],
    "mul.ftz.f32 q, a, b; " + TWO + STORED: [SCALED],
    Q + "@p mul.f32 c, q, 0f40000000; st.global.f32 [y], c; ": [SCALED],
    Q + "bar.sync 0; @p st.global.f32 [y+8], a; " + TWO + STORED: ["mov.b32", "mov.b32", "bar.sync", SCALED],
    Q + "mov.f32 t, q; mul.f32 q, t, 0f3F800000; max.f32 q, q, q; " + TWO + STORED: [SCALED],
    Q + "neg.f32 q, q; mul.f32 r, q, 0fC0000000; " + STORED: [SCALED],
    "mul.f32 a, a, b; mul.f32 r, a, 0f40000000; " + STORED: ["mov.b32", SCALED],
    # one power each, those first that come first
    Q + TWO + "mul.f32 s, r, 0f40000000; st.global.f32 [y], s; ": [SCALED, MUL],
    Q + TWO + "mul.f32 r, r, 0f40000000; " * 2 + STORED: [SCALED, "mov.b32", SCALED],
    # sums come first
    Q + TWO + "add.f32 s, r, c; st.global.f32 [y], s; ": [MUL, "fma.rn.f32"],
    Q + TWO + "add.f32 s, r, c; st.global.f32 [y], s; " + STORED: [SCALED, "add.f32"],
    Q + "mul.f32 r, q, 0f40800000; mul.f32 s, r, 0f41000000; add.f32 s, s, b; st.global.f32 [y], s; ": [
        SCALED, "fma.rn.f32",
    ],
    "div.full.f32 q, a, b; " + TWO + STORED: ["div%dividend.full.f32", "div%reciprocal.full.f32", SCALED],
    "rcp.approx.f32 q, a; " + TWO + STORED: ["rcp%scale.approx.f32", "rcp%scaled.approx.f32", SCALED],
    # products of their own
    Q + TWO + STORED + "st.global.f32 [y+4], q; ": [MUL, MUL],
    Q + TWO + "mul.f32 s, q, 0f3F000000; st.global.f32 [y+4], s; " + STORED: [MUL, MUL, MUL],
    Q + "mul.f32 r, q, 0f41800000; " + STORED: [MUL, MUL],
    Q + "mul.f32 r, q, 0fC0000000; " + STORED: [MUL, MUL],
    Q + "mul.rz.f32 r, q, 0f40000000; " + STORED: [MUL, "mul.rz.f32"],
    Q + "neg.f32 q, q; " + TWO + STORED: [MUL, "neg.f32", MUL],
    Q + "abs.f32 q, q; " + TWO + STORED: [MUL, "abs.f32", MUL],
    Q + "mul.ftz.f32 q, q, 0f3F800000; " + TWO + STORED: [MUL, "mul.ftz.f32", MUL],
    Q + "@p mul.f32 q, q, 0f40000000; st.global.f32 [y], q; ": [MUL, MUL],
    "@p mul.f32 c, a, b; mul.f32 r, c, 0f40000000; " + STORED: [MUL, MUL],
    "mul.rn.f32 q, a, b; " + TWO + STORED: ["mul.rn.f32", MUL],
    "mul.sat.f32 q, a, b; " + TWO + STORED: ["mul.sat.f32", MUL],
    "mul.f32 q, a, 0f40000000; mul.f32 r, q, b; " + STORED: [MUL, MUL],
    "fma.rn.f32 q, a, b, c; " + TWO + STORED: ["fma.rn.f32", MUL],
    # minima and maxima of one value
    "max.f32 r, a, a; " + STORED: ["mov.b32"],
    "min.f64 d, e, e; st.global.f64 [y], d; ": ["mov.b64"],
    "max.f16 h, h, h; st.global.b16 [y], h; ": ["mov.b16"],
    "max.f32 r, 0f7FC00001, 0f7FC00001; " + STORED: ["mov.f32"],
    "mov.f32 q, a; min.f32 r, a, q; " + STORED: ["mov.f32", "mov.b32"],
    "@p mov.f32 a, b; mov.f32 q, a; min.f32 r, q, a; " + STORED: ["mov.f32", "mov.f32", "mov.b32"],
    "mov.f32 q, a; @p mov.f32 a, b; min.f32 r, q, a; " + STORED: ["mov.f32", "mov.f32", "min.f32"],
    "max.ftz.f32 r, a, a; " + STORED: ["max.ftz.f32"],
    "max.NaN.f32 r, a, a; " + STORED: ["max.NaN.f32"],
    "max.bf16 h, h, h; st.global.b16 [y], h; ": ["max.bf16"],
    "max.f32 r, a, b; " + STORED: ["max.f32"],
}  # fmt: skip


@pytest.mark.parametrize("body", LEFT)
def test_instructions_that_are_left(body):
    function = contract(parse(f"{HEAD}{body}ret; }}").functions["k"])
    seen = [i for i in function.body if i.opcode not in HIDDEN and i.modifiers[-1][0] != "u"]
    assert [i.mnemonic for i in seen] == LEFT[body]


def rounded(exact):
    """A fraction as the bits of an f32, by the digits that are left of it."""
    size = abs(exact)
    exponent = max(-126, size.numerator.bit_length() - size.denominator.bit_length())
    while size and Fraction(2) ** exponent > size and exponent > -126:
        exponent -= 1
    unit = Fraction(2) ** (exponent - 23)
    found = round(size / unit) * unit
    number = np.float32(np.inf) if found >= Fraction(2) ** 128 else np.float32(float(found))
    return int(number.view(np.uint32)) | (0x80000000 if exact < 0 else 0)


def test_products_are_rounded_once_and_nans_keep_their_bits():
    text = HEAD + (
        Q + "mul.f32 r, q, 0f40800000; st.global.f32 [y], r; "
        "mul.f32 q, a, b; mul.f32 r, q, 0f3E000000; st.global.f32 [y+4], r; "
        "mul.ftz.f32 q, a, b; mul.ftz.f32 r, q, 0f40800000; st.global.f32 [y+8], r; "
        "mul.f32 q, a, b; mul.sat.f32 r, q, 0f40000000; st.global.f32 [y+12], r; "
        "max.f32 r, a, a; st.global.f32 [y+16], r; ret; }"
    )
    lanes = 128
    rng = np.random.default_rng(5)
    x = np.zeros((lanes, 16), np.uint32)
    x[:, :3] = rng.integers(0, 1 << 32, (lanes, 3), np.uint32) & 0x807FFFFF
    product = rng.choice([-152, -150, -130, -127, -126, -3, -1, 124, 126, 128], lanes)
    first = np.clip(product // 2 + rng.integers(-3, 4, lanes), -126, 127)
    x[:, 0] |= (first + 127).astype(np.uint32) << 23
    x[:, 1] |= (np.clip(product - first, -126, 127) + 127).astype(np.uint32) << 23
    x[:4, 0] = 0x7F800001, 0xFFC12345, 0x7F800000, 1
    x[2, 1] = 0
    found = np.zeros_like(x)
    nbtc.load(text)["k"].launch(1, lanes, [x, found])
    once = {0: 4, 1: Fraction(1, 8)}
    for lane in range(4, lanes):
        a, b = (Fraction(float(n)) for n in x[lane, :2].view(np.float32))
        for slot, power in once.items():
            assert found[lane, slot] == rounded(a * b * power), lane
        least = Fraction(2) ** -126 * (1 - Fraction(1, 1 << 25))
        flushed = int(found[lane, 0]) if abs(a * b * 4) >= least else int(found[lane, 0]) & 0x80000000
        assert found[lane, 2] == flushed
        assert found[lane, 3] == rounded(min(max(a * b * 2, Fraction(0)), Fraction(1)))
    assert (found[:3, :3] == 0x7FFFFFFF).all() and (found[:3, 3] == 0).all()
    np.testing.assert_array_equal(found[:, 4], x[:, 0])
