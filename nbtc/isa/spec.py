"""What a row of the instruction tables is: a form of an instruction and its operands, checked when it is built."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from nbtc.errors import FormatError, ShapeError, UnsupportedInstructionError
from nbtc.formats.table import FORMATS, NO_KERNEL, Format
from nbtc.isa.archs import ARCHS, Arch, ArchNames, Target
from nbtc.isa.layouts import Layout

NEVER = 10**6  # a number above every architecture's: the form has not been removed

# registers whose elements have no arithmetic of their own
NEWER: Mapping[str, Format] = {
    f.name: f
    for f in (
        Format("b8", NO_KERNEL, "bit", 8, signed=False, dtype_name="uint8"),
        Format("b16", NO_KERNEL, "bit", 16, signed=False, dtype_name="uint16"),
        Format("b32", NO_KERNEL, "bit", 32, signed=False, dtype_name="uint32"),
    )
}


def named(name: str) -> Format:
    """The format row a PTX type name stands for in a mnemonic.

    >>> named("bf16").bits, named("b16").kind
    (16, 'bit')
    """
    return FORMATS[name] if name in FORMATS else NEWER[name]


@dataclass(frozen=True)
class Variant:
    """Architectures (numbers first to last) whose operand has another layout; layout None: nobody knows it."""

    first: int
    last: int
    layout: Layout | None


@dataclass(frozen=True)
class Operand:
    """A matrix operand as the lanes of a warp (or warpgroup) hold it.

    format: of its elements.  rows, cols: of the matrix (of each product, for f16 m8n8k4).  registers: 32-bit words a
    lane (f64 elements take two, low word first).  elements: elements a lane, copies included.  layout: which element
    each slot holds; None for operands that live in shared memory only.  width, shift: bits of a register slot, and
    where in it the element starts (6- and 4-bit floats sit in bytes).  variants: other layouts on other architectures.

    >>> import nbtc
    >>> a = nbtc.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32").a
    >>> a.format.name, a.rows, a.cols, a.registers, a.elements
    ('f16', 16, 16, 4, 8)
    >>> a.coords()[5, :3].tolist()           # lane 5 holds A[1, 2], A[1, 3], A[9, 2], ...
    [[1, 2], [1, 3], [9, 2]]
    """

    format: Format
    rows: int
    cols: int
    registers: int
    elements: int
    layout: Layout | None
    width: int = 0
    shift: int = 0
    variants: tuple[Variant, ...] = ()

    def __post_init__(self) -> None:
        if not self.width:
            object.__setattr__(self, "width", self.format.bits)
        if 32 % self.width and self.width != 64:
            raise FormatError(
                f"slots of {self.width} bits do not fill 32-bit words: give a {self.rows}x{self.cols} operand of "
                f"{self.format.name} slots of another width, as kind::f8f6f4 puts 6-bit elements into bytes (width=8)"
            )
        if self.elements * self.width != self.registers * 32:
            raise ShapeError(
                f"{self.elements} elements of {self.width} bits do not fill {self.registers} registers of 32 bits "
                f"(operand {self.rows}x{self.cols} of {self.format.name})"
            )
        for layout in (self.layout, *(v.layout for v in self.variants)):
            if layout is not None:
                _check_cover(layout, self.rows, self.cols, self.elements)

    @property
    def lanes(self) -> int:
        """Threads that hold the operand."""
        return 32 if self.layout is None else self.layout.lanes

    @property
    def products(self) -> int:
        """Independent products held side by side: 4 for f16 m8n8k4, else 1."""
        return 1 if self.layout is None else self.layout.groups

    def coords(self) -> NDArray[np.int64]:
        """Row and column of each element of each lane: read-only int64 array (lanes, elements, 2).

        For f16 m8n8k4 they are inside the lane's own product.  Raises UnsupportedInstructionError when the operand has
        no lane layout (wgmma reads B from shared memory).
        """
        return self._coords

    @cached_property
    def _coords(self) -> NDArray[np.int64]:
        coords = self._placed.coords(self.elements)
        coords.flags.writeable = False
        return coords

    @cached_property
    def gather(self) -> NDArray[np.intp]:
        """For each (lane, element): index into the flattened matrix (products x rows x cols). Read-only."""
        coords = self.coords()
        products = self._placed.products()[:, None]
        index = ((products * self.rows + coords[..., 0]) * self.cols + coords[..., 1]).astype(np.intp)
        index.flags.writeable = False
        return index

    @cached_property
    def scatter(self) -> NDArray[np.intp]:
        """For each place of the flattened matrix: lane * elements + element of its first copy. Read-only."""
        by_element = self.gather.T.ravel()  # element-major: first copies first, whichever lane
        _, first = np.unique(by_element, return_index=True)
        element, lane = np.divmod(first, self.lanes)
        index = lane * self.elements + element
        index.flags.writeable = False
        return index

    @property
    def _placed(self) -> Layout:
        if self.layout is None:
            raise UnsupportedInstructionError(
                f"this {self.rows}x{self.cols} operand of {self.format.name} has no known place in registers: wgmma "
                "reads it from shared memory (nbtc.wgmma.tile_to_smem); other operands have .coords()"
            )
        return self.layout

    def slots(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """First register of each element and its lowest bit there: two int64 arrays (elements,)."""
        start = np.arange(self.elements) * self.width
        return start // 32, start % 32 + self.shift

    def on(self, arch: Arch) -> Operand:
        """The operand as `arch` lays it out; raises UnsupportedInstructionError where that is not known."""
        for v in self.variants:
            if v.first <= arch.number <= v.last:
                if v.layout is None:
                    raise UnsupportedInstructionError(
                        f"how {arch.name} lays out a {self.rows}x{self.cols} fragment of {self.format.name} is not "
                        'known: load and store through memory instead, or use arch="sm_90", whose layout is recorded'
                    )
                return replace(self, layout=v.layout, variants=())
        return self


@cache
def _check_cover(layout: Layout, rows: int, cols: int, elements: int) -> None:
    """A fragment holds every element of its matrix, and each of them equally often."""
    coords = layout.coords(elements)
    row, col = coords[..., 0], coords[..., 1]
    if row.max() >= rows or col.max() >= cols:
        raise ShapeError(f"a layout reaches ({row.max()}, {col.max()}), outside of its {rows}x{cols} matrix")
    flat = (layout.products()[:, None] * rows + row) * cols + col
    count = np.bincount(flat.ravel(), minlength=layout.groups * rows * cols)
    if count.min() != count.max():
        raise ShapeError(
            f"a layout does not cover its {rows}x{cols} matrix evenly: {count.min()} to {count.max()} times"
        )


@dataclass(frozen=True, eq=False)
class Row:
    """One form of an instruction.

    mnemonic: canonical spelling.  family: as in "mma", "mma.sp", "wmma.load", "wgmma.mma_async".  shape: (m, n, k).
    min_arch: first target that has it ("sm_80", "sm_90a"); last: number of the last one.  a, b, c, d, meta: operands or
    None.  unit: whose arithmetic it uses ("mma", "quad", "wmma", "wgmma").  a_layout, b_layout: "row" or "col".
    saturate: .satfinite.  rounding: rn rz rm rp of f64 forms.  op: "xor" or "and" for b1.  sparse, ordered, selectors:
    of the sparse forms (legal selectors).  executable: False where no recording or published model gives the
    arithmetic.  scales, trans: operands that take an imm-scale or imm-trans (wgmma).  kind: of the narrow floats
    ("f8f6f4", "mxf4"...).  scale: format of block scales, and chunks how many of them a row or column has in one
    instruction.  family_target: whether a target such as sm_120f has a form of sm_120a.  version: of the PTX ISA, where
    the form is newer than the operand lists here.  syntax: the operand lists a PTX line may have, as `nbtc.isa.lines`
    reads them.
    """

    mnemonic: str
    family: str
    min_arch: str
    shape: tuple[int, int, int] | None = None
    a: Operand | None = None
    b: Operand | None = None
    c: Operand | None = None
    d: Operand | None = None
    meta: Operand | None = None
    unit: str = ""
    a_layout: str = ""
    b_layout: str = ""
    saturate: bool = False
    rounding: str = "rn"
    op: str | None = None
    sparse: bool = False
    ordered: bool = False
    selectors: tuple[int, ...] = ()
    executable: bool = True
    scales: tuple[str, ...] = ()
    trans: tuple[str, ...] = ()
    kind: str = ""
    scale: str = ""
    chunks: int = 0
    family_target: bool = True
    version: str = ""
    last: int = NEVER
    syntax: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"sm_\d+[af]?", self.min_arch):
            raise ShapeError(f"{self.mnemonic}: min_arch {self.min_arch!r} is not of the form sm_90 or sm_90a")
        if self.shape is not None and self.a is not None and self.b is not None:
            self._check_shape(*self.shape)

    def _check_shape(self, m: int, n: int, k: int) -> None:
        stored = k // 2 if self.sparse else k
        want = {"a": (m, stored), "b": (k, n), "c": (m, n), "d": (m, n)}
        for name, size in want.items():
            operand: Operand | None = getattr(self, name)
            if operand is not None and (operand.rows, operand.cols) != size:
                raise ShapeError(
                    f"{self.mnemonic}: operand {name} is {operand.rows}x{operand.cols}, but its shape says "
                    f"{size[0]}x{size[1]}"
                )
        for operand in (self.a, self.b):
            if self.executable and operand is not None and operand.format.code == NO_KERNEL:
                raise FormatError(
                    f"{self.mnemonic}: no kernel multiplies {operand.format.name}: declare the row with "
                    "executable=False, or give the format a code of its own in nbtc/formats/table.py"
                )
        if self.sparse and (self.meta is None or not self.selectors):
            raise ShapeError(f"{self.mnemonic}: a sparse form needs a metadata operand and its legal selectors")

    def __str__(self) -> str:
        return self.mnemonic

    @cached_property
    def since(self) -> int:
        """Number of the first architecture."""
        return int(re.sub(r"\D", "", self.min_arch))

    def has(self, arch: Arch) -> bool:
        """Whether `arch` has the form."""
        return self.since <= arch.number <= self.last

    def legal_on(self, target: Target) -> bool:
        """Whether PTX text of that target may contain the form: those of sm_120a are not in sm_120.

        >>> from nbtc.isa.archs import target
        >>> from nbtc.isa.parse import row
        >>> form = row("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32")
        >>> [form.legal_on(target(t)) for t in ("sm_120", "sm_120a", "sm_120f", "sm_100a")]
        [False, True, True, False]
        """
        specific = self.min_arch[-1] in "af"
        suffix = target.suffix == "a" or (target.suffix == "f" and self.family_target)
        return self.has(target.arch) and (suffix or not specific)

    @property
    def archs(self) -> ArchNames:
        """Names of the architectures that have the form; `in` takes any spelling ("sm_90a", 90)."""
        return ArchNames(a.name for a in ARCHS.values() if self.has(a))

    @cached_property
    def varies(self) -> bool:
        """Whether some architectures lay an operand out otherwise than the others."""
        return any(operand is not None and operand.variants for operand in (self.a, self.b, self.c, self.d))

    @property
    def ranges(self) -> tuple[tuple[tuple[str, ...], Row | None], ...]:
        """Architectures in runs that lay the operands out alike, the newest run first, with the row as they have it.

        The row is None where nobody knows the layout.

        >>> from nbtc.isa.parse import row
        >>> [names for names, _ in row("wmma.load.c.sync.aligned.row.m8n32k16.s32").ranges][1:]
        [('sm_75',), ('sm_72',)]
        """
        found: list[tuple[list[str], Row | None]] = []
        for name in reversed(self.archs):
            try:
                here: Row | None = self.on(ARCHS[name])
            except UnsupportedInstructionError:
                here = None
            if found and _layouts(found[-1][1]) == _layouts(here):
                found[-1][0].insert(0, name)
            else:
                found.append(([name], here))
        return tuple((tuple(names), here) for names, here in found)

    def require(self, arch: Arch) -> None:
        """Raise UnsupportedInstructionError when `arch` lacks the form, naming those that have it."""
        if not self.has(arch):
            near = self.archs[-1 if self.since < arch.number else 0]
            raise UnsupportedInstructionError(
                f'{arch.name} has no {self.mnemonic}; it exists on {", ".join(self.archs)}: pass arch="{near}"'
            )

    def on(self, arch: Arch) -> Row:
        """The row as `arch` has it, operands laid out its way; UnsupportedInstructionError where it lacks it."""
        return _row_on(self, arch)


def _layouts(row: Row | None) -> list[Layout | None] | None:
    return None if row is None else [None if o is None else o.layout for o in (row.a, row.b, row.c, row.d)]


@cache
def _row_on(row: Row, arch: Arch) -> Row:
    row.require(arch)
    changed = {
        name: operand.on(arch) for name in "abcd" if (operand := getattr(row, name)) is not None and operand.variants
    }
    return replace(row, **changed) if changed else row
