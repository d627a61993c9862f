"""Programs on plainer processors than this one: shuffles and f16, which each kind does in its own way."""

import pytest

from nbtc.testing.hosts import HOSTS, OTHERS
from tests.processes import forked, fresh, output

CODE = """
import numpy as np, nbtc
k = nbtc.load('''.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a) {
 .reg .b32 %r<9>; .reg .b64 %d<4>; ld.param.u64 %d1, [a]; mov.u32 %r1, %tid.x; mul.wide.u32 %d2, %r1, 4;
 add.u64 %d1, %d1, %d2; ld.global.u32 %r2, [%d1]; mul.lo.u32 %r3, %r1, 7;
 shfl.sync.idx.b32 %r4, %r2, %r3, 31, -1; shfl.sync.bfly.b32 %r5, %r2, 21, 31, -1;
 st.global.u32 [%d1], %r4; st.global.u32 [%d1+128], %r5; ret;
}''')["k"]
a = np.random.default_rng(1).integers(0, 1 << 32, 64, dtype=np.uint32)
x, lane = a[:32].copy(), np.arange(32)
k[1, 32](a)
print(np.array_equal(a[:32], x[7 * lane % 32]), np.array_equal(a[32:], x[lane ^ 21]))
"""


@pytest.mark.parametrize("host", ["host", *OTHERS])
def test_shuffles_on_every_processor(host):
    start = fresh if HOSTS[host] else forked
    assert output(start(CODE, **HOSTS[host])).split() == ["True", "True"]


# f16 by way of f32, one value and two, in registers of a warp and (the last sum) of one value for all lanes; in memory
HALVES = """
import numpy as np, nbtc
k = nbtc.load('''.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 s) {
 .reg .b32 t, x, y; .reg .b16 h, l, c; .reg .f32 f; .reg .b64 p, q; ld.param.u64 p, [a]; ld.param.u64 q, [s];
 ld.global.b16 c, [q]; add.f16 c, c, c; st.global.b16 [q+2], c; mov.b32 x, 0x3c003c00;
 red.global.add.noftz.f16x2 [q+4], x;
 mov.u32 t, %tid.x; mul.wide.u32 q, t, 4; add.u64 p, p, q;
 ld.global.b32 x, [p]; mul.f16x2 y, x, x; st.global.b32 [p+128], y;
 mov.b32 {l, h}, x; cvt.f32.f16 f, h; st.global.f32 [p+256], f; mul.f32 f, f, 0f3E99999A; cvt.rn.f16.f32 l, f;
 mov.b32 y, {l, l}; st.global.b32 [p+384], y; ret;
}
.visible .entry whole(.param .u64 a) {
 .reg .b64 p; .reg .f64 x, y; ld.param.u64 p, [a]; ld.global.f64 x, [p];
 cvt.rni.f64.f64 y, x; st.global.f64 [p+8], y; cvt.rzi.f64.f64 y, x; st.global.f64 [p+16], y;
 cvt.rmi.f64.f64 y, x; st.global.f64 [p+24], y; cvt.rpi.f64.f64 y, x; st.global.f64 [p+32], y; ret;
}''')
a = np.zeros((4, 64), np.float16)
rng = np.random.default_rng(2)
a[0] = rng.standard_normal(64) * 2.0 ** rng.integers(-24, 14, 64)
a[0, :6] = np.inf, -np.inf, 6e-8, -6e-8, 65504, 0
s = np.array([0.1, 0, 1, 2], np.float16)
with np.errstate(all="ignore"):
    k["k"][1, 32](a.view(np.uint32), s)
    f = a[0, 1::2].astype(np.float32)
    third = (f * np.float32(0.3)).astype(np.float16)
    print((a[1].view(np.uint16) == (a[0] * a[0]).view(np.uint16)).all(), (a[2].view(np.float32) == f).all())
    print((a[3, ::2].view(np.uint16) == third.view(np.uint16)).all())
    print(s[1] == np.float16(0.1) * 2, s[2] == 33, s[3] == 34)
    nan = np.array([0x7FF0000000000123] * 5, np.uint64)  # a signalling NaN: every direction makes it quiet
    k["whole"][1, 1](nan)
    print((nan[1:] == 0x7FF8000000000123).all())
"""


@pytest.mark.parametrize("host", ["host", *OTHERS])
def test_half_precision_on_every_processor(host):
    start = fresh if HOSTS[host] else forked
    assert output(start(HALVES, **HOSTS[host])).split() == ["True"] * 7
