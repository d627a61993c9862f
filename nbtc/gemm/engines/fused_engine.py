"""Large fused products on AVX-512: which micro-kernel fits the operands, how they are cut, and what is repaired."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.machine_code.emitted import run_in_words
from nbtc.compiler.pools.workspace_pool import WORKSPACE_POOL
from nbtc.compiler.threads import ThreadTeam
from nbtc.formats.table import Format, f32
from nbtc.gemm.cost import POSITIONS
from nbtc.gemm.engines import lone_block
from nbtc.gemm.engines.exponent_ranges import Range, exponents_of
from nbtc.gemm.engines.packed_memory import ROW_BLOCK, columns_storage, flat, rows_storage
from nbtc.gemm.shares import COLUMNS, column_shares, columns_at_once, row_shares
from nbtc.kernels.float_elements import NUDGE
from nbtc.kernels.float_fields import SPECIAL, float_params
from nbtc.kernels.panels.alignment_and_rounding import FLOOR_FIELD
from nbtc.kernels.panels.alignment_by_turns import LEAST_FIELD, SCALES, SCALES_BY_DOTS
from nbtc.kernels.panels.fused_sum import PANEL
from nbtc.kernels.panels.panel_code import form, packer
from nbtc.kernels.panels.panel_drivers import ColumnsArguments, RowsArguments, drivers
from nbtc.kernels.panels.panel_operands import (
    Geometry,
    Marks,
    Numbers,
    Packed,
    Packing,
    PanelForm,
    Scales,
    Source,
    State,
    Workspace,
)
from nbtc.kernels.panels.panel_pack import least_field_by_turns
from nbtc.kernels.specials import MatrixBlock, decide, special_places
from nbtc.numerics.models import BLOCK, FLOOR, FRACTION, KIND, OUT, OUTS, Kind

DEPTH_F64, DEPTH_F32 = 512, 1024  # products of a packed block of B: its columns take 4.5 and 5 KiB each
# Binades an operand may span: sums of two stored exponents start at low = F + 127 - 2 * 37, and one alone, beside a
# zero's 0, reaches low / 2 + 37, which is smaller for F >= 23.  By turns, fields of products are F + 128 to F + 202.
NEAR_SPREAD = 37
PLACES = 16  # products are packed sixteen at a time; zeros at the end of K change no sum that has been rounded once
EMULATED_FP8 = int(Kind.EMULATED_FP8)
DECIDED = 512  # rows looked at together for what an Inf or NaN decides
# They stand for zeros: smaller than every last place (f64: 2**(-133 - 25), times elements below 2**128; f32: the field
# FLOOR_FIELD is 2**-77, its last place 2**(-77 - 13), times elements below 2**17), but rounded as their sign rounds.
TINY64, TINY32 = 2.0**-500, 2.0**-126
# Products in f64 whose M has the exponent field of the f32 alignment (`ByTurns`) are scaled by 2**-(948 - F), A's
# elements by 2**-461, B's by the rest.  Their last places are 2**(FLOOR_FIELD - 1023 - 52) = 2**-1025 at least, and
# elements are below 2**(128 - 461 + 126), so that a zero's products are below all of those.
SCALED_A, TINY64_BY_TURNS = 461, 2.0**-1000
FULL_RANGE_BASE = 0x2000  # stored exponents start here, so that a sum with a zero's (0) is below twice as much
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


@dataclass(frozen=True)
class PackedLayout:
    """How operands are stored for one product: packing parameters of A and B and the constants of the kernel.

    tiny: what stands for a zero.  factors: of elements of A and of B.
    keeps_infinity: an Inf in the tile stays one: the exponent field 255 + scale - F of its rounding is a number's, and
    M's is one of f64 (of f32 it is more than there are, so that an Inf could become any sum).
    """

    packing: Packing
    scale: int
    tiny: float
    factors: tuple[float, float]
    pack_a: NDArray[np.int64]
    pack_b: NDArray[np.int64]
    numbers: Numbers
    keeps_infinity: bool

    def source(self, side: int, x: NDArray[Any], first: int, ld: int) -> Source:
        """Elements of A (side 0) or B as a packer reads them: flat, from one on, `ld` from row to row."""
        pack = (self.pack_a, self.pack_b)[side]
        return Source(x.view(np.uint8), first, ld, x.itemsize, pack, self.factors[side], self.tiny)


@lru_cache(maxsize=64)
def packed_layout(
    p: tuple[int, ...], a: Format, b: Format, ra: Range, rb: Range, rc: Range | None, scaled: bool, least_field: int
) -> PackedLayout:
    """Byte exponents and scaled accumulators where operands (and c) span few binades, else 16 bits and true scale.

    p: `params`.  scaled: ranges are those of elements with their scales.  least_field: the
    processor's `least_field_by_turns`.
    """
    fraction, floor, f16_acc, in_f64 = p[FRACTION], p[FLOOR], p[OUT] == OUTS["rne11"], p[FRACTION] > 13
    top, least_field = _top(p, ra, rb, least_field)
    scale = ra.greatest + rb.greatest + 127 - top
    low = top - ra.spread - rb.spread
    floor_exponent = (least_field or FLOOR_FIELD) - 127 + scale
    fits = ra.spread <= NEAR_SPREAD and rb.spread <= NEAR_SPREAD
    normal = ra.least + rb.least >= -100 and ra.greatest + rb.greatest <= 60
    plain = rc is None or not rc.greatest >= rc.least or (rc.least >= floor_exponent and rc.greatest < 60)
    limited = fits and normal and (plain or (a.exponent <= 5 and a.bits == 8 and not scaled))
    if limited:
        by_dots = least_field == LEAST_FIELD
        bases = (top - ra.spread, 255 - rb.spread) if by_dots else (low // 2, low - low // 2)
        numbers = floor + 127 - scale, 113 - scale, scale, low
        limits = 0.0 if f16_acc else 2.0**floor_exponent, 2.0**60
    else:
        scale, bases = 0, (FULL_RANGE_BASE, FULL_RANGE_BASE)
        numbers = floor + 127, 113 if f16_acc else 1, 0, ra.least + rb.least - 2 * FULL_RANGE_BASE + 127
        limits = 0.0, float(np.finfo(np.float32).max)
    keeps_infinity = limited and scale < fraction and fraction > 13
    pack_a, pack_b = (
        float_params(f, r.least, x, r.least if f.exponent <= 5 and not scaled else None)
        for f, r, x in zip((a, b), (ra, rb), bases, strict=True)
    )
    flags = not limited, p[KIND] == EMULATED_FP8, scaled, limited and bool(least_field)
    packing = Packing(int(in_f64), p[BLOCK], *map(int, flags))
    numbers_ = Numbers(*numbers, *map(np.float32, limits))
    return PackedLayout(
        packing, scale, *_zero_and_factors(packing, fraction, a, b, scale), pack_a, pack_b, numbers_, keeps_infinity
    )


def _top(p: tuple[int, ...], ra: Range, rb: Range, least_field: int) -> tuple[int, int]:
    """Exponent field of the largest product, and the least of all where exponents can lie by turns, else 0.

    From `LEAST_FIELD` on, accumulators come to nothing smaller either: the least product's field is F above.  In f64 c
    may be as small as beside operands that span all they may, as long as 2**-scale is a number.  Otherwise alignment
    never needs a negative field.
    """
    greatest, fraction, f16_acc = ra.greatest + rb.greatest, p[FRACTION], p[OUT] == OUTS["rne11"]
    if least_field == LEAST_FIELD:
        top = LEAST_FIELD + fraction + ra.spread + rb.spread
        if fraction > 13:
            top = max(top, min(LEAST_FIELD + fraction + 2 * NEAR_SPREAD, greatest + 253))
        scale = greatest + 127 - top
        if not f16_acc or (scale in SCALES_BY_DOTS and LEAST_FIELD <= p[FLOOR] + 127 - scale < 255):
            return top, least_field
    top = fraction + 127
    return top, least_field if least_field < LEAST_FIELD and (not f16_acc or greatest + 127 - top in SCALES) else 0


def _zero_and_factors(
    packing: Packing, fraction: int, a: Format, b: Format, scale: int
) -> tuple[float, tuple[float, float]]:
    """What stands for a zero, and the factors of elements of A and of B."""
    left, right = 2.0 ** (127 - a.bias - scale), NUDGE[bool(packing.in_f64)] * 2.0 ** (127 - b.bias)
    if not (packing.in_f64 and packing.by_turns):
        return TINY64 if packing.in_f64 else TINY32, (left, right)
    in_all = 1023 - 127 + 52 - fraction
    return TINY64_BY_TURNS, (left * 2.0**-SCALED_A, right * 2.0 ** (SCALED_A - in_all))


class ScaleExponents(NamedTuple):
    """Exponents of block scales: int32 of A [block][row] and of B [block][column], lines padded to whole panels.

    ranges: exponents of the elements of A and of B with their scales.
    """

    a: NDArray[np.int32]
    b: NDArray[np.int32]
    ranges: tuple[Range, Range]


class PackedBlock(NamedTuple):
    """What is packed of B at once: from column j and product k on, `depth` products, padded with zeros to `places`."""

    j: int
    k: int
    depth: int
    places: int


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
        ra, rb = self.ranges()
        f16_acc = self.params[OUT] == OUTS["rne11"]
        rc = exponents_of(state.view(np.uint32), f32, self.team) if has_c and not f16_acc else None
        self.lay_out(ra, rb, rc)
        deep = self._deep()
        if not self._in_one_piece(State(state, state.shape[1], int(not has_c))):
            at_once = columns_at_once(self.team.threads)
            for j in range(0, self.b.shape[1], at_once):
                for k in range(0, self.a.shape[1], deep):
                    sizes = min(at_once, self.b.shape[1] - j), min(deep, self.a.shape[1] - k)
                    self._block(State(state, state.shape[1], int(not (has_c or k))), j, k, *sizes)
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
        places = -(-k // self.granule) * self.granule
        return lone_block.piece(
            self.packing, (m, n, k), places, (self.a.itemsize, self.b.itemsize), (p[FRACTION], p[OUT], watched),
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

    def _block(self, state: State, j: int, k: int, columns: int, depth: int) -> None:
        """All rows times one packed block of B."""
        places = -(-depth // self.granule) * self.granule
        panels, threads = -(-columns // PANEL), self.team.threads
        key = columns_storage(self.packing, panels, places)
        packed = Packed(*WORKSPACE_POOL.take(key))
        work: list[tuple[int, ...]] = [
            (p, min(n * PANEL, columns - p * PANEL)) for p, n in column_shares(panels, PANEL, threads)
        ]
        fraction_sums = np.zeros(panels, np.int64)
        block = PackedBlock(j, k, depth, places)
        pack = packer(self.packing, self.b.itemsize, True)
        self.team.run(self._pack, (pack, packed, block, fraction_sums), work)
        may_overflow = self.block == 16 and int(fraction_sums.max()) >= MANY_SIGNIFICANDS << self.formats[1].mantissa
        checked = self.in_f64 and (may_overflow or self.block > 16)
        p, f16_acc = self.params, self.params[OUT] == OUTS["rne11"]
        # compiled here: several threads would all do it
        found = form(
            self.packing, self.a.itemsize, p[FRACTION], p[OUT], checked, f16_acc and not self.layout.keeps_infinity
        )
        work = list(row_shares(self.a.shape[0], panels, PANEL, threads, ROW_BLOCK, ()))
        macs = self.a.shape[0] * columns * depth // len(work)
        self.team.run(self._rows, (found, state, packed, block), work, macs)
        WORKSPACE_POOL.give(key, packed)

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
        j, k, depth, places = block
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
        self, form: PanelForm, state: State, packed: Packed, block: PackedBlock,
        i: int, rows: int, panel: int, panels: int,
    ) -> None:  # fmt: skip
        """Some rows times some panels."""
        (j, k, depth, places), size = block, self.a.itemsize
        key = rows_storage(self.packing, places, size)
        own = WORKSPACE_POOL.take(key)
        x, x0, ld = flat(self.a, i, rows, k, depth)
        run_in_words(
            drivers().rows,
            RowsArguments(
                form, self.layout.source(0, x, x0, ld),
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
