"""Registers whose lanes count up by a constant: base + step * lane, as places of a warp in a row are.

What is known of them is a scalar.  So an access of lanes side by side needs no look at 32 addresses, nor any of those
addresses: they are made where the access is another one after all.  Where a number is extended or its bits are picked,
lanes count up only while nothing carries; then there is a condition, a scalar too.

The same rules tell from the text which registers are ramps (values are None), and emit them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.builder import VectorBuilder
from nbtc.executor.kernel.flow import Graph
from nbtc.executor.kernel.liveness import live_at
from nbtc.executor.kernel.uniform import FunctionFacts
from nbtc.executor.memory.side_by_side import OWN_SPACES
from nbtc.executor.rows.uses import use_of
from nbtc.executor.text.data import (
    WIDTHS,
    Address,
    Immediate,
    Instruction,
    Operand,
    Register,
    Special,
)

LANES = 32
ALL = ir.Constant(ir.IntType(32), -1)  # mask of all lanes
ELEMENTS = (1, 2, 4, 8)  # of a lane that neighbouring accesses move together


class Ramp(NamedTuple):
    """base + step * lane, modulo 2**bits, in any case if `exact`, else while `holds` (i1; None: always).

    zeros: bits of the base that are known to be 0.  number: the value of a constant.
    """

    bits: int
    step: int
    zeros: int = 0
    exact: bool = True
    number: int | None = None
    base: Any = None
    holds: Any = None

    @property
    def most(self) -> int:
        """The largest that the base may be."""
        return (1 << self.bits) - 1 & ~self.zeros

    @property
    def lane_bits(self) -> int:
        """Where the lane's number stands if the base is 0 there; 0 if its bits don't stay together."""
        found = self.step * (LANES - 1)
        return found if self.step & (self.step - 1) == 0 and found < 1 << self.bits else 0


Source = Callable[[Operand], Ramp | None]


class Ramps(NamedTuple):
    """What is known of a kernel's registers from the text, by name, and which of them are `wanted` as ramps.

    Of `exact` ones there is nothing else than the base.  The vectors of `local` ones, which one block alone reads, are
    made where something reads them.  All others have both.
    """

    known: Mapping[str, Ramp]
    wanted: frozenset[str] = frozenset()
    exact: frozenset[str] = frozenset()
    local: frozenset[str] = frozenset()


NONE = Ramps({})


def constant(bits: int, number: int) -> Ramp:
    """A number that is the same in all lanes."""
    number &= (1 << bits) - 1
    return Ramp(bits, 0, ~number & ((1 << bits) - 1), True, number, ir.Constant(ir.IntType(bits), number))


def find(graph: Graph, facts: FunctionFacts, special: Callable[[Special], Ramp | None]) -> Ramps:
    """The ramps of a kernel that accesses of lanes side by side depend on.

    special: what a special register is, None where its lanes are no ramp.
    """
    addressing = [i for block in graph.blocks for i in block.instructions if _may_be_side_by_side(i)]
    if not addressing:
        return NONE
    steps = _all_steps(graph, facts, special)
    writers: dict[str, list[Instruction]] = {}
    for block in graph.blocks:
        for i in block.instructions:
            for register in use_of(i).writes:
                writers.setdefault(register.name, []).append(i)
    wanted: set[str] = set()
    todo = [_base(i).name for i in addressing if _is_side_by_side(i, steps)]
    while todo:
        name = todo.pop()
        if name in facts.varies and steps.get(name) is not None and name not in wanted:
            wanted.add(name)
            todo += [r.name for i in writers[name] for r in use_of(i).reads]
    exact = frozenset(name for name in wanted if steps[name].exact)  # type: ignore[union-attr]
    local = frozenset(wanted) - exact - live_at(graph, range(graph.end))
    return Ramps({name: ramp for name, ramp in steps.items() if ramp is not None}, frozenset(wanted), exact, local)


def _base(access: Instruction) -> Register:
    address: Any = access.operands[0 if access.opcode == "st" else 1]
    return address.base  # type: ignore[no-any-return]


def _may_be_side_by_side(i: Instruction) -> bool:
    if i.opcode not in ("ld", "st") or not OWN_SPACES.isdisjoint(i.modifiers) or i.modifiers[-1] not in WIDTHS:
        return False
    address = i.operands[0 if i.opcode == "st" else 1]
    return isinstance(address, Address) and isinstance(address.base, Register)


def _is_side_by_side(i: Instruction, steps: Mapping[str, Ramp | None]) -> bool:
    """Whether the elements of lanes, or those of neighbouring accesses together, lie side by side."""
    ramp, size = steps.get(_base(i).name), WIDTHS[i.modifiers[-1]] // 8
    return ramp is not None and ramp.step % size == 0 and ramp.step // size in ELEMENTS


def _all_steps(graph: Graph, facts: FunctionFacts, special: Callable[[Special], Ramp | None]) -> dict[str, Ramp | None]:
    """What each register is: the same at all writes, of which none may leave some lanes as they were."""
    found: dict[str, Ramp | None] = {}

    def source(operand: Operand) -> Ramp | None:
        if isinstance(operand, Special):
            return special(operand)
        return found.get(operand.name) if isinstance(operand, Register) else None

    def written(i: Instruction, block: int, register: Register) -> Ramp | None:
        ramp = step_of(i, source)
        if register.name not in facts.varies:
            return Ramp(register.bits, 0) if ramp is None or ramp.step else ramp
        return ramp if block not in facts.divergent or register.name in facts.private else None

    early = live_at(graph, (0,))  # what may be read before anything writes it
    places = [(number, i, use_of(i)) for number, block in enumerate(graph.blocks) for i in block.instructions]
    readers: dict[str, list[int]] = {}
    for at, (_, _, use) in enumerate(places):
        for r in use.reads:
            readers.setdefault(r.name, []).append(at)
            if r.name in early:
                found[r.name] = None if r.name in facts.varies else Ramp(r.bits, 0)
    # A round takes only what reads a register of which something else is known since.  Addresses that a loop changes
    # lose one known bit a round: all instructions in each of a product's 33 took a seventh of its compilation's Python.
    todo = [True] * len(places)
    while any(todo):
        for at, (number, i, use) in enumerate(places):
            if not todo[at]:
                continue
            todo[at] = False
            if any(r.name not in found for r in use.reads):
                continue  # what a loop brings back is not known yet
            for register in use.writes:
                name, new = register.name, written(i, number, register)
                both = _either(found[name], new) if name in found else new
                if name not in found or both != found[name]:
                    found[name] = both
                    for reader in readers.get(name, ()):
                        todo[reader] = True
    return found


def _either(x: Ramp | None, y: Ramp | None) -> Ramp | None:
    """What is known of a register that is written twice."""
    if x is None or y is None or (x.bits, x.step) != (y.bits, y.step):
        return None
    number = x.number if x.number == y.number else None
    return Ramp(x.bits, x.step, x.zeros & y.zeros, x.exact and y.exact, number)


def step_of(instruction: Instruction, source: Source, v: VectorBuilder | None = None) -> Ramp | None:
    """The ramp that an instruction writes, from those of its operands; None if it writes no other."""
    rule = RULES.get(instruction.opcode)
    target = instruction.operands[0] if instruction.operands else None
    if rule is None or instruction.guard is not None or not isinstance(target, Register):
        return None
    found = rule(_Rules(v, source), instruction.modifiers, instruction.operands[1:])
    if found is None or found.bits != target.bits:
        return None
    return found if v is not None else found._replace(base=None, holds=None)


class _Rules:
    """What becomes of ramps."""

    def __init__(self, v: VectorBuilder | None, source: Source) -> None:
        self.v, self.source = v, source

    # --- instructions -----------------------------------------------------------------------------------------------
    def mov(self, kind: tuple[str, ...], operands: tuple[Operand, ...]) -> Ramp | None:
        return self.read(operands[0], kind[0]) if kind in WHOLE else None

    def cvt(self, kind: tuple[str, ...], operands: tuple[Operand, ...]) -> Ramp | None:
        if not {kind[:1], kind[1:]} <= WHOLE:
            return None
        return self.resized(self.read(operands[0], kind[1]), WIDTHS[kind[0]], kind[1][0] == "s")

    def add(self, kind: tuple[str, ...], operands: tuple[Operand, ...]) -> Ramp | None:
        return self.sum(*(self.read(x, kind[0]) for x in operands)) if kind in WHOLE else None

    def sub(self, kind: tuple[str, ...], operands: tuple[Operand, ...]) -> Ramp | None:
        if kind not in WHOLE:
            return None
        x, y = (self.read(o, kind[0]) for o in operands)
        return None if y is None else self.sum(x, self.product(y, constant(y.bits, -1)))

    def mul(self, kind: tuple[str, ...], operands: tuple[Operand, ...]) -> Ramp | None:
        if kind[1:] not in WHOLE or kind[0] not in ("lo", "wide"):
            return None
        factors = [self.read(x, kind[1]) for x in operands[:2]]
        if kind[0] == "wide":
            factors = [self.resized(x, 2 * WIDTHS[kind[1]], kind[1][0] == "s") for x in factors]
        return self.product(*factors)

    def mad(self, kind: tuple[str, ...], operands: tuple[Operand, ...]) -> Ramp | None:
        found = self.mul(kind, operands)
        return None if found is None else self.sum(found, self.read(operands[2], f"b{found.bits}"))

    def shl(self, kind: tuple[str, ...], operands: tuple[Operand, ...]) -> Ramp | None:
        x, by = self.read(operands[0], kind[0]), self.read(operands[1], "b32")
        if kind not in WHOLE or x is None or by is None or by.number is None or by.number >= x.bits:
            return None
        return self.product(x, constant(x.bits, 1 << by.number))

    def shr(self, kind: tuple[str, ...], operands: tuple[Operand, ...]) -> Ramp | None:
        x, by = self.read(operands[0], kind[0]), self.read(operands[1], "b32")
        if kind not in WHOLE or kind[0][0] == "s" or x is None or by is None:
            return None
        if by.number is None or by.number >= x.bits:
            return None
        n, lanes = by.number, x.lane_bits
        kept = lanes >> n << n
        if x.step and (not lanes or kept not in (0, lanes)):  # some of the lane's bits would be lost
            return None
        zeros = x.zeros >> n | ~(-1 << n) << x.bits - n
        clear = self.clear(x, lanes)
        return clear._replace(
            step=x.step >> n if kept else 0, zeros=zeros, number=None if x.number is None else x.number >> n,
            base=self.emit(lambda v: v.b.lshr(x.base, ir.Constant(x.base.type, n))),
        )  # fmt: skip

    def bits_and(self, kind: tuple[str, ...], operands: tuple[Operand, ...]) -> Ramp | None:
        x, y = self.pair(kind, operands)
        if x is None or y is None:
            return None
        lanes, mask = x.lane_bits, y.number
        kept = lanes & (mask or 0)
        if x.step and (not lanes or mask is None or kept not in (0, lanes)):
            return None
        both = self.joined(self.clear(x, lanes), y)
        base = self.emit(lambda v: v.b.and_(x.base, y.base))
        return both._replace(step=x.step if kept else 0, zeros=x.zeros | y.zeros, base=base)

    def bits_or(self, kind: tuple[str, ...], operands: tuple[Operand, ...]) -> Ramp | None:
        return self.merged(kind, operands, "or_")

    def bits_xor(self, kind: tuple[str, ...], operands: tuple[Operand, ...]) -> Ramp | None:
        return self.merged(kind, operands, "xor")

    def merged(self, kind: tuple[str, ...], operands: tuple[Operand, ...], how: str) -> Ramp | None:
        """Bits of a ramp and of a number that all lanes share, which has none where the lane's number stands."""
        x, y = self.pair(kind, operands)
        if x is None or y is None or (x.step and not x.lane_bits):
            return None
        both = self.joined(self.clear(x, x.lane_bits), self.clear(y, x.lane_bits))
        base = self.emit(lambda v: getattr(v.b, how)(x.base, y.base))
        return both._replace(step=x.step, zeros=x.zeros & y.zeros, base=base)

    # --- their parts ------------------------------------------------------------------------------------------------
    def emit(self, make: Callable[[VectorBuilder], Any]) -> Any:
        return None if self.v is None else make(self.v)

    def read(self, operand: Operand, kind: str) -> Ramp | None:
        if isinstance(operand, Immediate):
            return None if operand.float_bits else constant(WIDTHS[kind], operand.value)
        found = self.source(operand)
        return found if found is not None and found.bits == WIDTHS[kind] else None

    def pair(self, kind: tuple[str, ...], operands: tuple[Operand, ...]) -> tuple[Ramp | None, Ramp | None]:
        """Two operands, of which the second is the same in all lanes."""
        if kind not in WHOLE:
            return None, None
        x, y = (self.read(o, kind[0]) for o in operands)
        if x is not None and y is not None and y.step:
            x, y = y, x
        return (None, None) if y is None or y.step else (x, y)

    def joined(self, x: Ramp, y: Ramp) -> Ramp:
        """What holds where two do."""
        holds = x.holds if y.holds is None else y.holds
        if x.holds is not None and y.holds is not None:
            holds = self.emit(lambda v: v.b.and_(x.holds, y.holds))
        return Ramp(x.bits, 0, 0, x.exact and y.exact, None, None, holds)

    def given(self, x: Ramp, condition: Callable[[VectorBuilder], Any]) -> Ramp:
        """x while a condition holds."""
        new = self.emit(condition)
        holds = new if x.holds is None else self.emit(lambda v: v.b.and_(x.holds, new))
        return x._replace(exact=False, holds=holds)

    def clear(self, x: Ramp, bits: int) -> Ramp:
        """x while some bits of its base are 0."""
        if x.zeros & bits == bits:
            return x
        return self.given(x, lambda v: _is_zero(v, v.b.and_(x.base, ir.Constant(x.base.type, bits))))

    def sum(self, x: Ramp | None, y: Ramp | None) -> Ramp | None:
        if x is None or y is None:
            return None
        low = min(_low_zeros(x.zeros), _low_zeros(y.zeros))
        base = self.emit(lambda v: v.b.add(x.base, y.base))
        step = x.step + y.step & (1 << x.bits) - 1
        return self.joined(x, y)._replace(step=step, zeros=_zeros(x.bits, low, x.most + y.most), base=base)

    def product(self, x: Ramp | None, y: Ramp | None) -> Ramp | None:
        if x is None or y is None:
            return None
        if y.step:
            x, y = y, x
        if y.step or (x.step and y.number is None):
            return None
        whole = (1 << x.bits) - 1
        low = min(x.bits, _low_zeros(x.zeros) + _low_zeros(y.zeros))
        base = self.emit(lambda v: v.b.mul(x.base, y.base))
        both = self.joined(x, y)
        number = None if x.number is None or y.number is None else x.number * y.number & whole
        step = x.step * (y.number or 0) & whole
        return both._replace(step=step, zeros=_zeros(x.bits, low, x.most * y.most), base=base, number=number)

    def resized(self, x: Ramp | None, bits: int, signed: bool) -> Ramp | None:
        if x is None or bits == x.bits:
            return x
        whole = (1 << bits) - 1
        kind = ir.IntType(bits)
        if x.number is not None:
            top = x.number >> x.bits - 1 if signed and bits > x.bits else 0
            return constant(bits, x.number - (top << x.bits))
        if bits < x.bits:
            base = self.emit(lambda v: v.b.trunc(x.base, kind))
            return x._replace(bits=bits, step=x.step & whole, zeros=x.zeros & whole, base=base)
        step = x.step - (x.step >> x.bits - 1 << x.bits)  # as a signed number
        distance = step * (LANES - 1)
        if abs(distance) >> x.bits - 1:
            return None
        most = x.most
        certain = not step or (distance > 0 and most + distance < 1 << x.bits - signed)
        found = x if certain else self.given(x, lambda v: _stays(v, x.base, distance, signed))
        known = x.zeros | (whole ^ (1 << x.bits) - 1)
        zeros = known if not signed or x.zeros >> x.bits - 1 else x.zeros
        base = self.emit(lambda v: v.b.sext(x.base, kind) if signed else v.b.zext(x.base, kind))
        return found._replace(bits=bits, step=step & whole, zeros=zeros, base=base)


def _is_zero(v: VectorBuilder, x: Any) -> Any:
    return v.b.icmp_unsigned("==", x, ir.Constant(x.type, 0))


def _stays(v: VectorBuilder, x: Any, distance: int, signed: bool) -> Any:
    """Whether x + distance, of the last lane, is no other number where it is extended."""
    least = -(1 << x.type.width - 1) if signed else 0
    most = least + (1 << x.type.width) - 1
    compared = v.b.icmp_signed if signed else v.b.icmp_unsigned
    return (
        compared("<=", x, ir.Constant(x.type, most - distance))
        if distance > 0
        else compared(">=", x, ir.Constant(x.type, least - distance))
    )


def _zeros(bits: int, low: int, most: int) -> int:
    """The bits that are 0 in what has so many zeros below, and is at most so large if that fits."""
    below = ~(-1 << low)
    return (below | -1 << most.bit_length() if most >> bits == 0 else below) & (1 << bits) - 1


def _low_zeros(zeros: int) -> int:
    """How many of the lowest bits are known to be 0."""
    return (~zeros & zeros + 1).bit_length() - 1


WHOLE = frozenset((f"{kind}{bits}",) for kind in "bus" for bits in (32, 64))
Rule = Callable[[_Rules, tuple[str, ...], tuple[Operand, ...]], Ramp | None]
RULES: dict[str, Rule] = {
    "mov": _Rules.mov, "cvt": _Rules.cvt, "add": _Rules.add, "sub": _Rules.sub, "mul": _Rules.mul, "mad": _Rules.mad,
    "shl": _Rules.shl, "shr": _Rules.shr, "and": _Rules.bits_and, "or": _Rules.bits_or, "xor": _Rules.bits_xor,
}  # fmt: skip
