"""Words that are written in part: the padding of structures, which copies take along, and bit-fields.

A compiler copies a structure by loads and stores of whole words, its padding included, and writes a bit-field by
changing some bits of the word that it is in, which nobody need have written before.  Neither is a use of unwritten
memory.  To know it of every bit, as Valgrind's memcheck does, would make each register's word of shadow memory 32 times
as large; what the function's text shows is enough to tell the two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from nbtc.executor.rows.uses import use_of
from nbtc.executor.text.data import WIDTHS, Address, Immediate, Instruction, Operand, Register, Vector
from nbtc.executor.watch.words import CELL_BYTES

# What bit-fields are put together by, with the operands of which a constant says which bits they are; and what else
# moves them to their place.
INSERTING = {"and": slice(1, 3), "or": slice(1, 3), "lop3": slice(1, 4), "bfi": slice(3, 5), "prmt": slice(3, 4)}
BITWISE = (*INSERTING, "xor", "not", "shl", "shr", "cvt", "mov")
Readers = Mapping[str, Sequence[Instruction]]


class Copy(NamedTuple):
    """A structure's copy: what its loads read from, what its stores write to, and how far the offsets are apart."""

    source: Operand
    target: Operand
    distance: int


def copies(body: Sequence[Instruction], loads: Iterable[Instruction]) -> Mapping[str, Copy]:
    """The registers by which structures are copied, moved or not: several elements from one place to another.

    Of one word alone a copy is as good as a use: that a half of it is padding nothing shows.
    """
    moved: dict[str, list[str]] = defaultdict(list)
    stored: dict[str, list[tuple[Address, int]]] = defaultdict(list)
    for i in body:
        if i.opcode == "mov" and all(isinstance(x, Register) for x in i.operands):
            moved[i.operands[1].name].append(i.operands[0].name)  # type: ignore[union-attr]
        elif i.opcode == "st" and isinstance(i.operands[0], Address):
            for name, at in _elements(i, 1):
                stored[name].append((i.operands[0], at))
    found: dict[str, Copy] = {}
    counts: dict[Copy, int] = defaultdict(int)
    for load in loads:
        source = load.operands[1]
        for name, at in _elements(load, 0) if isinstance(source, Address) else ():
            names = _closure(name, moved)
            for address, to in (place for x in names for place in stored[x]):
                copy = Copy(source.base, address.base, address.offset + to - source.offset - at)  # type: ignore[union-attr]
                counts[copy] += max(1, _bytes(load) // CELL_BYTES)
                found |= dict.fromkeys(names, copy)
    return {name: copy for name, copy in found.items() if counts[copy] > 1}


def _bytes(access: Instruction) -> int:
    """Of one element."""
    return WIDTHS[access.modifiers[-1]] // 8


def _elements(access: Instruction, n: int) -> list[tuple[str, int]]:
    """The registers of a load's or store's operand, each with its first byte."""
    operand = access.operands[n]
    elements = operand.elements if isinstance(operand, Vector) else (operand,)
    return [(x.name, k * _bytes(access)) for k, x in enumerate(elements) if isinstance(x, Register)]


def _closure(name: str, moved: Mapping[str, Sequence[str]]) -> list[str]:
    """A register and those that it is moved to."""
    found = [name]
    for x in found:
        found += [y for y in moved.get(x, ()) if y not in found]
    return found


def insertions(body: Sequence[Instruction], loads: Iterable[Instruction]) -> frozenset[int]:
    """Which of some loads (by `id`) read a word for nothing but to store it again with other bits in a part of it."""
    readers: dict[str, list[Instruction]] = defaultdict(list)
    writers: dict[str, int] = defaultdict(int)
    for i in body:
        use = use_of(i)
        for r in dict.fromkeys(use.reads):
            readers[r.name].append(i)
        for r in use.writes:
            writers[r.name] += 1
    return frozenset(id(i) for i in loads if _is_inserted_into(i, readers, writers))


def _is_inserted_into(load: Instruction, readers: Readers, writers: Mapping[str, int]) -> bool:
    """Whether all that comes of a load are stores to where it read, by way of operations on bits."""
    target, source = load.operands[:2]
    if not (isinstance(target, Register) and isinstance(source, Address)):
        return False
    if isinstance(source.base, Register) and writers[source.base.name] != 1:
        return False
    pending, seen, inserts = [target], {target.name}, False
    while pending:
        register = pending.pop()
        if writers[register.name] != 1 or not readers[register.name]:
            return False
        for i in readers[register.name]:
            if i.opcode == "st":
                same = i.operands == (source, register) and i.modifiers[-1][1:] == load.modifiers[-1][1:]
                if not same or i.guard != load.guard:
                    return False
            elif i.opcode not in BITWISE or i.guard is not None:
                return False
            else:
                by = i.operands[INSERTING.get(i.opcode, slice(0))]
                inserts |= any(isinstance(x, Immediate) for x in by)
                fresh = [r for r in use_of(i).writes if r.name not in seen]
                seen |= {r.name for r in fresh}
                pending += fresh
    return inserts
