"""An mbarrier that the first thread to see its phase end invalidates, while others are still waiting for it."""

import numpy as np

import nbtc

PROGRAM = """
.version 8.0 .target sm_90 .address_size 64
.visible .entry leader_ends(.param .u64 out)
{
  .reg .pred done, leader, more; .reg .b32 t, threads, bar, tries; .reg .b64 token, base, offset;
  .shared .align 8 .b8 barrier[8];
  mov.u32 t, %tid.x; mov.u32 threads, %ntid.x; mov.u32 bar, barrier;
  setp.eq.s32 leader, t, 0;
  @leader mbarrier.init.shared.b64 [bar], threads;
  bar.sync 0;
  mbarrier.arrive.shared.b64 token, [bar];
  mov.u32 tries, 0;
WAIT:
  mbarrier.try_wait.shared.b64 done, [bar], token;
  add.u32 tries, tries, 1; setp.lt.u32 more, tries, 1000000;
  @done bra GO;
  @more bra WAIT;
  ret;
GO:
  @!leader bra END;
  mbarrier.inval.shared.b64 [bar];
END:
  ld.param.u64 base, [out]; mul.wide.u32 offset, t, 4; add.u64 base, base, offset; st.global.u32 [base], t;
  ret;
}"""


def test_threads_that_wait_for_a_phase_go_on_when_the_leader_has_invalidated_the_mbarrier():
    """On a GPU they have long seen the phase's end; a warp that runs on without their turn left them waiting for ever.

    NVIDIA's sample globalToShmemTMACopy does this.
    """
    for threads in (32, 64, 256):
        x = np.full(threads, -1, np.int32)
        nbtc.load(PROGRAM)["leader_ends"][1, threads](x)
        assert x.tolist() == list(range(threads))
