"""Many launches leave nothing behind, threads do not disturb each other, and Ctrl-C ends whatever waits."""

from __future__ import annotations

import gc
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import nbtc
from nbtc.errors import ProgramError
from nbtc.executor.watch.heap import HeapCells

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
# malloc, free, shared and local memory, a barrier: each block adds up t + 1 of its threads
SUM = (
    HEAD
    + """
.extern .func (.param .b64 out) malloc (.param .b64 size);
.extern .func free (.param .b64 memory);
.visible .entry sum(.param .u64 out) {
 .reg .pred p; .reg .b32 t, s, r, i; .reg .b64 o, m, b; .shared .b32 mem[64]; .local .b32 own[2];
 ld.param.u64 o, [out]; mov.u32 t, %tid.x; add.u32 r, t, 1;
 { .param .b64 size; .param .b64 got; st.param.b64 [size], 64; call.uni (got), malloc, (size); ld.param.b64 m, [got]; }
 st.u32 [m+4], r; ld.u32 r, [m+4]; st.local.u32 [own+4], r; ld.local.u32 r, [own+4];
 { .param .b64 back; st.param.b64 [back], m; call.uni free, (back); }
 mov.u32 s, mem; shl.b32 i, t, 2; add.u32 s, s, i; st.shared.u32 [s], r;
 bar.sync 0;
 setp.ne.u32 p, t, 0; @p ret;
 mov.u32 r, 0; mov.u32 i, 0;
 ADD: ld.shared.u32 t, [s]; add.u32 r, r, t; add.u32 s, s, 4; add.u32 i, i, 1; setp.lt.u32 p, i, 64; @p bra ADD;
 mov.u32 i, %ctaid.x; mul.wide.u32 b, i, 4; add.u64 o, o, b; st.global.u32 [o], r; ret; }
"""
)
LAUNCHES = 200
PAGES = 256  # of 4 KiB: launches that each kept a copy of their array would take twelve times as much


def state():
    """Pages in memory and open files of this process."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]), len(os.listdir("/proc/self/fd"))


def least_growth(work):
    """Pages that `work` leaves in memory every time.

    A leak grows each time, an allocator's own pools now and then (298 pages once, in a process of 2.4 GB).
    """
    growth = []
    for _ in range(3):
        before, _ = state()
        work()
        growth.append(state()[0] - before)
        if growth[-1] < PAGES / 2:
            break
    return min(growth)


@pytest.fixture(scope="module", autouse=True)
def _older_objects_stay():
    """What thousands of tests have left is looked through once, not with every count: that took most of the time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def usual_collections():
    """Cycles are looked for as often as Python does by itself, which the suite has changed."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts what Linux tells in /proc")
@pytest.mark.usefixtures("usual_collections")
@pytest.mark.parametrize("checked", [False, True])
def test_two_hundred_launches_leave_nothing(checked):
    module, out = nbtc.load(SUM), np.zeros(1 << 14, np.uint32)  # 64 KiB, which each launch is given and covers
    heap = module.heap

    def launches(count):
        for _ in range(count):
            out[:] = 0
            module["sum"].launch(4, 64, (out,), threads=1, checked=checked)
            assert (out[:4] == 64 * 65 // 2).all()
            assert not heap.sizes

    launches(20)
    threads, used, (_, files) = threading.active_count(), heap.holes, state()
    assert least_growth(lambda: launches(LAUNCHES)) < PAGES
    assert (state()[1], heap.holes) == (files, used)
    assert threading.active_count() <= threads + 1  # the pool starts its threads when it first needs them


def test_what_watches_a_heap_goes_with_its_launch():
    """It is tens of megabytes, too much to wait for garbage collection, which counts objects."""
    module, out = nbtc.load(SUM), np.zeros(1 << 14, np.uint32)
    gc.collect()
    gc.disable()
    try:
        module["sum"].launch(4, 64, (out,), threads=1, checked=True)
        assert not [x for x in gc.get_objects() if type(x) is HeapCells]  # isinstance() asks dead weak proxies too
    finally:
        gc.enable()


@nbtc.kernel
def nothing(x):
    pass


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts what Linux tells in /proc")
def test_ten_thousand_launches_of_an_empty_kernel_leave_nothing():
    x = np.zeros(32, np.float32)
    for _ in range(1000):
        nothing[1, 32](x)
    files = state()[1]

    def launches():
        for _ in range(10_000):
            nothing[1, 32](x)

    assert least_growth(launches) < PAGES / 2 and state()[1] == files  # 52 bytes a launch


def program(number):
    """A program of its own: loops, shared memory and atomics, with constants and a barrier that others don't have."""
    return (
        f"{HEAD}.visible .entry k{number}(.param .u64 out) {{ .reg .pred p; .reg .b32 t, s, r, i; .reg .b64 o, b;"
        f" .shared .b32 mem[{64 + number}]; ld.param.u64 o, [out]; mov.u32 t, %tid.x; mul.wide.u32 b, t, 4;"
        " add.u64 b, o, b; mov.u32 s, mem; shl.b32 i, t, 2; add.u32 s, s, i; mov.u32 r, t; mov.u32 i, 0;"
        f" NEXT: mad.lo.u32 r, r, {2 * number + 3}, {number}; add.u32 i, i, 1;"
        f" setp.lt.u32 p, i, {10 + number}; @p bra NEXT; st.shared.u32 [s], r; bar.sync {number}; xor.b32 i, t, 1;"
        " shl.b32 i, i, 2; mov.u32 s, mem; add.u32 s, s, i; ld.shared.u32 r, [s];"
        " red.global.add.u32 [b], r; ret; }"
    )


def expected(number, blocks):
    r = np.arange(64, dtype=np.uint32)
    for _ in range(10 + number):
        r = r * np.uint32(2 * number + 3) + np.uint32(number)
    return r[np.arange(64) ^ 1] * np.uint32(blocks)


def test_eight_threads_launch_programs_of_their_own():
    start = threading.Barrier(8)

    def work(number):
        start.wait()  # they compile at once too
        kernel = nbtc.load(program(number))[f"k{number}"]
        for n in range(1, 26):
            out = np.zeros(64, np.uint32)
            kernel.launch(n, 64, (out,), checked=number % 4 == 3 and n % 5 == 0)
            if not np.array_equal(out, expected(number, n)):
                return f"program {number}, {n} blocks"
        return ""

    with ThreadPoolExecutor(8) as pool:
        assert [said for said in pool.map(work, range(8)) if said] == []


# what a launch does for ever: both warps run; one waits at a barrier; one looks at a flag that nobody sets
WAITS = {
    "loops": "L: add.u32 a, a, 1; bra L;",
    "barrier": "mov.u32 a, %warpid; setp.eq.u32 p, a, 0; @!p bar.sync 0; L: add.u32 a, a, 1; bra L;",
    "flag": "st.volatile.shared.u32 [flag], 0; bar.sync 0; mov.u32 a, %warpid; setp.eq.u32 p, a, 0; @p bra W;"
    " L: add.u32 a, a, 1; bra L; W: ld.volatile.shared.u32 a, [flag]; setp.eq.u32 p, a, 0; @p bra W; ret;",
}


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("what", WAITS)
def test_an_interrupt_ends_a_launch(what, checked):
    text = f"{HEAD}.visible .entry k() {{ .shared .b32 flag; .reg .b32 a; .reg .pred p; {WAITS[what]} }}"
    kernel = nbtc.load(text)["k"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it
    with pytest.raises(ProgramError, match="time limit"):  # everything is compiled from here on
        kernel.launch(2, 64, (), checked=checked, timeout=0.1)

    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.3, interrupt)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            kernel.launch(2, 64, (), checked=checked)
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
    kernel_after = nbtc.load(f"{HEAD}.visible .entry k() {{ ret; }}")["k"]
    kernel_after.launch(2, 64, (), checked=checked)  # and the next one runs
