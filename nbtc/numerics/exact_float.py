"""Floats in Python integers, for the oracle: decoding, one rounding of an exact sum, fma, f16 <-> f32.

Shares no code with the compiled core: everything follows from field widths, and nothing uses floating point.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from nbtc.formats.table import FORMATS, Format

Term = tuple[int, int]  # signed significand and the exponent of its hidden bit; a zero is (0, 0)
Number = tuple[int, int, int, int]  # the bits of a float, its sign bit and its term
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
    negative, bias = bits >> (man + exp) & 1, (1 << exp - 1) - 1
    if field == (1 << exp) - 1 and (fmt.specials == "ieee" or (fmt.specials == "nan" and fraction == (1 << man) - 1)):
        return (1, NAN) if fraction else (-1 if negative else 1, INF)
    if field:
        significand, exponent = fraction | 1 << man, field - bias
    elif fraction:
        significand, exponent = fraction, 1 - bias
    else:
        return 0, 0
    return -significand if negative else significand, exponent


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
    man, bias, emin = fmt.mantissa, fmt.bias, fmt.emin
    digits = digits or man + 1
    last = max(magnitude.bit_length() + unit - digits, emin - digits + 1)
    cut = last - unit
    if cut > 0:
        kept = magnitude >> cut
        kept += round_up(kept, magnitude - (kept << cut), 1 << (cut - 1), negative, mode)
    else:
        kept, last = magnitude, unit
    top = kept.bit_length() - 1 + last  # exponent of the leading one
    if top > bias and kept:
        return infinity(negative, fmt) - clamp
    if kept and top >= emin:
        places = kept.bit_length() - 1 - man
        fraction = kept >> places if places > 0 else kept << -places
        code = (top - emin << man) + fraction  # the hidden bit adds one to the field
    else:
        code = kept << (last - emin + man)
    return code | negative << (fmt.exponent + man)


def ieee_sum(terms: Sequence[tuple[int, int, int]], fmt: Format, mode: str = "rn") -> int:
    """One rounding of the exact sum of (sign bit, signed significand, unit exponent) terms, signed zeros as in IEEE."""
    unit = min([x for _, _, x in terms])
    total = sum([s << (x - unit) for _, s, x in terms])
    if total:
        negative = total < 0
        stops = mode == "rz" or mode == ("rp" if negative else "rm")
        return compose(negative, abs(total), unit, fmt, mode, clamp=stops)
    signs = {n for n, _, _ in terms}
    negative = signs == {1} or (len(signs) == 2 and mode == "rm")
    return negative << (fmt.bits - 1)


def add(x: int, y: int, fmt: Format) -> int:
    """IEEE sum of two f16, f32 or f64, to nearest even; a NaN is the canonical one (for f64: the default quiet NaN)."""
    return multiply_add(x, one(fmt), y, fmt, fmt)


def one(fmt: Format) -> int:
    """Bits of 1.0."""
    return fmt.bias << fmt.mantissa


def number(bits: int, fmt: Format) -> Number:
    """A float as a factor."""
    return (bits, sign(bits, fmt), *decode(bits, fmt))


def multiply_add(a: int, b: int, c: int, fmt: Format, acc: Format, mode: str = "rn") -> int:
    """fma(a, b, c) with a, b in `fmt` and c and the result in `acc`; NaNs canonical (f64: 0xFFF8 shifted up)."""
    return add_product(number(a, fmt), number(b, fmt), c, fmt, acc, mode)


def add_product(a: Number, b: Number, c: int, fmt: Format, acc: Format, mode: str = "rn") -> int:
    """`multiply_add` of factors that are decoded once for many products."""
    (_, na, sa, ea), (_, nb, sb, eb), (sc, ec) = a, b, decode(c, acc)
    if max(ea, eb, ec) >= INF:
        special = special_sum([(sa, ea, sb, eb)], sc, ec)
        if not special:
            return 0xFFF8 << 48 if acc.name == "f64" else canonical_nan(acc)
        return infinity(special < 0, acc)
    product = (na ^ nb, sa * sb, ea + eb - 2 * fmt.mantissa)
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


def widen(bits: int) -> int:
    """f16 to f32, exact; NaN canonical."""
    f16, f32 = FORMATS["f16"], FORMATS["f32"]
    return multiply_add(bits, one(f16), sign(bits, f16) << 31, f16, f32)


def narrow(bits: int) -> int:
    """f32 to f16, to nearest even; NaN canonical."""
    f16, f32 = FORMATS["f16"], FORMATS["f32"]
    s, e = decode(bits, f32)
    if e >= INF:
        return canonical_nan(f16) if e == NAN else infinity(s < 0, f16)
    return compose(s < 0, abs(s), e - 23, f16) if s else bits >> 31 << 15
