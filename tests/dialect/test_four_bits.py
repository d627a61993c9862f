"""Words of processors newer than an H200: on nbtc alone, whose arithmetic of them has no hardware here as a judge."""

import numpy as np
import pytest

import nbtc
from nbtc import ptx
from nbtc.errors import KernelError
from nbtc.testing import assert_bits_equal


@nbtc.kernel(arch="sm_100")
def four_bits(x, narrow, wide):
    lane = nbtc.lane_id()
    narrow[lane] = ptx.cvt("cvt.rn.satfinite.e2m1x2.f32", x[lane], -x[lane])
    wide[lane] = ptx.cvt("cvt.rn.f16x2.e2m1x2", narrow[lane])


@pytest.mark.filterwarnings("ignore::nbtc.errors.UnvalidatedModelWarning")
def test_conversions_of_8_bit_registers():
    x = np.linspace(-7, 7, 32, dtype=np.float32)
    narrow, wide = np.zeros(32, np.uint8), np.zeros(32, np.uint32)
    four_bits[1, 32](x, narrow, wide)
    want = ptx.cvt("cvt.rn.satfinite.e2m1x2.f32", x.view(np.uint32), (-x).view(np.uint32))
    assert_bits_equal(narrow, want)
    assert_bits_equal(wide, ptx.cvt("cvt.rn.f16x2.e2m1x2", want))
    assert ".target sm_100a" in four_bits.ptx(x, narrow, wide)
    with pytest.raises(KernelError, match=r"sm_90 has no cvt\.rn\.satfinite\.e2m1x2\.f32"):
        four_bits.on("sm_90").ptx(x, narrow, wide)
