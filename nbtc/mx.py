"""Block-scaled tensors: quantize and dequantize MXFP8, MXFP6, MXFP4 and NVFP4, and the scale layouts of libraries.

(OCP Microscaling Formats Specification 1.0; NVIDIA's NVFP4 recipe as Transformer Engine computes it.)
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc.compiler.jit import in_default_float_mode
from nbtc.compiler.machine_code.emitted import run_in_words
from nbtc.compiler.threads import parallel_for
from nbtc.errors import FormatError, OptionError, ShapeError, shown, whole_number
from nbtc.formats.arrays import as_array, as_format
from nbtc.formats.quantize import (
    E2M1_TOP,
    LargestArguments,
    MxArguments,
    Nvfp4Arguments,
    largest_code,
    mx_code,
    nvfp4_code,
)
from nbtc.formats.table import FORMATS, Format, ue4m3, ue8m0

__all__ = ["dequantize", "from_blocked", "quantize", "to_blocked"]

E4M3_TOP = np.float32(448)


class Recipe(NamedTuple):
    """A block format: the formats its elements may have (the first is the default), elements of a block, scales."""

    elements: tuple[str, ...]
    block: int
    scale: Format


RECIPES = {
    "mxfp8": Recipe(("e4m3", "e5m2"), 32, ue8m0),
    "mxfp6": Recipe(("e2m3", "e3m2"), 32, ue8m0),
    "mxfp4": Recipe(("e2m1",), 32, ue8m0),
    "nvfp4": Recipe(("e2m1",), 16, ue4m3),
}


def _recipe(name: str, element: object) -> tuple[Recipe, Format]:
    found = RECIPES.get(name) if isinstance(name, str) else None
    if found is None:
        raise OptionError(
            f"{shown(name)} is not a block format: there are {', '.join(RECIPES)}; e.g. nbtc.mx.quantize(x, 'mxfp4')"
        )
    fmt = FORMATS[found.elements[0]] if element is None else as_format(element)
    if fmt.name not in found.elements:
        raise OptionError(
            f"element={fmt.name!r}: {name} has elements of {' or '.join(found.elements)}; pass one of them"
        )
    return found, fmt


def _axis(axis: object, array: NDArray[Any]) -> int:
    found = whole_number(axis)
    if found is None or not -array.ndim <= found < array.ndim:
        raise ShapeError(
            f"axis={shown(axis)} is none of an array of shape {array.shape}: pass at least 1-D data and axis=-1"
        )
    return found


@in_default_float_mode
def quantize(
    x: ArrayLike, format: str, axis: int = -1, element: object = None, threads: int | None = None
) -> tuple[NDArray[Any], ...]:
    """Elements and scales of `x` in blocks along `axis`: (elements, scales), for nvfp4 also the tensor's scale.

    x: float32, float16 or bfloat16, any shape.  format: "mxfp8", "mxfp6", "mxfp4" (blocks of 32, float8_e8m0fnu scales)
    or "nvfp4" (blocks of 16, float8_e4m3fn scales).  element: "e5m2" or "e3m2" instead of e4m3 and e2m3.  Elements have
    the shape of x and the dtype of their format, scales one for each block along `axis` (the last may be short).

    MX: a scale is 2**(floor(log2(amax)) - emax), where amax is the block's largest magnitude; elements are x / scale,
    rounded to nearest even and saturated.  A block with an Inf or NaN has a NaN scale, a block of zeros the smallest.
    NVFP4: tensor_scale (float32) is amax(x) / (448 * 6); x is about elements * scales * tensor_scale.  Raises
    FormatError, OptionError, ShapeError.

    >>> import numpy as np
    >>> elements, scales = quantize(np.float32([[1, 2, 3, -20] * 8]), "mxfp4")
    >>> elements[0, :4].tolist(), scales.tolist()
    ([0.0, 0.5, 1.0, -4.0], [[4.0]])
    """
    recipe, fmt = _recipe(format, element)
    array = as_array(x)
    if array.dtype.name not in ("float32", "float16", "bfloat16"):
        raise FormatError(f"x is {array.dtype}: quantize takes float32, float16 or bfloat16; try x.astype(np.float32)")
    axis = _axis(axis, array)
    values = np.ascontiguousarray(np.moveaxis(array, axis, -1), np.float32)
    values = values if values.flags.writeable else values.copy()
    n, lines = values.shape[-1], values.size // max(1, values.shape[-1])
    blocks = -(-n // recipe.block)
    elements, scales = np.empty(values.shape, np.uint8), np.empty((*values.shape[:-1], blocks), np.uint8)
    flat = values.reshape(-1).view(np.uint32)
    lines_of = partial(MxArguments, flat, n, elements.reshape(-1), scales.reshape(-1))
    more: tuple[Any, ...] = ()
    if recipe.scale is ue4m3:
        more = _tensor_scale(flat)
        code, factors = nvfp4_code(recipe.block), np.array(more, np.float32)

        def some(first: int, last: int) -> None:
            run_in_words(code, Nvfp4Arguments(*lines_of(first, last), factors))
    else:
        code = mx_code(fmt.name, recipe.block)

        def some(first: int, last: int) -> None:
            run_in_words(code, lines_of(first, last))

    parallel_for(lines, 2 * n, threads, some)
    found = (
        np.ascontiguousarray(np.moveaxis(elements.view(fmt.dtype), -1, axis)),
        np.ascontiguousarray(np.moveaxis(scales.view(recipe.scale.dtype), -1, axis)),
    )
    return (*found, more[1]) if more else found


def _tensor_scale(values: NDArray[np.uint32]) -> tuple[np.float32, np.float32]:
    """What a tensor is multiplied by so that its largest block scale is 448, and one over it."""
    most = np.uint32(run_in_words(largest_code(), LargestArguments(values, values.size))).view(np.float32)
    top = E4M3_TOP * np.float32(E2M1_TOP)
    with np.errstate(over="ignore"):
        encode = np.float32(top / most) if most > 0 and np.isfinite(most) else np.float32(1)
    encode = min(encode, np.finfo(np.float32).max)
    return np.float32(encode), np.float32(np.float32(1) / encode)


@in_default_float_mode
def dequantize(
    elements: ArrayLike, scales: ArrayLike, tensor_scale: float | np.float32 | None = None, axis: int = -1
) -> NDArray[np.float32]:
    """elements * scales (* tensor_scale) in float32: the inverse of `quantize`, except for rounding.

    elements: an array of a float format of 8, 6 or 4 bits; scales: one for each block of 32 or 16 along `axis`.

    >>> import numpy as np
    >>> x = np.linspace(-1, 1, 64, dtype=np.float32)
    >>> float(np.abs(dequantize(*quantize(x, "nvfp4")) - x).max()) < 0.17
    True
    """
    e, s = as_array(elements), as_array(scales)
    fmt = as_format(e.dtype)
    if fmt.kind != "float" or fmt.bits > 8 or as_format(s.dtype).name not in ("ue8m0", "e4m3"):
        raise FormatError(
            f"elements are {e.dtype} and scales {s.dtype}: pass what nbtc.mx.quantize returns, elements of 8 bits and "
            "fewer and scales of float8_e8m0fnu or float8_e4m3fn"
        )
    factor = None if tensor_scale is None else as_array(tensor_scale)
    if factor is not None and (factor.ndim or factor.dtype.kind not in "iuf"):
        raise FormatError(f"tensor_scale={shown(tensor_scale)} is not one real number: pass what quantize returned")
    axis = _axis(axis, e) % e.ndim
    n, before, after = e.shape[axis], e.shape[:axis], e.shape[axis + 1 :]
    sizes = (32, 16) if as_format(s.dtype) is ue8m0 else (16,)
    fits = [block for block in sizes if s.shape == (*before, -(-n // block), *after)]
    if not fits:
        raise ShapeError(
            f"elements of shape {e.shape} have one scale for each block of 32 or 16 along axis {axis}, not scales of "
            f"shape {s.shape}: pass the same axis as to quantize"
        )
    with np.errstate(all="ignore"):
        values, factors = np.moveaxis(e.astype(np.float32), axis, -1), np.moveaxis(s.astype(np.float32), axis, -1)
        found = values * np.repeat(factors, fits[0], -1)[..., :n]
        if factor is not None:
            found *= factor.astype(np.float32)
    return np.ascontiguousarray(np.moveaxis(found, -1, axis), np.float32)


def to_blocked(scales: ArrayLike) -> NDArray[Any]:
    """Scales (rows, blocks) as libraries store them: tiles of 128 rows x 4 blocks, 512 bytes each, flat.

    Tiles come row after row; in a tile the scale of row r and block j is byte 16 * (r % 32) + 4 * (r / 32) + j.  Rows
    are padded to 128 and blocks to 4 with zeros.  (cuBLAS, "1D Block Scaling Factors Layout"; torchao `to_blocked`;
    also what one `tcgen05.cp.32x128b.warpx4` moves to tensor memory.)

    >>> import numpy as np
    >>> to_blocked(np.arange(256, dtype=np.uint8).reshape(64, 4))[[0, 1, 4, 16]].tolist()
    [0, 1, 128, 4]
    """
    x = as_array(scales)
    if x.ndim != 2 or x.dtype.itemsize != 1:
        raise ShapeError(
            f"scales of shape {x.shape} and {x.dtype}: pass (rows, blocks) of one byte each; of B the transposed ones"
        )
    rows, blocks = -(-x.shape[0] // 128), -(-x.shape[1] // 4)
    padded = np.zeros((rows * 128, blocks * 4), np.uint8)
    padded[: x.shape[0], : x.shape[1]] = x.view(np.uint8)
    tiles = padded.reshape(rows, 4, 32, blocks, 4).transpose(0, 3, 2, 1, 4)
    return np.ascontiguousarray(tiles).reshape(-1).view(x.dtype)


def from_blocked(blocked: ArrayLike, rows: int, blocks: int) -> NDArray[Any]:
    """The inverse of `to_blocked`: scales (rows, blocks) of a flat array of tiles.

    >>> import numpy as np
    >>> x = np.arange(130 * 5).astype(np.uint8).reshape(130, 5)
    >>> bool((from_blocked(to_blocked(x), 130, 5) == x).all())
    True
    """
    x, wanted = as_array(blocked), (whole_number(rows), whole_number(blocks))
    if any(n is None or not 0 <= n < 1 << 62 for n in wanted):
        raise ShapeError(
            f"rows={shown(rows)}, blocks={shown(blocks)}: pass the whole numbers that `to_blocked` was given"
        )
    down, across = -(-int(rows) // 128), -(-int(blocks) // 4)
    if x.dtype.itemsize != 1 or x.size != down * across * 512:
        raise ShapeError(
            f"{x.size} elements of {x.dtype} are not {down * across} tiles of 512 bytes, as {rows} rows of {blocks} "
            "scales fill: pass the whole array, of one byte a scale"
        )
    tiles = np.ascontiguousarray(x).reshape(-1).view(np.uint8).reshape(down, across, 32, 4, 4)
    whole = np.ascontiguousarray(tiles.transpose(0, 3, 2, 1, 4)).reshape(down * 128, across * 4)
    return np.ascontiguousarray(whole[:rows, :blocks]).view(x.dtype)
