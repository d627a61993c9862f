"""Matrices as tiles of shared memory and back, through the address formula of their descriptor."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc.errors import BoundsError, DescriptorError, FormatError, ShapeError, shown
from nbtc.formats.arrays import as_array, from_bits, to_bits
from nbtc.formats.table import Format
from nbtc.fragments.smem_descriptors import CORE, UNIT, WINDOW, Descriptor, operand_format, swizzle_row, tile_shape


def canonical(
    shape: tuple[int, int], format: object, major: str = "k", swizzle: str = "none"
) -> tuple[Descriptor, int]:
    """The descriptor at address 0 of a dense tile, atoms in MN order first, and the bytes it takes.

    shape: (MN, K), MN a multiple of 8, K of a whole 16-byte unit (K-major) or of 8 (MN-major).  With swizzle, a K-major
    tile is at most one swizzle row wide; ShapeError says so.

    >>> canonical((64, 16), "f16", "mn", "64B")
    (Descriptor(start=0, leading=512, stride=1024, base_offset=0, swizzle='64B'), 2048)
    """
    mode, fmt, (rows, cols) = swizzle_row(swizzle), operand_format(format, major), tile_shape(shape)
    per_unit = 128 // fmt.bits
    step = per_unit if major == "k" else 8
    if rows % 8 or cols % step:
        raise ShapeError(
            f"a {fmt.name} tile of (MN, K) = ({rows}, {cols}) in {major.upper()}-major order does not consist of "
            "whole core "
            f"matrices: MN must be a multiple of 8 and K of {step}; nearest is ({-(-rows // 8) * 8}, "
            f"{-(-cols // step) * step})"
        )
    across, deep = rows // 8, cols // step
    if mode.units == 1:
        leading, stride, total = CORE * across, CORE, CORE * across * deep
    elif major == "k":
        if deep > mode.units:
            raise ShapeError(
                f"a K-major row of {cols} {fmt.name} takes {deep * UNIT} bytes, more than the {swizzle} swizzle row: "
                "split K "
                f"into tiles of at most {mode.units * per_unit}, each with its own descriptor, or use a wider swizzle"
            )
        leading, stride, total = UNIT, mode.pattern_bytes, mode.pattern_bytes * across
    else:
        atoms = -(-across // mode.units)
        leading = mode.pattern_bytes if atoms > 1 else UNIT
        stride, total = mode.pattern_bytes * atoms, mode.pattern_bytes * atoms * deep
    if total > WINDOW:
        raise ShapeError(
            f"a {fmt.name} tile of ({rows}, {cols}) takes {total} bytes; a descriptor reaches {WINDOW}: split the "
            "tile, for "
            f"example into (64, {step * 2}) pieces"
        )
    return Descriptor(0, leading, stride, 0, swizzle), total


def tile_to_smem(
    matrix: ArrayLike, format: object, major: str = "k", swizzle: str = "none"
) -> tuple[NDArray[np.uint8], Descriptor]:
    """A matrix (..., MN, K) as the bytes of a shared-memory tile (..., bytes), and the descriptor that reads it.

    Pass B with its columns as rows.  The descriptor's address is 0; `dataclasses.replace(d, start=...)` moves it.
    Bytes that hold no element are zero.  Raises ShapeError for a matrix that the layout can't hold, and FormatError if
    the dtype does not hold the format.

    >>> import numpy as np
    >>> data, d = tile_to_smem(np.zeros((32, 16), np.float16), "f16", "k", "32B")
    >>> data.shape, d.leading, d.stride
    ((1024,), 16, 256)
    """
    fmt = operand_format(format, major)
    bits = to_bits(matrix, fmt)
    if bits.ndim < 2:
        raise ShapeError(f"a tile is a matrix (MN, K), not {bits.ndim}-D: for example np.zeros((64, 16), np.float16)")
    rows, cols = bits.shape[-2:]
    d, total = canonical((rows, cols), fmt, major, swizzle)
    image = np.zeros((*bits.shape[:-2], total), np.uint8)
    image[..., _bytes_of(d, rows, cols, fmt, major)] = _as_bytes(bits, fmt)
    return image, d


def smem_to_tile(
    smem: ArrayLike, descriptor: Descriptor, shape: tuple[int, int], format: object, major: str = "k"
) -> NDArray[Any]:
    """The matrix (..., MN, K) that a descriptor finds in shared memory (..., bytes); the inverse of `tile_to_smem`.

    Raises BoundsError when the descriptor leaves the memory.

    >>> import numpy as np
    >>> m = np.arange(64 * 32, dtype=np.int8).reshape(64, 32)
    >>> data, d = tile_to_smem(m, "s8")
    >>> bool((smem_to_tile(data, d, (64, 32), "s8") == m).all())
    True
    """
    fmt, (rows, cols) = operand_format(format, major), tile_shape(shape)
    if not isinstance(descriptor, Descriptor):
        raise DescriptorError(
            f"{shown(descriptor)} is not a descriptor: pass nbtc.wgmma.Descriptor(start, leading, stride), or "
            "Descriptor.decode(word) of a 64-bit word"
        )
    memory = np.asarray(as_array(smem))
    if memory.dtype != np.uint8 or memory.ndim < 1:
        raise FormatError(f"shared memory is a uint8 array (..., bytes), not {memory.dtype}: pass smem.view(np.uint8)")
    at = _bytes_of(descriptor, rows, cols, fmt, major)
    if int(at.max()) >= memory.shape[-1]:
        raise BoundsError(
            f"the tile ({rows}, {cols}) of {fmt.name} at {descriptor} reaches byte {int(at.max())} of a shared "
            "memory of "
            f"{memory.shape[-1]} bytes: pass at least {int(at.max()) + 1} bytes or another descriptor"
        )
    found = memory[..., at]
    if fmt.bits == 1:
        return from_bits(np.unpackbits(found[..., 0], axis=-1, count=cols, bitorder="little"), fmt)
    return from_bits(
        np.ascontiguousarray(found).view(fmt.bits_dtype.newbyteorder("<"))[..., 0].astype(fmt.bits_dtype), fmt
    )


def _bytes_of(d: Descriptor, rows: int, cols: int, fmt: Format, major: str) -> NDArray[np.int64]:
    """Addresses of the bytes of every element: (MN, K, bytes), for b1 one byte for eight elements."""
    step = 8 if fmt.bits == 1 else 1
    at = d.address(np.arange(rows)[:, None], np.arange(0, cols, step)[None, :], fmt, major)
    return at[..., None] + np.arange(max(1, fmt.bits // 8))


def _as_bytes(bits: NDArray[Any], fmt: Format) -> NDArray[np.uint8]:
    """Element words (..., MN, K) as little-endian bytes (..., MN, K, bytes)."""
    if fmt.bits == 1:
        return np.packbits(bits, axis=-1, bitorder="little")[..., None]
    words = np.ascontiguousarray(bits).astype(bits.dtype.newbyteorder("<"), copy=False)
    return words.view(np.uint8).reshape(*bits.shape, bits.dtype.itemsize)
