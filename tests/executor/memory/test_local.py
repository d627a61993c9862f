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


BEFORE = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
  .local .align 8 .b8 room[16];
  .reg .b64 %rd<4>; .reg .b32 %r<4>;
  mov.u32 %r0, room;
  add.s32 %r1, %r0, -8;
  mov.u32 %r2, %tid.x;
  st.local.b32 [%r1+12], %r2;
  ld.local.b32 %r3, [%r0+4];
  ld.param.u64 %rd1, [out];
  mul.wide.u32 %rd2, %r2, 4;
  add.u64 %rd3, %rd1, %rd2;
  st.global.b32 [%rd3], %r3;
  ret;
}
"""


def test_an_address_of_32_bits_before_the_memory_and_a_displacement_into_it():
    out = np.zeros(64, np.int32)
    nbtc.load(BEFORE)["k"][1, 64](out)
    assert (out == np.arange(64)).all()
