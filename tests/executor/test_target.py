"""A text computes as what its `.target` names, unless the caller names another."""

import numpy as np
import pytest

import nbtc

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
TEXT = f"""
.version 8.0 .target {{target}} .address_size 64
.visible .entry k(.param .u64 A, .param .u64 B, .param .u64 D) {{{{
 .reg .b32 t, a<4>, b<2>; .reg .f32 d<4>, z; .reg .b64 p, q, r, o;
 mov.u32 t, %tid.x; ld.param.u64 p, [A]; ld.param.u64 q, [B]; ld.param.u64 r, [D];
 mul.wide.u32 o, t, 16; add.u64 p, p, o; add.u64 r, r, o; mul.wide.u32 o, t, 8; add.u64 q, q, o;
 ld.global.v4.u32 {{{{a0, a1, a2, a3}}}}, [p]; ld.global.v2.u32 {{{{b0, b1}}}}, [q]; mov.f32 z, 0f00000000;
 {MMA} {{{{d0, d1, d2, d3}}}}, {{{{a0, a1, a2, a3}}}}, {{{{b0, b1}}}}, {{{{z, z, z, z}}}};
 st.global.v4.f32 [r], {{{{d0, d1, d2, d3}}}}; ret; }}}}
"""


@pytest.fixture(scope="module")
def operands():
    rng = np.random.default_rng(0)
    i = nbtc.instruction(MMA)
    a, b = rng.standard_normal((16, 16)).astype(np.float16), rng.standard_normal((16, 8)).astype(np.float16)
    return i.pack_a(a), i.pack_b(b)


def run(kernel, operands):
    d = np.zeros((32, 4), np.uint32)
    kernel[1, 32](*operands, d)
    return d


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_90a"])
def test_the_target_decides(target, operands):
    own = run(nbtc.load(TEXT.format(target=target))["k"], operands)
    for arch in ("sm_80", "sm_90"):
        want = nbtc.ptx.mma_sync(MMA, *operands, np.zeros((32, 4), np.uint32), arch=arch)
        assert (own == want).all() == target.startswith(arch)


def test_the_caller_decides_otherwise(operands):
    m = nbtc.load(TEXT.format(target="sm_80"))
    hopper = run(nbtc.load(TEXT.format(target="sm_80"), arch="H100")["k"], operands)
    np.testing.assert_array_equal(run(m["k"].on("sm_90"), operands), hopper)
    assert (run(m["k"], operands) != hopper).any()
