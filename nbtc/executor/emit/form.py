"""What one scalar instruction form is: a row, and the text that names it.

A row (`Form`) says which modifiers an instruction takes, in which order, which types its operands have, and how its
arithmetic is emitted.  It names every modifier it implements: text with any other is not a form.

The contract of `emit(v, op, *sources)`: `v` is a `VectorBuilder`; sources and results are LLVM integers that hold
bits (`pred` is i1), either all of them scalars or all of them `<32 x iN>`, and the same code serves both.  Immediates
come as LLVM constants.  The type `cc` stands for the carry flag, which no operand names.  A result whose type is
narrower than its register is extended by the caller: with the sign if the type is signed, else with zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

WIDTHS = {
    **{f"{kind}{bits}": bits for kind in "bus" for bits in (8, 16, 32, 64)},
    **dict.fromkeys(("pred", "cc"), 1),
    "e2m1x2": 8,
    **dict.fromkeys(("f16", "bf16", "e4m3x2", "e5m2x2", "e2m3x2", "e3m2x2", "ue8m0x2"), 16),
    **dict.fromkeys(("f32", "tf32", "u8x4", "s8x4", "u16x2", "s16x2", "f16x2", "bf16x2"), 32),
    **dict.fromkeys(("f64", "f32x2"), 64),
    "b128": 128,
}
OPTIONAL = ""  # among a slot's choices: the slot may be left out

Slot = tuple[str, ...]


class Op(NamedTuple):
    """One instruction's name, split: the opcode and its modifiers in the order of the text.

    selectors: what an operand's name is followed by (`.h0`, `.b3210`) or preceded by (`-`), one text an operand,
    destination first; only forms with `selectors` set read it.
    """

    opcode: str
    modifiers: tuple[str, ...]
    selectors: tuple[str, ...] = ()

    def has(self, modifier: str) -> bool:
        """Whether the instruction carries a modifier."""
        return modifier in self.modifiers

    def among(self, choices: tuple[str, ...], default: str = "") -> str:
        """The first modifier that is one of `choices`, or `default`."""
        return next((m for m in self.modifiers if m in choices), default)

    @property
    def types(self) -> tuple[str, ...]:
        """The modifiers that are types, in order."""
        return tuple(m for m in self.modifiers if m in WIDTHS)

    @property
    def text(self) -> str:
        """The instruction's name as PTX writes it."""
        return ".".join((self.opcode, *self.modifiers))


Emit = Callable[..., Any]


def choices_of(slots: tuple[Slot, ...], modifiers: tuple[str, ...]) -> bool:
    """Whether modifiers are one choice of each slot, in the order of the slots."""
    rest = list(modifiers)
    for slot in slots:
        if rest and rest[0] in slot:
            rest.pop(0)
        elif OPTIONAL not in slot:
            return False
    return not rest


_SPACES = ("global", "shared", "shared::cta", "shared::cluster", "local")
_ORDERED = (frozenset(WIDTHS) - {"cc"}, frozenset(_SPACES))


def in_order(slots: tuple[Slot, ...], modifiers: tuple[str, ...]) -> tuple[str, ...] | None:
    """Modifiers in the order of the slots, or None where they are no choice of each slot.

    Types and state spaces keep the order of the text, which says what each is for (`cvt.f16.f32` is not `cvt.f32.f16`).

    >>> in_order(slots("acquire|relaxed?", "global?", "b32"), ("global", "acquire", "b32"))
    ('acquire', 'global', 'b32')
    >>> in_order(slots("lo", "cc", "u64"), ("lo", "u64", "cc"))
    ('lo', 'cc', 'u64')
    >>> in_order(slots("rn", "f16", "f32"), ("f32", "f16", "rn")) is None
    True
    """
    rest, found = list(modifiers), []
    for slot in slots:
        choice = next((m for m in rest if m in slot), OPTIONAL)
        if choice:
            rest.remove(choice)
            found.append(choice)
        elif OPTIONAL not in slot:
            return None
    kept = all([m for m in modifiers if m in alike] == [m for m in found if m in alike] for alike in _ORDERED)
    return tuple(found) if kept and not rest else None


class Form(NamedTuple):
    """One row: `opcode` with one choice of each slot, in order.

    sources, results: PTX types of the operands.  optional: how many of the last sources may be left out; `emit` then
    gets fewer.  selectors: operands may carry `.b0`, `.h1`, a minus sign.  evidence: what says that the bits are
    the hardware's, where the PTX ISA leaves them open; "" where it defines them.
    mixed: `emit` takes numbers that all lanes share as they are, beside vectors.
    A second result of type `pred` (`p|q`) may be left out in the text.
    """

    opcode: str
    slots: tuple[Slot, ...]
    sources: tuple[str, ...]
    results: tuple[str, ...]
    emit: Emit
    optional: int = 0
    selectors: bool = False
    evidence: str = ""
    mixed: bool = False

    def matches(self, modifiers: tuple[str, ...]) -> bool:
        """Whether the modifiers are one choice of each slot, in the order of the slots."""
        return choices_of(self.slots, modifiers)


def slots(*choices: str) -> tuple[Slot, ...]:
    """Slots written briefly: "ftz?" may be left out, "rn|rz" is one of two, "rn|rz?" one of two or none."""
    return tuple((*c.removesuffix("?").split("|"), *([OPTIONAL] if c.endswith("?") else [])) for c in choices)
