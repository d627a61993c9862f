"""Rows of the instruction tables as inline PTX: the operand lists that a line is checked by also write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llvmlite import ir

from nbtc.dialect import target, words
from nbtc.errors import NbtcError
from nbtc.isa.archs import arch as find_arch
from nbtc.isa.lines import Slot, slots
from nbtc.isa.parse import row as parse
from nbtc.isa.spec import Operand, Row

I1, I32, I64, DOUBLE = ir.IntType(1), ir.IntType(32), ir.IntType(64), ir.DoubleType()


def find(mnemonic: str, family: str, label: str) -> Row:
    """The row of a mnemonic, which must be of a family; refuses otherwise."""
    try:
        row = parse(mnemonic)
    except NbtcError as error:
        words.refuse(f"{label}: {error}")
    if row.family != family:
        words.refuse(f"{label} takes {family} forms; {row.mnemonic} is one of {row.family}")
    return row


def check_arch(row: Row) -> None:
    """Refuse a form that the architecture lacks which is compiled for."""
    arch = find_arch(target.arch())
    if not row.has(arch):
        words.refuse(
            f"{arch.name} has no {row.mnemonic}; it exists on {', '.join(row.archs)}: launch kernel.on(...) one of them"
        )


def register_type(operand: Operand) -> ir.Type:
    """The LLVM type of an operand's registers in PTX text."""
    return DOUBLE if operand.format.bits == 64 else I32


def count(operand: Operand) -> int:
    """Registers of an operand in PTX text: those of f64 have 64 bits."""
    return operand.registers // 2 if operand.format.bits == 64 else operand.registers


def emit(
    builder: Any,
    row: Row,
    results: Mapping[str, Sequence[ir.Type]],
    operands: Mapping[str, Any],
    *,
    memory: bool = False,
    effect: bool = True,
    tied: Sequence[Any] = (),
    space: str = "",
) -> list[Any]:
    """Emit one instruction; returns the values of its results in the order of their operands.

    results: types of the registers of each operand that is written.  operands: for each other one a list of values (of
    a vector), a value (of a register, address or predicate) or an int (an immediate); optional ones may be missing.
    memory, effect, tied: as for `words.inline`.  space: of addresses that are no generic ones (".shared").  Refuses a
    form that the architecture lacks.
    """
    check_arch(row)
    wanted = _list_of(row, results, operands)
    outputs: list[ir.Type] = []
    for slot in wanted:
        for name in (slot.name, slot.pred):
            outputs += results.get(name, ()) if name else ()
    writer = _Writer(len(outputs))
    parts = [text for slot in wanted if (text := writer.operand(slot, results, operands))]
    body = f" {', '.join(parts)}" if parts else ""
    stem, dot, kind = row.mnemonic.rpartition(".")
    text = f"{stem}{space}{dot}{kind}{body};"
    return words.inline(builder, text, outputs, writer.values, effect=effect, memory=memory, tied=tied)


def _list_of(row: Row, results: Mapping[str, Any], operands: Mapping[str, Any]) -> tuple[Slot, ...]:
    """The operand list that has all operands given and needs no others."""
    given = {*results, *operands}
    for syntax in row.syntax:
        found = slots(syntax)
        names = {s.name for s in found} | {s.pred for s in found if s.pred}
        needed = {s.name for s in found if not s.optional}
        if given <= names and needed <= given:
            return found
    raise KeyError(f"{row.mnemonic} has no operand list of {sorted(given)}")


class _Writer:
    """Numbers operands as inline assembly does: outputs, then inputs in the order of the text."""

    def __init__(self, outputs: int) -> None:
        self.outputs, self.written = outputs, 0
        self.values: list[Any] = []

    def operand(self, slot: Slot, results: Mapping[str, Any], operands: Mapping[str, Any]) -> str:
        """The text of one operand, "" where it is left out."""
        if slot.name in results:
            text = self._result(slot, len(results[slot.name]))
        elif slot.name not in operands:
            return ""
        else:
            text = self._given(slot, operands[slot.name])
        if slot.pred and slot.pred in results:
            text += f"|{self._next()}"
        return text

    def _result(self, slot: Slot, size: int) -> str:
        names = ", ".join(self._next() for _ in range(size))
        return f"{{{names}}}" if slot.count else names

    def _next(self) -> str:
        self.written += 1
        return f"${self.written - 1}"

    def _given(self, slot: Slot, value: Any) -> str:
        if slot.count:
            return "{" + ", ".join(self._value(v) for v in value) + "}"
        if slot.pair:
            return "{" + ", ".join(str(v) for v in value) + "}"
        text = str(value) if isinstance(value, int) else self._value(value)
        return f"[{text}]" if slot.address else text

    def _value(self, value: Any) -> str:
        self.values.append(value)
        return f"${self.outputs + len(self.values) - 1}"
