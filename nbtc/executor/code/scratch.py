"""Memory of a worker for instructions that need some: images of matrices, decoded operands.

All warps of a worker share it, as none can be interrupted within a basic block: it stays in the first-level cache, and
no warp's frame grows by it.  Images last for one instruction; records of decoded operands last, at most, until the end
of their basic block, and only while no register that they were made of is written.
"""

from __future__ import annotations

from typing import Any

from nbtc.executor.emit.lanes import Lanes
from nbtc.executor.rows.uses import use_of
from nbtc.executor.text.data import Instruction, Operand, Register

ALIGN = 64  # bytes: whole vectors
# of one instruction's images: D of wgmma m64n256 in f32 is 128 registers of 128 bytes, a quarter more for its others
IMAGES = 5 * 128 * 128 // 4


class Scratch:
    """Gives out a worker's scratch memory while a program is emitted; `bytes` is what it came to."""

    def __init__(self) -> None:
        self.bytes = 0
        self._instruction: Instruction | None = None
        self._image_at = 0
        self._block: tuple[int, int] = (0, -1)
        self._first_record = self._record_at = IMAGES
        self._known: dict[Any, tuple[Any, int]] = {}

    def image(self, lanes: Lanes, size: int) -> Any:
        """Memory for the instruction that is being emitted."""
        if lanes.instruction is not self._instruction:
            self._instruction, self._image_at = lanes.instruction, 0
        at, self._image_at = self._image_at, self._image_at + -(-size // ALIGN) * ALIGN
        if self._image_at > IMAGES:
            lanes.refuse(f"its operands need more than {IMAGES} bytes")
        self.bytes = max(self.bytes, self._image_at)
        return self._place(lanes, at)

    def record(self, lanes: Lanes, key: str, operand: Operand, size: int) -> tuple[Any, bool]:
        """(memory for an operand's decoded form, whether it is still there from an instruction before)."""
        block = id(lanes.frame), lanes.frame.number
        if block != self._block:
            self._block, self._record_at, self._known = block, self._first_record, {}
        registers = lanes.elements(operand)
        name = key, registers
        instructions = lanes.frame.current.instructions
        now = next(n for n, i in enumerate(instructions) if i is lanes.instruction)
        found = self._known.get(name)
        # the one that it was made for counts too, as its result may replace what it multiplied
        if found is not None and not _written(instructions[found[1] : now], registers):
            return self._place(lanes, found[0]), True
        at = found[0] if found is not None else self._record_at
        if found is None:
            self._record_at += -(-size // ALIGN) * ALIGN
            self.bytes = max(self.bytes, self._record_at)
        if lanes.instruction.guard is None:  # a guarded one may not have been executed when the next comes
            self._known[name] = at, now
        else:
            self._known.pop(name, None)
        return self._place(lanes, at), False

    def kept(self, lanes: Lanes, size: int) -> Any:
        """Memory that nothing else writes, of zeros at first; what an earlier launch has left stays there."""
        at = max(self.bytes, IMAGES)
        self.bytes = self._first_record = self._record_at = at + -(-size // ALIGN) * ALIGN
        return self._place(lanes, at)

    def _place(self, lanes: Lanes, at: int) -> Any:
        return lanes.v.at(lanes.pointer("worker", "scratch"), at)


def _written(instructions: tuple[Instruction, ...], registers: tuple[Operand, ...]) -> bool:
    """Whether any of the instructions writes any of the registers."""
    names = {r.name for r in registers if isinstance(r, Register)}
    return any(w.name in names for i in instructions for w in use_of(i).writes)
