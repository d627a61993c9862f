"""Words of shared memory that nobody wrote: a load may read them, what counts is where their values are used.

A load of 16 bytes reads more than a program needs, and compilers load first and choose then.  So a plain load only
notes for which lanes a register's word was unwritten, scalar instructions pass that on, and the first instruction for
which the value counts reports it: one that stores it, goes by it, addresses memory with it, multiplies matrices of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I1, I32, I64
from nbtc.executor.code.registers import MANY_BLOCKS
from nbtc.executor.emit.action import Row
from nbtc.executor.emit.lanes import Lanes, is_vector
from nbtc.executor.rows.uses import use_of
from nbtc.executor.text.data import Function, Instruction, Register
from nbtc.executor.watch import partial, words

PASSING = ("mov", "cvta", "isspacep")  # what moves or computes registers and is no scalar form
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


def reached(function: Function) -> frozenset[str]:
    """Names of the registers that values of such loads may come to by way of scalar instructions."""
    body = function.body or ()
    found = {r.name for i in body if is_deferred(i) for r in use_of(i).writes}
    passing = [use_of(i) for i in body if _computes(i)]
    changed = bool(found)
    while changed:
        before = len(found)
        for use in passing:
            if any(r.name in found for r in use.reads):
                found |= {r.name for r in use.writes}
        changed = len(found) != before
    return frozenset(found)


def guards(function: Function) -> frozenset[str]:
    """Names of the predicates that instructions go by, and of the numbers that branches choose by."""
    body = function.body or ()
    chosen = (r.name for i in body if i.opcode == "brx" for r in use_of(i).reads)
    return frozenset((*chosen, *(i.guard.register.name for i in body if i.guard is not None)))


class Definedness:
    """Of a function's registers: which lanes' values come of unwritten words."""

    def __init__(self, function: Function) -> None:
        self.reached, self.guards = reached(function), guards(function)
        body = function.body or ()
        loads = [i for i in body if is_deferred(i) and i.opcode == "ld"]
        self.copies, self.insertions = partial.copies(body, loads), partial.insertions(body, loads)
        copied = ((r.name, i) for i in reversed(loads) for r in use_of(i).writes if r.name in self.copies)
        self.firsts = {self.copies[name]: i for name, i in copied}  # the load that each copy begins with
        self._masks: dict[str | partial.Copy, Any] = {}

    def _mask(self, lanes: Lanes, name: str | partial.Copy) -> Any:
        """The variable of a register's lanes; of a copy's, those for which nothing that it loaded yet was written."""
        found = self._masks.get(name)
        if found is None:
            code = lanes.frame.code
            found = self._masks[name] = code.variable(I32)
            if lanes.frame.graph.end > MANY_BLOCKS:
                code.keep_in_memory(found)
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

    def _known(self, registers: Iterable[Register]) -> list[str]:
        return list(dict.fromkeys(r.name for r in registers if r.name in self.reached))

    def _any(self, lanes: Lanes, masks: list[Any]) -> Any:
        return lanes.b.and_(reduce(lanes.b.or_, masks), lanes.active) if masks else None

    def put(self, lanes: Lanes, register: Any, mask: Any) -> None:
        """A register gets a new value in the active lanes, unwritten in those of a mask."""
        if isinstance(register, Register) and register.name in self.reached:
            self._set(lanes, self._mask(lanes, register.name), mask)

    def _set(self, lanes: Lanes, slot: Any, mask: Any) -> None:
        others = lanes.b.and_(lanes.b.load(slot), lanes.b.not_(lanes.active))
        lanes.b.store(lanes.b.or_(others, lanes.b.and_(mask, lanes.active)), slot)

    def carry(self, lanes: Lanes, row: Row) -> Any:
        """Before an instruction: pass on what it reads to what it writes; lanes for which the values count, or None."""
        use = use_of(lanes.instruction)
        if not self.reached:
            return None
        mine = (self.stored if lanes.instruction.opcode == "st" else self.of)(lanes, use.reads)
        if not _computes(lanes.instruction):
            for register in use.writes:
                self.put(lanes, register, NONE)
            return mine
        mask = NONE if mine is None else self._result(lanes, row, mine)
        for register in use.writes:
            self.put(lanes, register, mask)
        return mask if mine is not None and any(r.name in self.guards for r in use.writes) else None

    def _result(self, lanes: Lanes, row: Row, mine: Any) -> Any:
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

    def rows(self, lanes: Lanes, record: Any) -> None:
        """As `loaded`, of ldmatrix: eight lanes each look at the rows of one matrix, which all lanes get parts of."""
        v, b = lanes.v, lanes.b
        found = NONE
        for n in range(words.MOST_WORDS):
            place = words.UNWRITTEN_LANES + words.WORD * n
            found = b.or_(found, b.trunc(v.load(record, I64, 8, place), I32))
        targets = lanes.elements(lanes.operands[0])
        for n, target in enumerate(targets):
            eight = ir.Constant(I32, 0xFF << 8 * n) if lanes.op.has("m8n8") else ALL
            some = b.icmp_unsigned("!=", b.and_(found, eight), NONE)
            if isinstance(target, Register):
                b.store(b.select(some, ALL, NONE), self._mask(lanes, target.name))  # the whole warp executes it

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


def truth(lanes: Lanes, operand: Any) -> Any:
    """The lanes in which a predicate holds."""
    value = lanes.read(operand, "pred")
    if is_vector(value):
        return lanes.mask(value)
    return lanes.b.select(value if value.type == I1 else lanes.b.trunc(value, I1), ALL, NONE)
