"""Which registers an instruction reads and writes, and what its row says about them."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from nbtc.executor import actions, forms
from nbtc.executor.action import Action
from nbtc.executor.data import Group, Instruction, Register, Special, Symbol
from nbtc.executor.form import Form, Op
from nbtc.executor.operands import others, registers

CARRY = Register("%cc", "pred")  # the condition code register, which no operand names


class Row(NamedTuple):
    """An instruction's row: a scalar form with its split name, or an action."""

    form: Form | None
    op: Op
    action: Action | None

    @property
    def results(self) -> int:
        """Leading operands that are written."""
        if self.action is not None:
            return self.action.results
        return 1 if self.form is not None and any(r != "cc" for r in self.form.results) else 0

    @property
    def approx(self) -> str:
        """The error bound of an approximate form, else nothing."""
        return (self.action or self.form).approx  # type: ignore[union-attr]


@cache
def row_of(mnemonic: str) -> Row | None:
    """The row of a mnemonic, or None when nothing implements it."""
    opcode, *modifiers = mnemonic.split(".")
    found = forms.find(mnemonic)
    if found is not None:
        return Row(found[0], found[1], None)
    action = actions.find(opcode, tuple(modifiers))
    return None if action is None else Row(None, Op(opcode, tuple(modifiers)), action)


def waits(instruction: Instruction) -> bool:
    """Whether lanes may have to wait at an instruction."""
    row = row_of(instruction.mnemonic)
    return row is not None and row.action is not None and row.action.waits(instruction)


def refusal(mnemonic: str) -> str:
    """Why a mnemonic has no row."""
    opcode = mnemonic.split(".")[0]
    return actions.refusal(mnemonic) if opcode in actions.by_opcode() else forms.refusal(mnemonic)


class Use(NamedTuple):
    """What an instruction reads and writes."""

    reads: tuple[Register, ...]
    writes: tuple[Register, ...]
    names: tuple[Special | Symbol, ...]
    row: Row | None


def use_of(instruction: Instruction) -> Use:
    """Registers read and written by an instruction, guard and carry included; an unknown one writes nothing."""
    row = row_of(instruction.mnemonic)
    results = row.results if row else 0
    if instruction.opcode == "call" and isinstance(instruction.operands[0], Group):
        results = 1
    targets, sources = instruction.operands[:results], instruction.operands[results:]
    writes = [r for operand in targets for r in registers(operand)]
    reads = [r for operand in sources for r in registers(operand)]
    if instruction.guard is not None:
        reads.append(instruction.guard.register)
    if row and row.form is not None:
        reads += [CARRY] * ("cc" in row.form.sources)
        writes += [CARRY] * ("cc" in row.form.results)
    names = tuple(name for operand in sources for name in others(operand))
    return Use(tuple(reads), tuple(writes), names, row)
