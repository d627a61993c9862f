"""What tcgen05 and multicast copies read and write in shared memory, until somebody has waited for them."""

import warnings

import numpy as np
import pytest

import nbtc
from nbtc import tcgen05
from nbtc.errors import ProgramError

# A has 128 rows of 32 bytes, B 16, both without swizzle; thread 0 issues.  {early} stands between the product and its
# wait, {late} after that
PRODUCT = """.version 9.0
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out) {{
 .reg .b32 t, warp, column, r<4>, l<4>; .reg .pred first, one, p<3>;
 .shared .align 1024 .b8 tile[8192]; .shared .align 8 .b64 bar; .shared .b32 slot;
 mov.u32 t, %tid.x; shr.u32 warp, t, 5; setp.eq.u32 first, warp, 0; setp.eq.u32 one, t, 0;
 @first tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 32;
 @first tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
 @one mbarrier.init.shared.b64 [bar], 1; mov.u32 r0, tile; shl.b32 r1, t, 4; add.u32 r0, r0, r1;
 st.shared.v4.u32 [r0], {{t, t, t, t}}; st.shared.v4.u32 [r0+2048], {{t, t, t, t}};
 st.shared.v4.u32 [r0+4096], {{t, t, t, t}}; {fence}
 bar.sync 0; ld.shared.u32 column, [slot]; setp.ne.u32 p0, 0, 0;
 @one {operation}
 {early}
 @one tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];
 L: mbarrier.try_wait.parity.shared.b64 p1, [bar], 0; @!p1 bra L;
 {late}
 bar.sync 0; @first tcgen05.dealloc.cta_group::1.sync.aligned.b32 column, 32; ret; }}"""
FENCE, OVERWRITES = "fence.proxy.async.shared::cta;", "@one st.shared.u32 [tile+{}], 0;"
A, B = (tcgen05.Descriptor(at, 128, 256).encode() for at in (0, 4096))
IDESC = tcgen05.InstructionDescriptor("f16", "f32", "f16", "f16", 128, 16).encode()
OPERATIONS = {
    "mma": f"tcgen05.mma.cta_group::1.kind::f16 [column], {A:#x}, {B:#x}, {IDESC:#x}, p0;",
    "cp": f"tcgen05.cp.cta_group::1.128x256b [column], {A:#x};",
}


def run(operation, fence=FENCE, early="", late=""):
    text = PRODUCT.format(operation=OPERATIONS[operation], fence=fence, early=early, late=late)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nbtc.load(text)["k"].checked[1, 128](np.zeros(4, np.uint32))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operands_may_be_overwritten_once_the_commit_is_seen(operation):
    run(operation, late="bar.sync 0;" + OVERWRITES.format(16))


@pytest.mark.parametrize(("operation", "at"), [("mma", 16), ("mma", 4096 + 256), ("cp", 2048)])
def test_operands_are_read_until_the_commit_is_seen(operation, at):
    with pytest.raises(ProgramError, match=r"still under way: .*st\.shared.*reads until an mbarrier tells"):
        run(operation, early=OVERWRITES.format(at))


LOADS = """shl.b32 r2, warp, 21; add.u32 r2, r2, column;
 tcgen05.ld.sync.aligned.32x32b.x4.b32 {l0, l1, l2, l3}, [r2]; tcgen05.wait::ld.sync.aligned;"""


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_result_is_loaded_once_the_commit_is_seen(operation):
    run(operation, late=LOADS)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_result_loaded_too_early(operation):
    with pytest.raises(ProgramError, match=r"tcgen05\.ld: asynchronous operation still under way: .* columns 0 to"):
        run(operation, early=LOADS)


def test_what_no_operand_names_may_be_overwritten():
    run("mma", early=OVERWRITES.format(4096 + 512 + 16))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operands_stored_without_a_proxy_fence(operation):
    with pytest.raises(ProgramError, match=r"missing proxy fence: .*tcgen05"):
        run(operation, fence="")


# each of two blocks multicasts a line to both, and its mbarrier waits for two; then it reads both lines
MULTICAST = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out) .reqnctapercluster 2, 1, 1 {{
 .reg .b32 t, rank, r<4>; .reg .b64 a, b, d<4>; .reg .pred one, p; .reg .b16 both;
 .shared .align 128 .b8 s[256]; .shared .align 8 .b64 bar;
 ld.param.u64 a, [in]; ld.param.u64 b, [out]; mov.u32 t, %tid.x; mov.u32 rank, %cluster_ctarank; mov.u16 both, 3;
 setp.eq.u32 one, t, 0; mul.wide.u32 d0, rank, 128; add.u64 a, a, d0; mov.u32 r0, s; shl.b32 r1, rank, 7;
 add.u32 r1, r0, r1;
 @one mbarrier.init.shared.b64 [bar], 1; fence.mbarrier_init.release.cluster;
 barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
 @one mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;
 barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
 @one cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [r1], [a], 128, [bar], both;
 {wait}
 shl.b32 r2, t, 2; add.u32 r2, r0, r2; ld.shared.u32 r3, [r2]; ld.shared.u32 r2, [r2+128];
 mad.lo.u32 r1, rank, 64, t; mul.wide.u32 d1, r1, 4; add.u64 b, b, d1; st.global.u32 [b], r3; st.global.u32 [b+128], r2;
 barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ret; }}"""
WAIT = "L: mbarrier.try_wait.parity.shared.b64 p, [bar], 0; @!p bra L;"


def multicast(wait):
    given, out = np.arange(64, dtype=np.uint32), np.zeros((2, 64), np.uint32)
    nbtc.load(MULTICAST.format(wait=wait))["k"].launch(2, 32, (given, out), cluster=2, checked=True)
    return out


def test_multicast_copies_are_complete_for_whoever_has_waited():
    assert (multicast(WAIT) == np.arange(64)).all()


@pytest.mark.parametrize("wait", ["", f"setp.ne.u32 p, rank, 0; @p bra M; {WAIT} M:"], ids=["nobody", "one block"])
def test_multicast_copies_are_under_way_until_their_mbarrier_tells(wait):
    with pytest.raises(ProgramError, match=r"under way|data race|uninitialised"):
        multicast(wait)
