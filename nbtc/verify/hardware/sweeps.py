"""Every input of an instruction on registers, from which a GPU makes its operands itself.

A trial of a sweep reads nothing but where a block starts: a thread makes its operands from its own number, so that
every operand goes through all of its values (of 64-bit ones: of their upper words), the second one in another order
than the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from nbtc.isa.inline import HALF, LONG, InlineRegister
from nbtc.verify.hardware.trial import Array, Trial
from nbtc.verify.text import BYTES, Block, kernel

THREADS = 256
OPERANDS = 2  # that a sweep may have
# an odd factor and a shift: x -> x * FACTOR + SHIFT passes through all words, and neighbours get far from each other
FACTOR, SHIFT = 0x9E3779B1, 0x7F4A7C15
# an operand of a type from a word x and another one, y
_MADE = {HALF: "cvt.u16.u32 {0}0, {1};", LONG: "mov.b64 {0}0, {{{2}, {1}}};"}


class Sweep(NamedTuple):
    """An instruction: its name, its text, its registers, and what nbtc says it computes."""

    name: str
    text: str
    reads: Sequence[InlineRegister]
    result: InlineRegister
    compute: Callable[..., Array]

    @property
    def values(self) -> int:
        """How many inputs there are: 2^32 for words and upper words, 2^16 for 16-bit formats and pairs of fp8."""
        return 1 << 8 * min(4, BYTES[self.reads[0].type])

    def trial(self, start: int) -> Trial:
        """All values from `start` on, one a thread."""
        make = [f"ld.global.b32 w0, [window]; add.u32 w0, w0, thread; mad.lo.u32 w1, w0, {FACTOR}, {SHIFT};"]
        for i, r in enumerate(self.reads):
            make.append(_MADE.get(r.type, "mov.b32 {0}0, {1};").format(r.name, f"w{i}", f"w{1 - i}"))
        declared = [r.declaration for r in self.reads]
        body = kernel([], [self.result], [*make, self.text], THREADS, declared, Block(memory=4))

        def draw(rng: np.random.Generator, blocks: int) -> tuple[list[Array], list[Array]]:
            starts = np.arange(blocks, dtype=np.uint32) * np.uint32(THREADS) + np.uint32(start)
            return [starts], [np.zeros((blocks, THREADS), dtype_of(self.result))]

        def expect(inputs: list[Array], before: list[Array]) -> list[Array]:
            return [np.asarray(self.compute(*self.operands(start, before[0].size)))]

        return Trial(f"{self.name}, all inputs", body, THREADS, THREADS, draw, expect)

    def operands(self, start: int, count: int) -> list[Array]:
        """What the threads make."""
        x = np.arange(count, dtype=np.uint32) + np.uint32(start)
        made = x, x * np.uint32(FACTOR) + np.uint32(SHIFT)
        found: list[Array] = []
        for i, r in enumerate(self.reads):
            dtype = dtype_of(r)
            wide = made[i].astype(np.uint64) << np.uint64(32) | made[1 - i] if r.type == LONG else made[i]
            found.append(wide.astype(dtype))
        return found


def dtype_of(r: InlineRegister) -> np.dtype[np.unsignedinteger]:
    """The words that a register holds."""
    return np.dtype(f"u{BYTES[r.type]}")
