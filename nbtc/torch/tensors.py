"""Tensors <-> arrays without copies, and results rounded once to a tensor's dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nbtc.formats.arrays import as_array

CANONICAL_NAN = 0x7FFF  # of float16 and bfloat16, as cvt writes it


def array(t: torch.Tensor) -> NDArray[Any]:
    """A tensor on the CPU as an array that shares its memory, whatever its strides."""
    x: NDArray[Any] = as_array(t.detach())
    return x


def rounded(x: NDArray[Any], dtype: torch.dtype) -> torch.Tensor:
    """Finished accumulators as a tensor of `dtype`, rounded to nearest even, NaNs canonical."""
    wide = torch.from_numpy(x)
    if dtype == wide.dtype:
        return wide
    narrow = wide.to(dtype)
    flat = x.reshape(-1)
    with np.errstate(all="ignore"):
        finite = np.isfinite(np.vdot(flat, flat))  # one pass over memory; a NaN cannot hide in a finite sum
    if not finite:
        narrow.view(torch.int16).masked_fill_(torch.isnan(wide), CANONICAL_NAN)
    return narrow
