"""Registers of products that are under way: which instructions must not touch them, and which need a fence first.

(PTX ISA, "wgmma.fence", "wgmma.wait_group".)  Accumulators and fragments of A form sets, a bit each.  A warp remembers
the sets of products that it has not waited for, and those with a register written since the last wgmma.fence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.builder import I32, I64
from nbtc.executor.emit.lanes import Lanes
from nbtc.executor.rows.uses import use_of
from nbtc.executor.text.data import Function, Instruction, Vector
from nbtc.executor.text.operands import registers
from nbtc.executor.watch import words

MOST_SETS = 63  # bits of a word but the sign; the registers of more are not watched


class Sets(NamedTuple):
    """Of a function: the sets of each register as bits, a product that each bit is of, and the sets whose registers
    others are moved from."""

    bits: Mapping[str, int]
    products: tuple[Instruction, ...]
    copies: Mapping[str, int]

    def of(self, names: Any) -> int:
        """The sets of some registers."""
        return _union(self.bits, names)

    def copied(self, names: Any) -> int:
        """The sets that some registers may be copies of."""
        return _union(self.copies, names)


def _union(bits: Mapping[str, int], registers: Any) -> int:
    found = 0
    for register in registers:
        found |= bits.get(register.name, 0)
    return found


def is_product(instruction: Instruction) -> bool:
    """Whether an instruction is a product of a warpgroup."""
    return instruction.opcode == "wgmma" and instruction.modifiers[0] == "mma_async"


def fragments(instruction: Instruction) -> list[tuple[str, ...]]:
    """Names of the registers of D, and of A where it is in registers."""
    d, a = instruction.operands[:2]
    return [tuple(r.name for r in registers(x)) for x in (d, a) if x is d or isinstance(x, Vector)]


def sets_of(function: Function) -> Sets:
    """The sets of a function's products."""
    known: dict[tuple[str, ...], int] = {}
    products: list[Instruction] = []
    bits: dict[str, int] = {}
    for instruction in function.body or ():
        if not is_product(instruction):
            continue
        for names in fragments(instruction):
            if names not in known and len(known) < MOST_SETS:
                known[names] = 1 << len(known)
                products.append(instruction)
                for name in names:
                    bits[name] = bits.get(name, 0) | known[names]
    return Sets(bits, tuple(products), _copies(function, bits))


def _copies(function: Function, bits: Mapping[str, int]) -> Mapping[str, int]:
    """The sets that each register is moved from, directly or by way of others."""
    found: dict[str, int] = {}
    moves = [use_of(i) for i in function.body or () if i.opcode == "mov"] if bits else []
    changed = True
    while changed:
        changed = False
        for use in moves:
            mine = _union(bits, use.reads) | _union(found, use.reads)
            for register in use.writes:
                changed |= mine & ~found.get(register.name, 0) != 0
                found[register.name] = found.get(register.name, 0) | mine
    return found


def record(lanes: Lanes) -> Any:
    """Pointer to the warp's words."""
    v, b = lanes.v, lanes.b
    base = b.add(lanes.get("block", "watch"), v.int(words.WARPS))
    index = b.zext(lanes.get("warp", "index"), I64)
    return b.inttoptr(b.add(base, b.mul(index, v.int(words.WARP_BYTES))), ir.IntType(8).as_pointer())


def touched(lanes: Lanes, sets: Sets, complain: Any) -> None:
    """Before an instruction that is no product: look at the sets it touches, and note those it writes.

    `complain(bits)` is emitted where some of the bits are of products under way.  Compilers move such registers before
    they wait and use the copies after that, which is nothing to the hardware: a mov is for others to answer for, who
    use what it wrote.
    """
    use = use_of(lanes.instruction)
    moves = lanes.instruction.opcode == "mov"
    mine = sets.of(use.writes if moves else (*use.reads, *use.writes))
    moved = sets.of(use.reads) if moves else sets.copied(use.reads)
    computes = use.row is not None and use.row.form is not None
    written = sets.of(use.writes) if computes else 0  # compilers leave copies and loads after a fence to ptxas
    if not mine | moved:
        return
    v, b = lanes.v, lanes.b
    here = record(lanes)
    some = b.icmp_unsigned("!=", lanes.active, ir.Constant(I32, 0))
    under_way, before = (v.load(here, I64, 8, at) for at in (words.SETS_PENDING, words.SETS_MOVED))
    pending = b.and_(under_way, v.int(mine))
    if moves and moved:
        now = b.select(some, b.and_(under_way, v.int(moved)), v.int(0))
        v.store(b.or_(before, now), here, 8, words.SETS_MOVED)
    elif moved:
        pending = b.or_(pending, b.and_(b.and_(under_way, before), v.int(moved)))
    with b.if_then(b.and_(some, b.icmp_unsigned("!=", pending, v.int(0))), likely=False):
        complain(pending)
    if written:
        dirty = v.load(here, I64, 8, words.SETS_DIRTY)
        v.store(b.or_(dirty, b.select(some, v.int(written), v.int(0))), here, 8, words.SETS_DIRTY)


def unfenced(lanes: Lanes, sets: Sets, complain: Any) -> int:
    """Before a product: its sets; `complain(bits)` is emitted where some were written since the last fence."""
    mine = 0
    for names in fragments(lanes.instruction):
        common = -1
        for name in names:
            common &= sets.bits.get(name, 0)
        mine |= common
    v, b = lanes.v, lanes.b
    dirty = b.and_(v.load(record(lanes), I64, 8, words.SETS_DIRTY), v.int(mine))
    with b.if_then(b.icmp_unsigned("!=", dirty, v.int(0)), likely=False):
        complain(dirty)
    return mine
