"""Programs at the edges of what the PTX ISA says: run here, and on a GPU by tests/golden/recorders/make_edges.py.

Each is a name, a text with an entry `k`, and what its parameters are given: uint32 arrays, the last of which it writes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

HEAD = ".version 8.3\n.target sm_90\n.address_size 64\n"
# bits of both halves of a word, of f16 and of bf16: zeros, a subnormal, a number, infinity, a NaN
HALVES = (0x0000, 0x8000, 0x0001, 0x8001, 0x3C00, 0x7F80, 0xFFFF)
PAIRS = tuple((a << 16 | a, b << 16 | b) for a in HALVES for b in HALVES)

_REDUCTION = (
    HEAD
    + """.visible .entry k(.param .u64 px, .param .u64 py) {{
 .reg .b64 x, y; .reg .b32 t, o, w, none; .reg .b16 h, n; .reg .b64 d;
 ld.param.u64 x, [px]; ld.param.u64 y, [py]; mov.u32 t, %tid.x; mov.u32 none, {none}; cvt.u16.u32 n, none;
 mul.wide.u32 d, t, 4; add.u64 x, x, d; mul.wide.u32 d, t, 8; add.u64 y, y, d;
 ld.global.b32 w, [x]; cvt.u16.u32 h, w; {what} ret; }}"""
)

_DROP = (
    HEAD
    + """.visible .entry k(.param .u64 out) {{
 .shared .align 8 .b64 bar; .reg .b64 q, st; .reg .pred p; .reg .b32 r, i, s;
 ld.param.u64 q, [out]; {before} mov.u32 i, 0;
L: mbarrier.test_wait.parity.shared.b64 p, [bar], 0; selp.u32 r, 1, 0, p;
 mbarrier.test_wait.parity.shared.b64 p, [bar], 1; selp.u32 s, 2, 0, p; or.b32 r, r, s;
 st.global.u32 [q], r; add.u64 q, q, 4; add.u32 i, i, 1; setp.lt.u32 p, i, 8; @p bra L; ret; }}"""
)
_ARRIVALS = {
    "one_dropped": "mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive_drop.shared.b64 st, [bar];",
    "one_arrived": "mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.shared.b64 st, [bar];",
    "arrived_then_dropped": "mbarrier.init.shared.b64 [bar], 2; mbarrier.arrive.shared.b64 st, [bar];"
    " mbarrier.arrive_drop.shared.b64 st, [bar];",
}


def reductions() -> Iterator[tuple[str, str, list[np.ndarray]]]:
    """min and max of 16-bit floats in memory: values in `x`; memory, and a word beside it, in `y`."""
    x = np.array([value for _, value in PAIRS], np.uint32)
    y = np.array([(memory, 0) for memory, _ in PAIRS], np.uint32)
    for op in ("min", "max"):
        for kind, none in (("f16", 0xFC00 if op == "max" else 0x7C00), ("bf16", 0xFF80 if op == "max" else 0x7F80)):
            red, old = f"red.global.{op}.noftz", f"atom.global.{op}.noftz"
            for name, what in (
                (f"red_{op}_v2_{kind}", f"{red}.v2.{kind} [y], {{h, h}};"),
                (f"red_{op}_v2_{kind}x2", f"{red}.v2.{kind}x2 [y], {{w, none}};"),
                (f"atom_{op}_v2_{kind}", f"{old}.v2.{kind} {{h, n}}, [y], {{h, h}};"),
            ):
                yield name, _REDUCTION.format(what=what, none=none), [x, y.copy()]


def waits() -> Iterator[tuple[str, str, list[np.ndarray]]]:
    """What tests of an mbarrier answer after a phase: bit 0 for parity 0, bit 1 for parity 1, eight times."""
    for name, before in _ARRIVALS.items():
        yield f"mbarrier_{name}", _DROP.format(before=before), [np.zeros(8, np.uint32)]


LOADED = 256  # words of a row
TF32_LOAD = (
    HEAD
    + f""".visible .entry k(.param .align 64 .b8 map[128], .param .u64 out) {{
 .shared .align 128 .b8 s[{4 * LOADED}]; .shared .align 8 .b64 bar;
 .reg .b64 m, q, st, d; .reg .b32 x, row, a, i, w; .reg .pred p;
 mov.b64 m, map; cvta.param.u64 m, m; ld.param.u64 q, [out]; mov.u32 x, 0; mov.u32 row, %ctaid.x;
 mbarrier.init.shared.b64 [bar], 1; fence.proxy.async; mbarrier.arrive.expect_tx.shared.b64 st, [bar], {4 * LOADED};
 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [s], [m, {{x, row}}], [bar];
L: mbarrier.try_wait.parity.shared.b64 p, [bar], 0; @!p bra L;
 mul.wide.u32 d, row, {4 * LOADED}; add.u64 q, q, d; mov.u32 a, s; mov.u32 i, 0;
M: ld.shared.u32 w, [a]; st.global.u32 [q], w; add.u32 a, a, 4; add.u64 q, q, 4; add.u32 i, i, 1;
 setp.lt.u32 p, i, {LOADED}; @p bra M; ret; }}"""
)


def tf32_words() -> np.ndarray:
    """Float32 words: around every 256th tf32 number of both signs the tie and its neighbours, and others drawn."""
    tf32 = np.arange(0, 1 << 32, 1 << 21, dtype=np.uint32)[:, None]
    near = tf32 + np.array([0, 1, 0x0FFF, 0x1000, 0x1001, 0x1FFF, 0x2FFF, 0x3000, 0x3001], np.uint32)
    drawn = np.random.default_rng(5).integers(0, 2**32, 7 * len(tf32), np.uint32)
    return np.concatenate([near.ravel(), drawn]).reshape(-1, LOADED)
