"""Products times a power of two, which ptxas makes one multiplication that rounds once.

A product of f32 that only a product by 1/8, 1/4, 1/2, 2, 4 or 8 reads joins it, in whatever blocks they are.  The first
may have .ftz (.ftz of the second is what counts), but neither a rounding nor .sat nor a guard; the second may have .rn,
.ftz, .sat and a guard.  Copies and negations may be in between, without .ftz if they negate, if the sign is that of the
first product in the end.  Of several in a row those that come first in the text join, and what has joined takes no
further power.  Sums come first: the product of a fused multiply-add joins nothing.  The products in which quotients
with .approx or .full and `rcp.approx` end join, too.

The machine code of ptxas 13.0 for sm_90a, followed in 394 random programs, stores what these do; that of 12.8, 12.9,
13.4 and 13.5 does in the 39 that were tried.  On an H200 such products differ from two roundings, but what .ftz and
.sat make of the one rounding was not asked there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nbtc.executor.kernel.products import PRODUCTS, Products, plain
from nbtc.executor.kernel.pruned import rebuilt
from nbtc.executor.text.data import Function, Immediate, Instruction, Operand, Register

POWERS = frozenset(0x3F800000 + (k << 23) for k in range(-3, 4) if k)
SIGN = 0x80000000
ALLOWED = frozenset({"rn", "ftz", "sat", "f32"})


class Joined(NamedTuple):
    """A product that a power of two joins: its place, that of what is between them, and the power's bits."""

    product: int
    between: list[int]
    power: int


def joined(function: Function, fresh: Iterator[str]) -> Function:
    """A function with its products by powers of two joined with the products that they read."""
    if sum(i.opcode in PRODUCTS and i.modifiers[-1] == "f32" for i in function.body or ()) < 2:
        return function
    return rebuilt(function, _Powers(function).rebuilt(fresh))


class _Powers(Products):
    """A function's instructions, and which products have only a product by a power of two for a reader."""

    def rebuilt(self, fresh: Iterator[str]) -> Iterator[list[Instruction]]:
        """What stands for each instruction."""
        found: dict[int, list[Instruction]] = {at: [i] for at, i in enumerate(self.instructions)}
        done: set[int] = set()
        for at, i in enumerate(self.instructions):
            join = self._joins(at) if i.opcode == "mul" and ALLOWED.issuperset(i.modifiers) else None
            if join is None or join.product in done:
                continue
            factors, copies = self.kept_factors(join.product, [at], fresh)
            found |= {place: [] for place in join.between}
            found[join.product] = copies
            modifiers = tuple(m for m in i.modifiers if m != "rn")
            operands = (i.operands[0], *factors, Immediate(join.power, 32))
            found[at] = [i._replace(opcode="mul%scaled", modifiers=modifiers, operands=operands)]
            done.add(at)
        return iter(found.values())

    def _joins(self, at: int) -> Joined | None:
        """The product that a product by a power of two joins, if it does."""
        operands = self.instructions[at].operands[1:]
        for factor, other in (operands, operands[::-1]):
            bits = self.number(at, factor, "f32")
            if bits is not None and bits & ~SIGN in POWERS:
                return self._product(at, other, bits)
        return None

    def _product(self, at: int, operand: Operand, power: int) -> Joined | None:
        """The product that alone gives an operand its value, and that nothing else reads."""
        between: list[int] = []
        flushed = False
        while isinstance(operand, Register):
            made = self.made(at, operand)
            if made is None or not self.only(made, operand, at) or {*self.values.readers[made, operand.name]} != {at}:
                return None
            i = self.instructions[made]
            if i.opcode in PRODUCTS and plain(i) == "f32" and not self.folded(made):
                wrong = power & SIGN or (flushed and "ftz" not in i.modifiers)
                return None if wrong else Joined(made, between, power)
            between.append(made)
            flushed |= "ftz" in i.modifiers
            sources = [x for x in i.operands[1:] if isinstance(x, Register)]
            turns = [(x, self.turned(made, x, "f32", True)) for x in sources]
            operand, negative = next(((x, t) for x, t in turns if t is not None), (i.operands[0], None))
            if negative is None or (negative and "ftz" in i.modifiers):
                return None
            power ^= SIGN * negative
            at = made
        return None
