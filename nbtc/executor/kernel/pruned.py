"""A function without what ptxas drops before it fuses: results that nobody needs, and branches to what follows anyway.

A product whose other reader is dropped fuses with the sum that is left, and a block that nothing is left of no longer
parts a product from its sum.  ptxas 12.8, 12.9, 13.0, 13.4 and 13.5 agree in this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import MappingProxyType

from nbtc.executor.kernel.reads import Reads
from nbtc.executor.text.data import Function, Instruction, Symbol


def rebuilt(function: Function, parts: Iterable[Sequence[Instruction]]) -> Function:
    """A function with other instructions for each of its own."""
    found: list[Instruction] = []
    places = []
    for part in parts:
        places.append(len(found))
        found += part
    places.append(len(found))
    labels = MappingProxyType({name: places[at] for name, at in function.labels.items()})
    return function._replace(body=tuple(found) if places[1:] else function.body, labels=labels)


def pruned(reads: Reads) -> Function:
    """A function with fewer instructions, or the same."""
    body, needed = reads.instructions, reads.values.needed
    kept = [[i] if n else [] for i, n in zip(body, needed, strict=True)]
    shorter = _without_empty_branches(rebuilt(reads.function, kept))
    return reads.function if len(shorter.body or ()) == len(body) else shorter


def _without_empty_branches(function: Function) -> Function:
    """Without branches to what comes after them; of several in a row, the last is dropped first."""
    body = function.body or ()
    kept: list[list[Instruction]] = [[i] for i in body]
    after = len(body)  # the next place that is kept
    for at in reversed(range(len(body))):
        i = body[at]
        target = i.operands[0] if i.opcode == "bra" else None
        if isinstance(target, Symbol) and at < function.labels[target.name] <= after:
            kept[at] = []
        else:
            after = at
    return rebuilt(function, kept)
