"""Registers of products that are under way: which instructions must not touch them, and which need a fence first.

(PTX ISA, "wgmma.fence", "wgmma.wait_group".)  Accumulators and fragments of A form sets, a bit each.  A warp remembers
the sets of products that it has not waited for, and those with a register written since the last wgmma.fence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.builder import I32, I64
from nbtc.executor.data import Function, Instruction, Vector
from nbtc.executor.lanes import Lanes
from nbtc.executor.operands import registers
from nbtc.executor.uses import use_of
from nbtc.executor.watch import words

MOST_SETS = 63  # bits of a word but the sign; the registers of more are not watched


class Sets(NamedTuple):
    """Of a function: the sets of each register as bits, and a product that each bit is of."""

    bits: Mapping[str, int]
    products: tuple[Instruction, ...]

    def of(self, names: Any) -> int:
        """The sets of some registers."""
        found = 0
        for register in names:
            found |= self.bits.get(register.name, 0)
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
    return Sets(bits, tuple(products))


def record(lanes: Lanes) -> Any:
    """Pointer to the warp's words."""
    v, b = lanes.v, lanes.b
    base = b.add(lanes.get("block", "watch"), v.int(words.WARPS))
    index = b.zext(lanes.get("warp", "index"), I64)
    return b.inttoptr(b.add(base, b.mul(index, v.int(words.WARP_BYTES))), ir.IntType(8).as_pointer())


def touched(lanes: Lanes, sets: Sets, complain: Any) -> None:
    """Before an instruction that is no product: look at the sets it touches, and note those it writes.

    `complain(bits)` is emitted where some of the bits are of products under way.
    """
    use = use_of(lanes.instruction)
    mine = sets.of((*use.reads, *use.writes))
    computes = use.row is not None and use.row.form is not None
    written = sets.of(use.writes) if computes else 0  # compilers leave copies and loads behind a fence to ptxas
    if not mine:
        return
    v, b = lanes.v, lanes.b
    here = record(lanes)
    some = b.icmp_unsigned("!=", lanes.active, ir.Constant(I32, 0))
    pending = b.and_(v.load(here, I64, 8, words.SETS_PENDING), v.int(mine))
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
