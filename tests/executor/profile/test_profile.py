"""Profiles: what small kernels do is counted by hand."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest

import nbtc
from nbtc.executor.code.machine import BlockShape, Machine, Options
from nbtc.executor.kernel.link import link
from nbtc.executor.text.parse import parse

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
KERNEL = (
    HEAD
    + """.visible .entry k(.param .u64 p) {{
.reg .pred q; .reg .b32 t, a, b, c, r<4>; .reg .b64 d, e; .shared .align 16 .b8 s[16384];
mov.u32 t, %tid.x; ld.param.u64 d, [p];
{}
ret; }}"""
)


def profile(body, block=32, grid=1, **keywords):
    memory = np.zeros(4096, np.uint32)
    return nbtc.load(KERNEL.format(body))["k"].profile.launch(grid, block, (memory,), **keywords)


def place(found, mnemonic):
    (row,) = (p for p in found.places if p.mnemonic == mnemonic)
    return row.counts


@pytest.mark.parametrize("block, grid", [(32, 1), (64, 3), (40, 2)])
def test_warp_instructions_and_lanes(block, grid):
    found = profile("add.u32 a, t, 1;", block, grid)
    warps = grid * -(-block // 32)
    assert found.opcodes == dict.fromkeys(("mov", "ld", "add", "ret"), warps)
    assert found.total.executed == 4 * warps and found.total.threads == 4 * grid * block
    assert found.total.active == pytest.approx(grid * block / warps)


def test_loops_and_lines():
    found = profile("mov.u32 a, 0;\nL:\nadd.u32 a, a, 1;\nsetp.lt.u32 q, a, 10;\n@q bra L;")
    assert [(p.line, p.counts.executed) for p in found.places if p.mnemonic in ("add.u32", "bra")] == [
        (9, 10),
        (11, 10),
    ]
    assert found.total.splits == 0


def test_divergence():
    found = profile(
        "setp.lt.u32 q, t, 8;\n@q bra L;\nadd.u32 a, t, 1;\nbra M;\nL: sub.u32 a, t, 1;\nM: xor.b32 a, a, 1;"
    )
    assert found.total.splits == 1
    assert place(found, "add.u32").threads == 24 and place(found, "sub.u32").threads == 8
    assert place(found, "xor.b32") == place(found, "xor.b32")._replace(executed=1, threads=32)


def test_guards():
    found = profile(
        "setp.lt.u32 q, t, 8; @q add.u32 a, t, 1; setp.gt.u32 q, t, 99; @q sub.u32 a, t, 1; @q st.shared.u32 [s], a;"
    )
    assert place(found, "add.u32").threads == 8
    assert not {"sub.u32", "st.shared.u32"} & {p.mnemonic for p in found.places}


def test_what_waits_counts_once():
    found = profile(
        "setp.lt.u32 q, t, 32; @q bra L; mov.u32 a, 1; L: bar.sync 0; shfl.sync.idx.b32 a, t, 0, 31, -1;", 128
    )
    assert place(found, "bar.sync").executed == place(found, "shfl.sync.idx.b32").executed == 4


@pytest.mark.parametrize(
    "stride, width, passes, least",
    [
        (4, "u32", 1, 1),  # side by side
        (0, "u32", 1, 1),  # one word for all
        (8, "u32", 2, 1),
        (128, "u32", 32, 1),
        (132, "u32", 1, 1),  # a padded row
        (1, "u8", 1, 1),  # four lanes share a word
        (8, "u64", 2, 2),  # two groups of 16 lanes
        (16, "u64", 4, 2),
        (16, "v4.u32", 4, 4),
        (128, "v4.u32", 32, 4),
        (144, "v4.u32", 4, 4),
    ],
)
def test_bank_conflicts(stride, width, passes, least):
    target = {"u64": "e", "v4.u32": "{r0, r1, r2, r3}"}.get(width, "a")
    found = profile(f"mul.lo.u32 b, t, {stride}; mov.u32 c, s; add.u32 b, b, c; ld.shared.{width} {target}, [b];")
    counts = place(found, f"ld.shared.{width}")
    assert (counts.shared_requests, counts.passes, counts.least_passes) == (1, passes, least)
    assert counts.conflicts == passes - least


@pytest.mark.parametrize(
    "stride, width, sectors, used",
    [(4, "u32", 4, 1), (0, "u32", 1, 4), (32, "u32", 32, 0.125), (8, "u64", 8, 1), (1, "u8", 1, 1)],
)
def test_sectors(stride, width, sectors, used):
    target = "e" if width == "u64" else "a"
    memory = np.zeros(5000, np.uint32)
    first = memory[(-memory.ctypes.data % 128) // 4 :]
    text = KERNEL.format(f"mul.wide.u32 e, t, {stride}; add.u64 e, e, d; ld.global.{width} {target}, [e];")
    counts = place(nbtc.load(text)["k"].profile[1, 32](first), f"ld.global.{width}")
    assert (counts.global_requests, counts.sectors, counts.efficiency) == (1, sectors, used)


def test_generic_addresses_count_where_they_lead():
    found = profile("mov.u64 e, s; cvta.shared.u64 e, e; st.u32 [e], t; st.u32 [d], t;")
    assert found.total.shared_requests == found.total.global_requests == 1


def test_atomics_and_matrix_rows_count():
    body = "atom.global.add.u32 a, [d], 1; shl.b32 b, t, 4; mov.u32 c, s; add.u32 b, b, c;"
    found = profile(body + "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {r0, r1, r2, r3}, [b];")
    assert place(found, "atom.global.add.u32").sectors == 1
    rows = place(found, "ldmatrix.sync.aligned.m8n8.x4.shared.b16")
    assert (rows.passes, rows.least_passes) == (4, 4)


def test_results_are_those_of_a_plain_launch():
    text = KERNEL.format(
        "mul.wide.u32 e, t, 4; add.u64 e, e, d; ld.global.u32 a, [e]; add.u32 a, a, t; st.global.u32 [e], a;"
    )
    plain, counted = (np.arange(64, dtype=np.uint32) for _ in range(2))
    kernel = nbtc.load(text)["k"]
    assert kernel[1, 64](plain) is None
    kernel.profile[1, 64](counted)
    np.testing.assert_array_equal(plain, counted)


def test_a_plain_launch_has_no_counting_in_it():
    linked = link(parse(KERNEL.format("add.u32 a, t, 1;")), "k")
    text = str(Machine(linked, BlockShape.of((32, 1, 1)), Options("sm_80")).module)
    assert (
        "profile" not in text and "atomicrmw add" not in text.split('define internal i8* @"warp"')[-1].split("\n}")[0]
    )


def test_the_table_the_data_and_the_drawing():
    found = profile("shl.b32 b, t, 7; ld.shared.u32 a, [b]; st.global.u32 [d], a;", 64, 2, threads=2)
    text = str(found)
    for words in (
        "kernel k",
        "24 warp instructions",
        "124 passes",
        "lost to bank conflicts",
        "sectors a request",
        "ld.shared.u32",
    ):
        assert words in text, words
    data = json.loads(json.dumps(found.as_dict()))
    assert data["total"]["executed"] == 24 and data["places"][0]["counts"]["executed"] == 4
    drawing = ElementTree.fromstring(found._repr_svg_())
    words = [t.text for t in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert "kernel k" in words and "ld.shared.u32" in words


def test_the_table_names_lines_of_the_source_and_keeps_what_memory_costs():
    many = "\n".join(f"add.u32 b, t, {n};" for n in range(40))
    text = KERNEL.format(
        f'.file 1 "/src/scale.cu"\n{many}\n.loc 1 7 0\nmul.wide.u32 e, t, 64; add.u64 d, d, e;\nst.global.u32 [d], t;'
    )
    memory = np.zeros(4096, np.uint32)
    found = nbtc.load(text)["k"].profile.launch(1, 32, (memory,))
    (row,) = (line for line in str(found).splitlines() if "st.global" in line)
    assert "scale.cu:7" in row and "32.0 sectors a request" in row
    assert "more, none with more work" in str(found)
