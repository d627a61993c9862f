"""Large integer, bit and f64 products: panels of words, six rows a tile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.machine_code.emitted import run_in_words
from nbtc.compiler.pools.workspace_pool import WORKSPACE_POOL, Arrays, Key
from nbtc.compiler.stages import Stage
from nbtc.compiler.threads import ThreadTeam
from nbtc.formats.table import Format
from nbtc.gemm.engines.packed_memory import flat
from nbtc.gemm.repeated import Call
from nbtc.gemm.shares import (
    COLUMNS,
    USUAL,
    BlockStages,
    Costs,
    RowsBefore,
    Share,
    buffers,
    column_shares,
    columns_at_once,
    in_line,
    row_shares,
)
from nbtc.kernels.repeated import WordsArguments, repeated
from nbtc.kernels.words import words as micro
from nbtc.kernels.words import words_amx
from nbtc.kernels.words.words_pack import (
    BYTE_PAIRS,
    BYTES,
    NIBBLE_PAIRS,
    NIBBLES,
    WORDS,
    Part,
    Reading,
    per_unit,
)

DEPTH = 512  # words of depth in a packed block
# Sums in tile registers are four times as fast as VPDPBUSD's, packing is not: products of 3,072 rows took 0.9 ms for 64
# columns, 1.2 for 128 and 1.9 for 256, so that packing is worth 110 columns (timed by hand on Sapphire Rapids).
IN_TILE_REGISTERS = Costs(packing=110, call=4096)
WHOLE = 1 << 27  # multiply-adds of a product that is one call, 5 ms of f64: an interrupt waits for all of them


def shares(
    m: int, columns: int, threads: int, lines: int, width: int, costs: Costs = USUAL
) -> list[tuple[int, int, int, int]]:
    """(first row, rows, first column, columns) of each task."""
    even = max(lines, -(-m // (threads * lines)) * lines)  # as many rows for each thread
    few = (even,) if even < micro.BLOCK else ()
    cut = row_shares(m, -(-columns // width), width, threads, micro.BLOCK, few, costs)
    return [(i, rows, p * width, min(n * width, columns - p * width)) for i, rows, p, n in cut]


@dataclass(frozen=True)
class Scheme:
    """How a kind of product is stored and the addresses of what packs columns and what multiplies rows.

    words, units: so many words are made of so many units; whole: packed lines have a multiple of that many.  elements:
    of a unit.  lines, width: of a register tile.
    size: bytes of a word, and of a sum.  x, y: what makes A signed and B unsigned.  costs: of a task beside its sums.
    """

    words: int
    units: int
    whole: int
    elements: int
    lines: int
    width: int
    size: int
    signed: tuple[bool, bool]
    x: int
    y: int
    flips: tuple[int, int]
    columns: int
    rows: int
    costs: Costs

    def depth(self, units: int) -> int:
        """Words that so many units are packed into."""
        return -(-(-(-units // self.units) * self.words) // self.whole) * self.whole

    @cached_property
    def readings(self) -> tuple[Reading, Reading]:
        """How elements of A and B are read."""
        a, b = (
            Reading(int(signed), flip, self.x, self.y) for signed, flip in zip(self.signed, self.flips, strict=True)
        )
        return a, b


class _Block(NamedTuple):
    """All rows of A, a packed block of B with its corrections, D; the block's first column and k; its packed depth and
    units of storage; whether D holds nothing yet.
    """

    a: NDArray[Any]
    packed: Any
    across: Any
    d: NDArray[Any]
    j: int
    k: int
    depth: int
    units: int
    fresh: bool


@lru_cache(maxsize=64)
def scheme(op: int, a: Format, b: Format, rounding: int = 0) -> Scheme:
    """The scheme for an operation on two formats; rounding: f64's."""
    pairs = op == micro.PAIRS
    source = {8: BYTE_PAIRS if pairs else BYTES, 4: NIBBLE_PAIRS if pairs else NIBBLES}.get(a.bits, WORDS)
    words, units = per_unit(source)
    elements = {4: 8, 1: 32}.get(a.bits, 1)
    tile = micro.tile_of(op)
    # VPDPBUSD takes signed A and unsigned B: 4-bit A fits a signed byte as it is, signed 4-bit B is raised by 8
    x = 128 if op == micro.DOT and source == BYTES and not a.signed else 0
    y = 1 << (b.bits - 1) if op == micro.DOT and b.signed else 0
    flips = (x, y if source == BYTES else 0)
    signs = (a.signed, b.signed) if op == micro.AMX else (True, True)
    kernels = micro.packs_columns(op, source), micro.multiplies_rows(op, rounding, source, signs)
    whole = words_amx.WORDS_AT_ONCE if op == micro.AMX else 1
    sizes = words, units, whole, elements, tile.rows, tile.width, tile.size
    costs = IN_TILE_REGISTERS if op == micro.AMX else USUAL
    return Scheme(*sizes, (a.signed, b.signed), x, y, flips, *kernels, costs)


def panels(columns: int, threads: int, width: int) -> list[tuple[int, int]]:
    """(first column, columns) of each packing task."""
    cut = column_shares(-(-columns // width), width, threads)
    return [(p * width, min(n * width, columns - p * width)) for p, n in cut]


def _memory(*sizes: int) -> Key:
    """Of so many bytes each, in words of eight: what drives emitted code is compiled for one type."""
    return tuple((size // 8, "<u8") for size in sizes)


def _memory_of_rows(depth: int, size: int, tile: int) -> Key:
    """The sizes of a `RowBuffer` for rows of so many words of `size` bytes; tile: sums of a register tile."""
    return _memory(micro.BLOCK * depth * size, tile * size, micro.BLOCK * 4)


@lru_cache(maxsize=256)
def _memory_of_whole(depth: int, columns: int, size: int, tile: int) -> Key:
    """Those of a packed block of so many columns of B with its corrections, then of a `RowBuffer`."""
    return (*_memory(columns * depth * size, columns * 4), *_memory_of_rows(depth, size, tile))


def _whole_part(x: NDArray[Any]) -> Part:
    elements, first, ld = flat(x, 0, x.shape[0], 0, x.shape[1])
    return Part(elements.view(np.uint8), first, ld)


def _part(x: NDArray[Any], at: int, ld: int) -> Part:
    return Part(x.view(np.uint8), at, ld)


def _key_of_whole(how: Scheme, units: int, columns: int) -> Key:
    """Memory of a product that is one packed block."""
    padded = -(-columns // how.width) * how.width
    return _memory_of_whole(how.depth(units), padded, how.size, how.lines * how.width)


def _whole_arguments(
    how: Scheme, shape: tuple[int, int, int], parts: tuple[Part, Part, Part], arrays: Arrays, fresh: bool
) -> micro.ProductArguments:
    """Of rows, units and columns; parts: A, B and D."""
    (rows, units, columns), (a, b, goal), (packed, across, *own) = shape, parts, arrays
    of_a, of_b = how.readings
    columns_of_b = micro.PackedWords(packed, across)
    return micro.ProductArguments(
        how.columns, micro.WordColumnsArguments(b, units, columns, of_b, columns_of_b),
        how.rows, micro.WordRowsArguments(
            a, rows, units, of_a, columns_of_b, goal, columns, micro.RowBuffer(*own), int(fresh)
        ),
    )  # fmt: skip


def words_call(how: Scheme, a: NDArray[Any], b: NDArray[Any]) -> Call | None:
    """The product of any operands of these layouts, in units of storage, as one call; None of more than one block.

    Of f64 it vouches for results without NaN.
    """
    (rows, units), columns = a.shape, b.shape[1]
    if units > DEPTH * how.units // how.words or columns > COLUMNS:
        return None
    nowhere = np.zeros(0, np.uint8)
    parts = Part(nowhere, 0, units), Part(nowhere, 0, columns), Part(nowhere, 0, columns)
    doubles = rows * columns if how.size == 8 else 0

    def arguments(arrays: Arrays) -> WordsArguments:
        whole = _whole_arguments(how, (rows, units, columns), parts, arrays, True)
        return WordsArguments(micro.multiplies_product(), whole, doubles)

    result = (rows, columns), np.float64 if doubles else np.int32
    in_order = a.flags.c_contiguous, b.flags.c_contiguous
    return Call(repeated().words, _key_of_whole(how, units, columns), arguments, result, in_order)


class WordsProduct:
    """d += A * B of bytes, of words of eight 4-bit elements, of words of 32 bits (b1) or of f64."""

    def __init__(self, how: Scheme, team: ThreadTeam) -> None:
        self.how, self.team = how, team

    def run(self, a: NDArray[Any], b: NDArray[Any], d: NDArray[Any], fresh: bool = False) -> None:
        """a (M, K), b (K, N) in any layout, K in units of storage, not 0; d (M, N) C order, holding the start values.

        fresh: d holds nothing, and all start values are zero.
        """
        units, columns = b.shape
        deep = DEPTH * self.how.units // self.how.words
        at_once = columns_at_once(self.team.threads)
        alone = self.team.threads == 1 and not self.team.reports
        if alone and units <= deep and columns <= at_once and d.size * units * self.how.elements <= WHOLE:
            self._whole(a, b, d, fresh)
            return
        blocks = [
            (j, k, min(at_once, columns - j), min(deep, units - k))
            for j in range(0, columns, at_once)
            for k in range(0, units, deep)
        ]
        if blocks:
            self._in_blocks(a, b, d, fresh, blocks)

    def _whole(self, a: NDArray[Any], b: NDArray[Any], d: NDArray[Any], fresh: bool) -> None:
        """A product that is one packed block, in one call."""
        key = _key_of_whole(self.how, *b.shape)
        arrays = WORKSPACE_POOL.take(key)
        goal = Part(d.reshape(-1).view(np.uint8), 0, b.shape[1])
        parts = _whole_part(a), _whole_part(b), goal
        arguments = _whole_arguments(self.how, (a.shape[0], *b.shape), parts, arrays, fresh)
        run_in_words(micro.multiplies_product(), arguments)
        WORKSPACE_POOL.give(key, arrays)

    def _in_blocks(self, a: Any, b: Any, d: Any, fresh: bool, blocks: list[tuple[int, int, int, int]]) -> None:
        """All rows times one packed block of B after the other; blocks: first column and unit, how many of each."""
        how, team, (*_, columns, units) = self.how, self.team, blocks[0]
        padded = -(-columns // how.width) * how.width
        key = _memory(padded * how.depth(units) * how.size, padded * 4)
        memory = [WORKSPACE_POOL.take(key) for _ in range(buffers(team.threads, len(blocks)))]
        most = max(len(work) for work in self._shares(a.shape[0], columns))
        team.run_in_order(in_line(self._stages(a, b, d, fresh, blocks, memory), team.threads), most)
        for arrays in memory:
            WORKSPACE_POOL.give(key, arrays)

    def _shares(self, rows: int, columns: int) -> tuple[list[tuple[int, int]], list[Share]]:
        """Those of packing a block, and of the rows that pass it."""
        threads, how = self.team.threads, self.how
        return panels(columns, threads, how.width), shares(rows, columns, threads, how.lines, how.width, how.costs)

    def _stages(
        self, a: Any, b: Any, d: Any, fresh: bool, blocks: list[tuple[int, int, int, int]], memory: list[Arrays]
    ) -> Iterator[BlockStages]:
        """Those of each block, whose memory is that of an earlier one."""
        before = RowsBefore(len(memory))
        for number, (j, k, columns, units) in enumerate(blocks):
            packed, across = memory[number % len(memory)]
            packing, rows = self._shares(a.shape[0], columns)
            depth = self.how.depth(units)
            first = Stage(self._pack, (b, packed, across, j, k, depth, units), packing, needs=before.of_memory())
            block = _Block(a, packed, across, d, j, k, depth, units, fresh and not k)
            macs = a.shape[0] * columns * units * self.how.elements // max(1, len(rows))
            second = Stage(self._rows, (block,), rows, macs, [first], before.of_sums(k > 0))
            before.add(second)
            yield BlockStages(first, None, second)

    def _pack(
        self, b: Any, packed: Any, across: Any, j: int, k: int, depth: int, units: int, q: int, columns: int
    ) -> None:
        """Some panels of B."""
        part = _part(*flat(b, k, units, j + q, columns))
        out = self._panels(packed, across, q, depth)
        arguments = micro.WordColumnsArguments(part, units, columns, self.how.readings[1], out)
        run_in_words(self.how.columns, arguments)

    def _panels(self, packed: NDArray[Any], across: NDArray[Any], column: int, depth: int) -> micro.PackedWords:
        """Packed panels from a column on, the first of one."""
        return micro.PackedWords(packed[column * depth * self.how.size // 8 :], across[column * 4 // 8 :])

    def _rows(self, block: _Block, i: int, rows: int, q: int, columns: int) -> None:
        """Some rows times some panels."""
        a, packed, across, d, j, k, depth, units, fresh = block
        ldd, how = d.shape[1], self.how
        key = _memory_of_rows(depth, how.size, how.lines * how.width)
        own = WORKSPACE_POOL.take(key)
        arguments = micro.WordRowsArguments(
            _part(*flat(a, i, rows, k, units)), rows, units, how.readings[0],
            self._panels(packed, across, q, depth), _part(d.reshape(-1), i * ldd + j + q, ldd), columns,
            micro.RowBuffer(*own), int(fresh),
        )  # fmt: skip
        run_in_words(how.rows, arguments)
        WORKSPACE_POOL.give(key, own)
