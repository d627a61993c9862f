"""A dense product of a single warp: what it takes is known beforehand, so it is one native call."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.machine_code.emitted import as_words
from nbtc.compiler.machine_code.prepared_calls import PreparedCall
from nbtc.compiler.machine_code.python_calls import prepared
from nbtc.kernels.warps.warp import LoneWarp, WarpLoop, lone_warp

WORD = np.dtype(np.uint32)
_MARK = np.empty(1, np.uint8)  # where the loop notes what it also returns; nobody reads it


class OneWarp:
    """A product of one warp.

    counts: registers of A, B, C and D.  loop: the compiled loop over warps, with its numbers.
    """

    def __init__(self, counts: tuple[int, ...], loop: WarpLoop, numbers: tuple[int, int]) -> None:
        *self.operands, self.d = ((32, n) for n in counts)
        self.loop, self.numbers = loop, numbers

    @cached_property
    def product(self) -> Callable[..., Any]:
        """D of three objects, if they are images that need no conversion and no copy; else a number.

        A number is also what products are for the general path.
        """
        images = [np.empty(shape, WORD) for shape in self.operands]
        words = as_words(LoneWarp(self.loop.address, 0, 0, 0, 0, *self.numbers, _MARK)).words
        call = PreparedCall(lone_warp(), words, self.d, WORD, (True,) * 3, done=0, locked=False, kept=_MARK)
        return prepared(call, (), *images)

    def run(self, a: Any, b: Any, c: Any) -> NDArray[np.uint32] | None:
        """D of images; None where the general path has to do it."""
        d = self.product(a, b, c)
        return d if type(d) is np.ndarray else None
