"""Structured sparsity: where metadata lies, what it means, and dense <-> stored matrices.

Of every chunk of 4 columns (16- and 8-bit elements) 2 are stored, of 8 columns 2 adjacent pairs (4-bit), of 2 columns 1
(tf32).  One nibble says which: two 2-bit indices of the stored units.  (PTX ISA, "Sparse matrix storage".)
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc.errors import FormatError, MetadataError, ShapeError, shown, whole_number
from nbtc.formats.arrays import as_array, from_bits, to_bits
from nbtc.isa.spec import Operand, Row

FIRST, SECOND = 0b0100, 0b1110  # the two legal nibbles of a tf32 chunk


def chunks(row: Row) -> int:
    """Metadata nibbles of one row of A."""
    return _meta(row).cols


def places(row: Row, selector: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the nibble of (row, chunk) lies: lane, and lowest bit in that lane's metadata register.

    Two read-only int64 arrays (rows, chunks).  Raises MetadataError for a selector outside of the form's legal ones.
    """
    meta = _meta(row)
    check_selector(row, selector)
    return _places(meta.rows, meta.cols, _a(row).width, int(selector))


@lru_cache(maxsize=64)
def _places(rows: int, count: int, width: int, selector: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    r, c = np.meshgrid(np.arange(rows), np.arange(count), indexing="ij")
    warp, half, g = r // 16, r // 8 % 2, r % 8
    if width >= 16:  # a word covers 4 chunks of rows g (low half) and g + 8 (high half)
        t, nibble = c // 4, c % 4 + 4 * half
    else:  # a word covers 8 chunks of one row: even lanes row g, odd lanes row g + 8
        t, nibble = half + 2 * (c // 8), c % 8
    lane, shift = 32 * warp + 4 * g + selector * (count // 4) + t, 4 * nibble
    lane.flags.writeable = shift.flags.writeable = False
    return lane, shift


def check_selector(row: Row, selector: int) -> None:
    """Raise MetadataError unless the form is sparse and the selector one of its legal ones."""
    _a(row)
    if whole_number(selector) not in row.selectors:
        legal = ", ".join(str(s) for s in row.selectors)
        raise MetadataError(
            f"selector={shown(selector)} is not legal for {row.mnemonic}: it names the lanes that supply metadata, "
            f"an integer out of {legal}; try selector={row.selectors[0] if row.selectors else 0}"
        )


def metadata_nibbles(row: Row, meta: ArrayLike, selector: int = 0) -> NDArray[np.uint8]:
    """The nibble of each chunk: uint32 metadata registers (..., lanes) to uint8 (..., rows, chunks)."""
    words = metadata_words(row, meta)
    lane, shift = places(row, selector)
    return (words[..., lane] >> shift.astype(np.uint32) & np.uint32(15)).astype(np.uint8)


def metadata_words(row: Row, meta: ArrayLike) -> NDArray[np.uint32]:
    """`meta` as a uint32 array, checked to be one metadata register a lane: (..., 32), or (..., 128) for wgmma."""
    words = as_array(meta)
    lanes = _a(row).lanes
    if words.dtype != np.uint32:
        raise FormatError(
            f"meta is {words.dtype}, but metadata registers are uint32 words: pass meta.astype(np.uint32)"
        )
    if words.shape[-1:] != (lanes,):
        raise ShapeError(f"meta has shape {words.shape}, but {row.mnemonic} takes one register a lane: (..., {lanes})")
    return words


def from_nibbles(row: Row, nibbles: NDArray[np.uint8], selector: int = 0) -> NDArray[np.uint32]:
    """Metadata registers (..., lanes) that hold `nibbles` (..., rows, chunks); lanes that supply none hold 0."""
    lane, shift = places(row, selector)
    lanes = _a(row).lanes
    words = np.zeros((*nibbles.shape[:-2], lanes), np.uint32)
    for bit in range(0, 32, 4):
        chosen = shift == bit
        words[..., lane[chosen]] |= nibbles[..., chosen].astype(np.uint32) << np.uint32(bit)
    return words


def legal_nibbles(row: Row) -> NDArray[np.bool_]:
    """Which of the 16 nibbles the ISA defines for this form: bool (16,)."""
    nibble = np.arange(16)
    first, second = nibble & 3, nibble >> 2
    found: NDArray[np.bool_] = first < second if row.ordered else first != second
    return (nibble == FIRST) | (nibble == SECOND) if _a(row).width == 32 else found


def check_legal(row: Row, meta: ArrayLike, selector: int = 0) -> None:
    """Raise MetadataError for metadata that the ISA leaves undefined (`strict=True` of the sparse products)."""
    nibbles = metadata_nibbles(row, meta, selector)
    bad = ~legal_nibbles(row)[nibbles]
    if bad.any():
        at = tuple(int(v) for v in np.argwhere(bad)[0])
        legal = ", ".join(f"0b{n:04b}" for n in np.flatnonzero(legal_nibbles(row)))
        raise MetadataError(
            f"metadata nibble 0b{int(nibbles[at]):04b} of row {at[-2]}, chunk {at[-1]} is undefined in {row.mnemonic}; "
            f"legal are {legal}. nbtc.sparse.compress makes legal metadata; strict=False computes as hardware does"
        )


def compress(row: Row, dense: ArrayLike, selector: int = 0) -> tuple[NDArray[Any], NDArray[np.uint32]]:
    """Stored columns and metadata of a dense A that fits the pattern; see `nbtc.sparse.compress`."""
    check_selector(row, selector)
    bits, values = _dense_units(row, dense)
    keep, size = _stored_units(row)
    # a value counts more than a zero with sign, that more than a plain zero; ties go to the lower index
    rank = np.where(values.any(-1), 2, (bits != 0).any(-1)).astype(np.int8)
    full = (rank == 2).sum(-1) > keep
    if full.any():
        at = tuple(int(v) for v in np.argwhere(full)[0])
        width = bits.shape[-1] * bits.shape[-2]
        raise MetadataError(
            f"dense row {at[-2]} has more than {keep} non-zero {'pairs' if size > 1 else 'elements'} in columns "
            f"{at[-1] * width} to {at[-1] * width + width - 1}, so it is not {keep}:{bits.shape[-2]} sparse: "
            "set the smallest to zero first"
        )
    signed = (rank > 0).sum(-1) > keep
    if signed.any():
        at = tuple(int(v) for v in np.argwhere(signed)[0])
        raise MetadataError(
            f"dense row {at[-2]}, chunk {at[-1]} has a -0 that there is no room to store, and a place that is not "
            "stored reads as +0: make them +0 first, for example dense + dense.dtype.type(0)"
        )
    index = np.sort(np.argsort(-rank, axis=-1, kind="stable")[..., :keep], -1)
    stored = np.take_along_axis(bits, index[..., None], -2)
    shape = (*stored.shape[:-3], stored.shape[-3] * keep * size)
    meta = from_nibbles(row, _nibbles(index), selector)
    return from_bits(np.ascontiguousarray(stored.reshape(shape)), _a(row).format), meta


def expand(row: Row, stored: ArrayLike, meta: ArrayLike, selector: int = 0) -> NDArray[Any]:
    """The dense A of stored columns and metadata; see `nbtc.sparse.expand`."""
    operand = _a(row)
    check_selector(row, selector)
    bits = to_bits(stored, operand.format)
    if bits.shape[-2:] != (operand.rows, operand.cols):
        raise ShapeError(
            f"stored has shape {bits.shape}, but {row.mnemonic} stores half of K: (..., {operand.rows}, {operand.cols})"
        )
    nibbles = metadata_nibbles(row, meta, selector)
    keep, size = _stored_units(row)
    index = _indices(row, nibbles)
    batch = np.broadcast_shapes(bits.shape[:-2], nibbles.shape[:-2])
    units = 2 * keep
    dense = np.zeros((*batch, operand.rows, chunks(row), units, size), bits.dtype)
    parts = np.broadcast_to(bits, (*batch, *bits.shape[-2:])).reshape(*dense.shape[:-2], keep, size)
    np.put_along_axis(dense, np.broadcast_to(index[..., None], (*dense.shape[:-2], keep, 1)), parts, -2)
    flat = dense.reshape(*batch, operand.rows, 2 * operand.cols)
    return from_bits(flat, operand.format)


def _indices(row: Row, nibbles: NDArray[np.uint8]) -> NDArray[Any]:
    """Unit index of each stored unit of each chunk; MetadataError where two coincide or a tf32 code is none."""
    index: NDArray[Any]
    if _a(row).width == 32:
        bad, index = (nibbles != FIRST) & (nibbles != SECOND), (nibbles == SECOND)[..., None].astype(np.intp)
    else:
        index = np.stack([nibbles & 3, nibbles >> 2], -1).astype(np.intp)
        bad = index[..., 0] == index[..., 1]
    if bad.any():
        at = tuple(int(v) for v in np.argwhere(bad)[0])
        raise MetadataError(
            f"metadata nibble 0b{int(nibbles[at]):04b} of row {at[-2]}, chunk {at[-1]} has no dense equivalent in "
            f"{row.mnemonic}: its stored elements would share a place; nbtc.sparse.compress makes metadata that expands"
        )
    return index


def _nibbles(index: NDArray[Any]) -> NDArray[np.uint8]:
    codes: NDArray[Any] = index[..., 0] | index[..., -1] << 2
    if index.shape[-1] == 1:
        codes = np.where(codes == 0, FIRST, SECOND)
    return codes.astype(np.uint8)


def _dense_units(row: Row, dense: ArrayLike) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Bits of a dense A by (..., rows, chunks, units, elements of a unit), and which of them are not zero."""
    operand = _a(row)
    fmt, shape = operand.format, (operand.rows, 2 * operand.cols)
    bits = to_bits(dense, fmt)
    if bits.shape[-2:] != shape:
        raise ShapeError(
            f"dense has shape {bits.shape}, but A of {row.mnemonic} is (..., {shape[0]}, {shape[1]}): M x K, all of K"
        )
    keep, size = _stored_units(row)
    units = bits.reshape(*bits.shape[:-1], chunks(row), 2 * keep, size)
    sign = 1 << (fmt.bits - 1) if fmt.kind == "float" else 0
    return units, (units & units.dtype.type((1 << fmt.bits) - 1 - sign)) != 0


def _stored_units(row: Row) -> tuple[int, int]:
    """Units stored of a chunk, and elements of a unit."""
    width = _a(row).width
    return 1 if width == 32 else 2, 2 if width == 4 else 1


def _a(row: Row) -> Operand:
    if row.a is None or not row.sparse:
        raise MetadataError(
            f"{row.mnemonic} is not a sparse product: pass a form of mma.sp or wgmma.mma_async.sp, such as "
            '"mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"'
        )
    return row.a


def _meta(row: Row) -> Operand:
    if row.meta is None:
        _a(row)
        raise MetadataError(f"{row.mnemonic} has no metadata operand, so it cannot be compressed or expanded")
    return row.meta
