"""Products that ptxas makes anew for a sum whose value is used far away, and fuses there.

A value that is used only beyond the block after its own is computed again where it is used, with all that it is made
of: then a product that other instructions read, too, has the sum for its only reader there, and fuses, while the
product itself stays for the others.  What was seen (tests/golden/contract_blocks.npz, an H100; ptxas 12.8, 12.9, 13.0
and 13.5 agree on the first text of these, from sm_75 to sm_120, and 13.5 is what the limits were found with):

* the value's block, in no loop, isn't the immediate dominator of a block that uses it (dominators in loops don't
  count);
* what it is made of is arithmetic, at most MOST instructions, of values that blocks share: a value that only its own
  block knows would have to be kept for this;
* what is still to be read after the first use is taken as it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from nbtc.executor.kernel.blocks import Blocks, branches
from nbtc.executor.kernel.reads import CONSTANT_SPACES, Reads
from nbtc.executor.rows.uses import row_of
from nbtc.executor.text.data import Instruction, Register

MOST = 9
FREE = frozenset({"mov", "ld"})  # of constants only
# Functions of the special function unit whose subnormals take instructions with guards, unless they flush them.
FLUSHED = frozenset({"rcp", "rsqrt", "sqrt", "ex2", "lg2"})


def trees(reads: Reads) -> Iterator[tuple[int, list[int]]]:
    """Instructions whose values are computed anew where they are used, and all that each is made of, in order."""
    for at in range(len(reads.instructions)):
        if not _alone(reads, at):
            continue
        readers = reads.readers.get(_name(reads.instructions[at]), [])
        if _far(reads, at, readers):
            tree = _tree(reads, at, min(readers))
            if tree is not None:
                yield at, sorted(tree)


def _far(reads: Reads, at: int, readers: list[int]) -> bool:
    home, flow = reads.blocks[at], reads.flow
    blocks = {reads.blocks[r] for r in readers}
    if not blocks or home in blocks or home not in flow.dominator or not blocks <= flow.dominator.keys():
        return False
    return not flow.loops[home] and all(_beyond(flow, home, b) for b in blocks)


def _beyond(flow: Blocks, home: int, block: int) -> bool:
    """Whether another block than `home`, in no loop that `home` isn't in, is the last before a block on all ways."""
    up = flow.dominator[block]
    while flow.loops[up] and up != flow.dominator[up]:
        up = flow.dominator[up]
    return up != home and flow.dominates(home, up)


def _tree(reads: Reads, root: int, use: int) -> set[int] | None:
    """The instructions that a value is made of anew; None if it isn't."""
    found: set[int] = set()
    todo = [root]
    while todo:
        at = todo.pop()
        if at in found:
            continue
        found.add(at)
        if sum(reads.instructions[n].opcode not in FREE for n in found) > MOST:
            return None
        for name in set(reads.reads[at]):
            writers, readers = reads.writers.get(name, []), reads.readers[name]
            if len(writers) != 1:
                # as it is from before the block: nothing writes it between here and the root
                if reads.blocks[at] == reads.blocks[root] not in {reads.blocks[w] for w in writers}:
                    continue
                return None
            if max(readers) > use:
                continue
            if _alone(reads, writers[0]):
                todo.append(writers[0])
            elif {reads.blocks[r] for r in readers} == {reads.blocks[writers[0]]}:
                return None
    return found


def _alone(reads: Reads, at: int) -> bool:
    """Whether an instruction is arithmetic that gives one value, nowhere else written."""
    i = reads.instructions[at]
    names = reads.writes[at]
    if i.guard is not None or len(names) != 1 or branches(i) or not isinstance(i.operands[0], Register):
        return False
    if any(reads.writers[name] != [at] for name in names):
        return False
    if i.opcode in FREE:
        return i.opcode == "mov" or not CONSTANT_SPACES.isdisjoint(i.modifiers)
    if i.opcode in FLUSHED and "ftz" not in i.modifiers and "f32" in i.modifiers:
        return False
    if i.opcode == "div":
        return reads.constant(at)
    row = row_of(i.mnemonic)
    return row is not None and row.action is None


def _name(i: Instruction) -> str:
    target = i.operands[0]
    return target.name if isinstance(target, Register) else ""
