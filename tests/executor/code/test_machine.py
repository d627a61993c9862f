"""Programs of our own, run."""

import numpy as np
import pytest

import nbtc
from nbtc.errors import FormatError, OptionError, ProgramError

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"

INDEX = """
 .reg .pred %p<5>; .reg .b32 %r<20>; .reg .b64 %rd<10>;
 ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [n];
 mov.u32 %r2, %tid.x; mov.u32 %r13, %ctaid.x; mov.u32 %r14, %ntid.x;
 mad.lo.u32 %r2, %r13, %r14, %r2;
 mul.wide.u32 %rd2, %r2, 4; add.u64 %rd3, %rd1, %rd2;
"""


def kernel(text):
    return nbtc.load(f"{HEAD}.visible .entry k(.param .u64 out, .param .u32 n) {{ {INDEX} {text} }}")["k"]


LOOP = """
 mov.u32 %r3, 0; mov.u32 %r4, 0;
LOOP:
 setp.ge.u32 %p1, %r3, %r2;
 @%p1 bra DONE;
 add.u32 %r3, %r3, 1;
 and.b32 %r5, %r3, 1;
 setp.eq.u32 %p2, %r5, 0;
 @%p2 bra LOOP;
 mul.lo.u32 %r6, %r3, %r2;
 add.u32 %r4, %r4, %r6;
 setp.gt.u32 %p3, %r4, 1000;
 @%p3 bra BIG;
 add.u32 %r4, %r4, 7;
 bra LOOP;
BIG:
 sub.u32 %r4, %r4, 900;
 bra LOOP;
DONE:
"""


def looped(t):
    s = 0
    for i in range(1, t + 1, 2):
        s += i * t
        s = s - 900 if s > 1000 else s + 7
    return s


@pytest.fixture(scope="module")
def loops():
    return kernel(LOOP + "setp.ge.u32 %p4, %r2, %r1; @%p4 ret; st.global.u32 [%rd3], %r4; ret;")


@pytest.mark.parametrize(("grid", "block", "n"), [(1, 32, 32), (2, 32, 50), (1, 1, 1), (3, (8, 4), 24)])
def test_lanes_that_loop_apart_meet_again(loops, grid, block, n):
    out = np.full(100, 7, np.uint32)
    loops[grid, block](out, n)
    np.testing.assert_array_equal(out, [*map(looped, range(n)), *[7] * (100 - n)])


def test_results_do_not_depend_on_threads(loops):
    one, two = np.zeros(4096, np.uint32), np.zeros(4096, np.uint32)
    loops.launch(64, 64, (one, 4096), threads=1)
    loops.launch(64, 64, (two, 4096), threads=2)
    np.testing.assert_array_equal(one, two)
    assert one.any()


def test_shared_memory_and_a_barrier():
    k = kernel(
        ".shared .b32 buf[256]; mov.u32 %r3, buf; shl.b32 %r4, %r2, 2; add.u32 %r5, %r3, %r4; st.shared.u32 [%r5], %r2;"
        "bar.sync 0; sub.u32 %r6, %r1, %r2; shl.b32 %r6, %r6, 2; add.u32 %r6, %r3, %r6;"
        "ld.shared.u32 %r7, [%r6+-4]; st.global.u32 [%rd3], %r7; ret;"
    )
    for n in (32, 100, 256):
        out = np.zeros(n, np.uint32)
        k[1, n](out, n)
        np.testing.assert_array_equal(out, np.arange(n)[::-1])


@pytest.mark.parametrize("outer", ["@%p1 bra OUTER;", ""])
def test_an_arrival_after_a_loop_lets_others_go_on(outer):
    """In the round in which it comes all warps stand at barriers, one of them at a barrier that is complete."""
    k = kernel(
        ".shared .b32 flag; mov.u32 %r3, 0; st.volatile.shared.u32 [flag], 0; bar.sync 0; shr.u32 %r4, %r2, 5; "
        "OUTER: add.u32 %r3, %r3, 1; setp.eq.u32 %p1, %r4, 0; @%p1 bar.sync 3, 64; setp.eq.u32 %p1, %r4, 3; "
        "@%p1 st.volatile.shared.u32 [flag], %r3; setp.ne.u32 %p1, %r4, 1; @%p1 bra JOIN; "
        "SPIN: ld.volatile.shared.u32 %r5, [flag]; setp.lt.u32 %p1, %r5, %r3; @%p1 bra SPIN; bar.arrive 3, 64; "
        f"JOIN: bar.sync 0; setp.lt.u32 %p1, %r3, 3; {outer} st.global.u32 [%rd3], %r3; ret;"
    )
    out = np.zeros(128, np.uint32)
    k[1, 128](out, 0)
    assert (out == (3 if outer else 1)).all()


def test_a_barrier_does_not_wait_for_threads_that_have_ended():
    k = kernel("setp.ge.u32 %p1, %r2, 40; @%p1 bra X; bar.sync 0; st.global.u32 [%rd3], %r2; X: ret;")
    out = np.zeros(128, np.uint32)
    k[1, 128](out, 0)
    np.testing.assert_array_equal(out, np.where(np.arange(128) < 40, np.arange(128), 0))


def test_a_barrier_in_both_branches_lets_the_halves_of_a_warp_meet():
    k = kernel(
        ".shared .b32 buf[32]; mov.u32 %r3, buf; shl.b32 %r4, %r2, 2; add.u32 %r5, %r3, %r4; st.shared.u32 [%r5], %r2;"
        "setp.lt.u32 %p1, %r2, 16; @%p1 bra L; barrier.sync 1; ld.shared.u32 %r7, [%r5+-64]; bra J;"
        "L: barrier.sync 1; ld.shared.u32 %r7, [%r5+64]; J: st.global.u32 [%rd3], %r7; ret;"
    )
    out = np.zeros(32, np.uint32)
    k[1, 32](out, 0)
    np.testing.assert_array_equal(out, np.arange(32) ^ 16)


def test_a_lane_waits_for_another_of_its_warp():
    k = kernel(
        "setp.eq.u32 %p1, %r2, 0; @%p1 bra SET;"
        "WAIT: ld.volatile.global.u32 %r3, [%rd1]; setp.eq.u32 %p2, %r3, 0; @%p2 bra WAIT;"
        "add.u32 %r4, %r3, %r2; st.global.u32 [%rd3], %r4; ret;"
        "SET: st.volatile.global.u32 [%rd1], 5; ret;"
    )
    out = np.zeros(32, np.uint32)
    k[1, 32](out, 0)
    np.testing.assert_array_equal(out, [5, *range(6, 37)])


def test_an_early_block_waits_for_a_later_one():
    k = kernel(
        "setp.ne.u32 %p1, %r13, 2; @%p1 bra WAIT; st.volatile.global.u32 [%rd1], 9;"
        "WAIT: ld.volatile.global.u32 %r3, [%rd1]; setp.eq.u32 %p2, %r3, 0; @%p2 bra WAIT;"
        "st.global.u32 [%rd3+4], %r3; ret;"
    )
    out = np.zeros(97, np.uint32)
    k.launch(3, 32, (out, 0), threads=1)
    assert (out == 9).all()


def test_an_index_picks_its_label():
    k = kernel(
        "and.b32 %r3, %r2, 3; ts: .branchtargets A, B, A, C; brx.idx %r3, ts;"
        "A: mov.u32 %r4, 10; bra J; B: mov.u32 %r4, 20; bra J; C: mov.u32 %r4, 30; J: st.global.u32 [%rd3], %r4; ret;"
    )
    out = np.zeros(32, np.uint32)
    k[1, 32](out, 0)
    np.testing.assert_array_equal(out, np.tile([10, 20, 10, 30], 8))


def test_vectors_and_generic_addresses():
    k = kernel(
        ".shared .align 16 .b32 buf[128]; .reg .b64 %g; shl.b32 %r3, %r2, 4; mov.u32 %r4, buf; add.u32 %r4, %r4, %r3;"
        "mov.u32 %r6, 0; mov.b64 %rd4, {%r4, %r6}; cvta.shared.u64 %g, %rd4; add.u32 %r5, %r2, 100;"
        "st.v4.b32 [%g], {%r2, %r5, %r2, %r5}; ld.shared.v4.b32 {%r6, %r7, %r8, %r9}, [%r4]; add.u32 %r9, %r9, %r6;"
        "st.global.u32 [%rd3], %r9; ret;"
    )
    out = np.zeros(32, np.uint32)
    k[1, 32](out, 0)
    np.testing.assert_array_equal(out, 2 * np.arange(32) + 100)


def test_module_variables_last():
    m = nbtc.load(
        HEAD + ".global .u32 counter = 5; .const .u32 step[2] = {3, 4};"
        ".visible .entry k() { .reg .b32 a, b; ld.global.u32 a, [counter]; ld.const.u32 b, [step+4];"
        " add.u32 a, a, b; st.global.u32 [counter], a; ret; }"
    )
    m["k"][1, 1]()
    m["k"][1, 1]()
    assert m.globals["counter"].view(np.uint32)[0] == 13


SPACES = ("global", "const", "shared", "local", "param")
ADDRESSES = ("g; cvta.global", "c; cvta.const", "s; cvta.shared", "l; cvta.local", "n; cvta.param", "g; cvta.global")


def test_spaces_of_generic_addresses():
    asks = "".join(
        f"isspacep.{space} p, a; selp.u32 r, {1 << i}, 0, p; or.b32 w, w, r;" for i, space in enumerate(SPACES)
    )
    text = "".join(
        f"mov.u64 a, {where}.u64 a, a; mov.u32 w, 0; {asks} st.global.u32 [d+{4 * n}], w;"
        for n, where in enumerate(ADDRESSES)
    )
    m = nbtc.load(
        HEAD + ".global .u32 g; .const .u32 c; .visible .entry k(.param .u64 out, .param .u32 n) { .shared .b32 s;"
        f".local .b32 l; .reg .pred p; .reg .b32 r, w; .reg .b64 d, a; ld.param.u64 d, [out]; {text} ret; }}"
    )
    out = np.zeros(6, np.uint32)
    m["k"][1, 1](out, 3)
    np.testing.assert_array_equal(out, [1, 2, 4, 8, 16, 1])


def test_addresses_of_parameters_and_constants_fit_32_bits():
    m = nbtc.load(
        HEAD + ".const .u32 c[2] = {5, 6}; .global .u64 at[2] = {c, generic(c)};"
        ".visible .entry k(.param .u64 out, .param .u32 n) {"
        ".reg .b32 r, x; .reg .b64 d, a; ld.param.u64 d, [out];"
        "mov.b32 r, n; ld.param.u32 x, [r]; st.global.u32 [d], x;"
        "cvt.u64.u32 a, r; cvta.param.u64 a, a; ld.u32 x, [a]; st.global.u32 [d+4], x;"
        "cvta.to.param.u64 a, a; ld.param.u32 x, [a]; st.global.u32 [d+8], x;"
        "mov.b32 r, c; ld.const.u32 x, [r+4]; st.global.u32 [d+12], x;"
        "ld.global.u64 a, [at]; ld.const.u32 x, [a]; st.global.u32 [d+16], x;"
        "ld.global.u64 a, [at+8]; ld.u32 x, [a+4]; st.global.u32 [d+20], x; ret; }"
    )
    out = np.zeros(6, np.uint32)
    m["k"][1, 1](out, 3)
    np.testing.assert_array_equal(out, [3, 3, 3, 6, 5, 6])


def test_a_kernel_prints(loops):
    text = str(loops)
    assert "kernel k on sm_80" in text and "blocks, lanes may diverge in" in text
    assert repr(loops) == "<kernel k on sm_80, 2 parameters>"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "st.global.u32 [%rd3+4], %r2; ret;",
            "line 10: st.global.u32: writes outside.*thread \\(31.*0 bytes after.*out",
        ),
        ("ld.global.u32 %r3, [%rd3+-4]; st.global.u32 [%rd3], %r3; ret;", "thread \\(0, 0, 0\\).*4 bytes before out"),
        ("st.global.u32 [%rd3+2], %r2; ret;", "not a multiple"),
        ("ld.shared.u32 %r3, [1000]; st.global.u32 [%rd3], %r3; ret;", "leaves the block's shared memory"),
        ("mov.u32 %r3, 9; ts: .branchtargets A; brx.idx %r3, ts; A: ret;", "beyond its table"),
        ("trap; ret;", "trap"),
        ("bar.sync 1, 64; ret;", "waits forever"),
        ("frobnicate.u32 %r1, %r2; ret;", "frobnicate"),
        ("ld.global.zz.u32 %r1, [%rd1]; ret;", "no form with .zz"),
    ],
)
def test_what_is_wrong_is_named(text, said):
    with pytest.raises(ProgramError, match=said):
        kernel(text)[1, 32](np.zeros(32, np.uint32), 0)


def test_arguments_are_checked():
    k = kernel("ret;")
    with pytest.raises(ProgramError, match="takes 2 arguments"):
        k[1, 32](np.zeros(4))
    with pytest.raises(FormatError, match=r"k is a kernel: launch it, module\['k'\]\[grid, block\]"):
        k(np.zeros(4), 1)
    with pytest.raises(FormatError, match=r"is \.u64: pass an array, such as np\.array\(x\), not a list"):
        k[1, 32]([1, 2], 1)
    with pytest.raises(FormatError, match=r"is \.u32: pass a number, not a list"):
        k[1, 32](np.zeros(4), [1])
    with pytest.raises(OptionError, match="1024"):
        k[1, 2048](np.zeros(4, np.uint32), 1)
    with pytest.raises(ValueError, match="does not fit"):
        k[1, 32](np.zeros(4, np.uint32), 1 << 32)
