"""The rules of wgmma's asynchronous contract: who may touch which register and which shared byte when.

Kept apart from `sequence`, which executes: the state here is only what the rules need.  (PTX ISA, "wgmma.fence",
"wgmma.wait_group", "Async proxy".)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nbtc.errors import HazardError
from nbtc.fragments.smem_descriptors import UNIT, Descriptor

Check = Literal["raise", "record"] | bool


@dataclass(frozen=True)
class Hazard:
    """One broken ordering rule: its name, the instruction (number and text), the register or bytes, what would help."""

    rule: str
    instruction: int
    text: str
    where: str
    message: str

    def __str__(self) -> str:
        return f"instruction {self.instruction} ({self.text}): {self.where} {self.message} [{self.rule}]"


@dataclass(eq=False)
class IssuedProduct:
    """A product that has been issued: its result waits here until a wait_group covers it."""

    number: int
    shape: str
    d: Registers
    a: Registers | None
    units: NDArray[np.int64]
    result: NDArray[np.uint32]


class Registers:
    """A register array of the warpgroup, uint32 (..., 128, count), that a sequence watches.

    Indexing reads and writes it as other instructions would: `r[...]` copies, `r[:, 3] = 0` stores into register 3 of
    every thread.  Both are hazards while an asynchronous product owns the registers.
    """

    name: str
    visible: NDArray[np.uint32]
    touched: NDArray[np.bool_]
    fragment: bool

    def __init__(self, watch: Watch, values: NDArray[np.uint32], name: str) -> None:
        self.name, self.visible, self._watch = name, values, watch
        self.touched = np.ones(values.shape[-1], bool)  # accessed by other instructions since the last wgmma.fence
        self.shape: str | None = None  # shape of the wgmma that accumulated here since the last fence
        self.fragment = False  # read as A by a wgmma since the last fence
        self.writers: list[IssuedProduct] = []
        self.readers: list[IssuedProduct] = []

    @property
    def latest(self) -> NDArray[np.uint32]:
        """What the next wgmma accumulates onto: the newest pending result, or the registers."""
        return self.writers[-1].result if self.writers else self.visible

    def fenced(self) -> None:
        """A wgmma.fence ordered what happened so far."""
        self.touched[:] = False
        self.shape, self.fragment = None, False

    def _used(self, index: Any) -> NDArray[np.bool_]:
        hit = np.zeros(self.visible.shape, bool)
        hit[index] = True
        return np.asarray(hit.reshape(-1, self.touched.size).any(0))

    def __getitem__(self, index: Any) -> NDArray[np.uint32]:
        self._watch.access(self, self._used(index), "read")
        return np.array(self.visible[index])

    def __setitem__(self, index: Any, value: Any) -> None:
        self._watch.access(self, self._used(index), "write")
        self.visible[index] = value

    def __repr__(self) -> str:
        return f"Registers({self.name}, {self.visible.shape})"


@dataclass
class Groups:
    """Issued products: not yet committed, and committed groups from oldest to newest."""

    open: list[IssuedProduct] = field(default_factory=list)
    committed: list[list[IssuedProduct]] = field(default_factory=list)

    def pending(self) -> list[IssuedProduct]:
        """Every product whose result no wait has covered, oldest first."""
        return [op for group in self.committed for op in group] + self.open

    def place(self, op: IssuedProduct) -> str:
        """Where an operation stands and which wait would cover it."""
        if op in self.open:
            return "is not committed: commit_group() and wait_group(0) must come first"
        newer = len(self.committed) - 1 - next(i for i, g in enumerate(self.committed) if op in g)
        return f"is in a pending group with {newer} newer: wait_group({newer}) or less must come first"


class Watch:
    """State of the rules for one warpgroup; each method is one rule or one step of the program."""

    groups: Groups
    dirty: NDArray[np.bool_]
    number: int
    text: str
    ordered: bool

    def __init__(self, mode: Check, smem_bytes: int) -> None:
        self.mode = mode
        self.hazards: list[Hazard] = []
        self.registers: list[Registers] = []
        self.groups = Groups()
        self.dirty = np.zeros(-(-smem_bytes // UNIT) * UNIT, bool)  # written by the generic proxy, not fenced
        self.ordered = False
        self.number, self.text = 0, "start"

    def begin(self, text: str) -> None:
        """The next instruction of the program."""
        self.number += 1
        self.text = text

    def report(self, rule: str, where: str, message: str) -> None:
        """Raise or record a broken rule."""
        if not self.mode:
            return
        found = Hazard(rule, self.number, self.text, where, message)
        self.hazards.append(found)
        if self.mode != "record":
            raise HazardError(str(found))

    def fence(self) -> None:
        """wgmma.fence: accesses so far are ordered."""
        self.ordered = True
        for r in self.registers:
            r.fenced()

    def _owned(self, rule: str, where: str, role: str, op: IssuedProduct) -> None:
        self.report(rule, where, f"is the {role} of instruction {op.number}, which {self.groups.place(op)}")

    def access(self, r: Registers, used: NDArray[np.bool_], verb: str) -> None:
        """Another instruction reads or writes registers."""
        self.begin(f"{verb} of {r.name}")
        if used.any():
            where = f"{r.name}[{int(np.flatnonzero(used)[0])}]"
            if r.writers:
                self._owned(f"accumulator-{verb}", where, "accumulator", r.writers[-1])
            elif r.readers:
                self._owned(f"fragment-{verb}", where, "A fragment", r.readers[-1])
        r.touched |= used

    def store(self, first: int, stop: int, proxy: str) -> None:
        """Bytes of shared memory are overwritten."""
        for op in self.groups.pending():
            hit = op.units[(op.units * UNIT < stop) & (op.units * UNIT + UNIT > first)]
            if hit.size:
                self._owned("smem-pending", f"shared byte {max(int(hit[0]) * UNIT, first)}", "operand", op)
        self.dirty[first:stop] = proxy != "async"

    def warpgroup(self, first_warp: int) -> None:
        """Who executes, and whether any fence came before."""
        if first_warp % 4:
            where = f"warp {first_warp}"
            self.report(
                "warpgroup", where, "does not start a warpgroup: those are warps 0-3, 4-7 and so on of the block"
            )
        if not self.ordered:
            self.report("first-fence", "every register", "is unordered: call fence() before the first wgmma")

    def _clean(self, r: Registers) -> None:
        if self.ordered and r.touched.any():
            where = f"{r.name}[{int(np.flatnonzero(r.touched)[0])}]"
            message = "was accessed by another instruction since the last wgmma.fence: call fence() before this wgmma"
            self.report("fence", where, message)

    def accumulate(self, d: Registers, shape: str) -> None:
        """A product of some shape accumulates in d."""
        where = f"{d.name}[0]"
        other = next((op for op in d.writers if op.shape != shape), None)
        if other is not None:
            self._owned("shape-pending", where, f"{other.shape} accumulator", other)
        elif d.shape not in (None, shape):
            message = f"was accumulated by a {d.shape} wgmma since the last wgmma.fence: call fence() between shapes"
            self.report("shape", where, message)
        elif d.readers:
            self._owned("fragment-write", where, "A fragment", d.readers[-1])
        elif d.fragment:
            self.report("fence", where, "was an A fragment since the last wgmma.fence: call fence() before this wgmma")
        else:
            self._clean(d)

    def multiply(self, a: Registers) -> None:
        """A product reads its A fragment from registers."""
        if a.writers:
            self._owned("accumulator-read", f"{a.name}[0]", "accumulator", a.writers[-1])
        elif a.shape is not None:
            message = "was an accumulator since the last wgmma.fence: call fence() before using it as A"
            self.report("fence", f"{a.name}[0]", message)
        else:
            self._clean(a)

    def fetch(self, units: NDArray[np.int64]) -> None:
        """A product reads shared memory."""
        dirty = units[np.asarray(self.dirty.reshape(-1, UNIT).any(1))[units]]
        if dirty.size:
            message = "was written by the generic proxy: call fence_proxy_async() after the stores, before this wgmma"
            self.report("proxy-fence", f"shared byte {int(dirty[0]) * UNIT}", message)

    def descriptor(self, operand: str, words: NDArray[np.uint64]) -> None:
        """All warps pass the same descriptor, and its swizzle pattern starts where it says."""
        differs = np.flatnonzero(words != words[0])
        if differs.size:
            who = f"{'warp' if words.size == 4 else 'thread'} {int(differs[0])}"
            message = f"differs between the first warp and {who}: every warp must pass the same word"
            self.report("descriptors", f"descriptor {operand}", message)
        found = Descriptor.decode(int(words[0]))
        for note in found.phase_notes():
            if note.startswith("start"):
                message = f"is misaligned: {note}; start at a multiple of {found.mode.pattern_bytes}"
                self.report("pattern", f"descriptor {operand}", message)

    def exit(self) -> None:
        """The end of the kernel."""
        self.begin("exit")
        for op in self.groups.pending():
            rule = "exit-uncommitted" if op in self.groups.open else "exit-pending"
            self._owned(rule, f"{op.d.name}[0]", "accumulator", op)
