"""The slow oracle: one dot product at a time, in Python integers.

It shares no code with the compiled core: formats are decoded here from their field widths, sums are exact integers, and
every rounding is spelled out.  Nothing uses floating point.  What is summed in which order follows the rows of
`models.py`; an `Oracle` is one row applied to one instruction step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nbtc.errors import FormatError
from nbtc.formats.table import FORMATS, Format
from nbtc.numerics.models import Kind, Model

Term = tuple[int, int]  # signed significand and the exponent of its hidden bit; a zero is (0, 0)
INF, NAN = 1 << 20, 1 << 21  # exponents that mark an infinity (significand +-1) and a NaN (significand 1)


def sign(bits: int, fmt: Format) -> int:
    """1 when the sign bit is set."""
    return bits >> (fmt.bits - 1) & 1


def decode(bits: int, fmt: Format) -> Term:
    """Significand and exponent of a float; subnormals keep the least exponent and are not normalised."""
    if fmt.name == "tf32":
        bits >>= 13
    man, exp = fmt.mantissa, fmt.exponent
    fraction, field = bits & ((1 << man) - 1), bits >> man & ((1 << exp) - 1)
    negative = bits >> (man + exp) & 1
    if field == (1 << exp) - 1 and (not fmt.finite_only or fraction == (1 << man) - 1):
        return (1, NAN) if fraction else (-1 if negative else 1, INF)
    significand = fraction | (1 << man if field else 0)
    if not significand:
        return 0, 0
    return -significand if negative else significand, max(field, 1) - fmt.bias


@cache
def table(name: str) -> list[Term]:
    """`decode` of every code of a format of 16 bits or fewer."""
    fmt = FORMATS[name]
    return [decode(bits, fmt) for bits in range(1 << fmt.bits)]


@cache
def through_f16(name: str) -> list[Term]:
    """Every fp8 code as the f16 of the same value decodes: an e4m3 subnormal is a normal there."""
    terms = []
    for code, (s, e) in enumerate(table(name)):
        if s and e < INF:
            fmt = FORMATS[name]
            bits = compose(s < 0, abs(s), e - fmt.mantissa, FORMATS["f16"])
            terms.append(decode(bits, FORMATS["f16"]))
        else:
            terms.append(table(name)[code])
    return terms


def infinity(negative: bool | int, fmt: Format) -> int:
    """Bits of an infinity."""
    field = (1 << fmt.exponent) - 1
    return (bool(negative) << fmt.exponent | field) << fmt.mantissa


def canonical_nan(fmt: Format) -> int:
    """The NaN that f16 and f32 results carry."""
    return (1 << (fmt.exponent + fmt.mantissa)) - 1


def round_up(kept: int, rest: int, half: int, negative: bool, mode: str) -> bool:
    """Whether a magnitude whose cut-off part is `rest` (half a unit is `half`) rounds away from zero."""
    if mode == "rn":
        return rest > half or (rest == half and kept & 1 == 1)
    return rest > 0 and mode == ("rm" if negative else "rp")


def compose(
    negative: bool, magnitude: int, unit: int, fmt: Format, mode: str = "rn", digits: int = 0, clamp: bool = False
) -> int:
    """Bits of magnitude * 2**unit rounded to `fmt` (f16, f32, f64), magnitude > 0.

    digits: significant bits kept when fewer than the format's.  clamp: overflow stops at the largest finite value.
    """
    man = fmt.mantissa
    digits = digits or man + 1
    last = max(magnitude.bit_length() + unit - digits, fmt.emin - digits + 1)
    cut = last - unit
    if cut > 0:
        kept = magnitude >> cut
        kept += round_up(kept, magnitude - (kept << cut), 1 << (cut - 1), negative, mode)
    else:
        kept, last = magnitude, unit
    top = kept.bit_length() - 1 + last  # exponent of the leading one
    if top > fmt.bias and kept:
        return infinity(negative, fmt) - clamp
    if kept and top >= fmt.emin:
        places = kept.bit_length() - 1 - man
        fraction = kept >> places if places > 0 else kept << -places
        code = (top - fmt.emin << man) + fraction  # the hidden bit adds one to the field
    else:
        code = kept << (last - fmt.emin + man)
    return code | negative << (fmt.exponent + man)


def ieee_sum(terms: Sequence[tuple[int, int, int]], fmt: Format, mode: str = "rn") -> int:
    """One rounding of the exact sum of (sign bit, signed significand, unit exponent) terms, signed zeros as in IEEE."""
    unit = min(x for _, _, x in terms)
    total = sum(s << (x - unit) for _, s, x in terms)
    if total:
        negative = total < 0
        stops = mode == "rz" or mode == ("rp" if negative else "rm")
        return compose(negative, abs(total), unit, fmt, mode, clamp=stops)
    signs = {n for n, _, _ in terms}
    negative = signs == {1} or (len(signs) == 2 and mode == "rm")
    return negative << (fmt.bits - 1)


def add(x: int, y: int, fmt: Format) -> int:
    """IEEE sum of two f16, f32 or f64, to nearest even; a NaN is the canonical one (for f64: the default quiet NaN)."""
    return multiply_add(x, infinity_free_one(fmt), y, fmt, fmt)


def infinity_free_one(fmt: Format) -> int:
    """Bits of 1.0."""
    return fmt.bias << fmt.mantissa


def multiply_add(a: int, b: int, c: int, fmt: Format, acc: Format, mode: str = "rn") -> int:
    """fma(a, b, c) with a, b in `fmt` and c and the result in `acc`; NaNs canonical (f64: 0xFFF8 shifted up)."""
    (sa, ea), (sb, eb), (sc, ec) = decode(a, fmt), decode(b, fmt), decode(c, acc)
    negative = sign(a, fmt) ^ sign(b, fmt)
    special = special_sum([(sa, ea, sb, eb)], sc, ec)
    if special is not None:
        if special == 0:
            return 0xFFF8 << 48 if acc.name == "f64" else canonical_nan(acc)
        return infinity(special < 0, acc)
    product = (negative, sa * sb, ea + eb - 2 * fmt.mantissa)
    return ieee_sum([product, (sign(c, acc), sc, ec - acc.mantissa)], acc, mode)


def special_sum(products: Sequence[tuple[int, int, int, int]], sc: int, ec: int) -> int | None:
    """0 for a NaN, +-1 for an infinity, None for a finite sum; products as (significand, exponent) of a, then of b."""
    signs = {sc} if ec == INF else set()
    nan = ec == NAN
    for sa, ea, sb, eb in products:
        if ea >= INF or eb >= INF:
            nan = nan or NAN in (ea, eb) or not sa or not sb
            signs.add(1 if (sa < 0) == (sb < 0) else -1)
    if nan or len(signs) == 2:
        return 0
    return signs.pop() if signs else None


class _Kind(Protocol):
    """How one kind of arithmetic reads operands and runs one instruction step."""

    def left(self, bits: Sequence[int]) -> Any: ...
    def right(self, bits: Sequence[int]) -> Any: ...
    def step(self, a: Any, b: Any, c: int) -> int: ...


class Fused:
    """T(L, F, EF, OUT): blocks aligned to their largest exponent, truncated, summed, rounded once."""

    def __init__(self, row: Model, a: Format, b: Format, acc: Format, block: int) -> None:
        self.formats, self.acc, self.block, self.fraction = (a, b), acc, block, row.fraction
        half = acc.name == "f16"
        self.floor = row.floor16 if half else row.floor32
        self.mode, self.digits = ("rn", 11) if half else ("rz", 14 if row.out == "rz14" else 24)
        self.widen = row.fraction - a.mantissa - b.mantissa

    def left(self, bits: Sequence[int]) -> list[Term]:
        """Decoded multiplicands."""
        return _decoded(bits, self.formats[0])

    def right(self, bits: Sequence[int]) -> list[Term]:
        """Decoded multiplicands."""
        return _decoded(bits, self.formats[1])

    def step(self, a: list[Term], b: list[Term], c: int) -> int:
        """The blocks of one instruction in ascending k."""
        for at in range(0, len(a), self.block):
            c = self.sum(a[at : at + self.block], b[at : at + self.block], c)
        return c

    def sum(self, a: list[Term], b: list[Term], c: int) -> int:
        """One block."""
        sc, ec = decode(c, self.acc)
        terms = [(sa * sb, ea + eb) for (sa, ea), (sb, eb) in zip(a, b, strict=True)]
        # a zero term counts as the floor; 0 * Inf and 0 * NaN keep their marks
        top = max([e if s or e > 1 << 16 else self.floor for s, e in terms])
        top = max(top, ec if sc else self.floor)
        if top > 1 << 16:
            return self._special(a, b, sc, ec)
        total = _cut(sc, ec - top + self.fraction - self.acc.mantissa)
        shift = self.widen - top
        for s, e in terms:
            n = e + shift
            total += s << n if n >= 0 else (s >> -n if s >= 0 else -(-s >> -n))
        if not total:
            return 0
        code = compose(total < 0, abs(total), top - self.fraction, self.acc, self.mode, self.digits)
        return code if code << 1 & (1 << self.acc.bits) - 1 else 0  # an underflow is +0

    def _special(self, a: list[Term], b: list[Term], sc: int, ec: int) -> int:
        found = special_sum([(*x, *y) for x, y in zip(a, b, strict=True)], sc, ec)
        return infinity(found < 0, self.acc) if found else canonical_nan(self.acc)


def _decoded(bits: Sequence[int], fmt: Format) -> list[Term]:
    if fmt.bits <= 16:
        known = table(fmt.name)
        return [known[x] for x in bits]
    return [decode(x, fmt) for x in bits]


def _cut(s: int, n: int) -> int:
    """s * 2**n cut toward zero."""
    if n >= 0:
        return s << n
    return s >> -n if s >= 0 else -(-s >> -n)


class EmulatedFp8:
    """fp8 on f16 units: two fused sums over interleaved columns from +0, then one IEEE addition of c."""

    def __init__(self, row: Model, a: Format, b: Format, acc: Format, step: int) -> None:
        f16 = FORMATS["f16"]
        self.tables, self.acc = (through_f16(a.name), through_f16(b.name)), acc
        self.fused = Fused(row, f16, f16, acc, step // 2)

    def left(self, bits: Sequence[int]) -> list[Term]:
        """Decoded multiplicands."""
        return [self.tables[0][x] for x in bits]

    def right(self, bits: Sequence[int]) -> list[Term]:
        """Decoded multiplicands."""
        return [self.tables[1][x] for x in bits]

    def step(self, a: list[Term], b: list[Term], c: int) -> int:
        """Columns 0, 1 of every four, then columns 2, 3."""
        x = 0
        for first in (0, 2):
            picked = [t for t in range(len(a)) if t & 2 == first]
            x = self.fused.sum([a[t] for t in picked], [b[t] for t in picked], x)
        return add(c, x, self.acc)


class ScalarFma:
    """f16 m8n8k4 of chips without its tensor core: f32 fma chains of four."""

    def __init__(self, row: Model, a: Format, b: Format, acc: Format, step: int) -> None:
        self.acc = acc

    def left(self, bits: Sequence[int]) -> list[int]:
        """f16 bits as they are."""
        return list(bits)

    right = left

    def step(self, a: list[int], b: list[int], c: int) -> int:
        """s = a chain from +0, then c + s (f32); two chains of two, then (c + u0) + u1 rounded to f16 (f16)."""
        f16, f32 = FORMATS["f16"], FORMATS["f32"]
        if self.acc == f32:
            s = 0
            for x, y in zip(a, b, strict=True):
                s = multiply_add(x, y, s, f16, f32)
            return add(c, s, f32)
        total = widen(c)
        for k in (0, 2):
            # starting from -0 leaves the first product, signed zeros included, as it is
            first = multiply_add(a[k], b[k], 1 << 31, f16, f32)
            total = add(total, multiply_add(a[k + 1], b[k + 1], first, f16, f32), f32)
        return narrow(total)


def widen(bits: int) -> int:
    """f16 to f32, exact; NaN canonical."""
    f16, f32 = FORMATS["f16"], FORMATS["f32"]
    return multiply_add(bits, infinity_free_one(f16), sign(bits, f16) << 31, f16, f32)


def narrow(bits: int) -> int:
    """f32 to f16, to nearest even; NaN canonical."""
    f16, f32 = FORMATS["f16"], FORMATS["f32"]
    s, e = decode(bits, f32)
    if e >= INF:
        return canonical_nan(f16) if e == NAN else infinity(s < 0, f16)
    return compose(s < 0, abs(s), e - 23, f16) if s else bits >> 31 << 15


class Fma64:
    """IEEE double: one fma after the other in ascending k."""

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def left(self, bits: Sequence[int]) -> list[int]:
        """f64 bits as they are."""
        return list(bits)

    right = left

    def step(self, a: list[int], b: list[int], c: int) -> int:
        """The chain; of several NaNs that of b wins, then c, then a, made quiet."""
        f64 = FORMATS["f64"]
        for x, y in zip(a, b, strict=True):
            nans = [v for v in (y, c, x) if v & (1 << 63) - 1 > 0x7FF << 52]
            c = nans[0] | 1 << 51 if nans else multiply_add(x, y, c, f64, f64, self.mode)
        return c


class Integer:
    """The exact sum of a step and c, then two's complement wrap or one clamp."""

    def __init__(self, a: Format, b: Format, multiply: Callable[[int, int], int], saturate: bool) -> None:
        self.formats, self.multiply, self.saturate = (a, b), multiply, saturate

    def left(self, bits: Sequence[int]) -> list[int]:
        """Integer values."""
        return [_integer(x, self.formats[0]) for x in bits]

    def right(self, bits: Sequence[int]) -> list[int]:
        """Integer values."""
        return [_integer(x, self.formats[1]) for x in bits]

    def step(self, a: list[int], b: list[int], c: int) -> int:
        """One instruction."""
        total = sum(map(self.multiply, a, b)) + _integer(c, FORMATS["s32"])
        if self.saturate:
            total = max(-(1 << 31), min(total, (1 << 31) - 1))
        return total & 0xFFFFFFFF


def _integer(bits: int, fmt: Format) -> int:
    value = bits & (1 << fmt.bits) - 1
    return value - (1 << fmt.bits) if fmt.low < 0 and value > fmt.high else value


def _kind(row: Model, a: Format, b: Format, acc: Format, step: int, saturate: bool, rounding: str, op: str) -> _Kind:
    if row.kind == Kind.FUSED:
        return Fused(row, a, b, acc, min(row.block, step))
    if row.kind == Kind.EMULATED_FP8:
        return EmulatedFp8(row, a, b, acc, step)
    if row.kind == Kind.SCALAR_FMA:
        return ScalarFma(row, a, b, acc, step)
    if row.kind == Kind.FMA64:
        return Fma64(rounding)
    if row.kind == Kind.INTEGER:
        return Integer(a, b, int.__mul__, saturate)
    if row.kind == Kind.BITS:
        return Integer(a, b, int.__xor__ if op == "xor" else int.__and__, saturate)
    raise FormatError(f"the oracle has no arithmetic of kind {row.kind!r} (model {row.id}); add a class beside Fused")


class Oracle:
    """A model applied to one instruction: `step` products at a time, the last step padded with zeros.

    row, a, b, acc, step, saturate, rounding, op: as of `nbtc.numerics.models.params`.

    >>> from nbtc.numerics.models import model
    >>> f16, f32 = FORMATS["f16"], FORMATS["f32"]
    >>> oracle = Oracle(model("sm_90", "mma", f16), f16, f16, f32, 16)
    >>> hex(oracle.dot([0x3C00, 0x4000], [0x3C00, 0x4000], 0))  # 1 * 1 + 2 * 2
    '0x40a00000'
    """

    def __init__(
        self, row: Model, a: Format, b: Format, acc: Format, step: int,
        *, saturate: bool = False, rounding: str = "rn", op: str = "xor",
    ) -> None:  # fmt: skip
        self.acc, self.width = acc, step
        self.kind = _kind(row, a, b, acc, step, saturate, rounding, op)

    def dot(self, a: Sequence[int], b: Sequence[int], c: int) -> int:
        """Accumulator bits after the chain over all of K, from the bits of a, b (one element each) and c."""
        return self._run(self.kind.left(self._padded(a)), self.kind.right(self._padded(b)), c)

    def matrix(self, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]) -> NDArray[Any]:
        """d[i, j] for bits a (M, K), b (K, N), c (M, N); unsigned arrays, the result like c."""
        rows = [self.kind.left(self._padded(x)) for x in a.tolist()]
        columns = [self.kind.right(self._padded(x)) for x in b.T.tolist()]
        out = [[self._run(x, y, z) for y, z in zip(columns, line, strict=True)] for x, line in zip(rows, c.tolist())]
        return np.array(out, c.dtype).reshape(c.shape)

    def _run(self, a: Any, b: Any, c: int) -> int:
        for at in range(0, len(a), self.width):
            c = self.kind.step(a[at : at + self.width], b[at : at + self.width], c)
        return c

    def _padded(self, bits: Sequence[int]) -> list[int]:
        return [*bits, *[0] * (-len(bits) % self.width)]
