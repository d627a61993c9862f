"""A PTX module as frozen data: what the parser makes and everything else reads.

Names are resolved while parsing: a `Register` is unique in its function (registers of inner scopes get a suffix), a
`Symbol` names a variable, function or label by the key of the table that holds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

# Bits of each fundamental type (PTX ISA 5.2) and of the packed and opaque ones.
WIDTHS: Mapping[str, int] = MappingProxyType(
    {
        "pred": 1,
        **{f"{kind}{n}": n for kind in "bus" for n in (8, 16, 32, 64)},
        "b128": 128,
        "f16": 16,
        "bf16": 16,
        "f32": 32,
        "f64": 64,
        "f16x2": 32,
        "bf16x2": 32,
        "tf32": 32,
        "e4m3": 8,
        "e5m2": 8,
        "e4m3x2": 16,
        "e5m2x2": 16,
        "e2m3x2": 16,
        "e3m2x2": 16,
        "e2m1x2": 8,
        "ue8m0x2": 16,
        "f32x2": 64,
        "u16x2": 32,
        "s16x2": 32,
        "u8x4": 32,
        "s8x4": 32,
        "texref": 64,
        "samplerref": 64,
        "surfref": 64,
    }
)


class Register(NamedTuple):
    """A virtual register of a function; `type` is its declared type without the dot."""

    name: str
    type: str

    @property
    def bits(self) -> int:
        """Width in bits."""
        return WIDTHS[self.type]


class Special(NamedTuple):
    """A predefined, read-only register such as `%tid.x`, and WARP_SZ."""

    name: str


class Immediate(NamedTuple):
    """A literal: a whole number, or the bits of a float with their width (`0f` 32, `0d` and decimal literals 64)."""

    value: int
    float_bits: int = 0


class Symbol(NamedTuple):
    """The address of a variable, function or label, moved by `offset` bytes."""

    name: str
    offset: int = 0


class Vector(NamedTuple):
    """`{a, b, ...}`"""

    elements: tuple[Operand, ...]


class Address(NamedTuple):
    """`[base + offset]`; tensor copies have coordinates after the base, some forms several parts."""

    base: Operand
    offset: int = 0
    rest: tuple[Operand, ...] = ()


class Pair(NamedTuple):
    """`d|p`: two destinations of one instruction."""

    first: Operand
    second: Operand


class Not(NamedTuple):
    """`!p` as an operand."""

    register: Register


class Selected(NamedTuple):
    """A register with a selector of the video instructions (`.b0`, `.h1`, `.b3210`) or a minus sign in front (`-`)."""

    register: Register
    selector: str


class Sink(NamedTuple):
    """`_`: a result that nobody wants."""


class Group(NamedTuple):
    """`(a, b)`: the parameter lists of a call."""

    elements: tuple[Operand, ...]


Operand = Register | Special | Immediate | Symbol | Vector | Address | Pair | Not | Selected | Sink | Group


class Guard(NamedTuple):
    """`@p` or `@!p` in front of an instruction."""

    register: Register
    negated: bool


class SourcePlace(NamedTuple):
    """What `.loc` says: a file's name and a line in it."""

    file: str
    line: int


class Instruction(NamedTuple):
    """One instruction: `opcode.modifiers operands;` with its guard and where it stands."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    line: int
    guard: Guard | None = None
    source: SourcePlace | None = None

    @property
    def mnemonic(self) -> str:
        """The full name, as written."""
        return ".".join((self.opcode, *self.modifiers))


class Variable(NamedTuple):
    """A variable or parameter: `length` elements of `type`, None where the size is left open (`extern x[]`)."""

    name: str
    space: str
    type: str
    length: int | None
    align: int
    initial: tuple[Immediate | Symbol | Generic | Masked, ...] = ()
    external: bool = False
    line: int = 0

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return max(1, WIDTHS[self.type] // 8)

    @property
    def bytes(self) -> int:
        """Bytes of the whole; 0 where the size is left open."""
        return self.element_bytes * (self.length or 0)


class Generic(NamedTuple):
    """`generic(symbol) + offset` in an initialiser."""

    name: str
    offset: int = 0


class Masked(NamedTuple):
    """`mask(symbol)` in an initialiser: one byte of an address, by the byte that the mask selects."""

    mask: int
    symbol: Symbol | Generic


class Prototype(NamedTuple):
    """A function's parameter lists: result and argument variables (space "param" or "reg")."""

    results: tuple[Variable, ...]
    arguments: tuple[Variable, ...]


class Function(NamedTuple):
    """An `.entry` or `.func`; `body` is None for a declaration.

    `labels` gives each label's place in `body`; `tables` the label lists of `.branchtargets`, the function lists of
    `.calltargets`; `prototypes` those of `.callprototype`.
    """

    name: str
    entry: bool
    prototype: Prototype
    line: int
    directives: Mapping[str, tuple[int, ...]]
    body: tuple[Instruction, ...] | None = None
    variables: tuple[Variable, ...] = ()
    labels: Mapping[str, int] = MappingProxyType({})
    tables: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    prototypes: Mapping[str, Prototype] = MappingProxyType({})


class PtxModule(NamedTuple):
    """A PTX module."""

    version: tuple[int, int]
    target: str
    functions: Mapping[str, Function]
    variables: Mapping[str, Variable]
    aliases: Mapping[str, str]
