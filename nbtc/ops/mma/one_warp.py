"""A dense product of a single warp: what it takes is known beforehand, so a call is some comparisons and the kernel."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.machine_code.emitted import caller_in_words
from nbtc.compiler.machine_code.python_calls import likeness
from nbtc.kernels.warps.warp import LoneWarp, WarpLoop, lone_warp

WORD = np.dtype(np.uint32)
_MARK = np.empty(1, np.uint8)  # where the loop notes what it also returns; nobody reads it


class OneWarp:
    """A product of one warp.

    counts: registers of A, B, C and D.  loop: the compiled loop over warps, with its numbers.
    """

    def __init__(self, counts: tuple[int, ...], loop: WarpLoop, numbers: tuple[int, int]) -> None:
        *self.operands, self.d = ((32, n) for n in counts)
        self.place, (self.fraction, self.floor) = loop.address, numbers
        self.kernel, self.call = lone_warp(), caller_in_words(LoneWarp)

    @cached_property
    def like(self) -> Any:
        """Whether three objects are images that need no conversion and no copy."""
        return likeness(*(np.empty(shape, WORD) for shape in self.operands))

    def run(self, a: Any, b: Any, c: Any) -> NDArray[np.uint32] | None:
        """D of images; None where the general path has to do it."""
        if not self.like(a, b, c):
            return None
        # the dtype, not its type: finding it takes NumPy longer than the memory
        d: NDArray[np.uint32] = np.empty(self.d, WORD)
        return None if self.call(self.kernel, (self.place, a, b, c, d, self.fraction, self.floor, _MARK)) else d
