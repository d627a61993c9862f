"""Modifiers in any order are the same instruction, as they are to ptxas."""

from itertools import permutations

import numpy as np
import pytest

import nbtc
from nbtc import errors
from nbtc.executor.rows.spelling import modifiers_of
from nbtc.executor.rows.uses import row_of

HEAD = """.version 8.0 .target sm_80 .address_size 64
.visible .entry k(.param .u64 a) { .reg .b32 r<9>; .reg .b64 d<9>; .reg .f32 f<9>; ld.param.u64 d1, [a]; """


@pytest.mark.parametrize(
    "text",
    [
        "ld.acquire.gpu.global.b32",
        "st.release.gpu.global.b32",
        "ld.relaxed.sys.global.L1::no_allocate.v2.f32",
        "fma.rn.ftz.sat.f32",
        "add.sat.s32",
        "prmt.b32.f4e",
        "setp.lt.and.s32",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
        "fence.acq_rel.gpu",
        "add.cc.u64",
        "movmatrix.sync.aligned.m8n8.trans.b16",
    ],
)
def test_every_order_is_the_rows(text):
    opcode, *modifiers = text.split(".")
    assert row_of(text) is not None
    for order in permutations(modifiers):
        found = modifiers_of(opcode, order)
        assert row_of(".".join((opcode, *found))) is not None, order
        assert sorted(found) == sorted(modifiers)


@pytest.mark.parametrize("text", ["madc.lo.cc.u64", "cp.async.cg.shared.global", "mbarrier.try_wait.parity.shared.b64"])
def test_words_of_the_name_keep_their_places(text):
    opcode, *modifiers = text.split(".")
    name = {"madc": 1, "cp": 1, "mbarrier": 2}[opcode]
    spaces = [m for m in modifiers if m in ("shared", "global")]
    for order in permutations(modifiers):
        found = modifiers_of(opcode, order)
        kept = list(order[:name]) == modifiers[:name] and [m for m in order if m in spaces] == spaces
        assert (row_of(".".join((opcode, *found))) is not None) == kept, order


def test_types_keep_their_order():
    assert modifiers_of("cvt", ("f32", "rn", "s32")) == ("rn", "f32", "s32")
    assert modifiers_of("cvt", ("s32", "f32", "rzi")) == ("rzi", "s32", "f32")
    assert modifiers_of("set", ("f32", "lt", "s32")) == ("lt", "f32", "s32")
    assert modifiers_of("cvt", ("f32", "f16", "rn")) == ("f32", "f16", "rn")  # no cvt.rn.f16.f32


def test_what_is_no_form_stays_none():
    for opcode, modifiers in (("fma", ("f32", "rn", "rz")), ("ld", ("global", "f32", "f32")), ("add", ("s32", "rn"))):
        assert modifiers_of(opcode, modifiers) == modifiers
        with pytest.raises(errors.ProgramError):
            nbtc.load(HEAD + f"{opcode}.{'.'.join(modifiers)} r1, r2, r3; ret; }}")["k"][1, 1](np.zeros(4, np.uint32))


def test_a_semaphore_as_cutlass_writes_it():
    program = nbtc.load(
        HEAD + "ld.global.acquire.gpu.b32 r1, [d1]; mad.lo.s32 r2, r1, 3, 4; prmt.b32.f4e r3, r1, r2, 1;"
        "cvt.f32.u32.rn f1, r1; st.global.release.gpu.b32 [d1], r2; st.global.b32 [d1+4], r3;"
        "st.global.f32 [d1+8], f1; ret; }"
    )
    a = np.array([0x01020304, 0, 0, 0], np.uint32)
    program["k"][1, 1](a)
    r2 = (0x01020304 * 3 + 4) & 0xFFFFFFFF
    want = ((r2 << 32 | 0x01020304) >> 8) & 0xFFFFFFFF  # f4e: four bytes from byte 1 of the pair
    assert [int(x) for x in a[:2]] == [r2, want]
    assert a[2:3].view(np.float32)[0] == np.float32(0x01020304)
    assert "ld.acquire.gpu.global.b32" in [f.form for f in program["k"].forms]
