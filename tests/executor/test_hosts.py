"""Programs on plainer processors than this one: shuffles, which each kind of processor does in its own way."""

import pytest

from nbtc.testing.hosts import HOSTS
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


@pytest.mark.parametrize("host", HOSTS)
def test_shuffles_on_every_processor(host):
    start = fresh if HOSTS[host] else forked
    assert output(start(CODE, **HOSTS[host])).split() == ["True", "True"]
