"""Checked mode names what is wrong, not what came of it, and the threads and lines that it is about."""

from __future__ import annotations

import numpy as np
import pytest

import nbtc
from nbtc.errors import ProgramError

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 o) { .reg .b32 r<9>; .reg .pred p; .reg .b64 q, d; .shared .b32 s[64];
 ld.param.u64 q, [o]; mov.u32 r0, %tid.x; mul.wide.u32 d, r0, 4; add.u64 q, q, d;
"""


def said(body: str) -> str:
    kernel = nbtc.load(f"{HEAD}{body}\nret; }}")["k"]
    with pytest.raises(ProgramError) as raised:
        kernel.launch(1, 64, (np.zeros(64, np.int32),), checked=True, timeout=60)
    return str(raised.value)


def test_a_race_whose_reader_runs_first_names_the_threads_that_conflict():
    text = said("""
mov.u32 r1, s; shl.b32 r2, r0, 2; add.u32 r3, r1, r2; xor.b32 r2, r2, 252; add.u32 r4, r1, r2;
st.shared.b32 [r3], r0;
ld.shared.b32 r5, [r4];
st.global.b32 [q], r5;""")
    assert "data race" in text
    assert "thread (32, 0, 0) writes shared memory at 0x80, which block (0, 0, 0) thread (31, 0, 0) reads" in text


def test_what_is_unwritten_at_the_end_is_uninitialised_and_names_the_lane_that_uses_it():
    text = said("""
mov.u32 r1, s; shl.b32 r2, r0, 2; add.u32 r3, r1, r2; setp.eq.u32 p, r0, 5;
@!p st.shared.b32 [r3], r0;
ld.shared.b32 r5, [r3];
st.global.b32 [q], r5;""")
    assert "uninitialised shared memory: line 9" in text
    assert "thread (5, 0, 0) reads shared memory at 0x14, which" in text
    assert "thread (5, 0, 0) uses at line 10" in text


def test_a_loop_that_goes_by_unwritten_memory_ends():
    assert "uninitialised shared memory" in said("L: ld.shared.b32 r1, [s]; setp.eq.u32 p, r1, 0; @p bra L;")


def test_a_third_equal_read_of_a_written_word_is_not_unwritten():
    """Lane 0 reads a word that nobody wrote and drops it; lanes 1 to 31 read one that is written."""
    kernel = nbtc.load(f"""{HEAD}
mov.u32 r1, s; setp.eq.u32 p, r0, 0; @p st.shared.b32 [s], r0; bar.sync 0;
selp.b32 r2, 16, 0, p; add.u32 r1, r1, r2; ld.shared.b32 r3, [r1]; @!p st.global.b32 [q], r3; ret; }}""")["k"]
    kernel.checked[1, 32](np.zeros(64, np.int32))


@pytest.mark.parametrize(("reach", "line"), [("lt", 8), ("ge", 8)])
def test_a_barrier_that_not_all_threads_reach_is_named(reach, line):
    text = said(f"""setp.{reach}.u32 p, r0, 32;
@!p bra E;
bar.sync 0;
E:""")
    assert "barrier that not all threads reach" in text
    assert f"line {line}: bar.sync" in text


@pytest.mark.parametrize(("size", "kind"), [(1, "u8"), (2, "u16")])
def test_lanes_that_share_a_word_own_their_bytes(size, kind):
    """Each lane writes, reads and writes again its own bytes of words that several lanes have, without a barrier."""
    kernel = nbtc.load(f"""{HEAD} .reg .b16 h;
mov.u32 r1, s; mad.lo.u32 r2, r0, {size}, r1; cvt.u16.u32 h, r0;
st.shared.{kind} [r2], h; ld.shared.{kind} h, [r2]; add.u16 h, h, 1; st.shared.{kind} [r2], h;
ld.shared.{kind} h, [r2]; cvt.u32.u16 r3, h; st.global.b32 [q], r3; ret; }}""")["k"]
    out = np.zeros(64, np.int32)
    kernel.checked[1, 64](out)
    assert out.tolist() == list(range(1, 65))


def test_a_race_for_a_byte_names_the_lane_whose_byte_it_is():
    text = said("""
mov.u32 r1, s; add.u32 r2, r1, r0; xor.b32 r3, r2, 2; .reg .b16 h; cvt.u16.u32 h, r0;
st.shared.u8 [r2], h;
ld.shared.u8 h, [r3];
cvt.u32.u16 r4, h; st.global.b32 [q], r4;""")
    assert "thread (0, 0, 0) reads shared memory at 0x2, which block (0, 0, 0) thread (2, 0, 0) writes" in text


REUSED = """.version 8.0 .target sm_80 .address_size 64
.visible .entry k(.param .u64 o) { .reg .b32 w,r; .reg .pred p,q; .reg .b64 d; .shared .b32 s;
 ld.param.u64 d,[o]; mov.u32 w,%%tid.x; shr.u32 w,w,5; setp.eq.u32 p,w,0; setp.eq.u32 q,w,1;
@p bra W0;
@q bra W1;
 bar.sync 1,64; ret;
W1: st.shared.b32 [s],w; bar.sync 1,64;
 %s
 bar.sync 1,64; ret;
W0: bar.sync 1,64;
 ld.shared.b32 r,[s];
 st.global.b32 [d],r; ret; }"""


def test_a_warp_that_goes_on_late_knows_of_its_own_use_of_a_barrier_alone() -> None:
    """Warps 0 and 1 meet; warp 1 meets warp 2 at the same barrier before warp 0 has gone on."""
    with pytest.raises(ProgramError, match="data race"):
        nbtc.load(REUSED % "st.shared.b32 [s],7;")["k"].checked[1, 96](np.zeros(64, np.int32))
    out = np.zeros(64, np.int32)
    nbtc.load(REUSED % "")["k"].checked[1, 96](out)
    assert out[0] == 1


def adds_to_one(x, out):
    out[0] += x[nbtc.thread_idx.x]


def meets_in_a_half(x, out):
    t = nbtc.thread_idx.x
    if t < 32:
        nbtc.syncthreads()
    out[t] = x[t]


def swaps(x, out):
    tile = nbtc.shared(64, np.float32)
    t = nbtc.thread_idx.x
    tile[t] = x[t]
    out[t] = tile[63 - t]


@pytest.mark.parametrize(
    ("function", "says", "never"),
    [
        (adds_to_one, "nbtc.atomic_add", "__syncthreads"),
        (meets_in_a_half, "as where it is under an `if`", "atomic"),
        (swaps, "put a barrier between them (nbtc.syncthreads()", "atomic"),
    ],
)
def test_kernels_in_python_are_advised_in_python(function, says, never):
    x = np.zeros(64, np.float32)
    with pytest.raises(ProgramError) as raised:
        nbtc.kernel(function).checked[1, 64](x, x.copy())
    assert says in str(raised.value)
    assert never not in str(raised.value)


def test_programs_are_advised_in_their_own_words():
    assert "bar.sync, __syncthreads" in said("""
mov.u32 r1, s; st.shared.b32 [r1], r0; ld.shared.b32 r5, [r1]; st.global.b32 [q], r5;""")
