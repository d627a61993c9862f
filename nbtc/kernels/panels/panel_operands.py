"""What compiled code of panels works on: operands, geometries and workspaces.

Whatever may have elements of several types is an array of bytes here, so that the drivers are compiled for one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Packing(NamedTuple):
    """How both operands of a product are packed.

    in_f64: values are f64 (else f32).  block: products of a sum.  full_range: exponents take 16 bits.  emulated: blocks
    of products are interleaved two by two, and elements widened.  scaled: elements have block scales (f64 alone).
    by_turns: exponents of B lie by turns (`alignment_and_rounding.ByTurns`).
    """

    in_f64: int
    block: int
    full_range: int
    emulated: int
    scaled: int
    by_turns: int = 0


class PanelForm(NamedTuple):
    """Addresses of what packs rows of A and of what sums, products of a sum, and what must be looked at afterwards.

    from_zero, added: not 0 where blocks come in pairs (emulated), the second continuing from the first, which starts at
    zero; each pair is added to the accumulator.  checked: a sum may leave 32 bits.  watched: a result may overflow
    within a span.  kept: bits of f32 that results have; within a span they may have more, which no later sum sees.
    zero: bits of what zeros are in the tile.
    """

    pack: int
    sums: int
    from_zero: int
    added: int
    block: int
    checked: int
    watched: int
    kept: int
    zero: int


class Source(NamedTuple):
    """A block of an operand: flat bytes, its first element, elements from line to line, and how they are decoded.

    size: bytes of an element.  params: `float_params`.  Values are stored times `factor`, zeros as +-tiny.
    """

    x: Any
    first: int
    ld: int
    size: int
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


class State(NamedTuple):
    """float32 accumulators (M, N) in C order, and N; fresh: not 0 where they hold nothing yet, which counts as 0."""

    x: Any
    columns: int
    fresh: int


class Numbers(NamedTuple):
    """Constants of a product's alignment, the binades by which its accumulators are scaled, and their range."""

    floor: int
    least: int
    scale: int
    reference: int
    low: np.float32
    high: np.float32


class Marks(NamedTuple):
    """What the fast path does not vouch for: tiles[64 rows, panel] may be wrong, rows of A and columns of B hold Inf or
    NaN.
    """

    tiles: Any
    rows: Any
    columns: Any


class Workspace(NamedTuple):
    """A thread's own memory: 64 packed rows of A, scratch of the micro-kernel (32-bit words), two tiles of
    accumulators, and a buffer for 64 rows of A as they come.
    """

    a: Packed
    scratch: Any
    tiles: Any
    edge: Any


class BlockCode(NamedTuple):
    """What a product in one piece is done by: the address of what packs columns of B, and the rest.

    most: significands of a block of products of B may sum to less, in units of the last place, for these sums.
    """

    pack: int
    most: int
    form: PanelForm


class BlockSpace(NamedTuple):
    """Memory of a product in one piece: B packed, memory for a panel of B as it comes, and the rest."""

    packed: Packed
    edge: Any
    own: Workspace
