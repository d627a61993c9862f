"""Loads or stores of a block whose places in a lane's memory are neighbours: one access for all of them.

Compilers write what each thread has of a row as accesses of one element each (Triton's guards stop it from joining
them).  If all lanes take part, and their places together are one stretch of memory that may be touched, whole vectors
move it; else each access is executed by itself, and names its own error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.builder import I1, I32, LINE
from nbtc.executor.emit.lanes import Lanes
from nbtc.executor.memory import memory
from nbtc.executor.memory.side_by_side import LANES, LaneElements, load_whole, store_whole
from nbtc.executor.rows.uses import row_of, use_of
from nbtc.executor.text.data import WIDTHS, Address, Immediate, Instruction, Operand, Register, Sink, Vector

if TYPE_CHECKING:
    from nbtc.executor.emit.context import FunctionCode

ALL = ir.Constant(I32, -1)
MOST = 8  # accesses that are joined: 32 bytes of a lane, as the widest access of PTX
MOST_BYTES = 32
ADDS = ({"add", "s64"}, {"add", "u64"})
MOVES = ({"mov", "b64"}, {"mov", "u64"}, {"mov", "s64"})
WIDE = 1 << 64
# How far ahead of a stretch of global memory its lines are asked for, into the second level: as far as a block of 128
# threads of 32 bytes reaches.  Its warps go through the parts of such a tile by turns, which the processor's own
# prefetching doesn't follow: a sum of vectors takes 2.0 ns an element without, 0.8 ns with it.
AHEAD = 4096


class KnownAddress(NamedTuple):
    """An address as it is known from the text: bytes after a value that has no other name."""

    value: object
    offset: int


class Neighbours(NamedTuple):
    """What stands for some accesses: by the last one's index in the block all of theirs, and the indices of all."""

    groups: dict[int, tuple[int, ...]]
    members: frozenset[int]


NONE = Neighbours({}, frozenset())


class _Values:
    """What the registers of a block hold, as far as moves and sums with constants tell."""

    def __init__(self) -> None:
        self.known: dict[str, KnownAddress] = {}
        self.count = 0

    def of(self, register: Register) -> KnownAddress:
        """A register's value: what it held when the block began, if nothing wrote it."""
        return self.known.get(register.name, KnownAddress(register.name, 0))

    def follow(self, instruction: Instruction, writes: tuple[Register, ...]) -> None:
        """Note what an instruction writes."""
        found = self._moved(instruction) if instruction.guard is None else None
        for register in writes:
            self.count += 1
            self.known[register.name] = found or KnownAddress(self.count, 0)

    def _moved(self, instruction: Instruction) -> KnownAddress | None:
        name = {instruction.opcode, *instruction.modifiers}
        sources = instruction.operands[1:]
        first = sources[0] if sources else None
        if not isinstance(first, Register):
            return None
        if name in MOVES and len(sources) == 1:
            return self.of(first)
        if name in ADDS and isinstance(sources[1], Immediate):
            value, offset = self.of(first)
            return KnownAddress(value, (offset + sources[1].value) % WIDE)
        return None


class _Run:
    """Accesses side by side so far, and the registers that nothing in between may touch."""

    def __init__(self) -> None:
        self.indices: list[int] = []
        self.mnemonic, self.next = "", KnownAddress(None, 0)
        self.reads: set[str] = set()
        self.writes: set[str] = set()

    def add(self, index: int, instruction: Instruction, place: KnownAddress, size: int) -> None:
        """One more."""
        use = use_of(instruction)
        self.indices.append(index)
        self.mnemonic, self.next = instruction.mnemonic, KnownAddress(place.value, (place.offset + size) % WIDE)
        self.reads |= {r.name for r in use.reads}
        self.writes |= {r.name for r in use.writes}

    def may_wait(self, reads: set[str], writes: set[str]) -> bool:
        """Whether the accesses may come after an instruction that reads and writes these registers."""
        return writes.isdisjoint(self.reads | self.writes) and reads.isdisjoint(self.writes)


def find(instructions: Sequence[Instruction], varies: frozenset[str] | set[str]) -> Neighbours:
    """The neighbours in a block; varies: registers whose lanes differ."""
    values, run = _Values(), _Run()
    groups: dict[int, tuple[int, ...]] = {}
    for index, instruction in enumerate(instructions):
        use = use_of(instruction)
        reads, writes = {r.name for r in use.reads}, {r.name for r in use.writes}
        size = _element_bytes(instruction, varies)
        if size:
            address = _address(instruction)
            value, offset = values.of(address.base)  # type: ignore[arg-type]
            place = KnownAddress(value, (offset + address.offset) % WIDE)
            joins = run.mnemonic == instruction.mnemonic and run.next == place
            full = len(run.indices) >= min(MOST, MOST_BYTES // size)
            if not joins or full or not run.may_wait(reads, writes):
                groups |= _joined(run)
                run = _Run()
            run.add(index, instruction, place, size)
        elif run.indices and not (_pure(instruction) and run.may_wait(reads, writes)):
            groups |= _joined(run)
            run = _Run()
        values.follow(instruction, use.writes)
    groups |= _joined(run)
    return Neighbours(groups, frozenset(n for indices in groups.values() for n in indices))


def _joined(run: _Run) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Its accesses in groups of powers of two; one alone is no group."""
    rest = run.indices
    while len(rest) > 1:
        count = 1 << len(rest).bit_length() - 1
        yield rest[count - 1], tuple(rest[:count])
        rest = rest[count:]


def _address(instruction: Instruction) -> Address:
    return instruction.operands[0 if instruction.opcode == "st" else 1]  # type: ignore[return-value]


def _element(instruction: Instruction) -> Operand:
    """What is loaded or stored."""
    operand = instruction.operands[1 if instruction.opcode == "st" else 0]
    return operand.elements[0] if isinstance(operand, Vector) else operand


def _element_bytes(instruction: Instruction, varies: frozenset[str] | set[str]) -> int:
    """Bytes of an access of one plain element at a place of each lane's own; 0 of any other instruction."""
    if instruction.opcode not in ("ld", "st") or not memory.JOINABLE.issuperset(instruction.modifiers):
        return 0
    address = _address(instruction)
    base = address.base if isinstance(address, Address) else None
    if not isinstance(base, Register) or base.name not in varies or isinstance(_element(instruction), Sink):
        return 0
    return WIDTHS[instruction.modifiers[-1]] // 8


def _pure(instruction: Instruction) -> bool:
    """Whether an instruction does nothing but write registers."""
    row = row_of(instruction.mnemonic)
    return row is not None and (row.form is not None or instruction.opcode == "mov")


def emit(frame: FunctionCode, group: Sequence[Instruction]) -> None:
    """The accesses of a group: together, or one after the other."""
    b, first = frame.b, group[0]
    row = row_of(first.mnemonic)
    lanes = Lanes(frame, first, row.op, ALL, True)  # type: ignore[union-attr]
    shape = memory.shape_of(lanes, _address(first))
    whole = shape._replace(elements=len(group))
    address = memory.row_of(lanes, whole, _address(first)) or memory.address_of(lanes, _address(first))
    together, pointer = memory.side_by_side(lanes, whole, address, lanes.machine.site(lanes), shape.bytes)
    with b.if_else(b.and_(_every_lane(frame, group), together), likely=True) as (then, otherwise):
        with then:
            _move(lanes, whole, pointer, group)
        with otherwise, frame.registers.made_here(_address(i).base for i in group):
            for instruction in group:
                frame.execute(instruction, rare=True)


def _every_lane(frame: FunctionCode, group: Sequence[Instruction]) -> Any:
    """i1: all 32 lanes execute every one of them."""
    b, found, masks = frame.b, ir.Constant(I1, 1), frame.group()
    for guard in dict.fromkeys(i.guard for i in group if i.guard is not None):
        value = frame.guard(guard)
        if value.type == I1:
            found = b.and_(found, value)
        else:
            masks = b.and_(masks, value)
    return found if masks is ALL else b.and_(found, b.icmp_unsigned("==", masks, ALL))


def _move(lanes: Lanes, whole: LaneElements, pointer: Any, group: Sequence[Instruction]) -> None:
    """All elements of all lanes."""
    if whole.space != "shared":
        for at in range(0, whole.bytes * LANES, LINE):
            lanes.v.prefetch(pointer, AHEAD + at, level=2)
    if group[0].opcode == "ld":
        for instruction, x in zip(group, load_whole(lanes.v, whole, pointer), strict=True):
            lanes.write(_element(instruction), x, group[0].modifiers[-1].startswith("s"))
        return
    values = [memory.stored(lanes, _element(i)) for i in group]
    store_whole(lanes.v, whole, pointer, [lanes.spread(x) for x in values])
