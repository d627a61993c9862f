"""A dense product of a single warp: what it takes is known beforehand, so a call is some comparisons and the kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.jit import call
from nbtc.kernels.warp import Loop, some_warps
from nbtc.ops.images import Words

WORD = np.dtype(np.uint32)
ALONE = (0, 0, 0, 0)  # strides of images that one warp has
_MARK = np.empty(1, np.uint8)  # where the loop notes what it also returns; nobody reads it


class OneWarp:
    """A product of one warp.

    counts: registers of A, B, C and D.  loop: the compiled loop over warps, with its numbers.
    """

    def __init__(self, counts: tuple[int, ...], loop: Loop, numbers: tuple[int, int]) -> None:
        self.a, self.b, self.c, self.d = ((32, n) for n in counts)
        self.loop, self.numbers = loop, numbers

    def takes(self, a: Any, b: Any, c: Any) -> bool:
        """Whether they are images of one warp that need no conversion and no copy."""
        return (
            type(a) is type(b) is type(c) is np.ndarray
            and a.dtype is WORD and b.dtype is WORD and c.dtype is WORD
            and a.shape == self.a and b.shape == self.b and c.shape == self.c
            and a.flags.c_contiguous and b.flags.c_contiguous and c.flags.c_contiguous
        )  # fmt: skip

    def run(self, a: Words, b: Words, c: Words) -> NDArray[np.uint32] | None:
        """D of images that it takes; None where the general path has to do it."""
        d = np.empty(self.d, WORD)
        images = a.ravel(), b.ravel(), c.ravel(), d.ravel()
        place = self.loop.address
        return None if call(some_warps, len(images), place, images, ALONE, 0, 1, self.numbers, _MARK) else d
