"""A thread that drops what it loaded has no race with the one that stores in its place; one that uses it has."""

import numpy as np
import pytest

import nbtc
from nbtc.errors import ProgramError

TEXT = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 n)
{{
 .reg .b32 t, r, a, b, c, d, e, f, i, m; .reg .b64 xs, ys, z, o; .reg .pred p, q, s, w; .shared .b32 mem[128];
 ld.param.u64 xs, [x]; ld.param.u64 ys, [y]; ld.param.u32 m, [n]; mov.u32 t, %tid.x;
 and.b32 r, t, 63; mul.wide.u32 o, r, 4; add.u64 xs, xs, o; mul.wide.u32 o, t, 4; add.u64 ys, ys, o;
 mov.u32 i, 0;
L:
 mov.u32 a, 7;
 ld.global.u32 a, [xs];
 add.u32 b, a, 1;
 {after}
 add.u32 i, i, 1; setp.lt.u32 s, i, m; @s bra L;
 ret;
}}
"""
REPLICAS = "and.b32 c, t, 64; setp.{order}.b32 p, c, 0;"  # two of the block's four warps
STORE = "@p st.global.u32 [xs], b;"
RIGHT = {
    "guard of the thread's place": REPLICAS + STORE,
    "negated": "and.b32 c, t, 64; setp.{order}.b32 q, c, 0; not.pred p, q; @!p st.global.u32 [xs], b;",
    "and what a loop knows": REPLICAS + "setp.lt.u32 q, i, m; and.pred w, p, q; @w st.global.u32 [xs], b;",
    "shuffled in warps that drop it": REPLICAS + "shfl.sync.bfly.b32 b, b, 16, 31, -1;" + STORE,
    "a minimum of warps that drop it": REPLICAS + "redux.sync.min.u32 b, b, -1;" + STORE,
    "votes of warps that drop it": REPLICAS
    + "setp.eq.u32 q, a, 0; vote.sync.ballot.b32 b, q, -1; match.any.sync.b32 d, a, -1; add.u32 b, b, d;"
    + STORE,
    "two stores": REPLICAS + STORE + "setp.{order}.u32 q, c, 0; shl.b32 b, b, 1; @q st.global.u32 [ys], b;",
    "through shared memory": REPLICAS
    + "shl.b32 d, t, 2; mov.u32 e, mem; add.u32 e, e, d; @p st.shared.u32 [e], b;"
    + "@p ld.shared.u32 f, [e]; @p st.global.u32 [xs], f;",
    "computed twice": REPLICAS + "add.u32 f, c, 2; and.b32 d, t, 64; setp.lt.u32 q, i, 9; @q bra M; bra O;"
    "M: add.u32 f, d, 2; O: setp.{order}.b32 w, f, 2; @w st.global.u32 [xs], b;",
    "chosen by a branch": REPLICAS + "setp.eq.u32 q, a, 0; @q bra M; add.u32 b, b, 1; M:" + STORE,
    "chosen by a branch of two ways": REPLICAS
    + "setp.eq.u32 q, a, 0; @q bra M; add.u32 b, b, 1; bra O; M: add.u32 b, b, 5; setp.eq.u32 w, b, 6; @w bra O;"
    + "add.u32 b, b, a; O:"
    + STORE,
    "atomic whose result nobody reads": REPLICAS + STORE + "@p atom.global.add.u32 f, [ys], b;",
    "a loop that begins with the same number": "mov.u32 e, 0; mov.u32 f, e; M: add.u32 e, e, a; add.u32 f, f, 1;"
    + "setp.lt.u32 q, f, 3; @q bra M; add.u32 b, b, e;"
    + REPLICAS
    + STORE,
    "guarded by the value": REPLICAS + "setp.eq.u32 q, a, 0; @q add.u32 b, b, 1;" + STORE,
}
WRONG = {
    "stored by all": REPLICAS + STORE + "st.global.u32 [ys], b;",
    "stored by another lane": REPLICAS + STORE + "setp.eq.u32 q, t, {other}; @q st.global.u32 [ys], a;",
    "an address": REPLICAS
    + STORE
    + "and.b32 a, a, 4; cvt.u64.u32 z, a; add.u64 z, ys, z; @p st.global.u32 [z], 1;"
    + "@!p st.global.u32 [z], 1;",
    "decides": REPLICAS + STORE + "setp.eq.u32 q, a, 1; @q st.global.u32 [ys], i;",
    "decides with the thread's place": REPLICAS
    + STORE
    + "setp.eq.u32 q, a, 1; and.pred q, q, p; @q st.global.u32 [ys], i;",
    "shuffled to one that stores": REPLICAS + STORE + "shfl.sync.bfly.b32 b, b, 16, 31, -1;"
    "setp.eq.u32 q, t, {other}; @q st.global.u32 [ys], b;",
    "a minimum of lanes of which one stores": REPLICAS
    + STORE
    + "redux.sync.min.u32 b, b, -1; setp.eq.u32 q, t, {other}; @q st.global.u32 [ys], b;",
    "guard that is not the place's": REPLICAS + "setp.lt.u32 q, r, m; @q st.global.u32 [ys], b;" + STORE,
    "guard that is set twice": REPLICAS + STORE + "setp.eq.u32 q, t, 0; @q st.global.u32 [ys], b; setp.ne.u32 q, t, 0;",
    "decides a branch to a store": REPLICAS + STORE + "setp.eq.u32 q, a, 1; @q bra M; st.global.u32 [ys], i; M:",
    "decides a branch to the end": REPLICAS + STORE + "setp.eq.u32 q, a, 9; @q ret; st.global.u32 [ys], i;",
    "decides a loop by another name": REPLICAS
    + STORE
    + "mov.u32 e, 0; M: mov.u32 f, e; add.u32 e, e, a; add.u32 e, e, 1; setp.lt.u32 q, f, 8; @q bra M;",
    "decides a loop": REPLICAS + STORE + "M: add.u32 a, a, 1; setp.lt.u32 q, a, 8; @q bra M;",
    "chooses another value": REPLICAS
    + STORE
    + "setp.eq.u32 q, a, 1; mov.u32 f, 1; @q bra M; mov.u32 f, 2; M: st.global.u32 [ys], f;",
    "atomic by all": REPLICAS + STORE + "atom.global.add.u32 f, [ys], b;",
    "atomic whose result is read": REPLICAS
    + STORE
    + "@p atom.global.add.u32 f, [ys], b; and.b32 f, f, 4; cvt.u64.u32 z, f; add.u64 z, xs, z; st.global.u32 [z], 1;",
    "atomic": REPLICAS + STORE + "@p atom.global.add.u32 a, [ys], b; @!p atom.global.add.u32 a, [ys], b;",
}
ORDERS = {"storing warps first": ("eq", 70), "storing warps last": ("ne", 6)}  # who stores, and a thread that does not


def run(order, after):
    x, y = np.zeros(64, np.uint32), np.zeros(129, np.uint32)
    kernel = nbtc.load(TEXT.format(after=after.format(order=order[0], other=order[1])))["k"]
    kernel.launch(1, 128, (x, y, np.uint32(1)), checked=True)
    return x


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("after", RIGHT.values(), ids=RIGHT)
def test_dropped(order, after):
    assert run(order, after).any()


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("after", WRONG.values(), ids=WRONG)
def test_used(order, after):
    with pytest.raises(ProgramError, match="data race"):
        run(order, after)
