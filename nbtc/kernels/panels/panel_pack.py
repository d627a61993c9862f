"""What packers of operands share, which write the panels of the fused micro-kernel: values, exponents and sign words.

Left to the auto-vectoriser, the same loops took seven times as long: as much as a tenth of a large product, half of a
small one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils

from nbtc.compiler.builder import I1, I8, LINE, VectorBuilder, vector
from nbtc.compiler.cpu.processors import GENERIC, Processor, host_processor
from nbtc.kernels.panels.alignment_and_rounding import sign_bytes
from nbtc.kernels.panels.alignment_by_turns import least_field
from nbtc.kernels.panels.panel_elements import CHUNK, PanelElements
from nbtc.kernels.panels.panel_operands import Packed, Packing, Scales, Source


def turns(block: int) -> list[int]:
    """Where the products of two interleaved blocks come from: k mod 4 in {0, 1}, then k mod 4 in {2, 3}."""
    return [4 * (t % block // 2) + 2 * (t // block) + t % 2 for t in range(2 * block)]


def least_field_by_turns() -> int:
    """The least exponent field where the sums of this processor take exponents of B by turns (`SumByTurns`), else 0."""
    return least_field(host_processor())


def for_dots(how: Packing, row: Processor | None) -> Processor | None:
    """A processor, if it also takes exponents by turns, and signs, by dot products."""
    return row if row is not None and how.by_turns and row.dots else None


def in_planes(how: Packing, row: Processor | None) -> Processor | None:
    """A processor, if it has signs of B in planes though exponents don't lie by turns."""
    return row if row is not None and row.lookup and not how.by_turns else None


def sign_size(how: Packing, row: Processor | None = None) -> int:
    """Bytes of a column's sign word; row: the processor, this one if it is None."""
    row = row or host_processor()
    return sign_bytes(how.block, row if how.by_turns else in_planes(how, row))


def paired(lanes: int) -> list[list[int]]:
    """The order of sixteen columns of f64, for registers of so many 32-bit lanes.

    Two registers hold pairs of a chunk's columns by turns, so that 32-bit words of start values and sums interleave in
    place.
    """
    order = [
        c + 4 * q + 2 * h + i for c in range(0, CHUNK, lanes) for h in (0, 1) for q in range(lanes // 4) for i in (0, 1)
    ]
    return [order[:8], order[8:]]


class Side(ABC):
    """What both sides share: a line is packed, and again without what is no number if some was found.

    An Inf or NaN counts as zero: whoever finds it does its row or column again.  Looking for them in every vector
    before it is stored took two of some thirty operations.
    """

    def __init__(self, v: VectorBuilder, how: Packing, pk: PanelElements, args: dict[str, Any]) -> None:
        self.v, self.b, self.how, self.pk, self.args, self.block = v, v.b, how, pk, args, how.block
        self.row: Processor = args["row"] or host_processor() or GENERIC
        self.order = paired(self.row.lanes) if pk.in_f64 else [list(range(CHUNK))]
        self.cleared = self.variable(ir.Constant(I1, 0))

    @property
    def together(self) -> int:
        """Elements of a register, a chunk at least."""
        return max(CHUNK, self.row.bits // self.pk.width)

    def variable(self, start: Any) -> Any:
        """A variable of a loop, which LLVM keeps in a register."""
        place = cgutils.alloca_once(self.b, start.type)
        self.b.store(start, place)
        return place

    def zeros(self, count: int, element: ir.Type | None = None) -> Any:
        """A variable of so many lanes that begins with zeros."""
        return self.variable(self.v.const(vector(element or self.pk.element, count), 0))

    def buffer(self, size: int) -> Any:
        """Memory of the function's frame that holds anything."""
        with self.b.goto_entry_block():
            place = self.b.alloca(ir.ArrayType(I8, size))
            place.align = LINE
            return self.b.bitcast(place, I8.as_pointer())

    def write(self, line: Any) -> None:
        """A tile of rows, or a panel of columns."""
        b = self.b
        self.begin()
        b.store(ir.Constant(I1, 0), self.cleared)
        again, done = (b.append_basic_block(name) for name in ("again", "done"))
        b.branch(again)
        b.position_at_end(again)
        self.pack(line)
        found = self.found()
        repeat = b.and_(found, b.not_(b.load(self.cleared)))
        b.store(ir.Constant(I1, 1), self.cleared)
        b.cbranch(repeat, again, done)
        b.position_at_end(done)
        with b.if_then(found, likely=False):
            self.mark(line)

    @abstractmethod
    def begin(self) -> None:
        """Nothing has been noted."""

    @abstractmethod
    def pack(self, line: Any) -> None:
        """All of its products, noting the largest magnitudes."""

    @abstractmethod
    def found(self) -> Any:
        """Whether one was an Inf or NaN."""

    @abstractmethod
    def mark(self, line: Any) -> None:
        """Set the bytes of the rows or columns that had some."""

    def result(self) -> Any:
        """What the packer gives."""
        return None


class PackArguments(NamedTuple):
    """Of a packer: tiles of four rows of A, or panels of 64 columns of B, from `begin` to `end`.

    Each has `places` products a line, a multiple of 16 and of the block; all elements exist.  special[line] is set
    where a line holds Inf or NaN.  A scaled block of a line is times 2**exponents[first + block * ld + line] of its
    `Scales`.
    """

    source: Source
    scales: Scales
    out: Packed
    special: Any
    begin: int
    end: int
    places: int
