"""What operands are made of."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from nbtc.executor.text.data import Address, Group, Not, Operand, Pair, Register, Selected, Special, Symbol, Vector


def registers(operand: Operand) -> Iterator[Register]:
    """Every register in an operand."""
    if isinstance(operand, Register):
        yield operand
    elif isinstance(operand, Not | Selected):
        yield operand.register
    elif isinstance(operand, Vector | Group):
        for element in operand.elements:
            yield from registers(element)
    elif isinstance(operand, Pair):
        yield from registers(operand.first)
        yield from registers(operand.second)
    elif isinstance(operand, Address):
        yield from registers(operand.base)
        for part in operand.rest:
            yield from registers(part)


def others(operand: Operand) -> Iterator[Special | Symbol]:
    """Every special register and symbol in an operand."""
    if isinstance(operand, Special | Symbol):
        yield operand
    elif isinstance(operand, Vector | Group):
        for element in operand.elements:
            yield from others(element)
    elif isinstance(operand, Address):
        yield from others(operand.base)
        for part in operand.rest:
            yield from others(part)


def shape(operand: Operand) -> Hashable:
    """An operand without its registers' names: of registers the types, anything else as it is."""
    if isinstance(operand, Register):
        return operand.type
    if isinstance(operand, Vector):
        return tuple(map(shape, operand.elements))
    if isinstance(operand, Address) and isinstance(operand.base, Register):
        return Address, operand.base.type, tuple(map(shape, operand.rest))
    return operand
