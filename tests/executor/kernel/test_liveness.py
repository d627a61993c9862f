"""Registers that hold values still to be read where lanes wait."""

from nbtc.executor.kernel.flow import graph
from nbtc.executor.kernel.liveness import live_at
from nbtc.executor.rows.uses import waits
from nbtc.executor.text.parse import parse

TEXT = """.version 8.0 .target sm_80 .address_size 64
.visible .entry k() {
    .reg .b32 %r<9>; .reg .pred %p<3>;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, 0;
    mov.u32 %r3, 5;
    setp.eq.u32 %p1, %r1, 3;
LOOP:
    add.u32 %r4, %r1, 1;
    bar.sync 0;
    @%p1 mov.u32 %r3, 7;
    mov.u32 %r5, %r4;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p2, %r2, 4;
    @%p2 bra LOOP;
    add.u32 %r6, %r3, %r5;
    ret;
}"""


def blocks():
    function = parse(TEXT).functions["k"]
    found = graph(function, waits)
    return found, [b for b, block in enumerate(found.blocks) if any(map(waits, block.instructions[:1]))]


def test_live_where_a_barrier_begins_a_block():
    """A guarded write keeps the old value alive; what is written anew before it is read is not live."""
    found, waiting = blocks()
    assert len(waiting) == 1
    assert live_at(found, waiting) == {"%r1", "%r2", "%r3", "%r4", "%p1"}


def test_nothing_is_live_nowhere():
    found, _ = blocks()
    assert live_at(found, ()) == frozenset()
    assert live_at(found, [0]) == frozenset()
