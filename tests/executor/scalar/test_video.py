"""Scalar video instructions in programs, against what an H100 returned (driver 580.159.04)."""

import re

import numpy as np
import pytest

import nbtc
from nbtc.errors import NbtcError

HEAD = ".version 8.0 .target sm_90 .address_size 64 .visible .entry k(.param .u64 src, .param .u64 out) {"
SOURCES = (
    "ef26a3cf 25c40fc7 f52f9d21 8c2ce734 0fa7af49 000000ff 000000ff",
    "00000000 00000003 00000009 f04264d6 b9958beb 00007fff 80000000",
    "54621d64 a5e346da db63b808 15791a62 bb672721 fefdfcfb 00000001",
)
# Of destinations' selectors .h1 takes the upper half of a result; whole words are signed to vmad.
RECORDED = {
    "vadd.s32.u32.s32 D.h1, A.b1, B.b3, C;": "00001d64 000046da 0000b808 00001a62 00002721 0000fcfb ffff0001",
    "vsub.u32.s32.u32 D.b2, A.b1, B, C;": "54a31d64 a50c46da db94b808 15111a62 bbc42721 fe01fcfb 00000001",
    "vabsdiff.s32.s32.u32 D.h1, A.b1, B.b1, C;": "00001d64 000046da 0000b808 00001a62 00002721 0000fcfb 00000001",
    "vmin.u32.s32.s32 D.h0, A.b0, B.h0, C;": "5462ffcf a5e3ffc7 db630009 15790034 bb678beb fefdffff 0000ffff",
    "vmax.s32.u32.u32 D.b3, A.b0, B.b3, C;": "cf621d64 c7e346da 2163b808 f0791a62 b9672721 fffdfcfb ff000001",
    "vshl.u32.u32.u32.clamp D.h1, A.h1, B.b1, C;": "00001d64 000046da 0000b808 00001a62 00002721 0000fcfb 00000001",
    "vshr.s32.s32.u32.wrap D.b0, A.b2, B, C;": "54621d26 a5e346f8 db63b800 15791a00 bb6727ff fefdfc00 00000000",
    "vset.u32.s32.lt D.b1, A.h0, B.b0, C;": "54620064 a5e300da db630008 15790062 bb670021 fefd00fb 00000001",
    "vset.s32.u32.ge.min D, A.b2, B.b1, C;": "00000001 a5e346da db63b808 00000000 bb672721 fefdfcfb 00000001",
    "vset.u32.u32.ne.max D, A.h1, B.b3, C;": "54621d64 a5e346da db63b808 15791a62 bb672721 fefdfcfb 00000001",
    "vset.s32.s32.eq.max D, A.b0, B.b2, C;": "54621d64 00000000 00000000 15791a62 00000000 00000000 00000001",
    "vmad.u32.u32.u32.sat D, A, B.b2, C;": "54621d64 00000000 00000000 00000000 ffffffff 00000000 00000001",
    "vmad.u32.u32.u32.sat.shr7 D, A.b3, B.b0, C;": "00a8c43a ffffffff ffffffff 002af31e ffffffff ffffffff 00000000",
    "vmad.s32.u32.u32.sat.shr15 D, A.b0, B.b1, C;": "0000a8c4 ffffffff ffffffff 00002af2 ffffffff ffffffff 00000000",
    "vmad.u32.u32.u32.shr15 D, A.b3, B.b2, C;": "0000a8c4 ffff4bc6 ffffb6c7 00002af2 ffff76ce fffffdfb 00000000",
    "vmad.u32.s32.u32.shr7 D, -A.b2, B.h1, C;": "00a8c43a ff4bc68d ffb6c770 002a9f9e ff774f57 fffdfbf9 00000000",
    "vmad.u32.u32.u32.sat.shr7 D, A.b0, B.b2, -C;": "ff573bc5 00b43972 0049388f ffd50de6 00893206 00020406 ffffffff",
    "vmad.u32.u32.u32.po.sat D, A.b0, B, C;": "54621d65 00000000 00000000 00000000 00000000 00000000 00000000",
}


def words(text):
    return np.array([int(x, 16) for x in text.split()], np.uint32)


def program(*instructions):
    """A kernel that gives each thread's words a, b and c to instructions of A, B, C and D, a row of results each."""
    size = 4 * len(words(SOURCES[0]))
    body = "".join(f"ld.global.u32 %{x}, [%p+{size * i}];" for i, x in enumerate("abc"))
    for i, instruction in enumerate(instructions):
        named = re.sub(r"\b[ABCD]\b", lambda m: "%" + m[0].lower(), instruction)
        body += f"{named} st.global.u32 [%q+{size * i}], %d;"
    return nbtc.load(
        f"{HEAD} .reg .b32 %a, %b, %c, %d, %t; .reg .b64 %p, %q, %o; ld.param.u64 %p, [src]; ld.param.u64 %q, [out];"
        f"mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 4; add.u64 %p, %p, %o; add.u64 %q, %q, %o; {body} ret; }}"
    )["k"]


def test_an_h100_gave_the_same_words():
    expected = np.array([words(line) for line in RECORDED.values()])
    found = np.zeros_like(expected)
    program(*RECORDED)[1, expected.shape[1]](np.array([words(line) for line in SOURCES]), found)
    assert [x for x, right in zip(RECORDED, (found == expected).all(1), strict=True) if not right] == []


@pytest.mark.parametrize(
    "instruction",
    [
        "vadd.u32.u32.u32.sat D.b1, A, B, C;",  # hardware and ISA differ
        "vadd.u32.u32.u32 D, A, B, C;",  # no reason for a third operand
        "vadd.u32.u32.u32 D.b1, A, B;",
        "vadd.u32.u32.u32.add D.b1, A, B, C;",
    ],
)
def test_refused(instruction):
    with pytest.raises(NbtcError, match="destination"):
        program(instruction)[1, 1](np.zeros(30, np.uint32), np.zeros(1, np.uint32))
