"""Contraction: plain products and sums become fused multiply-adds, as ptxas makes them.

The rules are those that an H200's driver was seen to follow (recorded in the contract_* programs): a `mul` fuses with
each `add` or `sub` that reads it if all its readers are such sums, of the same basic block, and none has a rounding
modifier; a `neg` between them moves into the product; .ftz has to agree, .sat may stand on the sum alone; of two
products in one sum the first is fused; a guard may stand on the sum.  A rounding modifier on either, or any other
reader, keeps them two operations.

Divisions with .approx or .full and `rcp.approx` end in a product of their own, by the reciprocal or by what scales it
back: it fuses as any other (golden/contract_quotients.npz: quotients, reciprocals and products before 30 kinds of sums
on an H200).  What the other functions of the unit end with does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from nbtc.executor.kernel.flow import ENDS
from nbtc.executor.kernel.link import Linked
from nbtc.executor.rows.uses import use_of
from nbtc.executor.text.data import Function, Instruction, Operand, Register

SUMS = ("add", "sub")
TYPES = frozenset({"f32", "f64", "f16", "bf16", "f16x2", "bf16x2"})
MODIFIERS = {
    "mul": frozenset({"ftz"}),
    "div": frozenset({"approx", "full", "ftz"}),
    "rcp": frozenset({"approx"}),
    "neg": frozenset({"ftz"}),
    "add": frozenset({"ftz", "sat"}),
    "sub": frozenset({"ftz", "sat"}),
}


# The factors of the product that a quotient or reciprocal ends in, as instructions of their own.
FACTORS = {"div": ("div%dividend", "div%reciprocal"), "rcp": ("rcp%scale", "rcp%scaled")}


class Sum(NamedTuple):
    """A sum that reads a product: its place, which of its operands that is, and the place of a `neg` between them."""

    at: int
    operand: int
    neg: int | None


def contracted(linked: Linked) -> Linked:
    """A kernel and its functions with their products fused."""
    return linked.changed(contract)


def contract(function: Function) -> Function:
    """A function with its products fused."""
    body = function.body or ()
    starts = {0, *function.labels.values(), *(at + 1 for at, i in enumerate(body) if i.opcode in ENDS), len(body)}
    bounds = sorted(s for s in starts if s <= len(body))
    blocks = [_BlockOfProducts(body[a:b]) for a, b in pairwise(bounds)]
    exposed = frozenset().union(*(block.exposed() for block in blocks)) if blocks else frozenset()
    fresh = _fresh()
    found: list[Instruction] = []
    places = {}
    for start, block in zip(bounds, blocks, strict=False):
        places[start] = len(found)
        found += block.fused(exposed, fresh)
    places[len(body)] = len(found)
    labels = MappingProxyType({name: places[at] for name, at in function.labels.items()})
    return function._replace(body=tuple(found), labels=labels)


def _fresh() -> Iterator[str]:
    number = 0
    while True:
        yield f"%contract{number}"
        number += 1


def _plain(i: Instruction) -> str:
    """The type of a product, sum or negation that may take part, else nothing."""
    allowed = MODIFIERS.get(i.opcode)
    if allowed is None or i.modifiers[-1] not in TYPES or (i.guard is not None and i.opcode not in SUMS):
        return ""
    if i.opcode in FACTORS and not {"approx", "full"} & {*i.modifiers}:
        return ""
    return i.modifiers[-1] if allowed.issuperset(i.modifiers[:-1]) else ""


class _BlockOfProducts:
    """A basic block and who reads and writes what in it."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self.instructions = instructions
        uses = [use_of(i) for i in instructions]
        self.writes = [frozenset(r.name for r in u.writes) for u in uses]
        # a guarded write keeps the old value in some lanes: it reads, too
        self.reads = [
            [*(r.name for r in u.reads), *(r.name for r in u.writes if i.guard is not None)]
            for i, u in zip(instructions, uses, strict=True)
        ]

    def _kills(self, at: int, name: str) -> bool:
        return name in self.writes[at] and self.instructions[at].guard is None

    def exposed(self) -> frozenset[str]:
        """Registers whose values from before the block it reads."""
        found: set[str] = set()
        written: set[str] = set()
        for at, i in enumerate(self.instructions):
            found |= {name for name in self.reads[at] if name not in written}
            if i.guard is None:
                written |= self.writes[at]
        return frozenset(found)

    def _readers(self, at: int, exposed: frozenset[str]) -> list[int] | None:
        """Places that read the register `at` writes, once for each time; None if it may be read elsewhere."""
        target = self.instructions[at].operands[0]
        if not isinstance(target, Register):
            return None
        readers: list[int] = []
        for later in range(at + 1, len(self.instructions)):
            readers += [later] * self.reads[later].count(target.name)
            if self._kills(later, target.name):
                return readers
        return None if target.name in exposed else readers

    def _sums(self, mul: int, exposed: frozenset[str]) -> list[Sum] | None:
        """The sums that read a product, none of them twice; None if anything else does."""
        kind, ftz = _plain(self.instructions[mul]), "ftz" in self.instructions[mul].modifiers
        found: list[Sum] = []
        todo: list[tuple[int, int | None]] = [(mul, None)]
        while todo:
            source, neg = todo.pop()
            readers = self._readers(source, exposed)
            if readers is None:
                return None
            for at in readers:
                i = self.instructions[at]
                if _plain(i) != kind or ("ftz" in i.modifiers) != ftz:
                    return None
                if i.opcode == "neg" and neg is None:
                    todo.append((at, at))
                elif i.opcode in SUMS:
                    found.append(Sum(at, i.operands.index(self.instructions[source].operands[0], 1), neg))
                else:
                    return None
        places = [s.at for s in found]
        return found if found and len(set(places)) == len(places) else None

    def _chosen(self, exposed: frozenset[str]) -> dict[int, list[Sum]]:
        """Products that fuse, with their sums: each sum takes its first product, and a product all its sums or none."""
        live = {}
        for at, i in enumerate(self.instructions):
            sums = self._sums(at, exposed) if i.opcode in ("mul", *FACTORS) and _plain(i) else None
            if sums is not None:
                live[at] = sums
        while True:
            first: dict[int, tuple[int, int]] = {}
            for mul, sums in live.items():
                for s in sums:
                    first[s.at] = min(first.get(s.at, (3, mul)), (s.operand, mul))
            lost = [mul for mul, sums in live.items() if any(first[s.at][1] != mul for s in sums)]
            if not lost:
                return live
            for mul in lost:
                del live[mul]

    def fused(self, exposed: frozenset[str], fresh: Iterator[str]) -> list[Instruction]:
        """The block's instructions with its products fused."""
        found: dict[int, list[Instruction]] = {at: [i] for at, i in enumerate(self.instructions)}
        for mul, sums in self._chosen(exposed).items():
            factors, found[mul] = self._kept_factors(mul, max(s.at for s in sums), fresh)
            for s in sums:
                found[s.at] = self._fused_sum(s, factors, fresh)
                if s.neg is not None:
                    found[s.neg] = []
        return [i for at in sorted(found) for i in found[at]]

    def _fused_sum(self, s: Sum, factors: list[Operand], fresh: Iterator[str]) -> list[Instruction]:
        """A sum as a fused multiply-add, after the negations of its operands."""
        total = self.instructions[s.at]
        kind = total.modifiers[-1]
        minus = total.opcode == "sub"
        made: list[Instruction] = []

        def signed(operand: Operand, negative: bool) -> Operand:
            if not negative:
                return operand
            turned = Register(next(fresh), kind)
            made.append(Instruction("neg", (kind,), (turned, operand), total.line, None, total.source))
            return turned

        first = signed(factors[0], (s.neg is not None) != (minus and s.operand == 2))
        addend = signed(total.operands[3 - s.operand], minus and s.operand == 1)
        modifiers = ("rn", *(m for m in total.modifiers if m in ("ftz", "sat")), kind)
        operands = (total.operands[0], first, factors[1], addend)
        return [*made, Instruction("fma", modifiers, operands, total.line, total.guard, total.source)]

    def _kept_factors(self, mul: int, last: int, fresh: Iterator[str]) -> tuple[list[Operand], list[Instruction]]:
        """The factors as sums up to `last` may read them: copied where one is written anew before."""
        product = self.instructions[mul]
        factors: list[Operand] = []
        copies = []
        if product.opcode in FACTORS:
            for opcode, operands in zip(
                FACTORS[product.opcode], (product.operands[1:], product.operands[-1:]), strict=True
            ):
                made = Register(next(fresh), product.modifiers[-1])
                parts = (made, *operands)
                copies.append(Instruction(opcode, product.modifiers, parts, product.line, None, product.source))
                factors.append(made)
            return factors, copies
        for operand in product.operands[1:]:
            if isinstance(operand, Register) and any(operand.name in self.writes[k] for k in range(mul, last)):
                copy = Register(next(fresh), operand.type)
                modifiers = (f"b{operand.bits}",)
                copies.append(Instruction("mov", modifiers, (copy, operand), product.line, None, product.source))
                factors.append(copy)
            else:
                factors.append(operand)
        return factors, copies
