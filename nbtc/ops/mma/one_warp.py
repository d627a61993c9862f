"""A dense product of a single warp: what it takes is known beforehand, so a call is some comparisons and the kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.jit import machine_code
from nbtc.kernels.warps.warp import WarpLoop, lone_warp

WORD = np.dtype(np.uint32)
_MARK = np.empty(1, np.uint8)  # where the loop notes what it also returns; nobody reads it


class OneWarp:
    """A product of one warp.

    counts: registers of A, B, C and D.  loop: the compiled loop over warps, with its numbers.
    """

    def __init__(self, counts: tuple[int, ...], loop: WarpLoop, numbers: tuple[int, int]) -> None:
        self.a, self.b, self.c, self.d = ((32, n) for n in counts)
        self.place, (self.fraction, self.floor) = loop.address, numbers
        self.kernel: Any = None  # compiled at the first call

    def run(self, a: Any, b: Any, c: Any) -> NDArray[np.uint32] | None:
        """D of images that need no conversion and no copy; None of others, and where the general path has to do it."""
        if not (
            type(a) is type(b) is type(c) is np.ndarray
            and a.dtype is WORD and b.dtype is WORD and c.dtype is WORD
            and a.shape == self.a and b.shape == self.b and c.shape == self.c
            and a.flags.c_contiguous and b.flags.c_contiguous and c.flags.c_contiguous
        ):  # fmt: skip
            return None
        d: NDArray[np.uint32] = np.empty(self.d, np.uint32)
        if self.kernel is None:
            self.kernel = machine_code(lone_warp, None, self.place, a, b, c, d, self.fraction, self.floor, _MARK)
        return None if self.kernel(self.place, a, b, c, d, self.fraction, self.floor, _MARK) else d
