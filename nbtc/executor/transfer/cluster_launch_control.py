"""Rows of cluster launch control: a block that asks for the work of one that has not begun.

(PTX ISA, "clusterlaunchcontrol.try_cancel", "clusterlaunchcontrol.query_cancel".)  A request takes the next cluster of
the grid that no worker has begun, from the counter that workers take theirs from, and is declined when there is none.
A GPU may decline earlier, which a program has to bear; what is granted here is what brings out a program that does not
do the work it has been given.
The answer is 16 bytes: the first block's index in three words, and whether its launch was cancelled in the fourth.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I1, I32, vector
from nbtc.compiler.loops import for_lanes
from nbtc.executor.control.cluster import block_ranks
from nbtc.executor.emit import access_kinds as kinds
from nbtc.executor.emit.action import Action
from nbtc.executor.emit.fields import grid_place, take_cluster
from nbtc.executor.emit.form import slots
from nbtc.executor.emit.lanes import WARP, Lanes
from nbtc.executor.emit.values import const, resize
from nbtc.executor.memory import reach
from nbtc.executor.text.data import Sink
from nbtc.executor.transfer.bulk import DONE, L64, complete, element_of, for_targets

BYTES = 16  # of an answer
WORD = 32  # bits
AXES = {"get_first_ctaid::x": 0, "get_first_ctaid::y": 1, "get_first_ctaid::z": 2}
CANCELED = 3 * WORD  # the bit of the answer that says whether the launch was cancelled


def _ask(lanes: Lanes) -> None:
    """try_cancel: write the answer, in every block of the cluster if asked to, and tell the mbarriers."""
    address, barrier = lanes.operands
    b, v = lanes.b, lanes.v
    space = "shared" if lanes.op.has("shared::cta") else "generic"
    found = reach.places(lanes, space, address, BYTES, writes=True)
    everywhere = lanes.op.has("multicast::cluster::all")
    blocks = v.splat(b.trunc(block_ranks(lanes), ir.IntType(16)), WARP) if everywhere else None

    def lane(number: Any) -> None:
        words = _taken(lanes)

        def answer(at: Any) -> None:
            lanes.machine.instrument.line(lanes, number, at, v.int(BYTES), kinds.BULK_WRITE)
            v.store(words, b.inttoptr(at, words.type.as_pointer()), BYTES)

        for_targets(lanes, blocks, number, element_of(found.words, lanes, number), answer)

    lanes.machine.instrument.operates(lanes, -1)
    for_lanes(v, found.good, lane)
    complete(lanes, barrier, v.const(L64, BYTES), blocks)


def _taken(lanes: Lanes) -> Any:
    """The answer to one request: a cluster's first block and 1, or zeros where the whole grid has begun."""
    b, v = lanes.b, lanes.v
    first = take_cluster(v, lanes.launch)
    granted = b.icmp_unsigned("<", first, lanes.get("launch", "blocks"))
    place, _ = grid_place(v, lanes.launch, first)
    words = v.const(vector(I32, BYTES // 4), 0)
    for n, word in enumerate((*place, ir.Constant(I32, 1))):
        words = b.insert_element(words, b.select(granted, word, ir.Constant(I32, 0)), ir.Constant(I32, n))
    return words


def _word(lanes: Lanes, answer: Any, index: int) -> Any:
    return resize(lanes.v, lanes.b.lshr(answer, const(lanes.v, answer, index * WORD)), WORD)


def _is_canceled(lanes: Lanes) -> None:
    target, source = lanes.operands
    answer = lanes.read(source, "b128")
    lanes.write(target, resize(lanes.v, lanes.b.lshr(answer, const(lanes.v, answer, CANCELED)), I1.width))


def _first_block(lanes: Lanes) -> None:
    """query_cancel.get_first_ctaid: the index of the cancelled cluster's first block, whole or along one axis."""
    target, source = lanes.operands
    answer = lanes.read(source, "b128")
    axis = AXES.get(lanes.op.modifiers[1])
    targets = lanes.elements(target)
    values = [_word(lanes, answer, n) for n in ((0, 1, 2, 3) if axis is None else (axis,))]
    if len(targets) != len(values):
        lanes.refuse(f"gives {len(values)} numbers, not {len(targets)}")
    for register, value in zip(targets, values, strict=True):
        if not isinstance(register, Sink):
            lanes.write(register, value)


ASK = ("try_cancel", "async", "shared::cta?", DONE, "multicast::cluster::all?", "b128")
ACTIONS = (
    Action("clusterlaunchcontrol", slots(*ASK), _ask),
    Action("clusterlaunchcontrol", slots("query_cancel", "is_canceled", "pred", "b128"), _is_canceled, 1),
    Action("clusterlaunchcontrol", slots("query_cancel", "get_first_ctaid", "v4", "b32", "b128"), _first_block, 1),
    Action("clusterlaunchcontrol", slots("query_cancel", "|".join(AXES), "b32", "b128"), _first_block, 1),
)
