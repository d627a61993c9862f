"""Modifiers in the order that the PTX ISA gives them.

ptxas takes the modifiers of an instruction in any order, and compilers and libraries write a few of them their own way
(`ld.global.acquire.gpu.b32`, `prmt.b32.f4e`).  Only the first words of some are part of the name and stay where they
are: `mul.s32.lo` is no multiplication (tests/executor/rows/ptxas_spellings.txt).  A program is spelled as the rows are
before anything reads it, so that rows and what they emit know one order alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import takewhile
from types import MappingProxyType

from nbtc.executor.emit.action import Action
from nbtc.executor.emit.form import Form, in_order
from nbtc.executor.rows import actions, forms
from nbtc.executor.text.data import Function, Instruction, PtxModule

# Modifiers that ptxas reads as a part of the instruction's name.
NAMES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        opcode: frozenset(words.split())
        for opcodes, words in (
            ("mul mad madc mul24 mad24 dp2a", "lo hi wide"),
            ("shf", "l r"),
            ("cvt", "pack"),
            ("cvta", "to"),
            ("createpolicy", "fractional range cvt"),
            ("setmaxnreg", "inc dec"),
            ("tensormap", "replace cp_fenceproxy"),
            ("multimem", "ld_reduce st red cp"),
            ("fence", "proxy"),
            ("bar", "cta warp sync arrive red"),
            ("barrier", "cta cluster arrive wait red"),
            ("mbarrier", "init inval arrive arrive_drop test_wait try_wait parity expect_tx complete_tx pending_count"),
            ("cp", "async bulk reduce prefetch tensor commit_group wait_group wait_all mbarrier arrive"),
            ("wgmma", "fence mma_async commit_group wait_group"),
            ("tcgen05", "alloc dealloc relinquish_alloc_permit ld st red cp shift mma ws sp commit wait fence"),
        )
        for opcode in opcodes.split()
    }
)


def _keeps_name(opcode: str, written: tuple[str, ...], spelled: tuple[str, ...]) -> bool:
    """Whether the words of an instruction's name are the first ones of a text, as the row spells them."""
    words = NAMES.get(opcode, frozenset())
    name = tuple(takewhile(words.__contains__, spelled))
    return written[: len(name)] == name


@cache
def modifiers_of(opcode: str, modifiers: tuple[str, ...]) -> tuple[str, ...]:
    """Modifiers in the order of the row that takes them; as they are, where a row takes them so or none does.

    >>> modifiers_of("fma", ("f32", "rn"))
    ('rn', 'f32')
    >>> modifiers_of("mul", ("s32", "lo"))
    ('s32', 'lo')
    """
    rows: list[Form | Action] = [*forms.by_opcode().get(opcode, ()), *actions.rows_of(opcode)]
    if any(row.matches(modifiers) for row in rows):
        return modifiers
    found = (in_order(row.slots, modifiers) for row in rows if row.slots)
    return next((f for f in found if f is not None and _keeps_name(opcode, modifiers, f)), modifiers)


def respelled(i: Instruction) -> Instruction:
    """An instruction with its modifiers in the order of the row that takes them."""
    modifiers = modifiers_of(i.opcode, i.modifiers)
    return i if modifiers == i.modifiers else i._replace(modifiers=modifiers)


def _function(function: Function) -> Function:
    return function if function.body is None else function._replace(body=tuple(map(respelled, function.body)))


def spelled(module: PtxModule) -> PtxModule:
    """A module whose instructions are spelled as the rows are."""
    return module._replace(functions={name: _function(f) for name, f in module.functions.items()})
