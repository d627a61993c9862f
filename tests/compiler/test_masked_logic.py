"""LLVM's wrong instruction for a choice by a mask from bits that a mask picks: never in what programs become."""

import ctypes
import itertools

import numpy as np
import pytest

from nbtc.compiler.cpu import host
from nbtc.compiler.machine_code import emission, masked_logic, native

LANES = 16
BITS = "%m = and <16 x i32> {a}, splat (i32 {mask})\n %n = and <16 x i32> {b}, splat (i32 {rest})\n"
TEXT = """
define void @f(ptr %p, ptr %q, ptr %out, i16 %bits) {{
 %k = bitcast i16 %bits to <16 x i1>
 %y = load <16 x i32>, ptr %q, align 64
 {x}
 {picked}
 %r = select <16 x i1> %k, <16 x i32> {arms}
 store <16 x i32> %r, ptr %out, align 64
 ret void
}}"""
LOADED = "%x = load <16 x i32>, ptr %p, align 64"
IN_REGISTER = '%l = load <16 x i32>, ptr %p, align 64\n %x = call <16 x i32> asm "", "=v,0"(<16 x i32> %l)'
needs_avx512 = pytest.mark.skipif("avx512f" not in host.features(), reason="only AVX-512 has the instruction")


def text(x, first, mask, other, swapped):
    mask, rest = mask - (mask >> 31 << 32), ~mask & 0xFFFFFFFF
    picked = BITS.format(a=first, b="%y" if first == "%x" else "%x", mask=mask, rest=rest - (rest >> 31 << 32))
    picked += f"%v = or <16 x i32> {'%n, %m' if swapped else '%m, %n'}"
    arms = f"%v, <16 x i32> {other}"
    return TEXT.format(x=x, picked=picked, arms=arms)


CASES = list(
    itertools.product((LOADED, IN_REGISTER), ("%x", "%y"), (1 << 31, 0x7FFFFFFF, 0xFFFF0000, 255), ("%x", "%y"), (0, 1))
)


def aligned(values):
    room = np.zeros(len(values) + LANES, np.uint32)
    start = -room.ctypes.data % 64 // 4
    room[start : start + len(values)] = values
    return room[start : start + len(values)]


def run(code, x, y, bits):
    loaded = native.load(native.Native(code, {}))
    out = aligned([0] * LANES)
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_uint16)(loaded.address("f"))
    function(x.ctypes.data, y.ctypes.data, out.ctypes.data, bits)
    return out


@needs_avx512
@pytest.mark.parametrize("case", CASES)
def test_choices_of_picked_bits(case):
    _, first, mask, other, _ = case
    rng = np.random.default_rng(3)
    x, y = (aligned(rng.integers(0, 1 << 32, LANES, np.uint32)) for _ in "xy")
    a, b = (x, y) if first == "%x" else (y, x)
    bits = 0xA5C3
    chosen = np.array([bits >> n & 1 for n in range(LANES)], bool)
    want = np.where(chosen, (a & np.uint32(mask)) | (b & ~np.uint32(mask)), {"%x": x, "%y": y}[other])
    assert run(native.compile_text(text(*case)), x, y, bits).tolist() == want.tolist()


def emitted(text, levels):
    return native._emitted(native._optimised(text, levels, emission.context()), levels)


@needs_avx512
def test_what_llvm_makes_is_found_and_made_otherwise():
    """At least one of the texts becomes such an instruction when it is left alone, and none when choices are plain."""
    for levels in (native.Levels(), native.Levels(alone=True)):
        codes = [text(*case) for case in CASES]
        assert any(emitted(x, levels) is None for x in codes)
        plain = [masked_logic.with_plain_choices(x) for x in codes]
        assert all(emitted(x, levels) for x in plain)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("vpternlogd $228, 2176(%rsp), %zmm1, %zmm4 {%k2}", True),
        ("vpternlogq $-28, (%rax){1to8}, %zmm0, %zmm1 {%k1}", True),
        ("vpternlogd $184, (%rax){1to16}, %zmm0, %zmm1 {%k1} {z}", False),
        ("vpternlogd $228, 2176(%rsp), %zmm1, %zmm4", False),
        ("vpternlogd $228, %zmm2, %zmm1, %zmm4 {%k2}", False),
    ],
)
def test_which_instructions(line, found):
    assert masked_logic.holds(line) is found


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("62f3754a25642422e4", True),  # vpternlogd $228, 2176(%rsp), %zmm1, %zmm4 {%k2}
        ("62f375ca25642422e4", False),  # ... {z}
        ("62f3754825642422e4", False),  # no write mask
        ("62f3754a25e2e4", False),  # a register instead of memory
        ("62f2754a25642422", False),  # another map of opcodes
    ],
)
def test_encodings(code, found):
    assert masked_logic.may_hold(b"\x90\x62" + bytes.fromhex(code)) is found


@pytest.mark.parametrize(("lanes", "kind"), [(32, "i32"), (32, "double"), (16, "float"), (8, "i64"), (4, "i32")])
def test_plain_choices_choose_the_same(lanes, kind):
    vector = f"<{lanes} x {kind}>"
    module = f"""
define {vector} @g(<{lanes} x i1> %"k", {vector} %"a.1", {vector} %b) {{
  %"r" = select  <{lanes} x i1> %"k", {vector} %"a.1", {vector} %b
  ret {vector} %"r"
}}"""
    plain = masked_logic.with_plain_choices(module)
    assert plain.count(f"call {vector} @nbtc_hidden") == 2
    llvm = native.binding()
    llvm.parse_assembly(plain).verify()
    assert masked_logic.with_plain_choices("ret void") == "ret void"
