"""Local memory through generic addresses: one number for all lanes, and a place of its own for each."""

import numpy as np

import nbtc

TEXT = """.version 8.0
.target sm_80
.address_size 64
.visible .entry own(.param .u64 out)
{
  .local .align 8 .b8 room[16];
  .reg .b64 %rd<6>; .reg .b32 %r<4>;
  mov.b64 %rd1, room;
  cvta.local.u64 %rd2, %rd1;
  mov.u32 %r1, %tid.x;
  st.local.b32 [%rd1+4], %r1;
  st.b32 [%rd2+8], 7;
  ld.b32 %r2, [%rd2+4];
  ld.local.b32 %r3, [%rd1+8];
  add.u32 %r2, %r2, %r3;
  ld.param.u64 %rd3, [out];
  mul.wide.u32 %rd4, %r1, 4;
  add.u64 %rd5, %rd3, %rd4;
  st.global.b32 [%rd5], %r2;
  ret;
}
"""


def test_each_lane_has_its_own_place_at_one_address():
    out = np.zeros(64, np.int32)
    nbtc.load(TEXT)["own"][1, 64](out)
    assert (out == np.arange(64) + 7).all()
