"""Hard inputs for dot products: operands in bits, deterministic for a seed, one function a strategy.

`operands(rng, strategy, (m, n, k), a, b, acc)` gives the bits of A (m, k), B (k, n) and C (m, n).  Each aims at one
way to be wrong: the order and width of the alignment, its floor, the last bit, a lost sign, a special value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.errors import OptionError
from nbtc.formats.table import Format

Words = NDArray[np.uint64]
MNK = tuple[int, int, int]
Triple = tuple[Words, Words, Words]


def words(fmt: Format, x: Words) -> NDArray[Any]:
    """Element bits in the format's own unsigned dtype."""
    return x.astype(fmt.bits_dtype)


def whole(rng: np.random.Generator, shape: tuple[int, ...], fmt: Format) -> Words:
    """Uniform bit patterns of a format."""
    return (
        rng.integers(0, 1 << fmt.bits, shape, dtype=np.uint64, endpoint=False) if fmt.bits < 64 else _word64(rng, shape)
    )


def _word64(rng: np.random.Generator, shape: tuple[int, ...]) -> Words:
    return rng.integers(0, 2**64 - 1, shape, dtype=np.uint64, endpoint=True)


def floats(rng: np.random.Generator, fmt: Format, exponent: NDArray[Any], pattern: str = "random") -> Words:
    """Finite floats of random sign with the given exponents, clipped to the format; below its least: subnormals.

    pattern of the significand: "random", "ones", "zero" (a power of two), or "edge" (one of the three an element).
    """
    shape, man = exponent.shape, fmt.mantissa
    field = np.clip(exponent + fmt.bias, 0, fmt.emax + fmt.bias).astype(np.uint64)
    ones = np.uint64((1 << man) - 1)
    drawn = _word64(rng, shape) & ones
    if pattern != "random":
        choice = rng.integers(0, 3, shape) if pattern == "edge" else np.full(shape, {"ones": 1, "zero": 2}[pattern])
        drawn = np.where(choice == 0, drawn, np.where(choice == 1, ones, np.uint64(0)))
    # the last code of the last exponent may be NaN
    bits: Words = np.minimum(field << np.uint64(man) | drawn, np.uint64(fmt.special - 1))
    bits = bits | rng.integers(0, 2, shape, dtype=np.uint64) << np.uint64(fmt.exponent + man)
    if fmt.name == "tf32":  # low bits that must not matter
        bits = bits << np.uint64(13) | rng.integers(0, 1 << 13, shape, dtype=np.uint64)
    return bits


def _sign(fmt: Format) -> np.uint64:
    return np.uint64(1 << (fmt.bits - 1))


def _zeros(rng: np.random.Generator, x: Words, fmt: Format, share: float) -> Words:
    """Some elements replaced by zeros of either sign."""
    return np.where(rng.random(x.shape) < share, x & _sign(fmt), x)


def _spread(rng: np.random.Generator, shape: tuple[int, ...], low: int, high: int) -> NDArray[np.int64]:
    return rng.integers(low, high + 1, shape)


def normal(rng: np.random.Generator, shape: MNK, a: Format, b: Format, acc: Format) -> Triple:
    """Magnitudes around one, as in real data."""
    m, n, k = shape

    def draw(size: tuple[int, int], fmt: Format) -> Words:
        scale = -rng.geometric(0.5, size)  # binades below one get rarer by half
        return floats(rng, fmt, scale + rng.integers(0, 2, size))

    return draw((m, k), a), draw((k, n), b), draw((m, n), acc)


def wide(rng: np.random.Generator, shape: MNK, a: Format, b: Format, acc: Format) -> Triple:
    """Exponents uniform in a window whose width and place change from call to call."""
    m, n, k = shape

    def draw(size: tuple[int, int], fmt: Format) -> Words:
        span = int(rng.integers(2, max(3, min(300, 2 * fmt.bias))))  # formats of few exponents span all of them
        low = int(rng.integers(fmt.emin - fmt.mantissa, fmt.bias - span + 1)) if span < 2 * fmt.bias else fmt.emin
        return floats(rng, fmt, _spread(rng, size, low, low + span), "edge")

    return draw((m, k), a), draw((k, n), b), draw((m, n), acc)


def random_bits(rng: np.random.Generator, shape: MNK, a: Format, b: Format, acc: Format) -> Triple:
    """Any bits; in most rows and columns Inf and NaN are made finite, so that not every result is NaN."""
    m, n, k = shape

    def without_specials(x: Words, fmt: Format, keep: NDArray[np.bool_]) -> Words:
        field = np.uint64(((1 << fmt.exponent) - 1) << (fmt.bits - 1 - fmt.exponent))
        top = np.uint64(1 << (fmt.bits - 2))
        return np.where((x & field == field) & ~keep, x & ~top, x)

    x = without_specials(whole(rng, (m, k), a), a, rng.random((m, 1)) < 0.25)
    y = without_specials(whole(rng, (k, n), b), b, rng.random((1, n)) < 0.25)
    return x, y, without_specials(whole(rng, (m, n), acc), acc, rng.random((m, n)) < 0.1)


def cancellation(rng: np.random.Generator, shape: MNK, a: Format, b: Format, acc: Format) -> Triple:
    """Products that cancel in pairs at random places, so that low bits and c decide."""
    m, n, k = shape
    x = floats(rng, a, _spread(rng, (m, k), -2, 2))
    y = floats(rng, b, _spread(rng, (k, n), -2, 2))
    order = rng.permutation(k)
    for first, second in zip(order[0 : k - k % 2 : 2], order[1::2], strict=True):
        x[:, second] = x[:, first] ^ _sign(a)
        y[second] = y[first]
    if k > 4:
        y[int(order[0])] = floats(rng, b, _spread(rng, (n,), -8, 1))
    small = -20 if acc.mantissa > 10 else -12
    return x, y, _zeros(rng, floats(rng, acc, _spread(rng, (m, n), small, 1)), acc, 0.3)


def subnormal(rng: np.random.Generator, shape: MNK, a: Format, b: Format, acc: Format) -> Triple:
    """Operands and accumulators around their formats' smallest normal, with zeros of both signs."""
    m, n, k = shape
    x = floats(rng, a, _spread(rng, (m, k), a.emin - 1, a.emin + 2))
    y = floats(
        rng, b, _spread(rng, (k, n), -3, 8) if rng.random() < 0.7 else _spread(rng, (k, n), b.emin - 1, b.emin + 4)
    )
    c = floats(rng, acc, _spread(rng, (m, n), acc.emin - 1, acc.emin + 12))
    return _zeros(rng, x, a, 0.2), _zeros(rng, y, b, 0.2), _zeros(rng, c, acc, 0.4)


def alignment_edge(rng: np.random.Generator, shape: MNK, a: Format, b: Format, acc: Format) -> Triple:
    """One large term a block, the others 8 to 40 binades below: what is cut, and where, decides the result."""
    m, n, k = shape
    up = min(a.bias - 2, 14)
    exponents = up - _spread(rng, (m, k), 0 if up < 10 else 8, 40)
    exponents = np.maximum(exponents, a.emin - int(rng.integers(0, 2)))
    if k:
        exponents[np.arange(m)[:, None], rng.integers(0, k, (m, max(1, k // 16)))] = up
    x = floats(rng, a, exponents, "edge")
    y = floats(rng, b, _spread(rng, (k, n), -1, 0) if rng.random() < 0.5 else _spread(rng, (k, n), -12, 0), "edge")
    middle = min(up, acc.bias - 2)
    c = floats(rng, acc, middle + _spread(rng, (m, n), -34, 34 if acc.exponent > 5 else 2), "edge")
    return x, y, _zeros(rng, c, acc, 0.2)


def extreme(rng: np.random.Generator, shape: MNK, a: Format, b: Format, acc: Format) -> Triple:
    """Products and accumulators near the largest finite result: overflow, and sums that come back from beyond it."""
    m, n, k = shape
    top = min(a.bias + b.bias, acc.bias + 1)
    high = int(rng.integers(max(top - b.bias, 0), min(a.bias, top) + 1))
    x = floats(rng, a, _spread(rng, (m, k), high - 2, high), "edge")
    y = floats(rng, b, _spread(rng, (k, n), top - high - 2, top - high), "edge")
    for operand, fmt in ((x, a), (y, b)):  # one sign in half of the calls: then nothing cancels
        if rng.random() < 0.7:
            operand &= ~_sign(fmt)
    return x, y, floats(rng, acc, _spread(rng, (m, n), acc.bias - 2, acc.bias), "edge")


def floor(rng: np.random.Generator, shape: MNK, a: Format, b: Format, acc: Format) -> Triple:
    """Sums that reach the next representable result only if a bit at 2**s counts, s around the last kept one.

    All other terms are zeros, so the exponent that a zero counts as decides what is kept.  Two or three products spell
    the gap to the least subnormal (f32, toward zero) or a tie and its breaker (f16, to nearest).
    """
    goal = -25 if acc.name == "f16" else acc.emin - acc.mantissa  # half of, or the whole, least subnormal
    first, last = (15, 23) if acc.name == "f16" else (3, 11)
    high, low = (-13, -24) if acc.name == "f16" else (goal // 2, goal // 2)

    def pieces(turn: int) -> list[tuple[int, int]]:
        s = goal - first - turn % (last + 1 - first)
        return [(1, goal), (1, s)] if acc.name == "f16" else _gap(goal, s, a.mantissa + 1)

    x, y = _spelled(rng, shape, a, b, (high, low), pieces)
    c = floats(rng, acc, np.full(shape[:2], acc.emin - 1))
    return x, y, _zeros(rng, c, acc, 0.8)


def tie(rng: np.random.Generator, shape: MNK, a: Format, b: Format, acc: Format) -> Triple:
    """A large power of two, what is missing to the next result (or a tie), and one bit around the last kept one."""
    top = 14  # e4m3 holds 2**8 and 2**-9, times 2**6 and 2**-6

    def to_nearest(turn: int) -> list[tuple[int, int]]:
        s = top - (12, 13, 14, 15, 22, 23, 24, 25, 26, 27)[turn % 10]
        if a.mantissa >= 10 and rng.random() < 0.4:  # an odd last place: the breaker from below keeps it
            return [((1 << 10) + 1, top - 10), (1, top - 11), (-1, s)]
        return [(1, top), (1, top - 11), (1, s)]

    def toward_zero(turn: int) -> list[tuple[int, int]]:
        digits, below = ((14, 13), (14, 14), (14, 15), (24, 23), (24, 24), (24, 25), (24, 26), (24, 27))[turn % 8]
        goal, s = top - digits + 1, top - below
        return [(1, top), *(_gap(goal, s, a.mantissa + 1) if s < goal else [(1, goal)])]

    pieces = to_nearest if acc.name == "f16" else toward_zero
    x, y = _spelled(rng, shape, a, b, (6, -6), pieces)
    return x, y, np.zeros(shape[:2], np.uint64)


def _spelled(
    rng: np.random.Generator,
    shape: MNK,
    a: Format,
    b: Format,
    scales: tuple[int, int],
    pieces: Callable[[int], list[tuple[int, int]]],
) -> tuple[Words, Words]:
    """Rows of A whose products with B's powers of two are given pieces (significand, unit); the last is the smallest.

    B holds 2**scales[0] in even rows of k and 2**scales[1] in odd ones, where smaller pieces fit.
    """
    m, n, k = shape
    x, y = np.zeros((m, k), np.uint64), np.empty((k, n), np.uint64)
    y[0::2], y[1::2] = (_exact(1, scale, b) for scale in scales)
    start = int(rng.integers(0, 1 << 20))
    for i in range(m):
        spelled = pieces(start + i)
        # neighbours in a block of four; for fp8 in one half of a step, whose columns may interleave in fours
        even, odd = ((0, 4), (1, 5)) if a.bits == 8 else ((0, 2), (1, 3))
        order = [even[0], *((odd[0],) if len(spelled) == 2 else (even[1], odd[0], odd[1])[: len(spelled) - 1])]
        base = 8 * int(rng.integers(0, max(1, k // 8))) if a.bits == 8 else 4 * int(rng.integers(0, max(1, k // 4)))
        for at, (significand, unit) in zip(order, spelled, strict=False):
            if base + at < k:
                x[i, base + at] = _exact(significand, unit - scales[at % 2], a)
    if rng.random() < 0.5:  # one sign a column
        y = y | (rng.integers(0, 2, (1, n), dtype=np.uint64) << np.uint64(b.bits - 1))
    return x, y


def _gap(goal: int, s: int, digits: int) -> list[tuple[int, int]]:
    """2**goal as three pieces: the bits goal-1 down to s in runs of at most `digits`, and 2**s."""
    run = goal - s
    first = min(run, digits)
    pieces = [((1 << first) - 1, goal - first)]
    if run > first:
        pieces.append(((1 << (run - first)) - 1, s))
    return [*pieces, (1, s)]


def _exact(significand: int, unit: int, fmt: Format) -> int:
    """Bits of significand * 2**unit, cut to what the format holds."""
    negative, significand = significand < 0, abs(significand)
    top = significand.bit_length() - 1 + unit
    last = max(top, fmt.emin) - fmt.mantissa
    kept = significand << (unit - last) if unit >= last else significand >> (last - unit)
    if top > fmt.emax or kept == 0:
        return 0
    code = (max(top, fmt.emin) - fmt.emin << fmt.mantissa) + kept
    code |= negative << (fmt.exponent + fmt.mantissa)
    return code << 13 if fmt.name == "tf32" else code


def special(rng: np.random.Generator, shape: MNK, a: Format, b: Format, acc: Format) -> Triple:
    """Zeros of both signs, one, the smallest and largest numbers, and in some rows Inf and NaN."""
    m, n, k = shape

    def draw(size: tuple[int, int], fmt: Format, wild: NDArray[np.bool_]) -> Words:
        shift = 13 if fmt.name == "tf32" else 0
        top = fmt.special - 1
        finite = [0, fmt.bias << fmt.mantissa, 1, (1 << fmt.mantissa) - 1, 1 << fmt.mantissa, top]
        beyond = {"ieee": [top + 1, top + 2], "nan": [top + 1], "none": []}[fmt.specials]
        values = np.array([*finite, *finite, *beyond], np.uint64)
        pick = values[rng.integers(0, len(values), size)]
        pick = np.where((pick > np.uint64(top)) & ~wild, np.uint64(0), pick) << np.uint64(shift)
        return pick | rng.integers(0, 2, size, dtype=np.uint64) << np.uint64(fmt.bits - 1)

    x = draw((m, k), a, rng.random((m, 1)) < 0.3)
    y = draw((k, n), b, rng.random((1, n)) < 0.3)
    return x, y, draw((m, n), acc, rng.random((m, n)) < 0.2)


def nan_payloads(rng: np.random.Generator, shape: MNK, a: Format, b: Format, acc: Format) -> Triple:
    """Ordinary numbers with a few NaNs of random sign, quiet bit and payload."""
    x, y, c = normal(rng, shape, a, b, acc)

    def sprinkle(v: Words, fmt: Format) -> Words:
        field = np.uint64(((1 << fmt.exponent) - 1) << (fmt.bits - 1 - fmt.exponent))
        return np.where(rng.random(v.shape) < 0.5 / max(1, shape[2]), v | field, v)

    return sprinkle(x, a), sprinkle(y, b), sprinkle(c, acc)


def uniform(rng: np.random.Generator, shape: MNK, a: Format, b: Format, acc: Format) -> Triple:
    """Integers or bits, all codes alike."""
    m, n, k = shape
    return whole(rng, (m, k), a), whole(rng, (k, n), b), whole(rng, (m, n), acc)


def near_limit(rng: np.random.Generator, shape: MNK, a: Format, b: Format, acc: Format) -> Triple:
    """Extreme integers, and accumulators near either end of s32: wrap and clamp."""
    m, n, k = shape

    def draw(size: tuple[int, int], fmt: Format) -> Words:
        ends = np.array([fmt.low, fmt.high, 0, fmt.high], np.int64)[rng.integers(0, 4, size)]
        return ends.astype(np.uint64) & np.uint64((1 << fmt.bits) - 1)

    offset = rng.integers(0, max(2, k << (a.bits + b.bits - 2)), (m, n)).astype(np.uint64)
    high = rng.random((m, n)) < 0.5
    c = np.where(high, np.uint64(0x7FFFFFFF) - offset, np.uint64(0x80000000) + offset) & np.uint64(0xFFFFFFFF)
    return draw((m, k), a), draw((k, n), b), c


_Strategy = Callable[[np.random.Generator, MNK, Format, Format, Format], Triple]
FLOAT: dict[str, _Strategy] = {
    f.__name__: f
    for f in (
        normal,
        wide,
        random_bits,
        cancellation,
        subnormal,
        alignment_edge,
        extreme,
        floor,
        tie,
        special,
        nan_payloads,
    )
}
INTEGER: dict[str, _Strategy] = {f.__name__: f for f in (uniform, near_limit)}


def strategies(fmt: Format) -> tuple[str, ...]:
    """The strategies for a multiplicand format.

    >>> from nbtc.formats.table import FORMATS
    >>> strategies(FORMATS["s8"])
    ('uniform', 'near_limit')
    """
    return tuple(FLOAT if fmt.kind == "float" else INTEGER)


def operands(rng: np.random.Generator, strategy: str, shape: MNK, a: Format, b: Format, acc: Format) -> Triple:
    """Element bits (uint64) of A (m, k), B (k, n) and C (m, n) for shape (m, n, k).

    Raises OptionError for a strategy that the format does not have.

    >>> from nbtc.formats.table import FORMATS
    >>> f16, f32 = FORMATS["f16"], FORMATS["f32"]
    >>> a, b, c = operands(np.random.default_rng(1), "wide", (2, 3, 8), f16, f16, f32)
    >>> a.shape, b.shape, c.shape
    ((2, 8), (8, 3), (2, 3))
    """
    if strategy not in strategies(a):
        have = ", ".join(strategies(a))
        raise OptionError(
            f'strategy={strategy!r} is none of those for {a.name}: {have}; pass strategy="{strategies(a)[0]}"'
        )
    with np.errstate(over="ignore"):
        return (FLOAT | INTEGER)[strategy](rng, shape, a, b, acc)
