"""What the C++ functions of wmma are called with: the row of a product, what satf does, layouts in memory."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from nbtc.errors import FormatError, OptionError, shown
from nbtc.isa.parse import rows
from nbtc.isa.spec import Row
from nbtc.isa.wmma_names import MemoryLayout, Use


@cache
def _products() -> dict[tuple[Any, ...], Row]:
    """wmma.mma rows by shape, formats of A, B, C and D, layouts, saturation and bit operation."""
    table: dict[tuple[Any, ...], Row] = {}
    for r in rows(family="wmma.mma"):
        formats = tuple(o.format.name for o in (r.a, r.b, r.c, r.d) if o is not None)
        table.setdefault((r.shape, *formats, r.a_layout, r.b_layout, r.saturate, r.op), r)
    return table


def product_row(d: Any, a: Any, b: Any, c: Any, saturate: bool, op: str | None) -> Row:
    """The wmma.mma row of D = A * B + C; each fragment has .shape, .format and .layout (a `MatrixLayout` or None).

    saturate: clamp integers.  op: "xor" or "and" of b1.  Raises FormatError for fragments that don't go together.
    """
    names = tuple(f.format.name for f in (a, b, c, d))
    layouts = tuple(f.layout.value if f.layout else "" for f in (a, b))
    same = a.shape == b.shape == c.shape == d.shape
    found = _products().get((a.shape, *names, *layouts, saturate, op)) if same else None
    if found is None:
        near = sorted({r.mnemonic for k, r in _products().items() if k[1] == names[0] and k[-1] == op} or {"none"})[:3]
        raise FormatError(
            f"no wmma product takes d={d}, a={a}, b={b}, c={c}: shapes must agree, A and B have one type, s4, u4 and "
            f"b1 are row by col; b1 goes with bmma_sync, all others with mma_sync. Nearest: {', '.join(near)}"
        )
    return found


class Saturation(NamedTuple):
    """What satf does: the instruction clamps integers, or floats are made finite after it."""

    clamps: bool
    makes_finite: bool


def saturation(d: Any, satf: bool) -> Saturation:
    """That of a product's fragment D.  Raises OptionError for double, which has none."""
    if satf and d.format.bits == 64:
        raise OptionError("satf=True: double products have no saturation; leave it out: mma_sync(d, a, b, c)")
    integers = d.format.kind == "int"
    return Saturation(satf and integers, satf and not integers)


def memory_layout(fragment: Any, layout: Any, name: str) -> str:
    """How the tile of a fragment lies in memory, "row" or "col", for the layout that load or store (name) is given.

    Raises OptionError for an accumulator without one, and for other fragments with one.
    """
    if fragment.use is Use.accumulator:
        if not isinstance(layout, MemoryLayout):
            raise OptionError(
                f"{name}({fragment}): layout={shown(layout)}: how an accumulator lies in memory is an argument: pass "
                "layout=wmma.mem_row_major or layout=wmma.mem_col_major"
            )
        return str(layout.value)
    if layout is not None or fragment.layout is None:
        raise OptionError(
            f"{name}({fragment}): layout={shown(layout)}: a matrix_a or matrix_b fragment carries its layout; leave "
            "the argument out: load_matrix_sync(frag, mem, ldm)"
        )
    return str(fragment.layout.value)
