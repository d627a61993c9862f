"""Who writes and reads the registers of a function, and in which of its blocks."""

from __future__ import annotations

from collections.abc import Iterable

from nbtc.executor.kernel.blocks import blocks_of
from nbtc.executor.rows.uses import use_of
from nbtc.executor.text.data import Function, Immediate, Operand, Register

CONSTANT_SPACES = frozenset({"param", "const"})


class Reads:
    """A function's instructions and who reads and writes what among them."""

    def __init__(self, function: Function) -> None:
        self.instructions = function.body or ()
        self.flow = blocks_of(function)
        self.blocks = self.flow.number
        uses = [use_of(i) for i in self.instructions]
        self.writes = [frozenset(r.name for r in u.writes) for u in uses]
        # a guarded write keeps the old value in some lanes: it reads, too
        self.reads = [
            [*(r.name for r in u.reads), *(r.name for r in u.writes if i.guard is not None)]
            for i, u in zip(self.instructions, uses, strict=True)
        ]
        self.writers = _places(self.writes)
        self.readers = _places(self.reads)
        self.exposed = self._exposed()

    def _kills(self, at: int, name: str) -> bool:
        return name in self.writes[at] and self.instructions[at].guard is None

    def _exposed(self) -> frozenset[str]:
        """Registers whose values from before a block are read in it."""
        found: set[str] = set()
        written: set[str] = set()
        for at, i in enumerate(self.instructions):
            if at and self.blocks[at] != self.blocks[at - 1]:
                written = set()
            found |= {name for name in self.reads[at] if name not in written}
            if i.guard is None:
                written |= self.writes[at]
        return frozenset(found)

    def readers_of(self, at: int, anywhere: bool) -> list[int] | None:
        """Places that read the register `at` writes, once for each time; None if others than those looked at may.

        anywhere: look at the whole function, not only at the block.
        """
        target = self.instructions[at].operands[0]
        if not isinstance(target, Register):
            return None
        if anywhere and self.writers[target.name] == [at]:
            found = self.readers.get(target.name, [])
            if all(self._after(at, reader) for reader in found):
                return found
        readers: list[int] = []
        for later in range(at + 1, len(self.instructions)):
            if self.blocks[later] != self.blocks[at]:
                break
            readers += [later] * self.reads[later].count(target.name)
            if self._kills(later, target.name):
                return readers
        return None if target.name in self.exposed else readers

    def _after(self, at: int, later: int) -> bool:
        """Whether every way to an instruction passes another in its own block before it, or in an earlier block."""
        a, b = self.blocks[at], self.blocks[later]
        return at < later if a == b else self.flow.dominates(a, b)

    def constant(self, at: int) -> bool:
        """Whether one of a product's factors is a constant."""
        product = self.instructions[at]
        operands = product.operands[1:] if product.opcode == "mul" else product.operands[2:]
        return any(map(self.fixed, operands))

    def fixed(self, operand: Operand) -> bool:
        if isinstance(operand, Immediate):
            return True
        if not isinstance(operand, Register) or len(self.writers.get(operand.name, ())) != 1:
            return False
        made = self.instructions[self.writers[operand.name][0]]
        if made.guard is not None:
            return False
        if made.opcode == "mov":
            return self.fixed(made.operands[-1])
        return made.opcode == "ld" and not CONSTANT_SPACES.isdisjoint(made.modifiers)


def _places(names: Iterable[Iterable[str]]) -> dict[str, list[int]]:
    """Where each name is listed, once for each time."""
    found: dict[str, list[int]] = {}
    for at, listed in enumerate(names):
        for name in listed:
            found.setdefault(name, []).append(at)
    return found
