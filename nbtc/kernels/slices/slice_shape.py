"""What the vector code of a warp's slice of a warpgroup product is compiled for: sixteen rows, eight columns at a time.

A vector holds the sixteen rows of one column, so that A is decoded into vectors once for all columns, and an element of
B is a number that a multiply-add broadcasts from memory: B needs no permutations, whatever its order in memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from nbtc.compiler.cpu.processors import Processor
from nbtc.formats.table import Format

ROWS, COLUMNS = 16, 8  # of a slice; that are summed at a time
LINE = 32  # bytes of a row of A and of a column of B; sparse products have two lines, A's with zeros in between
WORDS = LINE // 4
UNITS = COLUMNS * LINE // 16  # that a line of eight columns of B has, whichever way they lie
STEPS = COLUMNS // 2  # in which a tile is summed, and the next one prepared: two columns each
BIAS = 127
# What a zero shows as its exponent: the sum of two is still a field from which F can be taken, and the sum with any
# number that is not zero stays below `SliceShape.least`: of e4m3 and e5m2 30 + 53 + 16 < 107, of others as well.
ZERO = 16
# What an Inf or NaN of B shows: more than any product with a zero too, and no carry with any number of A, whose fields
# go furthest with e5m2 beside e4m3: 31 + 53.
SPECIAL = 255 - 84


@dataclass(frozen=True)
class SliceShape:
    """What is compiled in.

    a, b: multiplicands of 8 or of 16 bits, whose exponents have five bits at most.  f16_acc: of accumulators.
    fraction: F.  floor: exponent of a sum of zeros, as f16 accumulators have it.  short: results keep 14 significant
    bits.  a_rows: A is read at addresses, not from a register image.  by_rows: B lies in rows of eight columns, not in
    columns.  minus_a (where A is read), minus_b: signs are turned.  sparse: A stores half of K, metadata says which
    (8-bit elements, two of four).
    """

    a: Format
    b: Format
    f16_acc: bool
    fraction: int
    floor: int
    short: bool
    a_rows: bool = False
    by_rows: bool = False
    minus_a: bool = False
    minus_b: bool = False
    sparse: bool = False

    @property
    def key(self) -> str:
        """Tells functions of different shapes apart."""
        flags = self.f16_acc, self.short, self.a_rows, self.by_rows, self.minus_a, self.minus_b, self.sparse
        text = "".join(str(int(x)) for x in flags)
        return f"{self.a.name}_{self.b.name}_{self.fraction}_{-self.floor}_{text}"

    @property
    def in_f64(self) -> bool:
        """Whether sums need f64 (52 bits below M's first) or are at home in f32 (23 bits)."""
        return self.a.bits == 16

    @property
    def parts(self) -> int:
        """Vectors that sixteen sums take."""
        return 2 if self.in_f64 else 1

    @property
    def lines(self) -> int:
        """Lines of a sum."""
        return 2 if self.sparse else 1

    @property
    def depth(self) -> int:
        """Products of a line."""
        return 8 * LINE // self.a.bits

    @property
    def offsets(self) -> tuple[int, int]:
        """What is added to exponent fields of A and of B, so that a product's byte is the f32 field of its exponent."""
        total = BIAS - self.a.bias - self.b.bias
        return (total + 1) // 2, total // 2

    @property
    def least(self) -> int:
        """The least field of a product that is not zero: of two subnormals, whose fields count as 1."""
        return 2 + sum(self.offsets)

    @property
    def top(self) -> int:
        """The greatest field of an alignment exponent that is served.

        Far below where sums overflow f32, and between the products' (at most 2**32, of f16) and those of `SPECIAL`.
        """
        return SPECIAL + ZERO - 1

    def chunk(self, target: Processor) -> int:
        """Columns whose sums fill the registers of a processor that are meant for sums."""
        return max(1, min(COLUMNS, target.sums * target.bytes // 64 // self.parts))
