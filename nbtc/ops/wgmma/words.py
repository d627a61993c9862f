"""Whole dense warpgroup products of 8-bit integers (four a word) and bits (32 a word) as vector code.

Roles and order as in `fused`: a tile has four columns of B and the 64 rows of A, every form eight words of K.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba.core import cgutils
from numpy.typing import NDArray

from nbtc.compiler.builder import I32, VectorBuilder, stack_array, vector
from nbtc.compiler.cpu.lowering import host
from nbtc.compiler.jit import jit
from nbtc.compiler.machine_code.emitted import Named, call_emitted
from nbtc.kernels.words.dot import DotElements, dot
from nbtc.numerics.models import BIT_OP, BIT_OPS, KIND, Kind
from nbtc.ops.wgmma import tile as tile_of
from nbtc.ops.wgmma.gather import DEPTH_BYTES, PANEL, ROWS, Gatherers, buffer, gather
from nbtc.ops.wgmma.general import THREADS
from nbtc.ops.wgmma.parts import part
from nbtc.ops.wgmma.tile import OF_S32, PAST_CACHES, Moving, fetch

WORDS, CHUNKS = DEPTH_BYTES // 4, PANEL // 16
W = vector(I32, 16)
BITS = 2  # instead of a signedness: bits, not bytes


def serves(params: NDArray[np.int64]) -> bool:
    """True when `run` does a dense form on this machine."""
    bits = params[KIND] == Kind.BITS and params[BIT_OP] == BIT_OPS["and"]
    return bool(bits or params[KIND] == Kind.INTEGER) and host() is not None


class _Words:
    """Writes the sums of all tiles: A and B prepared for the processor's products, then chunks of sixteen rows of A
    times four columns of B, as many chunks at a time as sums fit half of the registers.
    """

    def __init__(self, v: VectorBuilder, elements: DotElements, saturate: bool, args: dict[str, Any]) -> None:
        self.v, self.b, self.args, self.saturate = v, v.b, args, saturate
        self.dot = dot(v, elements)
        m = self.dot.m
        self.together = max(1, m.row.registers // 2 * m.row.bits // (ROWS * 512))
        self.planes = self.dot.planes_of_word
        self.left = self.buffer(self.planes * WORDS * PANEL)
        self.right = self.buffer(self.planes * WORDS * ROWS)

    def buffer(self, words: int) -> Any:
        """Stack memory."""
        return stack_array(self.b, 4 * words)

    def prepare(self, source: Any, count: int, destination: Any, of_b: bool) -> list[Any]:
        """`count` words to planes: all words of the first plane, then those of the next; returns them by vector."""
        v, found = self.v, []
        for n in range(0, 4 * count, 64):
            for p, x in enumerate(self.dot.planes(v.load(source, W, 4, n), of_b)):
                v.store(x, destination, 64, 4 * count * p + n)
                found.append(x)
        return found

    def surplus(self, words: list[Any]) -> list[Any] | None:
        """What the sums of each column of B have too much."""
        v, x = self.v, self.dot.surplus(words)
        if x is None:
            return None
        while x.type.count > ROWS:
            n = x.type.count // 2
            x = self.b.add(v.shuffle(x, x, list(range(n))), v.shuffle(x, x, list(range(n, 2 * n))))
        return [v.shuffle(x, x, [r] * 16) for r in range(ROWS)]

    def emit(self) -> None:
        v, b = self.v, self.b
        self.prepare(self.args["a"], WORDS * PANEL, self.left, False)
        with cgutils.for_range(b, self.args["tiles"]) as loop:
            fetch(v, self.args["ahead"], loop.index, False)
            at = v.at(self.args["b"], b.mul(loop.index, v.int(4 * ROWS * WORDS)))
            to = v.at(self.args["tile"], b.mul(loop.index, v.int(4 * ROWS * PANEL)))
            surplus = self.surplus(self.prepare(at, ROWS * WORDS, self.right, True))
            for first in range(0, CHUNKS, self.together):
                self.chunks(range(first, first + self.together), surplus, to)

    def chunks(self, chunks: range, surplus: list[Any] | None, to: Any) -> None:
        """Some chunks of a tile, all of K."""
        v, b = self.v, self.b
        sums = {(r, c): self.dot.zero(W) for r in range(ROWS) for c in chunks}
        for k in range(self.planes * WORDS):
            words = {c: v.load(self.left, W, 64, 4 * PANEL * k + 64 * c) for c in chunks}
            for r in range(ROWS):
                x = v.splat(v.load(self.right, I32, 4, 4 * (ROWS * k + r)), 16)
                for c in chunks:
                    sums[r, c] = self.dot.step(sums[r, c], words[c], x)
        for (r, c), x in sums.items():
            total, at = self.dot.total(x), 4 * PANEL * r + 64 * c
            total = total if surplus is None else b.sub(total, surplus[r])
            old = v.load(to, W, 64, at)
            v.store(v.over("sadd.sat", old, total) if self.saturate else b.add(old, total), to, 64, at)


class WordTiles(NamedTuple):
    """Arguments of the sums: tile += the products of [k][64] words of A and [tile][k][4] words of B.

    words[ahead] is where the accumulators to fetch begin.
    """

    a: Any
    b: Any
    tiles: int
    tile: Any
    words: Any
    ahead: int


@cache
def _sums(a_signed: int, b_signed: int, saturate: int) -> int:
    """The address of what sums `WordTiles`; BITS on both sides: and, popcount."""
    elements = DotElements(1, both=True) if a_signed == BITS else DotElements(8, bool(a_signed), bool(b_signed))

    def write(v: VectorBuilder, given: Named) -> None:
        ahead = v.at(given["words"], v.b.mul(given["ahead"], v.int(4)))
        _Words(v, elements, bool(saturate), given | {"ahead": ahead}).emit()

    return part(__file__, WordTiles, write, elements, saturate)


class WordSteps(NamedTuple):
    """Addresses of what a form consists of."""

    gather: Gatherers
    load: int
    sums: int
    store: int


@cache
def steps(a_signed: int, b_signed: int, saturate: int, gather: Gatherers) -> WordSteps:
    """Those of a form; BITS on both sides: and, popcount."""
    return WordSteps(gather, tile_of.loader(OF_S32), _sums(a_signed, b_signed, saturate), tile_of.storer(OF_S32))


@jit
def run(first, last, task, steps, floor, left):
    """Warpgroups first..last, as `fused.run`."""
    geometry, sources = task.geometry, task.sources
    d, d_from, keep, out_words = task.accumulators
    n = geometry.n
    raw_a, raw_b = buffer(PANEL * DEPTH_BYTES), buffer(n * DEPTH_BYTES)
    tile, one = buffer(4 * n * PANEL), np.float32(1.0)
    size = (n >> 1) * THREADS
    whole = n % 32 == 0 and (np.int64(out_words.ctypes.data) & 63) == 0
    lines = int(whole and out_words.size > PAST_CACHES)
    for g in range(first, last):
        gather(steps.gather, g, geometry, sources, raw_a, raw_b)
        if keep[g]:
            call_emitted(steps.load, Moving(d, d_from[g] * size, tile, n, one, 0))
        else:
            tile[:] = np.uint8(0)
        ahead = d_from[min(g + 1, last - 1)] * size
        call_emitted(steps.sums, WordTiles(raw_a, raw_b, n >> 2, tile, d, ahead))
        call_emitted(steps.store, Moving(out_words, g * size, tile, n, one, lines))
        left[g] = np.uint8(0)
