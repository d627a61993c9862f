"""What the warps of a warpgroup wait for around products: programs that have no other barrier."""

import ml_dtypes
import numpy as np
import pytest

import nbtc
from nbtc.testing import assert_bits_equal

HEAD = ".version 8.5\n.target sm_90a\n.address_size 64\n"
ROUNDS = 3
PRODUCT = """
mov.u32 %s, tile; shr.u32 %s, %s, 4; cvt.u64.u32 %b, %s; or.b64 %b, %b, 0x1000080000; // 128 and 256 bytes apart
fence.proxy.async;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0, %d1, %d2, %d3}, {%a0, %a1, %a2, %a3}, %b, %more, 1, 1, 0;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
"""
# thread t of the warpgroup copies element t of each round's B, so a warp copies a quarter of it
PROGRAM = f"""{HEAD}.visible .entry k(.param .u64 A, .param .u64 B, .param .u64 D)
{{
.reg .b64 %q<4>, %b, %state;
.reg .b32 %a<4>, %t, %s, %n;
.reg .f32 %d<4>;
.reg .b16 %x;
.reg .pred %more, %p, %passed;
.shared .align 128 .b8 tile[256];
.shared .align 8 .b64 bar;
mov.u32 %t, %tid.x;
ld.param.u64 %q0, [A]; ld.param.u64 %q1, [B]; ld.param.u64 %q2, [D];
mad.wide.u32 %q0, %t, 16, %q0; mad.wide.u32 %q1, %t, 2, %q1; mad.wide.u32 %q2, %t, 16, %q2;
ld.global.v4.b32 {{%a0, %a1, %a2, %a3}}, [%q0];
mov.f32 %d0, 0.0; mov.f32 %d1, 0.0; mov.f32 %d2, 0.0; mov.f32 %d3, 0.0;
@PREPARE@
mov.u32 %n, 0;
LOOP:
@COPY@
setp.ne.u32 %more, %n, 0;
{PRODUCT}
add.u64 %q1, %q1, 256;
add.u32 %n, %n, 1;
setp.lt.u32 %p, %n, {ROUNDS};
@%p bra LOOP;
st.global.v4.f32 [%q2], {{%d0, %d1, %d2, %d3}};
ret;
}}
"""
EACH_ITS_OWN = """
mov.u32 %s, tile; mad.lo.u32 %s, %t, 2, %s;
ld.global.b16 %x, [%q1]; st.shared.b16 [%s], %x;
"""
# the first thread alone waits until all 128 have arrived, as one that starts copies does for a free place
INIT = """
setp.ne.u32 %p, %t, 0;
@!%p mbarrier.init.shared.b64 [bar], 128;
bar.sync 0;
"""
ONE_WAITS = f"""
{EACH_ITS_OWN}
mbarrier.arrive.shared.b64 %state, [bar];
@%t0 bra BEHIND;
SPIN:
mbarrier.try_wait.parity.shared.b64 %passed, [bar], %parity;
@!%passed bra SPIN;
BEHIND:
""".replace("@%t0 bra", "setp.ne.u32 %p, %t, 0; and.b32 %s, %n, 1; @%p bra").replace("%parity", "%s")


GROUPS = 2
# two warpgroups one after the other, one product each, at the same instruction and with the same memory
BY_TURNS = PROGRAM.replace("%tid.x;", """%tid.x; shr.u32 %g, %t, 7; and.b32 %t, %t, 127;
mov.u32 %n, %ctaid.x; mov.u32 %turn, %ntid.x; shr.u32 %turn, %turn, 7;
mad.lo.u32 %n, %n, %turn, %g;""").replace("ld.global.v4", """
mad.wide.u32 %q0, %n, 2048, %q0; mad.wide.u32 %q1, %n, 256, %q1; mad.wide.u32 %q2, %n, 2048, %q2;
ld.global.v4""").replace("mov.u32 %n, 0;", """mov.u32 %turn, 0;
TURN: setp.ne.u32 %p, %g, %turn; @%p bra NEXT;
mov.u32 %n, 0;""").replace("ret;", f"""NEXT: bar.sync 0;
add.u32 %turn, %turn, 1; setp.lt.u32 %p, %turn, {GROUPS}; @%p bra TURN;
ret;""").replace(f"%n, {ROUNDS};", "%n, 1;").replace("%s, %n;", "%s, %n, %g, %turn;")  # fmt: skip


def operands(rng, rounds, kind=np.float16):
    """A and B of all rounds as a warpgroup's threads load them, and each one's sums: small integers, so exact."""
    a = rng.integers(-8, 9, (64, 16)).astype(kind)
    b = rng.integers(-8, 9, (rounds, 8, 16)).astype(kind)  # [round, n, k]
    thread = np.arange(128)
    row, column = thread // 32 * 16 + thread % 32 // 4, thread % 4 * 2
    rows = np.stack([row, row + 8, row, row + 8], 1)[..., None]
    columns = np.stack([column, column, column + 8, column + 8], 1)[..., None] + np.arange(2)
    tiles = b.reshape(rounds, 8, 2, 8).transpose(0, 2, 1, 3).copy()  # two tiles of eight by eight
    want = np.einsum("mk,rnk->mn", a.astype(np.float32), b.astype(np.float32))
    return a[rows, columns].copy(), tiles, np.stack([want[r, column + i] for r in (row, row + 8) for i in (0, 1)], 1)


def run(prepare, copy):
    """Sums of A B over the rounds, from the program and from NumPy."""
    a, b, want = operands(np.random.default_rng(5), ROUNDS)
    d = np.zeros_like(want)
    program = PROGRAM.replace("@PREPARE@", prepare).replace("@COPY@", copy)
    nbtc.load(program, arch="sm_90")["k"][1, 128](a, b, d)
    assert_bits_equal(d, want)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16], ids=["by slices", "by tiles"])
@pytest.mark.parametrize(("groups", "blocks"), [(1, 1), (1, 3), (GROUPS, 1), (GROUPS, 3)])
def test_no_warp_finds_the_b_of_another_warpgroup_block_or_launch(groups, blocks, kind):
    """Of a warpgroup's four warps the first decodes B for all (`warpgroup_product`)."""
    rng = np.random.default_rng(7)
    text = BY_TURNS.replace("@PREPARE@", "").replace("@COPY@", EACH_ITS_OWN)
    text = text if kind is np.float16 else text.replace("f32.f16.f16", "f32.bf16.bf16")
    kernel = nbtc.load(text, arch="sm_90")["k"]
    for _ in range(2):
        a, b, want = (np.stack(x) for x in zip(*(operands(rng, 1, kind) for _ in range(groups * blocks)), strict=True))
        d = np.zeros_like(want)
        kernel.launch((blocks,), (128 * groups,), (a, b, d), threads=1)
        assert_bits_equal(d, want)


def test_a_product_reads_what_all_four_warps_wrote_before_their_fences():
    """And no warp writes again before all have multiplied."""
    run("", EACH_ITS_OWN)


def test_a_fence_waits_for_the_lane_that_waited_alone():
    run(INIT, ONE_WAITS)


def test_a_warp_that_never_multiplies_is_waited_for_by_name():
    """The other three stand at the fence before the product, and it at a barrier of all four."""
    text = f"""{HEAD}.visible .entry k()
    {{
    .reg .b64 %b; .reg .b32 %a<4>, %t, %s; .reg .f32 %d<4>; .reg .pred %more, %p; .shared .align 128 .b8 tile[256];
    mov.u32 %t, %tid.x; setp.ge.u32 %p, %t, 96;
    mov.b32 %a0, 0; mov.b32 %a1, 0; mov.b32 %a2, 0; mov.b32 %a3, 0; setp.ne.u32 %more, %a0, 0;
    @%p bra END;
    {PRODUCT}
    END: bar.sync 0;
    ret;
    }}"""
    said = r"k: line \d+: wgmma.fence.*waits forever.*wgmma.fence.*warp 2 of.*bar.sync, warp 3 of block \(0, 0, 0\)$"
    with pytest.raises(nbtc.errors.ProgramError, match=said):
        nbtc.load(text)["k"][1, 128]()
