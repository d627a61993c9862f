"""Products that follow one another in a program, as one call (`Product.call_all`).

Compilers unroll a tile's products, and between them stands nothing: their operands have been read before.  A product
waits for the next one while that is of the same form, is executed in any case, and multiplies nothing that the run
writes, so that copies of its operands can be made before any product of the run is computed.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

from nbtc.executor.emit.lanes import Lanes
from nbtc.executor.matrix.products import Product, ProductImages, RecordAddresses, RunMember
from nbtc.executor.text.data import Instruction, Register, Vector

LONGEST = 16  # products of a run; its flags have 64 bits


class Factor(NamedTuple):
    """A multiplicand: its image, where it is decoded (per slice, if at all), and whether that is to be done."""

    image: Any
    records: tuple[Any, ...]
    raw: bool


def execute(lanes: Lanes, form: Product, factors: tuple[Factor, Factor], images: ProductImages) -> None:
    """One product by itself."""
    for side, factor in enumerate(factors):
        if factor.raw:
            form.decode(lanes.v, side, factor.image, factor.records)
    form.call(lanes.v, images, lanes.services, RecordAddresses(*(x.records for x in factors)))


class ProductRun:
    """The products that wait."""

    def __init__(self) -> None:
        self._waiting: list[RunMember] = []
        self._written: set[str] = set()

    def add(self, lanes: Lanes, form: Product, factors: tuple[Factor, Factor], images: ProductImages) -> None:
        """One more; emits all that wait unless the instruction after it joins them."""
        if not self._waiting and not self._goes_on(lanes, form):
            execute(lanes, form, factors, images)
            return
        a, b = factors
        self._waiting.append(RunMember(a.records[0], b.records[0], images.c, images.d, (a.raw, b.raw)))
        if self._goes_on(lanes, form):
            self._written |= _names(lanes.instruction, 0)
            return
        form.call_all(lanes.v, self._waiting, lanes.services)
        self._waiting, self._written = [], set()

    def _goes_on(self, lanes: Lanes, form: Product) -> bool:
        """Whether the instruction after this one is of the same run."""
        now, instructions = lanes.instruction, lanes.frame.current.instructions
        if len(self._waiting) == LONGEST or not (form.runs and lanes.machine.joins):
            return False
        after = next((y for x, y in pairwise(instructions) if x is now), None)
        if after is None or after.mnemonic != now.mnemonic:
            return False
        if not all(_executed_in_place(lanes, form, x) for x in (now, after)):
            return False
        return (self._written | _names(now, 0)).isdisjoint(_names(after, 1) | _names(after, 2))


def _executed_in_place(lanes: Lanes, form: Product, instruction: Instruction) -> bool:
    """Whether an instruction is executed in any case, on accumulators where they live and on copies of its operands."""
    if instruction.guard is not None or len(instruction.operands) != len(form.counts):
        return False
    if not _names(instruction, 0).isdisjoint(_names(instruction, 1) | _names(instruction, 2)):
        return False
    kept, counts = lanes.frame.registers, form.counts
    d, a, b, c = (kept.in_image(x, counts[n]) for x, n in zip(instruction.operands, (3, 0, 1, 2), strict=True))
    return bool(d and c) and not a and not b


def _names(instruction: Instruction, n: int) -> set[str]:
    """The registers of an operand."""
    operand = instruction.operands[n]
    parts = operand.elements if isinstance(operand, Vector) else (operand,)
    return {x.name for x in parts if isinstance(x, Register)}
