"""Rows of multimem: loads, stores and reductions at an address that stands for the same memory of several devices.

(PTX ISA, "multimem.ld_reduce, multimem.st, multimem.red".)  Programs run here on one device, so such an address stands
for one place: there is nothing to reduce, and an array given to the program is its own multicast address.
"""

from __future__ import annotations

from nbtc.executor.emit.action import Action, Emit
from nbtc.executor.emit.form import slots
from nbtc.executor.emit.lanes import Lanes
from nbtc.executor.memory.atomics import SCOPES, act, split
from nbtc.executor.memory.memory import ld, st

INTEGERS, BITS = "u32|u64|s32|s64", "b32|b64"
SUMS = "u32|s32|u64"
NARROW = (("f16x2|bf16x2",), ("v2|v4", "f16|bf16|f16x2|bf16x2"), ("v8", "f16|bf16"))
SINGLE = (("f32|f64",), ("v2|v4", "f32"))


def _reduce(lanes: Lanes) -> None:
    """multimem.red: as red of the same name."""
    act(lanes, split(lanes.op.modifiers[1:]))


def _rows(name: str, order: str, which: tuple[tuple[str, ...], ...], emit: Emit, results: int = 0) -> list[Action]:
    """The rows of an instruction: an order with its scope or none, then operation, vector and type."""
    weak = () if emit is _reduce else ("weak?",)
    heads = ((name, order, "|".join(SCOPES), "global?"), (name, *weak, "global?"))
    return [Action("multimem", slots(*head, *tail), emit, results) for head in heads for tail in which]


WIDENED = tuple(("add", "acc::f32", *kinds) for kinds in NARROW)
REDUCED = (
    ("min|max", INTEGERS),
    ("add", SUMS),
    ("and|or|xor", BITS),
    *(("add", *kinds) for kinds in (*SINGLE, *NARROW)),
    *(("min|max", *kinds) for kinds in NARROW),
)
ACTIONS = (
    *_rows("ld_reduce", "relaxed|acquire", (*REDUCED, *WIDENED), ld, 1),
    *_rows("st", "relaxed|release", ((f"{INTEGERS}|{BITS}",), *SINGLE, *NARROW), st),
    *_rows("red", "relaxed|release", tuple(r for r in REDUCED if r != ("min|max", "f16x2|bf16x2")), _reduce),
)
