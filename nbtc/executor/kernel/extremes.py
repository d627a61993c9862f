"""`min` and `max` of a value with itself, which ptxas leaves out: a NaN keeps its bits, as in a move.

Those of f32, f64 and f16 without modifiers are moves: with .ftz they are sums with -0, with .NaN and of other types
minima and maxima like others.  The same value is that of one register, of which there may be copies; products by 1 are
copies, too.  Seen in the programs of powers.py; of f16 in single ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nbtc.executor.kernel.products import Products
from nbtc.executor.text.data import WIDTHS, Instruction, Operand, Register

MOVED = frozenset({("f32",), ("f64",), ("f16",)})


def extreme(i: Instruction) -> bool:
    """Whether an instruction is a move if its operands are the same."""
    return i.opcode in ("min", "max") and i.modifiers in MOVED and len(i.operands) == 3


def moved(products: Products, parts: Iterable[list[Instruction]]) -> Iterator[list[Instruction]]:
    """What stands for each of the instructions; parts: what would stand for the others."""
    for at, (i, part) in enumerate(zip(products.instructions, parts, strict=True)):
        if extreme(i) and _origin(products, at, i.operands[1]) == _origin(products, at, i.operands[2]):
            width = f"b{WIDTHS[i.modifiers[0]]}" if isinstance(i.operands[1], Register) else i.modifiers[0]
            yield [i._replace(opcode="mov", modifiers=(width,), operands=i.operands[:2])]
        else:
            yield part


def _origin(products: Products, at: int, operand: Operand) -> tuple[int, Operand]:
    """What tells an operand's value: the register that had it first, and where that was written.

    Of a register that several instructions may have written, the place is the last one in the block that writes it, or
    the block's first: what reads it there before another one writes it reads the same.
    """
    while isinstance(operand, Register):
        made = products.made(at, operand)
        copied = None if made is None else _copied(products, made)
        if made is None or copied is None:
            return _written(products, at, operand) if made is None else made, operand
        at, operand = made, copied
    return 0, operand


def _copied(products: Products, at: int) -> Register | None:
    """The register that an instruction copies, if it does."""
    i = products.instructions[at]
    sources = [x for x in i.operands[1:] if isinstance(x, Register)]
    return next((x for x in sources if products.turned(at, x, i.modifiers[-1], False) is False), None)


def _written(products: Products, at: int, register: Register) -> int:
    """The last place before another one in its block where a register is written, or the block's first."""
    block = products.blocks[at]
    while at and products.blocks[at - 1] == block:
        at -= 1
        if register.name in products.writes[at]:
            break
    return at
