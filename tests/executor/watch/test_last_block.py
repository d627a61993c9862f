"""The block whose atomic comes last reads what all wrote: fences on both sides, in whichever thread of a block."""

from __future__ import annotations

import numpy as np
import pytest

import nbtc
from nbtc.errors import ProgramError

BLOCKS, THREADS = 4, 64
TEXT = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 counter)
{{
 .reg .b32 t, b, n, x, sum; .reg .b64 o, c, at; .reg .pred p; .shared .b32 order;
 ld.param.u64 o, [out]; ld.param.u64 c, [counter];
 mov.u32 t, %tid.x; mov.u32 b, %ctaid.x;
 mad.lo.u32 n, b, 64, t; mul.wide.u32 at, n, 4; add.u64 at, o, at;
 st.global.u32 [at], b;
 {all_before}
 bar.sync 0;
 setp.ne.u32 p, t, 0; @p bra WAIT;
 {first_before}
 atom.global.add.u32 x, [c], 1; st.shared.u32 [order], x;
 {first_after}
WAIT:
 bar.sync 0;
 ld.shared.u32 x, [order]; setp.ne.u32 p, x, 3; @p bra END;
 {all_after}
 mul.wide.u32 at, t, 4; add.u64 at, o, at; mov.u32 sum, 0;
 ld.global.u32 x, [at]; add.u32 sum, sum, x;
 ld.global.u32 x, [at + 256]; add.u32 sum, sum, x;
 ld.global.u32 x, [at + 512]; add.u32 sum, sum, x;
 st.global.u32 [at + 1024], sum;
END:
 ret;
}}
"""
PLACES = ("all_before", "first_before", "first_after", "all_after")


def run(fence: str, *places: str) -> list[int]:
    out = np.zeros((BLOCKS + 1) * THREADS, np.int32)
    text = TEXT.format(**{place: f"{fence};" if place in places else "" for place in PLACES})
    nbtc.load(text)["k"].checked[BLOCKS, THREADS](out, np.zeros(1, np.int32))
    return list(out[BLOCKS * THREADS :])


@pytest.mark.parametrize("fence", ["membar.gl", "fence.acq_rel.gpu"])
@pytest.mark.parametrize("before", PLACES[:2])
@pytest.mark.parametrize("after", PLACES[2:])
def test_fences_on_both_sides(fence, before, after):
    """Every thread's before or after the barrier that stands between it and the atomic, or that of the atomic's
    thread: a barrier passes on what a fence there covers."""
    assert run(fence, before, after) == [0 + 1 + 2] * THREADS


@pytest.mark.parametrize("places", [(), ("all_before",), ("first_before",), ("all_after",), ("first_after",)], ids=str)
def test_a_fence_on_one_side_alone(places):
    with pytest.raises(ProgramError, match=r"data race: line \d+: ld\.global\.u32.*writes at line 10: st\.global"):
        run("membar.gl", *places)
