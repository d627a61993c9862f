"""Lanes of a warp at many different blocks at once: more than a word has bits."""

import numpy as np
import pytest

import nbtc
from nbtc.compiler.machine_code import stacks
from nbtc.errors import ProgramError
from nbtc.executor.code.helpers import emitting
from nbtc.executor.code.machine import BlockShape, Machine, Options
from nbtc.executor.kernel.link import link
from nbtc.executor.text.parse import parse

on_stack = stacks.on_stack
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
BEGIN = """.visible .entry k(.param .u64 X, .param .u64 Y) {
.reg .b64 %x, %y; .reg .b32 %t, %way, %seen, %turn; .reg .pred %p;
.shared .align 4 .b32 next;
ld.param.u64 %x, [X]; ld.param.u64 %y, [Y]; mov.u32 %t, %tid.x;
mad.wide.u32 %x, %t, 4, %x; mad.wide.u32 %y, %t, 4, %y;
ld.global.u32 %way, [%x];
sub.u32 %turn, 31, %t;
mov.u32 %seen, 0;
st.shared.u32 [next], %seen;
bar.sync 0;
"""
END = "JOIN: st.global.u32 [%y], %seen; ret;\n}\n"


def run(block, count, ways):
    """What the lanes that went to these ways, of so many, stored; block(n): the text of way n."""
    labels = ", ".join(f"L{n}" for n in range(count))
    choice = f"TABLE: .branchtargets {labels};\nbrx.idx %way, TABLE;\n"
    text = HEAD + BEGIN + choice + "".join(f"L{n}: {block(n)} bra JOIN;\n" for n in range(count)) + END
    y = np.zeros(32, np.uint32)
    nbtc.load(text)["k"][1, 32](ways, y)
    return y


def machine(text):
    module = parse(text)
    with emitting():
        return Machine(link(module, "k"), BlockShape.of((32, 1, 1)), Options("sm_80"))


def test_lanes_at_many_blocks():
    ways = (np.arange(32, dtype=np.uint32) * 28) % 67
    assert np.array_equal(run(lambda n: f"add.u32 %seen, %t, {n};", 67, ways), np.arange(32) + ways)


@pytest.mark.parametrize("count", [32, 33, 36])
def test_a_block_far_behind_gets_its_turn(count):
    """Each lane waits at a block of its own for the lanes behind it, whose blocks have higher numbers."""
    block = """S{0}: ld.volatile.shared.u32 %seen, [next]; setp.ne.u32 %p, %seen, %turn; @%p bra S{0};
    add.u32 %turn, %turn, 1; st.volatile.shared.u32 [next], %turn;"""
    assert np.array_equal(run(block.format, count, np.arange(32, dtype=np.uint32) + count - 32), 31 - np.arange(32))


def test_code_that_takes_more_stack_than_a_thread_can_have_is_refused(monkeypatch):
    monkeypatch.setattr(stacks, "MOST", 64)
    with pytest.raises(ProgramError, match=r"k: its code takes .* MiB of a thread's stack, of which .* is the most"):
        run("add.u32 %seen, %t, {};".format, 8, np.arange(32, dtype=np.uint32) % 8)


def test_code_with_large_frames_runs_on_threads_that_have_room_for_them(monkeypatch):
    sizes = []
    monkeypatch.setattr(stacks, "ANY_THREAD", 64)
    monkeypatch.setattr(stacks, "on_stack", lambda size, *work: sizes.append(size) or on_stack(size, *work))
    ways = np.arange(32, dtype=np.uint32) % 9
    assert np.array_equal(run("add.u32 %seen, %t, {};".format, 9, ways), np.arange(32) + ways)
    assert len(sizes) == 1 and sizes[0] > 64


def test_waits_of_lanes_that_have_diverged_share_their_code():
    """A vote more in a branch takes 63 instructions of LLVM, none of which leaves the coroutine."""
    votes = "vote.sync.ballot.b32 b, q, m; add.u32 a, a, b; "

    def size(count):
        text = f"""{HEAD}.visible .entry k(.param .u64 X) {{
        .reg .b32 a, b, m; .reg .b64 x; .reg .pred p, q; ld.param.u64 x, [X]; mov.u32 a, %tid.x; setp.gt.u32 p, a, 7;
        setp.ne.u32 q, a, 3; @p bra J; mov.u32 m, 255; {votes * count} J: st.global.u32 [x], a; ret; }}"""
        function = machine(text).module.globals["warp"]
        lines = [str(i) for block in function.blocks for i in block.instructions]
        return len(lines), sum("llvm.coro.suspend" in line for line in lines)

    (few, left), (many, still_left) = size(10), size(110)
    assert still_left == left and many - few < 100 * 64
