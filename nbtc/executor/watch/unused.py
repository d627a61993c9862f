"""Loads whose values only some lanes use, and of others reach nothing.

A compiler that spreads a small tensor over many threads lets several of them load an element and compute with it, and
one of them store what comes of it: `@%p st.global [a], {x}`, where the predicate is a function of the thread's place.
An `atom` of which nobody reads the result is such a store, too.
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

from nbtc.executor.kernel.flow import graph
from nbtc.executor.rows.uses import CARRY, use_of, waits
from nbtc.executor.text.data import Function, Guard, Immediate, Instruction, Operand, Register, Special
from nbtc.executor.text.operands import registers
from nbtc.executor.watch.joined import chosen

# What a thread is, for as long as it runs.
PLACES = frozenset(f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz")
MOVES, STORES = ("mov", "cvta"), ("st", "red")
EXCHANGES = ("shfl", "redux", "vote", "match")  # among the lanes of a warp
MOST = 8  # stores by which a value may be used; of more, it counts as used by all


class PathOfValue(NamedTuple):
    """One way of a value to where it counts: a store's guard, and whether other lanes of the warp get it before."""

    guard: Guard
    exchanged: bool


Ways = frozenset[PathOfValue] | None  # None: used by every lane
# of the lanes that use a value, and whether any of them stands for the whole warp
Predicates = tuple[tuple[Register, bool], ...]


def prepared(function: Function) -> tuple[Function, dict[int, Predicates]]:
    """A function that begins with what says who uses what, and the loads (by `id`) that not all lanes use."""
    body = function.body or ()
    if not any(i.opcode in (*STORES, "atom") and i.guard is not None for i in body):
        return function, {}
    ways, early = _ways(function), _Early(body)
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
    return _union(ways(target.name) for target in targets)


def _computes(i: Instruction) -> bool:
    """Whether an instruction gives registers values that come of other registers, and does nothing else."""
    row = use_of(i).row
    return row is not None and (row.form is not None or i.opcode in MOVES)


def _results(function: Function) -> dict[int, tuple[Register, ...]]:
    """Of an instruction's `id`: the registers that get values by what it reads, of those that do nothing else.

    Among them are branches whose two ways do no more than that before they meet again, as if these were guarded.
    """
    found = {id(i): use_of(i).writes for i in function.body or () if _computes(i)}
    for branch, skipped in chosen(function, _computes).items():
        found[branch] = tuple(r for i in skipped for r in use_of(i).writes)
    return found


def _numbers_read(function: Function) -> set[tuple[int, str]]:
    """Instructions (`id`) with registers they read that hold a number there: of a `mov` just before, in their block.

    Registers are followed by name.  Compilers begin loops with `mov a, 0; mov b, a;`, and b has nothing of what a gets
    in the loop.
    """
    found = set()
    for block in graph(function, waits).blocks:
        numbers: set[str] = set()
        for i in block.instructions:
            use = use_of(i)
            found |= {(id(i), r.name) for r in use.reads if r.name in numbers}
            numbers -= {r.name for r in use.writes}
            if i.opcode == "mov" and i.guard is None and isinstance(i.operands[1], Immediate):
                numbers |= {r.name for r in use.writes}
    return found


def _ways(function: Function) -> Callable[[str], Ways]:
    """Of each register: the ways by which its values come to count."""
    readers: dict[str, list[Instruction]] = defaultdict(list)
    sources: dict[str, set[str]] = defaultdict(set)  # what instructions read that write a register
    results, numbers = _results(function), _numbers_read(function)
    for i in function.body or ():
        use = use_of(i)
        reads = dict.fromkeys(r.name for r in use.reads if (id(i), r.name) not in numbers)
        for name in reads:
            readers[name].append(i)
        for r in (*use.writes, *results.get(id(i), ())):
            sources[r.name].update(reads)
    found: dict[str, Ways] = {}

    def ways(name: str) -> Ways:
        return found.get(name, frozenset())

    def through(name: str, i: Instruction) -> Ways:
        dropped = not any(r.name in readers for r in use_of(i).writes)
        return _all(ways, results[id(i)]) if id(i) in results else _of_reader(name, i, ways, dropped)

    pending = list(readers)
    while pending:  # they only grow
        name = pending.pop()
        after = _union(through(name, i) for i in readers[name])
        if after != ways(name):
            found[name] = after
            pending += sources[name]
    return ways


def _union(parts: Iterable[Ways]) -> Ways:
    found: frozenset[PathOfValue] = frozenset()
    for more in parts:
        if more is None or len(found | more) > MOST:
            return None
        found |= more
    return found


def _of_reader(name: str, i: Instruction, ways: Callable[[str], Ways], dropped: bool) -> Ways:
    """The ways through an instruction that reads a register, and does more than to compute; its results are dropped."""
    if i.guard is not None and i.guard.register.name == name:
        return None
    if (i.opcode in STORES or (i.opcode == "atom" and dropped)) and i.guard is not None:
        place = (r.name for r in registers(i.operands[0 if i.opcode in STORES else 1]))
        return None if name in place else frozenset({PathOfValue(i.guard, False)})
    if i.opcode in EXCHANGES and name in (r.name for r in registers(i.operands[1])):
        others = any(name in (r.name for r in registers(x)) for x in i.operands[2:])
        passed = _all(ways, use_of(i).writes)
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
        self._values: dict[Instruction, Register] = {}  # of instructions without their results
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
        return self._value(Instruction(opcode, ("pred",), operands, 0), "pred")

    def _copy(self, register: Register) -> Register | None:
        """A register with the value that another will get, if that is a function of the thread's place."""
        if register.name not in self._made:
            self._made[register.name] = None  # of a value that depends on itself
            self._made[register.name] = self._copied(register)
        return self._made[register.name]

    def _copied(self, register: Register) -> Register | None:
        """Several instructions may write it, if all compute the same: compilers repeat what is cheap."""
        writers = {self._instruction(i, register) for i in self._writers[register.name]}
        (found,) = writers if len(writers) == 1 else (None,)
        return None if found is None else self._value(found, register.type)

    def _value(self, computed: Instruction, kind: str) -> Register:
        """The register of what an instruction computes."""
        if computed not in self._values:
            target = self._values[computed] = Register(f"%users{len(self.instructions)}", kind)
            self.instructions.append(computed._replace(operands=(target, *computed.operands)))
        return self._values[computed]

    def _instruction(self, i: Instruction, register: Register) -> Instruction | None:
        """An instruction with the copies of what it reads, without its result and place."""
        use = use_of(i)
        alone = i.operands[0] == register and len(use.writes) == 1 and CARRY not in use.reads
        if not (_computes(i) and alone) or i.guard is not None:
            return None
        operands: list[Operand] = []
        for x in i.operands[1:]:
            y = self._copy(x) if isinstance(x, Register) else x
            if not (isinstance(y, Register | Immediate) or (isinstance(y, Special) and y.name in PLACES)):
                return None
            operands.append(y)
        return Instruction(i.opcode, i.modifiers, tuple(operands), 0)
