"""A large function compiled apart from the rest of its module, less optimised: the same bits."""

import numpy as np
import pytest
from llvmlite import ir

import nbtc
from nbtc.compiler import split

# Two warps hand sums round a ring through shared memory, in a loop with barriers; lanes part and meet again.
RING = """.version 8.0 .target sm_80 .address_size 64
.visible .entry ring(.param .u64 x, .param .u32 rounds) {
  .reg .pred p, q; .reg .b32 t, n, v, w, a, b, i; .reg .b64 g, o; .reg .f32 f, h; .shared .align 4 .b8 s[256];
  ld.param.u64 g, [x]; ld.param.u32 n, [rounds]; mov.u32 t, %tid.x; mul.wide.u32 o, t, 4; add.u64 g, g, o;
  ld.global.u32 v, [g]; mov.u32 a, s; shl.b32 w, t, 2; add.u32 a, a, w;
  add.u32 b, t, 1; and.b32 b, b, 63; shl.b32 b, b, 2; mov.u32 w, s; add.u32 b, b, w; mov.u32 i, 0;
again:
  st.shared.u32 [a], v; bar.sync 0; ld.shared.u32 w, [b]; bar.sync 0;
  and.b32 t, w, 3; setp.eq.u32 q, t, 0; @q bra other;
  add.u32 v, v, w; bra met;
other:
  cvt.rn.f32.u32 f, w; mul.rn.f32 h, f, 0f3F000000; cvt.rzi.u32.f32 w, h; xor.b32 v, v, w;
met:
  add.u32 i, i, 1; setp.lt.u32 p, i, n; @p bra again;
  st.global.u32 [g], v; ret; }"""


def ring(rounds):
    x = np.arange(64, dtype=np.uint32) * np.uint32(0x9E3779B1)
    nbtc.load(RING)["ring"][1, 64](x, rounds)
    return x


def want(rounds):
    v = np.arange(64, dtype=np.uint32) * np.uint32(0x9E3779B1)
    for _ in range(rounds):
        w = np.roll(v, -1)
        half = (w.astype(np.float32) * np.float32(0.5)).astype(np.uint32)
        v = np.where(w & 3 == 0, v ^ half, v + w)
    return v


@pytest.mark.parametrize("limits", [(1, 1), (1, 1 << 30), (1 << 30, 1 << 30)], ids=["plain", "apart", "whole"])
def test_bits_of_a_warp_that_is_compiled_apart(limits, monkeypatch, tmp_path):
    monkeypatch.setenv("NBTC_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(split, "MANY_BLOCKS", limits[0])
    monkeypatch.setattr(split, "MOST_BLOCKS", limits[1])
    assert (ring(9) == want(9)).all()
    assert len(list(tmp_path.rglob("*.o"))) == 1
    assert (ring(5) == want(5)).all()  # from the disk


def test_which_functions_are_apart():
    module = ir.Module()
    module.triple, kind = "x86_64-unknown-linux-gnu", ir.FunctionType(ir.VoidType(), [])
    functions = [ir.Function(module, kind, name) for name in ("warp", "run")]
    for f in functions:
        ir.IRBuilder(f.append_basic_block()).ret_void()
    functions[0].linkage = "internal"
    assert [(p.level, p.code_level) for p in split.parts(module, "warp")] == [(2, 2)]
    for _ in range(split.MANY_BLOCKS):
        ir.IRBuilder(functions[0].append_basic_block()).unreachable()
    apart, rest = split.parts(module, "warp")
    assert (apart.level, apart.code_level, rest.level, rest.code_level) == (1, 0, 2, 2)
    assert 'define void @"warp"' in apart.text and 'declare void @"run"()' in apart.text
    for _ in range(split.MOST_BLOCKS):
        ir.IRBuilder(functions[0].append_basic_block()).unreachable()
    assert split.parts(module, "warp")[0].level == 0
    assert 'define void @"run"' in rest.text and 'declare void @"warp"()' in rest.text
