"""What is the same in all lanes of a warp, and where lanes may have diverged.

A register varies when an instruction that writes it may give lanes different values, or when lanes may execute the
write at different times and see each other's later value.  A block is divergent when only some of the lanes that have
not ended may be in it.  Both depend on each other: the least solution is found by repetition.

A loop spins when what ends it may be another thread's doing.  Its lanes take turns with those that have left it, so
everything after such a loop is divergent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from nbtc.executor.emit.specials import VARYING_SPECIALS
from nbtc.executor.kernel.flow import Graph
from nbtc.executor.kernel.liveness import live_at
from nbtc.executor.rows.uses import RegisterUse, use_of, waits
from nbtc.executor.text.data import Address, Function, Instruction, Register, Special, Symbol


class FunctionFacts(NamedTuple):
    """What is known about one function.

    varies: names of registers held as vectors.  divergent: blocks where lanes may be missing that have not ended.
    spins: headers of loops that wait for other threads.  private: varying registers whose other lanes nobody reads
    while a block writes them, so that a write need not keep them.
    """

    varies: frozenset[str]
    divergent: frozenset[int]
    spins: frozenset[int]
    private: frozenset[str]


class _Places(NamedTuple):
    defs: Mapping[str, list[tuple[int, int]]]
    reads: Mapping[str, list[tuple[int, int]]]


class FunctionSetting(NamedTuple):
    """What a function's facts depend on besides itself.

    shared: special registers that all lanes share although they name a thread's place (`%tid.y` in wide blocks).
    recursive: it may be entered again before it has returned.  yielding: its calls may let lanes take turns.
    """

    shared: frozenset[str] = frozenset()
    recursive: bool = False
    yielding: bool = False


def facts(function: Function, graph: Graph, setting: FunctionSetting) -> FunctionFacts:
    """The facts of a function.  Lanes may come at different times into any but a kernel."""
    return _Analysis(function, graph, setting).solve()


class _Analysis:
    def __init__(self, function: Function, graph: Graph, setting: FunctionSetting) -> None:
        self.function, self.graph, self.setting = function, graph, setting
        self.uses = [[use_of(i) for i in block.instructions] for block in graph.blocks]
        self.places = self._find_places()
        self.crossing = live_at(graph, range(graph.end))  # registers whose values a block may have from another
        self.parameters = {v.name for v in function.variables if v.space == "param"}  # of calls: each lane has its own
        if not function.entry:
            self.parameters |= {v.name for v in (*function.prototype.results, *function.prototype.arguments)}
        self.own = {v.name for v in function.variables if v.space == "local"}
        self.regions = {b: graph.region(b) for b, block in enumerate(graph.blocks) if len(block.targets) > 1}
        self.spins = self._spinning()

    def _find_places(self) -> _Places:
        defs: dict[str, list[tuple[int, int]]] = {}
        reads: dict[str, list[tuple[int, int]]] = {}
        for b, uses in enumerate(self.uses):
            for i, use in enumerate(uses):
                for register in use.reads:
                    reads.setdefault(register.name, []).append((b, i))
                for register in use.writes:
                    defs.setdefault(register.name, []).append((b, i))
        return _Places(defs, reads)

    def solve(self) -> FunctionFacts:
        strict = not (self.setting.recursive or self.setting.yielding)
        varies, divergent = self._fixpoint(strict)
        waiting = {b for b in divergent if self._waits(b)}
        turns = {h for h in self.spins if not divergent.isdisjoint(self._members(h))} | self._left_divergent(varies)
        if strict and not waiting and not turns:
            return FunctionFacts(
                frozenset(varies), frozenset(divergent), frozenset(self.spins), self._private(varies, True)
            )
        varies, divergent = self._fixpoint(strict=False)
        return FunctionFacts(
            frozenset(varies), frozenset(divergent), frozenset(self.spins), self._private(varies, False)
        )

    # --- divergence ------------------------------------------------------------------------------------------------
    def _fixpoint(self, strict: bool) -> tuple[set[str], set[int]]:
        varies = {v.name for v in (*self.function.prototype.results, *self.function.prototype.arguments)}
        divergent = set() if self.function.entry else set(range(self.graph.end))
        once = self._once(strict)
        while True:
            before = len(varies), len(divergent)
            for b in range(self.graph.end):
                self._spread(b, varies, divergent, once)
                self._branch(b, varies, divergent, strict)
            if (len(varies), len(divergent)) == before:
                return varies, divergent

    def _spread(self, b: int, varies: set[str], divergent: set[int], once: set[str]) -> None:
        """What a block's instructions make varying."""
        for instruction, use in zip(self.graph.blocks[b].instructions, self.uses[b], strict=True):
            if not use.writes:
                continue
            mixed = self._mixes(instruction, use, varies)
            for register in use.writes:
                if mixed or (b in divergent and register.name not in once):
                    varies.add(register.name)

    def _mixes(self, instruction: Instruction, use: RegisterUse, varies: set[str]) -> bool:
        """Whether an instruction's results may differ between lanes."""
        if any(register.name in varies for register in use.reads):
            return True
        if any(self._name_varies(name) for name in use.names):
            return True
        if use.row is not None and use.row.action is not None and use.row.action.varying(instruction):
            return True
        return bool(use.row is None)

    def _name_varies(self, name: Special | Symbol) -> bool:
        if isinstance(name, Special):
            return name.name in VARYING_SPECIALS and name.name not in self.setting.shared
        return name.name in self.parameters or (self.setting.recursive and name.name in self.own)

    def _branch(self, b: int, varies: set[str], divergent: set[int], strict: bool) -> None:
        """Where lanes diverge at a block's end."""
        if b in self.regions and self._divides(b, varies):
            region, meet = set(self.regions[b]), self.graph.post_dominator[b]
            while region and meet < self.graph.end and max(region) > meet:  # no order in which they surely meet
                region |= {meet}
                region |= self.graph.region(meet)
                meet = self.graph.post_dominator[meet]
            divergent |= region
        if self.setting.yielding and any(i.opcode == "call" for i in self.graph.blocks[b].instructions):
            divergent |= self._behind(b)
        if not strict and b in divergent and self._waits(b):
            divergent |= self._behind(b)
        if not strict:
            for header in self.graph.loops(b):
                if header in self.spins and (b in divergent or self._divides(b, varies)):
                    divergent |= self._behind(header)

    def _divides(self, b: int, varies: set[str]) -> bool:
        """Whether the lanes of a block may leave it by different ways."""
        last = self.graph.blocks[b].instructions[-1] if self.graph.blocks[b].instructions else None
        if last is None or (last.guard is None and last.opcode != "brx"):
            return False
        return any(register.name in varies for register in self.uses[b][-1].reads)

    def _waits(self, b: int) -> bool:
        return any(map(waits, self.graph.blocks[b].instructions[:1]))

    def _behind(self, b: int) -> set[int]:
        """Blocks that can be reached from b, itself included if it is in a loop or divergent."""
        seen: set[int] = set()
        todo = list(self.graph.blocks[b].targets)
        while todo:
            t = todo.pop()
            if t not in seen:
                seen.add(t)
                todo.extend(self.graph.blocks[t].targets)
        return seen

    # --- loops ------------------------------------------------------------------------------------------------------
    def _members(self, header: int) -> set[int]:
        return {b for b in range(self.graph.end) if header in self.graph.loops(b)}

    def _left_divergent(self, varies: set[str]) -> set[int]:
        """Spinning loops that lanes may leave at different times."""
        return {h for h in self.spins if any(self._divides(b, varies) for b in self._members(h))}

    def _spinning(self) -> set[int]:
        """Headers of loops whose end depends on what other threads write."""
        touched: set[str] = set()
        control: set[int] = set()
        while True:
            before = len(touched), len(control)
            for b, uses in enumerate(self.uses):
                for instruction, use in zip(self.graph.blocks[b].instructions, uses, strict=True):
                    if b in control or self._remote(b, instruction, use) or any(r.name in touched for r in use.reads):
                        touched.update(r.name for r in use.writes)
                if b in self.regions and self._divides(b, touched):
                    control |= self.regions[b]
            if (len(touched), len(control)) == before:
                break
        return {
            header
            for b, block in enumerate(self.graph.blocks)
            if self._divides(b, touched)
            for header in self.graph.loops(b)
            if block.leaves or any(header not in self.graph.loops(t) for t in block.targets)
        }

    def _remote(self, b: int, instruction: Instruction, use: RegisterUse) -> bool:
        """Whether an instruction reads what other threads may change: atomics and the like, or a load in a loop
        whose address stays the same."""
        if use.row is None or use.row.action is None:
            return False
        if use.row.action.remote(instruction):
            return True
        if instruction.opcode != "ld" or instruction.modifiers[0] in ("param", "const", "local"):
            return False
        base = instruction.operands[-1].base if isinstance(instruction.operands[-1], Address) else None
        loops = self.graph.loops(b)
        if not loops or "nc" in instruction.modifiers:
            return False
        if not isinstance(base, Register):
            return True
        return not any(loops[0] in self.graph.loops(d) for d, _ in self.places.defs.get(base.name, ()))

    # --- registers whose other lanes don't matter ---------------------------------------------------------------------
    def _once(self, strict: bool) -> set[str]:
        """Registers that each turn of a block writes before it reads them: what lanes elsewhere hold is never read.

        Those whose values never leave the block that writes them, and those written once where every read comes later
        in the same turn of the innermost loop; the latter only if lanes don't take turns (`strict`).
        """
        found = self.places.defs.keys() - self.crossing
        if strict:
            found |= {name for name in self.crossing if self._written_first(name)}
        return found

    def _written_first(self, name: str) -> bool:
        defs, reads = self.places.defs.get(name, []), self.places.reads.get(name, [])
        if len(defs) != 1 or self.graph.blocks[defs[0][0]].instructions[defs[0][1]].guard is not None:
            return False
        b, i = defs[0]
        inner = self.graph.loop[b]
        for rb, ri in reads:
            if rb == b:
                if ri <= i:
                    return False
            elif not self.graph.dominates(b, rb) or (inner >= 0 and inner not in self.graph.loops(rb)):
                return False
        return True

    def _private(self, varies: set[str], strict: bool) -> frozenset[str]:
        return frozenset(self._once(strict) & varies)
