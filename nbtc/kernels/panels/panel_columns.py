"""Columns of B into the panels of the fused micro-kernel."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from nbtc.compiler.builder import I8, I32, I64, LINE, VectorBuilder, suffix, vector
from nbtc.kernels.panels.fused_sum import NIBBLE, PANEL
from nbtc.kernels.panels.panel_elements import CHUNK, PanelElements
from nbtc.kernels.panels.panel_operands import Packing
from nbtc.kernels.panels.panel_pack import Side, for_dots, in_planes, sign_size


def by_turns(chunks: int) -> list[int]:
    """Of some chunks of columns: the first of each, then the second."""
    return [c + CHUNK * q for c in range(CHUNK) for q in range(chunks)]


def zipped(v: VectorBuilder, x: Any, y: Any) -> Any:
    """Elements of x and y in turn, two as one of twice the width."""
    n, t = x.type.count, vector(ir.IntType(2 * x.type.element.width), x.type.count)
    return v.bits(v.shuffle(x, y, [i for k in range(n) for i in (k, n + k)]), t)


class PanelColumns(Side):
    """[panel][k][64]: as many columns of one block of products at a time as registers hold the bookkeeping of."""

    def __init__(self, v: VectorBuilder, how: Packing, pk: PanelElements, args: dict[str, Any]) -> None:
        super().__init__(v, how, pk, args)
        self.width = PANEL if self.row.masks else self.together
        self.run = min(how.block, pk.width)  # products whose signs fit into an element
        self.weighed = pk.in_f64 and how.block == CHUNK
        self.weight = ir.IntType(max(16, pk.width))  # of sixteen fractions
        self.largest_sum = self.zeros(self.width, self.weight)
        self.noted = self.buffer(PANEL * pk.size)
        self.words = self.buffer(how.block // self.run * self.width * pk.size)
        self.copy = self.buffer(2 * how.block * self.width * pk.size)

    def begin(self) -> None:
        for n in range(0, PANEL * self.pk.size, LINE):
            self.v.store(self.v.const(vector(I8, LINE), 0), self.noted, LINE, n)

    def pack(self, line: Any) -> None:
        v, b, a, size = self.v, self.b, self.args, self.pk.size
        first = v.at(a["x"], b.mul(line, v.int(PANEL * size)))
        chunks = v.int(PANEL // self.width)
        with (
            cgutils.for_range(b, b.udiv(a["places"], v.int(self.block))) as group,
            cgutils.for_range(b, chunks) as chunk,
        ):
            self.one(first, line, group.index, b.mul(chunk.index, v.int(self.width)))

    def one(self, first: Any, panel: Any, g: Any, column: Any) -> None:
        """A block of products of some columns."""
        v, b, a, pk = self.v, self.b, self.args, self.pk
        at = b.mul(column, v.int(pk.size))
        first, ld = self.source(v.at(first, at), g)
        noted = self.variable(v.load(v.at(self.noted, at), vector(pk.element, self.width), pk.size))
        fractions, scale = self.zeros(self.width, self.weight), self.scale(panel, g, column)
        group = b.add(b.mul(panel, a["places"]), b.mul(g, v.int(self.block)))
        with cgutils.for_range(b, v.int(self.block // self.run)) as part:
            word = self.zeros(self.width)
            with cgutils.for_range(b, v.int(self.run)) as loop:
                t = b.add(b.mul(part.index, v.int(self.run)), loop.index)
                p, k = v.at(first, b.mul(self.row_of(t), ld)), b.add(group, t)
                x = pk.load(p, self.width)
                magnitude = pk.magnitude(x)
                none = pk.none(magnitude)
                b.store(v.umax(b.load(noted), magnitude), noted)
                top = b.and_(pk.sign(x, none), pk.c(x, 1 << (pk.width - 1)))
                b.store(b.or_(b.lshr(b.load(word), pk.c(x, 1)), top), word)
                if self.weighed:
                    fraction = pk.fraction(magnitude)
                    fraction = b.zext(fraction, self.types(self.weight)) if pk.width < 16 else fraction
                    b.store(b.add(b.load(fractions), fraction), fractions)
                self.store_exponents(pk.exponents(x, magnitude, none, scale), k, column)
                for n in range(0, self.width, CHUNK):
                    self.store_values(v.at(p, n * pk.size), b.add(b.mul(k, v.int(PANEL)), column), n, scale)
            done = b.lshr(b.load(word), v.const(self.types(), pk.width - self.run))
            v.store(done, v.at(self.words, b.mul(part.index, v.int(self.width * pk.size))), LINE // 4)
        v.store(b.load(noted), v.at(self.noted, at), pk.size)
        b.store(v.umax(b.load(self.largest_sum), b.load(fractions)), self.largest_sum)
        self.store_signs(b.add(b.mul(panel, b.udiv(a["places"], v.int(self.block))), g), column)

    def types(self, element: ir.Type | None = None) -> ir.VectorType:
        """The type of an element of each column."""
        return vector(element or self.pk.element, self.width)

    def source(self, first: Any, g: Any) -> tuple[Any, Any]:
        """Where block g of products begins, and bytes of a line."""
        v, b, a, pk = self.v, self.b, self.args, self.pk
        k = b.mul(g, v.int(self.block))
        if self.how.emulated:  # half of two blocks: k mod 4 in {0, 1}, or in {2, 3}
            odd = b.urem(g, v.int(2))
            k = b.sub(k, b.mul(odd, v.int(self.block - 2)))
        ld = b.mul(a["ld"], v.int(pk.size))
        place, pitch = self.variable(v.at(first, b.mul(k, ld))), self.variable(ld)
        with b.if_then(b.load(self.cleared), likely=False):
            given, line = b.load(place), v.int(self.width * pk.size)
            with cgutils.for_range(b, v.int(self.block)) as loop:
                row = self.row_of(loop.index)
                pk.store(pk.finite(pk.load(v.at(given, b.mul(row, ld)), self.width)), v.at(self.copy, b.mul(row, line)))
            b.store(self.copy, place)
            b.store(line, pitch)
        return b.load(place), b.load(pitch)

    def row_of(self, t: Any) -> Any:
        """How many rows below the first of its block product t is."""
        v, b = self.v, self.b
        if not self.how.emulated:
            return t
        return b.add(b.mul(b.udiv(t, v.int(2)), v.int(4)), b.urem(t, v.int(2)))

    def store_values(self, p: Any, place: Any, n: int, scale: Any) -> None:
        """Store the values of the sixteen elements at p as columns n to n + 15 of those at `place`."""
        v, pk, size = self.v, self.pk, 8 if self.pk.in_f64 else 4
        lanes = list(range(n, n + CHUNK))
        scale = None if scale is None else v.shuffle(scale, scale, lanes)
        for i, y in enumerate(pk.values(pk.load(p, CHUNK), self.order, scale)):
            v.store(y, v.at(self.args["out"], self.b.mul(place, v.int(size)), size * n), LINE, LINE * i)

    def store_exponents(self, e: Any, k: Any, column: Any) -> None:
        """Store the exponents of product k; for dot products, how far they are below 255."""
        v, b, size = self.v, self.b, self.pk.stored.width // 8
        if self.how.by_turns:
            e = b.xor(e, v.const(e.type, 255)) if for_dots(self.how, self.row) else e
            e = v.shuffle(e, e, by_turns(PANEL // CHUNK))
        place = v.at(self.args["exponents"], b.mul(b.add(b.mul(k, v.int(PANEL)), column), v.int(size)))
        v.store(e, place, CHUNK * size)

    def store_signs(self, line: Any, column: Any) -> None:
        """Store the signs of a line: (block of k) of a panel."""
        v, b, size, turned = self.v, self.b, sign_size(self.how, self.row), for_dots(self.how, self.row)
        parts = [
            v.load(self.words, self.types(), LINE // 4, n * self.width * self.pk.size)
            for n in range(self.block // self.run)
        ]
        to, turns = v.at(self.args["signs"], b.mul(line, v.int(PANEL * size))), by_turns(PANEL // CHUNK)
        if (turned and turned.nibbles) or in_planes(self.how, self.row):
            for i in range(size):
                part, shift = parts[NIBBLE * i // self.run], NIBBLE * i % self.run
                nibble = b.and_(self.sized(b.lshr(part, v.const(part.type, shift)), I8), v.const(self.types(I8), 15))
                nibble = v.shuffle(nibble, nibble, turns) if turned else nibble
                v.store(nibble, v.at(to, column, PANEL * i), CHUNK)
            return
        while len(parts) > 1:
            parts = [zipped(v, x, y) for x, y in zip(parts[::2], parts[1::2], strict=True)]
        word = self.sized(parts[0], ir.IntType(8 * size))
        if size == 2 or (turned and size < 4):
            lanes = [n + i for n in range(0, PANEL, PANEL // size) for i in by_turns(PANEL // CHUNK // size)]
            word = v.shuffle(word, word, lanes)
        v.store(word, v.at(to, b.mul(column, v.int(size))), CHUNK * size)

    def sized(self, x: Any, element: ir.Type) -> Any:
        """Words of another width."""
        t, width = self.types(element), x.type.element.width
        return x if width == element.width else (self.b.trunc if width > element.width else self.b.zext)(x, t)

    def scale(self, panel: Any, g: Any, column: Any) -> Any:
        """Exponents of columns' scales in block g of k; None without scales."""
        v, b, a = self.v, self.b, self.args
        if a["scale_exponents"] is None:
            return None
        place = b.add(b.add(b.mul(g, a["scale_ld"]), b.mul(panel, v.int(PANEL))), column)
        return v.load(v.at(a["scale_exponents"], b.mul(place, v.int(4))), self.types(I32), 4)

    def found(self) -> Any:
        b = self.b
        return b.icmp_unsigned("!=", b.bitcast(self.specials(), I64), self.v.int(0))

    def specials(self) -> Any:
        """Columns (i1) that had an Inf or NaN."""
        return self.pk.special(self.v.load(self.noted, vector(self.pk.element, PANEL), LINE))

    def mark(self, line: Any) -> None:
        v, b, t = self.v, self.b, vector(I8, PANEL)
        to = v.at(self.args["special"], b.mul(line, v.int(PANEL)))
        v.store(b.or_(v.load(to, t), b.zext(self.specials(), t)), to)

    def result(self) -> Any:
        """The largest sum of fractions of a block of sixteen products, in units of the last place; else 0."""
        v, t = self.v, self.types(self.weight)
        largest = v.call(f"llvm.vector.reduce.umax.{suffix(t)}", self.weight, self.b.load(self.largest_sum))
        return self.b.zext(largest, I64)
