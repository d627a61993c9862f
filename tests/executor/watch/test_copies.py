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


BULK = """.version 8.0 .target sm_90 .address_size 64
.visible .entry bulk(.param .u64 in, .param .u64 out) {{
  .reg .b32 t, a, b, x; .reg .b64 p, q, w; .reg .pred first, done;
  .shared .align 8 .b64 bar; .shared .align 16 .b32 s[64];
  ld.param.u64 p, [in]; ld.param.u64 q, [out]; mov.u32 t, %tid.x; mul.wide.u32 w, t, 4; add.u64 q, q, w;
  mov.u32 b, bar; mov.u32 a, s; setp.eq.u32 first, t, {maker};
  @first mbarrier.init.shared.b64 [b], 1;
  {before}
  bar.sync 0;
  {after}
  setp.eq.u32 first, t, 0;
  @first mbarrier.arrive.expect_tx.shared.b64 _, [b], 256;
  {between}
  @first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [a], [p], 256, [b];
wait:
  mbarrier.try_wait.parity.shared.b64 done, [b], 0;
  @!done bra wait;
  shl.b32 x, t, 2; add.u32 x, a, x; ld.shared.b32 x, [x]; st.global.b32 [q], x;
  ret; }}"""


def _bulk(before: str, after: str, maker: int, between: str = "") -> None:
    given, out = np.zeros(68, np.uint32), np.zeros(64, np.uint32)
    given = given[-given.ctypes.data % 16 // 4 :][:64]
    given[:] = np.arange(64)
    nbtc.load(BULK.format(before=before, after=after, maker=maker, between=between))["bulk"].checked[1, 64](given, out)
    assert out.tolist() == list(range(64))


@pytest.mark.parametrize("maker", [0, 32])
@pytest.mark.parametrize(
    "fences",
    [
        ("fence.mbarrier_init.release.cluster;", ""),
        ("fence.proxy.async;", ""),
        ("", "fence.proxy.async;"),
    ],
)
def test_a_bulk_copy_sees_an_mbarrier_after_a_fence(fences: tuple[str, str], maker: int) -> None:
    _bulk(*fences, maker)


@pytest.mark.parametrize(
    ("before", "after", "maker"),
    [
        ("", "", 0),
        ("", "", 32),
        ("membar.cta;", "", 0),
        ("membar.cta;", "", 32),
        ("", "fence.mbarrier_init.release.cluster;", 32),
    ],
)
def test_an_mbarrier_of_a_bulk_copy_is_fenced_by_who_made_it(before: str, after: str, maker: int) -> None:
    with pytest.raises(ProgramError, match="mbarrier without a fence"):
        _bulk(before, "", maker)


@pytest.mark.parametrize("barrier", ["bar.sync 0;", "bar.warp.sync -1;"])
def test_a_barrier_before_the_copy_will_do_as_in_tritons_kernels(barrier: str) -> None:
    _bulk("", "", 0, barrier)
