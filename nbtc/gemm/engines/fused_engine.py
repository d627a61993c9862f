"""Large fused products on AVX-512: which micro-kernel fits the operands, how they are cut, and what is repaired."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.machine_code.emitted import run_in_words
from nbtc.compiler.pools.workspace_pool import WORKSPACE_POOL
from nbtc.compiler.stages import Stage
from nbtc.compiler.threads import ThreadTeam
from nbtc.formats.table import Format, f32
from nbtc.gemm.cost import POSITIONS
from nbtc.gemm.engines import lone_block
from nbtc.gemm.engines.exponent_ranges import Range, exponents_of
from nbtc.gemm.engines.packed_layout import EMULATED_FP8, packed_layout
from nbtc.gemm.engines.packed_memory import ROW_BLOCK, columns_storage, flat, rows_storage
from nbtc.gemm.shares import (
    COLUMNS,
    BlockStages,
    RowsBefore,
    Share,
    buffers,
    column_shares,
    columns_at_once,
    in_line,
    row_shares,
)
from nbtc.kernels.float_fields import SPECIAL
from nbtc.kernels.panels.fused_sum import PANEL
from nbtc.kernels.panels.panel_code import form, packer
from nbtc.kernels.panels.panel_drivers import ColumnsArguments, RowsArguments, drivers, drivers_ahead
from nbtc.kernels.panels.panel_operands import (
    Geometry,
    Marks,
    Packed,
    PanelForm,
    Scales,
    State,
    Workspace,
)
from nbtc.kernels.panels.panel_pack import least_field_by_turns
from nbtc.kernels.specials import MatrixBlock, decide, special_places
from nbtc.numerics.models import BLOCK, FRACTION, KIND, OUT, OUTS

DEPTH_F64, DEPTH_F32 = 512, 1024  # products of a packed block of B: its columns take 4.5 and 5 KiB each
PLACES = 16  # products are packed sixteen at a time; zeros at the end of K change no sum that has been rounded once
DECIDED = 512  # rows looked at together for what an Inf or NaN decides
NOTHING = np.zeros(0, np.int64)  # no positions
NO_LIFTS = np.zeros(0, np.int32)
# full range: an alignment exponent takes part in powers of two that two normal f32 factors make, |n| <= 254
MOST_SCALED = 100


# 16 products and c can only leave 32 bits when significands sum to 31 on both sides: 15 without leading bits.
MANY_SIGNIFICANDS = 15
# Fractions for which the bounds above were derived; sums of f32 terms are exact for 13 alone.
FRACTIONS = (13, 23, 24, 25)


def serves(block: int, fraction: int, emulated: bool) -> bool:
    """Whether operands packed `PLACES` at a time hold whole blocks, however K is cut, and the bounds hold for a row."""
    granule = max(PLACES, block * (2 if emulated else 1))
    return fraction in FRACTIONS and not (DEPTH_F64 % granule or DEPTH_F32 % granule or granule % max(1, block))


class ScaleExponents(NamedTuple):
    """Exponents of block scales: int32 of A [block][row] and of B [block][column], lines padded to whole panels.

    ranges: exponents of the elements of A and of B with their scales.
    """

    a: NDArray[np.int32]
    b: NDArray[np.int32]
    ranges: tuple[Range, Range]


class PackedBlock(NamedTuple):
    """What is packed of B at once: `columns` from j on, `depth` products from k on, padded with zeros to `places`."""

    j: int
    k: int
    depth: int
    places: int
    columns: int


class FusedProduct:
    """One product of 2-D operands: `run` computes it, `marks` says which outputs must be done element by element."""

    def __init__(
        self,
        a: NDArray[Any],
        b: NDArray[Any],
        formats: tuple[Format, Format],
        params: NDArray[np.int64],
        team: ThreadTeam,
        scale_exponents: ScaleExponents | None = None,
    ) -> None:
        self.a, self.b, self.formats, self.team, self.scale_exponents = a, b, formats, team, scale_exponents
        self.params: tuple[int, ...] = tuple(params.tolist())
        self.block, fraction = self.params[BLOCK], self.params[FRACTION]
        self.in_f64, self.emulated = fraction > 13, self.params[KIND] == EMULATED_FP8
        self.granule = max(PLACES, self.block * (2 if self.emulated else 1))
        rows, columns = -(-a.shape[0] // ROW_BLOCK), -(-b.shape[1] // PANEL)
        tiles, lines = rows * columns, rows * ROW_BLOCK
        self.marks = np.zeros(tiles + lines + columns * PANEL, np.uint8)
        self.redo = self.marks[:tiles].reshape(rows, columns)
        self.special = self.marks[tiles:]
        self.special_rows, self.special_columns = self.special[:lines], self.special[lines:]

    def run(self, state: NDArray[np.float32], has_c: bool) -> None:
        """state (M, N) float32: c in, or anything; the chain's result out (f16 accumulators as f32 values)."""
        drivers_ahead()
        ra, rb = self.ranges()
        f16_acc = self.params[OUT] == OUTS["rne11"]
        rc = exponents_of(state.view(np.uint32), f32, self.team) if has_c and not f16_acc else None
        self.lay_out(ra, rb, rc)
        if not self._in_one_piece(State(state, state.shape[1], int(not has_c))):
            self._in_blocks(state, has_c)
        # byte exponents mean that no finite sum comes near overflow; elsewhere the order of the products matters
        if not f16_acc and not self.packing.full_range and np.count_nonzero(self.special):
            work = [
                (i, min(DECIDED, self.a.shape[0] - i), j, min(COLUMNS, self.b.shape[1] - j))
                for i in range(0, self.a.shape[0], DECIDED)
                for j in range(0, self.b.shape[1], COLUMNS)
            ]
            self.team.run(self._decide, (state.view(np.uint32).reshape(-1),), work)
            self.special[:] = 0

    def lay_out(self, ra: Range, rb: Range, rc: Range | None = None) -> None:
        """Decide how operands are packed whose exponents, and c's, are in these ranges."""
        scaled = self.scale_exponents is not None
        self.layout = packed_layout(self.params, *self.formats, ra, rb, rc, scaled, least_field_by_turns())
        self.packing = self.layout.packing

    def _in_one_piece(self, state: State) -> bool:
        """Whether one compiled call did all of it: of small products on one thread."""
        (m, k), n = self.a.shape, self.b.shape[1]
        if self.team.threads > 1 or self.team.reports or not self.is_piece():
            return False
        a = self.layout.source(0, *flat(self.a, 0, m, 0, k))
        b = self.layout.source(1, *flat(self.b, 0, k, 0, n))
        return lone_block.multiply(self.piece(), (a, b), state, self.places_of_marks, self.layout.numbers)

    def is_piece(self) -> bool:
        """Whether one compiled call could do all of it."""
        (m, k), n = self.a.shape, self.b.shape[1]
        fits = n <= COLUMNS and k <= self._deep() and m * n * k <= lone_block.MOST
        return fits and self.scale_exponents is None

    def _deep(self) -> int:
        return DEPTH_F64 if self.in_f64 else DEPTH_F32

    def piece(self) -> lone_block.Piece:
        """What is known of that call."""
        (m, k), n, p = self.a.shape, self.b.shape[1], self.params
        watched = p[OUT] == OUTS["rne11"] and not self.layout.keeps_infinity
        return lone_block.piece(
            self.packing, (m, n, k), self._places(k), self.formats, (p[FRACTION], p[OUT], watched),
            MANY_SIGNIFICANDS << self.formats[1].mantissa,
        )  # fmt: skip

    @property
    def places_of_marks(self) -> Marks:
        return Marks(self.redo, self.special_rows, self.special_columns)

    def ranges(self) -> tuple[Range, Range]:
        """Of the exponents of A and of B."""
        if self.scale_exponents:
            return self.scale_exponents.ranges
        of_a, of_b = self.formats
        return (
            exponents_of(self.a, of_a, self.team, self.emulated),
            exponents_of(self.b, of_b, self.team, self.emulated),
        )

    def _scales(self, side: int, k: int, line: int) -> Scales:
        """Scales from block k / `block` and a line on."""
        if self.scale_exponents is None:
            return Scales(NO_LIFTS, 0, 0)
        x = (self.scale_exponents.a, self.scale_exponents.b)[side]
        return Scales(x.reshape(-1), k // self.block * x.shape[1] + line, x.shape[1])

    def _decide(self, out: NDArray[np.uint32], i: int, rows: int, j: int, columns: int) -> None:
        """Write the outputs of a block that an Inf or NaN decides."""
        pa, pb, depth = self.layout.pack_a, self.layout.pack_b, self.a.shape[1]
        infinite = np.array([p[SPECIAL] - (not f.infinite) for p, f in zip((pa, pb), self.formats, strict=True)])
        a, b = flat(self.a, i, rows, 0, depth), flat(self.b, 0, depth, j, columns)
        some = self.special_columns[j : j + columns].any()
        of_b = special_places(*b, depth, columns, pb) if some else NOTHING
        n, sizes = self.b.shape[1], (rows, depth, columns)
        decide(
            MatrixBlock(*a),
            MatrixBlock(*b),
            MatrixBlock(out, i * n + j, n),
            sizes,
            of_b,
            pa,
            pb,
            infinite,
            self.special_rows[i:],
        )

    def _in_blocks(self, state: NDArray[np.float32], has_c: bool) -> None:
        """All rows times one packed block of B after the other."""
        threads, (k, n) = self.team.threads, self.b.shape
        at_once, deep = columns_at_once(threads), self._deep()
        blocks = [
            PackedBlock(i, p, min(deep, k - p), self._places(min(deep, k - p)), min(at_once, n - i))
            for i in range(0, n, at_once)
            for p in range(0, k, deep)
        ]
        if not blocks:
            return
        key = columns_storage(self.packing, -(-blocks[0].columns // PANEL), blocks[0].places)
        memory = [Packed(*WORKSPACE_POOL.take(key)) for _ in range(buffers(threads, len(blocks)))]
        most = max(len(work) for work in self._shares(blocks[0]))
        self.team.run_in_order(in_line(self._stages(state, has_c, blocks, memory), threads), most)
        for packed in memory:
            WORKSPACE_POOL.give(key, packed)

    def _shares(self, block: PackedBlock) -> tuple[list[tuple[int, int]], list[Share]]:
        """Those of packing a block, and of the rows that pass it."""
        panels, threads = -(-block.columns // PANEL), self.team.threads
        packing = [(p, min(n * PANEL, block.columns - p * PANEL)) for p, n in column_shares(panels, PANEL, threads)]
        return packing, row_shares(self.a.shape[0], panels, PANEL, threads, ROW_BLOCK, ())

    def _stages(
        self, state: NDArray[np.float32], has_c: bool, blocks: list[PackedBlock], memory: list[Packed]
    ) -> Iterator[BlockStages]:
        """Those of each block, whose memory is that of an earlier one."""
        pack, before = packer(self.packing, self.formats[1], True), RowsBefore(len(memory))
        self._form(False)  # which nearly all operands get: while another thread makes the drivers, which packing needs
        for number, block in enumerate(blocks):
            packed, fraction_sums = memory[number % len(memory)], np.zeros(-(-block.columns // PANEL), np.int64)
            packing, rows = self._shares(block)
            chosen: list[PanelForm] = []
            first = Stage(self._pack, (pack, packed, block, fraction_sums), packing, needs=before.of_memory())
            second = Stage(self._choose, (fraction_sums, chosen), [()], needs=[first])
            own = State(state, state.shape[1], int(not (has_c or block.k)))
            macs = self.a.shape[0] * block.columns * block.depth // max(1, len(rows))
            third = Stage(self._rows, (chosen, own, packed, block), rows, macs, [second], before.of_sums(block.k > 0))
            before.add(third)
            yield BlockStages(first, second, third)

    def _places(self, depth: int) -> int:
        """Products that are packed of so many."""
        return -(-depth // self.granule) * self.granule

    def _choose(self, fraction_sums: NDArray[np.int64], chosen: list[PanelForm]) -> None:
        """The form of rows for a packed block, compiled by one thread."""
        may_overflow = self.block == 16 and int(fraction_sums.max()) >= MANY_SIGNIFICANDS << self.formats[1].mantissa
        chosen.append(self._form(may_overflow))

    def _form(self, may_overflow: bool) -> PanelForm:
        checked = self.in_f64 and (may_overflow or self.block > 16)
        p, f16_acc = self.params, self.params[OUT] == OUTS["rne11"]
        watched = f16_acc and not self.layout.keeps_infinity
        return form(self.packing, self.formats[0], p[FRACTION], p[OUT], checked, watched)

    def _from(self, packed: Packed, panel: int, places: int) -> Packed:
        """Views of B from a panel on."""
        if not panel:
            return packed
        before = columns_storage(self.packing, panel, places)
        return Packed(*(x[n:] for x, (n, _) in zip(packed, before, strict=True)))

    def _pack(
        self, pack: int, packed: Packed, block: PackedBlock, fraction_sums: NDArray[Any], panel: int, columns: int
    ) -> None:
        """Some panels of B."""
        j, k, depth, places, _ = block
        first, size = j + panel * PANEL, self.b.itemsize
        key = ((PANEL * places * size, "|u1"),)
        edge = WORKSPACE_POOL.take(key)
        x, x0, ld = flat(self.b, k, depth, first, columns)
        fraction_sums[panel] = run_in_words(
            drivers().columns,
            ColumnsArguments(
                pack, self.layout.source(1, x, x0, ld),
                self._scales(1, k, first), self._from(packed, panel, places), self.special_columns[first:],
                depth, columns, places, *edge,
            ),
        )  # fmt: skip
        WORKSPACE_POOL.give(key, edge)

    def _rows(
        self, chosen: list[PanelForm], state: State, packed: Packed, block: PackedBlock,
        i: int, rows: int, panel: int, panels: int,
    ) -> None:  # fmt: skip
        """Some rows times some panels."""
        (j, k, depth, places, _), size = block, self.a.itemsize
        key = rows_storage(self.packing, places, size)
        own = WORKSPACE_POOL.take(key)
        x, x0, ld = flat(self.a, i, rows, k, depth)
        run_in_words(
            drivers().rows,
            RowsArguments(
                chosen[0], self.layout.source(0, x, x0, ld),
                self._scales(0, k, i), self._from(packed, panel, places), state,
                Geometry(i, rows, j + panel * PANEL, panels, depth, places), self.places_of_marks,
                Workspace(Packed(*own[:3]), *own[3:]), self.layout.numbers,
            ),
        )  # fmt: skip
        WORKSPACE_POOL.give(key, own)

    def marked(self, shape: tuple[int, ...]) -> Iterator[NDArray[np.int64]]:
        """Positions of the outputs, (M, N), for which the fast path does not vouch, some rows at a time."""
        if not np.count_nonzero(self.marks):
            return
        m, n = shape
        step = max(1, POSITIONS // max(1, n * ROW_BLOCK)) * ROW_BLOCK
        for i in range(0, m, step):
            rows, blocks = slice(i, min(m, i + step)), slice(i // ROW_BLOCK, (i + step) // ROW_BLOCK)
            mask = np.repeat(np.repeat(self.redo[blocks], ROW_BLOCK, 0)[: rows.stop - i], PANEL, 1)[:, :n].astype(bool)
            mask |= self.special_rows[rows, None].astype(bool)
            mask |= self.special_columns[None, :n].astype(bool)
            found = np.flatnonzero(mask)
            if found.size:
                yield found + i * n
