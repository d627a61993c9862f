"""Registers: values in a block, variables of those that live in several, in memory in long functions; the same bits."""

import numpy as np
import pytest

import nbtc
from nbtc.compiler.machine_code.split import Functions
from nbtc.executor.code.helpers import emitting
from nbtc.executor.code.machine import BlockShape, Machine, Options
from nbtc.executor.code.registers import MANY_BLOCKS
from nbtc.executor.kernel.link import link
from nbtc.executor.text.parse import parse

BITS = 16  # of a lane's pattern that decide its way


def program(steps, barrier):
    """Each step mixes four registers, two of them the same in all lanes, where a bit of the lane's pattern is set."""
    lines = []
    for n in range(steps):
        lines.append(f"and.b32 %r9, %r0, {1 << n % BITS}; setp.eq.u32 %p1, %r9, 0; @%p1 bra L{n};")
        lines.append(f"mad.lo.u32 %r{1 + n % 2}, %r{2 - n % 2}, {2 * n + 3}, %r3; add.u32 %r1, %r1, %r4;")
        lines.append(f"L{n}: add.u32 %r3, %r3, {n}; xor.b32 %r4, %r4, %r3; {'bar.sync 0;' if n == barrier else ''}")
    return f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .u32 start) {{
    .reg .b32 %r<10>; .reg .b64 %d<4>; .reg .pred %p<2>;
    ld.param.u64 %d1, [a]; ld.param.u32 %r3, [start]; mov.u32 %r4, 7;
    mov.u32 %r5, %tid.x; mul.wide.u32 %d2, %r5, 4; add.u64 %d3, %d1, %d2; ld.global.u32 %r0, [%d3];
    mov.u32 %r1, %r5; mov.u32 %r2, 1;
    {" ".join(lines)}
    xor.b32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3; xor.b32 %r1, %r1, %r4; st.global.u32 [%d3], %r1; ret;
}}"""


def expected(pattern, lane, start, steps):
    r = [0, lane, 1, start, 7]
    for n in range(steps):
        if pattern >> n % BITS & 1:
            r[1 + n % 2] = (r[2 - n % 2] * (2 * n + 3) + r[3]) % 2**32
            r[1] = (r[1] + r[4]) % 2**32
        r[3] = (r[3] + n) % 2**32
        r[4] ^= r[3]
    return ((r[1] ^ r[2]) + r[3]) % 2**32 ^ r[4]


def test_a_long_function():
    steps = MANY_BLOCKS
    a = np.random.default_rng(5).integers(0, 1 << BITS, 64).astype(np.uint32)
    want = [expected(int(x), lane, 12345, steps) for lane, x in enumerate(a)]
    nbtc.load(program(steps, barrier=steps // 2))["k"][1, 64](a, 12345)
    assert a.tolist() == want


def test_machine_code_grows_no_faster_than_the_text():
    """Ways of some lanes that load a word for all of them and use names again that other ways use."""
    way = (
        "and.b32 %r9, %r0, BIT; setp.eq.u32 %p1, %r9, 0; @%p1 bra LN; mov.u32 %r7, N; ld.global.u32 %r8, [%d1+4]; "
        "add.u32 %r7, %r7, %r8; xor.b32 %r1, %r1, %r7; LN: "
    )

    def size(ways):
        body = "".join(way.replace("BIT", str(1 << n % BITS)).replace("N", str(n)) for n in range(ways))
        text = f""".version 8.0 .target sm_80 .address_size 64
.visible .entry k(.param .u64 a) {{
    .reg .b32 %r<10>; .reg .b64 %d<4>; .reg .pred %p<2>;
    ld.param.u64 %d1, [a]; mov.u32 %r0, %tid.x; mov.u32 %r1, 0; {body} st.global.u32 [%d1], %r1; ret;
}}"""
        with emitting():
            machine = Machine(link(parse(text), "k"), BlockShape.of((32, 1, 1)), Options("sm_80"))
            return len(Functions(machine.module, machine.helpers.functions).objects("warp").files[0])

    # both have more blocks than MANY_BLOCKS, at which each way takes more code at once
    few, many = size(MANY_BLOCKS // 2), size(MANY_BLOCKS)
    assert few < many < 2.2 * few


def warp_text(body, registers):
    text = f""".version 8.0 .target sm_80 .address_size 64
.visible .entry k(.param .u64 a) {{ {registers} {body} ret; }}"""
    with emitting():
        return str(Machine(link(parse(text), "k"), BlockShape.of((32, 1, 1)), Options("sm_80")).module)


def test_registers_of_one_block_have_no_variables():
    steps = "".join(f"add.u32 %r{n + 1}, %r{n}, %r{n};" for n in range(50))
    begin = "mov.u32 %r0, %tid.x;"
    registers = ".reg .b32 %r<60>; .reg .pred %p<2>;"
    few = warp_text(begin, registers).count("alloca")
    assert warp_text(begin + steps, registers).count("alloca") == few
    read_elsewhere = "setp.eq.u32 %p1, %r50, 7; @%p1 bra L; add.u32 %r51, %r50, %r9; L: add.u32 %r52, %r51, %r50;"
    assert warp_text(begin + steps + read_elsewhere, registers).count("alloca") > few


@pytest.mark.parametrize("limit", [0, 4, 31])
def test_registers_that_some_lanes_write(limit):
    """Under guards that vary and that don't, in blocks and in loops, read in the same block and in others."""
    text = """.version 8.0 .target sm_80 .address_size 64
.visible .entry k(.param .u64 a, .param .u32 limit) {
    .reg .b32 %r<12>; .reg .b64 %d<4>; .reg .pred %p<5>;
    ld.param.u64 %d0, [a]; ld.param.u32 %r0, [limit]; mov.u32 %r1, %tid.x;
    mul.wide.u32 %d1, %r1, 16; add.u64 %d1, %d0, %d1;
    setp.gt.u32 %p0, %r0, 3; setp.lt.u32 %p1, %r1, %r0;
    mov.u32 %r2, 1; mov.u32 %r3, 2; mov.u32 %r4, 3;
    @%p0 mov.u32 %r2, 10; @%p1 mov.u32 %r3, 20; @%p1 add.u32 %r2, %r2, %r3;
    @%p1 ld.global.u32 %r4, [%d1]; @%p1 ld.global.u32 %r5, [%d1+4]; @!%p1 mov.u32 %r5, %r4;
    add.u32 %r4, %r4, %r2; add.u32 %r5, %r5, %r3;
L:  add.u32 %r6, %r4, %r5; mov.u32 %r4, %r5; mov.u32 %r5, %r6;
    setp.lt.u32 %p2, %r6, 1000; @%p2 bra L;
    st.global.u32 [%d1], %r4; st.global.u32 [%d1+4], %r5; st.global.u32 [%d1+8], %r2; st.global.u32 [%d1+12], %r3;
    ret;
}"""
    a = np.arange(128, dtype=np.uint32).reshape(32, 4) + 5
    want = []
    for lane, (x, y, *_) in enumerate(a.tolist()):
        r2, r3, r4 = 10 if limit > 3 else 1, 2, 3
        if lane < limit:
            r3 = 20
            r2 += r3
        r4, r5 = (x, y) if lane < limit else (r4, r4)
        r4, r5 = r4 + r2, r5 + r3
        while True:
            r4, r5 = r5, r4 + r5
            if r5 >= 1000:
                break
        want.append([r4, r5, r2, r3])
    nbtc.load(text)["k"][1, 32](a, limit)
    assert a.tolist() == want
