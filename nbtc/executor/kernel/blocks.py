"""Basic blocks as ptxas has them where it fuses products and sums: not those that a text's labels suggest.

Seen in what ptxas 13.5 made of a product, one instruction of each kind and a sum that reads the product; those that
tests/golden/contract_blocks.npz has were run on an H100, too.  An instruction with a guard that touches memory, other
lanes or a unit of its own is a branch around it, whereas arithmetic with a guard stays where it is; division,
reciprocal and root with a rounding mode, and division of signed or 64-bit integers, are code with branches; fences are
too.  A label that no branch names, such as those for a debugger, is none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from nbtc.executor.kernel.flow import ENDS, LEAVES, dominators
from nbtc.executor.rows.uses import row_of
from nbtc.executor.text.data import Function, Instruction, Symbol

# Actions that are arithmetic to ptxas: a guard on them is no branch.
ARITHMETIC = frozenset({"createpolicy", "isspacep", "mov", "cvta"})
ROUNDED = frozenset({"rn", "rz", "rm", "rp"})
WITH_BRANCHES = {
    **dict.fromkeys(("div", "rcp", "sqrt"), ROUNDED),
    "rem": frozenset({"s32", "s64", "u64"}),
}
INTEGERS = frozenset({"s32", "s64", "u64"})
NOTHING = Instruction("", (), (), 0)
FENCES = frozenset({"membar", "setmaxnreg", "brkpt"})


class Blocks(NamedTuple):
    """number: the block of each instruction, rising from 0.  before: the blocks that lead to each.  dominator: each
    block's immediate one, of those that can be reached.  loops: the headers of the loops around each block."""

    number: list[int]
    before: Mapping[int, Sequence[int]]
    dominator: Mapping[int, int]
    loops: Mapping[int, frozenset[int]]

    def dominates(self, a: int, b: int) -> bool:
        """Whether every way to a block passes another (blocks that nothing reaches: whether they are the same)."""
        while a != b and (up := self.dominator.get(b, b)) != b:
            b = up
        return a == b


def blocks_of(function: Function) -> Blocks:
    """The blocks of a function."""
    body = function.body or ()
    named = _named(function)
    starts = {function.labels[name] for name in named}
    around = {at for at, i in enumerate(body) if branches(i)}
    starts |= around | {at + 1 for at, i in enumerate(body) if i.opcode in ENDS or at in around}
    number: list[int] = []
    for at in range(len(body)):
        # between two instructions with branches around them is a block without any
        number.append((number[-1] if number else 0) + (at > 0) * ((at in starts) + ({at - 1, at} <= around)))
    edges = _edges(function, number, around)
    dominator = dominators(edges)
    before = _turned(edges)
    return Blocks(number, before, dominator, _loops(edges, before, dominator))


def _edges(function: Function, number: list[int], around: Collection[int]) -> dict[int, list[int]]:
    """Where lanes may go from each block; those that are code with branches may be passed by."""
    body = function.body or ()
    count = number[-1] + 1 if number else 0
    passed = {number[at] for at in around}
    edges: dict[int, list[int]] = {b: [] for b in range(count)}
    last = {b: body[at] for at, b in enumerate(number)}
    for b in edges:
        i = last.get(b, NOTHING)
        if i.opcode in ("bra", "brx"):
            edges[b] += [number[function.labels[n]] for n in _targets(function, i) if function.labels[n] < len(body)]
        if i.opcode not in ("bra", "brx", *LEAVES) or i.guard is not None:
            edges[b] += [n for n in (b + 1, *((b + 2,) if b + 1 in passed else ())) if n < count]
    return edges


def _turned(edges: Mapping[int, list[int]]) -> dict[int, list[int]]:
    """The blocks that lead to each."""
    before: dict[int, list[int]] = {b: [] for b in edges}
    for b, targets in edges.items():
        for t in targets:
            before[t].append(b)
    return before


def _loops(
    edges: Mapping[int, list[int]], before: Mapping[int, list[int]], dominator: Mapping[int, int]
) -> dict[int, frozenset[int]]:
    """The headers of the loops that each block is in: a loop's end leads to its header, which dominates it."""
    found: dict[int, set[int]] = {b: set() for b in edges}
    for b, targets in edges.items():
        for header in targets:
            if header > b:
                continue
            todo, seen = [b], {header}
            while todo:
                n = todo.pop()
                if n not in seen and n in dominator:
                    seen.add(n)
                    todo += before[n]
            for n in seen:
                found[n].add(header)
    return {b: frozenset(headers) for b, headers in found.items()}


def _targets(function: Function, i: Instruction) -> Iterable[str]:
    names = {o.name for o in i.operands if isinstance(o, Symbol)}
    listed = {name for table in names & function.tables.keys() for name in function.tables[table]}
    return (names | listed) & function.labels.keys()


def _named(function: Function) -> set[str]:
    """Labels that instructions name."""
    return {name for i in function.body or () for name in _targets(function, i)}


def branches(i: Instruction) -> bool:
    """Whether an instruction is code with branches, or one around it."""
    modifiers = {*i.modifiers}
    if i.opcode == "fence":
        return not modifiers & {"proxy", "mbarrier_init"}
    if i.opcode in FENCES or modifiers & WITH_BRANCHES.get(i.opcode, frozenset()):
        return True
    if i.opcode == "div" and modifiers & INTEGERS:
        return True
    if i.guard is None or i.opcode in ENDS or i.opcode in ARITHMETIC:
        return False
    row = row_of(i.mnemonic)
    return row is None or row.action is not None
