"""Loads and stores of lanes that lie 16 bytes apart: what a thread's part of a row looks like, element by element."""

import numpy as np
import pytest

import nbtc
from nbtc.errors import ProgramError

TEXT = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 k_x, .param .u64 k_y, .param .u32 k_n) {{
    .reg .b{bits} %v<2>; .reg .b32 %r<3>; .reg .b64 %rd<5>; .reg .pred %p;
    ld.param.u64 %rd0, [k_x];
    ld.param.u64 %rd1, [k_y];
    ld.param.u32 %r1, [k_n];
    mov.u32 %r0, %tid.x;
    setp.lt.u32 %p, %r0, %r1;
    mul.wide.u32 %rd2, %r0, {step};
    add.u64 %rd3, %rd0, %rd2;
    add.u64 %rd4, %rd1, %rd2;
    mov.b{bits} %v0, 0;
    @%p ld.global.b{access} %v0, [%rd3+{at}];
    @%p st.global.b{access} [%rd4+{at}], %v0;
    ret;
}}
"""


def launch(bits, x, y, n=64, step=16, at=0):
    text = TEXT.format(bits=max(16, bits), access=bits, step=step, at=at)
    nbtc.load(text)["k"][1, 64](x, y, n)


SHAPES = [(8, 16), (16, 16), (32, 16), (64, 16), (32, 8), (32, 32), (8, 1), (32, 4), (64, 8)]


@pytest.mark.parametrize(("bits", "step"), SHAPES)
def test_lanes_apart_touch_their_elements_alone(bits, step):
    """Twice, as a place of the program only knows its memory the second time."""
    dtype, each = np.dtype(f"u{bits // 8}"), 8 * step // bits
    x = np.random.default_rng(bits).integers(1, 100, 64 * each).astype(dtype)
    k = nbtc.load(TEXT.format(bits=max(16, bits), access=bits, step=step, at=0))["k"]
    for n in (64, 45):
        y = np.zeros_like(x)
        k[2, 64](x, y, n)  # the second block goes where the first one found its memory
        expected = np.where(np.arange(64 * each) % each == 0, x, 0).astype(dtype)
        expected[n * each :] = 0
        assert (y == expected).all()


def test_the_last_element_may_end_the_array():
    x = np.arange(1, 253 + 1, dtype=np.uint32)  # 63 * 4 + 1 words: lane 63's is the last
    y = np.zeros_like(x)
    launch(32, x, y)
    assert (y[::4] == x[::4]).all() and y.reshape(-1)[1::4].sum() == 0


@pytest.mark.parametrize(("elements", "at", "said"), [(252, 0, "outside"), (260, 2, "not a multiple")])
def test_what_lies_outside_or_crooked_is_named(elements, at, said):
    x = np.ones(elements, np.uint32)
    with pytest.raises(ProgramError) as error:
        launch(32, x, x.copy(), at=at)
    assert said in str(error.value)


class Wrapped:
    """An array of another library, of which nbtc sees the interface alone."""

    def __init__(self, x):
        self.x, self.__array_interface__ = x, x.__array_interface__


@pytest.mark.parametrize("step", [2, -1])
def test_strided_arrays_of_other_libraries_reach_to_their_last_element(step):
    base = np.arange(128, dtype=np.uint32)
    x, y = Wrapped(base[::step]), np.zeros(256, np.uint32)
    text = TEXT.format(bits=32, access=32, step=4 * step, at=0).replace(
        "add.u64 %rd4, %rd1, %rd2", "mul.wide.u32 %rd2, %r0, 4; add.u64 %rd4, %rd1, %rd2"
    )
    text = text.replace("mul.wide.u32 %rd2, %r0, -4", "mul.wide.s32 %rd2, %r0, -4")
    nbtc.load(text)["k"][1, 64](x, y, 64)
    assert (y[:64] == base[::step][:64]).all()
