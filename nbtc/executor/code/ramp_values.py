"""What a kernel's ramps (`kernel.ramps`) are while its code runs: scalars in registers of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from nbtc.compiler.builder import I1, I32, VectorBuilder, vector
from nbtc.executor.emit.action import FormRow
from nbtc.executor.emit.form import Form, Op
from nbtc.executor.emit.lanes import Lanes, is_vector
from nbtc.executor.emit.values import resize
from nbtc.executor.kernel import ramps
from nbtc.executor.kernel.ramps import Ramp
from nbtc.executor.rows.uses import use_of
from nbtc.executor.text.data import WIDTHS, Immediate, Instruction, Operand, Register, Special

if TYPE_CHECKING:
    from nbtc.executor.code.frame import Frame

LANES = 32
Value = Callable[[], Any]  # emits a value where it is called


def lanes_of(v: VectorBuilder, base: Any, step: int) -> Any:
    """base + step * lane of each lane."""
    kind = vector(base.type, LANES)
    return v.b.add(v.splat(base, LANES), ir.Constant(kind, [step * lane for lane in range(LANES)]))


class RampValues:
    """The ramps of one function.

    Names of the scalars have a space, which no register's has.
    """

    def __init__(self, frame: Frame) -> None:
        self.frame, self.v, self.registers = frame, frame.v, frame.registers
        self.found = frame.machine.ramps_of(frame.function, frame.graph, frame.facts)
        self._here: tuple[Any, set[str]] = None, set()
        for name in self.found.exact:
            self._keep_base_alone(name)

    def _keep_base_alone(self, name: str) -> None:
        known = self.found.known[name]
        self.registers.made_anew(name, lambda: lanes_of(self.v, self._base(name, known), known.step))

    def _base(self, name: str, ramp: Ramp) -> Any:
        return self.registers.read(Register(f"{name} base", f"b{ramp.bits}"))

    def step(self, operand: Operand) -> int | None:
        """How far a register's lanes are from each other; None where that is not known."""
        found = self.found.known.get(operand.name) if isinstance(operand, Register) else None
        return None if found is None else found.step

    def of(self, operand: Operand) -> Ramp | None:
        """A register that is kept as a ramp."""
        if not isinstance(operand, Register) or operand.name not in self.found.wanted:
            return None
        known = self.found.known[operand.name]
        holds = None if known.exact else self.registers.read(Register(f"{operand.name} holds", "pred"))
        return known._replace(base=self._base(operand.name, known), holds=holds)

    def write(self, instruction: Instruction, row: FormRow) -> bool:
        """Write the scalars of an instruction's result if that is a ramp; whether this is all that is to be done."""
        target = instruction.operands[0] if instruction.operands else None
        if not isinstance(target, Register) or target.name not in self.found.wanted:
            return False
        lanes = Lanes(self.frame, instruction, row.op, ramps.ALL, True)
        ramp = ramps.step_of(instruction, lambda operand: self._source(lanes, operand), self.v)
        if ramp is None:
            raise RuntimeError(f"{instruction.mnemonic} was to write a ramp")
        name, exact = target.name, target.name in self.found.exact
        again = self._again(lanes, row.form, row.op) if name in self.found.local and row.form is not None else None
        self.registers.write(Register(f"{name} base", f"b{ramp.bits}"), ramp.base)
        if not exact:
            holds = ir.Constant(I1, 1) if ramp.holds is None else ramp.holds
            self.registers.write(Register(f"{name} holds", "pred"), holds)
        if exact:
            self._keep_base_alone(name)
        elif again is not None:
            self.registers.made_anew(name, again)
        return exact or again is not None

    def _source(self, lanes: Lanes, operand: Operand) -> Ramp | None:
        """An operand as the rules take it."""
        if isinstance(operand, Special):
            known = self.frame.machine.special_ramp(operand)
            return None if known is None else known._replace(base=self._special(lanes, operand, known))
        if not isinstance(operand, Register):
            return None
        if operand.name not in self.frame.facts.varies:
            known = self.found.known.get(operand.name)
            return None if known is None else known._replace(base=self.registers.read(operand))
        return self.of(operand)

    def _special(self, lanes: Lanes, operand: Special, known: Ramp) -> Any:
        """The first lane's value of a special register."""
        if not known.step:
            return lanes.read(operand)
        if operand.name == "%laneid":
            return ir.Constant(I32, 0)
        return self.frame.machine.first_thread(self.frame.code)

    def _again(self, lanes: Lanes, form: Form, op: Op) -> Value:
        """What computes an instruction's lanes from its operands as they are now."""
        kinds = zip(lanes.operands[1:], form.sources, strict=False)  # some may be left out
        sources = [(self._kept(lanes, x, kind), kind) for x, kind in kinds]

        def emit() -> Any:
            v = self.v
            values = [resize(v, make(), WIDTHS[kind], kind.startswith("s")) for make, kind in sources]
            found = form.emit(v, op, *(x if is_vector(x) else v.splat(x, LANES) for x in values))
            target: Any = lanes.operands[0]
            return resize(v, found, target.bits, form.results[0].startswith("s"))

        return emit

    def _written_here(self) -> set[str]:
        """Registers that the block which is being emitted writes: all others stay as they are in it."""
        block = self.frame.current
        if self._here[0] is not block:
            self._here = block, {r.name for i in block.instructions for r in use_of(i).writes}
        return self._here[1]

    def _kept(self, lanes: Lanes, operand: Operand, kind: str) -> Value:
        """An operand's value of now, for later."""
        if isinstance(operand, Register):
            name = operand.name
            if name in self.found.exact:
                ramp: Any = self.of(operand)
                return lambda: lanes_of(self.v, ramp.base, ramp.step)
            made = self.registers.maker(name)
            if made is not None:
                return made
            if name not in self._written_here():
                return lambda: self.registers.read(operand)
        value = lanes.read(operand, kind if isinstance(operand, Immediate) else "")
        return lambda: value
