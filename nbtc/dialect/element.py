"""Element types of arrays: which Numba type a number format or dtype is inside kernels."""

from __future__ import annotations

from typing import Any

from numba.core import types

from nbtc.dialect import words
from nbtc.dialect.narrow import TYPES
from nbtc.formats.arrays import as_format


def element_type(name: str, given: Any) -> Any:
    """The type that a constant names: a format, a dtype or one of NumPy's scalar classes; `name` is who asks."""
    if isinstance(given, types.DTypeSpec):
        return given.dtype
    if isinstance(given, types.StringLiteral):
        return TYPES[as_format(given.literal_value).name]
    words.refuse(
        f"{name}: {given} is not an element type: pass a format such as nbtc.f16, or a dtype such as np.float32"
    )
