"""Which lanes' registers come of which, where a whole warp works on matrices: `ldmatrix`, `mma`, `shfl.bfly`.

Masks have a bit a lane.  Lane 4 g + t of an 8 x 8 matrix has elements 2 t and 2 t + 1 of row g, of a matrix that is
transposed those of column g (PTX ISA, "Matrix Fragments for mma.m16n8k16").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I32
from nbtc.executor.rows.uses import use_of
from nbtc.executor.text.data import Function, Immediate, Instruction, Pair, Register, Vector

FIRST_LANES = 0x11111111  # of the eight groups of four
WHOLE_WARP = 31  # shfl's last operand but one, where no lane is left out


def _shape(i: Instruction) -> str:
    return next((m for m in i.modifiers if m.startswith("m") and m[1:2].isdigit()), "")


def numbers(function: Function) -> Mapping[str, int]:
    """The registers that are a number: written once, by a `mov` of it, as nvcc writes shfl's operands."""
    writes = Counter(r.name for i in function.body or () for r in use_of(i).writes)
    moves = [i.operands for i in function.body or () if i.opcode == "mov" and i.guard is None]
    return {
        to.name: x.value
        for to, x in (operands for operands in moves if len(operands) == 2)
        if isinstance(to, Register) and isinstance(x, Immediate) and writes[to.name] == 1
    }


def number(operand: Any, known: Mapping[str, int]) -> int | None:
    """An operand's value, where the text says it."""
    if isinstance(operand, Register):
        return known.get(operand.name)
    return operand.value if isinstance(operand, Immediate) else None


def passes(i: Instruction, known: Mapping[str, int]) -> bool:
    """Whether it is known here which lanes' results an instruction's operands come to; known: `numbers`."""
    if i.opcode == "mma":
        sparse_or_scaled = any(m.startswith(("sp", "block_scale")) for m in i.modifiers)
        rows = _shape(i).startswith(("m16n8k", "m8n8k")) and not (_shape(i) == "m8n8k4" and "f64" not in i.modifiers)
        return rows and not sparse_or_scaled and len(i.operands) == 4 and len(_elements(i.operands[0])) in (2, 4)
    if i.opcode == "shfl" and "bfly" in i.modifiers:
        by, clamp = (number(x, known) for x in i.operands[2:4])
        return isinstance(i.operands[0], Register | Pair) and by in range(32) and clamp == WHOLE_WARP
    return False


def _elements(operand: Any) -> tuple[Any, ...]:
    return operand.elements if isinstance(operand, Vector) else (operand,)


def results(i: Instruction) -> tuple[Any, ...]:
    """What an instruction that passes writes; of `shfl` also whether the other lane is there, as nvcc always asks."""
    target = i.operands[0]
    return (target.first, target.second) if isinstance(target, Pair) else _elements(target)


class Masks:
    """Code for masks of lanes."""

    def __init__(self, b: Any) -> None:
        self.b = b

    def any(self, masks: Sequence[Any]) -> Any:
        """The lanes of any of them."""
        return reduce(self.b.or_, masks, ir.Constant(I32, 0))

    def _and(self, x: Any, bits: int) -> Any:
        return self.b.and_(x, ir.Constant(I32, bits))

    def _left(self, x: Any, by: int) -> Any:
        return self.b.shl(x, ir.Constant(I32, by))

    def _right(self, x: Any, by: int) -> Any:
        return self.b.lshr(x, ir.Constant(I32, by))

    def _groups(self, x: Any) -> Any:
        """The first lane of each group of four of which there is one."""
        pairs = self.b.or_(x, self._right(x, 1))
        return self._and(self.b.or_(pairs, self._right(pairs, 2)), FIRST_LANES)

    def _times(self, x: Any, factor: int) -> Any:
        return self.b.mul(x, ir.Constant(I32, factor))

    def rows(self, x: Any) -> Any:
        """All lanes of a row of which there is one."""
        return self._times(self._groups(x), 15)

    def columns(self, x: Any) -> tuple[Any, Any]:
        """Of B, where group n has column n: the lanes of D with column 2 t, and those with 2 t + 1, as that is there.

        The product moves bit 8 t to bit 24 + t: of the bits 8 t + 24 - 7 t', all different, it is the one with t' = t.
        """
        groups = self._groups(x)
        odd = self._right(groups, 4)
        even, odd = (self._right(self._times(self._and(n, 0x01010101), 0x01020408), 24) for n in (groups, odd))
        return self._times(even, FIRST_LANES), self._times(odd, FIRST_LANES)

    def matrix(self, words: Sequence[Any], transposed: bool) -> Any:
        """What lanes get of an 8 x 8 matrix; words: of each of a row's four words, eight bits for the rows."""
        found = []
        for n, x in enumerate(words):
            if transposed:  # word n has columns 2 n and 2 n + 1
                pairs = self._and(self.b.or_(x, self._right(x, 1)), 0x55)
                fours = self._and(self.b.or_(pairs, self._right(pairs, 1)), 0x33)
                found.append(
                    self._left(self._times(self._and(self.b.or_(fours, self._right(fours, 2)), 15), 17), 8 * n)
                )
            else:
                for by, kept in ((12, 0x000F000F), (6, 0x03030303), (3, FIRST_LANES)):
                    x = self._and(self.b.or_(x, self._left(x, by)), kept)
                found.append(self._left(x, n))
        return self.any(found)

    def exchanged(self, x: Any, by: int) -> Any:
        """Every lane's bit from the one whose number differs by an exclusive or."""
        for n in range(5):
            if by >> n & 1:
                low = sum(1 << lane for lane in range(32) if not lane >> n & 1)
                x = self.b.or_(self._and(self._right(x, 1 << n), low), self._left(self._and(x, low), 1 << n))
        return x

    def product(self, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> list[Any]:
        """D's registers of `mma`, from those of A, B and C: an element counts as much as its row, column and addend."""
        tall = len(a) > 1  # 16 rows: every other register is of the lower eight
        parts = [self.rows(self.any(a[n::2] if tall else a)) for n in range(2 if tall else 1)]
        even, odd = self.columns(self.any(b))
        packed = len(c) == len(parts)  # two columns a register
        found = []
        for n, addend in enumerate(c):
            columns = self.b.or_(even, odd) if packed else odd if n % 2 else even
            row = parts[n * len(parts) // len(c)]
            found.append(self.any([row, columns, addend]))
        return found
