"""Branches that only choose what is computed: their two ways do no more than that before they meet again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nbtc.executor.kernel.flow import Block, graph
from nbtc.executor.rows.uses import waits
from nbtc.executor.text.data import Function, Instruction


def chosen(function: Function, computes: Callable[[Instruction], bool]) -> dict[int, list[Instruction]]:
    """Of such a branch's `id`: what lanes may execute until they meet; computes: what gives registers values alone."""
    found = {}
    blocks = graph(function, waits).blocks
    for number, block in enumerate(blocks):
        last = block.instructions[-1] if block.instructions else None
        if last is not None and last.opcode == "bra" and last.guard is not None:
            skipped = _until_joined(blocks, number, computes)
            if skipped is not None:
                found[id(last)] = skipped
    return found


def _until_joined(
    blocks: Sequence[Block], number: int, computes: Callable[[Instruction], bool]
) -> list[Instruction] | None:
    """What lanes execute between a block's end and where all of them meet again; None if they do more than compute.

    Edges lead to blocks of higher numbers, but for those that begin a loop anew.
    """
    found: list[Instruction] = []
    ways, before = set(blocks[number].ways), number
    while len(ways) > 1:
        lowest = min(ways)
        if lowest <= before:  # it leads back, or to the end
            return None
        own = blocks[lowest].instructions
        if not all(computes(i) or i.opcode == "bra" for i in own):
            return None
        found += own
        ways = (ways - {lowest}) | set(blocks[lowest].ways)
        before = lowest
    return found if min(ways) > before else None
