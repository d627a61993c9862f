"""Blocks in an order in which lanes meet again."""

from nbtc.executor.kernel.flow import graph
from nbtc.executor.kernel.uniform import FunctionSetting, facts
from nbtc.executor.text.parse import parse

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
REGISTERS = ".reg .pred p, q; .reg .b32 a, b, c; .reg .b64 d;"


def of(text):
    function = parse(f"{HEAD}.visible .entry k() {{ {REGISTERS} {text} }}").functions["k"]
    return function, graph(function, lambda i: i.opcode == "bar")


def checks(g):
    for b, block in enumerate(g.blocks):
        for t in block.targets:
            assert t > b or t in g.loops(b)
        if len(block.targets) > 1 and (region := g.region(b)):
            assert max(region) < g.post_dominator[b]


def test_a_diamond():
    _, g = of("@p bra T; mov.b32 a, 1; bra J; T: mov.b32 a, 2; J: mov.b32 b, a; ret;")
    checks(g)
    assert g.post_dominator[0] == 3 and g.dominator[3] == 0 and not g.outer


def test_a_loop_with_two_ways_back_gets_one_latch():
    _, g = of("L: add.u32 a, a, 1; @p bra L; add.u32 b, b, 1; @q bra L; mov.b32 c, b; ret;")
    latch = g.blocks[2]
    assert not latch.instructions and latch.targets == (0,)


def test_nested_loops_and_a_break():
    _, g = of("A: add.u32 a, a, 1; B: @p bra OUT; @q bra B; @p bra A; OUT: mov.b32 b, a; ret;")
    checks(g)
    assert len(g.outer) == 2 and -1 in g.outer.values()


def test_an_irreducible_loop_still_has_an_order():
    _, g = of("@p bra B; A: add.u32 a, a, 1; B: add.u32 b, b, 1; @q bra A; ret;")
    assert len({*range(g.end)}) == g.end


def test_an_endless_loop():
    _, g = of("L: @p bra M; bra L; M: bra L;")
    assert all(m >= 0 for m in g.post_dominator)


def test_a_branch_to_a_bare_exit_leaves_the_others_together():
    function, g = of("mov.u32 a, %tid.x; setp.ge.u32 p, a, 7; @p bra X; add.u32 b, 1, 2; st.global.u32 [d], a; X: ret;")
    f = facts(function, g, FunctionSetting())
    assert g.blocks[0].leaves and not f.divergent
    assert "a" in f.varies and "b" not in f.varies


def test_what_is_written_apart_varies():
    function, g = of(
        "mov.u32 a, %laneid; setp.eq.u32 p, a, 3; mov.u32 b, 0; @p bra J; mov.u32 b, 1; J: add.u32 c, b, 1; ret;"
    )
    f = facts(function, g, FunctionSetting())
    assert f.divergent == {1} and {"b", "c"} <= f.varies


def test_what_no_block_has_from_another_need_not_be_kept_for_other_lanes():
    """`b` is written in two blocks and read in the same ones alone; `a` is read before, `c` written under a guard."""
    way = "add.u32 b, a, NUMBER; add.u32 a, b, 1; @q mov.u32 c, b; "
    function, g = of(
        "mov.u32 a, %laneid; setp.eq.u32 p, a, 3; setp.eq.u32 q, a, 4; @p bra J; "
        + way.replace("NUMBER", "1")
        + "bra K; J: "
        + way.replace("NUMBER", "2")
        + "K: add.u32 a, a, c; ret;"
    )
    f = facts(function, g, FunctionSetting())
    assert f.divergent == {1, 2} and {"a", "b", "c"} <= f.varies
    assert "b" in f.private and f.private.isdisjoint({"a", "c"})


def test_a_loop_around_an_atomic_spins_and_a_counting_one_does_not():
    function, g = of("L: ld.volatile.global.u32 a, [d]; setp.eq.u32 p, a, 0; @p bra L; ret;")
    assert facts(function, g, FunctionSetting()).spins == {0}
    function, g = of("L: add.u32 a, a, 1; setp.lt.u32 p, a, 9; @p bra L; ret;")
    assert not facts(function, g, FunctionSetting()).spins
