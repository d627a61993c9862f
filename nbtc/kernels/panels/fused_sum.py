"""The fused dot product of a register tile, in pieces that schedules put in order: four rows times some columns.

Truncating every product to a multiple of q = 2**(E-F) and summing exactly is what one fused multiply-add does when it
rounds *down* into an accumulator whose unit in the last place is q.  The accumulator starts at M = 1.5 * 2**p * q, and
b is stored as b * (1 + eps), so that a negative product always lands one unit below its truncation and a positive one
on it; counting the negative products (a popcount of sign bits) corrects the sum.  Zeros are stored as +-tiny, so they
obey the same rule.  docs/numerics.md has the proof.

elements F64: p = 52, every F and exponent of f16, bf16 and tf32; only the low 32 bits of the sum are kept, and a sum
that left them flags its tile.  elements F32: p = 23, enough for F = 13 (the fp8 units).

The same code serves every processor: a `Target` says how wide its registers are and how many there are.

Rejected: an exact product in f32, scaled by an integer add and truncated by a conversion (four operations a product
instead of two; 0.38x of a float32 product instead of 0.45x).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.builder import F32, F64, I8, I16, I32, I64, VectorBuilder, vector
from nbtc.compiler.cpu.lowering import lowering
from nbtc.kernels.panels.alignment_and_rounding import SIGN, WRAP_MARGIN, FullRange, LimitedRange, SumShape

ROWS = 4  # rows of a register tile
PANEL = 64  # columns of a panel
NIBBLE, NIBBLES = 4, 16  # bits, values
Chunk = tuple[int, int]  # a row of a register tile, and as many of its columns as a register has 32-bit lanes


class SumTile(NamedTuple):
    """Where the operands of a register tile are: B and what else has columns from its first column on.

    counts: of negative products; where there are none (`SumShape.counted`), sign words are read.  chunk: how many
    chunks of the panel come before its first column, where that is known (`Mixed`).
    """

    a: Any
    signs_a: Any
    b: Any
    signs_b: Any
    acc: Any
    maxima: Any
    counts: Any
    chunk: int = 0


class Signs(NamedTuple):
    """Sign words of four rows and of all columns of a panel; where counts of negative products are kept."""

    a: Any
    b: Any
    to: Any


class Exponents(NamedTuple):
    """Exponent maxima taken together: of some rows, in some registers of the panel's exponents; where they are kept."""

    rows: int
    parts: int
    a: Any
    b: Any
    to: Any


class FusedSum:
    """Emits the pieces of one shape's sums; `numbers`: floor, least, scale and reference; flags: two vectors of words.

    The first flags are the smallest distance from a sum that wrapped, the second the largest magnitude of a result.
    """

    def __init__(self, v: VectorBuilder, shape: SumShape, numbers: dict[str, Any], flags: Any) -> None:
        self.v, self.b, self.s, self.flags = v, v.b, shape, flags
        target = shape.target
        self.element, self.size = (F64, 8) if shape.in_f64 else (F32, 4)
        self.width, self.lanes = target.bytes, target.lanes  # of a register; of a chunk
        self.vector = vector(self.element, self.width // self.size)
        self.chunks = target.sums // (ROWS * shape.parts)
        self.tile = [(r, c) for r in range(ROWS) for c in range(self.chunks)]
        splats = {name: v.splat(v.b.trunc(x, I32), self.lanes) for name, x in numbers.items()}
        self.ends = self.ends_of(shape)(v, shape, splats)
        self.integers = self.ends.integers
        self.exponent_row = PANEL * shape.exponent_bytes
        n = shape.exponent_bytes
        self.exponents = vector(I8 if n == 1 else I16, self.width // n)

    @property
    def keeps_units(self) -> bool:
        """Whether `finish` needs the first of what `begin` gave."""
        return True

    def ends_of(self, shape: SumShape) -> type[FullRange] | type[LimitedRange]:
        """What comes before and after the multiply-adds."""
        return FullRange if shape.full_range else LimitedRange

    def places(self, maxima: Any, counts: int, column: Any) -> tuple[Any, Any]:
        """Where a tile finds exponent maxima and counts of a step, which lie `counts` bytes after them."""
        v = self.v
        return v.at(maxima, self.b.mul(column, v.int(self.s.exponent_bytes))), v.at(maxima, counts, column)

    def load(self, p: Any, offset: int = 0) -> Any:
        """A register of 32-bit words."""
        return self.v.load(p, self.integers, self.width, offset)

    def store(self, x: Any, p: Any, offset: int = 0) -> None:
        """The same to memory."""
        self.v.store(x, p, self.width, offset)

    # --- exponent maxima ----------------------------------------------------------------------------------------------
    def no_maxima(self, which: Exponents) -> list[list[Any]]:
        """Of no product."""
        return [[self.v.const(self.exponents, 0)] * which.parts for _ in range(which.rows)]

    def fold_exponents(self, best: list[list[Any]], which: Exponents, k: int) -> list[list[Any]]:
        """Maxima with the exponents of products k."""
        v, row = self.v, self.exponent_row * k
        eb = [v.load(which.b, self.integers, self.width, row + self.width * h) for h in range(which.parts)]
        out = []
        for r in range(which.rows):
            ea = v.splat(v.load(which.a, I32, 4, 4 * (ROWS * k + r)), self.lanes)
            sums = [v.bits(self.exponent_sum(ea, x), self.exponents) for x in eb]
            out.append([v.umax(x, y) for x, y in zip(best[r], sums, strict=True)])
        return out

    def exponent_sum(self, a: Any, b: Any) -> Any:
        """A 32-bit add serves bytes and halves: no carry crosses, since sums stay in range."""
        return self.b.add(a, b)

    def keep_maxima(self, best: list[list[Any]], which: Exponents) -> None:
        """Store them."""
        for r, parts in enumerate(best):
            for h, x in enumerate(parts):
                self.store(self.ends.finish_maxima(x), which.to, self.exponent_row * r + self.width * h)

    def count(self, signs: Signs) -> None:
        """Count the negative products of all columns, and keep the counts."""
        if self.s.nibbles:
            self._count_nibbles(signs)
            return
        v, b, octets = self.v, self.b, vector(I8, self.width)
        for h in range(0, PANEL, self.width):
            theirs = v.load(signs.b, octets, self.width, h)
            for r in range(ROWS):
                x = b.xor(theirs, v.bits(v.splat(v.load(signs.a, I32, 4, 4 * r), self.lanes), octets))
                n = v.byte_counts(v.bits(x, self.integers)) if self.s.target.lookup else v.popcount(x)
                self.store(v.bits(n, self.integers), signs.to, PANEL * r + h)

    def _count_nibbles(self, signs: Signs) -> None:
        """The same of four products at a time, by tables of how many signs differ from those of a row."""
        v, b, octets = self.v, self.b, vector(I8, self.width)
        table = _ones_of_differences(v)
        for r in range(ROWS):
            word = b.zext(v.load(signs.a, I32, 4, 4 * r), I64)
            totals: dict[int, Any] = {}
            for i in range(self.s.block // NIBBLE):
                mine = b.and_(b.lshr(word, v.int(NIBBLE * i)), v.int(NIBBLES - 1))
                ones = v.load(v.at(table, b.mul(mine, v.int(NIBBLES))), vector(I8, NIBBLES), NIBBLES)
                ones = v.shuffle(ones, ones, list(range(NIBBLES)) * (self.width // NIBBLES))
                for h in range(0, PANEL, self.width):
                    found = lowering(v).byte_shuffle(ones, v.load(signs.b, octets, self.width, PANEL * i + h))
                    totals[h] = b.add(totals[h], found) if i else found
            for h, total in totals.items():
                self.store(v.bits(total, self.integers), signs.to, PANEL * r + h)

    # --- before the multiply-adds -------------------------------------------------------------------------------------
    def begin(self, at: SumTile, chunk: Chunk) -> tuple[Any, Any]:
        """(alignment exponents, what the sums start from less M): truncated accumulators plus negative products.

        What `starts` takes, and the first of them `finish`.
        """
        v, b, (r, c) = self.v, self.b, chunk
        acc = None if self.s.from_zero else self.load(at.acc, 4 * PANEL * r + self.width * c)
        maxima = v.at(at.maxima, self.exponent_row * r + self.s.exponent_bytes * self.lanes * c)
        e = self.ends.alignment(maxima, acc)
        low = self.negative(at, chunk)
        return e, low if acc is None else b.add(low, self.ends.truncated(acc, e))

    def negative(self, at: SumTile, chunk: Chunk) -> Any:
        """How many products of each of a chunk's sums are negative."""
        v, b, (r, c) = self.v, self.b, chunk
        if self.s.counted:
            places = v.load(at.counts, vector(I8, self.lanes), self.lanes, PANEL * r + self.lanes * c)
            return b.zext(places, self.integers)
        mine = v.splat(v.load(at.signs_a, I32, 4, 4 * r), self.lanes)
        signs = b.xor(self.load(at.signs_b, self.width * c), mine)
        return v.byte_sums(v.byte_counts(signs), self.s.block) if self.s.target.lookup else v.popcount(signs)

    def starts(self, e: Any, low: Any) -> list[Any]:
        """Accumulators of a chunk."""
        v, b = self.v, self.b
        high = self.ends.magic(e)
        if not self.s.in_f64:
            return [v.bits(b.add(high, low), self.vector)]
        return self.joined(low, high)

    def joined(self, low: Any, high: Any) -> list[Any]:
        """f64 accumulators of a chunk from lower and upper words, in the order of `panel_pack.paired`."""
        v, b, n, out = self.v, self.b, self.lanes, []
        if self.s.long_block:  # from 0 to 2**32 - 1: no start borrows from M
            low = b.xor(low, self.ends.c(SIGN))
        for h in range(2):
            lanes = [x for q in range(n // 4) for i in (4 * q + 2 * h, 4 * q + 2 * h + 1) for x in (i, n + i)]
            out.append(v.bits(v.shuffle(low, high, lanes), self.vector))
        return out

    # --- the multiply-adds --------------------------------------------------------------------------------------------
    def multiply(self, sums: dict[Chunk, list[Any]], at: SumTile, k: int) -> None:
        """Add products k to the sums of a tile."""
        v, b, parts = self.v, self.b, self.s.parts
        row = PANEL * self.size * k
        bs = [v.load(at.b, self.vector, self.width, row + self.width * i) for i in range(self.chunks * parts)]
        for r in range(ROWS):
            a = self.broadcast(v.at(at.a, self.size * (ROWS * k + r)))
            for i, x in enumerate(bs):
                total = sums[r, i // parts]
                if self.s.target.fma:
                    total[i % parts] = v.fma(a, x, total[i % parts])
                else:  # rounded down twice: the product's last place divides that of the sum
                    total[i % parts] = b.fadd(total[i % parts], b.fmul(a, x))

    def broadcast(self, p: Any) -> Any:
        """An element in all lanes."""
        if self.s.target.broadcasts:
            return self.v.broadcast512(p, self.element)
        return self.v.splat(self.v.load(p, self.element, self.size), self.vector.count)

    # --- after them ---------------------------------------------------------------------------------------------------
    def total(self, sums: list[Any]) -> Any:
        """The sum modulo 2**32 from the accumulators of a chunk, by column (f32: still with M; long: with 2**31)."""
        words = [self.v.bits(x, self.integers) for x in sums]
        lanes = [4 * q + i for q in range(self.lanes // 4) for i in (0, 2, self.lanes, self.lanes + 2)]
        return self.v.shuffle(words[0], words[1], lanes) if self.s.in_f64 else words[0]

    def together(self, sums: dict[Chunk, list[Any]]) -> dict[Chunk, list[Any]]:
        """A tile's accumulators as they start, and as they end."""
        return sums

    def outside(self, found: Any, sums: list[Any]) -> Any:
        """`found` and the bits in which sums of more products than 16 differ from the upper half of M's fraction.

        They start 2**31 above M, so a sum is in range as long as they are M's: the exponent never changes.  Two logical
        operations a register, which AVX-512 does as one.
        """
        v, b = self.v, self.b
        words = vector(I64, self.vector.count)
        for x in sums:
            other = b.xor(v.bits(x, words), v.const(words, self.ends.start_fraction))
            found = other if found is None else b.or_(found, other)
        return found

    def notice(self, found: Any) -> None:
        """Flag the sums that left 32 bits, of some chunks together: the flags are in memory."""
        b, words = self.b, found.type
        above = self.v.bits(b.and_(found, self.v.const(words, (1 << 52) - (1 << 32))), self.integers)
        self._flag_least(b.sext(b.icmp_unsigned("==", above, self.ends.c(0)), self.integers))

    def _flag_least(self, x: Any) -> None:
        """Keep the least of what tells how near sums came to leaving 32 bits."""
        self.store(self.v.umin(self.load(self.flags), x), self.flags)

    def finish(self, at: SumTile, chunk: Chunk, e: Any, n: Any) -> None:
        """Round a chunk's sums once and store them."""
        b = self.b
        if not self.s.in_f64:
            if self.s.exact and isinstance(self.ends, LimitedRange):
                v, floats = self.v, self.ends.floats
                x = self.ends.round_exact(b.fsub(v.bits(n, floats), v.bits(self.ends.start_of(n), floats)))
                self.put(at, chunk, x if self.s.planes else self.ends.fourteen(x))
                return
            n = b.sub(n, self.ends.magic(e))
        if self.s.long_block:
            n = b.xor(n, self.ends.c(SIGN))
        if self.s.checked and not self.s.long_block:
            self._flag_least(b.sub(n, self.ends.c((1 << 31) - WRAP_MARGIN)))
        self.put(at, chunk, self.ends.round(n, e))

    def put(self, at: SumTile, chunk: Chunk, x: Any) -> None:
        """A chunk's results into the tile."""
        r, c = chunk
        self.ends.watch(self.v.at(self.flags, 64), x)
        self.store(x, at.acc, 4 * PANEL * r + self.width * c)


def _ones_of_differences(v: VectorBuilder) -> Any:
    """Memory of how many bits differ in two nibbles: a row of sixteen bytes for each."""
    module, name = v.b.module, "nbtc_ones_of_differences"
    found = module.globals.get(name)
    if found is None:
        ones = [(a ^ b).bit_count() for a in range(NIBBLES) for b in range(NIBBLES)]
        found = ir.GlobalVariable(module, ir.ArrayType(I8, len(ones)), name)
        found.linkage, found.global_constant, found.align = "internal", True, NIBBLES
        found.initializer = ir.Constant(found.value_type, ones)
    return v.b.bitcast(found, I8.as_pointer())
