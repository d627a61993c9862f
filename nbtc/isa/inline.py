"""PTX text of a row: its registers with their types, and the instruction itself, whoever writes the code around it.

One generator serves the kernels that ask a GPU, and the inline assembly of other front ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nbtc.isa.lines import Slot, slots
from nbtc.isa.spec import Operand, Row

WORD, LONG, HALF, BYTE, PREDICATE = "b32", "b64", "b16", "b8", "pred"
# bits of a cvt operand by its type name; pairs of narrow formats lie in one register
_CVT_TYPES = {
    "f32": WORD, "tf32": WORD, "s32": WORD, "f16x2": WORD, "bf16x2": WORD, "f16": HALF, "bf16": HALF, "e4m3x2": HALF,
    "e5m2x2": HALF, "e2m3x2": HALF, "e3m2x2": HALF, "ue8m0x2": HALF, "e2m1x2": BYTE, "e2m1x4": HALF,
    "e2m3x4": WORD, "e3m2x4": WORD, "e4m3x4": WORD, "e5m2x4": WORD,
}  # fmt: skip
_TENSOR_MEMORY = ("d", "a", "meta", "scaleA", "scaleB")  # addresses of tcgen05 have 32 bits


@dataclass(frozen=True)
class InlineRegister:
    """Registers of one operand: `name0`, `name1`, ... of a PTX type; result: the instruction writes them."""

    name: str
    type: str
    count: int = 1
    result: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Each register."""
        return tuple(f"{self.name}{i}" for i in range(self.count))

    @property
    def declaration(self) -> str:
        """The line that declares them."""
        return f".reg .{self.type} {self.name}<{self.count}>;"


def operands(row: Row, syntax: int = -1) -> tuple[InlineRegister, ...]:
    """The registers of an instruction in the order of its operand list; immediates are none.

    syntax: which of the row's operand lists (the last is the longest).

    >>> from nbtc.isa.parse import row
    >>> [str(r.type) + "*" + str(r.count) for r in operands(row("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"))]
    ['b64*2', 'b64*1', 'b64*1', 'b64*2']
    """
    found = []
    for slot in slots(row.syntax[syntax]):
        if slot.values is None and not slot.pair:
            found.append(_register(row, slot))
            if slot.pred:
                found.append(InlineRegister(slot.pred, PREDICATE, 1, True))
    return tuple(found)


def text(row: Row, immediates: Mapping[str, object] | None = None, syntax: int = -1) -> str:
    """The instruction on the registers that `operands` lists.

    immediates: values of operands that are numbers, by name; the first legal one where not given.

    >>> from nbtc.isa.parse import row
    >>> text(row("mma.sp.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"), {"selector": 2})
    'mma.sp.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {d0, d1}, {a0, a1}, {b0, b1}, {c0, c1}, e0, 2;'
    """
    given = immediates or {}
    words = [_word(row, slot, given) for slot in slots(row.syntax[syntax])]
    return f"{row.mnemonic} {', '.join(words)};" if words else f"{row.mnemonic};"


def _word(row: Row, slot: Slot, given: Mapping[str, object]) -> str:
    if slot.values is not None:
        return str(given.get(slot.name, slot.values[0] if slot.values else 0))
    if slot.pair:
        names = slot.pair[1:-1].split(",")
        return f"{{{', '.join(str(given.get(n, 0)) for n in names)}}}"
    register = _register(row, slot)
    if slot.count:
        return f"{{{', '.join(register.names)}}}"
    if slot.address:
        return f"[{register.names[0]}]"
    return register.names[0] + (f"|{slot.pred}0" if slot.pred else "")


def _register(row: Row, slot: Slot) -> InlineRegister:
    written = slot.name == "d" and not slot.address and not row.mnemonic.startswith("tcgen05")
    written = written or (slot.name == "r" and not row.family.endswith(("store", "stmatrix")))
    if slot.count:
        long = _is_double(row, slot.name)
        return InlineRegister(slot.name, LONG if long else WORD, slot.count, written)
    return InlineRegister(slot.name, _type(row, slot), 1, written)


def _is_double(row: Row, name: str) -> bool:
    """Whether the elements of a vector operand are f64; `r` is the one fragment of a load or store."""
    held: Operand | None = getattr(row, name, None) if name != "r" else row.a or row.b or row.c or row.d
    return held is not None and held.format.bits == 64


def _type(row: Row, slot: Slot) -> str:
    """The type of a register that is no vector."""
    if slot.mark == "!":
        return PREDICATE
    if slot.address:
        tensor_memory = row.family == "tcgen05.mma" and slot.name in _TENSOR_MEMORY
        return WORD if tensor_memory else LONG
    if slot.name.startswith("desc") or (slot.name == "a" and row.mnemonic.endswith(".b64")):
        return LONG
    if row.family == "vote.sync" and (slot.name == "a" or (slot.name == "d" and row.mnemonic.endswith(".pred"))):
        return PREDICATE
    if row.family == "cvt" and slot.name in ("d", "a", "b") and ".pack." not in row.mnemonic:
        target, source = row.mnemonic.rsplit(".", 2)[1:]
        return _CVT_TYPES[target if slot.name == "d" else source]
    return WORD


DPX_NAME = re.compile(r"vi(?P<with>add|b)?(?P<pick>max|min)(?P<three>3)?_(?P<type>[su]32|[su]16x2)(?P<relu>_relu)?")


def dpx_text(name: str) -> tuple[str, int]:
    """A DPX function as PTX lines on registers d0, a0, b0, c0, and its number of predicates, words p0 and p1.

    t0 and t1 are spare words, h0 to h3 spare halves, q0 and q1 spare predicates.  (CUDA C++ Programming Guide, "Dynamic
    Programming eXtension"; PTX ISA, "min", "max", "add", "setp".)

    >>> dpx_text("viaddmax_s16x2_relu")
    ('add.s16x2 t0, a0, b0; max.s16x2.relu d0, t0, c0;', 0)
    """
    m = DPX_NAME.fullmatch(name)
    if m is None:
        raise LookupError(f"{name} is not a DPX function")
    pick, kind, relu = m["pick"], m["type"], ".relu" if m["relu"] else ""
    if m["with"] == "b":
        return "".join(_dpx_predicates(pick, kind)) + f"{pick}.{kind} d0, a0, b0;", kind.endswith("x2") + 1
    if m["with"] == "add":
        plain = "add.s32" if kind.endswith("32") else f"add.{kind}"
        return f"{plain} t0, a0, b0; {pick}.{kind}{relu} d0, t0, c0;", 0
    if m["three"]:
        return f"{pick}.{kind} t0, a0, b0; {pick}.{kind}{relu} d0, t0, c0;", 0
    return f"{pick}.{kind}{relu} d0, a0, b0;", 0


def _dpx_predicates(pick: str, kind: str) -> Iterator[str]:
    """The first operand is taken, ties included; of two halves the upper one first."""
    compare = ("ge" if pick == "max" else "le") + f".{kind.removesuffix('x2')}"
    if kind.endswith("32"):
        yield f"setp.{compare} q0, a0, b0; selp.b32 p0, 1, 0, q0; "
        return
    yield "mov.b32 {h0, h1}, a0; mov.b32 {h2, h3}, b0; "
    yield f"setp.{compare} q0, h1, h3; selp.b32 p0, 1, 0, q0; setp.{compare} q1, h0, h2; selp.b32 p1, 1, 0, q1; "
