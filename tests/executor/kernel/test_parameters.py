"""Parameters that a kernel's text reaches through registers."""

import numpy as np
import pytest

import nbtc
from nbtc.errors import ProgramError
from nbtc.executor.kernel.link import link
from nbtc.executor.kernel.parameters import with_named_parameters
from nbtc.executor.text.data import Symbol

HEAD = """.version 8.0 .target sm_80 .address_size 64
.visible .entry k(.param .align 8 .b8 k_s[16], .param .u64 k_out) {
 .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p;
 ld.param.u64 %rd0, [k_out];
"""
STORE = "st.global.u32 [%rd0], %r1; ret; }"


def loads(body):
    """What the loads of parameters name."""
    function = with_named_parameters(link(nbtc.load(HEAD + body + STORE).ptx, "k").kernel)
    return [i.operands[1].base for i in function.body if i.opcode == "ld"][1:]


def test_moves_and_sums_are_followed():
    body = "mov.b64 %rd1, k_s; add.s64 %rd2, %rd1, 12; ld.param.u32 %r1, [%rd2+-4];"
    assert loads(body) == [Symbol("k_s", 12)]
    out = np.zeros(1, np.uint32)
    nbtc.load(HEAD + body + STORE)["k"][1, 1](np.array([1, 2, 3, 4], np.uint32).tobytes(), out)
    assert out[0] == 3


@pytest.mark.parametrize(
    "body",
    [
        "mov.b64 %rd1, k_s; add.s64 %rd1, %rd1, 4; ld.param.u32 %r1, [%rd1];",  # written twice
        "mov.b64 %rd1, k_s; setp.eq.u64 %p, %rd0, 0; @!%p add.s64 %rd2, %rd1, 4; ld.param.u32 %r1, [%rd2];",
        "mov.b64 %rd1, k_s; sub.s64 %rd2, %rd1, 4; ld.param.u32 %r1, [%rd2];",
        "cvta.param.u64 %rd1, k_s; ld.param.u32 %r1, [%rd1];",
    ],
)
def test_what_is_not_known_stays(body):
    assert not isinstance(loads(body)[0], Symbol)


def test_a_load_outside_is_still_found():
    text = HEAD + "mov.b64 %rd1, k_s; ld.param.u32 %r1, [%rd1+4096];" + STORE
    with pytest.raises(ProgramError, match=r"line 5: ld\.param\.u32"):
        nbtc.load(text)["k"][1, 1](bytes(16), np.zeros(1, np.uint32))
