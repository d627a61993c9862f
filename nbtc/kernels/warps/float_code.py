"""What the vector code of an m16n8 floating product is compiled for, and how it groups products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I16, I32, vector
from nbtc.compiler.cpu.float_mode import DOWN
from nbtc.formats.table import FORMATS, Format
from nbtc.kernels.warps.code import ProductCode

W16 = vector(I32, 16)
Label = tuple[int, int, int]  # of an element of a row of A or a column of B: register of B, lane modulo 4, part of word


@dataclass(frozen=True)
class FloatCode(ProductCode):
    """What is compiled in: the multiplicands' format, A's registers (4 or 2), f16 accumulators, blocks a K step.

    sparse: A stores half of K, and metadata chooses the elements of B.
    """

    fmt: Format
    registers: int
    f16_acc: bool
    blocks: int
    sparse: bool = False

    kind = "floats"

    @property
    def mode(self) -> str:
        """Multiply-adds round down."""
        return DOWN

    @property
    def key(self) -> tuple[int, ...]:
        """The shape as numbers: what compiled code is specialised for."""
        return self.fmt.code, self.registers, int(self.f16_acc), self.blocks, int(self.sparse)

    @classmethod
    def of(cls, *key: int) -> FloatCode:
        """The shape of a key."""
        code, registers, f16_acc, blocks, sparse = key
        fmt = next(f for f in FORMATS.values() if f.code == code)
        return cls(fmt, registers, bool(f16_acc), blocks, bool(sparse))

    @property
    def images(self) -> tuple[int, ...]:
        """Registers of A, B, C, metadata if any, and D."""
        accumulators = 2 if self.f16_acc else 4
        right = self.registers if self.sparse else self.registers // 2
        return self.registers, right, accumulators, *[1] * self.sparse, accumulators

    @property
    def per_word(self) -> int:
        """Elements of a word."""
        return self.fmt.per_word

    @property
    def element(self) -> Any:
        """A vector of all elements in sixteen words."""
        return W16 if self.per_word == 1 else vector(I16, 32)

    @property
    def limited_range(self) -> bool:
        """Whether the exponent of any product fits a byte."""
        return self.fmt.exponent < 8

    @property
    def deficit(self) -> int:
        """A number decoded is 2**-deficit times itself."""
        return 1023 - self.fmt.bias

    @property
    def labels(self) -> list[Label]:
        """The products of a sum."""
        return [(r, t, h) for r in range(self.registers // 2) for t in range(4) for h in range(self.per_word)]

    def block(self, label: Label) -> int:
        """The block that a product belongs to."""
        return label[0] if self.blocks == 2 else 0

    @property
    def groups(self) -> list[list[Label]]:
        """Products whose exponents share a word: four bytes, two halves or one, whose order is that of the list."""
        registers = range(self.registers // 2)
        if self.registers == 4 and (self.limited_range or self.per_word == 1):
            return [[(r, t, h) for h in range(self.per_word) for r in registers] for t in range(4)]
        if self.limited_range:
            return [[(0, t + n, h) for n in (0, 1) for h in range(self.per_word)] for t in (0, 2)]
        return [[(r, t, h) for h in range(self.per_word)] for r in registers for t in range(4)]

    @property
    def shared(self) -> bool:
        """Whether a word of exponents has room for those of both blocks."""
        return len(self.groups) < 8

    @property
    def exponents(self) -> Any:
        """A vector of exponents."""
        count = len(self.groups[0])
        return vector(ir.IntType(32 // count), 16 * count)
