"""Accesses of a thread to neighbouring elements, written one by one: done together, and still themselves."""

import numpy as np
import pytest

import nbtc
from nbtc.errors import ProgramError
from nbtc.executor.kernel import neighbours
from nbtc.executor.kernel.link import link

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 k_x, .param .u64 k_y, .param .u32 k_n) {{
    .reg .b{wide} %v<9>; .reg .b32 %r<9>; .reg .b64 %rd<20>; .reg .pred %p<9>;
    ld.param.u64 %rd0, [k_x];
    ld.param.u64 %rd1, [k_y];
    ld.param.u32 %r1, [k_n];
    mov.u32 %r0, %tid.x;
    mov.u32 %r3, %ctaid.x;
    mad.lo.s32 %r0, %r3, 64, %r0;
    mul.wide.u32 %rd2, %r0, {step};
    add.s64 %rd3, %rd0, %rd2;
    add.s64 %rd4, %rd1, %rd2;
"""
VARIES = {"%rd3", "%rd4", *(f"%rd{n}" for n in range(5, 20))}


def program(bits, count, step):
    """Copies `count` elements of each thread: element i of all whose index count * thread + i is below n."""
    lines = [HEAD.format(wide=max(16, bits), step=step), f"mul.lo.u32 %r2, %r0, {count};"]
    for i in range(count):
        lines += [
            f"add.s64 %rd{5 + i}, %rd3, {bits // 8 * i};",
            f"add.u32 %r4, %r2, {i};",
            f"setp.lt.u32 %p{i}, %r4, %r1;",
        ]
    for i in range(count):
        lines += [f"mov.b{max(16, bits)} %v{i}, 7;", f"@%p{i} ld.global.b{bits} {{%v{i}}}, [%rd{5 + i}];"]
    lines += [f"@%p{i} st.global.b{bits} [%rd4+{bits // 8 * i}], %v{i};" for i in range(count)]
    return "\n".join([*lines, "ret; }"])


@pytest.mark.parametrize(
    ("bits", "count", "step"), [(8, 4, 4), (16, 3, 6), (32, 4, 16), (64, 4, 32), (32, 2, 16), (32, 8, 32)]
)
def test_elements_of_a_thread(bits, count, step):
    """Whole blocks, one that ends in the middle, and lanes whose elements lie apart."""
    kernel = nbtc.load(program(bits, count, step))["k"]
    each = 8 * step // bits
    x = np.random.default_rng(bits).integers(1, 100, 128 * each).astype(f"u{bits // 8}")
    index = np.arange(128 * each)
    number = index // each * count + index % each
    for n in (128 * count, 64 * count + 37, 5):
        y = np.zeros_like(x)
        kernel[2, 64](x, y, n)
        assert (y == np.where((index % each < count) & (number < n), x, 0)).all()


@pytest.mark.parametrize("n", [64, 50, 3])
def test_neighbours_that_lanes_share(n):
    """A stencil: what is next to an element of a thread is the next thread's, so each access has lanes side by side."""
    lines = [HEAD.format(wide=32, step=4), "setp.lt.u32 %p0, %r0, %r1; mov.b32 %v3, 0;"]
    lines += [f"mov.b32 %v{i}, 0; @%p0 ld.global.b32 %v{i}, [%rd3+{4 * i}];" for i in range(3)]
    lines += [f"add.u32 %v3, %v3, %v{i};" for i in range(3)] + ["@%p0 st.global.b32 [%rd4], %v3;"]
    x = np.random.default_rng(n).integers(1, 100, n + 2).astype(np.uint32)
    kernel = nbtc.load("\n".join([*lines, "ret; }"]))["k"]
    for _ in range(2):  # a place of the program only knows its memory the second time
        y = np.zeros(n, np.uint32)
        kernel[1, 64](x, y, n)
        assert (y == x[:-2] + x[1:-1] + x[2:]).all()


@pytest.mark.parametrize("blocks", [1, 2])  # the second block goes where the first one found its memory
@pytest.mark.parametrize(
    ("elements", "at", "line", "thread"),
    [(-1, 0, 36, 63), (-2, 0, 34, 63), (0, 2, 30, 0)],
)
def test_the_access_that_fails_is_named(blocks, elements, at, line, thread):
    text = program(32, 4, 16)
    x = np.ones(blocks * 256 + 2, np.uint32)
    y = x.copy()
    kept = x[: blocks * 256 + elements] if not at else x.view(np.uint8)[at:-2]
    with pytest.raises(ProgramError) as error:
        nbtc.load(text)["k"][blocks, 64](kept, y, 1 << 20)
    block = 0 if at else blocks - 1
    assert f"line {line}: ld.global.b32" in str(error.value)
    assert f"block ({block}, 0, 0) thread ({thread}, 0, 0)" in str(error.value)


def groups(body):
    """Numbers of the accesses in `body` that are joined, counted from its first instruction."""
    text = HEAD.format(wide=32, step=16) + body + "ret; }"
    instructions = link(nbtc.load(text).ptx, "k").functions[-1].body
    first = next(n for n, i in enumerate(instructions) if n > 2 and i.opcode in ("ld", "st"))
    return [tuple(m - first for m in found) for found in neighbours.find(instructions, VARIES).groups.values()]


LOADS = "ld.global.u32 %v0, [%rd3]; {} ld.global.u32 %v1, [%rd3+4];"


@pytest.mark.parametrize(
    ("between", "joined"),
    [
        ("mov.u32 %v2, 0;", True),
        ("add.u32 %v2, %v3, 1;", True),
        ("add.u32 %v2, %v0, 1;", False),  # reads what was to be loaded
        ("mov.u32 %v0, 0;", False),  # writes it
        ("add.s64 %rd3, %rd3, 0;", False),  # writes an address
        ("st.global.u32 [%rd4], %v2;", False),
        ("bar.sync 0;", False),
        ("ld.global.u32 %v2, [%rd3+8];", False),
        ("ld.global.u16 %v2, [%rd3+4];", False),
    ],
)
def test_what_may_stand_between(between, joined):
    found = groups(LOADS.format(between))
    assert bool(found) == joined


def test_which_accesses_are_neighbours():
    loads = "".join(f"ld.global.u32 %v{n}, [%rd3+{4 * n}];" for n in range(7))
    assert groups(loads) == [(0, 1, 2, 3), (4, 5)]  # the seventh stays alone
    assert groups("ld.volatile.global.u32 %v0, [%rd3]; ld.volatile.global.u32 %v1, [%rd3+4];") == []
    assert groups("ld.global.v2.u32 {%v0, %v1}, [%rd3]; ld.global.v2.u32 {%v2, %v3}, [%rd3+8];") == []
    moved = "add.s64 %rd5, %rd3, 8; mov.b64 %rd6, %rd5; add.s64 %rd7, %rd6, -4;"
    stores = "st.global.u32 [%rd7], %v0; st.global.u32 [%rd5], %v1;"
    assert groups("st.shared.u32 [%r5], %v2;" + moved + stores) == [(4, 5)]
    assert groups("ld.global.u32 %v0, [%rd1]; ld.global.u32 %v1, [%rd1+4];") == []  # all lanes at one place


def test_an_instrument_observes_every_access():
    kernel = nbtc.load(program(32, 4, 16))["k"]
    x = np.ones(256, np.uint32)
    assert kernel.profile[1, 64](x, x.copy(), 256).total.global_requests == 16
    with pytest.raises(ProgramError, match="line 36"):
        kernel.checked[1, 64](x[:255], x.copy(), 256)
