"""Loads whose values only some lanes use, and of others reach nothing.

A compiler that spreads a small tensor over many threads lets several of them load an element and compute with it, and
one of them store what comes of it: `@%p st.global [a], {x}`, where the predicate is a function of the thread's place.
What the others have loaded is dropped.  They may see the old value or what the first one has stored in its place
already, with the same results, so their loads are no accesses that anything has to be ordered with.

Which lanes those are depends on the program's text and on the thread's place alone, and not on what happens to run
first.  To follow each value through the registers while the program runs would find more, but only of what ran in the
order that was seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType
from typing import NamedTuple

from nbtc.executor.rows.uses import CARRY, use_of
from nbtc.executor.text.data import Function, Guard, Immediate, Instruction, Operand, Register, Special
from nbtc.executor.text.operands import registers

# What a thread is, for as long as it runs.
PLACES = frozenset(f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz")
MOVES, EXCHANGES, STORES = ("mov", "cvta"), ("shfl",), ("st", "red")
MOST = 8  # stores by which a value may be used; of more, it counts as used by all


class Way(NamedTuple):
    """One way of a value to where it counts: a store's guard, and whether other lanes of the warp get it before."""

    guard: Guard
    exchanged: bool


Ways = frozenset[Way] | None  # None: used by every lane
# of the lanes that use a value, and whether any of them stands for the whole warp
Predicates = tuple[tuple[Register, bool], ...]


def prepared(function: Function) -> tuple[Function, dict[int, Predicates]]:
    """A function that begins with what says who uses what, and the loads (by `id`) that not all lanes use."""
    body = function.body or ()
    if not any(i.opcode in STORES and i.guard is not None for i in body):
        return function, {}
    ways, early = _ways(body), _Early(body)
    users = {}
    for i in body:
        if i.opcode == "ld":
            found = _all(ways, use_of(i).writes)
            by = [(early.bound(way.guard), way.exchanged) for way in found or ()]
            if by and all(p is not None for p, _ in by):
                users[id(i)] = tuple(dict.fromkeys((p, exchanged) for p, exchanged in by if p is not None))
    first = tuple(early.instructions)
    labels = MappingProxyType({name: at + len(first) for name, at in function.labels.items()})
    return (function._replace(body=first + body, labels=labels), users) if users else (function, {})


def _all(ways: Callable[[str], Ways], targets: Iterable[Register]) -> Ways:
    found: frozenset[Way] = frozenset()
    for target in targets:
        more = ways(target.name)
        if more is None or len(found | more) > MOST:
            return None
        found |= more
    return found


def _ways(body: Sequence[Instruction]) -> Callable[[str], Ways]:
    """Of each register: the ways by which its values come to count."""
    readers: dict[str, list[Instruction]] = defaultdict(list)
    sources: dict[str, set[str]] = defaultdict(set)  # what instructions read that write a register
    for i in body:
        use = use_of(i)
        for r in dict.fromkeys(use.reads):
            readers[r.name].append(i)
        for r in use.writes:
            sources[r.name].update(x.name for x in use.reads)
    found: dict[str, Ways] = {}

    def ways(name: str) -> Ways:
        return found.get(name, frozenset())

    pending = list(readers)
    while pending:  # they only grow
        name = pending.pop()
        before, after = ways(name), _of_readers(name, readers[name], ways)
        if after != before:
            found[name] = after
            pending += sources[name]
    return ways


def _of_readers(name: str, readers: Iterable[Instruction], ways: Callable[[str], Ways]) -> Ways:
    found: frozenset[Way] = frozenset()
    for i in readers:
        more = _of_reader(name, i, ways)
        if more is None or len(found | more) > MOST:
            return None
        found |= more
    return found


def _of_reader(name: str, i: Instruction, ways: Callable[[str], Ways]) -> Ways:
    """The ways through one instruction that reads a register."""
    use = use_of(i)
    if i.guard is not None and i.guard.register.name == name:
        return None
    if i.opcode in STORES and i.guard is not None:
        place = (r.name for r in registers(i.operands[0]))
        return None if name in place else frozenset({Way(i.guard, False)})
    if use.row is not None and (use.row.form is not None or i.opcode in MOVES):
        return _all(ways, use.writes)
    if i.opcode in EXCHANGES and name in (r.name for r in registers(i.operands[1])):
        others = any(name in (r.name for r in registers(x)) for x in i.operands[2:])
        passed = _all(ways, use.writes)
        return None if others or passed is None else frozenset(w._replace(exchanged=True) for w in passed)
    return None


class _Early:
    """Computes at a function's beginning what depends on a thread's place alone, in registers of its own."""

    def __init__(self, body: Sequence[Instruction]) -> None:
        self.instructions: list[Instruction] = []
        self._writers: dict[str, list[Instruction]] = defaultdict(list)
        for i in body:
            for r in use_of(i).writes:
                self._writers[r.name].append(i)
        self._made: dict[str, Register | None] = {}
        self._bounds: dict[Guard, Register | None] = {}

    def bound(self, guard: Guard) -> Register | None:
        """A predicate that holds wherever a guard does; None where nothing is known of it."""
        if guard not in self._bounds:
            self._bounds[guard] = self._bound(guard)
        return self._bounds[guard]

    def _bound(self, guard: Guard) -> Register | None:
        exact = self._copy(guard.register)
        if exact is not None:
            return self._predicate("not", exact) if guard.negated else exact
        writers = self._writers[guard.register.name]
        if guard.negated or len(writers) != 1 or writers[0].mnemonic != "and.pred" or writers[0].guard is not None:
            return None
        parts = [self.bound(Guard(x, False)) if isinstance(x, Register) else None for x in writers[0].operands[1:]]
        known = [p for p in parts if p is not None]
        return self._predicate("and", *known) if len(known) > 1 else known[0] if known else None

    def _predicate(self, opcode: str, *operands: Register) -> Register:
        target = Register(f"%users{len(self.instructions)}", "pred")
        self.instructions.append(Instruction(opcode, ("pred",), (target, *operands), 0))
        return target

    def _copy(self, register: Register) -> Register | None:
        """A register with the value that another will get, if that is a function of the thread's place."""
        if register.name not in self._made:
            self._made[register.name] = None  # of a value that depends on itself
            self._made[register.name] = self._copied(register)
        return self._made[register.name]

    def _copied(self, register: Register) -> Register | None:
        writers = self._writers[register.name]
        if len(writers) != 1:
            return None
        i, use = writers[0], use_of(writers[0])
        computes = use.row is not None and (use.row.form is not None or i.opcode == "mov")
        alone = i.operands[0] == register and len(use.writes) == 1 and CARRY not in use.reads
        if not computes or i.guard is not None or not alone:
            return None
        operands: list[Operand] = []
        for x in i.operands[1:]:
            y = self._copy(x) if isinstance(x, Register) else x
            if not (isinstance(y, Register | Immediate) or (isinstance(y, Special) and y.name in PLACES)):
                return None
            operands.append(y)
        target = Register(f"%users{len(self.instructions)}", register.type)
        self.instructions.append(i._replace(operands=(target, *operands)))
        return target
