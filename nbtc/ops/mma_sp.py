"""What is particular to mma.sp: where metadata sits, which selectors and nibbles are legal (PTX ISA, "Sparse matrix storage").

Every chunk of a row of A (4 logical columns; 8 of 4-bit types; 2 of tf32) has a nibble: two 2-bit indices of the stored
elements, or pairs of elements, in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.errors import MetadataError
from nbtc.isa.spec import Row
from nbtc.ops.images import Words

UNITS, PAIRS, HALVES = 1, 2, 3  # as numbered in mma_kernel
_DISTINCT = frozenset(i | j << 2 for i in range(4) for j in range(4) if i != j)
_ASCENDING = frozenset(i | j << 2 for i in range(4) for j in range(4) if i < j)
_TF32 = frozenset({0b0100, 0b1110})


def kind(row: Row) -> int:
    """How the kernel reads this form's indices: of single elements, of pairs (4-bit types), of halves of tf32."""
    bits = row.a.format.bits if row.a is not None else 0
    return {32: HALVES, 4: PAIRS}.get(bits, UNITS)


def legal_nibbles(row: Row) -> frozenset[int]:
    """The metadata nibbles that the ISA defines for a form."""
    if kind(row) == HALVES:
        return _TF32
    return _ASCENDING if row.ordered else _DISTINCT


def nibble_places(row: Row, selector: int) -> NDArray[np.int32]:
    """32 * lane + lowest bit of the nibble of each (row, chunk), row by row.

    Of 16- and 32-bit types a word holds four chunks of row g (low half) and of row g + 8 (high half); of narrower types
    eight chunks of one of the two rows.  The selector names the lane, or the pair of lanes, of each quad that is read.
    """
    if row.meta is None or row.a is None:
        raise MetadataError(f"{row.mnemonic} is dense and has no metadata; sparse forms are spelled mma.sp.sync...")
    rows, chunks = np.meshgrid(np.arange(row.meta.rows), np.arange(row.meta.cols), indexing="ij")
    high = rows // 8
    if row.a.format.bits >= 16:
        each, lane, nibble = chunks // 4, 0, chunks % 4 + 4 * high
    else:
        each, lane, nibble = chunks // 8, high, chunks % 8
    lanes = 4 // len(row.selectors)  # of a quad that supply words
    source = 4 * (rows % 8) + lanes * selector + lane + each * (2 if row.a.format.bits < 16 else 1)
    return (32 * source + 4 * nibble).astype(np.int32).ravel()


def check_selector(row: Row, selector: Any) -> None:
    """Raise MetadataError for a selector outside the legal set of the form."""
    if isinstance(selector, bool) or not isinstance(selector, int | np.integer) or selector not in row.selectors:
        legal = ", ".join(map(str, row.selectors))
        raise MetadataError(
            f"selector={selector!r} is not legal for {row.mnemonic}, which takes {legal}; nearest: selector={row.selectors[-1]}"
        )


def check_metadata(row: Row, selector: int, meta: Words) -> None:
    """Raise MetadataError when a nibble that the form reads is one the ISA leaves undefined."""
    places = nibble_places(row, selector)
    nibbles = meta[..., places >> 5] >> (places & 31).astype(np.uint32) & np.uint32(15)
    legal = legal_nibbles(row)
    bad = ~np.isin(nibbles, sorted(legal))
    if bad.any():
        at = tuple(int(v) for v in np.argwhere(bad)[0])
        i, chunk = divmod(at[-1], row.meta.cols if row.meta is not None else 1)
        good = ", ".join(f"{n:#06b}" for n in sorted(legal))
        raise MetadataError(
            f"metadata nibble {int(nibbles[at]):#06b} of row {i}, chunk {chunk} (warp {at[:-1]}) is undefined for {row.mnemonic}; "
            f"legal are {good}; strict=False computes it as the hardware does"
        )
