"""Records: decoded operands of a program's dense products, in the order of the registers of C.

The sixteen results of a vector are those of one register in half of the lanes: four rows, one in each 128-bit lane, and
every other column.  So accumulators are summed where they lie.  (In the order of rows j and j + 8 with all columns, as
`warp_operands` has it, 32 permutations of two registers brought a product's accumulators there and back.)  An element
of A stands twice in each 128-bit lane of a vector; pairs of elements of B are broadcast from memory.

Exponents of products are added for several vectors of results at once: their words have a byte for each of four, or
half a word for each of two.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import F64, I1, I8, I16, I32, I64, Undefined, VectorBuilder, vector
from nbtc.kernels.warps.float_code import W16, FloatCode, Label
from nbtc.kernels.warps.warp_elements import B64, D8, ElementPlace, WarpElements

VECTOR = 64  # bytes of a vector, and the alignment of records and images
LANES = 32
REGISTER = 4 * LANES  # bytes of one register of a warp
GROUPS = 4  # of four rows, which are half a register's: 0 to 7, then 8 to 15
ROW = 16  # bytes of a 128-bit lane
PARITIES = 2  # of columns
D2, W4, H32 = vector(F64, 2), vector(I32, 4), vector(I16, 32)


class RecordOperands(WarpElements):
    """Operands in records at two addresses, into which they are decoded and from which products read them.

    Vector j of results has the columns of parity j // GROUPS and the rows of group j % GROUPS.  Products are numbered
    as in `FloatCode.labels`: by register, then as they lie in the row of a register.

    parity: of the columns that products read as those of parity 0 (i64); None for 0.
    """

    columns = (0, 2, 4, 6, 1, 3, 5, 7)

    def __init__(self, shape: FloatCode, v: VectorBuilder, a: Any, b: Any, parity: Any = None) -> None:
        super().__init__(shape, v)
        self.record_a, self.record_b, self.parity = a, b, parity
        self.count, self.in_row = len(shape.labels), 4 * shape.per_word
        self.registers = range(shape.registers // 2)  # of B
        self.size = 1 if shape.limited_range else 2  # bytes of an exponent
        self.in_word = 4 // self.size
        self.exponents = B64 if shape.limited_range else H32
        self.tops: dict[int, list[list[Any]]] = {}
        exponents_a, exponents_b = VECTOR * GROUPS * self.count, VECTOR * self.count  # values lie before them
        self.exponents_at = exponents_a, exponents_b
        self.signs_at = (
            exponents_a + VECTOR * GROUPS // self.in_word * self.count,
            exponents_b + ROW * PARITIES * self.count,
        )
        self.notes_at = self.signs_at[0] + VECTOR * GROUPS, self.signs_at[1] + VECTOR

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of records of A and B: values, exponents, signs, and the note of Inf and NaN."""
        return self.notes_at[0] + VECTOR, self.notes_at[1] + VECTOR

    # --- decoding -----------------------------------------------------------------------------------------------------
    def store_a(self, image: Any) -> None:
        """Decode A from its image into its record."""
        v, groups = self.v, range(GROUPS)
        signs: list[list[Any]] = [[] for _ in groups]
        # by bytes: of words LLVM makes a permutation of two sources and a register of zeros
        twice = [self.m.spread(2 * [*[None] * 4, *range(4 * k, 4 * k + 4)]) for k in range(4)]
        for r in self.registers:
            fields = []
            for g in groups:
                words = v.load(image, W16, VECTOR, REGISTER * (2 * r + g // 2) + VECTOR * (g % 2))
                masks = self.masks(words)
                signs[g].append(self._words_of_signs(*masks))
                fields.append(self.biased(words, masks[1], self.more[0]))
                for n, x, k in self._words(r, self.high_words(words)):
                    v.store(twice[k](v.bits(x, B64)), self.record_a, VECTOR, VECTOR * (GROUPS * n + g))
            for m in range(GROUPS // self.in_word):
                mine = fields[self.in_word * m : self.in_word * (m + 1)]
                for n, x, k in self._words(r, self._side_by_side(mine)):
                    words = v.shuffle(x, x, [4 * u + k for u in range(4) for _ in range(4)])
                    v.store(words, self.record_a, VECTOR, self._exponents_a(n, m))
        for g in groups:
            octets = self._octets(self._signs(signs[g], positive_first=True))
            words = v.shuffle(octets, octets, [4 * q + u for u in range(4) for _ in range(4) for q in range(4)])
            v.store(words, self.record_a, VECTOR, self.signs_at[0] + VECTOR * g)
        v.store(self.special, self.record_a, VECTOR, self.notes_at[0])

    def store_b(self, image: Any) -> None:
        """Decode B from its image into its record."""
        v, s = self.v, self.s
        raw = [[v.load(image, W16, VECTOR, REGISTER * r + VECTOR * half) for r in self.registers] for half in (0, 1)]
        masks = [[self.masks(x) for x in half] for half in raw]
        signs = [[self._words_of_signs(*x) for x in half] for half in masks]
        places = [
            [ElementPlace(4 * half + u, r, t, h) for u in range(4) for t in range(4) for h in range(s.per_word)]
            for half in (0, 1) for r in self.registers
        ]  # fmt: skip
        transposed = self.transposed(list(zip(raw[0] + raw[1], places, strict=True)))
        for slots, words in zip(self.slots(), transposed, strict=True):
            for label, x in zip(slots, self.doubles(words), strict=True):
                v.store(self.scaled(x), self.record_b, VECTOR, VECTOR * s.labels.index(label))
        fields = [
            [self.biased(x, mask[1], self.more[1]) for x, mask in zip(*both, strict=True)]
            for both in zip(raw, masks, strict=True)
        ]
        self._store_exponents_b([self._by_column(x) for x in fields])
        octets = self._octets([x for half in signs for x in self._signs(half, positive_first=False)])
        at = [ROW * (column // 4) + column % 4 for column in self.columns]
        words = v.shuffle(octets, octets, [n + 4 * q for n in at for q in range(4)])
        v.store(words, self.record_b, VECTOR, self.signs_at[1])
        v.store(self.special, self.record_b, VECTOR, self.notes_at[1])

    def _words(self, r: int, parts: list[Any]) -> Iterator[tuple[int, Any, int]]:
        """Numbers of the elements of rows in a register: vectors, and which word of each 128-bit lane they are."""
        for n in range(self.in_row):
            yield self.in_row * r + n, parts[n // 4], n % 4

    def _exponents_a(self, n: int, m: int) -> int:
        """Where in A's record the exponents of product n are, of the groups that are word m."""
        return self.exponents_at[0] + VECTOR * (GROUPS // self.in_word * n + m)

    def _side_by_side(self, fields: list[Any]) -> list[Any]:
        """Exponents of some groups side by side in words, one for each element of a row."""
        if self.s.per_word == 1:
            return [self._halves(*fields)]
        x, y = [self._octet_pairs(*fields[n : n + 2]) for n in (0, 2)] if self.size == 1 else fields
        return [self.v.bits(self.woven(x, y, part), W16) for part in (0, 1)]

    def _octet_pairs(self, x: Any, y: Any) -> Any:
        """The lower bytes of x and of y side by side."""
        v, b, t = self.v, self.b, x.type
        return b.or_(b.and_(x, v.const(t, 0xFF)), b.shl(y, v.const(t, 8)))

    def _halves(self, x: Any, y: Any) -> Any:
        """The lower halves of words of x and of y side by side."""
        v, b, t = self.v, self.b, x.type
        return b.or_(b.and_(x, v.const(t, 0xFFFF)), b.shl(y, v.const(t, 16)))

    def _by_column(self, fields: list[Any]) -> list[Any]:
        """Exponents of four columns of B, each in a 128-bit lane, by as few vectors as have room for them."""
        if self.size == 1 and len(fields) == 2:
            fields = [self._octet_pairs(*fields)]
        return [self.v.bits(x, W16) for x in fields]

    def _pieces(self) -> list[tuple[int, int, list[int]]]:
        """Of the vectors of `_by_column`: which one, a byte of words, and the products whose exponents begin there."""
        r, d = self.registers, range(4)
        row = self.in_row
        if self.size == 1:  # two bytes for each element of a row: of one register, and of the other
            return [(0, 2 * e + n, [row * n + 2 * m + e for m in d]) for e in (0, 1) for n in r]
        if self.s.per_word == 2:
            return [(n, 2 * e, [row * n + 2 * m + e for m in d]) for n in r for e in (0, 1)]
        return [(n, 0, [row * n + m for m in d]) for n in r]

    def _store_exponents_b(self, halves: list[list[Any]]) -> None:
        """Of all columns, four times (a narrow range) or twice each."""
        v, size = self.v, self.size
        for w, (source, byte, _) in enumerate(self._pieces()):
            for parity in range(PARITIES):
                columns = self.columns[4 * parity : 4 * parity + 4]
                x = v.shuffle(halves[0][source], halves[1][source], [4 * c + d for d in range(4) for c in columns])
                taken = [4 * word + byte + n for word in range(16) for _ in range(self.in_word) for n in range(size)]
                octets = v.bits(x, B64)
                at = self.exponents_at[1] + VECTOR * (PARITIES * w + parity)
                v.store(v.shuffle(octets, octets, taken), self.record_b, VECTOR, at)

    def _exponents_b(self, n: int, parity: int) -> int:
        """Where in B's record the exponents of product n are, of the columns of a parity."""
        w, d = next((w, found.index(n)) for w, (_, _, found) in enumerate(self._pieces()) if n in found)
        return self.exponents_at[1] + VECTOR * (PARITIES * w + parity) + ROW * d

    def _words_of_signs(self, negative: Any, nonzero: Any) -> tuple[Any, Any]:
        """The bits of positive and of negative elements, none of a zero, as words with a byte for each 128-bit lane."""
        n, x = self._word_of(negative), self._word_of(nonzero)
        return self.b.and_(x, self.b.not_(n)), self.b.and_(x, n)

    def _signs(self, registers: list[tuple[Any, Any]], *, positive_first: bool) -> list[Any]:
        """Bits of positive and of negative elements of four rows or columns: words of a byte each.

        Four words: two of one kind, then two of the other.  The elements of a register are one half of all bytes, so
        that the bits of a block, where that is a register, are counted by one look into a table of sixteen.
        """
        b = self.b
        kinds: list[list[Any]] = [list(x) for x in zip(*registers, strict=True)]

        def moved(x: Any, kept: int, shift: int) -> Any:
            x = b.and_(x, ir.Constant(I32, kept))
            return b.shl(x, ir.Constant(I32, shift)) if shift >= 0 else b.lshr(x, ir.Constant(I32, -shift))

        low, high = 0x0F0F0F0F, 0xF0F0F0F0
        for kind in kinds:
            first, *more = kind
            kind[:] = [moved(first, low, 0), moved(first, high, -4)]
            for second in more:
                kind[:] = [b.or_(kind[0], moved(second, low, 4)), b.or_(kind[1], moved(second, high, 0))]
        return kinds[0] + kinds[1] if positive_first else kinds[1] + kinds[0]

    def _bit(self, n: int) -> int:
        """Product n in words of signs: where both of its bits are, of which one may be set."""
        register, element = divmod(n, self.in_row)
        return 0x10001 << 8 * (element // 4) + 4 * register + element % 4

    def _word_of(self, mask: Any) -> Any:
        """A mask of elements as one word, with a byte for each 128-bit lane.

        LLVM is not told where it comes from: it would follow each bit to its comparison through all that words go
        through, for a quarter of the time that a decoding takes it and more instructions.
        """
        b = self.b
        if self.s.per_word == 2:
            same = ir.InlineAsm(ir.FunctionType(I32, [I32]), "", "=r,0")
            return b.call(same, [b.bitcast(mask, I32)])
        x = b.zext(b.bitcast(mask, I16), I32)
        for shift, kept in ((8, 0x00FF00FF), (4, 0x0F0F0F0F)):
            x = b.and_(b.or_(x, b.shl(x, ir.Constant(I32, shift))), ir.Constant(I32, kept))
        return x

    def _octets(self, words: list[Any]) -> Any:
        """Words as a vector of bytes, moved to it in pairs."""
        b, x = self.b, Undefined(vector(I64, len(words) // 2))
        for n in range(0, len(words), 2):
            low, high = (b.zext(word, I64) for word in words[n : n + 2])
            x = b.insert_element(x, b.or_(low, b.shl(high, self.v.int(32))), ir.Constant(I32, n // 2))
        return self.v.bits(x, vector(I8, 4 * len(words)))

    # --- products -----------------------------------------------------------------------------------------------------
    def load_notes(self) -> None:
        """What was noted when the operands were decoded."""
        records = zip((self.record_a, self.record_b), self.notes_at, strict=True)
        self.special = self.larger(*(self.v.load(p, self.special.type, VECTOR, at) for p, at in records))

    def load_again(self) -> None:
        """From here on, everything comes from memory: kept, most would be stored, which costs more than loads."""
        kind = self.record_a.type
        same = ir.InlineAsm(ir.FunctionType(kind, [kind]), "", "=r,0", side_effect=True)
        self.now_a, self.now_b = (self.b.call(same, [p]) for p in (self.record_a, self.record_b))
        self.values: dict[tuple[str, int, int], Any] = {}

    def _of_b(self, size: int) -> Any:
        """B's record, of whose columns of a parity something has this many bytes."""
        return self.now_b if self.parity is None else self.v.at(self.now_b, self.b.mul(self.parity, self.v.int(size)))

    def value_a(self, j: int, part: int, label: Label) -> Any:
        """Of four rows, twice each."""
        n = self.s.labels.index(label)
        key = "a", n, j % GROUPS
        if key not in self.values:
            self.values[key] = self.v.load(self.now_a, D8, VECTOR, VECTOR * (GROUPS * n + j % GROUPS))
        return self.values[key]

    def value_b(self, j: int, part: int, label: Label) -> Any:
        """Of two columns, four times."""
        n = self.s.labels.index(label)
        key = "b", n, 2 * (j // GROUPS) + part
        if key not in self.values:
            x = self.v.load(self._of_b(PARITIES * ROW), D2, ROW, VECTOR * n + ROW * key[2])
            self.values[key] = self.v.shuffle(x, x, [0, 1] * 4)
        return self.values[key]

    def empties_are_whole(self, fraction: int) -> None:
        """Sums of nothing but zeros get an exponent below all others, with which the accumulator, which they are, is an
        integer unless it is tiny: `has_tiny` asks for such, and hardly ever has to look.  In f64 such a sum may begin
        anywhere, as a quiet NaN too: products that are zero leave its low word alone.

        Told from others one by one, they took a comparison and two operations more for each vector of results, a
        twentieth of a product, and their exponents and accumulators took registers.
        """
        self.empties, self.lowest = False, fraction + 1  # whose last place is a normal number
        self.lowest_tops: list[Any] = []

    def _without_empties(self, tops: list[list[Any]]) -> list[list[Any]]:
        """Exponents for sums, of the largest of products."""
        v, b, least = self.v, self.b, self.v.const(B64, self.least)
        self.lowest_tops.extend(x for block in tops for x in block)
        lowest = v.const(B64, self.lowest)
        return [[b.select(b.icmp_unsigned("<", x, least), lowest, x) for x in block] for block in tops]

    def has_tiny(self, accumulators: list[Any]) -> Any:
        """i1: a sum may be of nothing but zeros and an accumulator whose last place is lost."""
        v, b = self.v, self.b
        before, lowest = b.block, reduce(v.umin, self.lowest_tops)
        found = self._any(b.icmp_unsigned("<", lowest, v.const(B64, self.least)))
        with b.if_then(found, likely=False):
            # of 2**(24 - 127) the last place is where `lowest` has it; a zero becomes the largest word
            words = [b.sub(b.shl(x, v.const(W16, 1)), v.const(W16, 1)) for x in accumulators]
            tiny = self._any(b.icmp_unsigned("<", reduce(v.umin, words), v.const(W16, (24 << 24) - 1)))
            inside = b.block
        either = b.phi(I1)
        either.add_incoming(ir.Constant(I1, 0), before)
        either.add_incoming(tiny, inside)
        return either

    def _any(self, flags: Any) -> Any:
        """Whether a flag is set."""
        t = ir.IntType(flags.type.count)
        return self.b.icmp_unsigned("!=", self.b.bitcast(flags, t), ir.Constant(t, 0))

    def peaks(self, j: int) -> list[Any]:
        v, b, s = self.v, self.b, self.s
        parity, (m, place) = j // GROUPS, divmod(j % GROUPS, self.in_word)
        if parity not in self.tops:
            tops = [self._tops(parity, block) for block in range(s.blocks)]
            self.tops[parity] = tops if self.empties else self._without_empties(tops)
        found = []
        for tops in self.tops[parity]:
            x = b.shl(v.bits(tops[m], W16), v.const(W16, 8 * self.size * (self.in_word - 1 - place)))
            found.append(x if s.limited_range else b.ashr(x, v.const(W16, 16)))
        return found

    def _tops(self, parity: int, block: int) -> list[Any]:
        """The largest product exponents of all groups, a word for some of them."""
        v, t, words = self.v, self.exponents, range(GROUPS // self.in_word)
        mine = [n for n, label in enumerate(self.s.labels) if self.s.block(label) == block]
        right = [v.bits(self._everywhere(self._of_b(VECTOR), self._exponents_b(n, parity)), t) for n in mine]
        left = [[v.load(self.now_a, t, VECTOR, self._exponents_a(n, m)) for n in mine] for m in words]
        # no carry crosses, as bytes of finite numbers are 79 at most
        found = [self.largest([self.b.add(x, y) for x, y in zip(of_a, right, strict=True)]) for of_a in left]
        return [self.m.opt_barrier(x, here=True) for x in found]

    def _everywhere(self, p: Any, at: int) -> Any:
        """A 128-bit lane of B's record in every lane."""
        x = self.v.load(p, W4, ROW, at)
        return self.v.shuffle(x, x, list(range(4)) * 4)

    def plus_negatives(self, total: Any, j: int, block: int) -> Any:
        """The bits that words of a row and of a column share are those of elements with different signs."""
        a = self.v.load(self.now_a, W16, VECTOR, self.signs_at[0] + VECTOR * (j % GROUPS))
        found = self.b.and_(a, self._everywhere(self._of_b(ROW), self.signs_at[1] + ROW * (j // GROUPS)))
        possible = sum(self._bit(n) for n, label in enumerate(self.s.labels) if self.s.block(label) == block)
        if self.s.blocks > 1:
            found = self.b.and_(found, self.v.const(W16, possible))
        return self.m.plus_bits(total, found, possible)
