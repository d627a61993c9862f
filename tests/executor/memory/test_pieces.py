"""What lies in one piece of memory: lines of bulk copies, and shared memory of other blocks."""

import numpy as np
import pytest

import nbtc
from nbtc.errors import ProgramError

LINE = """.version 8.0 .target sm_90 .address_size 64
.visible .entry k(.param .u64 out, .param .u32 nn) { .shared .align 128 .b8 s[4096]; .reg .b32 n, a, t; .reg .b64 q;
 .reg .pred p; mov.u32 t, %tid.x; setp.ne.u32 p, t, 0; @p ret; mov.u32 a, s; ld.param.u64 q, [out];
 ld.param.u32 n, [nn]; cp.async.bulk.global.shared::cta.bulk_group [q], [a], n;
 cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ret; }"""


@pytest.mark.parametrize("checked", [False, True])
def test_a_line_from_one_array_to_another_is_outside_of_memory(checked: bool) -> None:
    room = np.full(4096 + 128, 9, np.uint8)
    room = room[-room.ctypes.data % 128 :][:4096]
    first, last = room[:1024], room[-1024:]
    with pytest.raises(ProgramError, match=r"cp\.async\.bulk\.global"):
        nbtc.load(LINE)["k"].launch(1, 32, [first, 4096], memory=[last], checked=checked)
    assert (room[1024:-1024] == 9).all()


def test_a_line_of_no_bytes_touches_nothing() -> None:
    x = np.full(64, 9, np.uint8)
    nbtc.load(LINE)["k"].launch(1, 32, [x, 0])
    assert (x == 9).all()


PEER = """.version 8.0 .target sm_90 .address_size 64
.visible .entry k(.param .u64 out) .reqnctapercluster 2, 1, 1 { .shared .b32 s[64]; .reg .b32 t, c, a, p, v, b, o;
 .reg .b64 q, i; mov.u32 t, %tid.x; mov.u32 c, %cluster_ctarank; mov.u32 a, s; shl.b32 b, t, 2; add.u32 a, a, b;
 mul.lo.u32 v, c, 1000; add.u32 v, v, t; st.shared.u32 [a], v;
 barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
 xor.b32 p, c, 1; mapa.shared::cluster.u32 a, a, p; ld.shared::cluster.u32 v, [a];
 ld.param.u64 q, [out]; mov.u32 o, %ctaid.x; mad.lo.u32 o, o, 32, t; mul.wide.u32 i, o, 4; add.u64 q, q, i;
 st.global.u32 [q], v; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ret; }"""


@pytest.mark.parametrize("checked", ["off", False])
def test_memory_of_another_block_is_read_whatever_is_checked(checked: bool | str) -> None:
    x = np.zeros(64, np.int32)
    nbtc.load(PEER)["k"].launch(2, 32, [x], checked=checked)
    np.testing.assert_array_equal(x, [*range(1000, 1032), *range(32)])


SPACES = """.version 8.0 .target sm_90 .address_size 64
.visible .entry k(.param .u64 out) .reqnctapercluster 2, 1, 1 { .shared .b32 s[64]; .reg .b32 r, c, one;
 .reg .b64 q, g, h; .reg .pred p; ld.param.u64 q, [out];
 mov.u32 c, %cluster_ctarank; setp.ne.u32 p, c, 0; mov.u32 one, 1;
 cvta.shared.u64 g, s; mapa.u64 h, g, one; @p bra E;
 isspacep.shared::cta p, h; selp.u32 r, 1, 0, p; st.global.u32 [q], r;
 isspacep.shared::cluster p, h; selp.u32 r, 1, 0, p; st.global.u32 [q+4], r;
 isspacep.shared::cta p, g; selp.u32 r, 1, 0, p; st.global.u32 [q+8], r;
 mov.u32 one, 0; mapa.u64 h, g, one; isspacep.shared::cta p, h; selp.u32 r, 1, 0, p; st.global.u32 [q+12], r;
E: barrier.cluster.arrive; barrier.cluster.wait; ret; }"""


def test_another_blocks_shared_memory_is_the_clusters_alone() -> None:
    x = np.zeros(4, np.int32)
    nbtc.load(SPACES)["k"].launch(2, 1, [x])
    assert x.tolist() == [0, 1, 1, 1]
