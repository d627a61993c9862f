"""Parameters that a kernel reads by name: looked up only where the text does not tell that they are its own."""

import numpy as np
import pytest

import nbtc
from nbtc.errors import FormatError, ProgramError

TEXT = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 k_y, .param .u32 k_a, .param .u32 k_b) {{
    .reg .b64 %rd<3>; .reg .b32 %r<3>;
    ld.param.u64 %rd0, [k_y];
    {load}
    st.global.u64 [%rd0], %rd1;
    ret;
}}
"""


def run(load):
    y = np.zeros(1, np.uint64)
    nbtc.load(TEXT.format(load=load))["k"][1, 32](y, 5, 7)
    return int(y[0])


@pytest.mark.parametrize(
    ("load", "value"),
    [
        ("ld.param.u32 %r0, [k_b]; cvt.u64.u32 %rd1, %r0;", 7),
        ("ld.param.v2.u16 {%r0, %r1}, [k_a]; cvt.u64.u32 %rd1, %r0;", 5),
        ("ld.param.u32 %r0, [k_a+4]; cvt.u64.u32 %rd1, %r0;", 7),  # the one after it
    ],
)
def test_values(load, value):
    assert run(load) == value


@pytest.mark.parametrize(
    ("load", "said"),
    [("ld.param.u64 %rd1, [k_y+4];", "not a multiple"), ("ld.param.u64 %rd1, [k_b+4];", "outside")],
)
def test_what_is_no_parameter_is_named(load, said):
    with pytest.raises(ProgramError, match=f"line 7: ld.param.u64: .*{said}"):
        run(load)


@pytest.mark.parametrize("number", [8, True, 1.0])
def test_a_struct_is_no_number(number):
    """As many bytes as the number says would be zeros."""
    kernel = nbtc.load(TEXT.replace(".param .u32 k_a", ".param .b8 k_a[8]").format(load="mov.u64 %rd1, 1;"))["k"]
    with pytest.raises(FormatError, match="k_a is a struct of 8 bytes: pass its bytes, not"):
        kernel[1, 32](np.zeros(1, np.uint64), number, 7)
