"""A warp's slice of a warpgroup product, eight columns at a time: decode, align, multiply, round.

Everything finite is exact, subnormals included; tiles that meet Inf, NaN or the ends of f32 are reported, and their
accumulators left as they are: the caller gives them to the general path.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.builder import I1, I8, I16, I64, VectorBuilder, vector
from nbtc.compiler.cpu.float_mode import DOWN, enter, leave, separate_function
from nbtc.compiler.cpu.lowering import lowering
from nbtc.compiler.loops import Values, repeated
from nbtc.kernels.slices.slice_elements import V16, VECTOR, W16
from nbtc.kernels.slices.slice_operands import REGISTER, SliceOperands, image_parts, memory_a, memory_b, turned
from nbtc.kernels.slices.slice_shape import COLUMNS, ROWS, STEPS, UNITS, WORDS, SliceShape
from nbtc.kernels.slices.slice_sparse import expanded
from nbtc.kernels.slices.slice_sums import SliceSums

P = I8.as_pointer()
RAW = PEAKS = VECTOR * STEPS  # bytes of a line of a tile of B as it comes, and of a tile's greatest exponents


class SliceArguments(NamedTuple):
    """Of the function of a shape.

    a: image of A, or addresses (i64) of its 32 units of 16 bytes.  b: addresses of the units of B, sixteen for each
    line of eight columns, read where B is decoded.  decoded: where B is decoded, `bytes_of_b` from a multiple of 64 on.
    meta: image of the metadata, read where the shape is sparse.  d: image of D.  tiles: columns by eights (i64).  keep:
    whether D counts (i1).
    """

    a: Any
    b: Any
    decoded: Any
    meta: Any
    d: Any
    tiles: Any
    keep: Any


TYPES = (P, P, P, P, P, I64, I1)


def slice_function(module: ir.Module, shape: SliceShape, decodes: bool) -> Any:
    """The function of a shape, made on first use: returns the tiles that need the fallback, a bit each (i64).

    decodes: B is decoded beside the sums; else another warp's function has done so.
    """
    name = f"nbtc_slice_{shape.key}_{'decodes' if decodes else 'decoded'}"
    if name in module.globals:
        return module.globals[name]
    f, v = separate_function(module, name, I64, TYPES)
    old = enter(v, DOWN)
    found = _Slice(v, shape, SliceArguments(*f.args), decodes).emit()
    leave(v, old)
    v.b.ret(found)
    return f


def _mixed(sums: Iterator[None], others: Iterator[None]) -> None:
    """Two pieces of work in turn, so that a processor finds both among its next instructions."""
    for _ in sums:
        next(others, None)
    for _ in others:
        pass


class _Slice:
    """Writes the function."""

    def __init__(self, v: VectorBuilder, shape: SliceShape, arguments: SliceArguments, decodes: bool) -> None:
        self.v, self.b, self.s, self.args, self.m, self.decodes = v, v.b, shape, arguments, lowering(v), decodes
        self.operands = SliceOperands(v, shape)
        self.registers = 2 if shape.f16_acc else 4

    def emit(self) -> Any:
        v, b, s = self.v, self.b, self.s
        buffer = b.alloca(ir.ArrayType(I8, s.lines * (memory_a(s).size + RAW) + 2 * PEAKS))
        buffer.align = VECTOR
        self.a = b.bitcast(buffer, P)
        self.raw = v.at(self.a, s.lines * memory_a(s).size)
        self.at_peaks = v.at(self.raw, s.lines * RAW)
        same = ir.InlineAsm(ir.FunctionType(P, [P]), "", "=r,0")
        # to be read at: see `warp_operands.OpaqueBuffer`
        self.outer, self.outer_b = b.call(same, [self.a]), b.call(same, [self.args.decoded])
        special = self._decode_a()
        self._read(v.int(0))

        def first(step: Any, none: Values) -> Values:
            for _ in self._prepare(v.int(0), step):
                pass
            return none

        repeated(v, v.int(0), v.int(STEPS), 1, {}, first)

        def tile(n: Any, found: Values) -> Values:
            bad = self._tile(n, special)
            return {"marked": b.or_(found["marked"], b.shl(b.zext(bad, I64), n))}

        return repeated(v, v.int(0), self.args.tiles, 1, {"marked": v.int(0)}, tile)["marked"]

    def _decode_a(self) -> Any:
        """A to memory; i1: all tiles need the fallback."""
        v, b, s, o, clash = self.v, self.b, self.s, self.operands, ir.Constant(I1, 0)
        words = o.read_a(self.args.a)
        if s.sparse:
            words, clash = expanded(v, words, self.args.meta)
        for line in range(s.lines):
            o.decode_a(words[WORDS * line : WORDS * (line + 1)], v.at(self.a, memory_a(s).size * line))
        return b.or_(o.a.found(), clash)

    def _at_b(self, memory: Any, n: Any) -> Any:
        """Where tile n of B is decoded."""
        v, b, s = self.v, self.b, self.s
        return v.at(memory, b.mul(n, v.int(memory_b(s).size * s.lines)))

    def _peaks_at(self, n: Any) -> Any:
        """Where the greatest exponents of the products of tile n are."""
        return self.v.at(self.at_peaks, self.b.mul(self.b.and_(n, self.v.int(1)), self.v.int(PEAKS)))

    def _read(self, n: Any) -> None:
        """The bytes of tile n of B, or of the last one instead of those after it."""
        if not self.decodes:
            return
        v, b, a, size = self.v, self.b, self.args, 8 * UNITS
        last = b.sub(a.tiles, v.int(1))
        place = b.select(b.icmp_unsigned("<", n, a.tiles), n, last)
        places = v.at(a.b, b.mul(place, v.int(size * self.s.lines)))
        for line in range(self.s.lines):
            self.operands.read_b(v.at(places, size * line), v.at(self.raw, RAW * line))

    def _prepare(self, n: Any, step: Any) -> Iterator[None]:
        """Decode a step's columns of tile n, and find the maxima of its exponents, piece by piece."""
        v, b = self.v, self.b
        for line in range(self.s.lines if self.decodes else 0):
            to = v.at(self._at_b(self.args.decoded, n), memory_b(self.s).size * line)
            yield from self.operands.decode_b(step, v.at(self.raw, RAW * line), to)
        to = v.at(self._peaks_at(n), b.mul(step, v.int(VECTOR)))
        yield from self._sums().peaks(self._at_b(self.outer_b, n), step, to)

    def _sums(self) -> SliceSums:
        return SliceSums(self.v, self.operands, self.outer)

    def _tile(self, n: Any, special: Any) -> Any:
        """Eight columns of D, and beside their sums the next eight of B are decoded; i1: needs the fallback.

        special: A has an Inf or NaN (i1).
        """
        v, b, sums = self.v, self.b, self._sums()
        following = b.add(n, v.int(1))
        self._read(following)
        d, at_b = v.at(self.args.d, b.mul(n, v.int(REGISTER * self.registers))), self._at_b(self.outer_b, n)
        accumulators, chunk, results = self.load_d(d), self.s.chunk(self.m.row), []
        peaks = [v.load(self._peaks_at(n), W16, VECTOR, VECTOR * step) for step in range(STEPS)]
        for first in range(0, COLUMNS, chunk):
            columns = range(first, first + chunk)
            begun = {c: sums.start(at_b, c, peaks[c // 2], accumulators[c]) for c in columns}
            starts = {(c, part): x for c, (both, _) in begun.items() for part, x in enumerate(both)}

            def step(k: Any, values: dict[Any, Any], columns: range = columns) -> dict[Any, Any]:
                totals = {c: [values[c, part] for part in range(self.s.parts)] for c in columns}
                last = columns[-1] == COLUMNS - 1
                _mixed(sums.multiply(at_b, k, totals), self._prepare(following, k) if last else iter(()))
                return {(c, part): x for c, both in totals.items() for part, x in enumerate(both)}

            found = repeated(v, v.int(0), v.int(STEPS), 1, starts, step)
            results += [sums.finish([found[c, part] for part in range(self.s.parts)], begun[c][1]) for c in columns]
        bad = b.or_(special, sums.out_of_range())
        if not self.s.f16_acc:
            bad = self._or_tiny(bad, sums, accumulators)
        with b.if_then(b.not_(bad), likely=True):
            self.store_d(d, results)
        return bad

    def _or_tiny(self, bad: Any, sums: SliceSums, accumulators: list[Any]) -> Any:
        """bad, or a sum without products has a c that their exponents hide."""
        b = self.b
        before = b.block
        with b.if_then(sums.empty(), likely=False):
            tiny, inside = sums.tiny(accumulators), b.block
        found = b.phi(bad.type)
        found.add_incoming(ir.Constant(bad.type, 0), before)
        found.add_incoming(tiny, inside)
        return b.or_(bad, found)

    def load_d(self, d: Any) -> list[Any]:
        """Accumulators as f32, column by column."""
        v, b = self.v, self.b
        if self.s.f16_acc:
            pairs = image_parts(v, d, (0, 1))
            halves = [b.lshr(x, v.const(W16, shift)) for x in pairs for shift in (0, 16)]
            found = [self.m.from_f16(b.trunc(x, vector(I16, ROWS))) for x in halves]
        else:
            even, odd = (image_parts(v, d, (i, i + 2)) for i in (0, 1))
            found = [v.bits(x, V16) for pair in zip(even, odd, strict=True) for x in pair]
        return [b.select(self.args.keep, x, v.const(V16, 0.0)) for x in found]

    def store_d(self, d: Any, results: list[Any]) -> None:
        """The inverse of `load_d`."""
        v, b = self.v, self.b
        if self.s.f16_acc:
            wide = [b.zext(x, W16) for x in results]
            pairs = [b.or_(x, b.shl(y, v.const(W16, 16))) for x, y in zip(wide[::2], wide[1::2], strict=True)]
            parts = {0: turned(v, pairs)}
            rows = (0, 1)
        else:
            parts = {i: turned(v, [v.bits(x, W16) for x in results[i::2]]) for i in (0, 1)}
            rows = (0, 2)
        for i, found in parts.items():
            for q, x in enumerate(found):
                v.store(x, d, VECTOR, REGISTER * (i + rows[q // 2]) + VECTOR * (q % 2))
