"""Which operands an instruction takes if its row is not a scalar form: rows of data/signatures.csv, and fragments."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from nbtc.executor.rows.patterns import PatternTable
from nbtc.executor.text.data import WIDTHS, Immediate, Instruction, Register
from nbtc.executor.text.matrix_names import isa_row, without_space
from nbtc.isa import spec


class OperandKind(NamedTuple):
    """What one operand may be: a type or one of "A", "D", "L", "M", "n", "x", "_" (see data/signatures.csv).

    wider: a register may have more bits.  elements: of a vector, 0 where a single register stands; of an address: its
    coordinates.  braces: one register may stand in `{ }`.  sink: it may be `_`; sink_beside: it may beside a second
    result.  symbol: the name of a variable may stand for its address.  second: the type of a second result after a
    `|`.  values: those that a constant may have, none for any.
    """

    type: str
    wider: bool = False
    elements: int = 0
    braces: bool = False
    sink: bool = False
    sink_beside: bool = False
    symbol: bool = False
    second: str = ""
    values: tuple[int, ...] = ()


@cache
def _rows(table: str, column: str) -> PatternTable[str]:
    """A column of a table in data/, by the pattern of the names that it is for."""
    text = files("nbtc").joinpath(f"data/{table}.csv").read_text(encoding="ascii")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return PatternTable((row["pattern"], row[column]) for row in csv.DictReader(lines))


@cache
def conflict(mnemonic: str) -> str:
    """The rule that modifiers of a name break together, or nothing.

    >>> conflict("prefetch.const.L1")
    '.const and .param are for .tensormap; L1 and L2 take .global or .local'
    """
    return next(_rows("conflicts", "rule").matching(mnemonic), "")


class CountRange(NamedTuple):
    """What a constant may be in place of an operand: low to high, a multiple of step, or with step 0 a power of two.

    constant: no register may stand there.
    """

    operand: int
    low: int
    high: int
    step: int
    constant: bool

    def has(self, value: int) -> bool:
        """Whether a constant is one of them."""
        fits = value % self.step == 0 if self.step else value.bit_count() == 1
        return fits and self.low <= value <= self.high

    def __str__(self) -> str:
        if self.low == self.high:
            return str(self.low)
        bounds = (
            f"{self.low} to {self.high}"
            if self.high < UNBOUNDED
            else f"{self.low} or more"
            if self.low > -UNBOUNDED
            else ""
        )
        steps = f"a multiple of {self.step}" if self.step > 1 else "" if self.step else "a power of two"
        return " and ".join(filter(None, (bounds, steps)))


UNBOUNDED = 1 << 63


@cache
def _all_ranges() -> PatternTable[CountRange]:
    text = files("nbtc").joinpath("data/constant_ranges.csv").read_text(encoding="ascii")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return PatternTable(
        (
            row["pattern"],
            CountRange(
                int(row["operand"]),
                int(row["low"] or -UNBOUNDED),
                int(row["high"] or UNBOUNDED),
                int(row["step"] or 1),
                row["constant"] == "yes",
            ),
        )
        for row in rows
    )


@cache
def _ranges(mnemonic: str) -> tuple[CountRange, ...]:
    """The ranges of an instruction's constants."""
    return tuple(_all_ranges().matching(mnemonic))


def out_of_range(i: Instruction) -> str:
    """The constant of an instruction that is outside its range, or nothing."""
    for rule in _ranges(i.mnemonic):
        if rule.operand >= len(i.operands):
            continue
        operand = i.operands[rule.operand]
        if isinstance(operand, Immediate) and not operand.float_bits and not rule.has(operand.value):
            return f"operand {rule.operand} is {operand.value}, and a constant there is {rule}"
        if isinstance(operand, Register) and rule.constant:
            return f"{operand.name} is a register, and this operand is a constant"
    return ""


@cache
def signatures(mnemonic: str) -> tuple[tuple[OperandKind, ...], ...]:
    """The lists of operands that an instruction may have; none where nothing is known of them.

    >>> [len(s) for s in signatures("bar.sync")]
    [1, 2]
    >>> signatures("ld.global.v4.f32")[0][0] == OperandKind("f32", wider=True, elements=4, braces=True)
    True
    """
    modifiers = mnemonic.split(".")[1:]
    operands = next(_rows("signatures", "operands").matching(mnemonic), None)
    if operands is None:
        return _fragments(mnemonic)
    return tuple(tuple(_kind(word, modifiers) for word in s.split()) for s in operands.split("/"))


def _kind(word: str, modifiers: list[str]) -> OperandKind:
    """One word of a row, for an instruction with these modifiers."""
    if word[0] == "n":
        return OperandKind("n", values=tuple(map(int, word[1:].split("|"))) if word[1:] else ())
    if word == "A@":
        coordinates = next((int(m[0]) for m in modifiers if re.fullmatch("[1-5]d", m)), 0)
        return OperandKind(
            "A", elements=5 if any(m.endswith(("gather4", "scatter4")) for m in modifiers) else coordinates
        )
    if ":" in word or "#" in word:
        name, times, fixed = re.fullmatch(r"(\w+)(?:#(\d)|:(\d))", word).groups()  # type: ignore[union-attr]
        count = next((int(m[1:]) for m in modifiers if re.fullmatch(r"x\d+", m)), 1)
        return OperandKind(name, elements=int(fixed) if fixed else count * int(times))
    first, _, second = word.partition("|")
    plain = first.strip("~*_&") or "_"
    types = [m for m in modifiers if m in WIDTHS]
    vector = [int(m[1:]) for m in modifiers if re.fullmatch("v[248]", m)]
    count = vector[0] if "*" in first and vector else 0
    kind = (types[-1] if types else "x") if plain == "T" else plain
    vector_of_one = "*" in first and first[0] == "~"
    return OperandKind(kind, "~" in first, count, vector_of_one, "_" in first, False, "&" in first, second)


def _fragments(mnemonic: str) -> tuple[tuple[OperandKind, ...], ...]:
    """Operands of the instructions on matrices, as their rows say."""
    row = isa_row(without_space(mnemonic)[0])
    if row is None or row.scale or row.family.startswith("tcgen05"):
        return ()
    if row.family.startswith("wgmma"):
        return tuple(tuple(_of_warpgroup(word, row) for word in line.split()) for line in row.syntax)
    a, b, c, d = (_fragment(o) for o in (row.a, row.b, row.c, row.d))
    address, stride, word = OperandKind("A"), OperandKind("u32"), OperandKind("b32")
    if row.family == "ldmatrix":
        return _lists([d, address])
    if row.family == "stmatrix":
        return _lists([address, a or d])
    if row.family == "wmma.load":
        held = next(o for o in (d, a, b, c) if o is not None)
        return _lists([held, address], [held, address, stride])
    if row.family == "wmma.store":
        held = next(o for o in (d, a, b, c) if o is not None)
        return _lists([address, held], [address, held, stride])
    return _lists([d, a, b, c, *([word, OperandKind("n")] if row.sparse else [])])


def _of_warpgroup(word: str, row: spec.Row) -> OperandKind:
    """An operand of wgmma.mma_async, as its row's syntax has it: fragments, descriptors, a predicate, constants."""
    name, _, values = word.partition("=")
    if values:
        return OperandKind("n", values=tuple(map(int, values.split(","))))
    fragments = {"d": row.d, "a": row.a}
    held = _fragment(fragments.get(name.split("{")[0]))
    return held or OperandKind("b64" if name.startswith("desc") else "pred" if name.endswith("!") else "b32")


def _lists(*found: Iterable[OperandKind | None]) -> tuple[tuple[OperandKind, ...], ...]:
    every = [tuple(kinds) for kinds in found]
    return tuple(tuple(k for k in kinds if k is not None) for kinds in every if None not in kinds)


def _fragment(operand: spec.Operand | None) -> OperandKind | None:
    """A fragment's registers: of .f32 for 32-bit floats, of .f64, else .b32 with elements side by side."""
    if operand is None:
        return None
    name = operand.format.name
    if name == "f64":
        return OperandKind("f64", elements=operand.registers // 2)
    return OperandKind("f32" if name == "f32" else "b32", elements=operand.registers)
