"""Dot products of small integers and of bits, a 32-bit word of each operand at a time, as vector code.

What a processor multiplies decides how operands are prepared: `planes` turns words of elements into words that `step`
takes.  Sums of one instruction fit 32 bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from nbtc.compiler.builder import I8, I16, I32, VectorBuilder, vector
from nbtc.compiler.cpu.lowering import lowering
from nbtc.compiler.cpu.plain_lowering import Lowering

NIBBLES, EIGHTS, TOPS, ONES, LOW_HALF = 0x0F0F0F0F, 0x88888888, 0x80808080, 0x01010101, 0x00FF00FF


class DotElements(NamedTuple):
    """What is multiplied: bits of an element, signedness of A's and B's, and of single bits: and, or else xor."""

    bits: int
    a_signed: bool = False
    b_signed: bool = False
    both: bool = False


class Dot(ABC):
    """One way to sum products.

    A subclass says `planes` (words that it takes of words of elements), `zero` (an empty sum), `step` (the sum and the
    products of words of A and B) and `total` (the sum as 32-bit integers).  bias: what A's elements are larger than
    they should be, in units in which `surplus` gives what a sum has too much.
    """

    def __init__(self, v: VectorBuilder, elements: DotElements) -> None:
        self.v, self.b, self.e, self.m = v, v.b, elements, lowering(v)

    @staticmethod
    def serves(m: Lowering, e: DotElements) -> bool:
        """Whether the processor does it so."""
        return True

    def planes(self, x: Any, of_b: bool) -> list[Any]:
        """Words of A or of B as `step` takes them."""
        return [x]

    @property
    def planes_of_word(self) -> int:
        """How many words `planes` makes of one."""
        return 2 if self.e.bits == 4 else 1

    def zero(self, t: Any) -> Any:
        """No products yet; t: the type of words."""
        return self.v.const(t, 0)

    @abstractmethod
    def step(self, total: Any, a: Any, b: Any) -> Any:
        """The products of a word of A and one of B, each of the same plane, added."""

    def total(self, x: Any) -> Any:
        """A sum as 32-bit integers."""
        return x

    def surplus(self, planes: list[Any]) -> Any | None:
        """What sums with all these words of B have too much; None where nothing."""
        return None

    def nibbles(self, x: Any) -> list[Any]:
        """Bytes of the even and of the odd four-bit elements."""
        low = self.v.const(x.type, NIBBLES)
        return [self.b.and_(x, low), self.b.and_(self.b.lshr(x, self.v.const(x.type, 4)), low)]

    def signed_nibbles(self, x: Any) -> list[Any]:
        """The same of signed elements, as signed bytes."""
        t = vector(I8, 4 * x.type.count)
        flipped = self.nibbles(self.b.xor(x, self.v.const(x.type, EIGHTS)))
        return [self.v.bits(self.b.sub(self.v.bits(y, t), self.v.const(t, 8)), x.type) for y in flipped]


class Octets(Dot):
    """An instruction that multiplies four unsigned by four signed bytes.

    Of equally signed bytes those of A are moved by 128 (signed four-bit ones by 8): surplus is that times B's sum.
    """

    @staticmethod
    def serves(m: Lowering, e: DotElements) -> bool:
        return e.bits in (4, 8) and m.multiplies_octets

    @property
    def bias(self) -> int:
        """What an element of A is moved by."""
        e = self.e
        if e.bits == 4:
            return 8 * e.a_signed
        return (128 if e.a_signed else -128) * (e.a_signed == e.b_signed)

    def planes(self, x: Any, of_b: bool) -> list[Any]:
        if self.e.bits == 4 and of_b:
            return self.signed_nibbles(x) if self.e.b_signed else self.nibbles(x)
        if self.bias and not of_b:
            x = self.b.xor(x, self.v.const(x.type, TOPS if self.e.bits == 8 else EIGHTS))
        return self.nibbles(x) if self.e.bits == 4 else [x]

    def step(self, total: Any, a: Any, b: Any) -> Any:
        unsigned, signed = (b, a) if self.e.bits == 8 and not self.e.b_signed else (a, b)
        return self.m.octets(total, unsigned, signed)

    def surplus(self, planes: list[Any]) -> Any | None:
        if not self.bias:
            return None
        total = self.zero(planes[0].type)
        for x in planes:
            total = self.step(total, self.v.const(x.type, ONES), x)
        return self.b.mul(total, self.v.const(total.type, self.bias))


class OctetPairs(Dot):
    """Four-bit elements where two unsigned by two signed bytes are multiplied and summed to 16 bits.

    A sum of 16 bits holds 2**15 / (2 * 15 * 15), that is 72 steps: more than any instruction has.
    """

    @staticmethod
    def serves(m: Lowering, e: DotElements) -> bool:
        return e.bits == 4 and m.multiplies_octet_pairs

    def planes(self, x: Any, of_b: bool) -> list[Any]:
        if of_b:
            return self.signed_nibbles(x) if self.e.b_signed else self.nibbles(x)
        return self.nibbles(self.b.xor(x, self.v.const(x.type, EIGHTS)) if self.e.a_signed else x)

    def step(self, total: Any, a: Any, b: Any) -> Any:
        return self.b.add(total, self.m.octet_pairs(a, b))

    def zero(self, t: Any) -> Any:
        return self.v.const(vector(I16, 2 * t.count), 0)

    def total(self, x: Any) -> Any:
        return self.m.pairs(x, self.v.const(x.type, 1))

    def surplus(self, planes: list[Any]) -> Any | None:
        if not self.e.a_signed:
            return None
        total = self.zero(planes[0].type)
        for x in planes:
            total = self.step(total, self.v.const(x.type, ONES), x)
        return self.b.shl(self.total(total), self.v.const(planes[0].type, 3))


class Pairs(Dot):
    """Elements widened to 16 bits, two a word: a product and the sum of two is an instruction on most processors."""

    @staticmethod
    def serves(m: Lowering, e: DotElements) -> bool:
        return e.bits in (4, 8)

    def planes(self, x: Any, of_b: bool) -> list[Any]:
        signed = self.e.b_signed if of_b else self.e.a_signed
        octets = [x]
        if self.e.bits == 4:
            octets = self.signed_nibbles(x) if signed else self.nibbles(x)
        return [half for y in octets for half in self._halves(y, signed)]

    @property
    def planes_of_word(self) -> int:
        return 16 // self.e.bits

    def _halves(self, x: Any, signed: bool) -> list[Any]:
        """Even and odd bytes in 16 bits each."""
        t = vector(I16, 2 * x.type.count)
        y, eight = self.v.bits(x, t), self.v.const(t, 8)
        shift = self.b.ashr if signed else self.b.lshr
        return [self.v.bits(shift(z, eight), x.type) for z in (self.b.shl(y, eight), y)]

    def step(self, total: Any, a: Any, b: Any) -> Any:
        t = vector(I16, 2 * a.type.count)
        return self.b.add(total, self.m.pairs(self.v.bits(a, t), self.v.bits(b, t)))


class Bits(Dot):
    """Single bits: popcount of and, or of xor."""

    @staticmethod
    def serves(m: Lowering, e: DotElements) -> bool:
        return e.bits == 1 and m.counts_words

    def joined(self, a: Any, b: Any) -> Any:
        """The bits to count."""
        return self.b.and_(a, b) if self.e.both else self.b.xor(a, b)

    def step(self, total: Any, a: Any, b: Any) -> Any:
        return self.b.add(total, self.v.popcount(self.joined(a, b)))


class ByteBits(Bits):
    """Single bits counted by bytes; no instruction has more than 31 steps."""

    steps = 31  # words whose bits a byte can count: 31 * 8 < 256

    @staticmethod
    def serves(m: Lowering, e: DotElements) -> bool:
        return e.bits == 1

    def zero(self, t: Any) -> Any:
        return self.v.const(vector(I8, 4 * t.count), 0)

    def step(self, total: Any, a: Any, b: Any) -> Any:
        return self.b.add(total, self.v.popcount(self.v.bits(self.joined(a, b), total.type)))

    def total(self, x: Any) -> Any:
        t = vector(I32, x.type.count // 4)
        words = self.v.bits(x, t)
        if self.m.multiplies_octet_pairs:
            halves = self.m.octet_pairs(words, self.v.const(t, ONES))
            return self.m.pairs(halves, self.v.const(halves.type, 1))
        pairs = self.b.add(
            self.b.and_(words, self.v.const(t, LOW_HALF)),
            self.b.and_(self.b.lshr(words, self.v.const(t, 8)), self.v.const(t, LOW_HALF)),
        )
        return self.b.and_(self.b.add(pairs, self.b.lshr(pairs, self.v.const(t, 16))), self.v.const(t, 0xFFFF))


WAYS: tuple[type[Dot], ...] = (Octets, OctetPairs, Pairs, Bits, ByteBits)  # the first that serves is taken


def dot(v: VectorBuilder, elements: DotElements) -> Dot:
    """How the processor that a builder's code is for sums products of such elements."""
    m = lowering(v)
    return next(way for way in WAYS if way.serves(m, elements))(v, elements)
