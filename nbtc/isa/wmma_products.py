"""Which product goes with four fragments: the rows of wmma.mma by what the C++ functions are called with."""

from __future__ import annotations

from functools import cache
from typing import Any

from nbtc.errors import FormatError
from nbtc.isa.parse import rows
from nbtc.isa.spec import Row


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
