"""What all parts of a random program write to: registers by width, scopes, pointers, literals."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from nbtc.executor.emit.form import WIDTHS
from nbtc.testing.scalar_inputs import edges

PREFIXES = {1: "%p", 16: "%h", 32: "%r", 64: "%d"}  # of registers that hold numbers, by their bits
POINTERS = {32: "%s", 64: "%a"}  # of registers that hold addresses, which no number may depend on
KEPT = {32: 4, 64: 3, 16: 2, 1: 2}  # registers of each width that are written again and again, and stored at the end
GUARDED = 0.08  # of instructions are
SHAPES = ((32, 1, 1), (64, 1, 1), (96, 1, 1), (50, 1, 1), (128, 1, 1), (8, 8, 1), (64, 2, 1), (16, 4, 1), (7, 5, 1),
          (32, 2, 2))  # fmt: skip
REGIONS = {"src": 4096, "own": 8192, "shm": 4096, "loc": 64, "con": 512}  # bytes: own a block, loc a thread
LANES = 32
# A product that may fuse and that nobody needs: functions with products lose what ptxas drops before it fuses them.
PRODUCT = [".reg .f32 %product;", "mov.f32 %product, 1.0;", "mul.f32 %product, %product, %product;"]


class Index(NamedTuple):
    """A 32-bit register and the least and greatest number that it may hold."""

    name: str
    low: int
    high: int


class Pointer(NamedTuple):
    """A register that holds an address: this thread may access bytes `first` to `last` from there.

    space: as instructions name it, "" for generic addresses.  align: a power of two that divides the address.
    """

    register: str
    region: str
    space: str
    align: int
    first: int
    last: int


class Owned(NamedTuple):
    """Who may access what of a region until the next barrier: each thread `chunk` bytes, at start + stride * number.

    order: how the number of a thread comes from its place in the block (`addresses`).
    """

    start: int
    stride: int
    chunk: int
    order: tuple[str, int]


class Writer:
    """A kernel or function while it is written."""

    def __init__(self, rng: random.Random, shape: tuple[int, int, int], exits: bool, arch: str) -> None:
        self.rng, self.shape, self.exits, self.arch = rng, shape, exits, arch
        self.lines: list[str] = []
        self.counts: dict[str, int] = {}
        self.scope: list[str] = []  # registers that hold a number on every way to here
        self.indices: list[Index] = []
        self.pointers: list[Pointer] = []
        self.layouts: dict[str, Owned | None] = {"own": None, "shm": None}  # None: all may read
        self.labels = self.size = 0
        self.functions: list[Any] = []

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.shape[0] * self.shape[1] * self.shape[2]

    # --- choices ----------------------------------------------------------------------------------------------------
    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def pick(self, *choices: Any) -> Any:
        return self.rng.choice(choices)

    def number(self, bits: int) -> int:
        """A number at which something may change, or any."""
        way = self.rng.random()
        if way < 0.5:
            return int(self.rng.choice(edges(bits)))
        if way < 0.8:
            return self.rng.randrange(min(1 << bits, 256))
        return self.rng.getrandbits(bits)

    def literal(self, kind: str) -> str:
        """A constant of an integer type."""
        bits = WIDTHS[kind]
        found = self.number(bits)
        return str(found - (1 << bits)) if found >> bits - 1 and kind[0] != "u" else self.pick(str, hex)(found)

    # --- registers --------------------------------------------------------------------------------------------------
    def new(self, prefix: str) -> str:
        """A register that nothing has written."""
        n = self.counts.get(prefix, 0)
        self.counts[prefix] = n + 1
        return f"{prefix}{n}"

    def register(self, bits: int) -> str:
        """One that holds a number, of late ones more often."""
        known = [x for x in self.scope if x.startswith(PREFIXES[bits])]
        return str(self.rng.choice(known[-6:] if len(known) > 6 and self.chance(0.6) else known))

    def result(self, bits: int) -> str:
        """One to be written: one of those that are kept, or a new one."""
        if self.chance(0.35):
            return f"{PREFIXES[bits]}{self.rng.randrange(KEPT[bits])}"
        return self.new(PREFIXES[bits])

    def results(self, bits: int, count: int) -> list[str]:
        """Several, all different."""
        found: list[str] = []
        while len(found) < count:
            name = self.result(bits)
            if name not in found:
                found.append(name)
        return found

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    # --- lines ------------------------------------------------------------------------------------------------------
    def line(self, text: str) -> None:
        self.lines.append(text)

    def put(self, text: str, *results: str, guard: str = "", plain: bool = False) -> None:
        """An instruction; under a guard only if its results hold numbers before.

        plain: never under a guard of its own.
        """
        if not guard and not plain and all(r in self.scope for r in results) and self.chance(GUARDED):
            guard = self.guard()
        if guard:
            for r in results:
                if r not in self.scope:
                    self.zero(r)
        self.line(f"{guard}{text}")
        self.scope += [r for r in results if r not in self.scope]

    def guard(self) -> str:
        return f"@{self.pick('', '!')}{self.register(1)} "

    def of_integers(self, bits: int, register: str) -> str:
        """A register's number, but for one bit, as an instruction of integers gives it: not a float's, nor half of a
        wider register's, which ptxas stores and adds otherwise (docs/hardware.md, "What ptxas does")."""
        name = self.new(PREFIXES[bits])
        self.put(f"xor.b{bits} {name}, {register}, 1;", name)
        return name

    def zero(self, register: str) -> None:
        """Give a register a number."""
        bits = bits_of(register)
        kind = "pred" if bits == 1 else f"b{bits}"
        self.line(f"setp.ne.u32 {register}, 0, 0;" if bits == 1 else f"mov.{kind} {register}, 0;")
        self.scope.append(register)

    @contextmanager
    def inner(self) -> Iterator[None]:
        """Statements that some threads skip: what they write first is unknown after them."""
        scope, indices, pointers = list(self.scope), list(self.indices), list(self.pointers)
        yield
        self.fold(2)
        self.scope, self.indices, self.pointers = scope, indices, pointers

    def fold(self, most: int) -> None:
        """Let some of the latest registers change one that is kept."""
        for name in self.scope[-2 * most :][:: self.pick(1, 2, -1)][:most]:
            self.fold_one(name)

    def fold_one(self, name: str) -> None:
        """Let a register change one that is kept."""
        bits = bits_of(name)
        kept = f"{PREFIXES[32 if bits == 1 else bits]}{self.rng.randrange(KEPT[32 if bits == 1 else bits])}"
        if bits == 1:
            t = self.new(PREFIXES[32])
            self.line(f"selp.b32 {t}, {kept}, {self.rng.randrange(1 << 16)}, {name};")
            self.line(f"add.s32 {kept}, {kept}, {t};")
        elif bits == 16 or self.chance(0.6):
            self.line(f"{self.pick('xor.b', 'add.s', 'sub.s')}{bits} {kept}, {kept}, {name};")
        else:
            self.line(f"mad.lo.s{bits} {kept}, {kept}, 31, {name};")

    def declarations(self) -> list[str]:
        """Those of all registers."""
        types = {**{p: "pred" if b == 1 else f"b{b}" for b, p in PREFIXES.items()},
                 **{p: f"b{b}" for b, p in POINTERS.items()}, "%c": "b32", "%q": "pred", "%m": "b32"}  # fmt: skip
        return [f".reg .{types[p]} {p}<{n}>;" for p, n in self.counts.items() if n]


def bits_of(register: str) -> int:
    """Of a register that holds a number, by its name."""
    return next(bits for bits, prefix in PREFIXES.items() if register.startswith(prefix))


def braces(names: Sequence[str]) -> str:
    """Registers as a vector, or one alone."""
    return names[0] if len(names) == 1 else "{" + ", ".join(names) + "}"
