"""What rows may ask of the code that their instruction becomes part of: of its function, and of the whole program's.

Protocols, so that rows know nothing of how `code` keeps registers, masks and blocks.
"""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

from nbtc.compiler.builder import VectorBuilder
from nbtc.executor.text.data import Function, Guard, Instruction, Operand, Register, Symbol

END = -1  # among a block's ways: lanes end the function
Ways = tuple[tuple[int, Any], tuple[int, Any]]  # two times a block's number or END, and the i32 mask of its lanes


class ProgramCode(Protocol):
    """The module that a program becomes.  options: how it is compiled; linked: its functions and variables."""

    options: Any
    instrument: Any
    linked: Any
    scratch: Any
    helpers: Any
    module: Any
    suspends: bool
    joins: bool
    frames: Any

    @property
    def products(self) -> Any:
        """Products that wait for the next one."""

    def site(self, lanes: Any) -> int:
        """The number of the place in the program that messages name."""

    def place(self, function: Function, instruction: Instruction | None) -> int:
        """The number of a new place: an instruction, or a function as a whole."""

    def within(self, lanes: Any, address: Any, space: str) -> Any:
        """Whether addresses lie in the constants or parameters."""

    def call_host(self, lanes: Any, what: int, words: tuple[Any, ...]) -> Any:
        """Ask the host."""

    def emit_failure(self, lanes: Any, kind: int, mask: Any, addresses: Any) -> None:
        """Record an error of the first of these lanes and stop the launch."""

    def refuse(self, instruction: Instruction, why: str) -> NoReturn:
        """Raise for an instruction."""


class FunctionCode(Protocol):
    """The code of one PTX function.

    code: the warp's, with its masks and stack.  ramps: registers that are kept as ramps.
    number, current: of the block that is being emitted.
    Of a function that is called: returning, return_to, base_slot, way_out and sites, its variables and exits.
    """

    function: Function
    v: VectorBuilder
    b: Any
    number: int
    code: Any
    graph: Any
    registers: Any
    ramps: Any
    current: Any
    sites: list[Any]
    returning: Any
    return_to: Any
    base_slot: Any
    way_out: Any
    launch: Any
    worker: Any
    block: Any
    warp: Any

    @property
    def machine(self) -> ProgramCode:
        """The program."""

    @property
    def next_block(self) -> int:
        """The number in the warp's code of the block after this one."""

    def slot(self, register: Register) -> Any:
        """The variable of a register."""

    def registers_kept(self) -> list[Register]:
        """Registers whose values a call must not lose."""

    def uniform(self, operand: Operand) -> bool:
        """Whether all lanes have the same value of an operand."""

    def is_private(self, register: Register) -> bool:
        """Whether a write need not keep the other lanes' values."""

    def thread_index(self, axis: str) -> Any:
        """%tid of an axis."""

    def value_of(self, lanes: Any, symbol: Symbol) -> Any:
        """The address of a variable or function in the variable's own space."""

    def address_of(self, lanes: Any, symbol: Symbol) -> Any:
        """Where a load or store of a variable goes."""

    def local_offsets(self, name: str) -> Any:
        """Where a local variable or parameter of each lane lies in its local memory."""

    def guard(self, guard: Guard) -> Any:
        """A guard's value: i1, or an i32 mask where it varies."""

    def group(self) -> Any:
        """Mask of the lanes in this block."""

    def target(self, way: int) -> int:
        """A way's number in the warp's code."""

    def go(self, way: int, mask: Any) -> None:
        """End this code: the lanes go to a block of this function, or end it."""

    def split(self, ways: Ways) -> None:
        """End this block: its lanes go two ways."""

    def end(self, mask: Any, last: bool) -> None:
        """Lanes end the function; `last`: nothing follows in this block."""

    def poll(self, mask: Any) -> None:
        """Leave the warp if the launch is to stop."""

    def retry_unless(self, ready: Any) -> None:
        """Go on if `ready`; else begin this instruction again later."""

    def go_on_with(self, ready: Any) -> None:
        """Go on with these lanes; the others begin this instruction again later."""

    def execute(self, instruction: Instruction, rare: bool = False) -> None:
        """Emit one instruction."""
