"""Vector operations in plain IR, right on every processor: what `compiler.lowering` has of each in its instructions.

Code that uses them runs in the mode that rounds down, where -x rounds away from zero: so what has to be cut is worked
on as a magnitude.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from hashlib import sha256
from typing import Any, ClassVar

from llvmlite import ir

from nbtc.compiler.builder import F16, F32, I8, I16, I32, I64, VectorBuilder, like, vector
from nbtc.compiler.cpu.processors import GENERIC, Processor

SIGN, MAGNITUDE = -(1 << 31), (1 << 31) - 1
BIAS, INFINITE = 127, 255  # of f32: the exponent of one, and the field of Inf and NaN


def width_of(t: ir.Type) -> int:
    """Bits of a type."""
    return t.width if isinstance(t, ir.IntType) else {F16: 16, F32: 32}.get(t, 64)


EVERY_BIT = (1 << 32) - 1
NO_PLACE = 255  # for which the instructions that move bytes give 0


class Lowering:
    """Plain vector IR, and what its subclasses say instead.

    row: the processors that a class serves.  constraint: a vector register in inline assembly.
    """

    row: ClassVar[Processor] = GENERIC
    constraint = ""

    def __init__(self, v: VectorBuilder, has: frozenset[str]) -> None:
        self.v, self.b, self.has = v, v.b, has

    def by_parts(self, count: int, emit: Callable[..., Any], *args: Any) -> Any:
        """emit(*parts) for all parts of `count` elements of the arguments, one after the other."""
        size = args[0].type.count
        if size == count:
            return emit(*args)
        places = [list(range(n, n + count)) for n in range(0, size, count)]
        return self.v.joined([emit(*(self.v.shuffle(x, x, lanes) for x in args)) for lanes in places])

    def _like(self, x: Any) -> ir.Type:
        """32-bit integers, as many as x has elements, or one."""
        return like(x, I32)

    def _signs(self, x: Any) -> Any:
        return self.b.and_(self.v.bits(x, self._like(x)), self.v.const(self._like(x), SIGN))

    def _signed(self, magnitude: Any, signs: Any) -> Any:
        bits = self.b.or_(self.v.bits(magnitude, self._like(magnitude)), signs)
        return self.v.bits(bits, like(bits, F32))

    # --- arithmetic ---------------------------------------------------------------------------------------------------
    def plus_bits(self, total: Any, x: Any, possible: int) -> Any:
        """Words, and to each added how many bits of its word of x are set; possible: the bits that may be."""
        return self.b.add(total, self.v.popcount(x))

    def opt_barrier(self, x: Any, *, here: bool = False) -> Any:
        """x, which the compiler must have ready here: else it collects a maximum's terms and keeps them until then."""

        def keep(part: Any) -> Any:
            kind = ir.FunctionType(part.type, [part.type])
            return self.b.call(ir.InlineAsm(kind, "", f"={self.constraint},0", side_effect=here), [part])

        return self.by_parts(min(x.type.count, self.row.bits // width_of(x.type.element)), keep, x)

    def in_order(self, xs: list[Any]) -> list[Any]:
        """Some registers, ready here; loads that come later in the stream stay behind.

        For long streams, of which the compiler must not collect a part at one end in registers that it lacks.
        """
        n, parts = len(xs), [x.type for x in xs]
        constraints = ",".join([f"={self.constraint}"] * n + [str(i) for i in range(n)])
        kind = ir.FunctionType(ir.LiteralStructType(parts) if n > 1 else parts[0], parts)
        done = self.b.call(ir.InlineAsm(kind, "", constraints, side_effect=True), xs)
        return [self.b.extract_value(done, i) for i in range(n)] if n > 1 else [done]

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """a * b + c rounded down once.

        Rounding down twice is the same where c and the result are multiples of one power of two that the product's last
        place divides: floors of floors.
        """
        return self.v.fma(a, b, c) if self.row.fma else self.b.fadd(self.b.fmul(a, b), c)

    def to_float(self, n: Any) -> Any:
        """Integers as f32, toward zero."""
        magnitude = self.v.over("abs", n, ir.Constant(ir.IntType(1), 0))
        return self._signed(self.b.sitofp(magnitude, vector(F32, n.type.count)), self._signs(n))

    def to_integer(self, x: Any) -> Any:
        """f32 as 32-bit integers, toward zero; any integer for what has none."""
        return self.v.truncated(x)

    def powers(self, e: Any) -> tuple[Any, Any]:
        """2**e and 2**-e for 32-bit integers e, as `scaled` takes them."""
        return e, self.b.neg(e)

    def scaled(self, x: Any, e: Any) -> Any:
        """x * 2**e toward zero, subnormals kept: for any x where |x * 2**e| >= 1 or the result only counts as integer,
        else for |x| >= 1.

        Of the two factors the first leaves all bits or what is far below one.
        """
        b, v, t = self.b, self.v, self._like(x)
        first = v.smax(v.smin(e, v.const(t, BIAS)), v.const(t, 1 - BIAS))
        factors = [v.bits(b.shl(b.add(n, v.const(t, BIAS)), v.const(t, 23)), x.type) for n in (first, b.sub(e, first))]
        magnitude = v.bits(b.and_(v.bits(x, t), v.const(t, MAGNITUDE)), x.type)
        return self._signed(b.fmul(b.fmul(magnitude, factors[0]), factors[1]), self._signs(x))

    def positive_zero(self, x: Any) -> Any:
        """x, and +0 for -0."""
        t = self._like(x)
        zero = self.b.fcmp_ordered("==", x, self.v.const(x.type, 0.0))
        return self.v.bits(self.b.select(zero, self.v.const(t, 0), self.v.bits(x, t)), x.type)

    def larger(self, x: Any, y: Any) -> Any:
        """The larger magnitude; x is one already."""
        b, v, t = self.b, self.v, self._like(x)
        return v.bits(v.umax(v.bits(x, t), b.and_(v.bits(y, t), v.const(t, MAGNITUDE))), x.type)

    def from_f16(self, bits: Any) -> Any:
        """f16 bits as f32."""
        b, v, t = self.b, self.v, self._like(bits)
        x = b.zext(bits, t)
        moved = b.shl(b.and_(x, v.const(t, 0x7FFF)), v.const(t, 13))
        value = b.fmul(v.bits(moved, like(bits, F32)), v.const(like(bits, F32), 2.0**112))
        special = b.icmp_unsigned(">=", moved, v.const(t, 31 << 23))
        bits = b.select(special, b.or_(moved, v.const(t, INFINITE << 23)), v.bits(value, t))
        return self._signed(bits, b.shl(b.and_(x, v.const(t, 0x8000)), v.const(t, 16)))

    def to_f16(self, x: Any) -> Any:
        """f32 as f16 bits, to nearest, ties to even; no NaN."""
        b, v, t = self.b, self.v, self._like(x)
        signs = b.lshr(self._signs(x), v.const(t, 16))
        y = b.and_(v.bits(x, t), v.const(t, MAGNITUDE))
        normal = b.sub(self._nearest(y, v.const(t, 13)), v.const(t, 112 << 10))
        normal = v.umin(normal, v.const(t, 31 << 10))
        # below 2**-14 the last place is 2**-24, the exponent field decides how far off that is
        field = b.lshr(y, v.const(t, 23))
        shift = v.umin(b.sub(v.const(t, BIAS - 1), field), v.const(t, 31))
        fraction = b.or_(b.and_(y, v.const(t, (1 << 23) - 1)), v.const(t, 1 << 23))
        small = self._nearest(fraction, shift)
        found = b.select(b.icmp_unsigned("<", y, v.const(t, 113 << 23)), small, normal)
        return b.trunc(b.or_(found, signs), like(x, I16))

    def nearest_f16(self, x: Any) -> Any:
        """As `to_f16`, of one value too, in the mode that rounds to nearest; any bits for a NaN.

        LLVM's own conversion calls a library that isn't there where it is not an instruction.
        """
        return self.to_f16(x)

    def _nearest(self, x: Any, shift: Any) -> Any:
        """x / 2**shift to nearest, ties to even; shift from 1 to 31, x below 2**31."""
        b, one = self.b, self.v.const(x.type, 1)
        half = b.shl(one, b.sub(shift, one))
        odd = b.and_(b.lshr(x, shift), one)
        return b.lshr(b.add(b.add(x, b.sub(half, one)), odd), shift)

    def every_fourth_bit(self, x: Any) -> Any:
        """Bits 0, 4, 8 ... of a 64-bit integer side by side."""
        b, v = self.b, self.v
        x = b.and_(x, v.int(0x1111111111111111))
        for shift, mask in ((3, 0x0303030303030303), (6, 0x000F000F000F000F), (12, 0xFF000000FF), (24, 0xFFFF)):
            x = b.and_(b.or_(x, b.lshr(x, v.int(shift))), v.int(mask))
        return x

    # --- bytes and words ----------------------------------------------------------------------------------------------
    # whether these are instructions
    multiplies_octets = multiplies_octet_pairs = takes_octets = counts_words = False

    def octets_from(self, words: Any, starts: Sequence[int]) -> Any:
        """Words of four bytes each, which begin at these bits of other words (at most at bit 24)."""
        b, byte = self.b, self.v.const(words.type, 255)
        parts = [b.and_(b.lshr(words, self.v.const(words.type, n)), byte) for n in starts]
        return reduce(b.or_, (b.shl(x, self.v.const(x.type, 8 * n)) for n, x in enumerate(parts)))

    def octets(self, total: Any, unsigned: Any, signed: Any) -> Any:
        """32-bit sums and the products of four unsigned and four signed bytes each."""
        even, odd = self._byte_pairs(unsigned, signed)
        return self.b.add(self.b.add(total, self.pairs(*even)), self.pairs(*odd))

    def octet_pairs(self, unsigned: Any, signed: Any) -> Any:
        """16-bit sums of the products of two unsigned and two signed bytes; no sum may leave 16 bits."""
        return self.b.add(*(self.b.mul(*pair) for pair in self._byte_pairs(unsigned, signed)))

    def _byte_pairs(self, unsigned: Any, signed: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        b, v, t = self.b, self.v, vector(I16, 2 * unsigned.type.count)
        u, s, eight = v.bits(unsigned, t), v.bits(signed, t), v.const(t, 8)
        return (b.and_(u, v.const(t, 255)), b.ashr(b.shl(s, eight), eight)), (b.lshr(u, eight), b.ashr(s, eight))

    def pairs(self, x: Any, y: Any) -> Any:
        """32-bit sums of the products of two signed 16-bit integers."""
        count = x.type.count
        wide = [self.b.sext(z, vector(I32, count)) for z in (x, y)]
        products = self.b.mul(*wide)
        even, odd = (self.v.shuffle(products, products, list(range(n, count, 2))) for n in (0, 1))
        return self.b.add(even, odd)

    def picked(self, x: Any, places: Any) -> Any | None:
        """32 words x by their places, 0 to 31 in the low five bits of other words; None where memory does it best."""
        return None

    def looked_up(self, columns: Sequence[list[int]], index: Any) -> list[Any]:
        """Entries of a table's columns (at most four) at an index, or at one of each lane: 32-bit words from memory.

        A row is one load of 16 bytes.  Gathers were rejected: Zen 3 takes 39 operations for eight words of one column,
        here 24 for eight of all columns.
        """
        b, v = self.b, self.v
        row = vector(I32, 4)
        table = self._table(columns)

        start = b.bitcast(table, I8.as_pointer())
        index = b.shl(index, v.const(index.type, 4))  # of all lanes at once: no address multiplies by 16

        def load(at: Any) -> Any:
            return v.load(v.at(start, b.zext(at, I64)), row, 16)

        if not isinstance(index.type, ir.VectorType):
            found = load(index)
            return [b.extract_element(found, ir.Constant(I32, n)) for n in range(len(columns))]
        rows = [load(b.extract_element(index, ir.Constant(I32, n))) for n in range(index.type.count)]
        return [x for x, _ in zip(self._transposed(rows), columns, strict=False)]

    def _table(self, columns: Sequence[list[int]]) -> Any:
        """A constant of the module: rows of four words, named by what it holds."""
        rows = [(*r, *[0] * (4 - len(r))) for r in zip(*columns, strict=True)]
        name = "table_" + sha256(repr(rows).encode()).hexdigest()[:16]
        found = self.b.module.globals.get(name)
        if found is None:
            kind = ir.ArrayType(vector(I32, 4), len(rows))
            found = ir.GlobalVariable(self.b.module, kind, name)
            found.global_constant, found.linkage, found.align = True, "internal", 16
            found.initializer = ir.Constant(kind, [ir.Constant(vector(I32, 4), list(r)) for r in rows])
        return found

    def _transposed(self, rows: list[Any]) -> list[Any]:
        """Four vectors of the words of as many rows."""
        low, high = [0, 4, 1, 5], [2, 6, 3, 7]
        parts: list[list[Any]] = [[], [], [], []]
        for n in range(0, len(rows), 4):
            a, b, c, d = rows[n : n + 4]
            ends = (
                (self.v.shuffle(a, c, low), self.v.shuffle(b, d, low)),
                (self.v.shuffle(a, c, high), self.v.shuffle(b, d, high)),
            )
            for i, (x, y) in enumerate(ends):
                parts[2 * i].append(self.v.shuffle(x, y, low))
                parts[2 * i + 1].append(self.v.shuffle(x, y, high))
        return [self.v.joined(x) for x in parts]

    @classmethod
    def shuffles_bytes(cls, has: frozenset[str]) -> bool:
        """Whether `byte_shuffle` is an instruction."""
        return False

    def byte_shuffle(self, x: Any, places: Any) -> Any:
        """Bytes of x by their places, 0 to 15, within lanes of 16 bytes: one after the other."""
        b, found, numbers = self.b, x, [ir.Constant(I32, n) for n in range(x.type.count)]
        for n, number in enumerate(numbers):
            place = b.add(b.zext(b.extract_element(places, number), I32), numbers[n & -16])
            found = b.insert_element(found, b.extract_element(x, place), number)
        return found

    def spread(self, places: Sequence[int | None]) -> Callable[[Any], Any]:
        """What gives of vectors of bytes those at sixteen places of each lane of 16 bytes, or 0 for None.

        Where an instruction does it, LLVM is not told the places: to work out what is known of each bit of a vector
        that is spread several times took it a fourth of the time for a function that does little else.
        """
        if not self.shuffles_bytes(self.has):
            return lambda x: self._spread(x, places)
        lane = [NO_PLACE if n is None else n for n in places]
        hidden = self.opt_barrier(ir.Constant(vector(I8, self.row.bytes), lane * (self.row.bytes // 16)))
        return lambda x: self.by_parts(self.row.bytes, lambda part: self.byte_shuffle(part, hidden), x)

    def _spread(self, x: Any, places: Sequence[int | None]) -> Any:
        count = x.type.count
        lanes = [n if p is None else count + n + p for n in range(0, count, 16) for p in places]
        return self.v.shuffle(self.v.const(x.type, 0), x, lanes)

    def byte_table(self, table: list[int], x: Any) -> Any | None:
        """Entries of a table of 64 or 128 bytes by the low six or seven bits of x's bytes, or None where no instruction
        does it.
        """
        return None
