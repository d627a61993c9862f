"""Forms of sm_100 and of newer PTX: narrow floats, packed f32, stack memory, zeros in bulk, tiles of four rows."""

import warnings

import ml_dtypes
import numpy as np
import pytest

import nbtc
from nbtc.errors import ProgramError
from nbtc.executor.rows import forms
from nbtc.testing.scalar_rows import RowCase, Rows

HEAD = ".version 9.1\n.target sm_100a\n.address_size 64\n"
LANE = """ .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .b16 %h<9>; .reg .pred %p<3>; ld.param.u64 %d9, [out];
 mov.u32 %r9, %tid.x; mul.wide.u32 %d8, %r9, 4; add.u64 %d9, %d9, %d8;""".replace("<9>", "<10>")


def kernel(body, parameters=""):
    return nbtc.load(f"{HEAD}.visible .entry k(.param .u64 out{parameters}) {{{LANE}{body} ret; }}")["k"]


def run(body, *arguments, words=32, parameters="", **options):
    out = np.zeros(words, np.uint32)
    kernel(body, parameters).launch(1, 32, (out, *arguments), **options)
    return out


@pytest.mark.parametrize("source", ["f32", "f16x2", "bf16x2"])
@pytest.mark.parametrize("target", ["e4m3x2", "e5m2x2", "e2m3x2", "e3m2x2", "e2m1x2"])
def test_narrow_floats_as_the_other_door_gives_them(target, source):
    rng = np.random.default_rng(5)
    name = f"cvt.rn.satfinite.{target}.{source}"
    words = [rng.integers(0, 1 << 32, 1024, dtype=np.uint32) for _ in range(2 if source == "f32" else 1)]
    near = (rng.standard_normal(1024) * 8).astype(np.float32).view(np.uint32)
    words = [np.concatenate([w, near[:: 1 if i else -1]]) for i, w in enumerate(words)]
    (found,) = Rows([RowCase(name)])(0, words)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(found, nbtc.ptx.cvt(name, *words).astype(found.dtype))


@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("source", ["e4m3x2", "e5m2x2"])
def test_bytes_become_the_same_bf16_numbers(source, relu):
    """PTX ISA 9.2; every pair of bytes, against what ml_dtypes widens."""
    codes = np.arange(1 << 16, dtype=np.uint16)
    (found,) = Rows([RowCase(f"cvt.rn{relu}.bf16x2.{source}")])(0, [codes])
    fmt = {"e4m3x2": ml_dtypes.float8_e4m3fn, "e5m2x2": ml_dtypes.float8_e5m2}[source]
    want = codes.view(fmt).astype(np.float32)
    want = np.where(np.signbit(want) & (want == want), 0, want) if relu else want
    halves = want.astype(ml_dtypes.bfloat16).view(np.uint16)
    halves[np.isnan(want)] = 0x7FFF
    np.testing.assert_array_equal(found, halves.view(np.uint32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(found, nbtc.ptx.cvt(f"cvt.rn{relu}.bf16x2.{source}", codes))


@pytest.mark.parametrize("source", ["e2m3x2", "e3m2x2"])
def test_narrow_floats_widen_whatever_stands_beside_them(source):
    codes = np.arange(1 << 16, dtype=np.uint16)
    (found,) = Rows([RowCase(f"cvt.rn.f16x2.{source}")])(0, [codes])
    (same,) = Rows([RowCase(f"cvt.rn.f16x2.{source}")])(0, [codes & 0x3F3F])
    np.testing.assert_array_equal(found, same)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(found, nbtc.ptx.cvt(f"cvt.rn.f16x2.{source}", codes & 0x3F3F))


@pytest.mark.parametrize("name", ["bf16.f16", "f16.bf16"])
def test_16_bit_formats_round_to_nearest_without_saying_so(name):
    """ptxas makes the same machine code of both."""
    codes = np.arange(1 << 16, dtype=np.uint16)
    (found,), (nearest,) = (Rows([RowCase(f"cvt.{rounding}{name}")])(0, [codes]) for rounding in ("", "rn."))
    np.testing.assert_array_equal(found, nearest)


def test_stochastic_rounding_is_refused_by_name():
    assert forms.find("cvt.rs.satfinite.e4m3x4.f32") is None
    with pytest.raises(ProgramError, match=r"cvt\.rs\.bf16x2\.f32.*\.rs"):
        run("cvt.rs.bf16x2.f32 %r0, %r1, %r2, %r3;")


def test_reductions_of_floats():
    x = np.random.default_rng(3).standard_normal(32).astype(np.float32)
    x[5] = np.nan
    load = "ld.param.u64 %d1, [x]; add.u64 %d1, %d1, %d8; ld.global.f32 %r1, [%d1];"
    found = run(
        load + "redux.sync.max.f32 %r2, %r1, 0xffffffff; redux.sync.min.abs.f32 %r3, %r1, 0xffffffff;"
        "redux.sync.min.NaN.f32 %r4, %r1, 0xffffffff; st.global.u32 [%d9], %r2; st.global.u32 [%d9+128], %r3;"
        "st.global.u32 [%d9+256], %r4;",
        x, words=96, parameters=", .param .u64 x",
    ).view(np.float32)  # fmt: skip
    assert (found[:32] == np.nanmax(x)).all()
    assert (found[32:64] == np.nanmin(abs(x))).all()
    assert (found[64:].view(np.uint32) == 0x7FFFFFFF).all()


STACK = """.func (.param .b32 r) twice(.param .b32 n) {
 .reg .b32 %r<9>; .reg .b64 %d<9>; ld.param.u32 %r1, [n]; alloca.u64 %d1, 16, 16; cvt.u64.u32 %d2, %r1;
 shl.b64 %d2, %d2, 2; alloca.u64 %d3, %d2; st.local.u32 [%d1], %r1; st.local.u32 [%d3], %r1;
 ld.local.u32 %r2, [%d1]; ld.local.u32 %r3, [%d3]; add.u32 %r4, %r2, %r3; st.param.b32 [r], %r4; ret;
}
"""


def test_stack_memory_goes_when_a_function_returns():
    body = """ mov.u32 %r5, 0; mov.u32 %r6, 0; add.u32 %r7, %r9, 1;
 L: { .param .b32 a; .param .b32 b; st.param.b32 [a], %r7; call (b), twice, (a); ld.param.b32 %r2, [b]; }
 add.u32 %r5, %r5, %r2; add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, 500; @%p1 bra L; st.global.u32 [%d9], %r5;"""
    out = np.zeros(32, np.uint32)
    text = f"{HEAD}{STACK}.visible .entry k(.param .u64 out) {{{LANE}{body} ret; }}"
    nbtc.load(text)["k"][1, 32](out)
    np.testing.assert_array_equal(out, 1000 * np.arange(1, 33))


def test_saved_and_restored_stack():
    body = """ mov.u32 %r6, 0; L: stacksave.u64 %d1; alloca.u64 %d2, 1024; st.local.u32 [%d2], %r9;
 ld.local.u32 %r1, [%d2]; {0} add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, 100; @%p1 bra L;
 st.global.u32 [%d9], %r1;"""
    np.testing.assert_array_equal(run(body.replace("{0}", "stackrestore.u64 %d1;")), np.arange(32))
    with pytest.raises(ProgramError, match="stack"):
        run(body.replace("{0}", ""))


def test_zeros_in_bulk():
    body = """ .shared .align 16 .b32 s[64]; mov.u64 %d1, s; add.u64 %d2, %d1, %d8; st.shared.u32 [%d2], 7;
 st.shared.u32 [%d2+128], 7; cvta.shared.u64 %d3, %d1; bar.sync 0; setp.eq.u32 %p1, %r9, 0;
 @%p1 st.bulk.weak.shared::cta [%d3+64], 128, 0; bar.sync 0; ld.shared.u32 %r1, [%d2]; ld.shared.u32 %r2, [%d2+128];
 st.global.u32 [%d9], %r1; st.global.u32 [%d9+128], %r2;"""
    generic = run(body.replace(".shared::cta", ""), words=64)
    np.testing.assert_array_equal(generic, np.repeat([7, 0, 7], [16, 32, 16]))


def test_four_rows_of_a_tensor():
    x = np.arange(16 * 32, dtype=np.uint32).reshape(16, 32)
    tensor = nbtc.TensorMap(x, (32, 1))
    body = """ .shared .align 128 .b32 s[128]; .shared .align 8 .b64 bar; mov.u64 %d1, s; add.u64 %d2, %d1, %d8;
 setp.eq.u32 %p1, %r9, 0; mov.u64 %d3, m; cvta.param.u64 %d3, %d3; mov.u32 %r1, 0; mov.u32 %r2, 3; mov.u32 %r3, 15;
 mov.u32 %r4, 7; @%p1 mbarrier.init.shared.b64 [bar], 1; bar.sync 0;
 @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 512;
 @%p1 cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [s],
   [%d3, {%r1, %r2, %r3, %r1, %r4}], [bar];
 L: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra L;
 ld.shared.u32 %r5, [%d2]; ld.shared.u32 %r6, [%d2+128]; ld.shared.u32 %r7, [%d2+256]; ld.shared.u32 %r8, [%d2+384];
 st.global.u32 [%d9], %r5; st.global.u32 [%d9+128], %r6; st.global.u32 [%d9+256], %r7; st.global.u32 [%d9+384], %r8;"""
    found = run(body, tensor, words=128, parameters=", .param .align 64 .b8 m[128]")
    np.testing.assert_array_equal(found.reshape(4, 32), x[[3, 15, 0, 7]])
