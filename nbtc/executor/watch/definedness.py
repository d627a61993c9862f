"""Words of shared memory that nobody wrote: a load may read them, what counts is where their values are used.

A load of 16 bytes reads more than a program needs, and compilers load first and choose then.  So a plain load only
notes for which lanes a register's word was unwritten, scalar instructions pass that on, and the first instruction for
which the value counts reports it: one that stores it, goes by it, addresses memory with it.

Kernels whose last tile sticks out of a matrix load the rows outside too, multiply, and store the rows inside (or what
comes of masked columns).  So `mma` passes on what it reads by rows and columns, and what comes of such products may be
stored in shared memory, whose bytes count as unwritten then.

A branch that only chooses what is computed is like `selp`: what its two ways compute before they meet counts as coming
of what it goes by.  Attention kernels divide by a row's sum unless that is 0, rows outside of the matrix included.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I1, I32, I64
from nbtc.executor.code.registers import MANY_BLOCKS
from nbtc.executor.emit.action import FormRow
from nbtc.executor.emit.lanes import Lanes, is_vector
from nbtc.executor.rows.uses import use_of
from nbtc.executor.text.data import Function, Instruction, Register
from nbtc.executor.text.operands import registers
from nbtc.executor.watch import fragments, partial, words
from nbtc.executor.watch.joined import chosen

PASSING = ("mov", "cvta", "isspacep")  # what moves or computes registers and is not a scalar form
NONE, ALL = ir.Constant(I32, 0), ir.Constant(I32, -1)


def is_deferred(instruction: Instruction) -> bool:
    """Whether a load leaves it to those that use its registers."""
    if instruction.opcode == "ldmatrix":
        return True
    plain = instruction.opcode == "ld" and not {"volatile", "relaxed", "acquire"} & set(instruction.modifiers)
    return plain and not {"global", "param", "local", "const"} & {m.split("::")[0] for m in instruction.modifiers}


def _computes(instruction: Instruction) -> bool:
    """Whether an instruction does nothing but give registers values that come of other registers."""
    row = use_of(instruction).row
    return row is not None and (row.form is not None or instruction.opcode in PASSING)


def _passes(instruction: Instruction, numbers: Mapping[str, int]) -> bool:
    """Whether it is known which of its results come of what it reads, and it does nothing else."""
    return _computes(instruction) or fragments.passes(instruction, numbers)


Choices = Mapping[int, Sequence[Instruction]]  # `joined.chosen` of a function


def reached(function: Function, choices: Choices, begin: Callable[[Instruction], bool] = is_deferred) -> frozenset[str]:
    """Names of the registers that values of such loads may come to; or those of other instructions."""
    body, numbers = function.body or (), fragments.numbers(function)
    found = {r.name for i in body if begin(i) for r in use_of(i).writes}
    passing = [(use_of(i).reads, use_of(i).writes) for i in body if _passes(i, numbers)]
    passing += [(use_of(i).reads, written(choices[id(i)])) for i in body if id(i) in choices]
    changed = bool(found)
    while changed:
        before = len(found)
        for reads, writes in passing:
            if any(r.name in found for r in reads):
                found |= {r.name for r in writes}
        changed = len(found) != before
    return frozenset(found)


def written(instructions: Iterable[Instruction]) -> tuple[Register, ...]:
    """The registers that some instructions write."""
    return tuple(dict.fromkeys(r for i in instructions for r in use_of(i).writes))


def guards(function: Function, choices: Choices) -> frozenset[str]:
    """Names of the predicates that instructions go by, and of the numbers that branches choose by.

    Without those of branches that only choose what is computed.
    """
    body = function.body or ()
    numbers = (r.name for i in body if i.opcode == "brx" for r in use_of(i).reads)
    guarded = (i.guard.register.name for i in body if i.guard is not None and id(i) not in choices)
    return frozenset((*numbers, *guarded))


class Definedness:
    """Of a function's registers: which lanes' values come of unwritten words."""

    def __init__(self, function: Function) -> None:
        choices = chosen(function, _computes)
        self.reached, self.guards = reached(function, choices), guards(function, choices)
        self.numbers = fragments.numbers(function)
        products = reached(function, choices, lambda i: i.opcode == "mma" and fragments.passes(i, self.numbers))
        self.products = self.reached & products  # values that count once they leave the block
        body = function.body or ()
        loads = [i for i in body if is_deferred(i) and i.opcode == "ld"]
        self.copies, self.insertions = partial.copies(body, loads), partial.insertions(body, loads)
        copied = ((r.name, i) for i in reversed(loads) for r in use_of(i).writes if r.name in self.copies)
        self.firsts = {self.copies[name]: i for name, i in copied}  # the load that each copy begins with
        going = {id(i) for i in body if i.guard is not None and i.guard.register.name in self.reached}
        self.choices = {branch: skipped for branch, skipped in choices.items() if branch in going}
        self.choosers: dict[int, list[int]] = defaultdict(list)  # of an instruction's `id`: branches that choose it
        for branch, instructions in self.choices.items():
            for i in instructions:
                self.choosers[id(i)].append(branch)
        self._masks: dict[str | int | partial.Copy, Any] = {}

    def _mask(self, lanes: Lanes, name: str | int | partial.Copy) -> Any:
        """The variable of a register's lanes; of a copy's, those for which nothing that it loaded yet was written.

        Of a branch's `id`, those that took it by a predicate which comes of unwritten words.
        """
        found = self._masks.get(name)
        if found is None:
            code = lanes.frame.code
            new = code.kept.variable if lanes.frame.graph.end > MANY_BLOCKS else code.variable
            found = self._masks[name] = new(I32)
        return found

    def of(self, lanes: Lanes, registers: Iterable[Register]) -> Any:
        """The lanes of any of some registers, among the active ones; None if none of them ever has any."""
        return self._any(lanes, [lanes.b.load(self._mask(lanes, name)) for name in self._known(registers)])

    def stored(self, lanes: Lanes, registers: Iterable[Register]) -> Any:
        """As `of`, of the registers that a store reads: what copies structures counts where nothing was written."""
        b, masks = lanes.b, []
        for name in self._known(registers):
            mask, copy = b.load(self._mask(lanes, name)), self.copies.get(name)
            masks.append(mask if copy is None else b.and_(mask, b.load(self._mask(lanes, copy))))
        return self._any(lanes, masks)

    def kept(self, lanes: Lanes) -> list[tuple[int, Any]]:
        """Of what a store to shared memory writes: numbers of elements of products, with the lanes that have none."""
        if lanes.op.opcode != "st" or not _is_shared(lanes.instruction):
            return []
        names = [getattr(x, "name", None) for x in lanes.elements(lanes.operands[1])]
        masks = [(n, self._mask(lanes, name)) for n, name in enumerate(names) if name in self.products]
        return [(n, lanes.b.and_(lanes.b.load(mask), lanes.active)) for n, mask in masks]

    def _counting(self, instruction: Instruction) -> Sequence[Register]:
        """The registers whose values count in a store."""
        if not _is_shared(instruction):
            return use_of(instruction).reads
        values = registers(instruction.operands[1])
        other = (*registers(instruction.operands[0]), *((instruction.guard.register,) if instruction.guard else ()))
        return (*other, *(r for r in values if r.name not in self.products))

    def _known(self, registers: Iterable[Register]) -> list[str]:
        return list(dict.fromkeys(r.name for r in registers if r.name in self.reached))

    def _any(self, lanes: Lanes, masks: list[Any]) -> Any:
        return lanes.b.and_(reduce(lanes.b.or_, masks), lanes.active) if masks else None

    def put(self, lanes: Lanes, register: Any, mask: Any) -> None:
        """A register gets a new value in the active lanes, unwritten in those of a mask."""
        if isinstance(register, Register) and register.name in self.reached:
            self._set(lanes, self._mask(lanes, register.name), mask)

    def _choose(self, lanes: Lanes) -> Any:
        """At a branch that only chooses what is computed: all of that comes of what it goes by; lanes to report."""
        branch = id(lanes.instruction)
        mask = self._operand(lanes, lanes.instruction.guard)
        self._set(lanes, self._mask(lanes, branch), mask)
        targets = [r for r in written(self.choices[branch]) if r.name in self.reached]
        for register in targets:
            slot = self._mask(lanes, register.name)
            lanes.b.store(lanes.b.or_(lanes.b.load(slot), mask), slot)
        return mask if any(r.name in self.guards for r in targets) else None

    def _set(self, lanes: Lanes, slot: Any, mask: Any) -> None:
        others = lanes.b.and_(lanes.b.load(slot), lanes.b.not_(lanes.active))
        lanes.b.store(lanes.b.or_(others, lanes.b.and_(mask, lanes.active)), slot)

    def carry(self, lanes: Lanes, row: FormRow) -> Any:
        """Before an instruction: pass on what it reads to what it writes; lanes for which the values count, or None."""
        use = use_of(lanes.instruction)
        if not self.reached:
            return None
        if id(lanes.instruction) in self.choices:
            return self._choose(lanes)
        if fragments.passes(lanes.instruction, self.numbers):
            self._fragments(lanes)
            return None
        if lanes.instruction.opcode == "st":
            mine = self.stored(lanes, self._counting(lanes.instruction))
        else:
            mine = self.of(lanes, use.reads)
        if not _computes(lanes.instruction):
            for register in use.writes:
                self.put(lanes, register, NONE)
            return mine
        choosers = [lanes.b.load(self._mask(lanes, branch)) for branch in self.choosers.get(id(lanes.instruction), ())]
        mask = reduce(lanes.b.or_, choosers, NONE if mine is None else self._result(lanes, row, mine))
        for register in use.writes:
            self.put(lanes, register, mask)
        known = mine is None and not choosers
        return None if known or not any(r.name in self.guards for r in use.writes) else lanes.b.and_(mask, lanes.active)

    def _result(self, lanes: Lanes, row: FormRow, mine: Any) -> Any:
        """The lanes of a scalar instruction's result."""
        name, b = row.op.opcode, lanes.b
        if name == "selp":
            chosen = truth(lanes, lanes.operands[3])
            first, second, by = (self._operand(lanes, x) for x in lanes.operands[1:4])
            return b.or_(b.or_(b.and_(first, chosen), b.and_(second, b.not_(chosen))), by)
        if name in ("and", "or") and row.op.has("pred"):
            for x in lanes.operands[1:3]:  # one that decides by itself
                decides = truth(lanes, x) if name == "or" else b.not_(truth(lanes, x))
                mine = b.and_(mine, b.not_(b.and_(decides, b.not_(self._operand(lanes, x)))))
        return mine

    def _operand(self, lanes: Lanes, operand: Any) -> Any:
        register = getattr(operand, "register", operand)
        found = self.of(lanes, [register]) if isinstance(register, Register) else None
        return NONE if found is None else found

    def _fragments(self, lanes: Lanes) -> None:
        """Pass on what an instruction reads by way of fragments."""
        masks = fragments.Masks(lanes.b)
        operands: tuple[Any, ...] = lanes.operands
        if lanes.instruction.opcode == "shfl":
            by = fragments.number(lanes.instruction.operands[2], self.numbers)
            found = [masks.exchanged(self._operand(lanes, operands[1]), by or 0), NONE]
        else:
            a, b, c = ([self._operand(lanes, x) for x in lanes.elements(y)] for y in operands[1:])
            found = masks.product(a, b, c)
        for target, mask in zip(fragments.results(lanes.instruction), found, strict=False):
            self.put(lanes, target, mask)

    def rows(self, lanes: Lanes, record: Any) -> None:
        """As `loaded`, of ldmatrix: eight lanes each look at the rows of one matrix, which all lanes get parts of."""
        v, b = lanes.v, lanes.b
        places = (words.UNWRITTEN_LANES + words.WORD * n for n in range(words.MOST_WORDS))
        found = [b.trunc(v.load(record, I64, 8, place), I32) for place in places]
        masks = fragments.Masks(b)
        some = b.select(b.icmp_unsigned("!=", masks.any(found), NONE), ALL, NONE)
        for n, target in enumerate(lanes.elements(lanes.operands[0])):
            if lanes.op.has("m8n8"):
                eight = [b.and_(b.lshr(x, ir.Constant(I32, 8 * n)), ir.Constant(I32, 0xFF)) for x in found]
                some = masks.matrix(eight, lanes.op.has("trans"))
            if isinstance(target, Register):
                b.store(some, self._mask(lanes, target.name))  # the whole warp executes it

    def loaded(self, lanes: Lanes, record: Any, each: int) -> None:
        """Behind the look at a deferred load, whose elements have so many bytes: its registers' lanes."""
        b, targets = lanes.b, lanes.elements(lanes.operands[0])
        if id(lanes.instruction) in self.insertions:
            for target in targets:
                self.put(lanes, target, NONE)
            return
        parts = b.trunc(lanes.v.load(record, I64, 8, words.PARTLY_WRITTEN), I32)
        whole = ALL
        for n, target in enumerate(targets):
            at = words.UNWRITTEN_LANES + words.WORD * (n * each // words.CELL_BYTES)
            mask = NONE
            for word in range(max(1, each // words.CELL_BYTES)):
                mask = b.or_(mask, b.trunc(lanes.v.load(record, I64, 8, at + words.WORD * word), I32))
            self.put(lanes, target, mask)
            whole = b.and_(whole, mask)
        names = (r.name for r in use_of(lanes.instruction).writes)
        for copy in dict.fromkeys(self.copies[name] for name in names if name in self.copies):
            before = ALL if self.firsts[copy] is lanes.instruction else b.load(self._mask(lanes, copy))
            self._set(lanes, self._mask(lanes, copy), b.and_(before, b.and_(whole, b.not_(parts))))


def _is_shared(instruction: Instruction) -> bool:
    return "shared" in {m.split("::")[0] for m in instruction.modifiers}


def truth(lanes: Lanes, operand: Any) -> Any:
    """The lanes in which a predicate holds."""
    value = lanes.read(operand, "pred")
    if is_vector(value):
        return lanes.mask(value)
    return lanes.b.select(value if value.type == I1 else lanes.b.trunc(value, I1), ALL, NONE)
