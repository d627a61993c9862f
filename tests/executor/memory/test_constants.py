"""Constants in place of registers in what writes memory: floats in decimals count as the type says."""

import numpy as np
import pytest

import nbtc

TEXT = """.version 8.6
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out) {
  .reg .b64 d<2>; .reg .b32 r<9>; .reg .f32 f<4>; .reg .f64 g; .reg .pred p<3>; .reg .b16 h<2>;
  ld.param.u64 d0, [out]; mov.u32 r0, %%tid.x; mov.f32 f1, 2.0;
  %s
  ret; }
"""


def words(body, threads=1):
    out = np.zeros(40, np.uint32)
    nbtc.load(TEXT % body)["k"][1, threads](out)
    return out


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("atom.global.add.f32 f0, [d0], 1.0;", [0x3F800000, 0]),
        ("atom.global.add.f32 f0, [d0], 0d3FF0000000000000;", [0x3F800000, 0]),
        ("red.global.add.f32 [d0], -1.5;", [0xBFC00000, 0]),
        ("red.global.add.f64 [d0], 0f3F800000;", [0, 0x3FF00000]),
        ("atom.global.add.v2.f32 {f2, f3}, [d0], {1.0, 2.0};", [0x3F800000, 0x40000000]),
        ("atom.global.exch.b32 r1, [d0], 0f3F800000;", [0x3F800000, 0]),
        ("st.global.v2.f32 [d0], {1.0, 2.0};", [0x3F800000, 0x40000000]),
        # as in the machine code of ptxas 13.0, where the lower half is the lower word of the double 1.0
        ("mov.b64 d1, {1.0, f1}; st.global.b64 [d0], d1;", [0, 0x40000000]),
    ],
)
def test_floats(body, found):
    assert words(body)[:2].tolist() == found


def test_results_that_nobody_wants():
    body = """
    setp.lt.u32 _|p0, r0, 3; selp.b32 r1, 1, 0, p0; mad.wide.u32 d1, r0, 4, d0; st.global.u32 [d1], r1;
    match.all.sync.b32 _|p1, r1, -1; @p1 atom.global.add.u32 _, [d0+128], 100;
    atom.global.add.u32 _, [d0+128], 1; atom.global.cas.b32 _, [d0+132], 0, 7; atom.global.add.f32 _, [d0+136], 1.0;
    """
    out = words(body, threads=32)
    assert out[:32].tolist() == [0] * 3 + [1] * 29
    assert out[32:34].tolist() == [32, 7] and out[34:35].view(np.float32) == 32


def test_moves_between_a_register_and_its_only_part():
    body = """
    mov.b64 {d1}, d0; mov.b32 {r1}, 5; mov.b32 {r2}, %laneid; mov.b32 {h0, h1}, %ntid.x; cvt.u32.u16 r3, h0;
    st.global.v2.u32 [d1], {r1, r2}; st.global.u32 [d1+8], r3;
    """
    assert words(body)[:3].tolist() == [5, 0, 1]
