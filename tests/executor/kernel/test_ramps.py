"""Registers whose lanes count up: what the text tells of them, their values, and accesses through them."""

from __future__ import annotations

import random

import numpy as np
import pytest

import nbtc
from nbtc.errors import ProgramError
from nbtc.executor.code.helpers import emitting
from nbtc.executor.code.machine import BlockShape, Machine, Options
from nbtc.executor.kernel.link import link
from nbtc.executor.text.parse import parse

HEAD = """.version 8.0 .target sm_80 .address_size 64
.visible .entry k(.param .u64 a, .param .u32 u, .param .u32 w) {
    .reg .b32 %r<40>; .reg .b64 %d<40>; .reg .pred %p<9>;
    ld.param.u64 %d0, [a]; ld.param.u32 %r0, [u]; ld.param.u32 %r1, [w]; mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x;
"""
FLAT = BlockShape.of((64, 1, 1))
LANES = 32
WHOLE = (1 << 32) - 1


def machine(body, shape=FLAT):
    with emitting():
        return Machine(link(parse(f"{HEAD} {body} ret; }}"), "k"), shape, Options("sm_80"))


def ramps(body, shape=FLAT):
    return machine(body, shape).frames["k"].ramps.found


ROWS = {  # registers and steps of what follows the head; None: no ramp
    "mad.lo.s32 %r5, %r3, %r0, %r2; shl.b32 %r6, %r5, 2; sub.s32 %r7, %r0, %r6;": {"%r5": 1, "%r6": 4, "%r7": -4},
    "and.b32 %r5, %r2, 480; shr.u32 %r6, %r2, 5; and.b32 %r7, %r2, 31;": {"%r5": 0, "%r6": 0, "%r7": 1},
    "and.b32 %r5, %r2, 7; mul.lo.u32 %r6, %r2, %r0; mul.lo.u32 %r7, %r2, %r2;": {"%r5": None, "%r6": None, "%r7": None},
    "shl.b32 %r5, %r2, 2; or.b32 %r6, %r5, 1; xor.b32 %r7, %r2, %r5;": {"%r5": 4, "%r6": 4, "%r7": None},
    "mul.wide.s32 %d5, %r2, -4; cvt.u64.u32 %d6, %r2; cvt.u32.u64 %r5, %d5;": {"%d5": -4, "%d6": 1, "%r5": -4},
    "@%p1 add.u32 %r5, %r2, 1; selp.b32 %r6, %r2, %r0, %p1;": {"%r5": None, "%r6": None},
    "mov.u32 %r5, %tid.y; add.u32 %r6, %r5, %r2; mov.u32 %r7, %clock; add.u32 %r8, %r7, %r2;": {"%r5": 0, "%r6": 1},
}
ACCESS = "mul.wide.u32 %d9, %r2, 4; add.u64 %d9, %d9, %d0; st.global.u32 [%d9], %r2;"


@pytest.mark.parametrize("body", ROWS)
def test_steps(body):
    known = ramps(f"setp.eq.u32 %p1, %r0, %r2; {body} {ACCESS}").known
    for name, step in ROWS[body].items():
        bits = 32 if name[1] == "r" else 64
        assert (known[name].step if name in known else None) == (None if step is None else step % (1 << bits)), name


def test_bits_that_are_known_to_be_zero():
    found = ramps(
        "add.u32 %r5, %r2, 16; and.b32 %r6, %r2, 96; add.u32 %r7, %r6, %r6; mul.lo.u32 %r8, %r6, 6;"
        f"shr.u32 %r9, %r6, 5; mul.lo.u32 %r10, %r6, {1 << 26}; cvt.u64.u32 %d5, %r6; {ACCESS}"
    ).known
    want = {"%r5": 15, "%r6": ~96, "%r7": ~0xE0, "%r8": ~0x3C0, "%r9": ~3, "%r10": (1 << 31) - 1}
    assert {name: found[name].zeros for name in want} == {name: n & WHOLE for name, n in want.items()}
    assert found["%d5"].zeros == ~96 & (1 << 64) - 1
    assert found["%d5"].exact


def test_what_is_written_twice_and_what_some_lanes_write():
    loop = "mov.u32 %r5, %r2; L: add.u32 %r5, %r5, 32; setp.lt.u32 %p1, %r5, COUNT; @%p1 bra L;"
    assert "%r5" not in ramps(f"{loop.replace('COUNT', '100')} {ACCESS}").known  # lanes leave at different times
    uniform = loop.replace("setp.lt.u32 %p1, %r5, COUNT", "add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, %r0")
    assert ramps(f"mov.u32 %r6, 0; {uniform} {ACCESS}").known["%r5"].step == 1
    other = uniform.replace("mov.u32 %r5, %r2", "shl.b32 %r5, %r2, 1")
    assert ramps(f"mov.u32 %r6, 0; {other} {ACCESS}").known["%r5"].step == 2
    apart = "mov.u32 %r5, %r2; setp.eq.u32 %p1, %r0, 0; @%p1 bra L; shl.b32 %r5, %r2, 1; L: mov.u32 %r6, %r5;"
    assert "%r6" not in ramps(f"{apart} {ACCESS}").known
    assert "%r5" not in ramps(f"add.u32 %r5, %r5, %r2; {ACCESS}").known  # it was never written


def test_blocks_of_other_shapes():
    known = ramps(ACCESS, BlockShape.of((64, 2, 1))).known
    assert known["%r2"].step == 1
    assert "%r2" not in ramps(ACCESS, BlockShape.of((8, 8, 1))).known


def test_a_row_is_found_without_its_addresses():
    text = str(machine(f"mad.lo.u32 %r2, %r3, %r0, %r2; {ACCESS}").module)
    assert "icmp eq <32 x i64>" not in text
    assert "icmp eq <32 x i64>" in str(machine(f"mul.lo.u32 %r2, %r2, %r0; {ACCESS}").module)


OPS = ("add", "sub", "shl", "shr", "and", "or", "xor", "mul.lo", "mad.lo")


def _value(op, x, y, z):
    by = min(y, 32)
    return {
        "add": x + y, "sub": x - y, "shl": x << by, "shr": x >> by, "and": x & y, "or": x | y, "xor": x ^ y,
        "mul.lo": x * y, "mad.lo": x * y + z,
    }[op] & WHOLE  # fmt: skip


def chain(rng, steps):
    """Random arithmetic on %r2, and what it gives for a thread: f(thread, block, u, w)."""
    lines, plan = [], []
    for n in range(steps):
        op, source = rng.choice(OPS), 2 if n == 0 else rng.choice([2, 9 + n])
        other = rng.choice(["%r0", "%r1", "%r3", str(rng.choice([1, 2, 3, 4, 5, 31, 32, 96, 480, 1 << 31, WHOLE]))])
        if op.startswith("sh"):
            other = str(rng.choice([0, 1, 2, 5, 6, 27, 31, 32]))
        third = rng.choice(["%r0", "%r1", "%r2"])
        kind = "b32" if op in ("shl", "and", "or", "xor") else "u32"
        more = f", {third}" if op == "mad.lo" else ""
        lines.append(f"{op}.{kind} %r{10 + n}, %r{source}, {other}{more};")
        plan.append((op, source, other, third))

    def value(thread, block, u, w):
        known = {"%r0": u, "%r1": w, "%r2": thread, "%r3": block}
        for n, (op, source, other, third) in enumerate(plan):
            y = known[other] if other in known else int(other)
            known[f"%r{10 + n}"] = _value(op, known[f"%r{source}"], y, known[third])
        return known[f"%r{9 + steps}"]

    return " ".join(lines), f"%r{9 + steps}", value


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("wide", ["mul.wide.u32", "mul.wide.s32"])
def test_values(seed, wide):
    """What arithmetic gives is stored, by lanes side by side, and is an address of accesses that don't take place."""
    rng = random.Random(seed)
    lines, last, value = chain(rng, rng.randrange(1, 6))
    text = f"""{HEAD} {lines}
    {wide} %d1, {last}, 4; add.u64 %d2, %d1, %d0; setp.eq.u32 %p1, %r0, 123456789; @%p1 bra L;
    mad.lo.u32 %r4, %r3, 64, %r2; mul.wide.u32 %d3, %r4, 16; add.u64 %d3, %d3, %d0;
    st.global.u32 [%d3], {last}; st.global.u64 [%d3+8], %d1; bra E;
    L: ld.global.u32 %r5, [%d2]; st.global.u32 [%d2+4], %r5;
    E: ret; }}"""
    out = np.zeros((128, 2), np.uint64)
    for u, w in ((0, 7), (WHOLE, 1 << 31), (rng.getrandbits(32), (1 << 31) - 20), (32 * rng.getrandbits(20), 0)):
        nbtc.load(text)["k"][2, 64](out, u, w)
        want = [value(n % 64, n // 64, u, w) for n in range(128)]
        assert out[:, 0].tolist() == want
        factor = [x - (1 << 32) if wide.endswith("s32") and x >> 31 else x for x in want]
        assert out[:, 1].tolist() == [4 * x % (1 << 64) for x in factor]


@pytest.mark.parametrize(("wide", "last"), [("mul.wide.s32", 1 << 31), ("mul.wide.u32", 1 << 32)])
@pytest.mark.parametrize("op", ["ld", "st"])
def test_lanes_that_a_carry_takes_elsewhere(wide, last, op):
    """From lane 12 on the sum is another number as 64 bits: that lane's address is outside, the others' inside.

    Where the others', of the first block, have been, a row of all lanes could be.
    """
    access = "ld.global.u32 %r6, [%d2];" if op == "ld" else "st.global.u32 [%d2], %r2;"
    text = f"""{HEAD} add.u32 %r5, %r2, %r0; {wide} %d1, %r5, 4; add.u64 %d2, %d1, %d0;
    mad.lo.u32 %r7, %r3, %r1, 12; setp.ge.u32 %p1, %r2, %r7; @%p1 bra E; {access} E: ret; }}"""
    memory = np.zeros(64, np.uint32)
    kernel = nbtc.load(text)["k"]
    start = (memory.ctypes.data - 4 * (last - 12)) % (1 << 64)
    kernel.launch(2, LANES, (start, last - 12, 0), memory=[memory], threads=1)
    with pytest.raises(ProgramError, match=r"thread \(12, 0, 0\)"):
        kernel.launch(2, LANES, (start, last - 12, 20), memory=[memory], threads=1)
    if op == "st":
        assert memory[:12].tolist() == list(range(12))


@pytest.mark.parametrize("op", ["ld", "st"])
@pytest.mark.parametrize("kind", ["s", "u"])
@pytest.mark.parametrize("step", [1, -1, -4])
def test_the_last_lane_alone_that_a_carry_takes_elsewhere(step, kind, op):
    """Numbers that count up to the last of 32 bits, or down to the first, are a row: those of the first block.

    Those of the second block go on by one more, so that lane 31's address is outside, where a row would be inside.
    """
    access = "ld.global.u32 %r6, [%d2];" if op == "ld" else "st.global.u32 [%d2], %r2;"
    text = f"""{HEAD} add.u32 %r4, %r2, %r3; mad.lo.u32 %r5, %r4, {step}, %r0; cvt.{kind}64.{kind}32 %d1, %r5;
    mul.lo.s64 %d3, %d1, {4 // step}; add.u64 %d2, %d3, %d0; {access} ret; }}"""
    least, most = (-(1 << 31), (1 << 31) - 1) if kind == "s" else (0, WHOLE)
    first = (most if step > 0 else least) - (LANES - 1) * step  # of lane 0
    memory, kernel = np.zeros(LANES + 1, np.uint32), nbtc.load(text)["k"]
    given = (memory.ctypes.data - 4 // step * first) % (1 << 64), first & WHOLE, 0
    kernel.launch(1, LANES, given, memory=[memory])
    assert op == "ld" or memory.tolist() == [*range(LANES), 0]
    with pytest.raises(ProgramError, match=r"block \(1, 0, 0\) thread \(31, 0, 0\)"):
        kernel.launch(2, LANES, given, memory=[memory], threads=1)


@pytest.mark.parametrize("live", [1, 5, 31, 32])
@pytest.mark.parametrize("space", ["global", "shared"])
def test_rows_of_some_lanes(live, space):
    """Stored and loaded again by the first lanes, the last one, and one lane alone; nothing else is touched."""
    place = {"global": "add.u64 %d5, %d4, %d0;", "shared": "mov.u64 %d6, s; add.u64 %d5, %d4, %d6;"}[space]
    text = f"""{HEAD} .shared .align 4 .b32 s[32]; mul.wide.u32 %d4, %r2, 4; {place}
    setp.ge.u32 %p1, %r2, %r0; @%p1 bra M; st.{space}.u32 [%d5], %r2; ld.{space}.u32 %r9, [%d5];
    add.u64 %d7, %d4, %d0; st.global.u32 [%d7+128], %r9;
    M: setp.eq.u32 %p2, %r2, %r1; @%p2 st.{space}.u32 [%d5], 77; @%p2 ld.{space}.u32 %r9, [%d5];
    add.u64 %d7, %d4, %d0; @%p2 st.global.u32 [%d7+256], %r9; ret; }}"""
    for one in (0, 17, 31):
        out = np.full(96, 5, np.uint32)
        nbtc.load(text)["k"][1, 32](out, live, one)
        want = np.full(96, 5, np.uint32)
        want[32 : 32 + live] = range(live)
        if space == "global":
            want[:live] = range(live)
            want[one] = 77
        want[64 + one] = 77
        assert out.tolist() == want.tolist()


@pytest.mark.parametrize("space", ["global", "shared"])
def test_one_lane_alone_outside(space):
    place = {"global": "add.u64 %d5, %d4, %d0;", "shared": "mov.u64 %d6, s; add.u64 %d5, %d4, %d6;"}[space]
    for access in (f"ld.{space}.u32 %r9, [%d5]", f"st.{space}.u32 [%d5], %r9"):
        text = f"""{HEAD} .shared .align 4 .b32 s[16]; mul.wide.u32 %d4, %r2, 4; {place}
        setp.eq.u32 %p2, %r2, %r1; @%p2 {access}; ret; }}"""
        out = np.zeros(16, np.uint32)
        kernel = nbtc.load(text)["k"]
        kernel[1, 32](out, 0, 15)
        with pytest.raises(ProgramError, match=r"thread \(16, 0, 0\)"):
            kernel[1, 32](out, 0, 16)
