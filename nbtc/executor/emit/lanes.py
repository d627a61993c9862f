"""What a row sees of the machine: one instruction, its operands, the lanes that execute it.

Values are LLVM integers of a register's width: scalars where all lanes agree, else `<32 x iN>`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from llvmlite import ir

from nbtc.compiler.builder import I1, I8, I32, I64, VectorBuilder, vector
from nbtc.executor.emit import specials
from nbtc.executor.emit.fields import field_at, load_field, store_field
from nbtc.executor.emit.form import Op
from nbtc.executor.emit.values import resize
from nbtc.executor.text.data import (
    WIDTHS,
    Address,
    Group,
    Immediate,
    Instruction,
    Not,
    Operand,
    Pair,
    Register,
    Selected,
    Sink,
    Special,
    Symbol,
    Vector,
)
from nbtc.executor.text.literals import bits_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from nbtc.executor.emit.context import FunctionCode, ProgramCode

Types = tuple[ir.Type, ...]
WARP = 32
POINTER = I8.as_pointer()
# Fields that stay the same for as long as a warp runs: loaded once, before its first block.
UNCHANGING = frozenset(
    {
        ("launch", "parameters"), ("launch", "variables"), ("launch", "services"), ("launch", "shared_bytes"),
        ("worker", "sites"), ("worker", "scratch"), ("block", "shared"),
    }
)  # fmt: skip


def is_vector(x: Any) -> bool:
    """Whether a value has one number for each lane."""
    return isinstance(x.type, ir.VectorType)


class Lanes:
    """The context of one instruction.

    v, b: builders.  op: the split name.  active: i32 mask of the lanes that execute it (never 0 when a row with a
    guard is emitted); `full` says that it is known to be all 32.  launch, worker, block, warp: pointers to the
    machine's structures (`state`).  `rare`: this code hardly ever runs, so it should be small.
    """

    def __init__(
        self,
        frame: FunctionCode,
        instruction: Instruction,
        op: Op,
        active: Any,
        full: bool,
        guarded: bool = False,
        rare: bool = False,
    ) -> None:
        self.frame, self.instruction, self.op, self.active, self.full = frame, instruction, op, active, full
        self.guarded = guarded  # a guard leaves out some lanes of the group
        self.rare = rare
        self.v: VectorBuilder = frame.v
        self.b: Any = frame.v.b
        self.machine: ProgramCode = frame.machine
        self.operands = instruction.operands

    # --- lanes ------------------------------------------------------------------------------------------------------
    @property
    def active_lanes(self) -> Any:
        """The active lanes as <32 x i1>."""
        return self.b.bitcast(self.active, vector(I1, WARP))

    def mask(self, lanes: Any) -> Any:
        """<32 x i1> as an i32."""
        return self.b.bitcast(lanes, I32)

    def lane_ids(self) -> Any:
        """0, 1, ... 31"""
        return ir.Constant(vector(I32, WARP), list(range(WARP)))

    def spread(self, x: Any) -> Any:
        """x in every lane, unless it is a vector already."""
        if is_vector(x):
            return x
        if isinstance(x, ir.Constant) and not isinstance(x.constant, str):
            return self.v.const(vector(x.type, WARP), x.constant)
        return self.v.splat(x, WARP)

    # --- operands ---------------------------------------------------------------------------------------------------
    def uniform(self, operand: Operand) -> bool:
        """Whether all lanes have the same value of an operand."""
        return self.frame.uniform(operand)

    def read(self, operand: Operand, kind: str = "", lanes: bool = False) -> Any:
        """An operand's value with the width of a type (default: its register's); a vector if `lanes` or if it varies.

        Wider registers are cut, narrower extended as the type says.
        """
        value = self._value(operand, kind)
        if kind:
            value = resize(self.v, value, WIDTHS[kind], kind.startswith("s"))
        return self.spread(value) if lanes else value

    def _value(self, operand: Operand, kind: str) -> Any:
        if isinstance(operand, Register):
            return self.frame.registers.read(operand)
        if isinstance(operand, Immediate):
            width = WIDTHS[kind or "b32"]
            return ir.Constant(ir.IntType(width), bits_of(operand, kind or "b32"))
        if isinstance(operand, Special):
            return specials.read(self, operand.name, WIDTHS[kind] if kind else 32)
        if isinstance(operand, Symbol):
            return self.frame.value_of(self, operand)
        if isinstance(operand, Not):
            return self.b.not_(self._value(operand.register, kind))
        if isinstance(operand, Selected):
            return self._value(operand.register, kind)
        self.refuse(f"{type(operand).__name__.lower()} operand where a single value should stand")

    def write(self, operand: Operand, value: Any, signed: bool = False) -> None:
        """Give a register its value in the active lanes; it is extended or cut to the register's width."""
        if isinstance(operand, Sink):
            return
        if isinstance(operand, Pair):
            self.refuse("a pair of results where one should stand")
        if not isinstance(operand, Register):
            self.refuse("the result is not a register")
        registers = self.frame.registers
        value = resize(self.v, value, operand.bits, signed)
        if isinstance(registers.kind(operand), ir.VectorType):
            value = self.spread(value)
            if not self.full and (self.guarded or not self.frame.is_private(operand)):
                value = self.b.select(self.active_lanes, value, registers.read(operand))
        registers.write(operand, value)

    def elements(self, operand: Operand) -> tuple[Operand, ...]:
        """The registers of a vector or parameter list; a single operand is a vector of one."""
        return operand.elements if isinstance(operand, Vector | Group) else (operand,)

    def address(self, operand: Operand) -> tuple[Any, int]:
        """Base value (i64, vector if it varies) and byte offset of `[base + offset]`."""
        if not isinstance(operand, Address):
            self.refuse("an address in brackets should stand here")
        if isinstance(operand.base, Symbol):
            return self.frame.address_of(self, operand.base), operand.offset
        return resize(self.v, self._value(operand.base, "u64"), 64), operand.offset

    # --- the machine's structures -------------------------------------------------------------------------------------
    @property
    def launch(self) -> Any:
        """Pointer to the launch."""
        return self.frame.launch

    @property
    def worker(self) -> Any:
        """Pointer to the worker."""
        return self.frame.worker

    @property
    def block(self) -> Any:
        """Pointer to the thread block."""
        return self.frame.block

    @property
    def warp(self) -> Any:
        """Pointer to the warp."""
        return self.frame.warp

    def field(self, structure: str, name: str, index: Any = 0) -> Any:
        """Pointer to a field of the "launch", "worker", "block" or "warp", moved by `index` bytes."""
        return field_at(self.v, structure, getattr(self, structure), name, index)

    def get(self, structure: str, name: str) -> Any:
        """A field's value."""
        if (structure, name) in UNCHANGING:
            return self.frame.code.unchanging(structure, name)
        return load_field(self.v, structure, getattr(self, structure), name)

    def pointer(self, structure: str, name: str) -> Any:
        """The value of one of the `UNCHANGING` fields, as a pointer."""
        return self.frame.code.unchanging_pointer(structure, name)

    def put(self, structure: str, name: str, value: Any) -> None:
        """Set a field."""
        store_field(self.v, structure, getattr(self, structure), name, value)

    # --- control ----------------------------------------------------------------------------------------------------
    def retry_unless(self, ready: Any) -> None:
        """Go on if `ready` (i1); else leave these lanes here, let others run, and begin this instruction again.

        Only for rows that say `waits`.  The warp is resumed when it has set no wait address (see `wait_on`), or once
        the word there has changed.
        """
        self.frame.retry_unless(ready)

    def go_on_with(self, ready: Any) -> None:
        """Go on with these lanes (i32 mask); the other active ones stay here and begin this instruction again.

        Only for rows that say `waits`, and without a guard.
        """
        self.frame.go_on_with(ready)

    def wait_on(self, address: Any, value: Any) -> None:
        """If these lanes stay (`retry_unless`), let the warp sleep while the i32 at `address` is `value`."""
        self.put("warp", "wait_address", self.b.ptrtoint(address, I64))
        self.put("warp", "wait_value", value)

    def helper(self, name: str, result: ir.Type, arguments: Types, build: Callable[[Any, Any], None]) -> Any:
        """A function that programs share: `build(v, arguments)` emits its body, `ret` included, on first use."""
        return self.machine.helpers.function(name, result, arguments, build)

    def host(self, what: int, *words: Any) -> Any:
        """Ask the host: `what` and up to 4 vectors of <32 x i64>; an i32 answer (see `host`)."""
        return self.machine.call_host(self, what, words)

    def fail(self, kind: int, lanes: Any, addresses: Any = None) -> None:
        """Record an error of the first of these lanes (i32 mask, not 0) and stop the launch."""
        self.machine.emit_failure(self, kind, lanes, addresses)

    @property
    def services(self) -> Any:
        """Pointer to the table of the host's functions."""
        return self.pointer("launch", "services")

    def refuse(self, why: str) -> NoReturn:
        """Raise for an operand that the form doesn't take."""
        self.machine.refuse(self.instruction, why)
