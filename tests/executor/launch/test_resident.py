"""Blocks that a GPU holds at once wait for each other without a cooperative launch."""

import numpy as np
import pytest

import nbtc

# each block counts itself and waits for all; then its threads read what the next block wrote before
GRID = """.version 8.0 .target sm_90 .address_size 64
.global .u32 count;
.visible .entry k(.param .u64 from, .param .u64 to) { .reg .b32 t, n, c, v; .reg .b64 a, o, i; .reg .pred p;
 ld.param.u64 a, [from]; ld.param.u64 o, [to]; mov.u32 t, %tid.x; mov.u32 c, %ctaid.x; mov.u32 n, %nctaid.x;
 mul.wide.u32 i, c, 4; add.u64 i, a, i; setp.ne.u32 p, t, 0; @!p st.global.u32 [i], c;
 membar.gl; bar.sync 0; @p bra READ;
 atom.global.add.u32 v, [count], 1;
WAIT: ld.volatile.global.u32 v, [count]; setp.lt.u32 p, v, n; @p bra WAIT; membar.gl;
READ: bar.sync 0; add.u32 v, c, 1; rem.u32 v, v, n; mul.wide.u32 i, v, 4; add.u64 i, a, i;
 ld.volatile.global.u32 v, [i];
 mad.lo.u32 t, c, 32, t; mul.wide.u32 i, t, 4; add.u64 o, o, i; st.global.u32 [o], v; ret; }"""


@pytest.mark.parametrize("blocks", [132, 1000])
@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_that_fit_a_gpu_meet_at_a_barrier_of_their_own(blocks: int, threads: int) -> None:
    x, y = np.zeros(blocks, np.uint32), np.zeros((blocks, 32), np.uint32)
    nbtc.load(GRID)["k"].launch(blocks, 32, [x, y], threads=threads, timeout=30)
    np.testing.assert_array_equal(y, np.repeat(np.roll(np.arange(blocks), -1)[:, None], 32, 1))
