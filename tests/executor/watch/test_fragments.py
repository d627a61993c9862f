"""Unwritten rows and columns of matrices: they count where an element that comes of them does."""

from itertools import pairwise

import numpy as np
import pytest

import nbtc
from nbtc.errors import ProgramError
from nbtc.executor.watch.fragments import Masks

M32 = 0xFFFFFFFF


class Numbers:
    """An LLVM builder that computes."""

    @staticmethod
    def _of(x):
        return x if isinstance(x, int) else x.constant

    def or_(self, x, y):
        return self._of(x) | self._of(y)

    def and_(self, x, y):
        return self._of(x) & self._of(y)

    def mul(self, x, y):
        return self._of(x) * self._of(y) & M32

    def shl(self, x, y):
        return self._of(x) << self._of(y) & M32

    def lshr(self, x, y):
        return self._of(x) >> self._of(y)


MASKS = Masks(Numbers())
SOME = [int(x) for x in np.random.default_rng(3).integers(0, 1 << 32, 40)] + [1 << n for n in range(32)] + [0, M32]


def lanes(which):
    """A mask of the lanes for whose row and place in it a condition holds."""
    return sum(1 << 4 * g + t for g in range(8) for t in range(4) if which(g, t))


@pytest.mark.parametrize("tall", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_an_element_of_a_product_comes_of_its_row_and_column(tall, packed):
    parts = 2 if tall else 1
    for x, y, z in zip(SOME, SOME[1:], SOME[2:], strict=False):
        a, b = [x, y, z & y, x & z][: 2 * parts] if tall else [x], [z, x & y]
        rows = [[any(m >> 4 * g & 15 for m in a[p::parts]) for g in range(8)] for p in range(parts)]
        columns = [any(m >> 4 * g & 15 for m in b) for g in range(8)]
        found = MASKS.product(a, b, [0] * (parts if packed else 2 * parts))
        for n, mask in enumerate(found):
            row = rows[n] if packed else rows[n // 2]
            some = (0, 1) if packed else (n % 2,)
            assert mask == lanes(lambda g, t: row[g] or any(columns[2 * t + e] for e in some))  # noqa: B023
    assert MASKS.product([0], [0], [5, 9]) == [5, 9]


def test_a_matrix_and_what_lanes_exchange():
    for x, y in pairwise(SOME):
        rows = [x & 255, x >> 8 & 255, y & 255, y >> 24]  # of four words each
        assert MASKS.matrix(rows, False) == lanes(lambda g, t: rows[t] >> g & 1)  # noqa: B023
        assert MASKS.matrix(rows, True) == lanes(lambda g, t: rows[g // 2] >> 2 * t & 3)  # noqa: B023
        by = y & 31
        assert MASKS.exchanged(x, by) == sum((x >> (n ^ by) & 1) << n for n in range(32))


TEXT = """.version 8.0 .target sm_80 .address_size 64
.visible .entry k(.param .u64 out, .param .u32 rows, .param .u32 columns) {
 .reg .b32 t, s, o, u, w, g, c, n, m, a<4>, b<2>, z, y1, y2, y31, all; .reg .f32 d<4>, e<4>;
 .reg .b64 p, q; .reg .pred w0, w1, x0, x1, r, v;
 .shared .align 16 .b8 mem[768]; .shared .align 16 .b8 more[512];
 ld.param.u64 p, [out]; ld.param.u32 n, [rows]; ld.param.u32 m, [columns]; mov.u32 t, %tid.x; mov.b32 z, 0;
 mov.u32 s, mem; shl.b32 o, t, 4; add.u32 s, s, o; shl.b32 o, t, 2; mul.wide.u32 q, t, 8; add.u64 p, p, q;
 and.b32 g, t, 15; setp.lt.u32 w0, g, n; @w0 st.shared.v4.b32 [s], {z, z, z, z};
 and.b32 g, t, 7; setp.lt.u32 w1, g, m; setp.lt.and.u32 w1, t, 16, w1; @w1 st.shared.v4.b32 [s+512], {z, z, z, z};
 bar.warp.sync -1; shr.u32 g, t, 2; setp.lt.u32 r, g, n; and.b32 c, t, 3; shl.b32 c, c, 1; mov.f32 e0, 0f00000000;
 setp.lt.u32 v, c, m;
 ldmatrix.sync.aligned.m8n8.x4.shared.b16 {a0, a1, a2, a3}, [s];
 ldmatrix.sync.aligned.m8n8.x2.shared.b16 {b0, b1}, [s+512];
 mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {d0, d1, d2, d3}, {a0, a1, a2, a3}, {b0, b1}, {e0, e0, e0, e0};
BODY ret; }"""
OUT = "st.global.v2.f32 [p], {d0, d1};"
SHARED = """mov.u32 u, more; shl.b32 w, t, 3; add.u32 u, u, w; st.shared.v2.f32 [u], {d0, d1}; bar.warp.sync -1;
 ld.shared.v2.f32 {d0, d1}, [u]; """
MASKED = "selp.f32 d0, d0, 0f00000000, v; selp.f32 d1, d1, 0f00000000, v; "
MOST = """mov.b32 w, d0; shfl.sync.bfly.b32 u, w, 1, 31, -1; mov.b32 d1, u; max.f32 d0, d0, d1;
 mov.b32 w, d0; shfl.sync.bfly.b32 u, w, 2, 31, -1; mov.b32 d1, u; max.f32 d0, d0, d1;"""
# __shfl_xor_sync
AS_NVCC = "mov.u32 y1, 1; mov.u32 y2, 2; mov.u32 y31, 31; mov.u32 all, -1; " + MOST.replace(
    "u, w, 1, 31, -1", "u|w0, w, y1, y31, all"
).replace("u, w, 2, 31, -1", "u|w0, w, y2, y31, all")
CHOICE = """setp.gt.f32 x0, d0, 0f00000000; mov.f32 d1, 0f40000000; @x0 bra L;
 mov.f32 d1, 0f3F800000; setp.lt.f32 x1, d0, d1; @x1 bra L; neg.f32 d1, d1; L: """
RIGHT = {  # name: body, rows and columns that are written
    "all": (OUT, 16, 8),
    "rows outside are not stored": (f"@r {OUT}", 3, 8),
    "not even those of shared memory": (f"{SHARED} @r {OUT}", 3, 8),
    "columns outside are masked": (f"{MASKED} {OUT}", 16, 4),
    "both, and a maximum of each row": (f"{MASKED} {MOST} {SHARED} @r {OUT}", 3, 4),
    "a branch of nothing": ("setp.gt.f32 x0, d0, 0f00000000; @x0 bra L; L:", 7, 8),
    "a branch chooses what is not stored": (f"{CHOICE} @r {OUT}", 7, 8),
    "a branch chooses what shared memory keeps": (f"{CHOICE} mul.f32 d1, d0, d1; {SHARED} @r {OUT}", 7, 8),
    "both, with nvcc's shuffles": (f"{MASKED} {AS_NVCC} {SHARED} @r {OUT}", 3, 4),
}
WRONG = {
    "a row is stored": (OUT, 7, 8),
    "by way of shared memory": (f"{SHARED} {OUT}", 7, 8),
    "a column is not masked": (f"@r {OUT}", 3, 4),
    "a column in a maximum": (f"{MOST} @r {OUT}", 3, 6),
    "a column in a maximum by nvcc's shuffles": (f"{AS_NVCC} @r {OUT}", 3, 6),
    "a branch around a store": (f"setp.gt.f32 x0, d0, 0f00000000; @x0 bra L; {OUT} L:", 7, 8),
    "a branch to the end": ("setp.gt.f32 x0, d0, 0f00000000; @x0 bra L; ret; L:", 7, 8),
    "a branch around a barrier": ("setp.gt.f32 x0, d0, 0f00000000; @x0 bra L; bar.warp.sync -1; L:", 7, 8),
    "a loop": ("L: add.f32 d0, d0, 0f3F800000; setp.lt.f32 x0, d0, 0f00000000; @x0 bra L;", 7, 8),
    "a branch chooses what is stored": (f"{CHOICE} st.global.f32 [p], d1;", 7, 8),
    "by a branch in a branch": (f"setp.lt.u32 v, t, 99; {CHOICE} st.global.f32 [p], d1;", 7, 8),
    "a branch chooses a store": (
        f"setp.gt.f32 x0, d0, 0f00000000; mov.u32 o, 0; @x0 bra L; mov.u32 o, 1; L: setp.eq.u32 x1, o, 0; @x1 {OUT}",
        7,
        8,
    ),
    "a branch chooses a guard": (
        "setp.gt.f32 x0, d0, 0f00000000; setp.lt.u32 x1, t, 16; @x0 bra L; setp.lt.u32 x1, t, 8; L:"
        " @x1 st.global.u32 [p], t;",
        7,
        8,
    ),
    "a branch chooses an address": (
        "setp.gt.f32 x0, d0, 0f00000000; mov.u64 q, 0; @x0 bra L; mov.u64 q, 4; L: add.u64 p, p, q;"
        " st.global.u32 [p], t;",
        7,
        8,
    ),
    "a scalar value to shared memory": ("mov.u32 u, more; ld.shared.b32 w, [u]; st.shared.b32 [u+64], w;", 16, 8),
}


def run(body, rows, columns):
    out = np.zeros((32, 2), np.float32)
    nbtc.load(TEXT.replace("BODY", body))["k"].launch(1, 32, (out, np.uint32(rows), np.uint32(columns)), checked=True)


@pytest.mark.parametrize("name", RIGHT)
def test_what_reaches_no_result_does_not_count(name):
    run(*RIGHT[name])


@pytest.mark.parametrize("name", WRONG)
def test_what_reaches_a_result_is_reported(name):
    with pytest.raises(ProgramError, match="uninitialised shared memory"):
        run(*WRONG[name])
