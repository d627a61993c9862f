"""What orders the lanes of one warp: barriers; of what they read, instructions at which they wait for each other."""

import numpy as np
import pytest

import nbtc
from nbtc.errors import ProgramError

TEXT = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{{
 .reg .b32 t, s, n, r, v; .reg .b64 o; .reg .pred p; .shared .align 16 .b32 mem[64];
 ld.param.u64 o, [out]; mov.u32 t, %tid.x; shl.b32 r, t, 2; mov.u32 s, mem; add.u32 s, s, r; xor.b32 n, s, 4;
 st.shared.u32 [s], t; bar.warp.sync -1;
 {body}
 st.global.u32 [o], 0; ret;
}}
"""
RACE = "data race"
WAIT = {
    "shfl": "shfl.sync.bfly.b32 v, t, 1, 31, -1;",
    "vote": "vote.sync.ballot.b32 v, 1, -1;",
    "redux": "redux.sync.add.s32 v, t, -1;",
}


def run(body):
    nbtc.load(TEXT.format(body=body))["k"].launch(1, 32, (np.zeros(32, np.uint32),), checked=True)


@pytest.mark.parametrize("wait", WAIT.values(), ids=WAIT)
def test_reads_before_a_wait_are_done(wait):
    """As in reductions over tiles of several warps (cooperative_groups/reduce.h)."""
    run(f"ld.shared.u32 r, [n]; {wait} st.shared.u32 [s], 5;")


@pytest.mark.parametrize("wait", WAIT.values(), ids=WAIT)
def test_writes_before_a_wait_are_not_seen(wait):
    with pytest.raises(ProgramError, match=RACE):
        run(f"st.shared.u32 [s], 5; {wait} ld.shared.u32 r, [n];")
    with pytest.raises(ProgramError, match=RACE):
        run(f"setp.lt.u32 p, t, 16; @p st.shared.u32 [s], 5; {wait} @!p st.shared.u32 [s + -64], 6;")


def test_reads_after_a_wait_are_not_done():
    with pytest.raises(ProgramError, match=RACE):
        run(f"ld.shared.u32 r, [n]; {WAIT['shfl']} ld.shared.u32 r, [n]; st.shared.u32 [s], 5;")


def test_another_warp_minds_a_read_before_later_ones_of_the_same_warp():
    reads = f"ld.shared.u32 r, [n]; {WAIT['shfl']}" * 3
    text = TEXT.format(body=f"setp.lt.u32 p, t, 32; @!p bra W; {reads} bra E; W: st.shared.u32 [s + -128], 5; E:")
    with pytest.raises(ProgramError, match=RACE):
        nbtc.load(text)["k"].launch(1, 64, (np.zeros(64, np.uint32),), checked=True)


COPY = "cp.async.ca.shared.global [s], [o], 4; cp.async.commit_group; cp.async.wait_group 0;"


def test_a_copy_is_waited_for_by_its_own_thread():
    run(f"{COPY} ld.shared.u32 r, [s];")
    run(f"{COPY} bar.warp.sync -1; ld.shared.u32 r, [n];")
    with pytest.raises(ProgramError, match=RACE):
        run(f"{COPY} ld.shared.u32 r, [n];")
