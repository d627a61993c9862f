"""Rows of ldmatrix, stmatrix and movmatrix: 8x8 matrices between shared memory and lanes (PTX ISA, "ldmatrix",
"stmatrix", "movmatrix").

Operand d (s of a store) is laid out over the *memory rows* of all matrices stacked: `coords()` gives, for each register
slot, the row (one lane's address each) and the element in it.
"""

from __future__ import annotations

from collections.abc import Iterator

from nbtc.isa.layouts import STACK, ldmatrix_layout
from nbtc.isa.spec import NEWER, Operand, Row

# shape, transposed, type as spelled, counts, first target
Stack = tuple[str, bool, str, tuple[int, ...], str]
LOADS: tuple[Stack, ...] = (
    ("m8n8", False, "b16", (1, 2, 4), "sm_75"),
    ("m8n8", True, "b16", (1, 2, 4), "sm_75"),
    ("m16n16", True, "b8", (1, 2), "sm_100a"),
    ("m16n16", True, "b8x16.b6x16_p32", (1, 2), "sm_100a"),
    ("m16n16", True, "b8x16.b4x16_p64", (1, 2), "sm_100a"),
    ("m8n16", False, "b8x16.b6x16_p32", (1, 2, 4), "sm_100a"),
    ("m8n16", False, "b8x16.b4x16_p64", (1, 2, 4), "sm_100a"),
)
STORES: tuple[Stack, ...] = (
    ("m8n8", False, "b16", (1, 2, 4), "sm_90"),
    ("m8n8", True, "b16", (1, 2, 4), "sm_90"),
    ("m16n8", True, "b8", (1, 2, 4), "sm_100a"),
)


def _operand(shape: str, trans: bool, kind: str, number: int) -> Operand:
    fmt = NEWER["b16" if kind == "b16" else "b8"]
    rows, cols = STACK[shape] * number, 8 if kind == "b16" else 16
    elements = rows * cols // 32
    return Operand(fmt, rows, cols, elements * fmt.bits // 32, elements, ldmatrix_layout(shape, trans, number))


def _stacks(family: str, table: tuple[Stack, ...]) -> Iterator[tuple[str, str, Operand]]:
    """(mnemonic, first target, operand) of each form in a table."""
    for shape, trans, kind, numbers, target in table:
        for number in numbers:
            name = f"{family}.sync.aligned.{shape}.x{number}{'.trans' if trans else ''}.{kind}"
            yield name, target, _operand(shape, trans, kind, number)


def loads() -> Iterator[Row]:
    """Rows of ldmatrix."""
    for name, target, d in _stacks("ldmatrix", LOADS):
        yield Row(name, "ldmatrix", target, d=d, syntax=(f"r{{{d.registers}}} p[]",))


def stores() -> Iterator[Row]:
    """Rows of stmatrix: operand a holds what is stored."""
    for name, target, a in _stacks("stmatrix", STORES):
        yield Row(name, "stmatrix", target, a=a, syntax=(f"p[] r{{{a.registers}}}",))


def transposes() -> Iterator[Row]:
    """The one row of movmatrix."""
    source, result = _operand("m8n8", False, "b16", 1), _operand("m8n8", True, "b16", 1)
    yield Row("movmatrix.sync.aligned.m8n8.trans.b16", "movmatrix", "sm_75", a=source, d=result, syntax=("d a",))
