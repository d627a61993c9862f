"""Lanes of one store that write to one place are no race; lanes of two stores are."""

import numpy as np
import pytest

import nbtc
from nbtc.errors import ProgramError

TEXT = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{{
 .reg .b32 t, s, r; .reg .b64 o; .reg .pred p; .shared .b32 mem[64];
 ld.param.u64 o, [out]; mov.u32 t, %tid.x; shr.u32 r, t, 1; shl.b32 r, r, 2; mov.u32 s, mem; add.u32 s, s, r;
 {body}
 bar.sync 0;
 ld.shared.u32 r, [s]; st.global.u32 [o], t; ret;
}}
"""


def run(body, threads):
    nbtc.load(TEXT.format(body=body))["k"].launch(1, threads, (np.zeros(1, np.uint32),), checked=True)


def test_one_store():
    run("st.shared.u32 [s], t;", 32)


def test_two_stores():
    with pytest.raises(
        ProgramError, match=r"data race: line 8: .*thread \(1, 0, 0\) writes.*thread \(0, 0, 0\) writes"
    ):
        run("and.b32 r, t, 1; setp.eq.u32 p, r, 0; @p st.shared.u32 [s], t; @!p st.shared.u32 [s], t;", 32)


def test_warps_are_apart():
    with pytest.raises(ProgramError, match="data race"):
        run("mov.u32 s, mem; st.shared.u32 [s], t;", 64)


def test_warps_with_the_same_lanes():
    """Each warp stores 32 values to one place, and the same one remains."""
    run("mov.u32 s, mem; and.b32 t, t, 31; st.shared.u32 [s], t;", 128)


def test_warps_of_which_the_first_lanes_differ():
    with pytest.raises(ProgramError, match="data race"):
        run("mov.u32 s, mem; and.b32 r, t, 32; and.b32 t, t, 31; add.u32 r, r, t; st.shared.u32 [s], r;", 64)
    with pytest.raises(ProgramError, match="data race"):  # the second warp's first lane stores nothing
        run("mov.u32 s, mem; setp.ne.u32 p, t, 32; and.b32 t, t, 31; @p st.shared.u32 [s], t;", 64)


ROWS = """mov.u32 s, mem; and.b32 r, t, 7; shl.b32 r, r, 4; add.u32 s, s, r; {value};
 stmatrix.sync.aligned.m8n8.x{count}.shared.b16 [s], {{{registers}}};"""


@pytest.mark.parametrize(("count", "registers"), [(1, "r"), (2, "r, r")])
def test_matrices_of_two_warps_in_one_place(count, registers):
    """Compilers store what several warps hold from each of them: what is there already is no race."""
    rows = ROWS.format(value="and.b32 r, t, 31", count=count, registers=registers)
    text = (
        TEXT.replace("sm_80", "sm_90")
        .replace("[o], t", "[o], 5")
        .replace("mem[64]", "mem[64]")
        .format(body=rows.replace("7", str(8 * count - 1)))
    )
    nbtc.load(text)["k"].launch(1, 64, (np.zeros(1, np.uint32),), checked=True)
    other = text.replace("and.b32 r, t, 31", "mov.u32 r, t")
    with pytest.raises(ProgramError, match=r"data race: line 9: stmatrix"):
        nbtc.load(other)["k"].launch(1, 64, (np.zeros(1, np.uint32),), checked=True)
