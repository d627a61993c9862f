"""Random PTX programs of products and sums without a rounding mode, which ptxas fuses or leaves apart.

Which it does depends on all that reads a product, so values have few registers, which are written anew and stored on
the way, constants among them, branches around some, and results that nobody reads.  There are no loops: those that
ptxas unrolls fuse in other ways (`nbtc.executor.kernel.contract`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

VALUES = 8  # registers that a program computes with
STORES = 22  # places for what it stores
ROW = VALUES + 2 + STORES  # words of 64 bits of a thread: values, two that decide branches, and results
RECENT = 3
CHANCES = {"mul": 9, "add": 6, "sub": 4, "neg": 1.4, "abs": 0.7, "mov": 1, "selp": 0.6, "fma": 0.8, "max": 0.6}
LENGTH = 12  # statements at most, those in branches not counted


class Kind(NamedTuple):
    """A type of numbers.

    register: the type of registers.  fixed and random: the bits that all numbers have in common, and those drawn.
    constants: as PTX has them, 1 and -1 before others.
    """

    name: str
    register: str
    bits: int
    fixed: int
    random: int
    constants: tuple[str, ...]


_F32 = ("0f3F800000", "0fBF800000", "0f40000000", "0f00000000", "0f80000000", "0f3DCCCCCD", "0fC0200000")
_F64 = ("0d3FF0000000000000", "0dBFF0000000000000", "0d4000000000000000", "0d0000000000000000", "0d400921FB54442D18")
_F16 = ("0x3C00", "0xBC00", "0x4248", "0x0")
_BF16 = ("0x3F80", "0xBF80", "0x4049", "0x0")
# Exponents are those of 0.5 and 1: products of products neither overflow nor vanish, and lose bits when rounded.
KINDS = {
    kind.name: kind
    for kind in (
        Kind("f32", "f32", 32, 0x3F000000, 0x80FFFFFF, _F32),
        Kind("f64", "f64", 64, 0x3FE << 52, 0x801F_FFFF_FFFF_FFFF, _F64),
        Kind("f16", "b16", 16, 0x3800, 0x87FF, _F16),
        Kind("bf16", "b16", 16, 0x3F00, 0x80FF, _BF16),
        Kind("f16x2", "b32", 32, 0x38003800, 0x87FF87FF, tuple(c + c[2:] for c in _F16[:3])),
        Kind("bf16x2", "b32", 32, 0x3F003F00, 0x80FF80FF, tuple(c + c[2:] for c in _BF16[:3])),
    )
}


class SumProgram(NamedTuple):
    """PTX with one kernel `k` of one warp a block, which takes a pointer to ROW words of 64 bits a thread."""

    text: str
    kind: Kind

    def words(self, rng: np.random.Generator, blocks: int) -> NDArray[np.uint64]:
        """What the pointer may lead to."""
        found = rng.integers(0, 1 << 64, (blocks, 32, ROW), np.uint64, endpoint=False)
        found[..., :VALUES] &= np.uint64(self.kind.random)
        found[..., :VALUES] |= np.uint64(self.kind.fixed)
        found[..., VALUES + 2 :] = 0
        return found


class _Writer:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        # f32 has more ways to write it, and is half of what compilers write
        self.kind = list(KINDS.values())[max(0, int(self.rng.integers(-5, len(KINDS))))]
        self.ftz = ".ftz" if self.kind.name == "f32" and self.rng.random() < 0.3 else ""
        self.lines: list[str] = []
        self.labels = self.stores = 0
        self.recent = [0]  # registers written last

    def pick(self, *choices: str) -> str:
        return choices[self.rng.integers(len(choices))]

    def value(self) -> str:
        """A register to read, often one of those written last: a product that nobody reads is none."""
        return f"%v{self.rng.choice(self.recent) if self.rng.random() < 0.5 else self.rng.integers(VALUES)}"

    def source(self) -> str:
        """A register, or a constant, which halves have in a register."""
        return self.value() if self.rng.random() < 0.88 else f"%c{self.rng.integers(len(self.kind.constants))}"

    def predicate(self) -> str:
        return self.pick("%p0", "%p1", "!%p0", "!%p1")

    def modifiers(self, opcode: str) -> str:
        ftz = self.ftz if self.rng.random() < 0.93 else ""
        half = self.kind.register.startswith("b")
        if opcode in ("add", "sub", "mul"):
            rounding = ".rn" if self.rng.random() < 0.06 and self.kind.name not in ("bf16", "bf16x2") else ""
            sat = ".sat" if self.kind.name == "f32" and opcode != "mul" and self.rng.random() < 0.04 else ""
            return rounding + ftz + sat
        return (".rn" if opcode == "fma" else "") + ("" if half else ftz)

    def arithmetic(self, guard: str = "", opcode: str = "") -> None:
        weights = np.array(list(CHANCES.values()))
        opcode = opcode or str(self.rng.choice(list(CHANCES), p=weights / weights.sum()))
        a, b, c, d = self.value(), self.source(), self.value(), int(self.rng.integers(VALUES))
        if self.rng.random() < 0.25 and opcode in ("mul", "add", "sub"):
            a, b = b, a
        if opcode in ("mov", "selp"):
            name = f"{opcode}.b{self.kind.bits}"
        else:
            name = f"{opcode}{self.modifiers(opcode)}.{self.kind.name}"
        operands = {"neg": (a,), "abs": (a,), "mov": (a,), "fma": (a, b, c), "selp": (a, c, "%p0")}.get(opcode, (a, b))
        self.lines.append(f"{guard}{name} %v{d}, {', '.join(operands)};")
        self.recent = [*self.recent[-RECENT + 1 :], d]

    def sum_of_product(self) -> None:
        """A product and a sum that reads it, or two, and perhaps something between them."""
        self.arithmetic(opcode="mul")
        (product,) = self.recent[-1:]
        if self.rng.random() < 0.4:
            self.arithmetic()
        for _ in range(1 + (self.rng.random() < 0.25)):
            self.recent = [product]
            self.arithmetic(opcode=self.pick("add", "sub"))

    def store(self, guard: str = "", value: str = "") -> None:
        if self.stores < STORES:
            at = 8 * (VALUES + 2 + self.stores)
            self.stores += 1
            self.lines.append(f"{guard}st.global.b{self.kind.bits} [%row+{at}], {value or self.value()};")

    def statements(self, count: int, depth: int) -> None:
        for _ in range(count):
            what = self.rng.random()
            if what < 0.07:
                self.arithmetic(f"@{self.predicate()} ")
            elif what < 0.14:
                self.store()
            elif what < 0.17:
                self.store(f"@{self.predicate()} ")
            elif what < 0.19:
                self.lines.append("bar.sync 0;" if not depth else "membar.cta;")
            elif what < 0.24 and depth < 2:
                self.branch(depth + 1)
            elif what < 0.6:
                self.sum_of_product()
            else:
                self.arithmetic()

    def branch(self, depth: int) -> None:
        self.labels += 2
        other, end = f"L{self.labels}", f"L{self.labels + 1}"
        self.lines.append(f"@{self.predicate()} bra {other};")
        self.statements(int(self.rng.integers(1, 5)), depth)
        if self.rng.random() < 0.5:
            self.lines += [f"bra {end};", f"{other}:"]
            self.statements(int(self.rng.integers(1, 5)), depth)
        else:
            self.lines.append(f"{other}:")
        self.lines.append(f"{end}:")

    def program(self) -> SumProgram:
        kind, bits = self.kind, self.kind.bits
        self.statements(int(self.rng.integers(3, LENGTH)), 0)
        for i in range(VALUES):
            if self.rng.random() < 0.6:
                self.store(value=f"%v{i}")
        head = [
            ".version 8.0", ".target sm_90", ".address_size 64",
            ".visible .entry k(.param .u64 words)", "{",
            f".reg .{kind.register} %v<{VALUES}>, %c<{len(kind.constants)}>;",
            ".reg .b64 %row, %at; .reg .b32 %n, %i; .reg .pred %p<2>;",
            "ld.param.u64 %row, [words]; mov.u32 %n, %ctaid.x; mov.u32 %i, %tid.x; mad.lo.u32 %n, %n, 32, %i;",
            f"mul.wide.u32 %at, %n, {8 * ROW}; add.u64 %row, %row, %at;",
            *(f"ld.global.b{bits} %v{i}, [%row+{8 * i}];" for i in range(VALUES)),
            *(f"ld.global.s32 %n, [%row+{8 * (VALUES + i)}]; setp.lt.s32 %p{i}, %n, 0;" for i in range(2)),
            *(f"mov.b{bits} %c{i}, {c};" for i, c in enumerate(kind.constants)),
        ]  # fmt: skip
        return SumProgram("\n".join((*head, *self.lines, "ret;", "}", "")), kind)


def random_sum_program(seed: int) -> SumProgram:
    """A program, the same for the same seed."""
    return _Writer(seed).program()
