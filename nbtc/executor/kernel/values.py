"""Which values reach which reads of a function, and which are needed: what ptxas knows before it fuses anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from nbtc.executor.kernel.blocks import ARITHMETIC, Blocks
from nbtc.executor.rows.uses import row_of
from nbtc.executor.text.data import Instruction

BEFORE = -1  # the place of a value that a register has before a function writes it
Value = tuple[int, str]  # where it was written, and the register


class RegisterValues:
    """The values of registers: who reads each, and which of them anything needs."""

    def __init__(
        self,
        instructions: Sequence[Instruction],
        flow: Blocks,
        reads: Sequence[Sequence[str]],
        writes: Sequence[Iterable[str]],
        writers: Mapping[str, Sequence[int]],
    ) -> None:
        self._flow, self._writers = flow, writers
        self._left: list[dict[str, tuple[frozenset[int], bool]]] = [{} for _ in flow.before]
        exposed: list[tuple[int, str, frozenset[int]]] = []
        self.sources: list[dict[str, frozenset[int]]] = []
        for at, i in enumerate(instructions):
            left = self._left[flow.number[at]]
            found = {}
            for name in reads[at]:
                found[name], whole = left.get(name, (frozenset(), False))
                if not whole:
                    exposed.append((at, name, found[name]))
            self.sources.append(found)
            for name in writes[at]:
                old = left.get(name, (frozenset(), False)) if i.guard is not None else (frozenset(), True)
                left[name] = (old[0] | {at}, old[1])
        known: dict[tuple[int, str], frozenset[int]] = {}
        for at, name, inside in exposed:
            key = flow.number[at], name
            if key not in known:
                known[key] = self._incoming(*key)
            self.sources[at][name] = inside | known[key]
        self.readers: dict[Value, list[int]] = {}
        for at, found in enumerate(self.sources):
            for name in reads[at]:
                for source in found[name]:
                    self.readers.setdefault((source, name), []).append(at)
        self.needed = self._needed(instructions)

    def _incoming(self, block: int, name: str) -> frozenset[int]:
        """Where the values of a register may have been written that come into a block."""
        writers = self._writers.get(name, ())
        if len(writers) == 1:
            home = self._flow.number[writers[0]]
            if home != block and self._flow.dominates(home, block):
                return frozenset(writers)
        found: set[int] = set()
        seen: set[int] = set()
        todo = [block]
        while todo:
            b = todo.pop()
            before = self._flow.before[b]
            if b == 0:
                found.add(BEFORE)
            for earlier in before:
                if earlier not in seen:
                    seen.add(earlier)
                    places, whole = self._left[earlier].get(name, (frozenset[int](), False))
                    found |= places
                    if not whole:
                        todo.append(earlier)
        return frozenset(found)

    def _needed(self, instructions: Sequence[Instruction]) -> list[bool]:
        """Whether each instruction does something beside writing registers, or writes what one that is needed reads."""
        needed = [not _for_its_result(i) for i in instructions]
        todo = [at for at, u in enumerate(needed) if u]
        while todo:
            for sources in self.sources[todo.pop()].values():
                for at in sources:
                    if at != BEFORE and not needed[at]:
                        needed[at] = True
                        todo.append(at)
        return needed


def _for_its_result(i: Instruction) -> bool:
    """Whether nothing is left of an instruction whose results nobody reads."""
    if i.opcode in ARITHMETIC:
        return True
    row = row_of(i.mnemonic)
    return row is not None and row.action is None
