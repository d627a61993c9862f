"""Rows of A into the panels of the fused micro-kernel: four at a time."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from nbtc.compiler.builder import I8, I16, I32, I64, LINE, VectorBuilder, vector
from nbtc.kernels.panels.fused_sum import ROWS
from nbtc.kernels.panels.panel_elements import CHUNK, PanelElements
from nbtc.kernels.panels.panel_operands import Packing
from nbtc.kernels.panels.panel_pack import Side, for_dots, in_planes, sign_size, turns

RUN = ROWS * CHUNK  # elements that are packed together


class PanelRows(Side):
    """[block][row tile][k][4 rows]: four rows of sixteen k, transposed into the order that values take out of words."""

    def __init__(self, v: VectorBuilder, how: Packing, pk: PanelElements, args: dict[str, Any]) -> None:
        super().__init__(v, how, pk, args)
        # whose words, where they are no nibbles, meet several columns' signs in one
        row = for_dots(how, self.row) or in_planes(how, self.row)
        self.sign_copies = 4 // min(4, sign_size(how, self.row)) if row is None or row.counts else 1
        self.turns = turns(how.block) if how.emulated else []
        self.step = max(1, len(self.turns) // CHUNK)
        self.places = [lane for lanes in self.order for lane in lanes]  # of four k of four rows
        self.rows = [self.places.index(lane) % ROWS for lane in range(CHUNK)]
        self.copy = self.buffer(RUN * self.step * pk.size)
        self.specials = self.variable(v.int(0))  # which lanes of `noted` had some, a bit each

    def begin(self) -> None:
        self.noted = self.zeros(self.together)

    def pack(self, line: Any) -> None:
        v, b, a, size = self.v, self.b, self.args, self.pk.size
        first = v.at(a["x"], b.mul(b.mul(line, v.int(ROWS * size)), a["ld"]))
        run = CHUNK * self.step
        with cgutils.for_range(b, b.udiv(a["places"], v.int(run))) as loop:
            at = b.mul(loop.index, v.int(run))
            raw = self.load(v.at(first, b.mul(at, v.int(size))), b.mul(a["ld"], v.int(size)))
            for i in range(self.step):
                lanes = self.turns[CHUNK * i : CHUNK * (i + 1)]
                rows = [v.shuffle(x[0], x[-1], lanes) if lanes else x[0] for x in raw]
                self.run(line, b.add(at, v.int(CHUNK * i)), v.joined(rows))

    def load(self, first: Any, ld: Any) -> list[list[Any]]:
        """Chunks of four rows, whose lines are `ld` bytes."""
        v, b, pk = self.v, self.b, self.pk
        place, pitch, chunk = self.variable(first), self.variable(ld), CHUNK * pk.size
        parts = [(r, i) for r in range(ROWS) for i in range(self.step)]
        with b.if_then(b.load(self.cleared), likely=False):
            for r, i in parts:
                x = pk.finite(pk.load(v.at(first, b.mul(ld, v.int(r)), chunk * i), CHUNK))
                pk.store(x, v.at(self.copy, chunk * (r * self.step + i)))
            b.store(self.copy, place)
            b.store(v.int(chunk * self.step), pitch)
        first, ld = b.load(place), b.load(pitch)
        found = [pk.load(v.at(first, b.mul(ld, v.int(r)), chunk * i), CHUNK) for r, i in parts]
        return [found[n : n + self.step] for n in range(0, len(found), self.step)]

    def run(self, tile: Any, at: Any, rows: Any) -> None:
        """Sixteen k of four rows, one after the other."""
        v, b, pk = self.v, self.b, self.pk
        self.store_signs(tile, at, b.bitcast(pk.negative(rows), I64))
        linear = [self.places.index(lane) for lane in range(CHUNK)]
        x = v.shuffle(rows, rows, [CHUNK * (i % ROWS) + k + i // ROWS for k in range(0, CHUNK, ROWS) for i in linear])
        magnitude = pk.magnitude(x)
        parts = [list(range(n, n + self.together)) for n in range(0, RUN, self.together)]
        for lanes in parts:
            b.store(v.umax(b.load(self.noted), v.shuffle(magnitude, magnitude, lanes)), self.noted)
        scale = self.scale(tile, at)
        every = None if scale is None else v.shuffle(scale, scale, [*range(CHUNK)] * ROWS)
        e = pk.exponents(x, magnitude, pk.none(magnitude), every)
        for k in range(0, CHUNK, ROWS):
            chunk = list(range(ROWS * k, ROWS * k + CHUNK))
            self.store(self.place(tile, b.add(at, v.int(k))), v.shuffle(x, x, chunk), v.shuffle(e, e, chunk), scale)

    def store(self, place: Any, x: Any, e: Any, scale: Any) -> None:
        """Four k: values, and exponents in every byte, or both halves, of a word."""
        v, b, pk, a = self.v, self.b, self.pk, self.args
        for i, y in enumerate(pk.values(x, self.order, scale)):
            v.store(y, v.at(a["out"], b.mul(place, v.int(8 if pk.in_f64 else 4))), LINE, LINE * i)
        words = v.shuffle(e, e, [n for n in self.places for _ in range(32 // pk.stored.width)])
        v.store(words, v.at(a["exponents"], b.mul(place, v.int(4))), LINE)

    def scale(self, tile: Any, at: Any) -> Any:
        """Exponents of the four rows' scales in the block of k, as the rows of a chunk lie; None without scales."""
        v, b, a = self.v, self.b, self.args
        if a["scale_exponents"] is None:
            return None
        place = b.add(b.mul(b.udiv(at, v.int(self.block)), a["scale_ld"]), b.mul(tile, v.int(ROWS)))
        four = v.load(v.at(a["scale_exponents"], b.mul(place, v.int(4))), vector(I32, ROWS), 4)
        return v.shuffle(four, four, self.rows)

    def line(self, tile: Any, k: Any) -> Any:
        """(block of k) * tiles + tile."""
        b = self.b
        return b.add(b.mul(b.udiv(k, self.v.int(self.block)), self.args["tiles"]), tile)

    def place(self, tile: Any, k: Any) -> Any:
        """Where product k of a tile is, in elements."""
        v, b = self.v, self.b
        rest = b.urem(k, v.int(self.block))
        return b.mul(b.add(b.mul(self.line(tile, k), v.int(self.block)), rest), v.int(ROWS))

    def store_signs(self, tile: Any, at: Any, bits: Any) -> None:
        """Sixteen sign bits of each row into the words of their blocks."""
        v, b, block, four = self.v, self.b, self.block, vector(I32, ROWS)
        if block == 2 * CHUNK:
            half = b.udiv(b.urem(at, v.int(block)), v.int(8))
            to = b.add(b.mul(self.line(tile, at), v.int(4 * ROWS)), half)
            for r in range(ROWS):
                v.store(b.trunc(b.lshr(bits, v.int(CHUNK * r)), I16), v.at(self.args["signs"], to, 4 * r), 2)
            return
        words = b.zext(v.bits(bits, vector(I16, ROWS)), four)
        for s in range(0, CHUNK, block):
            part = b.and_(b.lshr(words, v.const(four, s)), v.const(four, (1 << block) - 1))
            copies = v.bits(part, vector(ir.IntType(32 // self.sign_copies), ROWS * self.sign_copies))
            copies = v.shuffle(copies, copies, [n - n % self.sign_copies for n in range(copies.type.count)])
            to = b.mul(self.line(tile, b.add(at, v.int(s))), v.int(4 * ROWS))
            v.store(copies, v.at(self.args["signs"], to), 4 * ROWS)

    def found(self) -> Any:
        b = self.b
        bits = b.bitcast(self.pk.special(b.load(self.noted)), ir.IntType(self.together))
        b.store(b.zext(bits, I64) if self.together < 64 else bits, self.specials)
        return b.icmp_unsigned("!=", b.load(self.specials), self.v.int(0))

    def mark(self, line: Any) -> None:
        v, b = self.v, self.b
        to = v.at(self.args["special"], b.mul(line, v.int(ROWS)))
        for r in range(ROWS):
            lanes = sum(1 << n for n in range(self.together) if self.rows[n % CHUNK] == r)
            some = b.icmp_unsigned("!=", b.and_(b.load(self.specials), v.const(I64, lanes)), v.int(0))
            v.store(b.or_(v.load(to, I8, offset=r), b.zext(some, I8)), to, offset=r)
