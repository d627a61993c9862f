"""Where the registers of a function live: variables of the warp's code, one a register.

Compilers write PTX whose registers are mostly written once and read in the same block.  There a register is the value
that was written (`Registers.read`), and has no variable if nothing else reads it: variables, with their stores and
loads, were a third of a program's text, which LLVM reads to turn them into values again.

Most variables become values too.  Some stay variables, which are read and written where they are: vectors that live
where the warp may be left, accumulators of matrix products, and in long functions all that live in several blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from llvmlite.ir.instructions import StoreInstr

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
        self._known: dict[str, tuple[Any, Any]] = {}  # of this PTX block: the LLVM block that knows it, the value
        self._passed: set[int] = set()  # LLVM blocks that all code from here to this PTX block's end comes after
        self._stores: dict[str, list[tuple[Any, int, Any]]] = {}  # LLVM block, instructions before, value
        self._images: dict[Names, Any] = {}
        self._makers: dict[str, Callable[[], Any]] = {}  # of registers that are made anew for what reads them
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

    # --- values -----------------------------------------------------------------------------------------------------
    def begin(self) -> None:
        """A PTX block begins, which code may enter from anywhere: no register's value is known."""
        self._known.clear()
        self._passed.clear()

    def pass_on(self) -> None:
        """An instruction of a PTX block is about to be emitted: whatever follows in this PTX block comes after here."""
        self._passed.add(id(self.code.b.block))

    def kind(self, register: Register) -> ir.Type:
        """The type of a register's value."""
        word = ir.IntType(register.bits)
        return vector(word, LANES) if register.name in self.facts.varies else word

    def read(self, register: Register) -> Any:
        """A register's value."""
        b = self.code.b
        block, value = self._known.get(register.name, (None, None))
        if block is b.block or id(block) in self._passed:
            return value
        make = self._makers.get(register.name)
        if make is not None:
            value = make()
            self._known[register.name] = b.block, value
            return value
        value = b.load(self.slot(register))
        if register.name not in self._members:
            self._known[register.name] = b.block, value
        return value

    def write(self, register: Register, value: Any) -> None:
        """Give a register a value."""
        b, name = self.code.b, register.name
        if name in self._members:
            b.store(value, self.slot(register))
            return
        self._makers.pop(name, None)
        self._known[name] = b.block, value
        self._stores.setdefault(name, []).append((b.block, len(b.block.instructions), value))

    def made_anew(self, name: str, make: Callable[[], Any]) -> None:
        """Let a register have no variable: from here on `make` emits its value where something reads it."""
        self._known.pop(name, None)
        self._makers[name] = _Made(self.code, make)

    @contextmanager
    def made_here(self, registers: Iterable[Register]) -> Iterator[None]:
        """Code of which all comes after here, and shares those of some registers that are made anew."""
        here = id(self.code.b.block)
        for register in registers:
            if register.name in self._makers:
                self.read(register)
        self._passed.add(here)
        yield
        self._passed.discard(here)

    def maker(self, name: str) -> Callable[[], Any] | None:
        """What emits the value of such a register."""
        return self._makers.get(name)

    def close(self) -> None:
        """Store what was written into registers that have variables, where it was written."""
        found: dict[int, list[tuple[Any, int, Any, Any]]] = {}
        for name, slot in self._slots.items():
            for block, at, value in self._stores.pop(name, ()):
                found.setdefault(id(block), []).append((block, at, value, slot))
        for stores in found.values():
            block = stores[0][0]
            block.instructions[:] = _with_stores(block, sorted(stores, key=lambda store: store[1]))

    # --- variables --------------------------------------------------------------------------------------------------
    def slot(self, register: Register) -> Any:
        """A register's variable."""
        names, n = self._members.get(register.name, ((), 0))
        if names:
            return self.code.b.gep(self._image(names), [ir.Constant(I32, 0), ir.Constant(I32, n)])
        found = self._slots.get(register.name)
        if found is None:
            whose = register.name.partition(" ")[0]  # of a register that is kept otherwise
            new = self.code.kept.variable if whose in self._in_memory else self.code.variable
            found = self._slots[register.name] = new(self.kind(register))
        return found

    def in_image(self, operand: Operand, count: int) -> Names:
        """The names of an operand's registers where so many are kept as an image, else none."""
        names = _names(operand) if isinstance(operand, Vector) and len(operand.elements) == count else ()
        return names if names and self._members.get(names[0], ((), 0)) == (names, 0) else ()

    def image(self, operand: Operand, count: int) -> Any | None:
        """The address of an operand's registers where so many are kept as [register][lane], else None."""
        names = self.in_image(operand, count)
        return self.code.b.bitcast(self._image(names), I8.as_pointer()) if names else None

    def _image(self, names: Names) -> Any:
        found = self._images.get(names)
        if found is None:
            kind = ir.ArrayType(vector(I32, LANES), len(names))
            found = self._images[names] = self.code.kept.variable(kind)
        return found


class _Made:
    """Emits a value, in each LLVM block once."""

    def __init__(self, code: WarpCode, make: Callable[[], Any]) -> None:
        self.code, self.make = code, make
        self.block: Any = None
        self.value: Any = None

    def __call__(self) -> Any:
        if self.block is not self.code.b.block:
            self.value = self.make()
            self.block = self.code.b.block
        return self.value


def _with_stores(block: Any, stores: list[tuple[Any, int, Any, Any]]) -> Iterator[Any]:
    """The instructions of a block with these stores among them."""
    done = 0
    for _, at, value, slot in stores:
        yield from block.instructions[done:at]
        store = StoreInstr(block, value, slot)
        store.align = None  # llvmlite's builder sets it, which inserts at the end alone
        yield store
        done = at
    yield from block.instructions[done:]


def _names(operand: Vector) -> Names:
    """The names of a vector's registers, as far as they are registers of a word."""
    return tuple(r.name for r in operand.elements if isinstance(r, Register) and r.bits == WORD)
