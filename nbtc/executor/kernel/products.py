"""Products as ptxas sees them before it fuses them: what is one, what only copies or negates one, and its factors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nbtc.executor.kernel.reads import Reads
from nbtc.executor.text.data import Instruction, Operand, Register

SUMS = ("add", "sub")
TYPES = frozenset({"f32", "f64", "f16", "bf16", "f16x2", "bf16x2", "f32x2"})
# 1 and -1 by the type of a product by them, which is no product to ptxas; of packed numbers it is one.
ONES = {
    "f32": (0x3F800000, 0xBF800000),
    "f64": (0x3FF0000000000000, 0xBFF0000000000000),
    "f16": (0x3C00, 0xBC00),
    "bf16": (0x3F80, 0xBF80),
}
# Types and modifiers of minima and maxima that are their operand if that is twice the same.
SAME_EXTREME = frozenset({"f32", "f64", "f16", "ftz"})
PACKED = frozenset({"f16x2", "bf16x2", "f32x2"})
FOLDED = frozenset({"f32", "f64"})  # types whose products of two constants are a constant
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


def plain(i: Instruction) -> str:
    """The type of a product, sum or negation that may take part, else nothing."""
    allowed = MODIFIERS.get(i.opcode)
    if allowed is None or i.modifiers[-1] not in TYPES or (i.guard is not None and i.opcode not in SUMS):
        return ""
    if i.opcode in FACTORS and not {"approx", "full"} & {*i.modifiers}:
        return ""
    return i.modifiers[-1] if allowed.issuperset(i.modifiers[:-1]) else ""


class Products(Reads):
    """A function's instructions, and which of them are products."""

    def turned(self, at: int, target: Register, kind: str, ftz: bool) -> bool | None:
        """Whether an instruction gives a product's negative; None if it gives neither that nor the product itself."""
        i = self.instructions[at]
        if i.guard is not None or ("ftz" in i.modifiers and not ftz):
            return None
        if i.opcode == "mov":
            return False if i.operands[1] == target else None
        if i.opcode == "selp" or (i.opcode in ("min", "max") and {*i.modifiers} <= {"ftz", kind} & SAME_EXTREME):
            return False if i.operands[1] == i.operands[2] == target else None
        if plain(i) != kind:
            return None
        if i.opcode == "neg":
            return True if kind != "bf16x2" else None  # an instruction of its own
        by_one = self.by_one(at)
        return None if by_one is None else by_one[0]

    def by_one(self, at: int) -> tuple[bool, Operand] | None:
        """Whether a product by 1 or -1 is by -1, and the other factor; None of other products."""
        i = self.instructions[at]
        kind = plain(i)
        if i.opcode != "mul" or kind not in ONES:
            return None
        for one, other in (i.operands[1:], i.operands[:0:-1]):
            bits = self.number(at, one, kind)
            if bits in ONES[kind]:
                return bits == ONES[kind][1], other
        return None

    def folded(self, at: int) -> bool:
        """Whether ptxas has no product there: one factor is 1 or -1, or both are constants."""
        i = self.instructions[at]
        if self.by_one(at) is not None:
            return True
        return i.opcode == "mul" and plain(i) in FOLDED and all(self.computed(at, x) for x in i.operands[1:])

    def only(self, source: int, target: Register, at: int) -> bool:
        """Whether a reader gets this value in any case, and by an operand."""
        i = self.instructions[at]
        if target not in i.operands[1:] or (i.guard is not None and target.name in self.writes[at]):
            return False
        return self.values.sources[at][target.name] == {source}

    def kept_factors(
        self, mul: int, readers: Sequence[int], fresh: Iterator[str]
    ) -> tuple[list[Operand], list[Instruction]]:
        """The factors as its readers may read them: copied where one may be written anew before."""
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
            if isinstance(operand, Register) and self._written(operand.name, mul, readers):
                copy = Register(next(fresh), operand.type)
                modifiers = (f"b{operand.bits}",)
                copies.append(Instruction("mov", modifiers, (copy, operand), product.line, None, product.source))
                factors.append(copy)
            else:
                factors.append(operand)
        return factors, copies

    def _written(self, name: str, mul: int, readers: Sequence[int]) -> bool:
        """Whether a register may be written between a product and one of its readers."""
        if any(self.blocks[at] != self.blocks[mul] for at in readers):
            return True
        return any(name in self.writes[k] for k in range(mul, max(readers)))
