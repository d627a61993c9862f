"""Scales of float32 products: one number, one a row or one a column, applied to the finished result."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.errors import FormatError, OptionError, RangeError, ShapeError, shown
from nbtc.formats.arrays import as_array
from nbtc.formats.table import Format, ue4m3, ue8m0

Scales = tuple[NDArray[np.float32] | None, NDArray[np.float32] | None]


def are_of_blocks(*scales: Any) -> bool:
    """Whether scales are those of blocks: arrays of a format of 8 bits."""
    if not any(s is not None for s in scales):
        return False
    names = {ue8m0.dtype, ue4m3.dtype}
    return any(getattr(s, "dtype", None) in names or "float8" in str(getattr(s, "dtype", "")) for s in scales)


def float_scales(scale_a: Any, scale_b: Any, shape: tuple[int, ...], acc: Format) -> Scales:
    """Checked scales of a result of shape (batch..., M, N): each None, a number, (..., M, 1) or (..., 1, N)."""
    if scale_a is None and scale_b is None:
        return None, None
    *batch, m, n = shape
    given = (scale_a, "scale_a", (m, 1)), (scale_b, "scale_b", (1, n))
    a, b = (None if x is None else _scale(x, name, tuple(batch), last, acc) for x, name, last in given)
    return a, b


def _scale(x: Any, name: str, batch: tuple[int, ...], last: tuple[int, int], acc: Format) -> NDArray[np.float32]:
    if acc.name != "f32":
        raise OptionError(
            f"{name} with {acc.name} accumulators: scales multiply a float32 result; drop it, or pass acc='f32'"
        )
    number = isinstance(x, int | float) and not isinstance(x, bool)
    try:
        values = np.asarray(x, np.float32) if number else as_array(x)
    except OverflowError:
        raise RangeError(f"{name}={shown(x)} is beyond every float: pass a number that float32 holds") from None
    if values.dtype != np.float32:
        raise FormatError(
            f"{name} is {values.dtype}: scales of a finished product are float32; pass {name}.astype(np.float32)"
        )
    legal = values.shape[-2:] in ((), (1, 1), last) and values.ndim != 1
    if not legal or any(have not in (1, want) for have, want in zip(values.shape[-3::-1], batch[::-1], strict=False)):
        legal = False
    if not legal or values.ndim > len(batch) + 2:
        raise ShapeError(
            f"{name} has shape {values.shape}; the result is scaled by one number or by {last}"
            f"{f' with batch axes that broadcast to {batch}' if batch else ''}: try {name}.reshape{last}"
        )
    return values


def apply_scales(result: NDArray[Any], scales: Scales) -> None:
    """result * scale_a, then * scale_b, each rounded to nearest even, in place."""
    with np.errstate(all="ignore"):
        for scale in scales:
            if scale is not None:
                result *= scale
