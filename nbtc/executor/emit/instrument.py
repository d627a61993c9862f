"""What a program's code does besides the program, at the few points where an instrument may observe it.

The base class does nothing, and costs nothing: its methods emit no code.  `Options.instrument` names the one that a
program is compiled with, and so is part of what its machine code is found by.
"""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from nbtc.executor.emit.action import FormRow
    from nbtc.executor.emit.lanes import Lanes
    from nbtc.executor.text.data import Function


class Touch(NamedTuple):
    """One access: the space's name, bytes of each lane, what it does (`access_kinds`), bytes of an element; whether it
    is a load of a kernel's parameter, by the text alone."""

    space: str
    bytes: int
    kind: int
    order: int = 0
    element: int = 0
    parameter: bool = False


class Instrument:
    """Emits nothing."""

    observes = False  # whether it is to see every access by itself
    suspends = False  # whether every program's warps are to be coroutines, which know their live lanes
    services: Set[int] = frozenset()  # slots of the functions that its code calls (`services`)

    def prepared(self, function: Function) -> Function:
        """A function as its code is made of it."""
        return function

    def instruction(self, lanes: Lanes, row: FormRow) -> None:
        """Before an instruction of lanes that execute it."""

    def done(self, lanes: Lanes, row: FormRow) -> None:
        """After an instruction that is not a scalar form."""

    def access(self, lanes: Lanes, touch: Touch, addresses: Any, site: int, values: Any = None) -> None:
        """Before the active lanes' access; addresses: i64, of each lane where they vary; values: what is written."""

    def begins(self, v: Any, block: Any, reserved: int) -> None:
        """A block has got its place and is about to start.  reserved: first bytes of shared memory that are not its."""

    def site(self, lanes: Lanes) -> int:
        """The instruction's number in reports; -1 where nothing is watched."""
        return -1

    def operates(self, lanes: Lanes, groups: int) -> None:
        """A bulk operation begins, which belongs to a kind of groups (`access_kinds`), or to none (-1)."""

    def line(self, lanes: Lanes, lane: Any, address: Any, size: Any, kind: int) -> None:
        """The operation's access by a lane (i32): bytes from a place of the host."""

    def mbarrier(self, lanes: Lanes, what: int, found: Any, a: Any = None, b: Any = None) -> None:
        """Something happens at the mbarriers of lanes (`watch.mbarriers`)."""

    def product(self, lanes: Lanes, a: Any, b: Any, columns: int, flags: int) -> None:
        """A product of the warpgroup with operands in shared memory, by their descriptors, is issued."""

    def ends(self, frame: Any, mask: Any) -> None:
        """Lanes end the kernel."""

    def arrives(self, lanes: Lanes, barrier: Any, new: Any, count: Any) -> None:
        """Lanes (i32 mask, perhaps none) are about to arrive at a barrier for `count` threads."""

    def leaves(self, lanes: Lanes, barrier: Any, released: Any) -> None:
        """Lanes go on after a barrier."""


NOTHING = Instrument()
