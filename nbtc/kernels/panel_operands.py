"""What compiled code of panels works on: the literals that it is compiled for, operands, geometries and workspaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

Row = TypeVar("Row")


class Packing(NamedTuple):
    """How both operands of a product are packed.

    wide: values are f64 (else f32).  block: products of a sum.  full_range: exponents take 16 bits.  emulated: blocks
    of products are interleaved two by two, and elements widened.  scaled: elements have block scales (f64 alone).
    """

    wide: int
    block: int
    full_range: int
    emulated: int
    scaled: int


class Sums(NamedTuple):
    """The sums of a micro-kernel, as `Shape` has them; out is a code of `OUTS`."""

    wide: int
    block: int
    fraction: int
    out: int
    full_range: int
    checked: int
    from_zero: int
    each_watched: int


def literal(row: tuple[int, ...]) -> str:
    """The numbers of one of the above, as compiled code takes them: a constant of its type."""
    return " ".join(str(int(x)) for x in row)


def of_literal(kind: Callable[..., Row], text: str) -> Row:
    """What `literal` made text of."""
    return kind(*map(int, text.split()))


class Source(NamedTuple):
    """A block of an operand: flat bits, its first element, elements from line to line, and how they are decoded.

    params: `float_params`.  Values are stored times `factor`, zeros as +-tiny.
    """

    x: Any
    first: int
    ld: int
    params: Any
    factor: float
    tiny: float


class Scales(NamedTuple):
    """Exponents of an operand's block scales: int32, from a place on, elements from one block of k to the next."""

    exponents: Any
    first: int
    ld: int


class Packed(NamedTuple):
    """An operand as the micro-kernel takes it: values, exponents and sign words."""

    values: Any
    exponents: Any
    signs: Any


class Geometry(NamedTuple):
    """Some rows times some panels of a product: where they begin, how many there are.

    depth: products, which `places` packed ones hold.
    """

    row: int
    rows: int
    column: int
    panels: int
    depth: int
    places: int


class Span(NamedTuple):
    """What is summed together: the element of B where a panel begins, its blocks of k and how many, tiles of rows."""

    first: int
    group: int
    groups: int
    tiles: int


class Numbers(NamedTuple):
    """Constants of a product's alignment, the binades by which its accumulators are scaled, and their range."""

    floor: int
    least: int
    scale: int
    reference: int
    low: np.float32
    high: np.float32


class Marks(NamedTuple):
    """What the fast path does not vouch for: tiles[64 rows, panel] may be wrong, rows of A hold Inf or NaN."""

    tiles: Any
    rows: Any


class Workspace(NamedTuple):
    """A thread's own memory: 64 packed rows of A, scratch of the micro-kernel, two tiles of accumulators."""

    a: Packed
    scratch: Any
    tiles: Any
