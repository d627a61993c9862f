"""Lanes of a warp at many different blocks at once: more than a word has bits."""

import numpy as np
import pytest

import nbtc
from nbtc.compiler import stacks
from nbtc.errors import ProgramError

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


def test_lanes_at_many_blocks():
    ways = (np.arange(32, dtype=np.uint32) * 28) % 67
    assert np.array_equal(run(lambda n: f"add.u32 %seen, %t, {n};", 67, ways), np.arange(32) + ways)


def test_a_block_far_behind_gets_its_turn():
    """Each lane waits at a block of its own for the lanes behind it, whose blocks have higher numbers."""
    block = """S{0}: ld.volatile.shared.u32 %seen, [next]; setp.ne.u32 %p, %seen, %turn; @%p bra S{0};
    add.u32 %turn, %turn, 1; st.volatile.shared.u32 [next], %turn;"""
    assert np.array_equal(run(block.format, 36, np.arange(32, dtype=np.uint32) + 4), 31 - np.arange(32))


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
