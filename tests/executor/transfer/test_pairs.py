"""Copies of tensors for pairs of blocks, whose bytes an mbarrier in either of the two counts (.cta_group::2)."""

import numpy as np
import pytest

import nbtc

BLOCKS, BYTES, EVEN = 4, 128, "and.b32 %r3, %r3, 0xFEFFFFFF;"
PEER = "xor.b32 %r4, %r1, 1; mapa.shared::cluster.u32 %r3, %r3, %r4;"
LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
TEXT = """.version 8.7 .target sm_100a .address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out, .param .u64 said_) .reqnctapercluster 4, 1, 1 {
 .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .b16 %h1; .reg .pred %p<3>; .shared .align 128 .b32 s[32]; .shared .b64 bar;
 mov.u64 %d1, map; cvta.param.u64 %d1, %d1; ld.param.u64 %d2, [out]; ld.param.u64 %d3, [said_];
 mov.u32 %r1, %cluster_ctarank; mov.b32 %r2, s; mov.b32 %r3, bar; mov.b32 %r7, 0; mov.u32 %r8, 0;
 mbarrier.init.shared.b64 [bar], 1; fence.mbarrier_init.release.cluster;
 mbarrier.arrive.expect_tx.shared.b64 _, [bar], EXPECTED;
 barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
 BARRIER setp.lt.u32 %p1, %r1, ISSUERS;
 @%p1 LOAD.cta_group::2 [%r2], [%d1, {%r7, %r1}], [%r3] MORE;
 mov.u32 %r4, 0;
L: mbarrier.test_wait.parity.shared.b64 %p2, [bar], 0; add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 100;
 @%p2 mov.u32 %r8, 1; @%p2 bra M; @%p1 bra L;
M: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
 getctarank.shared::cluster.u32 %r6, %r3; mul.wide.u32 %d4, %r1, 128; add.u64 %d2, %d2, %d4;
 mul.wide.u32 %d4, %r1, 8; add.u64 %d3, %d3, %d4; st.global.v2.u32 [%d3], {%r8, %r6};
 mov.u32 %r4, 0;
C: ld.shared.v4.b32 {%r3, %r5, %r6, %r7}, [%r2]; st.global.v4.b32 [%d2], {%r3, %r5, %r6, %r7};
 add.u32 %r2, %r2, 16; add.u64 %d2, %d2, 16; add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 8; @%p1 bra C;
 ret; }"""
SEVERAL = LOAD + ".multicast::cluster"
# the mbarrier's address, bytes that each awaits, blocks that copy, to which others: whose mbarriers are done, and
# in which block each block's address of one lies
CASES = {
    "its own": ("", BYTES, 4, "", [1, 1, 1, 1], [0, 1, 2, 3]),
    "the even block's": (EVEN, 2 * BYTES, 4, "", [1, 0, 1, 0], [0, 0, 2, 2]),
    "the other's": (PEER, BYTES, 4, "", [1] * 4, [1, 0, 3, 2]),
    "the other's, of one block": (
        PEER, BYTES, 1, "", [0, 1, 0, 0], [1, 0, 3, 2],
    ),
    "several, by an even one": ("", 2 * BYTES, 1, "15", [1, 0, 1, 0], [0, 1, 2, 3]),
    "several, by the other's": (
        PEER, 2 * BYTES, 1, "15", [0, 1, 0, 1], [1, 0, 3, 2],
    ),
    "one of each pair": ("", BYTES, 1, "9", [1, 0, 1, 0], [0, 1, 2, 3]),
}  # fmt: skip


def told(name, checked):
    """(what each block found, rows that came to it) of a case."""
    address, expected, issuers, mask, *_ = CASES[name]
    text = TEXT.replace("BARRIER", address + f"mov.u16 %h1, {mask or 0};").replace("EXPECTED", str(expected))
    text = text.replace("ISSUERS", str(issuers)).replace("LOAD", SEVERAL if mask else LOAD)
    source = np.arange(BLOCKS * 32, dtype=np.uint32).reshape(BLOCKS, 32) + 1
    out, said = np.zeros_like(source), np.zeros((BLOCKS, 2), np.uint32)
    given = nbtc.TensorMap(source, (32, 1)), out, said
    nbtc.load(text.replace("MORE", ", %h1" if mask else ""))["k"].launch(BLOCKS, 1, given, checked=checked)
    for n in range(BLOCKS):
        if int(mask) >> n & 1 if mask else n < issuers:
            assert (out[n] == source[0 if mask else n]).all()
    return said.T.tolist()


@pytest.mark.parametrize("name", CASES)
def test_who_is_told(name):
    assert told(name, False) == list(CASES[name][-2:])


@pytest.mark.parametrize("name", ["its own", "the even block's", "the other's"])
def test_nothing_is_reported_of_it(name):
    assert told(name, True) == list(CASES[name][-2:])
