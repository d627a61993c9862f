"""What one instruction form beyond scalar arithmetic is: a row that acts on the whole warp, memory or control flow.

`emit(lanes)` gets a `Lanes` (see `lanes`): the instruction, its operands, the active lanes and the machine's state.
Slots are those of the scalar forms: an `Action` names every modifier it implements, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from nbtc.executor.emit.form import Form, Op, Slot, choices_of

if TYPE_CHECKING:
    from nbtc.executor.text.data import Instruction

Emit = Callable[[Any], None]


def no(instruction: Instruction) -> bool:
    """The answer of most rows to `varying`, `waits` and `remote`."""
    return False


def yes(instruction: Instruction) -> bool:
    """The other answer."""
    return True


class Action(NamedTuple):
    """One row.

    results: how many leading operands are written (a vector or pair counts as one operand).
    varying: whether the results may differ between lanes although the operands don't.
    waits: whether lanes may have to wait here for others (the instruction then begins a block of its own).
    accepts: in place of slots, where the instruction set's own tables say which modifiers there are.
    whole: whether code of its own for all 32 lanes pays where a guard may leave some out.
    remote: whether the results may be changed by other threads while this one loops (a loop that tests them spins).
    """

    opcode: str
    slots: tuple[Slot, ...]
    emit: Emit
    results: int = 0
    varying: Callable[[Instruction], bool] = no
    waits: Callable[[Instruction], bool] = no
    remote: Callable[[Instruction], bool] = no
    whole: bool = False
    accepts: Callable[[tuple[str, ...]], bool] | None = None

    def matches(self, modifiers: tuple[str, ...]) -> bool:
        """Whether the modifiers are one choice of each slot, in the order of the slots."""
        if self.accepts is not None:
            return self.accepts(modifiers)
        return choices_of(self.slots, modifiers)


class FormRow(NamedTuple):
    """An instruction's row: a scalar form with its split name, or an action."""

    form: Form | None
    op: Op
    action: Action | None

    @property
    def results(self) -> int:
        """Leading operands that are written."""
        if self.action is not None:
            return self.action.results
        return 1 if self.form is not None and any(r != "cc" for r in self.form.results) else 0

    @property
    def evidence(self) -> str:
        """What backs the bits of a form that the ISA leaves open, else nothing."""
        return self.form.evidence if self.form is not None else ""
