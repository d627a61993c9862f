"""Matrices <-> the registers of the lanes that hold them, for every operand of every instruction.

An operand's layout gives one index table; packing is one gather through it and a regrouping of bits, unpacking the
gather of the inverse table.  Leading axes are independent warps.
"""

from __future__ import annotations

import math
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
    batch = bits.shape[: bits.ndim - len(inner)]
    codes = bits.reshape(*batch, math.prod(inner)).take(operand.gather, axis=-1)
    return words(codes, operand)


def unpack(operand: Operand, registers: ArrayLike, name: str = "registers") -> NDArray[Any]:
    """The matrix that a register image holds, the inverse of `pack`; of several copies the first is read.

    registers: uint32 (..., lanes, registers).  Returns (..., rows, cols) of the operand's dtype, or (..., 4, rows,
    cols) for f16 m8n8k4.  Raises ShapeError or FormatError for an image that does not fit.
    """
    codes = elements(image(operand, registers, name), operand)
    batch = codes.shape[:-2]
    flat = codes.reshape(*batch, operand.lanes * operand.elements).take(operand.scatter, axis=-1)
    return from_bits(flat.reshape(*batch, *_inner(operand)), operand.format)


def image(operand: Operand, registers: ArrayLike, name: str = "registers") -> NDArray[np.uint32]:
    """`registers` as a uint32 array, checked to be a register image (..., lanes, registers) of the operand."""
    found = as_array(registers)
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
        shifts = np.arange(0, 8, width, dtype=np.uint8)
        codes = packed.view(np.uint8)[..., None] >> shifts & np.uint8((1 << width) - 1)
        return codes.reshape(*registers.shape[:-1], operand.elements)
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
