"""A block's shared memory lasts until its last thread ends: what its cluster does there has to be before that."""

from __future__ import annotations

import numpy as np
import pytest

import nbtc
from nbtc.errors import ProgramError

TEXT = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out) .reqnctapercluster 2, 1, 1
{{
 .reg .b32 t, a, r, me; .reg .b64 o, d; .reg .pred p; .shared .b32 s[64];
 ld.param.u64 o, [out]; mov.u32 t, %tid.x; mov.u32 me, %cluster_ctarank; mul.wide.u32 d, t, 4; add.u64 o, o, d;
 mov.u32 a, s; mad.lo.u32 a, t, 4, a;
 st.shared.u32 [a], t;
 barrier.cluster.arrive; barrier.cluster.wait;
 setp.eq.u32 p, me, {reader}; xor.b32 r, me, 1; mapa.shared::cluster.u32 a, a, r;
 @p ld.shared::cluster.u32 r, [a];
 @p st.global.u32 [o], r;
 {end}
 ret;
}}
"""


def run(reader: int, end: str = "") -> list[int]:
    out = np.zeros(64, np.int32)
    nbtc.load(TEXT.format(reader=reader, end=end))["k"].checked[2, 64](out)
    return list(out)


@pytest.mark.parametrize("reader", [0, 1])
def test_a_block_that_ends_while_a_peer_reads_it(reader):
    """Whichever of the two runs first here."""
    with pytest.raises(ProgramError, match=r"memory of a block that has ended.*line 12: ld\.shared::cluster"):
        run(reader)


@pytest.mark.parametrize("reader", [0, 1])
@pytest.mark.parametrize("arrive", ["barrier.cluster.arrive", "barrier.cluster.arrive.relaxed"])
def test_blocks_that_meet_before_they_end(reader, arrive):
    assert run(reader, f"{arrive}; barrier.cluster.wait;") == list(range(64))
