"""The special function unit: what `.approx` functions compute, one row a table of its interpolator.

Every function is one quadratic in a segment of its argument's fraction f: C0 + C1 v + C2 sq(v), where v are the bits
of f below those that pick the segment and `sq` is a squarer of 17 bits that drops the partial products below 2**18.
The sum is exact; what follows is cutting it to 24 bits.

The tables are data (data/special_functions.csv).  They and the constants here were found by recording every function of
an H200 for all 2**32 inputs (sm_90, CUDA 13.0); hashes of all of those outputs agree.  Those of rcp, rsqrt, ex2 and sin
are the ones that envytools published for the G80 of 2006 (nvhw/sfu_tab.c), so that between sm_70 and sm_121 no other
tables are expected; on those that are not sm_90 nothing was recorded.  tanh and the 16-bit functions exist since sm_75.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

SUMMARY = "special function unit: every input recorded on sm_90, elsewhere the same published tables"
FRACTION = 23  # bits of an f32's fraction
SQUARED = 17  # bits that the squarer takes


@dataclass(frozen=True)
class Interpolation:
    """A table, and how its sums are made.

    fraction: bits of the argument's fraction, of which the last `low` are v.  shift: bits that C0 stands above C1 v.
    squares: what sq(v) is multiplied by.  start: what rounding adds to every sum.  point: a sum of 2**point is 1.0.
    """

    table: str
    fraction: int
    low: int
    shift: int
    squares: int
    start: int
    point: int

    def __post_init__(self) -> None:
        if len(self.rows) != self.segments:
            raise ValueError(f"table {self.table} has {len(self.rows)} rows, its {self.segments} segments need as many")
        exact = 53  # bits of a double's significand: sums are made in doubles
        largest = self.start + max(
            (abs(c0) << self.shift) + (abs(c1) << self.low) + (abs(c2) * self.squares << SQUARED)
            for c0, c1, c2 in self.rows
        )
        if largest.bit_length() > exact:
            raise ValueError(f"sums of table {self.table} reach {largest}, beyond the {exact} bits of a double")

    @property
    def segments(self) -> int:
        """Rows of the table."""
        return 1 << self.fraction - self.low

    @property
    def rows(self) -> tuple[tuple[int, int, int], ...]:
        """(C0, C1, C2) of each segment."""
        return tables()[self.table]

    @property
    def columns(self) -> tuple[list[int], list[int], list[int]]:
        """C0, C1 and `squares` C2 of all segments."""
        c0, c1, c2 = (list(c) for c in zip(*self.rows, strict=True))
        return c0, c1, [c * self.squares for c in c2]


@dataclass(frozen=True)
class Segmented(Interpolation):
    """A table whose segments differ in width: those of |x| from 2**first on, 2**n of them in each binade."""

    first: int = 0
    binades: tuple[int, ...] = ()

    @property
    def segments(self) -> int:
        return sum(1 << n for n in self.binades)

    @property
    def starts(self) -> tuple[int, ...]:
        """The first segment of each binade."""
        return tuple(sum(1 << m for m in self.binades[:n]) for n in range(len(self.binades)))


@cache
def tables() -> dict[str, tuple[tuple[int, int, int], ...]]:
    """All tables by name."""
    found: dict[str, list[tuple[int, int, int]]] = {}
    text = (files("nbtc") / "data" / "special_functions.csv").read_text(encoding="ascii")
    for row in csv.DictReader(text.splitlines()):
        found.setdefault(row["table"], []).append((int(row["c0"]), int(row["c1"]), int(row["c2"])))
    return {name: tuple(rows) for name, rows in found.items()}


@cache
def interpolation(name: str) -> Interpolation:
    """The row of a table; made on first use, since it reads the tables."""
    return _ROWS[name]()


def _tanh() -> Segmented:
    return Segmented("tanh", 23, 17, 16, 1, 0, 40, first=-8, binades=(0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 3))


_ROWS = {
    "rcp": lambda: Interpolation("rcp", 23, 16, 13, 1, 0x47E7, 39),
    "rsqrt": lambda: Interpolation("rsqrt", 24, 17, 14, 4, 0x7FFF, 40),
    "sqrt": lambda: Interpolation("sqrt", 24, 17, 15, 2, 0x7FFF, 40),
    "ex2": lambda: Interpolation("ex2", 23, 17, 13, 1, 0x77E2, 38),
    "lg2": lambda: Interpolation("lg2", 23, 17, 12, 2, 0x3345, 38),
    "sin": lambda: Interpolation("sin", 23, 17, 11, 1, 0, 37),
    "tanh": _tanh,
}
