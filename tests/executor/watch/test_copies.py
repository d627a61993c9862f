"""Copies that the phase of an mbarrier waits for, as those of a `cuda::pipeline`: whoever saw the phase may read."""

import numpy as np
import pytest

import nbtc
from nbtc.errors import ProgramError

# each thread copies a word; the arrival of its copies, whose count the barrier expects or that is added first, and its
# own; then it reads the word of the thread opposite
TEXT = """.version 8.0 .target sm_90 .address_size 64
.visible .entry opposite(.param .u64 in, .param .u64 out) {{
  .reg .b32 t, a, b, r, x; .reg .b64 p, q, w, k; .reg .pred first, done;
  .shared .align 8 .b64 bar; .shared .align 16 .b32 s[64];
  ld.param.u64 p, [in]; ld.param.u64 q, [out]; mov.u32 t, %tid.x; mul.wide.u32 w, t, 4;
  add.u64 p, p, w; add.u64 q, q, w; mov.u32 b, bar; setp.eq.u32 first, t, 0;
  @first mbarrier.init.shared.b64 [b], {count};
  bar.sync 0;
  mov.u32 a, s; shl.b32 x, t, 2; add.u32 r, a, x; xor.b32 x, x, 252; add.u32 x, a, x;
  cp.async.ca.shared.global [r], [p], 4;
  {arrival}
  mbarrier.arrive.shared.b64 k, [b];
wait:
  mbarrier.try_wait.parity.shared.b64 done, [b], 0;
  @!done bra wait;
  ld.shared.b32 x, [x]; st.global.b32 [q], x;
  ret; }}"""
ARRIVALS = {
    "added": (64, "cp.async.mbarrier.arrive.shared.b64 [b];"),
    "expected": (128, "cp.async.mbarrier.arrive.noinc.shared.b64 [b];"),
}


def _launch(count: int, arrival: str) -> list[int]:
    given, out = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    nbtc.load(TEXT.format(count=count, arrival=arrival))["opposite"].checked[1, 64](given, out)
    return out.tolist()


@pytest.mark.parametrize("name", ARRIVALS)
def test_copies_that_arrive_at_an_mbarrier_are_done_for_whoever_waits(name: str) -> None:
    assert _launch(*ARRIVALS[name]) == list(range(64))[::-1]


def test_copies_that_do_not_arrive_are_under_way() -> None:
    with pytest.raises(ProgramError, match="asynchronous operation still under way"):
        _launch(64, "")


def test_an_arrival_outside_of_shared_memory_is_found() -> None:
    with pytest.raises(ProgramError, match=r"cp\.async\.mbarrier\.arrive.*shared memory"):
        _launch(64, "cp.async.mbarrier.arrive.shared.b64 [b+4096];")
