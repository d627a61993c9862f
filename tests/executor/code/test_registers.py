"""Long functions: registers that live in several of many blocks stay in memory, with the same values."""

import numpy as np

import nbtc
from nbtc.compiler.split import Functions
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
            return len(Functions(machine.module, machine.helpers.functions).objects("warp")[0])

    few, many = size(24), size(48)
    assert few < many < 2.2 * few
