"""Large fused products on AVX-512: which micro-kernel fits the operands, how they are cut, and what is repaired."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from threading import local
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.formats.table import Format, f32
from nbtc.gemm.threads import Crew
from nbtc.numerics import fused_avx512 as micro
from nbtc.numerics.fused_books import FLOOR_FIELD
from nbtc.numerics.fused_rows import rows_kernel
from nbtc.numerics.models import BLOCK, FLOOR, FRACTION, KIND, OUT, OUTS, Kind
from nbtc.numerics.pack import exponent_range, float_params, pack_columns, pack_rows

ROW_BLOCK, PANEL = micro.ROWS * micro.BLOCKS, micro.PANEL
# What is packed of B at once: 5 MiB at most, so that it stays in the last-level cache while all rows of A pass.
COLUMNS, DEPTH = 1024, 512
NEAR_SPREAD = 37  # binades an operand may span for exponents to fit a byte with room to tell zeros
NO_EXPONENT = 1 << 20
TINY64, TINY32 = 2.0**-500, 2.0**-126  # stand for zeros: below every last kept bit, but rounded as their sign rounds
NUDGE64, NUDGE32 = 1 + 2.0**-30, 1 + 2.0**-18  # makes negative products land one unit below their truncation
FAR_BASE = 0x2000  # stored exponents start here, so that a sum with a zero's (0) is below twice as much
_OWN = local()  # a thread's workspace, kept from product to product: at most half a megabyte
Storage = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


def aligned(count: int, dtype: Any) -> NDArray[Any]:
    """An uninitialised array on a 64-byte boundary."""
    size = np.dtype(dtype).itemsize
    raw = np.empty(count * size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + count * size].view(dtype)


def contiguous(x: NDArray[Any]) -> NDArray[Any]:
    """A C-order writeable array of the same elements: compiled code has one specialisation, whatever came in."""
    x = np.ascontiguousarray(x)
    return x if x.flags.writeable else x.copy()


@dataclass(frozen=True)
class Range:
    """Least and greatest exponent of the finite non-zero elements; `least` above `greatest` when there are none."""

    least: int
    greatest: int

    @property
    def spread(self) -> int:
        """Binades spanned, less one."""
        return max(0, self.greatest - self.least)


def exponents_of(x: NDArray[Any], fmt: Format) -> Range:
    """The range of a matrix's exponents: of the format if that is small, else measured."""
    if fmt.exponent <= 5:
        return Range(fmt.emin, fmt.bias + int(fmt.finite_only))
    seen = np.array([NO_EXPONENT, -NO_EXPONENT])
    params = float_params(fmt)
    step = max(1, (1 << 20) // max(1, x.shape[1]))
    for i in range(0, x.shape[0], step):
        exponent_range(contiguous(x[i : i + step]), params, seen)
    return Range(int(seen[0]), int(seen[1])) if seen[0] <= seen[1] else Range(0, 0)


@dataclass(frozen=True)
class Layout:
    """How operands are stored for one product: packing parameters of A and B and the constants of the kernel."""

    far: bool
    scale: int
    pack_a: NDArray[np.int64]
    pack_b: NDArray[np.int64]
    constants: NDArray[np.int64]
    limits: NDArray[np.float32]


def layout(params: NDArray[np.int64], a: Format, b: Format, ra: Range, rb: Range, rc: Range | None) -> Layout:
    """Byte exponents and scaled accumulators where operands (and c) span few binades, else 16 bits and true scale."""
    fraction, block, half = int(params[FRACTION]), int(params[BLOCK]), params[OUT] == OUTS["rne11"]
    interleaved = params[KIND] == Kind.EMULATED_FP8
    top = fraction + 127  # exponent field of the largest product: alignment never needs a negative field
    scale = ra.greatest + rb.greatest + 127 - top
    low = top - ra.spread - rb.spread
    floor_exponent = FLOOR_FIELD - 127 + scale
    fits = ra.spread <= NEAR_SPREAD and rb.spread <= NEAR_SPREAD
    normal = ra.least + rb.least >= -100 and ra.greatest + rb.greatest <= 60
    plain = rc is None or not rc.greatest >= rc.least or (rc.least >= floor_exponent and rc.greatest < 60)
    near = fits and normal and (plain or (a.exponent <= 5 and a.bits == 8))
    make = lambda fmt, r, base: float_params(  # noqa: E731
        fmt, reference=r.least, base=base, block=block, interleaved=interleaved
    )
    floor = int(params[FLOOR])
    if near:
        first = low // 2
        constants = [floor + 127 - scale, 113 - scale, scale, low]
        limits = np.array([2.0**floor_exponent, 2.0**60], np.float32)
        if half:
            limits[0] = 0.0
        return Layout(False, scale, make(a, ra, first), make(b, rb, low - first), np.array(constants), limits)
    constants = [floor + 127, 113 if half else 1, 0, ra.least + rb.least - 2 * FAR_BASE + 127]
    limits = np.array([0.0, np.finfo(np.float32).max], np.float32)
    return Layout(True, 0, make(a, ra, FAR_BASE), make(b, rb, FAR_BASE), np.array(constants), limits)


class FusedProduct:
    """One product of 2-D operands: `run` computes it, `marks` says which outputs must be done element by element."""

    def __init__(
        self, a: NDArray[Any], b: NDArray[Any], formats: tuple[Format, Format], params: NDArray[np.int64], crew: Crew
    ) -> None:
        self.a, self.b, self.formats, self.params, self.crew = a, b, formats, params, crew
        self.block = int(params[BLOCK])
        self.wide = int(params[FRACTION]) > 13
        self.emulated = params[KIND] == Kind.EMULATED_FP8
        rows, columns = -(-a.shape[0] // ROW_BLOCK), -(-b.shape[1] // PANEL)
        self.redo = np.zeros((rows, columns), np.uint8)
        self.special_rows = np.zeros(rows * ROW_BLOCK, np.uint8)
        self.special_columns = np.zeros(columns * PANEL, np.uint8)

    def run(self, state: NDArray[np.float32], has_c: bool) -> None:
        """state (M, N) float32: c in, the chain's result out (f16 accumulators as f32 values)."""
        ra, rb = (exponents_of(x, f) for x, f in zip((self.a, self.b), self.formats, strict=True))
        rc = exponents_of(state.view(np.uint32), f32) if has_c and self.params[OUT] != OUTS["rne11"] else None
        self.layout = layout(self.params, *self.formats, ra, rb, rc)
        for j in range(0, self.b.shape[1], COLUMNS):
            for k in range(0, self.a.shape[1], DEPTH):
                self._block(state, j, k, min(DEPTH, self.a.shape[1] - k))

    def kernel(self, checked: bool) -> Any:
        """The micro-kernel for this product."""
        p, far = self.params, self.layout.far
        return rows_kernel(
            int(self.wide), self.block, int(p[FRACTION]), int(p[OUT]), int(far), int(checked), int(self.emulated)
        )

    def _block(self, state: NDArray[np.float32], j: int, k: int, depth: int) -> None:
        """All rows times one packed block of B."""
        step = self.block * (2 if self.emulated else 1)
        places = -(-depth // step) * step
        columns = min(COLUMNS, self.b.shape[1] - j)
        panels = -(-columns // PANEL)
        packed = self._storage(panels * PANEL, places, np.uint16 if self.layout.far else np.uint8)
        heavy = np.zeros(panels, np.int64)
        share = panels if self.crew.threads == 1 else -(-panels // min(panels, 4 * self.crew.threads))
        self.crew.run(
            [
                partial(self._pack, packed, places, j, k, depth, p, min(share, panels - p), heavy)
                for p in range(0, panels, share)
            ]
        )
        weight = int(heavy.max())
        rows = range(0, self.a.shape[0], ROW_BLOCK)
        parts = 1 if len(rows) >= 2 * self.crew.threads else min(panels, self.crew.threads)
        share = -(-panels // parts)
        work = [(i, p, min(share, panels - p)) for i in rows for p in range(0, panels, share)]
        tasks = [partial(self._rows, state, packed, places, j, k, depth, weight, *w) for w in work]
        self.crew.run(tasks, self.a.shape[0] * columns * depth // len(tasks))

    def _storage(self, lines: int, depth: int, exponent: Any) -> Storage:
        """Values, exponents and sign words of `lines` rows or columns."""
        element = np.float64 if self.wide else np.float32
        words = lines * depth // self.block
        return aligned(lines * depth, element), aligned(lines * depth, exponent), aligned(words, np.uint32)

    def _workspace(self, lines: int, places: int) -> tuple[Storage, NDArray[np.uint8], NDArray[np.float32]]:
        """This thread's packed rows, scratch and tiles: fresh pages for every task cost 3 % of the time."""
        key = (lines, places, self.wide, self.block)
        found = getattr(_OWN, "kept", None)
        if found is None or found[0] != key:
            mine = self._storage(lines, places, np.uint32)
            space = aligned(micro.SCRATCH, np.uint8), aligned(2 * ROW_BLOCK * PANEL, np.float32)
            found = _OWN.kept = (key, mine, *space)
        return found[1], found[2], found[3]

    def _from(self, packed: Storage, element: int, count: int) -> Storage:
        """Views of `count` elements."""
        values, exponents, signs = packed
        word, words = element // self.block, count // self.block
        return values[element : element + count], exponents[element : element + count], signs[word : word + words]

    def _pack(
        self, packed: Storage, places: int, j: int, k: int, depth: int, panel: int, panels: int, heavy: NDArray[Any]
    ) -> None:
        """Some panels of B."""
        first = j + panel * PANEL
        x = contiguous(self.b[k : k + depth, first : first + panels * PANEL])
        part = self._from(packed, panel * places * PANEL, panels * places * PANEL)
        tiny, nudge = (TINY64, NUDGE64) if self.wide else (TINY32, NUDGE32)
        special = self.special_columns[first : first + panels * PANEL]
        heavy[panel] = pack_columns(x, *part, special, self.layout.pack_b, tiny, nudge, self.wide)

    def _rows(
        self, state: NDArray[np.float32], packed: Storage, places: int, j: int, k: int, depth: int, weight: int, i: int,
        panel: int, panels: int,
    ) -> None:  # fmt: skip
        """64 rows times some panels."""
        rows = min(ROW_BLOCK, self.a.shape[0] - i)
        lines = max(micro.LEAST_BLOCKS, -(-rows // micro.ROWS)) * micro.ROWS
        special = np.zeros(lines, np.uint8)
        mine, scratch, tiles = self._workspace(lines, places)
        x = contiguous(self.a[i : i + rows, k : k + depth])
        replicate = 0x10001 if self.layout.far else 0x01010101
        tiny = TINY64 if self.wide else TINY32
        heavy = pack_rows(x, *mine, special, self.layout.pack_a, tiny, replicate, 2.0**-self.layout.scale)
        # 16 products and c can only leave 32 bits when significands sum to 31 on both sides
        limits = (31 << f.mantissa for f in self.formats)
        checked = self.block >= 16 and self.wide and all(w >= x for w, x in zip((heavy, weight), limits, strict=True))
        part = self._from(packed, panel * places * PANEL, panels * places * PANEL)
        self.kernel(checked)(
            *mine, *part, places, state, i, j + panel * PANEL, panels, self.redo[i // ROW_BLOCK, j // PANEL + panel :],
            scratch, tiles, self.layout.constants, self.layout.limits,
        )  # fmt: skip
        self.special_rows[i : i + rows] |= special[:rows]

    def marks(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]:
        """Tiles, rows and columns whose outputs the fast path does not vouch for."""
        return self.redo, self.special_rows, self.special_columns
