"""Sums of floats in memory: NaNs and subnormals, by where the memory is."""

import numpy as np
import pytest

import nbtc

QUIET = 1 << 51
NANS = (0x7FF0000000000001, 0xFFF0000000012345, 0x7FF8000000054321, 0xFFFFFFFFFFFFFFFF)
NUMBERS = (0x7FF0000000000000, 0xFFF0000000000000, 0x3FF0000000000000, 0x8000000000000000)
SUMS = {"global": "global", "shared": "shared", "generic global": "", "generic shared": ""}
OPCODES = ("atom", "red")


def summed(where, opcode, memory, operand, kind):
    """What memory becomes when each thread adds to a word of its own, and what it gets back."""
    size, space = memory.itemsize, f".{SUMS[where]}" if SUMS[where] else ""
    shared, b = "shared" in where, f"b{8 * memory.itemsize}"
    generic = "cvta.shared.u64 %s, %s;" if shared and not SUMS[where] else ""
    result = "%old, " if opcode == "atom" else ""
    text = f""".version 8.5 .target sm_90 .address_size 64
.visible .entry k(.param .u64 m, .param .u64 o, .param .u64 r) {{
 .reg .b64 %m, %o, %r, %s, %z; .reg .b32 %i; .reg .{b} %old, %x, %y; .shared .align 16 .b8 words[2048];
 ld.param.u64 %m, [m]; ld.param.u64 %o, [o]; ld.param.u64 %r, [r]; mov.u32 %i, %tid.x; mul.wide.u32 %z, %i, {size};
 add.u64 %m, %m, %z; add.u64 %o, %o, %z; add.u64 %r, %r, %z; mov.u64 %s, words; add.u64 %s, %s, %z;
 ld.global.{b} %x, [%m]; ld.global.{b} %y, [%o]; mov.{b} %old, %x; st.shared.{b} [%s], %x; {generic}
 {opcode}{space}.add.{kind} {result}[{"%s" if shared else "%m"}], %y;
 {f"ld{space or '.shared' if SUMS[where] else ''}.{b} %x, [%s]; st.global.{b} [%m], %x;" if shared else ""}
 st.global.{b} [%r], %old; ret; }}"""
    after, old = memory.copy(), np.zeros_like(memory)
    nbtc.load(text)["k"][1, len(memory)](after, operand, old)
    assert old.tolist() == memory.tolist()
    return after.tolist()


@pytest.mark.parametrize("opcode", OPCODES)
@pytest.mark.parametrize("where", SUMS)
def test_nans_of_doubles(where, opcode):
    """As an H200 answered (driver 580.159.04): global memory prefers the operand's NaN and leaves it as it is."""
    words = (*NANS, *NUMBERS)
    memory = np.array([x for x in words for _ in words], np.uint64)
    operand = np.array(list(words) * len(words), np.uint64)
    found = summed(where, opcode, memory, operand, "f64")
    for x, y, z in zip(memory.tolist(), operand.tolist(), found, strict=True):
        first, second = (y, x) if "global" in where else (x, y)
        nan = next((n for n in (first, second) if n in NANS), None)
        if nan is not None:
            assert z == (nan if "global" in where else nan | QUIET), (hex(x), hex(y), hex(z))
        elif {x, y} == set(NUMBERS[:2]):
            assert z == 0xFFF8000000000000
        else:
            total = np.array([x, y], np.uint64).view(np.float64).sum()
            assert z == total.view(np.uint64) or (x, y) == (NUMBERS[3], NUMBERS[3])


@pytest.mark.parametrize("opcode", OPCODES)
@pytest.mark.parametrize("where", SUMS)
def test_sums_of_f32_are_flushed_in_global_memory_alone(where, opcode):
    """PTX ISA, "atom"; an H200 answered the same (driver 580.159.04)."""
    memory = np.array([0x00000001, 0x80000005, 0x00800000, 0x7F812345], np.uint32)
    operand = np.array([0x00000002, 0x00000000, 0x80000001, 0x3F800000], np.uint32)
    kept, flushed = [3, 0x80000005, 0x007FFFFF, 0x7FFFFFFF], [0, 0, 0x00800000, 0x7FFFFFFF]
    assert summed(where, opcode, memory, operand, "f32") == (flushed if "global" in where else kept)
