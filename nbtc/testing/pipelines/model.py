"""A program of producers and consumers by its numbers, and what it computes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc import ptx
from nbtc.fragments.smem_descriptors import Descriptor
from nbtc.instructions import Instruction
from nbtc.testing.copies.memories import reduced
from nbtc.testing.copies.tensors import Tensor
from nbtc.testing.warpgroup_programs import GROUP, held, result

ROWS = 64  # of A: a consumer's
STEP = 32  # bytes of K that a product takes
PATTERN = 1024  # bytes: where the pattern of every swizzle starts over
SPANS = {"32B": 32, "64B": 64, "128B": 128}


class Pipeline(NamedTuple):
    """PTX with one kernel `k`, and its numbers.

    A block multiplies `tiles` pairs of tiles, one after the other: of A a tile for each consumer, of B one for all, or
    for both blocks of a cluster (`shares`).  K is `turns` stages, each `span` bytes.  a, b: how they come: a tensor, or
    how a line of bytes is copied: "bulk", or "async" by a warp.  registers: A is loaded into registers.  in_flight:
    groups of products that may be when a stage is given back.  reduces: results are added to memory.  adjusts: the
    producer gives registers away.  by_matrices: results go to shared memory by stmatrix.

    The kernel takes pointers to A and to B, to results at first (block, tile, consumer, register, thread), then the
    maps of those that are tensors.
    """

    text: str
    form: Instruction
    cluster: int
    blocks: int
    consumers: int
    stages: int
    tiles: int
    turns: int
    swizzle: str
    a: Tensor | str
    b: Tensor | str
    shares: bool
    registers: bool
    in_flight: int
    reduces: bool
    adjusts: bool
    by_matrices: bool

    @property
    def threads(self) -> int:
        """Of a block."""
        return GROUP * (1 + self.consumers)

    @property
    def span(self) -> int:
        """Bytes of K of a stage."""
        return SPANS[self.swizzle]

    @property
    def columns(self) -> int:
        """Columns of B."""
        return held(self.form)[1].cols

    @property
    def a_bytes(self) -> int:
        """Of a consumer's tile of A."""
        return ROWS * self.span

    @property
    def b_bytes(self) -> int:
        """Of a tile of B."""
        return self.columns * self.span

    @property
    def stage(self) -> int:
        """Bytes of a stage, from one to the next."""
        return self.consumers * self.a_bytes + -(-self.b_bytes // PATTERN) * PATTERN

    @property
    def result(self) -> int:
        """Bytes of a consumer's results."""
        return 4 * GROUP * result(self.form).registers

    @property
    def barriers(self) -> int:
        """Where the mbarriers are: full ones, then empty ones."""
        return self.stages * self.stage + self.consumers * self.result

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory."""
        return self.barriers + 16 * self.stages

    @property
    def sources(self) -> tuple[int, int]:
        """Bytes of A and of B in memory."""
        pairs = self.blocks * self.tiles
        lines = pairs * self.turns * self.consumers * self.a_bytes, self._pairs_of_b * self.turns * self.b_bytes
        given = (self.a, self.b)
        a, b = (x.bytes if isinstance(x, Tensor) else n for x, n in zip(given, lines, strict=True))
        return a, b

    @property
    def _pairs_of_b(self) -> int:
        return self.blocks * self.tiles // (2 if self.shares else 1)

    @property
    def shown(self) -> tuple[int, ...]:
        """The shape of the results."""
        return self.blocks, self.tiles, self.consumers, result(self.form).registers, GROUP

    def results(self, inputs: list[Any], before: list[Any]) -> list[Any]:
        """What the results become, by `nbtc.ptx.wgmma` on what NumPy lays out in shared memory."""
        found = before[0].copy()
        for tile in range(self.tiles):
            d = np.zeros((self.blocks, self.consumers, GROUP, result(self.form).registers), np.uint32)
            for turn in range(self.turns):
                d = self._products(d, self._stage(inputs, tile, turn), turn)
            words = d.transpose(0, 1, 3, 2)
            if self.reduces:
                kind = result(self.form).format.name
                words = _sum(kind, found[:, tile], words)
            found[:, tile] = words
        return [found]

    def _stage(self, inputs: list[Any], tile: int, turn: int) -> NDArray[np.uint8]:
        """A stage as each consumer sees it, A and then B: (blocks, consumers, bytes)."""
        smem = np.zeros((self.blocks, self.consumers, self.a_bytes + -(-self.b_bytes // PATTERN) * PATTERN), np.uint8)
        for block in range(self.blocks):
            pair = block // (2 if self.shares else 1) * self.tiles + tile
            self._lay(smem[block], self.a_bytes, self.b, inputs[1], pair * self.columns, pair, (turn, self.b_bytes))
            for c in range(self.consumers):
                number = (block * self.tiles + tile) * self.consumers + c
                self._lay(smem[block, c], 0, self.a, inputs[0], number * ROWS, number, (turn, self.a_bytes))
        return smem

    def _lay(
        self, smem: Any, at: int, how: Tensor | str, data: Any, row: int, number: int, turn: tuple[int, int]
    ) -> None:
        """A tile into shared memory."""
        if isinstance(how, Tensor):
            rows = how.loaded(data, (turn[0] * how.box[0], row))
            if self.shares and at:  # the box is one of two halves
                rows = np.concatenate([rows, how.loaded(data, (turn[0] * how.box[0], row + how.box[1]))])
            how.put(smem, at, rows)
        else:
            start = (number * self.turns + turn[0]) * turn[1]
            smem[..., at : at + turn[1]] = data[start : start + turn[1]]

    def _products(self, d: Any, smem: Any, turn: int) -> Any:
        for k in range(self.span // STEP):
            a: Any = self.descriptor(STEP * k).encode()
            if self.registers:
                words = smem[..., k * ROWS * STEP : (k + 1) * ROWS * STEP]
                a = np.ascontiguousarray(words).view(np.uint32).reshape(*smem.shape[:-1], GROUP, 4)
            b = self.descriptor(self.a_bytes + STEP * k).encode()
            d = ptx.wgmma(self.form.mnemonic, d, a, b, smem, scale_d=int(turn + k > 0), threads=1)
        return d

    def descriptor(self, start: int) -> Descriptor:
        """Of a tile's rows of `span` bytes."""
        return Descriptor(start, 16, 8 * self.span, 0, self.swizzle)


def _sum(kind: str, x: Any, y: Any) -> Any:
    """Words of results added to those in memory."""
    name = "noftz.f16" if kind == "f16" else kind
    x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
    return (
        reduced("add", name, x.reshape(-1).view(np.uint8), y.reshape(-1).view(np.uint8))
        .view(np.uint32)
        .reshape(x.shape)
    )
