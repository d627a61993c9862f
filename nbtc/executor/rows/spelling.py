"""Modifiers in the order that the PTX ISA gives them.

ptxas takes the modifiers of an instruction in any order, and compilers and libraries write a few of them their own way
(`ld.global.acquire.gpu.b32`, `prmt.b32.f4e`).  A program is spelled as the rows are before anything reads it, so that
rows and what they emit know one order alone.
"""

from __future__ import annotations

from functools import cache

from nbtc.executor.emit.action import Action
from nbtc.executor.emit.form import Form, in_order
from nbtc.executor.rows import actions, forms
from nbtc.executor.text.data import Function, Instruction, Module


@cache
def modifiers_of(opcode: str, modifiers: tuple[str, ...]) -> tuple[str, ...]:
    """Modifiers in the order of the row that takes them; as they are, where a row takes them so or none does.

    >>> modifiers_of("fma", ("f32", "rn"))
    ('rn', 'f32')
    >>> modifiers_of("fma", ("f32", "odd"))
    ('f32', 'odd')
    """
    rows: list[Form | Action] = [*forms.by_opcode().get(opcode, ()), *actions.by_opcode().get(opcode, ())]
    if any(row.matches(modifiers) for row in rows):
        return modifiers
    found = (in_order(row.slots, modifiers) for row in rows if row.slots)
    return next((f for f in found if f is not None), modifiers)


def respelled(i: Instruction) -> Instruction:
    """An instruction with its modifiers in the order of the row that takes them."""
    modifiers = modifiers_of(i.opcode, i.modifiers)
    return i if modifiers == i.modifiers else i._replace(modifiers=modifiers)


def _function(function: Function) -> Function:
    return function if function.body is None else function._replace(body=tuple(map(respelled, function.body)))


def spelled(module: Module) -> Module:
    """A module whose instructions are spelled as the rows are."""
    return module._replace(functions={name: _function(f) for name, f in module.functions.items()})
