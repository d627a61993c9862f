"""Who writes and reads the registers of a function, and in which of its blocks."""

from __future__ import annotations

from collections.abc import Iterable
from struct import pack, unpack

from nbtc.executor.kernel.blocks import blocks_of
from nbtc.executor.kernel.values import BEFORE, RegisterValues
from nbtc.executor.rows.uses import use_of
from nbtc.executor.text.data import Function, Immediate, Operand, Register

# What ptxas computes itself where all operands are constants: not a fused multiply-add, nor a rounded reciprocal.
COMPUTED = frozenset({"mov", "neg", "abs", "add", "sub", "mul", "min", "max", "cvt"})
CONSTANT_SPACES = frozenset({"param", "const"})


class Reads:
    """A function's instructions and who reads and writes what among them."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.instructions = function.body or ()
        self.flow = blocks_of(function)
        self.blocks = self.flow.number
        uses = [use_of(i) for i in self.instructions]
        self.writes = [frozenset(r.name for r in u.writes) for u in uses]
        results = [v.name for v in function.prototype.results if v.space == "reg"]  # of the function, for its caller
        # a guarded write keeps the old value in some lanes, and wgmma adds to its results: they read, too
        self.reads = [
            [
                *(r.name for r in u.reads),
                *(r.name for r in u.writes if i.guard is not None or i.opcode == "wgmma"),
                *(results if i.opcode == "ret" else ()),
            ]
            for i, u in zip(self.instructions, uses, strict=True)
        ]
        self.writers = _places(self.writes)
        self.readers = _places(self.reads)
        self.values = RegisterValues(self.instructions, self.flow, self.reads, self.writes, self.writers)

    def _after(self, at: int, later: int) -> bool:
        """Whether every way to an instruction passes another in its own block before it, or in an earlier block."""
        a, b = self.blocks[at], self.blocks[later]
        return at < later if a == b else self.flow.dominates(a, b)

    def number(self, at: int, operand: Operand, kind: str) -> int | None:
        """The bits of the constant of the text that an operand of a type has at an instruction; None of others."""
        if isinstance(operand, Immediate):
            if kind == "f32" and operand.float_bits == 64:  # written without a prefix
                (value,) = unpack("<d", pack("<Q", operand.value))
                return int.from_bytes(pack("<f", value), "little")
            return operand.value
        made = self.made(at, operand)
        if made is None or self.instructions[made].opcode != "mov":
            return None
        return self.number(made, self.instructions[made].operands[1], kind)

    def computed(self, at: int, operand: Operand) -> bool:
        """Whether an operand is computed from constants of the text alone, by what ptxas computes itself."""
        if isinstance(operand, Immediate):
            return True
        made = self.made(at, operand)
        if made is None or self.instructions[made].opcode not in COMPUTED:
            return False
        return all(self.computed(made, x) for x in self.instructions[made].operands[1:])

    def constant(self, at: int) -> bool:
        """Whether one of a product's factors is a constant."""
        product = self.instructions[at]
        operands = product.operands[1:] if product.opcode == "mul" else product.operands[2:]
        return any(self.fixed(at, x) for x in operands)

    def fixed(self, at: int, operand: Operand) -> bool:
        """Whether an operand is a constant, of the text or of the launch."""
        if isinstance(operand, Immediate):
            return True
        place = self.made(at, operand)
        if place is None:
            return False
        made = self.instructions[place]
        if made.opcode == "mov":
            return self.fixed(place, made.operands[-1])
        return made.opcode == "ld" and not CONSTANT_SPACES.isdisjoint(made.modifiers)

    def made(self, at: int, operand: Operand) -> int | None:
        """The place that alone gives a register the value it has at an instruction, which reads or writes it."""
        if not isinstance(operand, Register):
            return None
        places = self.values.sources[at].get(operand.name, ())
        made = next(iter(places)) if len(places) == 1 else BEFORE
        return None if made == BEFORE or self.instructions[made].guard is not None else made


def _places(names: Iterable[Iterable[str]]) -> dict[str, list[int]]:
    """Where each name is listed, once for each time."""
    found: dict[str, list[int]] = {}
    for at, listed in enumerate(names):
        for name in listed:
            found.setdefault(name, []).append(at)
    return found
