"""Sixteen bytes that were used alike are looked at once: nothing is found, or missed, that cells would not."""

from __future__ import annotations

import re

import numpy as np

import nbtc
from nbtc.compiler.integers.integer_code import text_of
from nbtc.compiler.jit import jit
from nbtc.compiler.machine_code import native
from nbtc.errors import ProgramError
from nbtc.executor.emit.slots import WATCH
from nbtc.executor.launch.services import table
from nbtc.executor.watch import accesses, service
from nbtc.executor.watch.pages import Pages

STEPS, THREADS, BYTES = 12, 128, 2048
BARRIER, WARP, LOAD4, STORE4, LOAD8, STORE8, LOAD16, STORE16, COPY16, COMMIT, WAIT = range(11)
SIZES = {LOAD4: 4, STORE4: 4, LOAD8: 8, STORE8: 8, LOAD16: 16, STORE16: 16, COPY16: 16}
OFTEN = (0.4, 0.05, 0.15, 0.05, 0.15, 0.05, 0.1, 0.05, 0, 0, 0)
WITH_COPIES = (0.3, 0.05, 0.1, 0.05, 0.05, 0.05, 0.1, 0.05, 0.1, 0.05, 0.1)
PIPELINE = (COPY16, COMMIT, WAIT, BARRIER)  # what copies mostly are for
SOURCE = np.zeros(BYTES // 4 + 8, np.uint32)  # of the copies
# every thread goes through a table: what all do in a step, and where each does it (a negative place: not at all)
TEXT = f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 steps, .param .u64 places, .param .u32 first, .param .u32 halves,
 .param .u64 source)
{{
 .reg .pred p<9>; .reg .b32 t, s, n, what, at, x, y; .reg .b16 h;
 .reg .b64 a, b, o, g; .shared .align 16 .b8 mem[{BYTES + 16}];
 ld.param.u64 a, [steps]; ld.param.u64 b, [places]; ld.param.u32 x, [first];
 mov.u32 t, %tid.x; mov.u32 s, mem; mov.u32 n, 0; shl.b32 y, t, 2; add.u32 y, s, y;
 ZERO: st.shared.u32 [y], n; add.u32 y, y, {4 * THREADS}; add.u32 n, n, {4 * THREADS};
 setp.lt.u32 p0, n, {BYTES}; @p0 bra ZERO;
 setp.lt.u32 p0, t, 4; @p0 st.shared.u32 [y], n;
 bar.sync 0;
 ld.param.u32 n, [halves]; setp.eq.u32 p0, n, 0; @p0 bra START;
 mov.u16 h, 0; mov.u32 n, 0; shl.b32 y, t, 1; add.u32 y, s, y;
 HALVES: st.shared.u16 [y], h; add.u32 y, y, {2 * THREADS}; add.u32 n, n, {2 * THREADS};
 setp.lt.u32 p0, n, {BYTES}; @p0 bra HALVES;
 START: add.u32 s, s, x; mul.wide.u32 o, t, 4; add.u64 b, b, o; mov.u32 n, 0;
 bar.sync 0;
 NEXT: ld.global.u32 what, [a]; ld.global.u32 at, [b];
 setp.eq.u32 p1, what, {BARRIER}; @p1 bar.sync 0;
 setp.eq.u32 p1, what, {WARP}; @p1 bar.warp.sync -1;
 setp.ge.s32 p2, at, 0; add.u32 at, at, s; mad.lo.u32 x, n, {THREADS}, t;
 setp.eq.and.u32 p1, what, {LOAD4}, p2; @p1 ld.shared.u32 y, [at];
 setp.eq.and.u32 p1, what, {STORE4}, p2; @p1 st.shared.u32 [at], x;
 setp.eq.and.u32 p1, what, {LOAD8}, p2; @p1 ld.shared.v2.u32 {{y, y}}, [at];
 setp.eq.and.u32 p1, what, {STORE8}, p2; @p1 st.shared.v2.u32 [at], {{x, x}};
 setp.eq.and.u32 p1, what, {LOAD16}, p2; @p1 ld.shared.v4.u32 {{y, y, y, y}}, [at];
 setp.eq.and.u32 p1, what, {STORE16}, p2; @p1 st.shared.v4.u32 [at], {{x, x, x, x}};
 cvt.u64.u32 o, at; cvt.u64.u32 g, s; sub.s64 o, o, g; ld.param.u64 g, [source]; add.s64 g, g, o;
 setp.eq.and.u32 p1, what, {COPY16}, p2; @p1 cp.async.cg.shared.global [at], [g], 16;
 setp.eq.u32 p1, what, {COMMIT}; @p1 cp.async.commit_group;
 setp.eq.u32 p1, what, {WAIT}; @p1 cp.async.wait_group 0;
 add.u64 a, a, 4; add.u64 b, b, {4 * THREADS}; add.u32 n, n, 1; setp.lt.u32 p0, n, {STEPS}; @p0 bra NEXT;
 ret;
}}
"""


def places(rng, size):
    """Where the threads of a step read or write: mostly neighbours side by side, some apart, some not at all."""
    t = np.arange(THREADS)
    at = (size * (t ^ rng.choice([0, 0, 1, 4, 32, 64])) + 16 * int(rng.integers(4))) % BYTES
    if rng.random() < 0.3:  # all in one place, columns of a matrix, rows of a tile
        columns = 16 * t + size * int(rng.integers(16 // size))
        at = [size * (t % 4), columns, 64 * (t // 4) + size * (t % 4)][rng.integers(3)] % BYTES
    if rng.random() < 0.1:
        at = np.where(rng.random(THREADS) < 0.1, size * rng.integers(0, BYTES // size, THREADS), at)
    if rng.random() < 0.3:
        at = np.where(rng.random(THREADS) < rng.random(), at, -1)
    if rng.random() < 0.3:
        at = np.where(rng.integers(2, size=4)[t // 32], at, -1)
    return at


def program(seed, often=OFTEN):
    """The steps and places of one launch."""
    rng = np.random.default_rng(seed)
    steps = rng.choice(11, STEPS, p=often).astype(np.uint32)
    if often is WITH_COPIES and rng.random() < 0.7:
        steps[: len(PIPELINE)] = PIPELINE
    rows = [places(rng, SIZES.get(int(what), 4)) for what in steps]
    return steps, np.array(rows, np.int32)


def verdict(kernel, steps, rows, first=0, halves=0):
    """The report of a launch, with its address counted from `first`."""
    try:
        kernel.launch(1, THREADS, (steps, rows, first, halves, SOURCE), checked=True)
    except ProgramError as error:
        return re.sub(r"0x[0-9a-f]+", lambda found: hex(int(found[0], 16) - first), str(error))
    return ""


def test_hazards_do_not_depend_on_granules():
    """Eight bytes further on no smaller access fills a granule; after stores of two bytes all are split at first."""
    kernel, found = nbtc.load(TEXT)["k"], []
    for seed in range(300):
        steps, rows = program(seed)
        found.append(verdict(kernel, steps, rows))
        assert found[-1] == verdict(kernel, steps, rows, halves=1), seed
        if not np.isin(steps, (LOAD16, STORE16)).any():
            assert found[-1] == verdict(kernel, steps, rows, first=8), seed
    hazards = sum(map(bool, found))
    assert 50 < hazards < 250


def test_hazards_of_copies_do_not_depend_on_granules_or_earlier_launches(monkeypatch):
    """Memory that a launch takes over is all ones at first, then what the last launch left."""
    kernel, found = nbtc.load(TEXT)["k"], []
    texts = [verdict(kernel, *program(seed, WITH_COPIES)) for seed in range(150)]
    taken = Pages.rows

    def rows(self, count, each, zeros):
        given = taken(self, count, each, zeros)
        if not zeros:
            given[: 1 << 14] = -1
        return given

    monkeypatch.setattr(Pages, "rows", rows)
    for seed, text in enumerate(texts):
        steps, places = program(seed, WITH_COPIES)
        assert text == verdict(kernel, steps, places), seed
        found.append(verdict(kernel, steps, places, halves=1))
        assert text == found[-1], seed
    assert 50 < sum(map(bool, found)) < 145


@jit
def nothing_known(me, lanes, window, given, access, harmless):
    """Leaves every lane to the full check."""
    return lanes[0], lanes[1]


@jit
def nothing_known_of_cells(me, lanes, window, given, access):
    return lanes[0], lanes[1]


def test_known_accesses_find_what_the_full_check_does(monkeypatch):
    kernel, slot = nbtc.load(TEXT)["k"], WATCH + service.KERNELS.index(accesses.touch_lanes)
    cases = [(seed, often, halves) for seed in range(150) for often in (OFTEN, WITH_COPIES) for halves in (0, 1)]

    def verdicts():
        return [verdict(kernel, *program(seed, often), halves=halves) for seed, often, halves in cases]

    found = verdicts()
    assert found == verdicts()
    monkeypatch.setattr(accesses, "record_known", nothing_known)
    monkeypatch.setattr(accesses, "record_known_cells", nothing_known_of_cells)
    text = text_of(accesses.touch_lanes.py_func, "checked_in_full", service.PRIMITIVES)
    loaded = native.load(native.Native(native.compile_text(text), {}))
    words = table().words
    as_it_was = words[slot]
    words[slot] = loaded.address("checked_in_full")
    try:
        assert found == verdicts()
    finally:
        words[slot] = as_it_was
    assert 0.2 * len(found) < sum(map(bool, found)) < 0.9 * len(found)
