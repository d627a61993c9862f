"""Contraction: plain products and sums become fused multiply-adds, as ptxas makes them.

A `mul` fuses with an `add` or `sub` that reads it if all that reads it are such sums, of the same basic block, and none
has a rounding modifier; .ftz has to agree, .sat may stand on the sum alone, and so may a guard.  Any other reader whose
result is needed (pruned.py) keeps them two operations.  Copies, `neg` and products by 1 and -1 in between are none:
they move into the product, but `neg.bf16x2` doesn't, and packed products by 1 are products.  What is a basic block
there: blocks.py.  Where one negation with .ftz, or product by 1 or -1, alone reads a product, that fuses with the sums
after it in any block, and stays for what else there is.

Of two products in one sum, the one that fewer sums read is fused, of two alike the first.  The other one is read by a
fused multiply-add then, so it fuses with no further sum, while those that took it before keep it.  Sums choose in the
order of the text: f32, f64, f16 and bf16 first all those that can have a product which nothing else reads.

These rules were found with an H200's driver (CUDA 13.0: the recorded contract_* programs) and with ptxas 13.0 for
sm_90a: its machine code for 5,968 programs of `nbtc.testing.sum_programs` was followed value by value, and 5,964 fuse
what is fused here.  (Two of the others have values used far away, as in remade.py; one adds a product to itself, too;
in one ptxas knew that a product by 0 is 0.)  12.8, 12.9, 13.4 and 13.5, for sm_80, sm_90a and sm_100a, agree in the
few hundred that were tried.  The exception is f32x2, which 12.8 and 12.9 never fuse and 13.0 fuses with a rounding
modifier, too; here it is as in 13.4 and 13.5.  No GPU was asked about f32x2.

A product by a constant (written in the text, read from .param or .const) fuses in whatever blocks its readers are:
ptxas makes it again where it is read, since that costs no register.  A product of two constants is a constant.  A value
that is only used far away is made anew there, too, with products of its own: remade.py.

Divisions with .approx or .full and `rcp.approx` end in a product of their own, by the reciprocal or by what scales it
back: it fuses as any other (golden/contract_quotients.npz: quotients, reciprocals and products before 30 kinds of sums
on an H200).  What the other functions of the unit end with does not.  By a constant of the text they are products
like others: inverses.py.

Not modelled is what ptxas makes of loops: one that it unrolls has the sums of a round in the block of the products of
the round before, and where it unrolls all rounds, products from before the loop are in the sums' block, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from nbtc.executor.kernel.extremes import extreme, moved
from nbtc.executor.kernel.inverses import inverted
from nbtc.executor.kernel.link import Linked
from nbtc.executor.kernel.powers import joined
from nbtc.executor.kernel.products import PACKED, PRODUCTS, SUMS, Products, plain
from nbtc.executor.kernel.pruned import pruned, rebuilt
from nbtc.executor.kernel.remade import trees
from nbtc.executor.text.data import WIDTHS, Function, Immediate, Instruction, Operand, Register


class Sum(NamedTuple):
    """A sum that reads a product: its place, which of its operands that is, and whether as its negative."""

    at: int
    operand: int
    negative: bool


class Fusing(NamedTuple):
    """A product that may fuse: its sums, in the order of the text, and the negations and moves between them.

    loose: one .ftz negation alone reads the product, which may stay for what else reads that."""

    sums: list[Sum]
    between: list[int]
    loose: bool


def contracted(linked: Linked) -> Linked:
    """A kernel and its functions with their products fused."""
    return linked.changed(contract)


def contract(function: Function) -> Function:
    """A function with its products fused."""
    if not any(i.opcode in PRODUCTS or extreme(i) for i in function.body or ()):
        return function  # who reads what is not asked for
    body = _ContractedBody(function)
    changed = rebuilt(function, moved(body, inverted(body)))
    if changed.body != function.body:
        body = _ContractedBody(changed)
    if not _has_products(changed):
        return changed
    fresh = _fresh()
    while (shorter := pruned(body)) is not body.function:
        body = _ContractedBody(shorter)
    fused = rebuilt(body.function, body.fused(fresh))
    if _has_products(fused):
        fused = rebuilt(fused, _ContractedBody(fused).remade(fresh))
    return joined(fused, fresh)


def _has_products(function: Function) -> bool:
    """Whether there may be something to fuse."""
    return any(i.opcode in PRODUCTS and plain(i) for i in function.body or ())


def _fresh() -> Iterator[str]:
    number = 0
    while True:
        yield f"%contract{number}"
        number += 1


def _once(i: Instruction, source: Register) -> bool:
    """Whether one operand alone is a register."""
    return i.operands[1:].count(source) == 1


class _ContractedBody(Products):
    """A function's instructions, and which of its products fuse."""

    def _fusing(self, mul: int) -> Fusing | None:
        """The sums that read a product, none of them twice; None if anything else does, unless that is loose."""
        kind, ftz = plain(self.instructions[mul]), "ftz" in self.instructions[mul].modifiers
        sums: list[Sum] = []
        between: list[int] = []
        loose = False
        todo = [(mul, False)]
        while todo:
            source, negative = todo.pop()
            target = self.instructions[source].operands[0]
            if not isinstance(target, Register):
                return None
            readers = self.values.readers.get((source, target.name), ())
            for at in dict.fromkeys(readers):
                i = self.instructions[at]
                turned = self.turned(at, target, kind, ftz)
                here = self.blocks[at] == self.blocks[mul] or ((loose or self.constant(mul)) and self._after(mul, at))
                if here and self.only(source, target, at):
                    if turned is not None and not ("ftz" in i.modifiers and source in between):
                        loose |= source == mul and "ftz" in i.modifiers and len(readers) == 1
                        between.append(at)
                        todo.append((at, negative != turned))
                        continue
                    if plain(i) == kind and i.opcode in SUMS and ("ftz" in i.modifiers) == ftz and _once(i, target):
                        sums.append(Sum(at, i.operands.index(target, 1), negative))
                        continue
                if not loose:
                    return None
        sums.sort()
        return Fusing(sums, between, loose) if sums and len({s.at for s in sums}) == len(sums) else None

    def _chosen(self, found: Mapping[int, Fusing]) -> dict[int, list[Sum]]:
        """The sums that each product fuses with.

        A sum takes the product that fewer sums read, of two alike its first operand.  One that was left over is read by
        a fused multiply-add then, and fuses with no further sum.
        """
        choices: dict[int, list[tuple[int, Sum, int]]] = {}
        for mul, fusing in found.items():
            for s in fusing.sums:
                choices.setdefault(s.at, []).append((1 if fusing.loose else len(fusing.sums), s, mul))
        kept: set[int] = set()
        chosen: dict[int, tuple[int, Sum]] = {}
        # of single numbers, products that one sum reads are fused before all others
        for sole in (True, False):
            for at in sorted(choices):
                packed = plain(self.instructions[at]) in PACKED
                for uses, s, mul in sorted(choices[at]):
                    if at not in chosen and mul not in kept and (packed or sole == (uses == 1)):
                        chosen[at] = mul, s
                        kept |= {other for _, _, other in choices[at] if other != mul}
        taken: dict[int, list[Sum]] = {}
        for mul, s in chosen.values():
            taken.setdefault(mul, []).append(s)
        return taken

    def fused(self, fresh: Iterator[str]) -> Iterator[list[Instruction]]:
        """What stands for each of the instructions once products are fused."""
        found: dict[int, list[Instruction]] = {at: [i] for at, i in enumerate(self.instructions)}
        products = {}
        for at, i in enumerate(self.instructions):
            if i.opcode not in PRODUCTS or not plain(i):
                continue
            fusing = None if self.folded(at) else self._fusing(at)
            if fusing is not None:
                products[at] = fusing
            elif (by_one := self.by_one(at)) is not None and not by_one[0] and "ftz" not in i.modifiers:
                # a move, in which a NaN keeps its bits
                width = f"b{WIDTHS[plain(i)]}"
                found[at] = [i._replace(opcode="mov", modifiers=(width,), operands=(i.operands[0], by_one[1]))]
        for mul, sums in self._chosen(products).items():
            factors, copies = self.kept_factors(mul, [s.at for s in sums], fresh)
            if len(sums) == len(products[mul].sums) and not products[mul].loose:
                found |= {at: [] for at in (mul, *products[mul].between)}
            found[mul] = [*copies, *found[mul]]
            for s in sums:
                found[s.at] = self._fused_sum(s, factors, fresh)
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
            for operand in (1, 2) if self.instructions[at].opcode in SUMS and plain(self.instructions[at]) else ():
                mul = self._product(self.instructions[at], operand)
                if mul not in tree or at in found:
                    continue
                (name,) = self.writes[mul]
                if [r for r in self.readers[name] if r in tree] == [at]:
                    found[at] = Sum(at, operand, False), mul
        return found

    def _anew(self, tree: list[int], sums: Mapping[int, tuple[Sum, int]], fresh: Iterator[str]) -> list[Instruction]:
        """The last instruction of a tree, after copies of those that it needs and in which sums are fused."""
        names: dict[str, Register] = {}
        made: list[Instruction] = []
        for at in tree:
            parts = [self.instructions[at]]
            if at in sums:
                s, mul = sums[at]
                factors, copies = self.kept_factors(mul, [at], fresh)
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
        if i.opcode not in PRODUCTS or plain(i) != plain(total):
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
            negation = Instruction("neg", (kind,), (turned, operand), total.line, None, total.source)
            if kind == "f32x2":  # has no neg
                signs = Immediate(0x8000000080000000)
                negation = negation._replace(opcode="xor", modifiers=("b64",), operands=(turned, operand, signs))
            made.append(negation)
            return turned

        first = signed(factors[0], s.negative != (minus and s.operand == 2))
        addend = signed(total.operands[3 - s.operand], minus and s.operand == 1)
        modifiers = ("rn", *(m for m in total.modifiers if m in ("ftz", "sat")), kind)
        operands = (total.operands[0], first, factors[1], addend)
        return [*made, Instruction("fma", modifiers, operands, total.line, total.guard, total.source)]
