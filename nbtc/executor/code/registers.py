"""Where the registers of a function live: variables of the warp's code, one a register.

Most of them become values.  Some stay variables, which are read and written where they are: vectors that live where the
warp may be left, accumulators of matrix products, and in long functions all that live in several blocks.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I8, I32, vector
from nbtc.executor.code.warp_code import LANES, WarpCode
from nbtc.executor.kernel.flow import Graph
from nbtc.executor.kernel.liveness import live_at
from nbtc.executor.kernel.uniform import FunctionFacts
from nbtc.executor.rows.uses import waits
from nbtc.executor.text.data import Operand, Register, Vector

PRODUCTS = ("mma", "wmma", "wgmma")
WORD = 32  # bits of the registers that images are made of
Names = tuple[str, ...]
# In a function of more blocks than this, registers that live in several of them stay in memory.  Every block can be
# entered from the choice of the next one, so LLVM would join all of their values before each block: 45,000 joins in a
# warp-specialised kernel of 344 blocks and 130 such registers, which its instruction selection takes minutes over.
MANY_BLOCKS = 64


class RegisterVariables:
    """The variables of one function's registers."""

    def __init__(self, code: WarpCode, graph: Graph, facts: FunctionFacts) -> None:
        self.code, self.graph, self.facts = code, graph, facts
        self._slots: dict[str, Any] = {}
        self._images: dict[Names, Any] = {}
        self._members = self._accumulators()
        self._in_memory = self._that_cross_blocks() if graph.end > MANY_BLOCKS else self._that_wait()

    def _accumulators(self) -> dict[str, tuple[Names, int]]:
        """The results of matrix products that are kept as images: of each register, which ones and the place."""
        found: dict[str, tuple[Names, int]] = {}
        for block in self.graph.blocks:
            for instruction in block.instructions:
                target = instruction.operands[0] if instruction.operands else None
                if instruction.opcode not in PRODUCTS or not isinstance(target, Vector):
                    continue
                names = _names(target)
                if len(set(names)) == len(target.elements) and found.keys().isdisjoint(names):
                    found |= {name: (names, n) for n, name in enumerate(names)}
        return found

    def _that_wait(self) -> frozenset[str]:
        """Vectors that are live where the warp may be left: in variables of their own they stay where they are.

        As values LLVM would take all of them out of the coroutine's frame, and put them back, at every such place.
        """
        if not self.code.coroutine:
            return frozenset()
        stops = {b for b, block in enumerate(self.graph.blocks) if any(map(waits, block.instructions[:1]))}
        return live_at(self.graph, stops | self.facts.spins | self.graph.behind_loops()) & self.facts.varies

    def _that_cross_blocks(self) -> frozenset[str]:
        """All that live where a block begins."""
        return live_at(self.graph, range(self.graph.end))

    def slot(self, register: Register) -> Any:
        """A register's variable."""
        names, n = self._members.get(register.name, ((), 0))
        if names:
            return self.code.b.gep(self._image(names), [ir.Constant(I32, 0), ir.Constant(I32, n)])
        found = self._slots.get(register.name)
        if found is None:
            kind: ir.Type = ir.IntType(register.bits)
            if register.name in self.facts.varies:
                kind = vector(kind, LANES)
            found = self._slots[register.name] = self.code.variable(kind)
            if register.name in self._in_memory:
                self.code.keep_in_memory(found)
        return found

    def image(self, operand: Operand, count: int) -> Any | None:
        """The address of an operand's registers where so many are kept as [register][lane], else None."""
        names = _names(operand) if isinstance(operand, Vector) and len(operand.elements) == count else ()
        if not names or self._members.get(names[0], ((), 0)) != (names, 0):
            return None
        return self.code.b.bitcast(self._image(names), I8.as_pointer())

    def _image(self, names: Names) -> Any:
        found = self._images.get(names)
        if found is None:
            found = self._images[names] = self.code.variable(ir.ArrayType(vector(I32, LANES), len(names)))
            self.code.keep_in_memory(found)
        return found


def _names(operand: Vector) -> Names:
    """The names of a vector's registers, as far as they are registers of a word."""
    return tuple(r.name for r in operand.elements if isinstance(r, Register) and r.bits == WORD)
