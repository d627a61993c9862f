"""Operands into the panels of the fused micro-kernel: values, exponents and sign words, sixteen elements at a time.

Left to the auto-vectoriser, the same loops took seven times as long: as much as a tenth of a large product, half of a
small one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba.core import cgutils

from nbtc.compiler.builder import I8, I16, I32, I64, VectorBuilder, stack_array, vector
from nbtc.compiler.cpu.processors import Processor, host_processor
from nbtc.kernels.panels.alignment_and_rounding import sign_bytes
from nbtc.kernels.panels.alignment_by_turns import least_field
from nbtc.kernels.panels.fused_sum import PANEL, ROWS
from nbtc.kernels.panels.panel_elements import CHUNK, IV, PanelElements
from nbtc.kernels.panels.panel_operands import Packed, Packing, Scales, Source


def turns(block: int) -> list[int]:
    """Where the products of two interleaved blocks come from: k mod 4 in {0, 1}, then k mod 4 in {2, 3}."""
    return [4 * (t % block // 2) + 2 * (t // block) + t % 2 for t in range(2 * block)]


def least_field_by_turns() -> int:
    """The least exponent field where the sums of this processor take exponents of B by turns (`SumByTurns`), else 0."""
    return least_field(host_processor())


def _by_turns(how: Packing) -> Processor | None:
    """The processor, if it has exponents of B by turns."""
    return host_processor() if how.by_turns else None


def _for_dots(how: Packing) -> Processor | None:
    """The processor, if it also takes them, and signs, by dot products."""
    row = _by_turns(how)
    return row if row is not None and row.dots else None


def _in_planes(how: Packing) -> Processor | None:
    """The processor, if it has signs of B in planes though exponents don't lie by turns."""
    row = host_processor()
    return row if row is not None and row.lookup and not how.by_turns else None


def sign_size(how: Packing) -> int:
    """Bytes of a column's sign word."""
    return sign_bytes(how.block, _by_turns(how) or _in_planes(how))


def _buffer(v: VectorBuilder, count: int) -> Any:
    """Stack memory for `count` vectors."""
    return stack_array(v.b, 64 * count)


def _blank(v: VectorBuilder, buffer: Any, count: int = 1) -> None:
    for i in range(count):
        v.store(v.const(IV, 0), buffer, 64, 64 * i)


# --- rows of A --------------------------------------------------------------------------------------------------------
class _Rows:
    """[block][row tile][k][4 rows]: four rows of sixteen k, transposed, then decoded in the order of the panel."""

    def __init__(self, v: VectorBuilder, pk: PanelElements, how: Packing, args: dict[str, Any]) -> None:
        self.v, self.b, self.pk, self.args = v, v.b, pk, args
        self.block, self.full_range = how.block, bool(how.full_range)
        # whose words, where they are no nibbles, meet several columns' signs in one
        row = _for_dots(how) or _in_planes(how)
        self.sign_copies = 4 // min(4, sign_size(how)) if row is None or row.counts else 1
        self.noted = _buffer(v, ROWS)

    def write(self, tile: Any, order: list[int]) -> None:
        """A tile of rows; order: of the products of two blocks, if they are interleaved."""
        v, b, a, size = self.v, self.b, self.args, self.pk.raw.element.width // 8
        _blank(v, self.noted, ROWS)
        first = v.at(a["x"], b.mul(b.mul(tile, v.int(ROWS * size)), a["ld"]))
        step = max(1, len(order) // CHUNK)
        with cgutils.for_range(b, b.udiv(a["places"], v.int(CHUNK * step))) as loop:
            at = b.mul(loop.index, v.int(CHUNK * step))
            raw = [
                [self.pk.load(first, b.mul(a["ld"], v.int(size * r)), b.mul(at, v.int(size)), size * CHUNK * i)
                 for i in range(step)]
                for r in range(ROWS)
            ]  # fmt: skip
            for i in range(step):
                lanes = order[CHUNK * i : CHUNK * (i + 1)]
                rows = [v.shuffle(x[0], x[-1], lanes) if order else x[0] for x in raw]
                self.chunk(tile, b.add(at, v.int(CHUNK * i)), rows)
        for r in range(ROWS):
            line = b.add(b.mul(tile, v.int(ROWS)), v.int(r))
            self.pk.mark(v.at(self.noted, 64 * r), v.at(a["special"], line), 1)

    def chunk(self, tile: Any, at: Any, rows: list[Any]) -> None:
        v, b, pk = self.v, self.b, self.pk
        for r, x in enumerate(rows):
            pk.note(v.at(self.noted, 64 * r), pk.magnitude(b.zext(x, IV) if x.type != IV else x))
            top = b.shl(x, b.trunc(pk.to_top, x.type) if x.type != IV else pk.to_top)
            self.store_signs(tile, at, r, b.bitcast(b.icmp_signed("<", top, v.const(x.type, 0)), I16))
        scale = self.scale(tile, at)
        pairs = [v.shuffle(rows[i], rows[i + 1], [x for k in range(16) for x in (k, 16 + k)]) for i in (0, 2)]
        for i in range(4):
            lanes = [8 * i + x + 32 * h for k in range(0, 8, 2) for h in (0, 1) for x in (k, k + 1)]
            x = v.shuffle(pairs[0], pairs[1], lanes)
            self.store_values(self.place(tile, b.add(at, v.int(4 * i))), b.zext(x, IV) if x.type != IV else x, scale)

    def scale(self, tile: Any, at: Any) -> Any:
        """Exponents of the four rows' scales in the block of k, four times over; None without scales."""
        v, b, a = self.v, self.b, self.args
        if a["scale_exponents"] is None:
            return None
        place = b.add(b.mul(b.udiv(at, v.int(self.block)), a["scale_ld"]), b.mul(tile, v.int(ROWS)))
        four = v.load(v.at(a["scale_exponents"], b.mul(place, v.int(4))), vector(I32, ROWS), 4)
        return v.shuffle(four, four, [i % ROWS for i in range(CHUNK)])

    def line(self, tile: Any, k: Any) -> Any:
        """(block of k) * tiles + tile."""
        b = self.b
        return b.add(b.mul(b.udiv(k, self.v.int(self.block)), self.args["tiles"]), tile)

    def place(self, tile: Any, k: Any) -> Any:
        """Where product k of a tile is, in elements."""
        v, b = self.v, self.b
        rest = b.urem(k, v.int(self.block))
        return b.mul(b.add(b.mul(self.line(tile, k), v.int(self.block)), rest), v.int(ROWS))

    def store_values(self, place: Any, x: Any, scale: Any) -> None:
        v, b, pk, a = self.v, self.b, self.pk, self.args
        magnitude = pk.finite(pk.magnitude(x))
        n, size = pk.lanes, 8 if pk.in_f64 else 4
        orders = [list(range(at, at + n)) for at in range(0, CHUNK, n)]
        for i, y in enumerate(pk.values(magnitude, pk.sign(x), orders, scale)):
            v.store(y, v.at(a["out"], b.mul(place, v.int(size))), 64, 64 * i)
        e = pk.exponents(magnitude, scale)  # in every byte, or both halves, of its word
        kind = vector(I16 if self.full_range else I8, 32 if self.full_range else 64)
        copies = kind.count // CHUNK
        e = v.bits(e, kind)
        e = v.shuffle(e, e, [copies * (i // copies) for i in range(kind.count)])
        v.store(e, v.at(a["exponents"], b.mul(place, v.int(4))), 64)

    def store_signs(self, tile: Any, at: Any, r: int, mask: Any) -> None:
        """Sixteen sign bits of a row into the words of their blocks."""
        v, b, block = self.v, self.b, self.block
        if block == 2 * CHUNK:
            half = b.udiv(b.urem(at, v.int(block)), v.int(8))
            to = b.add(b.mul(self.line(tile, at), v.int(4 * ROWS)), half)
            v.store(mask, v.at(self.args["signs"], to, 4 * r), 2)
            return
        word, times = b.zext(mask, I32), {4: 0x01010101, 2: 0x00010001, 1: 1}[self.sign_copies]
        for s in range(0, CHUNK, block):
            part = b.and_(b.lshr(word, v.const(I32, s)), v.const(I32, (1 << block) - 1))
            to = b.mul(self.line(tile, b.add(at, v.int(s))), v.int(4 * ROWS))
            v.store(b.mul(part, v.const(I32, times)), v.at(self.args["signs"], to, 4 * r), 4)

    def result(self) -> Any:
        return None


# --- columns of B -----------------------------------------------------------------------------------------------------
def paired(lanes: int) -> list[list[int]]:
    """The order of sixteen columns of f64, for registers of so many 32-bit lanes.

    Two registers hold pairs of a chunk's columns by turns, so that 32-bit words of start values and sums interleave in
    place.
    """
    order = [
        c + 4 * q + 2 * h + i for c in range(0, CHUNK, lanes) for h in (0, 1) for q in range(lanes // 4) for i in (0, 1)
    ]
    return [order[:8], order[8:]]


class _Columns:
    """[panel][k][64]: sixteen columns of one block of products at a time; signs and weights stay in registers."""

    def __init__(self, v: VectorBuilder, pk: PanelElements, how: Packing, args: dict[str, Any]) -> None:
        self.v, self.b, self.pk, self.how, self.args = v, v.b, pk, how, args
        self.block, self.full_range, self.turns = how.block, bool(how.full_range), _for_dots(how)
        self.noted, self.word, self.fraction_sum, self.largest_sum = (_buffer(v, n) for n in (PANEL // CHUNK, 1, 1, 1))
        _blank(v, self.largest_sum)
        target = host_processor()
        self.order = paired(target.lanes if target else CHUNK)

    def write(self, panel: Any, order: list[int]) -> None:
        """A panel of columns; order: not empty where blocks of products are interleaved two by two."""
        v, b, a = self.v, self.b, self.args
        chunks, size = PANEL // CHUNK, self.pk.raw.element.width // 8
        _blank(v, self.noted, chunks)
        first = v.at(a["x"], b.mul(panel, v.int(PANEL * size)))
        blocks = b.udiv(a["places"], v.int(self.block))
        with cgutils.for_range(b, blocks) as g, cgutils.for_range(b, v.int(chunks)) as c:
            column = b.mul(c.index, v.int(CHUNK))
            self.one(first, panel, g.index, column, v.at(self.noted, b.mul(column, v.int(4))), bool(order))
        for c in range(chunks):
            at = b.add(b.mul(panel, v.int(PANEL)), v.int(CHUNK * c))
            self.pk.mark(v.at(self.noted, 64 * c), v.at(a["special"], at), CHUNK)

    def one(self, first: Any, panel: Any, g: Any, column: Any, noted: Any, by_turns: bool) -> None:
        """A block of products of sixteen columns."""
        v, b, a, pk, block = self.v, self.b, self.args, self.pk, self.block
        size = pk.raw.element.width // 8
        _blank(v, self.word)
        _blank(v, self.fraction_sum)
        scale = self.scale(panel, g, column)
        with cgutils.for_range(b, v.int(block)) as loop:
            t = loop.index
            k = b.add(b.mul(g, v.int(block)), t)
            row = self.source(g, t) if by_turns else k
            x = pk.load(first, b.mul(b.add(b.mul(row, a["ld"]), column), v.int(size)))
            x = b.zext(x, IV) if x.type != IV else x
            magnitude, sign = pk.magnitude(x), pk.sign(x)
            pk.note(noted, magnitude)
            magnitude = pk.finite(magnitude)
            place = b.add(b.mul(b.add(b.mul(panel, a["places"]), k), v.int(PANEL)), column)
            orders = self.order if pk.in_f64 else [list(range(CHUNK))]
            for i, y in enumerate(pk.values(magnitude, sign, orders, scale)):
                v.store(y, v.at(a["out"], b.mul(place, v.int(8 if pk.in_f64 else 4))), 64, 64 * i)
            self.store_exponents(pk.exponents(magnitude, scale), place, column)
            word = b.lshr(v.load(self.word, IV, 64), v.const(IV, 1))
            v.store(b.or_(word, sign), self.word, 64)
            fraction_sum = b.add(v.load(self.fraction_sum, IV, 64), b.and_(magnitude, pk.fraction))
            v.store(fraction_sum, self.fraction_sum, 64)
        line = b.add(b.mul(panel, b.udiv(a["places"], v.int(block))), g)
        self.store_signs(b.lshr(v.load(self.word, IV, 64), v.const(IV, 32 - block)), line, column)
        v.store(v.umax(v.load(self.largest_sum, IV, 64), v.load(self.fraction_sum, IV, 64)), self.largest_sum, 64)

    def store_exponents(self, e: Any, place: Any, column: Any) -> None:
        """Of sixteen columns, for product and column at `place`; for dot products how far they are below 255."""
        v, b, to = self.v, self.b, self.args["exponents"]
        if self.how.by_turns:
            e = b.xor(e, v.const(IV, 255)) if self.turns else e
            self.by_turns(e, v.at(to, b.sub(place, column)), column, 1)
            return
        size = 2 if self.full_range else 1
        v.store(b.trunc(e, vector(I16 if self.full_range else I8, CHUNK)), v.at(to, b.mul(place, v.int(size))), 16)

    def store_signs(self, word: Any, line: Any, column: Any) -> None:
        """Of sixteen columns' products of a line: (block of k) of a panel."""
        v, b, size, to = self.v, self.b, sign_size(self.how), self.args["signs"]
        first = b.mul(line, v.int(PANEL * size))
        if (self.turns and self.turns.nibbles) or _in_planes(self.how):
            for i in range(size):
                nibble = b.and_(b.lshr(word, v.const(IV, 4 * i)), v.const(IV, 15))
                plane = v.at(to, first, PANEL * i)
                if self.turns:
                    self.by_turns(nibble, plane, column, 1)
                else:
                    v.store(b.trunc(nibble, vector(I8, CHUNK)), v.at(plane, column), CHUNK)
            return
        if size == 2 or (self.turns and size < 4):
            group = b.and_(column, v.int(-4 * CHUNK // size))  # of columns that share words
            self.by_turns(word, v.at(to, first, b.mul(group, v.int(size))), b.sub(column, group), size)
            return
        word = b.trunc(word, vector(I8, CHUNK)) if size == 1 else word
        v.store(word, v.at(to, first, b.mul(column, v.int(size))), CHUNK * size)

    def by_turns(self, x: Any, to: Any, column: Any, size: int) -> None:
        """Bytes or halves of sixteen columns into sixteen words, above those of the columns before them."""
        v, b = self.v, self.b
        up = b.trunc(b.udiv(column, v.int(2 // size)), I32)  # 8 * size bits for every sixteen columns
        unit = v.splat(b.shl(v.const(I32, 1), up), CHUNK)
        before = b.and_(v.load(to, IV, 64), b.sub(unit, v.const(IV, 1)))
        v.store(b.or_(before, b.shl(x, v.splat(up, CHUNK))), to, 64)

    def scale(self, panel: Any, g: Any, column: Any) -> Any:
        """Exponents of sixteen columns' scales in block g of k; None without scales."""
        v, b, a = self.v, self.b, self.args
        if a["scale_exponents"] is None:
            return None
        place = b.add(b.add(b.mul(g, a["scale_ld"]), b.mul(panel, v.int(PANEL))), column)
        return v.load(v.at(a["scale_exponents"], b.mul(place, v.int(4))), IV, 4)

    def source(self, g: Any, t: Any) -> Any:
        """The k of product t of block g, of interleaved blocks."""
        v, b = self.v, self.b
        pair = b.mul(b.udiv(g, v.int(2)), v.int(2 * self.block))
        at = b.add(b.mul(b.udiv(t, v.int(2)), v.int(4)), b.urem(t, v.int(2)))
        return b.add(b.add(pair, at), b.mul(b.urem(g, v.int(2)), v.int(2)))

    def result(self) -> Any:
        """The largest sum of fractions of a block of products, in units of the last place."""
        v = self.v
        return self.b.zext(v.call("llvm.vector.reduce.umax.v16i32", I32, v.load(self.largest_sum, IV, 64)), I64)


class PackArguments(NamedTuple):
    """Of a packer: tiles of four rows of A, or panels of 64 columns of B, from `begin` to `end`.

    Each has `places` products a line, a multiple of 16 and of the block; all elements exist.  special[line] is set
    where a line holds Inf or NaN.  A scaled block of a line is times 2**exponents[first + block * ld + line] of its
    `Scales`.
    """

    source: Source
    scales: Scales
    out: Packed
    special: Any
    begin: int
    end: int
    places: int


def write_packer(v: VectorBuilder, how: Packing, size: int, columns: bool, x: dict[str, Any]) -> Any:
    """The body of a packer of elements of `size` bytes, whose arguments are x; of columns, it gives the largest sum of
    fractions of a block of products.
    """
    b, source, scales, out = v.b, x["source"], x["scales"], x["out"]
    args = {
        "x": v.at(source["x"], b.mul(source["first"], v.int(size))), "ld": source["ld"], "places": x["places"],
        "tiles": x["end"], "out": out["values"], "exponents": out["exponents"], "signs": out["signs"],
        "special": x["special"], "scale_ld": scales["ld"],
        "scale_exponents": v.at(scales["exponents"], b.mul(scales["first"], v.int(4))) if how.scaled else None,
    }  # fmt: skip
    decoding = source["params"], source["factor"], source["tiny"]
    pk = PanelElements(v, size, bool(how.in_f64), bool(how.emulated), *decoding)
    writer: _Columns | _Rows = (_Columns if columns else _Rows)(v, pk, how, args)
    with cgutils.for_range_slice(b, x["begin"], x["end"], v.int(1), I64) as (index, _):
        writer.write(index, turns(how.block) if how.emulated else [])
    return writer.result()
