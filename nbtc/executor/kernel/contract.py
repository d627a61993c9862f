"""Contraction: plain products and sums become fused multiply-adds, as ptxas makes them.

The rules are those that an H200's driver was seen to follow (recorded in the contract_* programs): a `mul` fuses with
each `add` or `sub` that reads it if all its readers are such sums, of the same basic block, and none has a rounding
modifier; a `neg` between them moves into the product; .ftz has to agree, .sat may stand on the sum alone; of two
products in one sum the first is fused; a guard may stand on the sum.  A rounding modifier on either, or any other
reader, keeps them two operations.  What is a basic block there: blocks.py.

A product by a constant (written in the text, read from .param or .const) fuses in whatever blocks its readers are:
ptxas makes it again where it is read, since that costs no register.  A value that is only used far away is made anew
there, too, with products of its own: remade.py.

Divisions with .approx or .full and `rcp.approx` end in a product of their own, by the reciprocal or by what scales it
back: it fuses as any other (golden/contract_quotients.npz: quotients, reciprocals and products before 30 kinds of sums
on an H200).  What the other functions of the unit end with does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from nbtc.executor.kernel.link import Linked
from nbtc.executor.kernel.reads import Reads
from nbtc.executor.kernel.remade import trees
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
PRODUCTS = frozenset({"mul", *FACTORS})


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
    if not any(i.opcode in PRODUCTS and _plain(i) for i in function.body or ()):
        return function  # who reads what is not asked for
    fresh = _fresh()
    for fused in (_ContractedBody.fused, _ContractedBody.remade):
        function = _rebuilt(function, fused(_ContractedBody(function), fresh))
    return function


def _rebuilt(function: Function, parts: Iterable[list[Instruction]]) -> Function:
    """A function with other instructions for each of its own."""
    found: list[Instruction] = []
    places = []
    for part in parts:
        places.append(len(found))
        found += part
    places.append(len(found))
    labels = MappingProxyType({name: places[at] for name, at in function.labels.items()})
    return function._replace(body=tuple(found) if places[1:] else function.body, labels=labels)


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


class _ContractedBody(Reads):
    """A function's instructions, and which of its products fuse."""

    def _sums(self, mul: int) -> list[Sum] | None:
        """The sums that read a product, none of them twice; None if anything else does."""
        anywhere = self.constant(mul)
        kind, ftz = _plain(self.instructions[mul]), "ftz" in self.instructions[mul].modifiers
        found: list[Sum] = []
        todo: list[tuple[int, int | None]] = [(mul, None)]
        while todo:
            source, neg = todo.pop()
            readers = self.readers_of(source, anywhere)
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

    def _chosen(self) -> dict[int, list[Sum]]:
        """Products that fuse, with their sums: each sum takes its first product, and a product all its sums or none."""
        live = {}
        for at, i in enumerate(self.instructions):
            sums = self._sums(at) if i.opcode in PRODUCTS and _plain(i) else None
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

    def fused(self, fresh: Iterator[str]) -> Iterator[list[Instruction]]:
        """What stands for each of the instructions once products are fused."""
        found: dict[int, list[Instruction]] = {at: [i] for at, i in enumerate(self.instructions)}
        for mul, sums in self._chosen().items():
            factors, found[mul] = self._kept_factors(mul, sums, fresh)
            for s in sums:
                found[s.at] = self._fused_sum(s, factors, fresh)
                if s.neg is not None:
                    found[s.neg] = []
        return iter(found.values())

    def remade(self, fresh: Iterator[str]) -> Iterator[list[Instruction]]:
        """What stands for each once values that are computed anew have products of their own, which fuse."""
        found: dict[int, list[Instruction]] = {at: [i] for at, i in enumerate(self.instructions)}
        for root, tree in trees(self):
            sums = self._sole_sums(tree)
            if sums:
                found[root] = self._anew(tree, sums, fresh)
        return iter(found.values())

    def _sole_sums(self, tree: list[int]) -> dict[int, tuple[Sum, int]]:
        """The sums among some instructions that are a product's only reader there, with the product."""
        found: dict[int, tuple[Sum, int]] = {}
        for at in tree:
            for operand in (1, 2) if self.instructions[at].opcode in SUMS and _plain(self.instructions[at]) else ():
                mul = self._product(self.instructions[at], operand)
                if mul not in tree or at in found:
                    continue
                (name,) = self.writes[mul]
                if [r for r in self.readers[name] if r in tree] == [at]:
                    found[at] = Sum(at, operand, None), mul
        return found

    def _anew(self, tree: list[int], sums: Mapping[int, tuple[Sum, int]], fresh: Iterator[str]) -> list[Instruction]:
        """The last instruction of a tree, after copies of those that it needs and in which sums are fused."""
        names: dict[str, Register] = {}
        made: list[Instruction] = []
        for at in tree:
            parts = [self.instructions[at]]
            if at in sums:
                s, mul = sums[at]
                factors, copies = self._kept_factors(mul, [s], fresh)
                parts = [*copies, *self._fused_sum(s, factors, fresh)]
            elif not names.keys() & {*self.reads[at]}:
                continue
            for i in parts:
                sources = (names.get(o.name, o) if isinstance(o, Register) else o for o in i.operands[1:])
                made.append(i._replace(operands=(i.operands[0], *sources)))
            target = made[-1].operands[0]
            if at != tree[-1] and isinstance(target, Register):
                names[target.name] = Register(next(fresh), target.type)
                made[-1] = made[-1]._replace(operands=(names[target.name], *made[-1].operands[1:]))
        return made or [self.instructions[tree[-1]]]

    def _product(self, total: Instruction, operand: int) -> int | None:
        """The product that alone gives a sum's operand its value."""
        factor = total.operands[operand]
        writers = self.writers.get(factor.name, []) if isinstance(factor, Register) else []
        if len(writers) != 1:
            return None
        i = self.instructions[writers[0]]
        if i.opcode not in PRODUCTS or _plain(i) != _plain(total):
            return None
        return writers[0] if ("ftz" in i.modifiers) == ("ftz" in total.modifiers) else None

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

    def _kept_factors(
        self, mul: int, sums: Sequence[Sum], fresh: Iterator[str]
    ) -> tuple[list[Operand], list[Instruction]]:
        """The factors as the sums may read them: copied where one may be written anew before."""
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
            if isinstance(operand, Register) and self._written(operand.name, mul, sums):
                copy = Register(next(fresh), operand.type)
                modifiers = (f"b{operand.bits}",)
                copies.append(Instruction("mov", modifiers, (copy, operand), product.line, None, product.source))
                factors.append(copy)
            else:
                factors.append(operand)
        return factors, copies

    def _written(self, name: str, mul: int, sums: Sequence[Sum]) -> bool:
        """Whether a register may be written between a product and one of its sums."""
        if any(self.blocks[s.at] != self.blocks[mul] for s in sums):
            return True
        return any(name in self.writes[k] for k in range(mul, max(s.at for s in sums)))
