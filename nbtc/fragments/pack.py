"""Matrices <-> the registers of the lanes that hold them, for every operand of every instruction.

An operand's layout gives one index table; packing is one gather through it, unpacking the gather of the inverse table.
Where the elements of a register are neighbours in the matrix (all forms but one of stmatrix) whole words are gathered.
Leading axes are independent warps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc.errors import FormatError, ShapeError
from nbtc.formats.arrays import as_array, from_bits, to_bits
from nbtc.isa.spec import Operand


def pack(operand: Operand, matrix: ArrayLike, name: str = "matrix") -> NDArray[np.uint32]:
    """The register image of a matrix: (..., rows, cols) of the operand's dtype to uint32 (..., lanes, registers).

    Operands of f16 m8n8k4 hold four products: (..., 4, rows, cols).  Elements are packed low bits first, an f64 takes
    two words, low word first; fragments with copies hold the same value in each.  Raises ShapeError or FormatError for
    a matrix that does not fit.  (PTX ISA, "Matrix Fragments" of the instruction.)
    """
    bits = to_bits(matrix, operand.format)
    inner = _inner(operand)
    if bits.shape[-len(inner) :] != inner:
        raise ShapeError(
            f"{name} has shape {bits.shape}, but the operand is (..., {', '.join(str(v) for v in inner)}) of "
            f"{operand.format.name}: leading axes are independent warps; try np.zeros({inner}, {_dtype(operand)})"
        )
    batch, order = bits.shape[: bits.ndim - len(inner)], _word_order(operand)
    if order is None:
        return words(bits.reshape(*batch, math.prod(inner)).take(operand.gather, axis=-1), operand)
    whole = words(bits.swapaxes(-1, -2) if order.transposed else bits, operand)
    return whole.reshape(*batch, order.scatter.size).take(order.gather, axis=-1)


def unpack(operand: Operand, registers: ArrayLike, name: str = "registers") -> NDArray[Any]:
    """The matrix that a register image holds, the inverse of `pack`; of several copies the first is read.

    registers: uint32 (..., lanes, registers).  Returns (..., rows, cols) of the operand's dtype, or (..., 4, rows,
    cols) for f16 m8n8k4.  Raises ShapeError or FormatError for an image that does not fit.
    """
    found, order, inner = image(operand, registers, name), _word_order(operand), _inner(operand)
    batch = found.shape[:-2]
    if order is None:
        codes = elements(found, operand).reshape(*batch, operand.lanes * operand.elements)
        return from_bits(codes.take(operand.scatter, axis=-1).reshape(*batch, *inner), operand.format)
    flat = found.reshape(*batch, operand.lanes * operand.registers).take(order.scatter, axis=-1)
    *products, rows, cols = inner
    lines, length = (cols, rows) if order.transposed else (rows, cols)
    matrix = elements(flat.reshape(*batch, *products, lines, length * operand.width // 32), operand)
    return from_bits(np.ascontiguousarray(matrix.swapaxes(-1, -2)) if order.transposed else matrix, operand.format)


@dataclass(frozen=True, eq=False)
class _Order:
    """Where whole register words lie in a matrix whose rows (columns, if transposed) are packed into words.

    gather: for each (lane, register) its word; scatter: for each word of the matrix lane * registers + register.
    """

    transposed: bool
    gather: NDArray[np.intp]
    scatter: NDArray[np.intp]


@cache
def _word_order(operand: Operand) -> _Order | None:
    """The word order of an operand, or None if the elements of a register are not neighbours in the matrix."""
    coords, per_word, words = operand.coords(), max(1, 32 // operand.width), max(1, operand.width // 32)
    product = 0 if operand.layout is None else operand.layout.products()[:, None]
    for transposed in (False, True):
        major, minor = (1, 0) if transposed else (0, 1)
        size = operand.cols if transposed else operand.rows, operand.rows if transposed else operand.cols
        flat = (product * size[0] + coords[..., major]) * size[1] + coords[..., minor]
        runs = flat.reshape(operand.lanes, -1, per_word)
        if size[1] % per_word == 0 and (runs == runs[..., :1] // per_word * per_word + np.arange(per_word)).all():
            first = runs[..., 0] // per_word * words
            gather = (first[..., None] + np.arange(words)).reshape(operand.lanes, operand.registers).astype(np.intp)
            _, index = np.unique(gather.T.ravel(), return_index=True)  # of several copies the first register
            register, lane = np.divmod(index, operand.lanes)
            return _Order(transposed, gather, lane * operand.registers + register)
    return None


def image(operand: Operand, registers: ArrayLike, name: str = "registers") -> NDArray[np.uint32]:
    """`registers` as a uint32 array, checked to be a register image (..., lanes, registers) of the operand."""
    found = np.asarray(as_array(registers))  # plain words: what they remember is checked before
    if found.dtype != np.uint32:
        raise FormatError(
            f"{name} is {found.dtype}, but register images are uint32 words: use .view(np.uint32) on packed data, or "
            "pack_a, pack_b, pack_c of the instruction to make an image from a matrix"
        )
    if found.shape[-2:] != (operand.lanes, operand.registers):
        raise ShapeError(
            f"{name} has shape {found.shape}, but the image of a {operand.rows}x{operand.cols} operand of "
            f"{operand.format.name} is (..., {operand.lanes}, {operand.registers}): lanes, then 32-bit registers"
        )
    return found


def words(codes: NDArray[Any], operand: Operand) -> NDArray[np.uint32]:
    """Element codes (..., lanes, elements) as register words (..., lanes, registers)."""
    width = operand.width
    if operand.shift:
        codes = codes << codes.dtype.type(operand.shift)
    if width == 1:
        codes = np.packbits(codes, axis=-1, bitorder="little")
    while width in (2, 4):  # pairs of slots until they fill bytes
        codes, width = codes[..., 0::2] | codes[..., 1::2] << np.uint8(width), 2 * width
    little = np.ascontiguousarray(codes).astype(codes.dtype.newbyteorder("<"), copy=False)
    return little.view("<u4").astype(np.uint32, copy=False)


def elements(registers: NDArray[np.uint32], operand: Operand) -> NDArray[Any]:
    """Register words (..., lanes, registers) as element codes (..., lanes, elements) of the format's word size."""
    width, fmt = operand.width, operand.format
    packed = np.ascontiguousarray(registers).astype("<u4", copy=False)
    if width == 1:
        return np.unpackbits(packed.view(np.uint8), axis=-1, bitorder="little")
    if width < 8:
        octets = packed.view(np.uint8)
        codes = np.empty((*octets.shape, 8 // width), np.uint8)
        for slot in range(8 // width):
            codes[..., slot] = octets >> np.uint8(slot * width) & np.uint8((1 << width) - 1)
        return codes.reshape(*registers.shape[:-1], registers.shape[-1] * 32 // width)
    found = packed.view(f"<u{width // 8}").astype(fmt.bits_dtype, copy=False)
    if fmt.bits < width:
        found = found >> np.uint8(operand.shift) & np.uint8((1 << fmt.bits) - 1)
    return found


def _inner(operand: Operand) -> tuple[int, ...]:
    products = (operand.products,) if operand.products > 1 else ()
    return (*products, operand.rows, operand.cols)


def _dtype(operand: Operand) -> str:
    dtype = operand.format.dtype
    return f"{'np' if dtype.kind != 'V' else 'ml_dtypes'}.{dtype.name}"
