"""Drivers of the fused micro-kernel: panels of B packed; rows of A packed and multiplied with them.

They serve every form: what packs and what sums is emitted code (`panel_code`), called by its address.  They are emitted
themselves: as kernels of Numba's they took three fifths of the first product's time to compile.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils

from nbtc.compiler.builder import F32, I8, I32, I64, VectorBuilder, vector
from nbtc.compiler.cache.sources import source_digest
from nbtc.compiler.machine_code.emitted import Named, ahead, call_address, in_words, machine_code
from nbtc.kernels.panels.alignment_and_rounding import WRAP_MARGIN
from nbtc.kernels.panels.fused_sum import PANEL, ROWS
from nbtc.kernels.panels.panel import BLOCKS, LEAST_BLOCKS, AddArguments, SumArguments
from nbtc.kernels.panels.panel_operands import (
    BlockCode,
    BlockSpace,
    Geometry,
    Marks,
    Numbers,
    Packed,
    PanelForm,
    Scales,
    Source,
    State,
    Workspace,
)
from nbtc.kernels.panels.panel_pack import PackArguments
from nbtc.kernels.panels.panel_schedules import FLAG_WORD

LINES = ROWS * BLOCKS  # rows of A that are packed at a time
LANES, OCTETS = 16, 32  # accumulators and bytes of a vector; LLVM takes them apart for narrower processors
INFINITY, ALMOST, MAGNITUDE = 0x7F800000, 0x7F7FFFFF, 0x7FFFFFFF  # bits of an Inf, of the number before it


class ColumnsArguments(NamedTuple):
    """Of what packs B by the function at `pack`: panels of `places` products, of `depth` rows of `columns` from the
    source's first on.

    special[column] is set where one holds Inf or NaN.  edge: memory for a panel as it comes.  The result is the largest
    sum of fractions of a block of products.
    """

    pack: int
    source: Source
    scales: Scales
    out: Packed
    special: Any
    depth: int
    columns: int
    places: int
    edge: Any


class RowsArguments(NamedTuple):
    """Of rows of A times panels of B, 64 rows at a time.

    source: A from the geometry's first row on; b: packed panels.
    """

    form: PanelForm
    source: Source
    scales: Scales
    b: Packed
    state: State
    geometry: Geometry
    marks: Marks
    own: Workspace
    numbers: Numbers


class BlockArguments(NamedTuple):
    """Of a product in one piece: B packed, then all rows of A times it.

    The result is 0 where these sums could leave 32 bits, and nothing is summed.  One call: two, and what Python does
    between them, take a product of 32^3 three times as long as its arithmetic.
    """

    code: BlockCode
    left: Source
    right: Source
    scales: Scales
    space: BlockSpace
    state: State
    geometry: Geometry
    marks: Marks
    numbers: Numbers


class Drivers(NamedTuple):
    """Their addresses."""

    columns: int
    rows: int
    block: int


def drivers_ahead() -> None:
    """Have them made beside all that a first product does before it calls them."""
    if not drivers.cache_info().currsize:
        ahead(drivers)


@cache
def drivers() -> Drivers:
    """Those of all forms."""
    functions = {
        "columns": in_words(ColumnsArguments, _Driver.columns),
        "rows": in_words(RowsArguments, _Driver.rows),
        "block": in_words(BlockArguments, _Driver.block),
    }
    loaded = machine_code(functions, source_digest(Path(__file__).resolve()), "panel_drivers")
    return Drivers(*(loaded.address(name) for name in Drivers._fields))


class _Driver:
    """Writes the bodies."""

    def __init__(self, v: VectorBuilder) -> None:
        self.v, self.b = v, v.b

    @classmethod
    def columns(cls, v: VectorBuilder, x: Named) -> Any:
        """Of `ColumnsArguments`."""
        return cls(v).pack_columns(x)

    @classmethod
    def rows(cls, v: VectorBuilder, x: Named) -> None:
        """Of `RowsArguments`."""
        cls(v).multiply_rows(x)

    @classmethod
    def block(cls, v: VectorBuilder, x: Named) -> Any:
        """Of `BlockArguments`."""
        b, code, space, state, geometry = v.b, x["code"], x["space"], x["state"], x["geometry"]
        sizes = {"depth": geometry["depth"], "columns": state["columns"], "places": geometry["places"]}
        packed = {"out": space["packed"], "special": x["marks"]["columns"], "edge": space["edge"]}
        right = {"pack": code["pack"], "source": x["right"], "scales": x["scales"]}
        fits = b.icmp_signed("<", cls(v).pack_columns(right | packed | sizes), code["most"])
        with b.if_then(fits):
            left = {"form": code["form"], "source": x["left"], "b": space["packed"], "own": space["own"]}
            cls(v).multiply_rows(left | {name: x[name] for name in ("scales", "state", "geometry", "marks", "numbers")})
        return b.zext(fits, I64)

    # --- B ---
    def pack_columns(self, x: Named) -> Any:
        """B packed; the largest sum of fractions."""
        v, b, source = self.v, self.b, x["source"]
        depth, columns, places = x["depth"], x["columns"], x["places"]
        whole = b.icmp_signed("==", depth, places)
        full = b.select(whole, b.udiv(columns, v.int(PANEL)), v.int(0))
        to_pack = {name: x[name] for name in ("scales", "out", "special", "places")}
        packed = to_pack | {"source": source, "begin": v.int(0), "end": full}
        most = self.variable(call_address(v, x["pack"], PackArguments, packed))
        panels = self._ceil(columns, PANEL)
        with cgutils.for_range(b, panels, start=full) as loop:
            first = b.mul(loop.index, v.int(PANEL))
            self._pad(
                _moved(b, source, first), depth, v.smin(v.int(PANEL), b.sub(columns, first)), (places, v.int(PANEL)),
                x["edge"],
            )  # fmt: skip
            only = source | {"x": x["edge"], "first": b.neg(first), "ld": v.int(PANEL)}  # panels count from the first
            ends = {"source": only, "begin": loop.index, "end": b.add(loop.index, v.int(1))}
            sums = call_address(v, x["pack"], PackArguments, to_pack | ends)
            b.store(v.smax(b.load(most), sums), most)
        return b.load(most)

    def _pad(self, source: Named, lines: Any, width: Any, full: tuple[Any, Any], edge: Any) -> None:
        """A zero-padded copy of a block at `edge`; zeros are what a packer writes for places beyond an operand."""
        b, size = self.b, source["size"]
        full_lines, full_width = full
        self.octets(b.mul(b.mul(full_lines, full_width), size), edge)
        with cgutils.for_range(b, lines) as loop:
            from_ = b.mul(b.add(source["first"], b.mul(loop.index, source["ld"])), size)
            to = b.mul(b.mul(loop.index, full_width), size)
            self.octets(b.mul(width, size), self.v.at(edge, to), self.v.at(source["x"], from_))

    def octets(self, count: Any, to: Any, from_: Any = None) -> None:
        """A copy of bytes, or zeros."""
        for i, octets in self.vectors(count, OCTETS):
            t = vector(I8, octets)
            self.v.store(self.v.const(t, 0) if from_ is None else self.v.load(from_, t, offset=i), to, offset=i)

    def fill(self, words: Any, to: Any, word: Any) -> None:
        """Copies of a word."""
        with cgutils.for_range_slice(self.b, self.v.int(0), words, self.v.int(LANES), I64) as (i, _):
            self.v.store(self.v.splat(word, LANES), to, offset=self.b.mul(i, self.v.int(4)))

    # --- A ---
    def multiply_rows(self, x: Named) -> None:
        """Rows of A times panels of B."""
        v, b, geometry, marks = self.v, self.b, x["geometry"], x["marks"]
        panels = self._ceil(x["state"]["columns"], PANEL)
        with cgutils.for_range_slice(b, v.int(0), geometry["rows"], v.int(LINES), I64) as (i, _):
            count = v.smin(v.int(LINES), b.sub(geometry["rows"], i))
            tiles = v.smax(v.int(LEAST_BLOCKS), self._ceil(count, ROWS))
            row = b.add(geometry["row"], i)
            self._pack_rows(x, i, count, tiles, v.at(marks["rows"], row))
            at = b.add(b.mul(b.udiv(row, v.int(LINES)), panels), b.udiv(geometry["column"], v.int(PANEL)))
            self._multiply(x, row, count, tiles, v.at(marks["tiles"], at))

    def _pack_rows(self, x: Named, i: Any, count: Any, tiles: Any, special: Any) -> None:
        """Up to 64 rows of A, from row i of the geometry on."""
        v, b, own, places, depth = self.v, self.b, x["own"], x["geometry"]["places"], x["geometry"]["depth"]
        source = _moved(b, x["source"], b.mul(i, x["source"]["ld"]))
        full = b.mul(tiles, v.int(ROWS))
        ragged = b.or_(b.icmp_signed("!=", count, full), b.icmp_signed("!=", depth, places))
        with b.if_then(ragged):
            self._pad(source, count, depth, (full, places), own["edge"])
        copy = {"x": own["edge"], "first": v.int(0), "ld": places}
        scales = x["scales"] | {"first": b.add(x["scales"]["first"], i)}
        taken = source | {name: b.select(ragged, copy[name], source[name]) for name in copy}
        packed = {"source": taken, "scales": scales, "out": own["a"], "special": special, "places": places}
        call_address(v, x["form"]["pack"], PackArguments, packed | {"begin": v.int(0), "end": tiles})

    def _multiply(self, x: Named, row: Any, rows: Any, tiles: Any, redo: Any) -> None:
        """Packed rows of A times panels of B."""
        v, b, form, own, geometry = self.v, self.b, x["form"], x["own"], x["geometry"]
        scale = b.trunc(x["numbers"]["scale"], I32)
        down, up = (b.bitcast(b.shl(n, v.const(I32, 23)), F32) for n in self._around(127, scale))
        first, second = own["tiles"], v.at(own["tiles"], LINES * PANEL * 4)
        flags = v.at(own["scratch"], FLAG_WORD * 4)
        paired = b.icmp_signed("!=", form["added"], v.int(0))
        total = b.select(paired, second, first)
        with cgutils.for_range(b, geometry["panels"]) as loop:
            j = b.add(geometry["column"], b.mul(loop.index, v.int(PANEL)))
            tile = _Tile(self, x["state"], total, row, j, rows, tiles)
            zero, kept = (b.trunc(form[name], I32) for name in ("zero", "kept"))
            wrong = self.variable(tile.load(down, x["numbers"], zero))
            tile.announce_next()
            v.store(v.const(vector(I32, LANES), -1), flags)
            v.store(v.const(vector(I32, LANES), 0), flags, offset=4 * LANES)
            span = {"first": b.mul(loop.index, b.mul(geometry["places"], v.int(PANEL))), "tiles": tiles}
            sums = {"a": own["a"], "b": x["b"], "tile": first, "numbers": x["numbers"], "scratch": own["scratch"]}
            self._sum(form, paired, geometry["places"], (sums, span, second))
            for name, at, kind, limit in (("checked", 0, "<", 2 * WRAP_MARGIN), ("watched", 64, ">=", ALMOST)):
                seen = v.load(flags, vector(I32, LANES), offset=at)
                found = self.any(b.icmp_unsigned(kind, seen, v.const(seen.type, limit)))
                asked = b.icmp_signed("!=", form[name], v.int(0))
                b.store(b.or_(b.load(wrong), b.and_(asked, found)), wrong)
            overflown = tile.store(up, kept, zero)
            with b.if_then(b.or_(b.load(wrong), overflown)):
                v.store(v.const(I8, 1), redo, offset=loop.index)

    def _sum(self, form: Named, paired: Any, places: Any, what: tuple[Named, Named, Any]) -> None:
        """All blocks of a panel; in pairs, the second continues from the first, and their sum is added."""
        v, b = self.v, self.b
        sums, span, total = what
        blocks = b.udiv(places, form["block"])
        with b.if_else(paired) as (in_pairs, at_once):
            with in_pairs, cgutils.for_range_slice(b, v.int(0), blocks, v.int(2), I64) as (group, _):
                for name, at in (("from_zero", group), ("sums", b.add(group, v.int(1)))):
                    one = span | {"group": at, "groups": v.int(1)}
                    call_address(v, form[name], SumArguments, sums | {"span": one})
                both = {"tile": sums["tile"], "total": total, "blocks": span["tiles"]}
                call_address(v, form["added"], AddArguments, both | {"scale": sums["numbers"]["scale"]})
            with at_once:
                every = span | {"group": v.int(0), "groups": blocks}
                call_address(v, form["sums"], SumArguments, sums | {"span": every})

    # --- words ---
    def _around(self, middle: int, distance: Any) -> tuple[Any, Any]:
        """middle - distance, middle + distance."""
        n = self.v.const(distance.type, middle)
        return self.b.sub(n, distance), self.b.add(n, distance)

    def variable(self, start: Any) -> Any:
        """A place in the function's frame."""
        return cgutils.alloca_once_value(self.b, start)

    def _ceil(self, x: Any, n: int) -> Any:
        return self.b.udiv(self.b.add(x, self.v.int(n - 1)), self.v.int(n))

    def any(self, mask: Any) -> Any:
        """Whether a condition holds in a lane."""
        return self.v.call(f"llvm.vector.reduce.or.v{mask.type.count}i1", ir.IntType(1), mask)

    def vectors(self, count: Any, *sizes: int) -> Any:
        """(index, elements) of the vectors that cover `count`: as many of the first size as there are, then of the next
        ones, then single elements.  What is written between two of them is the body of a loop.
        """
        begin = self.v.int(0)
        for size in (*sizes, 1):
            end = self.b.and_(count, self.v.int(-size))
            with cgutils.for_range_slice(self.b, begin, end, self.v.int(size), I64) as (i, _):
                yield i, size
            begin = end


class _Tile:
    """Accumulators of up to 64 rows and 64 columns: their place, and a copy of 64 by 64 that sums work on."""

    def __init__(self, driver: _Driver, state: Named, tile: Any, row: Any, j: Any, rows: Any, tiles: Any) -> None:
        v, b = driver.v, driver.b
        self.driver, self.v, self.b, self.rows, self.tile, self.tiles = driver, v, b, rows, tile, tiles
        self.ld = b.mul(state["columns"], v.int(4))
        self.left = b.sub(state["columns"], j)
        self.columns = v.smin(v.int(PANEL), self.left)
        self.place = v.at(state["x"], b.mul(row, self.ld), b.mul(j, v.int(4)))
        self.fresh = b.icmp_signed("!=", state["fresh"], v.int(0))

    def load(self, scale: Any, numbers: Named, zero: Any) -> Any:
        """The copy, scaled, zeros with the bits of `zero`; whether one is no number, or neither 0 nor in the range."""
        v, b = self.v, self.b
        few, narrow = (b.icmp_signed("<", n, v.int(all_)) for n, all_ in ((self.rows, LINES), (self.columns, PANEL)))
        with b.if_then(b.or_(self.fresh, b.or_(few, narrow))):
            self.driver.fill(b.mul(self.tiles, v.int(ROWS * PANEL)), self.tile, zero)
        outside = self.driver.variable(ir.Constant(ir.IntType(1), 0))
        with b.if_then(b.not_(self.fresh)):
            self._scaled(scale, [b.fptrunc(numbers[name], F32) for name in ("low", "high")], zero, outside)
        return b.load(outside)

    def _scaled(self, scale: Any, limits: list[Any], zero: Any, outside: Any) -> None:
        v, b = self.v, self.b
        for at, copy, n in self._elements(LANES):
            x = v.load(at, vector(F32, n))
            size, (low, high) = v.over("fabs", x), (v.splat(y, n) for y in limits)
            fits = b.and_(b.fcmp_ordered(">=", size, low), b.fcmp_ordered("<=", size, high))
            none = b.fcmp_ordered("==", size, v.const(size.type, 0.0))
            b.store(b.or_(b.load(outside), self.driver.any(b.not_(b.or_(fits, none)))), outside)
            scaled = v.bits(b.fmul(x, v.splat(scale, n)), vector(I32, n))
            v.store(b.or_(scaled, b.select(none, v.splat(zero, n), v.const(scaled.type, 0))), copy)

    def store(self, scale: Any, kept: Any, zero: Any) -> Any:
        """The copy back to its place, scaled, of its bits those that are kept; whether a result has overflowed."""
        v, b = self.v, self.b
        overflown = self.driver.variable(ir.Constant(ir.IntType(1), 0))
        for at, copy, n in self._elements(PANEL, LANES):
            bits = v.load(copy, vector(I32, n))
            none = b.icmp_signed("==", bits, v.splat(zero, n))
            bits = b.select(none, v.const(bits.type, 0), b.and_(bits, v.splat(kept, n)))
            x = v.bits(bits, vector(F32, n))
            size = b.and_(bits, v.const(bits.type, MAGNITUDE))
            while size.type.count > LANES:  # the flag is in memory: a load that waits for the store before it
                lanes = list(range(size.type.count))
                size = v.umax(*(v.shuffle(size, size, half) for half in (lanes[: n // 2], lanes[n // 2 :])))
                n = size.type.count
            many = self.driver.any(b.icmp_signed(">=", size, v.const(size.type, INFINITY)))
            b.store(b.or_(b.load(overflown), many), overflown)
            v.store(b.fmul(x, v.splat(scale, x.type.count)), at)
        return b.load(overflown)

    def announce_next(self) -> None:
        """Fetch the lines of the next tile while this one is summed: a cold tile costs a tenth of its sums."""
        v, b = self.v, self.b
        most = v.smin(v.int(PANEL), b.sub(self.left, v.int(PANEL)))
        lines = b.select(b.icmp_signed(">", most, v.int(0)), self.rows, v.int(0))
        with cgutils.for_range(b, lines) as line:
            at = v.at(self.place, b.mul(line.index, self.ld), PANEL * 4)
            with cgutils.for_range_slice(b, v.int(0), most, v.int(LANES), I64) as (i, _):
                v.prefetch(at, b.mul(i, v.int(4)), level=2, write=True)

    def _elements(self, *sizes: int) -> Any:
        """(address in its place, in the copy, elements): the body of a loop over all, in vectors of these sizes."""
        v, b = self.v, self.b
        with cgutils.for_range(b, self.rows) as line:
            at = v.at(self.place, b.mul(line.index, self.ld))
            copy = v.at(self.tile, b.mul(line.index, v.int(PANEL * 4)))
            for i, n in self.driver.vectors(self.columns, *sizes):
                bytes_ = b.mul(i, v.int(4))
                yield v.at(at, bytes_), v.at(copy, bytes_), n


def _moved(b: Any, source: Named, elements: Any) -> Named:
    """The same from a later element on."""
    return source | {"first": b.add(source["first"], elements)}
