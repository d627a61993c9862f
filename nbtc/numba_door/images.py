"""Register images and matrices inside compiled functions: one warp, elements as Numba can hold them.

Numba has no arrays of 16-bit and narrower floats: those travel as unsigned words of their size (`x.view(np.uint16)`).
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba.core import types
from numba.np.numpy_support import from_dtype
from numpy.typing import NDArray

from nbtc.compiler.jit import jit
from nbtc.errors import CompilerError
from nbtc.formats.table import Format
from nbtc.isa.spec import Operand


class Slots(NamedTuple):
    """Where the elements of an operand are.

    places: place in the flattened matrix of each (lane, element).  word, shift: of its register word in the flat image.
    """

    places: NDArray[np.int64]
    word: NDArray[np.int64]
    shift: NDArray[np.int64]


@cache
def slots(operand: Operand) -> Slots:
    """The tables of an operand that `pack` and `unpack` follow."""
    register, shift = operand.slots()
    word = np.arange(operand.lanes)[:, None] * operand.registers + register
    return Slots(operand.gather.ravel().astype(np.int64), word.ravel(), np.tile(shift, operand.lanes))


@jit
def pack(codes, image, index, word, shift, bits):
    """Elements of a flat matrix into a flat image of zeros."""
    mask = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - bits)
    for n in range(index.size):
        code = np.uint64(codes[index[n]]) & mask
        if bits == 64:
            image[word[n]] = np.uint32(code & np.uint64(0xFFFFFFFF))
            image[word[n] + 1] = np.uint32(code >> np.uint64(32))
        else:
            image[word[n]] |= np.uint32(code << np.uint64(shift[n]))


@jit
def unpack(image, codes, index, word, shift, bits, fill):
    """Elements of a flat image into a flat matrix; of several copies the first register's counts.

    fill: bits above a number in a byte that repeat its sign.
    """
    mask = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - bits)
    for n in range(index.size - 1, -1, -1):
        code = np.uint64(image[word[n]]) >> np.uint64(shift[n])
        if bits == 64:
            code |= np.uint64(image[word[n] + 1]) << np.uint64(32)
        code &= mask
        if fill != 0 and code >> np.uint64(bits - 1) != np.uint64(0):
            code |= ((np.uint64(1) << np.uint64(fill)) - np.uint64(1)) << np.uint64(bits)
        codes[index[n]] = code


def number_type(fmt: Format) -> np.dtype[Any]:
    """The dtype of elements in compiled code: the format's own, or unsigned words where Numba lacks that.

    >>> import nbtc
    >>> [str(number_type(f)) for f in (nbtc.f32, nbtc.bf16, nbtc.s4, nbtc.b1)]
    ['float32', 'uint16', 'int8', 'bool']
    """
    if fmt.kind == "int" and fmt.bits < 8:
        return np.dtype(np.int8 if fmt.signed else np.uint8)
    known = fmt.dtype.kind in "iub" or fmt.bits >= 32
    return fmt.dtype if known else fmt.bits_dtype


def check_matrix(x: Any, fmt: Format, ndim: int | None, label: str) -> None:
    """Stop the compilation unless `x` is a C-contiguous array of elements of a format, or of words of their size."""
    own, bits = number_type(fmt), fmt.bits_dtype
    legal = {from_dtype(own), from_dtype(bits)}
    if isinstance(x, types.Array) and x.layout == "C" and x.dtype in legal and (ndim is None or x.ndim == ndim):
        return
    size = "" if ndim is None else f"{ndim}-D "
    raise CompilerError(
        f"{label} takes a {size}C-contiguous array of {own} for {fmt.name} inside compiled functions"
        f"{'' if own == fmt.dtype else f', as in x.view(np.{own})'}, not {x}"
    )


def check_image(x: Any, label: str) -> None:
    """Stop the compilation unless `x` is an array that can be one warp's register image."""
    if not (isinstance(x, types.Array) and x.dtype == types.uint32 and x.ndim == 2 and x.layout == "C"):
        raise CompilerError(
            f"{label} must be a C-contiguous uint32 array (32, registers) inside compiled functions, not {x}"
        )
