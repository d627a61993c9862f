"""Instructions of whole warps: one test in a block that all lanes are there, none where they need not be."""

import numpy as np
import pytest

import nbtc
from nbtc.errors import ProgramError
from nbtc.executor.code.helpers import emitting
from nbtc.executor.code.machine import BlockShape, Machine, Options
from nbtc.executor.kernel.link import link
from nbtc.executor.text.parse import parse

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
TURN = "movmatrix.sync.aligned.m8n8.trans.b16 %x, %x;\n"


def turning(times: int) -> str:
    """A kernel that turns a matrix over and over, in the threads below its argument; the others end before."""
    return f"""{HEAD}.visible .entry k(.param .u64 P, .param .u32 N)
{{
.reg .pred %p; .reg .b32 %t, %n, %x; .reg .b64 %a;
ld.param.u64 %a, [P]; ld.param.u32 %n, [N]; mov.u32 %t, %tid.x;
setp.ge.u32 %p, %t, %n; @%p exit;
mov.u32 %x, %t;
{TURN * times}mad.wide.u32 %a, %t, 4, %a; st.global.u32 [%a], %x;
ret;
}}
"""


def failures(text: str) -> int:
    """How often a warp's code says that something went wrong."""
    with emitting():
        machine = Machine(link(parse(text), "k"), BlockShape(True, True, False), Options("sm_80"))
    return str(machine.module).count('call void @"record"')


def test_one_test_in_a_block():
    assert failures(turning(9)) == failures(turning(1)) > failures(turning(0))


def test_all_lanes_or_none():
    program = nbtc.load(turning(9))["k"]
    out, once = np.zeros(32, np.uint32), np.zeros(32, np.uint32)
    program[1, 32](out, 32)
    nbtc.load(turning(1))["k"][1, 32](once, 32)
    np.testing.assert_array_equal(out, once)
    with pytest.raises(ProgramError, match=r"movmatrix.*needs all 32 lanes of its warp"):
        program[1, 32](out, 31)


# Lanes 16 to 31 come to JOIN first; the others have an instruction of a whole warp on the way if the guard holds.
GUARDED = f"""{HEAD}.visible .entry k(.param .u64 P, .param .u32 U)
{{
.reg .pred %p, %u; .reg .b32 %t, %n, %x; .reg .b64 %a;
ld.param.u64 %a, [P]; ld.param.u32 %n, [U]; mov.u32 %t, %tid.x;
setp.ne.u32 %u, %n, 0; setp.lt.u32 %p, %t, 16; mov.u32 %x, 100;
@%p bra THERE;
add.u32 %x, %x, 5;
bra JOIN;
THERE:
@%u {TURN}add.u32 %x, %x, %t;
JOIN:
mad.wide.u32 %a, %t, 4, %a; st.global.u32 [%a], %x;
ret;
}}
"""


@pytest.mark.parametrize("checked", [False, True])
def test_under_a_guard_that_does_not_hold_nothing_is_known(checked):
    program, out = nbtc.load(GUARDED)["k"], np.zeros(32, np.uint32)
    program = program.checked if checked else program
    program[1, 32](out, 0)
    assert out.tolist() == [100 + t for t in range(16)] + [105] * 16
    with pytest.raises(ProgramError, match=r"movmatrix.*needs all 32 lanes of its warp"):
        program[1, 32](out, 1)
