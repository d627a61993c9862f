"""Groups of lanes whose masks differ, and tiles of several warps: what CUDA's cooperative groups are made of."""

import numpy as np
import pytest

import nbtc

LANES = 32
MASKS = """.version 8.0 .target sm_90 .address_size 64
.visible .entry groups(.param .u64 values, .param .u64 masks, .param .u64 out) {
  .reg .b32 t, v, m, d, e; .reg .b64 p, q, o, w; .reg .pred s;
  ld.param.u64 p, [values]; ld.param.u64 q, [masks]; ld.param.u64 o, [out];
  mov.u32 t, %tid.x; mul.wide.u32 w, t, 4; add.u64 p, p, w; add.u64 q, q, w; mad.wide.u32 o, t, 20, o;
  ld.global.u32 v, [p]; ld.global.u32 m, [q];
  match.any.sync.b32 d, v, m; st.global.u32 [o], d;
  match.all.sync.b32 d|s, v, m; selp.u32 e, 1, 0, s; st.global.u32 [o+4], d; st.global.u32 [o+8], e;
  elect.sync d|s, m; selp.u32 e, 1, 0, s; st.global.u32 [o+12], d; st.global.u32 [o+16], e;
  ret; }"""
GROUPS = {
    "ones": [1 << lane for lane in range(LANES)],
    "fours": [15 << (lane & ~3) for lane in range(LANES)],
    "parity": [0x55555555 << (lane & 1) for lane in range(LANES)],
    "warp": [0xFFFFFFFF] * LANES,
}


def _expected(values: list[int], masks: list[int]) -> list[list[int]]:
    rows = []
    for lane, mask in enumerate(masks):
        group = [n for n in range(LANES) if mask >> n & 1]
        same = sum(1 << n for n in group if values[n] == values[lane])
        rows.append([same, mask * (same == mask), int(same == mask), group[0], int(lane == group[0])])
    return rows


@pytest.mark.parametrize("name", GROUPS)
def test_each_lane_has_the_answer_of_its_own_group(name: str) -> None:
    values = np.array([1, 1, 2, 2, 5, 5, 5, 5, *(3 * n % 4 for n in range(24))], np.uint32)
    masks, out = np.array(GROUPS[name], np.uint32), np.zeros((LANES, 5), np.uint32)
    nbtc.load(MASKS)["groups"][1, LANES](values, masks, out)
    assert out.tolist() == _expected(values.tolist(), GROUPS[name])


# two warps meet at a word of the memory that PTX calls reserved, as tiles of several warps do: each clears its bit,
# sets it, and waits until both are set
RESERVED = """.version 8.0 .target sm_90 .address_size 64
.visible .entry meet(.param .u64 out) {
  .reg .b32 t, w, r, n, bit, keep, x, a; .reg .b64 o, i; .reg .pred wait, lead; .shared .b32 s[64];
  ld.param.u64 o, [out]; mov.u32 t, %tid.x; shr.u32 w, t, 5; mul.wide.u32 i, t, 4; add.u64 o, o, i;
  mov.u32 r, %reserved_smem_offset_1; mov.u32 bit, 1; shl.b32 bit, bit, w; not.b32 keep, bit;
  and.b32 n, t, 31; setp.eq.u32 lead, n, 0;
  @lead red.shared.and.b32 [r], keep;
  bar.sync 0;
  mov.u32 a, s; shl.b32 x, t, 2; add.u32 a, a, x; st.shared.b32 [a], t;
  bar.warp.sync -1;
  @lead red.release.cta.shared.or.b32 [r], bit;
look:
  ld.acquire.cta.shared.b32 x, [r]; and.b32 x, x, 3; setp.ne.u32 wait, x, 3;
  @wait bra look;
  xor.b32 a, a, 252; ld.shared.b32 x, [a]; st.global.b32 [o], x;
  ret; }"""
SIZES = """.version 8.1 .target sm_90 .address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry sizes(.param .u64 out) {
  .reg .b32 r; .reg .b64 o; .shared .align 4 .b8 s[100]; ld.param.u64 o, [out];
  mov.u32 r, %reserved_smem_offset_begin; st.global.b32 [o], r;
  mov.u32 r, %reserved_smem_offset_end; st.global.b32 [o+4], r;
  mov.u32 r, %reserved_smem_offset_cap; st.global.b32 [o+8], r; mov.u32 r, %total_smem_size; st.global.b32 [o+12], r;
  mov.u32 r, %aggr_smem_size; st.global.b32 [o+16], r; mov.u32 r, s; st.global.b32 [o+20], r;
  mov.u32 r, dynamic; st.global.b32 [o+24], r; ret; }"""


def test_reserved_shared_memory_lies_before_the_program_s_own() -> None:
    program = nbtc.load(RESERVED)["meet"]
    out = np.zeros(64, np.uint32)
    program[1, 64](out)
    assert out.tolist() == list(range(64))[::-1]
    checked = np.zeros(64, np.uint32)
    program.checked[1, 64](checked)
    assert checked.tolist() == out.tolist()


def test_sizes_of_shared_memory_are_those_that_an_h100_tells() -> None:
    out = np.zeros(7, np.uint32)
    nbtc.load(SIZES)["sizes"][1, 1, 0, 64](out)
    assert out.tolist() == [0, 288, 1024, 256, 1200, 1024, 1136]


# what an H100 gave for this text: lanes in diverged code, sources that are not among them
OLD = """.version 6.0 .target {target} .address_size 64
.visible .entry old(.param .u64 out) {{
  .reg .b32 r, t, a, g; .reg .b64 o; .reg .pred s, z, y;
  ld.param.u64 o, [out]; mov.u32 t, %tid.x; mad.wide.u32 o, t, 36, o; mul.lo.u32 a, t, t;
  shfl.down.b32 r|s, a, 1, 31; st.global.b32 [o], r; selp.u32 g, 1, 0, s; st.global.b32 [o+4], g;
  shfl.idx.b32 r, a, 5, 31; st.global.b32 [o+8], r;
  setp.gt.u32 z, a, 100; vote.ballot.b32 r, z; st.global.b32 [o+12], r;
  vote.all.pred y, z; selp.u32 g, 1, 0, y; st.global.b32 [o+16], g;
  vote.any.pred y, z; selp.u32 g, 1, 0, y; st.global.b32 [o+20], g;
  and.b32 g, t, 1; setp.eq.u32 z, g, 1;
  @z bra odd;
  shfl.up.b32 r, a, 2, 0; st.global.b32 [o+24], r; shfl.idx.b32 r, a, 3, 31; st.global.b32 [o+32], r;
  vote.ballot.b32 r, 1; st.global.b32 [o+28], r;
  bra.uni end;
odd:
  shfl.bfly.b32 r, a, 2, 31; st.global.b32 [o+24], r; shfl.idx.b32 r, a, 4, 31; st.global.b32 [o+32], r;
  vote.ballot.b32 r, 1; st.global.b32 [o+28], r;
end:
  ret; }}"""


def test_shuffles_and_votes_of_old_targets_are_among_the_lanes_at_hand() -> None:
    out = np.zeros((LANES, 9), np.uint32)
    nbtc.load(OLD.format(target="sm_60"))["old"][1, LANES](out)
    lanes = range(LANES)
    above = sum(1 << n for n in lanes if n * n > 100)
    expected = [
        [min(n + 1, 31) ** 2, int(n < 31), 25, above, 0, 1]
        + ([(n ^ 2) ** 2, 0xAAAAAAAA, 0] if n & 1 else [max(n - 2, 0) ** 2, 0x55555555, 0])
        for n in lanes
    ]
    assert out.tolist() == expected


def test_newer_targets_name_the_lanes() -> None:
    text = OLD.format(target="sm_70").replace(".version 6.0", ".version 6.4")
    with pytest.raises(nbtc.errors.ProgramError, match=r"needs \.sync from sm_70 on, and the text's \.target is sm_70"):
        nbtc.load(text)["old"][1, LANES](np.zeros((LANES, 9), np.uint32))
